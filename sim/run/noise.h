/** @file noise.h  Monte Carlo over the time of compute ops (--jitter CV, --replicas R, --seed K).
 *
 * In each replica the time of every compute op is multiplied by a factor of its own. The factors
 * are independent and log-normal with mean 1 and coefficient of variation CV: exp(s Z - s^2 / 2)
 * with Z standard normal and s^2 = ln(1 + CV^2). They are log-normal because the time of a kernel
 * is positive and skewed to the right (interruptions, throttling and contention multiply, and never
 * make it much faster), and because mean and spread can be set independently: a mean of 1 leaves
 * the expected work of every GPU unchanged at any CV.
 *
 * Each replica has a generator of its own (gsl_rng_mt19937), seeded only from K and the replica's
 * number r: with h = splitmix64(K), the 32-bit seed is fmix32((r + low(h)) xor high(h)), fmix32
 * being the finaliser of MurmurHash3. For a given K that is a bijection of r, so no two replicas of
 * a run share a seed (mt19937 has only 2^32 of them). Factors are drawn in the order of the
 * program's compute ops. So replica r does not depend on other replicas or on the number of
 * threads. In two programs the compute ops of equal rank get equal factors in replica r, so that a
 * comparison by replica compares the programs under the same noise (common random numbers).
 *
 * Factors come from the C library's exp and log, whose last bit may depend on library and
 * processor: replicas are reproducible on a given kind of machine, but not bit for bit on all
 * machines. Nothing else in the simulator uses exp and log.
 *
 * A GPU may also be slow: its compute ops take longer by the same factor in every replica. The
 * draws are the same with and without a slow GPU.
 *
 * Programs have fixed placements: a schedule that places by time (RoundPipe's free-first rounds)
 * keeps the placement found with its noise-free times, and no schedule knows of the slow GPU.
 */
#pragma once

#include "common/program/program.h"

#define RPSIM_MAX_JITTER 2.0
/** Largest slow_factor; the least is 1. */
#define RPSIM_MAX_SLOW_FACTOR 100.0
#define RPSIM_MAX_REPLICAS 100000u
#define RPSIM_DEFAULT_REPLICAS 100u

typedef struct rpsim_noise {
    double cv;         /**< coefficient of variation, 0 to RPSIM_MAX_JITTER */
    uint32_t replicas; /**< 1 to RPSIM_MAX_REPLICAS */
    uint64_t seed;
    uint32_t threads; /**< 0: as many as there are cores for this process */
    uint32_t slow_gpu;
    double slow_factor; /**< compute of slow_gpu takes this many times as long; 0: no GPU is slow */
} rpsim_noise;

/** Median and 5th and 95th percentile, in the unit of the samples. */
typedef struct rpsim_quantiles {
    double p05;
    double median;
    double p95;
} rpsim_quantiles;

/**
 * Draws the factors of a replica.
 * @param factors_out [op_count]: 1 for all but compute ops
 * @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rpsim_noise_draw(const rpsim_noise *noise, uint32_t replica, const rp_program *program,
                           double *factors_out);

/**
 * Simulates a replica; called by several threads at once.
 * @param factors [op_count]
 * @param value_out result of the replica, such as its period
 */
typedef rp_status (*rpsim_replica_run)(const void *context, const double *factors,
                                       double *value_out);

/**
 * Draws and runs every replica, on noise->threads threads, the caller's included.
 * @param values_out [replicas], by replica number; they do not depend on threads and their
 * scheduling
 * @retval RP_OK, RP_NO_MEMORY, or the first failure that `run` returned
 */
rp_status rpsim_noise_run(const rpsim_noise *noise, const rp_program *program,
                          rpsim_replica_run run, const void *context, double *values_out);

/**
 * Quantiles by linear interpolation between order statistics (gsl_stats_quantile_from_sorted_data).
 * @param values [count], at least one; need not be sorted
 * @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rpsim_noise_quantiles(const double *values, uint32_t count,
                                rpsim_quantiles *quantiles_out);

/** The 10th, 50th and 90th percentile. */
typedef struct rpsim_interval {
    double p10;
    double p50;
    double p90;
} rpsim_interval;

/**
 * Quantiles of a stratified sample: the k-th smallest of n values, counted from 1, stands for the
 * probability (k - 1/2) / n; linear between, constant beyond.
 * @param values [count], at least one; need not be sorted
 * @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rpsim_noise_interval(const double *values, uint32_t count, rpsim_interval *interval_out);

/**
 * Draws a coordinate of a Latin hypercube: the centres of `count` equal strata of (0, 1), each
 * once, in an order that depends only on seed and coordinate (gsl_ran_shuffle).
 * @param strata_out [count]
 * @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rpsim_noise_strata(uint64_t seed, uint32_t coordinate, uint32_t count,
                             double *strata_out);

/**
 * @param a,b [count] times of two runs by replica number, of work_a and work_b units of work
 * @return the share of replicas in which a takes less time per unit of work; ties count half
 */
double rpsim_noise_beats(const double *a, double work_a, const double *b, double work_b,
                         uint32_t count);
