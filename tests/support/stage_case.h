/** @file stage_case.h  Pipelines whose stages have a single layer each, with different times; in
 * the builder's form and in the form of tests/reference/slow_split.h. */
#pragma once

#include "common/schedule/schedule_type.h"
#include "tests/reference/slow_split.h"
#include "tests/support/random_case.h"

#define RP_TEST_STAGE_CASE_MOST 64u

/** Points into itself: do not copy. */
typedef struct rp_test_stage_case {
    rp_costs costs;
    slow_split stages[RP_TEST_STAGE_CASE_MOST];
    uint32_t layers[RP_TEST_STAGE_CASE_MOST];
    rp_partition partition;
    rp_schedule_config config;
} rp_test_stage_case;

/**
 * Makes a case with equal times, no hop, a single iteration and no recompute. More than
 * RP_TEST_STAGE_CASE_MOST stages are refused.
 */
void rp_test_stage_case_make(uint32_t gpus, uint32_t chunks, uint32_t microbatches,
                             slow_split times, rp_arena *arena, rp_test_stage_case *out);

/**
 * Draws new times, coarse (so that ties happen) or fine; a third of the cases have no hop.
 * @param empty some stages or parts take no time
 */
void rp_test_stage_case_draw(rp_random *random, bool empty, rp_test_stage_case *c);
