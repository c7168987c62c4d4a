/** @file compile.h  From a run's description to its checked, lowered program: the only way there.
 *
 * rpsim, rpexec, rpsweep and rppredict describe a run with the same words, so the same words give
 * the same program, byte for byte. Defaults that decide a program are here as well:
 *
 *  - dtype: the caller's; rpsim has fp16, as published systems, rpexec fp32. Reports of both say
 * it;
 *  - grain: rp_usual_layer_grain;
 *  - pieces of parameter uploads: RP_PIECE_BYTES;
 *  - partition: rp_compile_partition;
 *  - costs that place rounds and the `even` partition: the caller's, measured ones or those of
 *    common/roofline for the platform. rpexec without a platform balances FLOP counts.
 */
#pragma once

#include "common/base/reason.h"
#include "common/lower/lower.h"
#include "common/run/resolve.h"

/**
 * Looks at --grain layer where nothing is recomputed, which changes nothing.
 * @param layer_grain as the option was given
 * @param recompute_given whether nothing is recomputed because somebody said so
 * @param idle_out the schedule itself recomputes nothing: worth a warning
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_compile_check_grain(const rp_schedule_type *schedule, rp_recompute recompute,
                                 bool layer_grain, bool recompute_given, bool *idle_out,
                                 rp_reason *reason);

/** Warns of a grain that changes nothing. */
void rp_compile_warn_of_grain(const rp_schedule_type *schedule);

/**
 * Checks that a backward finds what it needs where it runs: no program sends a forward's tape to
 * another GPU.
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_compile_check_recompute(const rp_schedule_type *schedule, rp_recompute recompute,
                                     rp_reason *reason);

/**
 * Looks at --reduce-each and --reduce-dtype, which FSDP and copies of a pipeline have.
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_compile_check_reductions(const rp_schedule_type *schedule, const rp_layout *layout,
                                      const rp_reductions *reductions, rp_reason *reason);

/**
 * Looks at --tensor-parallel, --data-parallel and what they make possible; pipelines of resident
 * weights have them.
 * @param model NULL where no copies share experts
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_compile_check_layout(const rp_schedule_type *schedule, const rp_layout *layout,
                                  const rp_model *model, uint32_t seq_len, bool asynchronous,
                                  rp_reason *reason);

/** Sets in a schedule's traits, the layout included, what is asked for. @param dtype of the run */
void rp_compile_set_reductions(const rp_reductions *reductions, rp_dtype dtype, rp_traits *traits);

/** Words of rp_compile_partition, for messages. */
#define RP_PARTITION_WORDS "paper, even"

/**
 * The partition of --partition.
 * @param text "paper", "even" or a list (rp_partition_parse); NULL: the paper's where it lists one
 *        for schedule and model that the sizes allow, otherwise even
 * @param words all that the option takes besides lists, for messages
 * @param stages of the even partition; 0: its default. Not 0: NULL means even
 * @param config costs and sizes; its partition is not read
 * @param partition_out lives in `arena`; rp_schedule_check has not seen it
 * @retval RP_OK, RP_USAGE (refused), RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rp_compile_partition(const char *text, const char *words, const char *model,
                               uint32_t stages, const rp_schedule_type *schedule,
                               const rp_schedule_config *config, rp_arena *arena,
                               rp_partition *partition_out, rp_reason *reason);

/** Where published partitions come from; as rp_partition_published, which reads the file. */
typedef struct rp_published_source {
    rp_status (*find)(void *context, const char *schedule, const char *model, rp_arena *arena,
                      rp_partition *partition_out, bool *found_out);
    void *context;
} rp_published_source;

/** As rp_compile_partition, which reads published partitions from the file. */
rp_status rp_compile_partition_from(const rp_published_source *source, const char *text,
                                    const char *words, const char *model, uint32_t stages,
                                    const rp_schedule_type *schedule,
                                    const rp_schedule_config *config, rp_arena *arena,
                                    rp_partition *partition_out, rp_reason *reason);

/** @return true where the schedule's rules allow a partition for these sizes; nothing is logged. */
bool rp_partition_is_allowed(const rp_schedule_type *schedule, const rp_schedule_config *config,
                             const rp_partition *partition);

/**
 * Sizes of a run's tensors; the loss as the schedule's software computes it.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_compile_sizes(const rp_traits *traits, const rp_model *model, uint32_t seq_len,
                           rp_dtype dtype, rp_arena *arena, rp_sizes *sizes_out);

/**
 * Lowers a compute schedule as the description says.
 * @param schedule accepted by rp_program_check; its traits and sizes count, not the description's
 * @param program_out owned by the caller
 * @retval RP_OK, RP_USAGE (a form that cannot be lowered; logged), RP_NO_MEMORY
 */
rp_status rp_compile_lower(const rp_resolved *config, const rp_program *schedule,
                           rp_program **program_out);

/**
 * Builds and lowers the program.
 * @param program_out owned by the caller; passes rp_program_check
 * @retval RP_OK, RP_USAGE (what the schedule does not do, or too large), RP_NO_MEMORY
 */
rp_status rp_compile(const rp_resolved *config, rp_program **program_out, rp_reason *reason);
