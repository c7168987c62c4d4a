/** @file trial.h  Small programs that a backend runs to be measured.
 *
 * A trial is a list of ops on queues of the GPUs, with waits, that do what a function says:
 * copy, call an operator, nothing. It goes through the backend's driver as any program does, on the
 * devices and links of the run, and its times come from where a run's timeline comes from: events,
 * or the clock. Ops are numbered in the order in which they were added.
 */
#pragma once

#include "exec/run/driver.h"

/** Where and for what a trial runs. */
typedef struct rpexec_site {
    const rpexec_driver_type *driver_type;
    rpexec_devices *devices;   /**< rpexec_driver_config */
    const rp_machine *machine; /**< rpexec_driver_config */
    const rpexec_model *model; /**< that the run's lanes are made for: the same pointer */
    uint32_t gpus;
    uint32_t sequences; /**< of the largest microbatch */
    uint32_t watchdog_s;
    bool bound;         /**< rpexec_driver_config */
    uint64_t gpu_bytes; /**< of a GPU's memory that may be taken; 0: as the host's memory allows */
} rpexec_site;

typedef struct rpexec_trial_op {
    uint64_t bytes;
    uint32_t wait_begin; /**< its waits are waits[wait_begin .. next op's wait_begin) */
    uint16_t gpu;
    uint8_t queue; /**< rp_queue_kind, on GPUs */
    uint8_t kind;  /**< rp_op_kind */
} rpexec_trial_op;

/** Everything lives in the arena it was made in. */
typedef struct rpexec_trial {
    const rpexec_site *site;
    rp_arena *arena;
    rpexec_trial_op *ops;
    uint32_t op_count;
    uint32_t op_most;
    uint32_t *waits; /**< numbers of ops */
    uint32_t wait_count;
    uint32_t wait_most;
    uint64_t gpu_bytes;  /**< of each GPU's arena; set by the caller before the run */
    uint64_t host_bytes; /**< of pinned host memory, likewise */
    int64_t *start_ps;   /**< [op] after a run */
    int64_t *end_ps;
    int64_t *work_ps;    /**< end - start, or of that what counts (rp_timeline.work_ps) */
    int64_t *perform_ns; /**< the host's clock when `perform` was called for the op */
    double wall_s;       /**< of the run, with opening and closing */
} rpexec_trial;

/** Function that performs a trial's ops: as rpexec_perform, with the number of the op in the trial.
 * `op` is its number in the program, which the driver's functions take. */
typedef rp_status (*rpexec_trial_perform)(void *context, uint32_t number, uint32_t op,
                                          rpexec_driver *driver, rpexec_lane *lane);

/** Called when memory is there, before the first op; may be NULL. */
typedef rp_status (*rpexec_trial_prepare)(void *context, rpexec_driver *driver);

/** An empty trial. @param site must outlive it */
void rpexec_trial_begin(const rpexec_site *site, rp_arena *arena, rpexec_trial *trial_out);

/**
 * Adds an op behind those of its queue.
 * @param op wait_begin is not read
 * @param waits [wait_count] numbers of ops of other queues that it waits for
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_trial_add(rpexec_trial *trial, const rpexec_trial_op *op, const uint32_t *waits,
                           uint32_t wait_count);

/**
 * Runs a trial. SENDs need a RECV of the receiving GPU that waits for them; every GPU needs a
 * compute op, whose queue clocks are set by.
 * @retval RP_OK, and what driver and functions give (logged)
 */
rp_status rpexec_trial_run(rpexec_trial *trial, rpexec_trial_prepare prepare,
                           rpexec_trial_perform perform, void *context);

/** rpexec_trial_add with the op in words; its number is the op_count before. */
static inline rp_status rpexec_trial_append(rpexec_trial *trial, uint32_t gpu, rp_queue_kind queue,
                                            rp_op_kind kind, uint64_t bytes, const uint32_t *waits,
                                            uint32_t wait_count)
{
    const rpexec_trial_op op = {
        .gpu = (uint16_t)gpu, .queue = (uint8_t)queue, .kind = (uint8_t)kind, .bytes = bytes};
    return rpexec_trial_add(trial, &op, waits, wait_count);
}
