/** @file build.h  From a schedule and sizes to a program. */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/schedule_type.h"

/**
 * Bytes that building and simulating the program will take at most at the same time, estimated
 * from measured runs of all kinds of systems: within a factor of 2 from 20 MB on
 * (tests/common/base/footprint.c).
 * @param config with its partition
 * @param lowered at hardware fidelity, or executed
 */
double rp_schedule_footprint(const rp_schedule_config *config, bool lowered, bool layer_grain);

/** As rp_schedule_footprint, of a program of `ops` that is there already: what comes on top. */
double rp_program_footprint(uint32_t ops, bool lowered);

/** Settings that a user lowers where a footprint is too large, for the message. */
#define RP_FOOTPRINT_VALID "fewer {microbatches}, {iterations} or stages"

/**
 * Makes the program of a schedule; it passes rp_program_check.
 * @retval RP_OK, RP_USAGE (rp_schedule_check), RP_NO_MEMORY, RP_BROKEN
 */
rp_status rp_schedule_build(const rp_schedule_type *schedule, const rp_schedule_config *config,
                            rp_program **program_out, rp_reason *reason);
