/** @file build.h  Makes programs from schedules and sizes. */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/schedule_type.h"

/**
 * Estimates the peak bytes of building and simulating the program, from measured runs of all kinds
 * of systems: within a factor of 2 above 20 MB (tests/common/base/footprint.c).
 * @param config its partition is set
 * @param lowered the program is simulated at hardware fidelity, or executed
 */
double rp_schedule_footprint(const rp_schedule_config *config, bool lowered, bool layer_grain);

/** As rp_schedule_footprint, for an existing program of `ops` ops: the bytes in addition to it. */
double rp_program_footprint(uint32_t ops, bool lowered);

/** Settings that a user can lower if a footprint is too large, for the message. */
#define RP_FOOTPRINT_VALID "fewer {microbatches}, {iterations} or stages"

/**
 * Makes the program of a schedule, which passes rp_program_check.
 * @retval RP_OK, RP_USAGE (rp_schedule_check), RP_NO_MEMORY, RP_BROKEN
 */
rp_status rp_schedule_build(const rp_schedule_type *schedule, const rp_schedule_config *config,
                            rp_program **program_out, rp_reason *reason);
