/** @file point_run.h  Runs one point of an experiment. */
#pragma once

#include "common/base/reason.h"
#include "common/store/record.h"
#include "experiments/experiment.h"

/** Outcome of a point. */
typedef struct rpsweep_outcome {
    uint64_t number;
    const char *failure; /**< the reason why it has no runs; NULL: it has run */
    rp_store_run *runs;
    uint32_t run_count;
} rpsweep_outcome;

struct rpsim_session;

/**
 * Begins a session, which the points that this process runs share. The process keeps freed memory
 * from now on.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsweep_session_begin(struct rpsim_session **session_out);

/** Ends the session. NULL is allowed. */
void rpsweep_session_end(struct rpsim_session *session);

/**
 * Runs a point, in this process or, for rpexec, in another process, and appends its outcome to a
 * message. A point that fails is an outcome, not a failure of this function.
 * @param rpexec path of the program that runs executed points
 * @param session NULL if there is none
 * @retval RP_OK, RP_NO_MEMORY (no room for the outcome)
 */
rp_status rpsweep_point_run(const rpsweep_experiment *experiment, const char *rpexec,
                            struct rpsim_session *session, uint64_t number, rp_text *message);

/** Appends an outcome. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsweep_outcome_pack(const rpsweep_outcome *outcome, rp_text *message);

/**
 * Reads an outcome.
 * @param outcome_out lives in `arena`
 * @retval RP_OK, RP_BROKEN (the bytes are no outcome), RP_NO_MEMORY
 */
rp_status rpsweep_outcome_unpack(const char *bytes, size_t length, rp_arena *arena,
                                 rpsweep_outcome *outcome_out);

/**
 * Checks a point's options without running it.
 * @retval RP_OK, RP_USAGE (the reason says why, without the file's name), RP_NO_MEMORY
 */
rp_status rpsweep_point_check(const rpsweep_experiment *experiment, const rpsweep_point *point,
                              rp_arena *arena, rp_reason *reason);
