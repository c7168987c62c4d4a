/** @file trial.h  Runs candidates on all cores, each as rpsim runs its command line: a study of its
 * setup. */
#pragma once

#include "sim/rpadvise/candidate.h"
#include "sim/rpadvise/export/systems.h"

#define RPADVISE_CAUSE_SIZE 320
#define RPADVISE_PARTITION_SIZE 640

/** Memory that a run could not have. */
typedef enum rpadvise_shortage {
    RPADVISE_SHORT_OF_NOTHING,
    RPADVISE_SHORT_OF_GPU,
    RPADVISE_SHORT_OF_HOST,
} rpadvise_shortage;

typedef struct rpadvise_outcome {
    bool ran;  /**< false: rpsim refuses the options */
    bool fits; /**< in GPU memory and, where that is known, host memory */
    rpadvise_shortage short_of;
    double tokens_per_s; /**< also of what does not fit */
    double period_s;
    double work_s;  /**< forwards and backwards of a step, shared by all GPUs */
    double least_s; /**< lower bound on a step: its forwards and backwards, as they are placed */
    uint64_t gpu_bytes; /**< peak of the fullest GPU */
    uint64_t gpu_limit_bytes;
    uint64_t host_bytes;
    uint64_t host_limit_bytes; /**< 0: unknown */
    uint32_t batch;            /**< sequences of a step */
    uint32_t seq_len;
    uint32_t ops;                            /**< of the program, for what a run costs */
    char partition[RPADVISE_PARTITION_SIZE]; /**< layers of each stage; "" where that is longer */
    char cause[RPADVISE_CAUSE_SIZE]; /**< why it does not run, or not fit; "" otherwise. Of an
                                        explained run, what its GPUs do most beside the work */
} rpadvise_outcome;

typedef struct rpadvise_trial {
    rpadvise_candidate candidate;
    rpadvise_manner manner;
    const rpsim_setup *work; /**< what if this were asked; NULL: the bench's;
                                its run is the candidate's */
    rpadvise_outcome outcome;
} rpadvise_trial;

/** Counts what was simulated, and shows it on a terminal. */
typedef struct rpadvise_bench {
    const rpsim_setup *work;
    const rpadvise_systems *systems;
    const char *runnable; /**< system that must be able to run what counts; NULL: any */
    uint64_t spent;       /**< simulations so far */
    uint64_t budget;      /**< most of them */
    double begin_s;
    bool progress; /**< on stderr */
} rpadvise_bench;

/**
 * Runs trials and sets their outcomes, which do not depend on the number of cores.
 * @param what the search does, for the progress line
 * @return RP_OK, also where rpsim refuses a candidate; RP_IO, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpadvise_try(rpadvise_bench *bench, rpadvise_trial *trials, uint32_t count,
                       const char *what);

/**
 * A study of one candidate that has run, for reports; its intervals use all cores.
 * @param study_out rpsim_study_fini, also after a failure; its row lives in `arena`
 * @retval RP_OK, or what rpsim_study_prepare and rpsim_study_run return
 */
rp_status rpadvise_study(const rpadvise_bench *bench, const rpadvise_candidate *candidate,
                         const rpadvise_manner *manner, rp_arena *arena, rpsim_study *study_out);

/** Ends the progress line. */
void rpadvise_bench_end(const rpadvise_bench *bench);
