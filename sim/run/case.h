/** @file case.h  A simulated configuration: takes schedule, sizes and costs, gives metrics and a
 * timeline. */
#pragma once

#include "common/base/reason.h"

#include "sim/run/bounds/bounds.h"
#include "sim/run/kept.h"

typedef struct rpsim_result {
    /** Metrics of a single iteration. */
    rp_metrics metrics;
    /** Period of an iteration (cli.md iteration_ms) in ps, rp_metrics_period_ps; NaN if it has not
     * been simulated. */
    double period_ps;
    /** Hardware fidelity: FLOP of products and attention that a GPU executes in an iteration, on
     * average (executed.h); the GPUs' mean peak FLOP/s in the number format of the run, 0 if the
     * platform does not say it; and the share of the platform's `gpu`'s peak that passes reach
     * while they run. All 0 at stage fidelity. */
    double gpu_flop;
    double peak_flops_per_s;
    double busy_share;
    bool separate_backward;
    /** Program of all iterations; owned by the result, unless it is kept for other runs. */
    rp_program *program;
    bool program_is_kept;
    uint64_t program_hash; /**< 0: not computed yet */
    rp_timeline *timeline;
    rpsim_bounds bounds; /**< bounds of one iteration; 0 if only several iterations were run */
    rpsim_memory memory; /**< hardware fidelity; its array lives in the program's arena */
    /** Wall time in seconds for building, validating, simulating and measuring; not reproducible.
     */
    double wall_s;
} rpsim_result;

/**
 * Builds the program of `config` at stage fidelity, validates, runs and measures it.
 *
 * The metrics are those of one iteration; with several iterations the whole run is simulated too. A
 * synchronous iteration starts at the makespan of the iteration before it, so its period is the
 * makespan; the period of an asynchronous iteration is measured over the second half of the
 * iterations.
 * @param config config->costs must be set
 * @param result_out rpsim_result_fini; untouched on failure
 * @retval RP_OK, RP_USAGE, RP_INPUT, RP_NO_MEMORY, RP_INVALID_PROGRAM, RP_BROKEN
 */
rp_status rpsim_case_run(const rp_schedule_type *schedule, const rp_schedule_config *config,
                         rpsim_result *result_out, rp_reason *reason);

/**
 * Same as rpsim_case_run, but reuses the program of an earlier run if it is the same.
 * @param kept NULL: nothing is reused. It owns the result's program, which lives until the next run
 * with `kept`.
 */
rp_status rpsim_case_run_kept(rpsim_kept *kept, const rp_schedule_type *schedule,
                              const rp_schedule_config *config, rpsim_result *result_out,
                              rp_reason *reason);

/**
 * Same as rpsim_case_run for an existing program (--program-in); the metrics are those of the whole
 * program.
 * @param program owned by the result on success, by the caller otherwise
 */
rp_status rpsim_program_run(rp_program *program, const rp_costs *costs, rpsim_result *result_out,
                            rp_reason *reason);

/** @return whether the result's GPUs compute faster than their peak, rounding aside, which means
 * that its times are wrong. */
bool rpsim_result_beats_peak(const rpsim_result *result);

/** Destroys program and timeline. A zeroed result is allowed. */
void rpsim_result_fini(rpsim_result *result);
