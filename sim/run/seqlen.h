/** @file seqlen.h  The longest sequence that fits (rpsim --max-seqlen). */
#pragma once

#include "common/base/reason.h"

#include "sim/run/run_plan.h"

/** Lengths are searched in steps of this many tokens (sim/model.md section 5). */
#define RPSIM_SEQLEN_STEP 1024u
/** Longest that is tried, in steps: 4 Mi tokens. */
#define RPSIM_SEQLEN_MAX_STEPS 4096u

/** Lengths beside the found one that are tried as well. */
#define RPSIM_SEQLEN_PROBES 4u

/** A length that fits although a shorter one does not, or the other way round. */
typedef struct rpsim_seqlen_doubt {
    uint32_t tokens;
    uint32_t other_tokens;
    bool fits;
} rpsim_seqlen_doubt;

typedef struct rpsim_seqlen {
    uint32_t tokens; /**< the longest that fits; 0: not even one step */
    uint32_t doubt_count;
    rpsim_seqlen_doubt doubts[RPSIM_SEQLEN_PROBES];
} rpsim_seqlen;

/**
 * Finds the longest sequence, in steps of RPSIM_SEQLEN_STEP, whose run fits, by doubling and
 * bisection over runs at hardware fidelity; everything but the length, and where planned the plan
 * for it, is as given. A run of that length by itself fits for the same reason.
 *
 * Bisection assumes that what fits at some length fits at any shorter one. Every buffer that
 * depends on the length grows with it, but which buffers live at the same time depends on the run's
 * times, and an allocator has fragments. So the assumption is checked at four more lengths, two on
 * either side; where it fails, there is a doubt, of which rpsim_seqlen_warn warns. The length that
 * is found fits in any case, and one step more does not.
 * @param run seq_len is set to the length that result_out is of; if planned, each length gets
 * RoundPipe's plan for it (run_plan.h), and its partition that of result_out, in `arena`
 * @param found_out where not even one step fits, the result is of one step
 * @param result_out the run at that length, rpsim_result_fini
 * @retval RP_OK, RP_BROKEN (a program without buffers), and as rpsim_hardware_case_run
 */
rp_status rpsim_seqlen_search(rp_resolved *run, const rp_platform *platform, rp_arena *arena,
                              rpsim_seqlen *found_out, rpsim_result *result_out, rp_reason *reason);

/** Warns of doubts. @param schedule named before them; NULL: none */
void rpsim_seqlen_warn(const rpsim_seqlen *found, const char *schedule);
