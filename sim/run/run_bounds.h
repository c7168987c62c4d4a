/** @file run_bounds.h  The lower bounds of a run: gathers the inputs of bounds.h from it. */
#pragma once

#include "common/base/reason.h"

#include "sim/run/hardware_case.h"

/**
 * R of bounds.h: the number of times per direction that a layer's weights come to a GPU, by the
 * schedule's rule.
 * @param schedule may be NULL
 * @return 0 if it is unknown, or every microbatch may be on a GPU of its own
 */
uint32_t rpsim_bound_rounds(const rp_schedule_type *schedule, const rp_schedule_config *config);

/**
 * Computes the bounds of one iteration at stage fidelity.
 * @param schedule and config NULL for a program of unknown origin: then no RAMP
 * @param busy_ps all compute of the run
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_bounds_stage(const rp_schedule_type *schedule, const rp_schedule_config *config,
                             const rp_producers *producers, const rp_stage_times *times,
                             const rp_costs *costs, int64_t busy_ps, rpsim_bounds *bounds_out);

/** One step of a run at hardware fidelity. */
typedef struct rpsim_bound_run {
    const rp_schedule_type *schedule; /**< NULL: unknown */
    const rp_schedule_config *config; /**< NULL: unknown */
    const rp_program *program;
    const rpsim_compute_costs *costs;
    const rp_model *model;
    const rp_machine *machine;
    const rpsim_memory_limits *limits; /**< NULL if the run does not fit, or that is unknown */
    uint32_t seq_len;  /**< tokens of a sequence or, where it is cut, of its slice */
    bool through_host; /**< boundary tensors go through host memory */
    int64_t busy_ps;
} rpsim_bound_run;

/** Computes the bounds of one step at hardware fidelity. @retval RP_OK, RP_INPUT (as
 * rp_machine_network), RP_NO_MEMORY */
rp_status rpsim_bounds_hardware(const rpsim_bound_run *run, rpsim_bounds *bounds_out,
                                rp_reason *reason);
