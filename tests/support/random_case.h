/** @file random_case.h  Random configurations in two forms, for the engine and the reference. */
#pragma once

#include "common/schedule/schedule_type.h"
#include "tests/reference/slow_reference.h"

#define RP_TEST_MAX_LAYERS 256
#define RP_TEST_MAX_STAGES 512

/** splitmix64: the same numbers everywhere. */
typedef struct rp_random {
    uint64_t state;
} rp_random;

uint64_t rp_random_next(rp_random *random);

/** @return a uniform number in [low, high] */
uint32_t rp_random_between(rp_random *random, uint32_t low, uint32_t high);

/** A configuration in both forms. Points into itself: do not copy. */
typedef struct rp_random_case {
    const rp_schedule_type *schedule;
    rp_schedule_config config;
    rp_partition partition;
    rp_costs costs;
    uint32_t forward[RP_TEST_MAX_STAGES];
    uint32_t backward[RP_TEST_MAX_STAGES];
    int64_t fwd_ps[RP_TEST_MAX_LAYERS];
    int64_t bwd_ps[RP_TEST_MAX_LAYERS];
    int64_t bwd_input_ps[RP_TEST_MAX_LAYERS];
    slow_config slow;
    int slow_forward[RP_TEST_MAX_STAGES];
    int slow_backward[RP_TEST_MAX_STAGES];
    bool empty_units; /**< some stages take no time */
} rp_random_case;

/**
 * Draws a configuration that its schedule allows: 1-64 GPUs, 1-512 microbatches, any partition with
 * stages without layers, per-layer lists of times (some zero, some coarse, so that ties happen).
 * @param max_units bound on stages * microbatches, to keep the run short
 */
void rp_random_case_draw(rp_random *random, uint32_t max_units, rp_random_case *out);

/** Prints a line from which a reader can reproduce the case into `text`. */
void rp_random_case_print(const rp_random_case *c, char *text, size_t size);
