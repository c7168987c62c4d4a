/** @file study_internal.h  Inside of a study: what the runs of one model share. Not for other
 * modules. */
#pragma once

#include "common/base/reason.h"
#include "sim/study/study.h"

/** Inputs that all schedules of one model share. */
typedef struct rpsim_inputs {
    const char *model_name;
    const char
        *recorded_name; /* whose tables, partitions and published runs these are; may be "" */
    const char *platform_name;
    uint32_t platform_gpus;
    const rp_costs *costs;
    uint64_t hidden;       /* 0 when unknown */
    const rp_model *model; /* NULL when unknown */
    const rp_platform *platform;
    uint64_t memory_limit; /* the planner's */
} rpsim_inputs;

/**
 * Loads platform, model and cost table as a setup names them, and checks that they fit each
 * other and the fidelity.
 * @param model name or path, or NULL: what the cost table says
 * @param program --program-in, whose type and layout the times are of; NULL: of the setup
 * @param inputs_out lives in `arena`; at hardware fidelity its costs are of the run's arithmetic
 * @retval RP_OK, RP_USAGE, RP_INPUT (refused), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_inputs_load(const rpsim_setup *setup, const char *model, const rp_program *program,
                            rp_arena *arena, rpsim_inputs *inputs_out, rp_reason *reason);

/**
 * Chooses a row's partition: a list as given, the published one, even or auto; for `tuned`, the one
 * without --partition (tune_row.h searches).
 * @param run `planned` is set: whether it is RoundPipe's plan, which depends on the length
 * @param raised_out bytes of GPU memory that it was planned with where the platform's do not hold
 *        the largest layer twice; otherwise 0
 * @retval RP_OK, RP_USAGE, RP_INPUT (refused), RP_NO_MEMORY
 */
rp_status rpsim_inputs_partition(const rpsim_setup *setup, const rpsim_inputs *inputs,
                                 rp_resolved *run, rp_arena *arena, rp_partition *partition_out,
                                 uint64_t *raised_out, rp_reason *reason);

/** Warns of a plan as rpsim_inputs_partition says; nothing of 0 bytes. */
void rpsim_warn_of_plan(const char *model_name, uint64_t raised_bytes);

/** Warns of a table that was measured and says that GPUs compute faster than they can; once. @param
 * row has run; those before it in the study have, too */
void rpsim_row_doubt_costs(const rpsim_study *study, const rpsim_row *row);

/**
 * Checks that copies and tensor groups leave whole stages' GPUs, of a schedule and a model that can
 * have them. @retval RP_OK, RP_USAGE (refused), RP_NO_MEMORY
 */
rp_status rpsim_study_check_layout(const rpsim_setup *setup, const rpsim_inputs *inputs,
                                   const rp_schedule_type *schedule, rp_arena *arena,
                                   rp_reason *reason);

/** Checks that megatron-tp gives every GPU as many attention heads. @retval RP_OK, RP_USAGE */
rp_status rpsim_study_check_heads(const rpsim_row *row, rp_reason *reason);
