/** @file compile.h  The only way from a run's description to its checked, lowered program.
 *
 * rpsim, rpexec, rpsweep and rppredict describe a run with the same words, and the same words give
 * the same program, byte for byte. Defaults that decide a program are set here as well:
 *
 *  - dtype: the caller's; fp16 in rpsim, as in published systems, fp32 in rpexec; reports of both
 * state it;
 *  - grain: rp_usual_layer_grain;
 *  - pieces of parameter uploads: RP_PIECE_BYTES;
 *  - partition: rp_compile_partition;
 *  - costs that place rounds and the `even` partition: the caller's, which are measured or come
 *    from common/roofline for the platform. rpexec without a platform balances FLOP counts.
 */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/stacks/stack.h"
#include "common/lower/lower.h"
#include "common/run/resolve.h"

/**
 * Checks --grain layer, which changes nothing if nothing is recomputed.
 * @param layer_grain whether the option was given as layer
 * @param recompute_given whether the user has asked for the kind of recomputation
 * @param idle_out the schedule itself recomputes nothing: worth a warning
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_compile_check_grain(const rp_schedule_type *schedule, rp_recompute recompute,
                                 bool layer_grain, bool recompute_given, bool *idle_out,
                                 rp_reason *reason);

/** Warns of a grain that changes nothing. */
void rp_compile_warn_of_grain(const rp_schedule_type *schedule);

/**
 * Checks that a backward finds its inputs on its own GPU: no program sends a forward's tape to
 * another GPU. And that the software of the times has selective recompute, if it is asked for.
 * @param schedule NULL: the program is given @param stack as rp_costs.stack
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_compile_check_recompute(const rp_schedule_type *schedule, rp_recompute recompute,
                                     const rp_stack *stack, rp_reason *reason);

/**
 * Checks --offload-activations: weights in host memory have their saved inputs there, too, and
 * megatron-tp is lowered as slices of whole microbatches.
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_compile_check_offload(const rp_schedule_type *schedule, bool offload_activations,
                                   rp_reason *reason);

/**
 * Checks --reduce-each and --reduce-dtype, which are valid for FSDP and copies of a pipeline.
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_compile_check_reductions(const rp_schedule_type *schedule, const rp_layout *layout,
                                      const rp_reductions *reductions, rp_reason *reason);

/**
 * Checks --tensor-parallel, --data-parallel and the options that depend on them, which are valid
 * for pipelines of resident weights.
 * @param model NULL if no copies share experts
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_compile_check_layout(const rp_schedule_type *schedule, const rp_layout *layout,
                                  const rp_model *model, uint32_t seq_len, bool asynchronous,
                                  rp_reason *reason);

/** Sets the requested reductions in a schedule's traits, the layout included. @param dtype type of
 * the run */
void rp_compile_set_reductions(const rp_reductions *reductions, rp_dtype dtype, rp_traits *traits);

/** Sets what the software of a run moves otherwise than its schedule says (rp_stack.gpu_adds).
 * @param costs the run's, whose stack decides; NULL: not known */
void rp_compile_set_software(const rp_costs *costs, rp_traits *traits);

/** Words that rp_compile_partition accepts, for messages. */
#define RP_PARTITION_WORDS "paper, even"

/**
 * Gives the partition that --partition asks for.
 * @param text "paper", "even" or a list (rp_partition_parse); NULL: the paper's partition for
 *        schedule and model if there is one and the sizes allow it, otherwise even
 * @param words values of the option other than lists, for messages
 * @param stages stages of the even partition; 0: the default number. If not 0, a `text` of NULL
 * means even
 * @param config costs and sizes; its partition is not read
 * @param partition_out lives in `arena`; rp_schedule_check has not seen it
 * @retval RP_OK, RP_USAGE (refused), RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rp_compile_partition(const char *text, const char *words, const char *model,
                               uint32_t stages, const rp_schedule_type *schedule,
                               const rp_schedule_config *config, rp_arena *arena,
                               rp_partition *partition_out, rp_reason *reason);

/** Source of published partitions; `find` works as rp_partition_published, which reads the file. */
typedef struct rp_published_source {
    rp_status (*find)(void *context, const char *schedule, const char *model, rp_arena *arena,
                      rp_partition *partition_out, bool *found_out);
    void *context;
} rp_published_source;

/** As rp_compile_partition, but takes published partitions from `source` instead of the file. */
rp_status rp_compile_partition_from(const rp_published_source *source, const char *text,
                                    const char *words, const char *model, uint32_t stages,
                                    const rp_schedule_type *schedule,
                                    const rp_schedule_config *config, rp_arena *arena,
                                    rp_partition *partition_out, rp_reason *reason);

/** @return whether the schedule's rules allow a partition for these sizes; nothing is logged. */
bool rp_partition_is_allowed(const rp_schedule_type *schedule, const rp_schedule_config *config,
                             const rp_partition *partition);

/**
 * Gives the types of a run's tensors: bf16 masters of weights that are bf16 on the GPU are these
 * weights.
 */
rp_types rp_compile_types(const rp_traits *traits, rp_dtype dtype);

/**
 * Gives the memory traffic of a step over that of Adam alone, which is less in other types; what
 * software moves beside Adam with fp32 states it moves with others, too.
 * @param step_bytes of the software per parameter, with fp32 states and masters
 */
double rp_compile_step_passes(const rp_traits *traits, rp_dtype dtype, double step_bytes);

/**
 * Gives the sizes of a run's tensors, in the types that the traits say, with the loss as the
 * schedule's software computes it.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_compile_sizes(const rp_traits *traits, const rp_model *model, uint32_t seq_len,
                           rp_dtype dtype, rp_arena *arena, rp_sizes *sizes_out);

/**
 * Lowers a compute schedule as the run's description asks.
 * @param schedule accepted by rp_program_check; its traits and sizes apply, not the description's
 * @param program_out owned by the caller
 * @retval RP_OK, RP_USAGE (a form that cannot be lowered; logged), RP_NO_MEMORY
 */
rp_status rp_compile_lower(const rp_resolved *config, const rp_program *schedule,
                           rp_program **program_out);

/**
 * Builds and lowers the program.
 * @param program_out owned by the caller; passes rp_program_check
 * @retval RP_OK, RP_USAGE (the schedule does not support it, or it is too large), RP_NO_MEMORY
 */
rp_status rp_compile(const rp_resolved *config, rp_program **program_out, rp_reason *reason);
