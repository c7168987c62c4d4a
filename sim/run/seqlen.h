/** @file seqlen.h  The longest sequence that fits (rpsim --max-seqlen). */
#pragma once

#include "common/base/reason.h"

#include "sim/run/run_plan.h"

/** Lengths are searched in steps of this many tokens (sim/model.md section 5). */
#define RPSIM_SEQLEN_STEP 1024u
/** The longest length tried, in steps: 4 Mi tokens. */
#define RPSIM_SEQLEN_MAX_STEPS 4096u

/** Number of lengths near the result that are tried as well. */
#define RPSIM_SEQLEN_PROBES 4u

/** Two lengths of which the longer fits and the shorter does not. */
typedef struct rpsim_seqlen_doubt {
    uint32_t tokens;
    uint32_t other_tokens;
    bool fits;
} rpsim_seqlen_doubt;

typedef struct rpsim_seqlen {
    uint32_t tokens; /**< the longest length that fits; 0: not even one step fits */
    uint32_t doubt_count;
    rpsim_seqlen_doubt doubts[RPSIM_SEQLEN_PROBES];
} rpsim_seqlen;

/**
 * Finds the longest sequence, in steps of RPSIM_SEQLEN_STEP, whose run fits, by doubling and
 * bisection over runs at hardware fidelity; only the length changes, and with it learned positions,
 * times that are computed (rp_costs.computed) and the plan if the run is planned. So a separate run
 * of that length with the same partition fits too, and is as fast.
 *
 * Bisection assumes that a run that fits at some length fits at any shorter length. Every buffer
 * that depends on the length grows with it, but the set of buffers that live at the same time
 * depends on the run's times, and an allocator has fragments. So the assumption is checked at four
 * more lengths, two on either side; each failure is a doubt, of which rpsim_seqlen_warn warns. The
 * result fits in any case, and a length one step longer does not.
 * @param run its seq_len is set to the length of result_out; if planned, each length gets
 * RoundPipe's plan for it (run_plan.h), and the run's model, costs and partition become those of
 * result_out, in `arena`
 * @param without RPSIM_WITHOUT_* of the run at that length
 * @param found_out if not even one step fits, result_out is the run of one step
 * @param result_out the run at that length, rpsim_result_fini
 * @retval RP_OK, RP_BROKEN (a program without buffers), and as rpsim_hardware_case_run
 */
rp_status rpsim_seqlen_search(rp_resolved *run, const rp_platform *platform, unsigned without,
                              rp_arena *arena, rpsim_seqlen *found_out, rpsim_result *result_out,
                              rp_reason *reason);

/** Warns of doubts. @param schedule name that precedes them; NULL: none */
void rpsim_seqlen_warn(const rpsim_seqlen *found, const char *schedule);
