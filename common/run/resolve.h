/** @file resolve.h  rp_resolved: a run with every decision made, as a program knows it.
 *
 * rp_run (run.h) holds the user's decisions. rp_resolve combines them with schedule, model,
 * platform and costs and settles every number that follows: GPUs of a pipeline, microbatches of a
 * call and of a step, the batch, rounds, types. No other code knows the meaning of an omitted
 * decision. rp_compile makes the program from the result.
 */
#pragma once

#include "common/base/reason.h"
#include "common/run/run.h"

/** Everything that decides a program and the sizes of its data. Everything is borrowed. */
typedef struct rp_resolved {
    const rp_schedule_type *schedule; /**< NULL: a given program, which has no schedule */
    const rp_model *model;            /**< NULL: unknown, at stage fidelity */
    const rp_costs *costs;            /**< place rounds and the even partition, by proportions */
    /** The run with every decision made that its program needs. Members below settle its fidelity,
     * gpus, global_batch, recomputes and partition. Its microbatches are those of a call. As many
     * in a RoundPipe round as a call has, or RP_ROUND_ALL: the library's order, in which the
     * rotation goes on from call to call. Fewer: the paper's order, in which a round begins on the
     * GPU that is free first, and rounds of a call do not wait for each other. round_start counts
     * at stage fidelity; for lowered programs `round` decides it. */
    rp_run decided;
    bool stage;      /**< stage fidelity: the program is a compute schedule without transfers */
    uint32_t layers; /**< number of layers; 0: the model's */
    uint32_t gpus;   /**< GPUs over which the stages of a copy are spread, for each rank of a tensor
                        group */
    uint32_t ranks;  /**< rp_program.ranks; 0: gpus */
    /** Slices of each sequence, which count as sequences in batch and microbatches: for tensor
     * parallelism with fewer sequences than GPUs. 0 or 1: sequences are whole. */
    uint32_t sequence_slices;
    uint32_t global_batch; /**< sequences of a step and copy; 0: the sum over the microbatches */
    uint32_t last_microbatches; /**< microbatches of a shorter last call; 0: it is as long as the
                                   others */
    const uint32_t *sequences;  /**< [microbatches of a step]; NULL: microbatch_size each */
    rp_recompute recompute;
    uint32_t peer_gpus;                /**< rp_lower_config.peer_gpus, for resident weights */
    const uint32_t *peer_groups;       /**< rp_lower_config.peer_groups */
    const rp_partition *partition;     /**< NULL: even, by `costs` */
    bool planned;                      /**< the partition is RoundPipe's plan for these sequences */
    const struct rp_torch_csv *orders; /**< as in rp_schedule_config */
    uint64_t boundary_bytes; /**< bytes of a boundary tensor, at stage fidelity; 0: unknown */
    bool sets_constant;      /**< the published cell set a constant of the platform file */
    uint32_t sets_gpus;      /**< number of GPUs of that cell; 0: the cell with all GPUs */
} rp_resolved;

/** @return microbatches of a step. */
static inline uint32_t rp_resolved_microbatches(const rp_resolved *run)
{
    uint32_t of_call = run->decided.microbatches;
    uint32_t last = run->last_microbatches != 0 ? run->last_microbatches : of_call;
    return (run->decided.accumulate - 1) * of_call + last;
}

/** @return sequences of a microbatch of the step. */
static inline uint32_t rp_resolved_sequences(const rp_resolved *run, uint32_t microbatch)
{
    return run->sequences != NULL ? run->sequences[microbatch] : run->decided.microbatch_size;
}

/** @return microbatches of a round, or of a call if the schedule has no rounds. */
static inline uint32_t rp_resolved_round(const rp_resolved *run)
{
    uint32_t round = run->decided.round;
    bool all = round == RP_ROUND_ALL || round >= run->decided.microbatches;
    return all ? run->decided.microbatches : round;
}

/** @return true for schedules that recompute layer by layer by default: data-parallel systems and
 * tensor parallelism, which checkpoint every layer. */
static inline bool rp_usual_layer_grain(const rp_schedule_type *schedule)
{
    return rp_is_data_parallel(&schedule->traits);
}

/** @return true for runs that are cut into layers by default: of those schedules, and all that
 * offload activations, as software does layer by layer. */
static inline bool rp_run_usual_layer_grain(const rp_run *run, const rp_schedule_type *schedule)
{
    return run->offload_activations || rp_usual_layer_grain(schedule);
}

