/** @file case.h  One simulated configuration: schedule, sizes and costs in, metrics and timeline
 * out. */
#pragma once

#include "common/base/reason.h"

#include "sim/run/bounds/bounds.h"
#include "sim/run/kept.h"

typedef struct rpsim_result {
    /** Of one iteration by itself. */
    rp_metrics metrics;
    /** Period of an iteration (cli.md iteration_ms) in ps, rp_metrics_period_ps; NaN where it has
     * not been simulated. */
    double period_ps;
    /** Hardware fidelity: FLOP of products and attention that a GPU executes in an iteration, on
     * average (executed.h); the peak of what the run computes in, FLOP/s, 0 where the platform does
     * not say it; and the share of it that passes reach while they run. Otherwise 0. */
    double gpu_flop;
    double peak_flops_per_s;
    double busy_share;
    bool separate_backward;
    /** Of all iterations; owned by the result, unless it is kept for other runs. */
    rp_program *program;
    bool program_is_kept;
    uint64_t program_hash; /**< 0: nobody has computed it */
    rp_timeline *timeline;
    rpsim_bounds bounds; /**< of one iteration; 0 where only several were run */
    rpsim_memory memory; /**< hardware fidelity; its array is the program's */
    /** Building, validating, simulating and measuring, in seconds of wall time; not reproducible.
     */
    double wall_s;
} rpsim_result;

/**
 * Builds the program of `config` at stage fidelity, validates, runs and measures it.
 *
 * The metrics are those of one iteration; with several, the whole run is simulated too. A
 * synchronous iteration starts at the other's makespan, so its period is the makespan; an
 * asynchronous one is measured over the second half of the iterations.
 * @param config config->costs must be set
 * @param result_out rpsim_result_fini; untouched on failure
 * @retval RP_OK, RP_USAGE, RP_INPUT, RP_NO_MEMORY, RP_INVALID_PROGRAM, RP_BROKEN (logged)
 */
rp_status rpsim_case_run(const rp_schedule_type *schedule, const rp_schedule_config *config,
                         rpsim_result *result_out, rp_reason *reason);

/**
 * As rpsim_case_run, with the programs of runs before where they are the same ones.
 * @param kept NULL: none. The result's program is its, and lives until the next run with it.
 */
rp_status rpsim_case_run_kept(rpsim_kept *kept, const rp_schedule_type *schedule,
                              const rp_schedule_config *config, rpsim_result *result_out,
                              rp_reason *reason);

/**
 * As rpsim_case_run for a program that exists (--program-in); its metrics are those of the whole
 * program.
 * @param program owned by the result on success, by the caller otherwise
 */
rp_status rpsim_program_run(rp_program *program, const rp_costs *costs, rpsim_result *result_out,
                            rp_reason *reason);

/** @return whether its GPUs compute faster than their peak, rounding aside: its times are wrong. */
bool rpsim_result_beats_peak(const rpsim_result *result);

/** Destroys program and timeline. A zeroed result is allowed. */
void rpsim_result_fini(rpsim_result *result);
