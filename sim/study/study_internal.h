/** @file study_internal.h  Internals of a study: the inputs that the runs of a model share. Not for
 * other modules. */
#pragma once

#include "common/base/reason.h"
#include "sim/study/study.h"

/** Inputs that all schedules of a model share. */
typedef struct rpsim_inputs {
    const char *model_name;
    const char *recorded_name; /* name by which tables and published runs are found; may be "" */
    const char *platform_name;
    uint32_t platform_gpus;
    const rp_costs *costs;
    uint64_t hidden;       /* 0 when unknown */
    const rp_model *model; /* NULL when unknown */
    const rp_platform *platform;
    const rp_stack *stack;    /* NULL: not asked for, and not a schedule's own */
    const rp_costs *compared; /* costs before a schedule's own software, the same for all rows */
    uint64_t memory_limit;    /* memory limit of the planner */
} rpsim_inputs;

/**
 * Loads platform, model and cost table as a setup names them, and checks that they fit each
 * other and the fidelity.
 * @param model name or path, or NULL: the cost table's model
 * @param program --program-in, which decides type and layout of the times; NULL: the setup decides
 * @param inputs_out lives in `arena`; at hardware fidelity its costs are converted to the run's
 * arithmetic
 * @retval RP_OK, RP_USAGE, RP_INPUT (refused), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_inputs_load(const rpsim_setup *setup, const char *model, const rp_program *program,
                            rp_arena *arena, rpsim_inputs *inputs_out, rp_reason *reason);

/**
 * Gives the inputs of a schedule: if nobody has measured the model on any GPU, and the setup names
 * neither stack nor table, its layers run in the schedule's own software.
 * @param traits of the schedule, or of the given program
 * @param program as for rpsim_inputs_load, which gave `in`
 * @param own_out `in`, or a copy with stack and costs of its own in `arena`
 * @retval as rpsim_inputs_load
 */
rp_status rpsim_inputs_of_schedule(const rpsim_setup *setup, const rpsim_inputs *in,
                                   const rp_traits *traits, const rp_program *program,
                                   rp_arena *arena, rpsim_inputs *own_out, rp_reason *reason);

/**
 * Chooses a row's partition: a list as given, the published partition, even or auto; for `tuned`,
 * the partition that a run without --partition has (tune_row.h searches).
 * @param run its `planned` is set: true for RoundPipe's plan, which depends on the sequence length
 * @param raised_out bytes of GPU memory used for the plan if the platform's do not hold the largest
 *        layer twice; otherwise 0
 * @retval RP_OK, RP_USAGE, RP_INPUT (refused), RP_NO_MEMORY
 */
rp_status rpsim_inputs_partition(const rpsim_setup *setup, const rpsim_inputs *inputs,
                                 rp_resolved *run, rp_arena *arena, rp_partition *partition_out,
                                 uint64_t *raised_out, rp_reason *reason);

/** Warns that a plan was made with `raised_bytes` (rpsim_inputs_partition); does nothing for 0
 * bytes. */
void rpsim_warn_of_plan(const char *model_name, uint64_t raised_bytes);

/** Warns, once for each table, of a measured table by which GPUs would compute faster than their
 * peak. @param row has run, and so have all rows before it */
void rpsim_row_doubt_costs(const rpsim_study *study, const rpsim_row *row);

/** Sets class and errors of a row that has a stack, and reads the ledger before the first such row.
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY */
rp_status rpsim_row_set_error(rpsim_study *study, rpsim_row *row);

/**
 * Sets ideal_s of a row that has a stack, if the study has a ledger.
 * @param row has run, and so have all rows before it
 * @retval as rp_ideal_s
 */
rp_status rpsim_row_set_ideal(const rpsim_study *study, rpsim_row *row, rp_reason *reason);

/**
 * Checks that the GPUs divide evenly among copies and tensor groups, and that schedule and model
 * support these. @retval RP_OK, RP_USAGE (refused), RP_NO_MEMORY
 */
rp_status rpsim_study_check_layout(const rpsim_setup *setup, const rpsim_inputs *inputs,
                                   const rp_schedule_type *schedule, rp_arena *arena,
                                   rp_reason *reason);

/** Checks that megatron-tp gives every GPU the same number of attention heads. @retval RP_OK,
 * RP_USAGE */
rp_status rpsim_study_check_heads(const rpsim_row *row, rp_reason *reason);
