/** @file golden_case.h  The decoders of the golden files (tests/reference/slow_golden.h) on the
 * executor. */
#pragma once

#include "tests/reference/slow_golden.h"
#include "tests/support/exec_case.h"

/** One golden file, with its model as the executor's. Owned by the arena. */
typedef struct rp_test_golden {
    const char *name;
    slow_golden file;
    rp_model config;
} rp_test_golden;

/** Reads tests/golden/decoders/reference/NAME.bin; ends the test where that fails. Free file with
 * slow_golden_free. */
void rp_test_golden_load(const char *name, rp_test_golden *golden_out);

/**
 * A twist's `prepare` with an rp_test_golden as context: the file's weights, and its sequences in
 * every iteration; further sequences of the run have ignored labels.
 */
void rp_test_golden_prepare(void *context, rp_arena *arena, rp_test_run *run);

/**
 * Compares loss and gradients of an iteration made with the file's weights, whose gradients the
 * run still has. An element may differ by the tolerance times its size plus its tensor's root mean
 * square; NaN differs.
 * @param report where the tensor, the element and both values of the largest excess are written
 * @return the largest error over the tolerance: 1 and less is equal
 */
double rp_test_golden_error(const rp_test_golden *golden, const rp_test_run *run, double tolerance,
                            char *report, size_t size);

/** @return the least cosine similarity of a tensor's gradients with the file's; NaN is less. */
double rp_test_golden_cosine(const rp_test_golden *golden, const rp_test_run *run);
