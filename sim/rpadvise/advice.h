/** @file advice.h  The answer of a search: the best rows with their intervals, the reasons against
 * the other schedules, the memory and the freshness that speed could be traded for, and the changes
 * that would change the answer. */
#pragma once

#include "sim/rpadvise/search.h"
#include "sim/study/decided.h"

/** A row: the best run of a schedule in one optimizer mode. */
typedef struct rpadvise_row {
    const rpadvise_trial *trial;
    const char *command;  /**< command line of rpsim that prints the same tokens_per_s */
    const char **systems; /**< [system_count] names of systems that can run it */
    uint32_t system_count;
    rpsim_study study; /**< study of this run, with intervals */
    bool decided; /**< faster than the next row according to the intervals; true in the last row */
    rpsim_decision decision; /**< comparison with the next row */
    double hours;            /**< hours for --tokens; NaN without it */
    double kwh;              /**< energy of these hours; NaN without --watts */
    double usd;              /**< price of hours and energy; NaN without a price */
} rpadvise_row;

/** Systems that can be told to do the same run, which is the best of each. */
typedef struct rpadvise_software {
    const char *names; /**< with commas between */
    const rpadvise_trial *trial;
    const rpadvise_row *row; /**< the run with its intervals; one of the rows, or `own` */
    rpadvise_row *own;       /**< NULL: it is one of the rows */
} rpadvise_software;

/** Reasons why a schedule is not the answer. */
typedef enum rpadvise_reason {
    RPADVISE_REASON_SLOWER,  /**< its best run is slower; `best` is that run, explained */
    RPADVISE_REASON_MEMORY,  /**< none of its runs fits; `best` needs least */
    RPADVISE_REASON_REFUSED, /**< rpsim refuses all its runs; `best` has the cause */
    RPADVISE_REASON_UNTRIED, /**< the budget ended before any of its runs */
} rpadvise_reason;

/** A schedule that has no row. */
typedef struct rpadvise_note {
    const rp_schedule_type *schedule;
    rpadvise_reason reason;
    rpadvise_outcome best;
    double tokens_per_s; /**< speed of its best run; 0: it does not fit */
} rpadvise_note;

/** Changes of the server and of the work. */
typedef enum rpadvise_change_kind {
    RPADVISE_CHANGE_GPU_MEMORY,  /**< GPUs with more memory; the run's gpu_bytes are the need */
    RPADVISE_CHANGE_HOST_MEMORY, /**< more host memory; the run's host_bytes are the need */
    RPADVISE_CHANGE_LINK,        /**< host links twice as fast */
    RPADVISE_CHANGE_GPU,         /**< a further GPU in a single server */
    RPADVISE_CHANGE_SERVER,      /**< a further server, if there are several */
    /* Changes that are tried if nothing fits. */
    RPADVISE_CHANGE_ADAPTERS, /**< trains only adapters of rank `value` */
    RPADVISE_CHANGE_SEQ_LEN,  /**< trains on sequences of `value` tokens */
    RPADVISE_CHANGE_GPUS,     /**< uses `value` GPUs in a server */
    RPADVISE_CHANGE_SERVERS,  /**< uses `value` servers */
} rpadvise_change_kind;

typedef struct rpadvise_change {
    rpadvise_change_kind kind;
    uint32_t value;
    rpadvise_candidate candidate; /**< the best run with the change; if nothing fits without it, the
                                     best of short runs */
    rpadvise_outcome outcome;
} rpadvise_change;

#define RPADVISE_MOST_POINTS 16u
#define RPADVISE_MOST_CHANGES 8u

typedef struct rpadvise_advice {
    const rpadvise_search *search;
    rpadvise_row *rows;
    uint32_t row_count;          /**< number of rows; 0: nothing fits */
    rpadvise_software *software; /**< the fastest first */
    uint32_t software_count;
    rpadvise_note *notes;
    uint32_t note_count;
    /** Runs that no other run beats in both speed and peak GPU memory, fastest first. */
    const rpadvise_trial *memory_front[RPADVISE_MOST_POINTS];
    uint32_t memory_count;
    /** The first row's configuration with fewer microbatches; only if the batch is free. */
    const rpadvise_trial *batch_front[RPADVISE_MOST_POINTS];
    uint32_t batch_count;
    const rpadvise_trial *fresh; /**< the fastest synchronous run; NULL: none fits */
    const rpadvise_trial *late;  /**< the fastest asynchronous run; NULL: none fits */
    rpadvise_change changes[RPADVISE_MOST_CHANGES];
    uint32_t change_count;
    bool exhausted; /**< nothing fits, but the budget left runs out, so that nothing is known */
    /* Set if nothing fits. `changes` are then the changes with which a run fits. */
    rpadvise_row *nearest; /**< the run that needs least beyond the memory that there is; NULL: all
                              runs are refused */
    rpadvise_change vain[RPADVISE_MOST_CHANGES]; /**< tried changes with which nothing fits */
    uint32_t vain_count;
} rpadvise_advice;

/**
 * Makes the answer of a search, and adds the runs that it needs to the search.
 * @param advice_out needs rpadvise_advice_fini, even after a failure; lives in the search's arena
 * @retval RP_OK, RP_INPUT (a range of an input is missing; logged), RP_IO, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpadvise_advice_make(rpadvise_search *search, rpadvise_advice *advice_out);

/** @return the software of all rows, for sentences */
rpsim_measured rpadvise_measured(const rpadvise_advice *advice);

/** Destroys the studies of the rows. */
void rpadvise_advice_fini(rpadvise_advice *advice);
