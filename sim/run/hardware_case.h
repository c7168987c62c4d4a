/** @file hardware_case.h  One configuration at --fidelity hardware: lowered, simulated, measured.
 */
#pragma once

#include "common/base/reason.h"
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

/** Data that one optimizer step trains on. */
typedef struct rpsim_workload {
    uint32_t global_batch; /**< sequences per step, at least one per microbatch */
    uint32_t calls;        /**< forward-backward calls that the step is split into */
    uint32_t microbatches; /**< of one call */
    uint32_t seq_len;      /**< tokens per sequence */
    /** Slices that a sequence is cut into, each of which counts as one in batch and microbatches:
     * tensor parallelism with fewer sequences than GPUs. 0 or 1: none. */
    uint32_t sequence_slices;
    uint64_t piece_bytes; /**< largest piece of a parameter upload; 0: RP_PIECE_BYTES */
    bool layer_grain;     /**< recompute layer by layer */
    bool planned;         /**< the partition is RoundPipe's plan for these sequences */
    rp_dtype dtype;       /**< of working weights, boundaries and gradients */
    rp_reductions reductions;
    rp_layout layout;   /**< batch and microbatches are those of one copy */
    bool sets_constant; /**< the published cell set a constant of the platform file */
    uint32_t sets_gpus; /**< the cell with this many GPUs did; 0: the cell with all GPUs */
    unsigned without;   /**< RPSIM_WITHOUT_*; 0: the run has all parts */
} rpsim_workload;

/**
 * Sequences of each microbatch of a step: the batch split over the calls and each call over its
 * microbatches as evenly as possible.
 * @param sequences_out [calls * microbatches], in `arena`
 * @retval RP_OK, RP_USAGE (fewer sequences than microbatches; logged), RP_NO_MEMORY
 */
rp_status rpsim_workload_split(const rpsim_workload *workload, rp_arena *arena,
                               uint32_t **sequences_out, rp_reason *reason);

/**
 * The run configuration behind a published measurement (traces/configs/paper.csv).
 * @param optimizer_given whether `asynchronous` must match; otherwise any optimizer does
 * @param workload_out global_batch, calls and microbatches are set, seq_len is kept
 * @retval RP_OK, RP_USAGE (not listed; logged with what is), RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_workload_published(const rp_schedule_type *schedule, const char *model,
                                   bool optimizer_given, bool asynchronous,
                                   rpsim_workload *workload_out, bool *asynchronous_out,
                                   rp_reason *reason);

/**
 * The run configuration behind a published longest sequence (traces/configs/paper_seqlen.csv).
 * @param workload_out all but seq_len is set
 * @retval as rpsim_workload_published
 */
rp_status rpsim_workload_longest(const rp_schedule_type *schedule, const char *model,
                                 rpsim_workload *workload_out, bool *asynchronous_out,
                                 rp_reason *reason);

/** Builds and lowers the program that rpsim_hardware_case_run runs. @param platform says which GPUs
 * send to each other directly */
rp_status rpsim_hardware_lower(const rp_schedule_type *schedule, const rp_schedule_config *config,
                               const rpsim_workload *workload, const rp_model *model,
                               const rp_platform *platform, rp_program **program_out);

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
 * @param workload seq_len and sequence_slices count
 * @param arena holds what the run needs
 * @retval as rpsim_hardware_inputs and rpsim_hardware_run
 */
rp_status rpsim_hardware_period(const rp_program *program, const rp_costs *table,
                                const rp_model *model, const rp_platform *platform,
                                const rpsim_workload *workload, rp_arena *arena,
                                double *period_ps_out);

/**
 * Runs a schedule on hardware: RoundPipe with weights and optimizer in host memory, pipelines with
 * resident weights and the optimizer on the GPU. Metrics are those of one step by itself;
 * comm_total and comm_exposed as rpsim_explain_communication has them. The period is measured over
 * config->iterations steps (rp_metrics_period_ps). Of the workload, `without` leaves parts out.
 * @param config microbatches must be those of a step, all calls together; round the microbatches of
 * a call for schedules with rounds
 * @retval as rpsim_case_run; RP_INPUT also where the platform does not say what is needed
 */
rp_status rpsim_hardware_case_run(const rp_schedule_type *schedule,
                                  const rp_schedule_config *config, const rpsim_workload *workload,
                                  const rp_model *model, const rp_platform *platform,
                                  rpsim_result *result_out);

/**
 * As rpsim_hardware_case_run for a lowered program that exists; its metrics are those of all steps.
 * @param program owned by the result on success, by the caller otherwise
 * @retval as above; RP_INPUT also where the program is a compute schedule
 */
rp_status rpsim_hardware_program_run(rp_program *program, const rp_costs *costs,
                                     const rp_model *model, const rp_platform *platform,
                                     uint32_t seq_len, rpsim_result *result_out);
