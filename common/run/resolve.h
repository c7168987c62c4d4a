/** @file resolve.h  rp_resolved: a run as a program knows it, with nothing left open.
 *
 * rp_run (run.h) holds what a user decides. rp_resolve looks at it together with schedule, model,
 * platform and costs, once, and settles every number that follows: GPUs of a stage's pipeline,
 * microbatches of a call and of a step, the batch, rounds, types. It is the only place that knows
 * what an omitted decision means. rp_compile makes the program of the result.
 */
#pragma once

#include "common/base/reason.h"
#include "common/run/run.h"

/** All that decides a program, and the sizes of its data. Everything is borrowed. */
typedef struct rp_resolved {
    const rp_schedule_type *schedule; /**< NULL: of a program that was given and is none's */
    const rp_model *model;            /**< NULL: unknown, at stage fidelity */
    const rp_costs *costs; /**< places rounds and the even partition; their proportions matter */
    bool stage;            /**< stage fidelity: the program is a compute schedule, nothing moves */
    uint32_t layers;       /**< 0: the model's */
    uint32_t gpus; /**< of one copy and rank of a tensor group: those that stages are spread over */
    rp_layout layout; /**< of copies and tensor groups; batch and microbatches are of one copy */
    uint32_t seq_len; /**< tokens of a sequence */
    /** Slices that a sequence is cut into, each of which counts as one in batch and microbatches:
     * tensor parallelism with fewer sequences than GPUs. 0 or 1: none. */
    uint32_t sequence_slices;
    rp_dtype dtype;             /**< of working weights, boundary tensors and gradients */
    uint32_t global_batch;      /**< sequences of a step of one copy; 0: microbatches say it */
    uint32_t calls;             /**< of a step, each of `microbatches` microbatches */
    uint32_t microbatches;      /**< of a call */
    uint32_t last_microbatches; /**< of the last call, fewer than the others; 0: as many */
    uint32_t microbatch_size;   /**< sequences of a microbatch, without `sequences` */
    const uint32_t *sequences;  /**< [microbatches of a step] of each; NULL: microbatch_size */
    uint32_t iterations;
    /** Microbatches of a RoundPipe round. As many as a call has, or RP_ROUND_ALL: the library's
     * order, where the rotation goes on from call to call. Fewer: the paper's, where a round begins
     * on the GPU that is free first, and rounds of a call do not wait for each other. */
    uint32_t round;
    rp_round_start round_start; /**< at stage fidelity; lowered programs: as `round` says */
    bool asynchronous;
    rp_recompute recompute;
    bool layer_grain;              /**< recompute layer by layer */
    uint32_t peer_gpus;            /**< of resident weights: rp_lower_config.peer_gpus */
    uint64_t piece_bytes;          /**< largest piece of a parameter upload; 0: RP_PIECE_BYTES */
    const rp_partition *partition; /**< NULL: even, by `costs` */
    bool planned;                  /**< the partition is RoundPipe's plan for these sequences */
    const struct rp_torch_csv *orders; /**< as rp_schedule_config */
    rp_reductions reductions;          /**< of FSDP, and of copies */
    uint64_t boundary_bytes;           /**< at stage fidelity; 0 when unknown */
    bool sets_constant; /**< the published cell set a constant of the platform file */
    uint32_t sets_gpus; /**< the cell with this many GPUs did; 0: the cell with all GPUs */
} rp_resolved;

/** @return microbatches of a step. */
static inline uint32_t rp_resolved_microbatches(const rp_resolved *run)
{
    uint32_t last = run->last_microbatches != 0 ? run->last_microbatches : run->microbatches;
    return (run->calls - 1) * run->microbatches + last;
}

/** @return sequences of a microbatch of the step. */
static inline uint32_t rp_resolved_sequences(const rp_resolved *run, uint32_t microbatch)
{
    return run->sequences != NULL ? run->sequences[microbatch] : run->microbatch_size;
}

/** @return microbatches of a round; of schedules that have none those of a call. */
static inline uint32_t rp_resolved_round(const rp_resolved *run)
{
    bool all = run->round == RP_ROUND_ALL || run->round >= run->microbatches;
    return all ? run->microbatches : run->round;
}

