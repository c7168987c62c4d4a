/** @file hardware_case.h  One configuration at --fidelity hardware: lowered, simulated, measured.
 */
#pragma once

#include "common/compile/compile.h"
#include "sim/engine/hardware_engine.h"
#include "sim/run/case.h"

/** An unfused fp32 cross-entropy moves so many bytes per logit (sim/model.md section 3). */
#define RPSIM_UNFUSED_LOSS_BYTES 52.0

/** Parts of a run that searches do without: who ranks thousands of candidates by period and memory
 * runs the few that are left once more, with all parts. */
enum {
    /** The step by itself. Metrics are then those of all iterations, there are no bounds, and
     * comm_total and comm_exposed are 0. */
    RPSIM_WITHOUT_STEP = 1,
    /** The validator; a program that could not end is noticed by the engine. */
    RPSIM_WITHOUT_CHECK = 2,
};

/** Builds and lowers the program that rpsim_hardware_case_run runs. @param platform says which GPUs
 * send to each other directly */
rp_status rpsim_hardware_lower(const rp_resolved *run, const rp_platform *platform,
                               rp_program **program_out, rp_reason *reason);

/**
 * Inputs of rpsim_hardware_run beyond the program: compute times (in `arena`) and machine.
 * @retval RP_OK, RP_INPUT (as rpsim_hardware_case_run; logged), RP_NO_MEMORY
 */
rp_status rpsim_hardware_inputs(const rp_program *program, const rp_costs *table,
                                const rp_model *model, const rp_platform *platform,
                                uint32_t seq_len, rp_arena *arena, rpsim_compute_costs *costs_out,
                                rp_machine *machine_out, rp_reason *reason);

/**
 * Period of a program (rp_metrics_period_ps) with other times or rates than those it was made for.
 * @param run its model, seq_len and sequence_slices count
 * @param arena holds what the run needs
 * @retval as rpsim_hardware_inputs and rpsim_hardware_run
 */
rp_status rpsim_hardware_period(const rp_program *program, const rp_costs *table,
                                const rp_platform *platform, const rp_resolved *run,
                                rp_arena *arena, double *period_ps_out, rp_reason *reason);

/**
 * Runs a schedule on hardware: RoundPipe with weights and optimizer in host memory, pipelines with
 * resident weights and the optimizer on the GPU. Metrics are those of one step by itself;
 * comm_total and comm_exposed as rpsim_explain_communication has them. The period is measured over
 * run->iterations steps (rp_metrics_period_ps).
 * @param run its sequences are those of rp_resolved_split; `peer_gpus` is the platform's
 * @param without RPSIM_WITHOUT_*, parts to leave out; 0: none
 * @retval as rpsim_case_run; RP_INPUT also where the platform does not say what is needed
 */
rp_status rpsim_hardware_case_run(const rp_resolved *run, const rp_platform *platform,
                                  unsigned without, rpsim_result *result_out, rp_reason *reason);

/**
 * As rpsim_hardware_case_run for a lowered program that exists; its metrics are those of all steps.
 * @param program owned by the result on success, by the caller otherwise
 * @retval as above; RP_INPUT also where the program is a compute schedule
 */
rp_status rpsim_hardware_program_run(rp_program *program, const rp_costs *costs,
                                     const rp_model *model, const rp_platform *platform,
                                     uint32_t seq_len, rpsim_result *result_out, rp_reason *reason);
