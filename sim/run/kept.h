/** @file kept.h  Programs kept from earlier runs, for runs of the same structure.
 *
 * A program has no times: runs that differ only in times run the same program. It is built,
 * validated and hashed once for all of them.
 */
#pragma once

#include "common/base/reason.h"
#include "common/program/producers.h"
#include "common/schedule/schedule_type.h"

/** The last program of a single iteration and the last program of several iterations. Not safe for
 * several threads. */
typedef struct rpsim_kept rpsim_kept;

/** A program that has passed rp_program_check_but_cycles. */
typedef struct rpsim_kept_program {
    rp_program *program;
    rp_producers producers;
    uint64_t hash; /**< rp_program_hash */
} rpsim_kept_program;

/** @retval RP_OK (the caller destroys it), RP_NO_MEMORY */
rp_status rpsim_kept_create(rpsim_kept **kept_out);

/** NULL is allowed. */
void rpsim_kept_destroy(rpsim_kept *kept);

/**
 * Finds the compute schedule of a run: the kept program if rp_schedule_build would make the same
 * program, otherwise a new program, which is built, checked and kept from now on. Schedules that
 * plan with the run's times are planned for each table; the result is often the kept program.
 * @param program_out lives until the next call of the same sort (a single iteration, or several)
 * @retval as rp_schedule_build and rp_program_check_but_cycles
 */
rp_status rpsim_kept_stage(rpsim_kept *kept, const rp_schedule_type *schedule,
                           const rp_schedule_config *config, const rpsim_kept_program **program_out,
                           rp_reason *reason);
