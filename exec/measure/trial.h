/** @file trial.h  Small programs that a backend runs to be measured.
 *
 * A trial is a list of ops on queues of the GPUs, with waits. A function performs them: it copies,
 * calls an operator, or does nothing. The trial goes through the backend's driver like any program,
 * on the devices and links of the run, and its times have the same source as a run's timeline:
 * events, or the clock. Ops are numbered in the order in which they were added.
 */
#pragma once

#include "exec/run/driver.h"

/** Devices and model for which a trial runs. */
typedef struct rpexec_site {
    const rpexec_driver_type *driver_type;
    rpexec_devices *devices;   /**< rpexec_driver_config */
    const rp_machine *machine; /**< rpexec_driver_config */
    const rpexec_model *model; /**< the same pointer as the run's lanes are made for */
    uint32_t gpus;
    uint32_t sequences; /**< sequences of the largest microbatch */
    uint32_t watchdog_s;
    bool bound;         /**< rpexec_driver_config */
    uint64_t gpu_bytes; /**< bytes of a GPU's memory that may be taken; 0: the host's memory limits
                             them */
} rpexec_site;

typedef struct rpexec_trial_op {
    uint64_t bytes;
    uint32_t wait_begin; /**< the op's waits are waits[wait_begin .. next op's wait_begin) */
    uint16_t gpu;
    uint8_t queue; /**< rp_queue_kind, on GPUs */
    uint8_t kind;  /**< rp_op_kind */
} rpexec_trial_op;

/** A trial; everything lives in the arena in which it was made. */
typedef struct rpexec_trial {
    const rpexec_site *site;
    rp_arena *arena;
    rpexec_trial_op *ops;
    uint32_t op_count;
    uint32_t op_most;
    uint32_t *waits; /**< numbers of ops */
    uint32_t wait_count;
    uint32_t wait_most;
    uint64_t gpu_bytes;  /**< bytes of each GPU's arena; set by the caller before the run */
    uint64_t host_bytes; /**< bytes of pinned host memory; set by the caller before the run */
    int64_t *start_ps;   /**< [op] after a run */
    int64_t *end_ps;
    int64_t *work_ps;    /**< end - start, or the part of it that counts (rp_timeline.work_ps) */
    int64_t *perform_ns; /**< the host's clock when `perform` was called for the op */
    double wall_s;       /**< seconds of the run, with opening and closing */
} rpexec_trial;

/** Function that performs a trial's ops: like rpexec_perform, with the number of the op in the
 * trial as well. `op` is its number in the program, for the driver's functions. */
typedef rp_status (*rpexec_trial_perform)(void *context, uint32_t number, uint32_t op,
                                          rpexec_driver *driver, rpexec_lane *lane);

/** Called when memory is there, before the first op; may be NULL. */
typedef rp_status (*rpexec_trial_prepare)(void *context, rpexec_driver *driver);

/** Begins an empty trial. @param site must outlive it */
void rpexec_trial_begin(const rpexec_site *site, rp_arena *arena, rpexec_trial *trial_out);

/**
 * Adds an op at the end of its queue.
 * @param op wait_begin is not read
 * @param waits [wait_count] numbers of the ops of other queues that the op waits for
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_trial_add(rpexec_trial *trial, const rpexec_trial_op *op, const uint32_t *waits,
                           uint32_t wait_count);

/**
 * Runs a trial. SENDs need a RECV of the receiving GPU that waits for them; every GPU needs a
 * compute op, since clocks are set by the compute queue.
 * @retval RP_OK, or a status of the driver or the functions (logged)
 */
rp_status rpexec_trial_run(rpexec_trial *trial, rpexec_trial_prepare prepare,
                           rpexec_trial_perform perform, void *context);

/** rpexec_trial_add with the members of the op as arguments. The op's number is op_count before the
 * call. */
static inline rp_status rpexec_trial_append(rpexec_trial *trial, uint32_t gpu, rp_queue_kind queue,
                                            rp_op_kind kind, uint64_t bytes, const uint32_t *waits,
                                            uint32_t wait_count)
{
    const rpexec_trial_op op = {
        .gpu = (uint16_t)gpu, .queue = (uint8_t)queue, .kind = (uint8_t)kind, .bytes = bytes};
    return rpexec_trial_add(trial, &op, waits, wait_count);
}
