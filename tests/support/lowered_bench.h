/** @file lowered_bench.h  Lowered programs with costs, a machine and a timeline, for tests of the
 * explanation of a run at hardware fidelity. Assertions fail the test; there are no return values.
 */
#pragma once

#include "common/lower/lower.h"
#include "sim/run/explain/explain.h"
#include "tests/support/random_case.h"

/** GPUs of the programs made by rp_test_bench_make. */
#define RP_TEST_BENCH_GPUS 4u
#define RP_TEST_BENCH_LAYERS 16u

/** A lowered program with its costs and its timeline. */
typedef struct rp_test_bench {
    rp_random_case *c; /**< allocated by malloc */
    rp_lower_config lower;
    rp_program *program;
    rpsim_compute_costs costs;
    rp_machine machine;
    double *factors; /**< [op] factors of compute times, or NULL */
    rp_timeline *timeline;
} rp_test_bench;

/** 16 equal layers (1 ms forward, 2 ms backward) on 4 GPUs; links of 20 GB/s, a host of 100 GB/s.
 * Sizes and program are set by the functions below. */
void rp_test_bench_make(rp_test_bench *b, const char *schedule, uint32_t microbatches,
                        uint32_t iterations, bool asynchronous);

/** Sets the bytes of a boundary tensor and of each layer's weights and gradients. The placement is
 * resident if each stage has its own GPU, otherwise offload. */
void rp_test_bench_sizes(rp_test_bench *b, uint64_t boundary, uint64_t weight);

/** Makes `program` and `costs`. */
void rp_test_bench_lower(rp_test_bench *b);

/** Runs the program on the present machine. @return the run to explain; lives until the next run */
rpsim_explain_case rp_test_bench_run(rp_test_bench *b);

/** Explains a run and finds its first cause. @param e_out, s_out may be NULL */
rpsim_first_cause rp_test_bench_cause(rp_test_bench *b, rpsim_explanation *e_out,
                                      rpsim_sensitivity *s_out);

/** Frees everything except for objects in the tool's arena. */
void rp_test_bench_fini(rp_test_bench *b);
