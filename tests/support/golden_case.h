/** @file golden_case.h  The decoders of the golden files (tests/reference/slow_golden.h) on the
 * executor. */
#pragma once

#include "tests/reference/slow_golden.h"
#include "tests/support/exec_case.h"

/** A golden file, with its model in the executor's form. Owned by the arena. */
typedef struct rp_test_golden {
    const char *name;
    slow_golden file;
    rp_model config;
} rp_test_golden;

/** Reads tests/golden/decoders/reference/NAME.bin; a failure ends the test. Free the member `file`
 * with slow_golden_free. */
void rp_test_golden_load(const char *name, rp_test_golden *golden_out);

/**
 * A twist's `prepare` with an rp_test_golden as context: it sets the file's weights, and repeats
 * its sequences in every iteration; further sequences of the run have ignored labels.
 */
void rp_test_golden_prepare(void *context, rp_arena *arena, rp_test_run *run);

/**
 * Compares loss and gradients of an iteration made with the file's weights; the run must still have
 * its gradients. An element may differ by the tolerance times its size plus its tensor's root mean
 * square; NaN differs.
 * @param report receives the tensor, the element and both values of the largest excess
 * @return the largest error divided by the tolerance: 1 or less is equal
 */
double rp_test_golden_error(const rp_test_golden *golden, const rp_test_run *run, double tolerance,
                            char *report, size_t size);

/** @return the least cosine similarity between a tensor's gradients and the file's; NaN counts as
 * the least */
double rp_test_golden_cosine(const rp_test_golden *golden, const rp_test_run *run);