/** @return GPUs over which the stages of a copy are spread, for each rank of a tensor group,
 * counted in all servers. @param run its `gpus`, the GPUs of each server, are decided */
uint32_t rp_run_places(const rp_run *run);

/**
 * Makes the decisions that a run leaves open and that no platform, cost table or publication makes:
 * 2 N microbatches in a single call, each of a sequence; grain and recompute of the schedule.
 * @param run its GPUs and layout are decided
 */
void rp_run_decide(rp_run *run, const rp_schedule_type *schedule);

/**
 * Resolves a run in which everything is decided (rp_run_decide), at hardware fidelity.
 * @return the resolved run without costs, iterations and partition, which the caller adds. It
 * borrows from the arguments.
 */
rp_resolved rp_resolved_of_run(const rp_run *run, const rp_schedule_type *schedule,
                               const rp_model *model);

/**
 * Gives the run of a program, which replaces a schedule's program.
 * @param calls calls into which its microbatches are split, which the program does not tell; a
 *        divisor of their number
 * @param asked decides all that the program leaves open
 * @return the run with the program's GPUs, layout, microbatches, iterations, optimizer and
 *         recompute; if it has sequences, the size of the largest microbatch; if it is lowered,
 * type and grain, too
 */
rp_run rp_run_of_program(const rp_program *program, uint32_t calls, const rp_run *asked);

/**
 * Gives what is known of a run from its program. @param calls as for rp_run_of_program
 * @return the run without schedule, model, costs, batch and partition; `stage` is set for a compute
 *         schedule; microbatch_size 0 if the program has no sequences
 */
rp_resolved rp_resolved_of_program(const rp_program *program, uint32_t calls);

/** @return the schedule's view of a run, which borrows from it. */
rp_schedule_config rp_resolved_view(const rp_resolved *run);

/**
 * Gives the sequences of each microbatch of a step: splits the batch over the calls and each call
 * over its microbatches as evenly as possible.
 * @param sequences_out [calls * microbatches], in `arena`
 * @retval RP_OK, RP_USAGE (fewer sequences than microbatches), RP_NO_MEMORY
 */
rp_status rp_resolved_split(const rp_resolved *run, rp_arena *arena, uint32_t **sequences_out,
                            rp_reason *reason);

/**
 * Gives the run configuration of a published measurement (traces/configs/paper.csv).
 * @param optimizer_given whether the run's optimizer must match; otherwise any optimizer does
 * @param run its schedule is set; batch, optimizer and type are set, and calls, microbatches and
 *        grain if they are not decided
 * @retval RP_OK, RP_USAGE (not listed; the reason lists the published runs), RP_INPUT, RP_IO,
 * RP_NO_MEMORY
 */
rp_status rp_resolve_published(const char *model, bool optimizer_given, rp_resolved *run,
                               rp_reason *reason);

/**
 * Gives the run configuration of a published longest sequence (traces/configs/paper_seqlen.csv).
 * @param run as for rp_resolve_published; sequence_slices is set, too
 * @retval as rp_resolve_published
 */
rp_status rp_resolve_longest(const char *model, rp_resolved *run, rp_reason *reason);

/** Inputs for resolving a run. Everything is borrowed. */
typedef struct rp_run_inputs {
    const rp_platform *platform;
    const rp_costs *costs;
    const rp_model *model;             /**< NULL: unknown, at stage fidelity */
    const char *recorded_name;         /**< model whose published runs are its own; may be "" */
    const struct rp_torch_csv *orders; /**< orders of a file, whose sizes `run` has; NULL: none */
    uint32_t usual_iterations;         /**< default at hardware fidelity; 0: RP_STEADY_ITERATIONS */
} rp_run_inputs;

/**
 * Settles everything of a run except its partition.
 * @param run accepted by rp_run_check_layout and the checks of compile.h for this schedule
 * @param recompute one of run->recomputes, or the schedule's own
 * @param resolved_out borrows from `inputs` and `schedule`; partition NULL
 * @retval RP_OK, RP_USAGE (sizes that contradict each other), RP_INPUT, RP_IO (from the tables of
 * published runs), RP_NO_MEMORY
 */
rp_status rp_resolve(const rp_run *run, const rp_run_inputs *inputs,
                     const rp_schedule_type *schedule, rp_recompute recompute,
                     rp_resolved *resolved_out, rp_reason *reason);