/** @return true where a schedule recomputes layer by layer unless somebody says otherwise:
 * data-parallel systems and tensor parallelism, which checkpoint every layer. */
static inline bool rp_usual_layer_grain(const rp_schedule_type *schedule)
{
    return rp_is_data_parallel(&schedule->traits);
}

/** @return GPUs of one copy and rank of a tensor group, those that stages are spread over, of a run
 * whose `gpus` are decided: those of each of its servers. */
uint32_t rp_run_places(const rp_run *run);

/**
 * Decides what a run leaves open and nothing else says, as no platform, cost table or publication
 * does: 2 N microbatches in one call, each of a sequence; grain and recompute of the schedule.
 * @param run its gpus and layout are decided
 */
void rp_run_decide(rp_run *run, const rp_schedule_type *schedule);

/**
 * A run of which all is decided (rp_run_decide), at hardware fidelity.
 * @return it, without costs, iterations and partition, which are the caller's. It borrows.
 */
rp_resolved rp_resolved_of_run(const rp_run *run, const rp_schedule_type *schedule,
                               const rp_model *model);

/**
 * What a program says of the run that it is of.
 * @param calls that its microbatches are split into, which it does not say; a divisor of their
 *        number
 * @return it, without schedule, model, costs, batch and partition; `stage` of a compute schedule;
 *         microbatch_size of the largest microbatch, 0 if the program has no sequences
 */
rp_resolved rp_resolved_of_program(const rp_program *program, uint32_t calls);

/** Decides what a program has decided that is run instead of a schedule's: its GPUs, copies, tensor
 * groups and microbatches, optimizer and recompute; if it is lowered, type and grain, too. */
void rp_run_of_program(const rp_resolved *program, rp_run *run);

/** @return what the schedule sees of a run. It borrows from it. */
rp_schedule_config rp_resolved_view(const rp_resolved *run);

/**
 * Sequences of each microbatch of a step: the batch split over the calls and each call over its
 * microbatches as evenly as possible.
 * @param sequences_out [calls * microbatches], in `arena`
 * @retval RP_OK, RP_USAGE (fewer sequences than microbatches), RP_NO_MEMORY
 */
rp_status rp_resolved_split(const rp_resolved *run, rp_arena *arena, uint32_t **sequences_out,
                            rp_reason *reason);

/**
 * The run configuration behind a published measurement (traces/configs/paper.csv).
 * @param optimizer_given whether run->asynchronous must match; otherwise any optimizer does
 * @param run its schedule is set; batch, calls, microbatches, optimizer, grain and type are set
 * @retval RP_OK, RP_USAGE (not listed; the reason has what is), RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rp_resolve_published(const char *model, bool optimizer_given, rp_resolved *run,
                               rp_reason *reason);

/**
 * The run configuration behind a published longest sequence (traces/configs/paper_seqlen.csv).
 * @param run as of rp_resolve_published; sequence_slices are set, too
 * @retval as rp_resolve_published
 */
rp_status rp_resolve_longest(const char *model, rp_resolved *run, rp_reason *reason);

/** Inputs that a run is resolved with. Everything is borrowed. */
typedef struct rp_run_inputs {
    const rp_platform *platform;
    const rp_costs *costs;
    const rp_model *model;             /**< NULL: unknown, at stage fidelity */
    const char *recorded_name;         /**< model whose published runs are its own; may be "" */
    const struct rp_torch_csv *orders; /**< of a file, whose sizes `run` has; NULL: none */
    uint32_t usual_iterations;         /**< at hardware fidelity; 0: RP_STEADY_ITERATIONS */
} rp_run_inputs;

/**
 * Settles a run: everything but its partition.
 * @param run accepted by rp_run_check_layout and the checks of compile.h for this schedule
 * @param recompute one of run->recomputes, or the schedule's own
 * @param resolved_out borrows from `inputs` and `schedule`; partition NULL
 * @retval RP_OK, RP_USAGE (sizes that do not fit each other), RP_INPUT, RP_IO (the tables of
 * published runs), RP_NO_MEMORY
 */
rp_status rp_resolve(const rp_run *run, const rp_run_inputs *inputs,
                     const rp_schedule_type *schedule, rp_recompute recompute,
                     rp_resolved *resolved_out, rp_reason *reason);
