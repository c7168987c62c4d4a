/** @file trial.h  Runs candidates on all cores. Each run is a study of the candidate's setup, as
 * for rpsim's command line. */
#pragma once

#include "sim/rpadvise/candidate.h"
#include "sim/rpadvise/export/systems.h"

#define RPADVISE_CAUSE_SIZE 320
#define RPADVISE_PARTITION_SIZE 640

/** The memory that a run lacks. */
typedef enum rpadvise_shortage {
    RPADVISE_SHORT_OF_NOTHING,
    RPADVISE_SHORT_OF_GPU,
    RPADVISE_SHORT_OF_HOST,
} rpadvise_shortage;

typedef struct rpadvise_outcome {
    bool ran;  /**< false: rpsim refuses the options */
    bool fits; /**< in GPU memory and, if its limit is known, in host memory */
    rpadvise_shortage short_of;
    double tokens_per_s; /**< also set if the run does not fit */
    double period_s;
    double work_s;  /**< time of the forwards and backwards of a step, shared by all GPUs */
    double least_s; /**< lower bound on a step: its forwards and backwards, as they are placed on
                       GPUs */
    uint64_t gpu_bytes; /**< peak of the fullest GPU */
    uint64_t gpu_limit_bytes;
    uint64_t host_bytes;
    uint64_t host_limit_bytes; /**< 0: unknown */
    uint32_t batch;            /**< sequences of a step */
    uint32_t seq_len;
    double real_share; /**< rpsim_row_real_share */
    uint32_t systems;  /**< bit i: system i of rpadvise_systems can be told to do this run */
    uint64_t ops;      /**< ops of the program: a measure for the cost of a run */
    char partition[RPADVISE_PARTITION_SIZE]; /**< layers of each stage; "" if the text is longer */
    char cause[RPADVISE_CAUSE_SIZE]; /**< why it does not run or fit; "" otherwise. In an explained
                                        run: the largest part of its GPUs' time beside the work */
} rpadvise_outcome;

typedef struct rpadvise_trial {
    rpadvise_candidate candidate;
    rpadvise_manner manner;
    const rpsim_setup *work; /**< changed work and server; NULL: the bench's */
    rpadvise_outcome outcome;
} rpadvise_trial;

/** Runs trials, counts simulations, and shows progress on a terminal. */
typedef struct rpadvise_bench {
    const rpsim_setup *work;
    const rpadvise_systems *systems;
    const char *runnable; /**< system that must be able to run the candidates; NULL: any */
    uint64_t spent;       /**< simulations so far */
    uint64_t budget;      /**< largest number of simulations */
    double begin_s;
    bool progress;  /**< shows progress on stderr */
    bool selective; /**< the stack has selective recompute, which is tried then */
} rpadvise_bench;

/**
 * Runs trials and sets their outcomes, which do not depend on the number of cores.
 * @param what name of the current step, for the progress line
 * @return RP_OK, also if rpsim refuses a candidate; RP_IO, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpadvise_try(rpadvise_bench *bench, rpadvise_trial *trials, uint32_t count,
                       const char *what);

/**
 * Runs a study of a candidate, for reports; its intervals use all cores.
 * @param study_out needs rpsim_study_fini, even after a failure; its row lives in `arena`
 * @retval RP_OK, or the status of rpsim_study_prepare and rpsim_study_run
 */
rp_status rpadvise_study(const rpadvise_bench *bench, const rpadvise_candidate *candidate,
                         const rpadvise_manner *manner, rp_arena *arena, rpsim_study *study_out);

/** Ends the progress line. */
void rpadvise_bench_end(const rpadvise_bench *bench);
