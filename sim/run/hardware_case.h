/** @file hardware_case.h  Lowers, simulates and measures a configuration at --fidelity hardware. */
#pragma once

#include "common/compile/compile.h"
#include "sim/engine/hardware_engine.h"
#include "sim/run/case.h"

/** Bytes that an unfused fp32 cross-entropy moves per logit (sim/model.md section 3). */
#define RPSIM_UNFUSED_LOSS_BYTES 52.0

/** Parts of a run that a search can leave out: it ranks thousands of candidates by period and
 * memory, then runs the few that are left once more, with all parts. */
enum {
    /** Leaves out the step by itself. The metrics are then those of all iterations, there are no
     * bounds, and comm_total and comm_exposed are 0. */
    RPSIM_WITHOUT_STEP = 1,
    /** Leaves out the validator; the engine still detects a program that cannot end. */
    RPSIM_WITHOUT_CHECK = 2,
    /** Leaves out ranks of a sharded system that do the same as others at the same time
     * (rp_machine_block), if all have equal microbatches. The result's numbers are those of the
     * whole, to the picosecond; its program and timeline are those of the ranks that are left
     * (rp_program.ranks). */
    RPSIM_WITHOUT_EQUAL_RANKS = 4,
};

/** Builds and lowers the program that rpsim_hardware_case_run runs. @param platform determines
 * which GPUs send to each other directly */
rp_status rpsim_hardware_lower(const rp_resolved *run, const rp_platform *platform,
                               rp_program **program_out, rp_reason *reason);

/**
 * Makes the inputs of rpsim_hardware_run beyond the program: compute times (in `arena`) and
 * machine.
 * @retval RP_OK, RP_INPUT (as rpsim_hardware_case_run), RP_NO_MEMORY
 */
rp_status rpsim_hardware_inputs(const rp_program *program, const rp_costs *table,
                                const rp_model *model, const rp_platform *platform,
                                uint32_t seq_len, rp_arena *arena, rpsim_compute_costs *costs_out,
                                rp_machine *machine_out, rp_reason *reason);

/**
 * Computes the period of a program (rp_metrics_period_ps) with times or rates other than those it
 * was made for.
 * @param run only its model, seq_len and sequence_slices are read
 * @param arena holds the run's scratch memory
 * @retval as rpsim_hardware_inputs and rpsim_hardware_run
 */
rp_status rpsim_hardware_period(const rp_program *program, const rp_costs *table,
                                const rp_platform *platform, const rp_resolved *run,
                                rp_arena *arena, double *period_ps_out, rp_reason *reason);

/**
 * Runs a schedule on hardware: RoundPipe with weights and optimizer in host memory, pipelines with
 * resident weights and the optimizer on the GPU. Metrics are those of a single step; comm_total and
 * comm_exposed are those of rpsim_explain_communication. The period is measured over
 * run->iterations steps (rp_metrics_period_ps).
 * @param run its sequences are replaced by those of rp_resolved_split, its peer_gpus by the
 * platform's
 * @param without RPSIM_WITHOUT_*, parts to leave out; 0: none
 * @retval as rpsim_case_run; RP_INPUT also if the platform lacks a value that is needed
 */
rp_status rpsim_hardware_case_run(const rp_resolved *run, const rp_platform *platform,
                                  unsigned without, rpsim_result *result_out, rp_reason *reason);

/**
 * Same as rpsim_hardware_case_run for an existing lowered program; the metrics are those of all
 * steps.
 * @param program owned by the result on success, by the caller otherwise
 * @retval as rpsim_hardware_case_run; RP_INPUT also if the program is a compute schedule
 */
rp_status rpsim_hardware_program_run(rp_program *program, const rp_costs *costs,
                                     const rp_model *model, const rp_platform *platform,
                                     uint32_t seq_len, rpsim_result *result_out, rp_reason *reason);
