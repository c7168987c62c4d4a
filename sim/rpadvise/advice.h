/** @file advice.h  The answer that a search gives: the best rows with their intervals, what rules
 * the other schedules out, what else there is to trade speed for, and what would change it. */
#pragma once

#include "sim/rpadvise/search.h"
#include "sim/study/decided.h"

/** A row: the best run of a schedule in one optimizer mode. */
typedef struct rpadvise_row {
    const rpadvise_trial *trial;
    const char *command;  /**< of rpsim; prints the same tokens_per_s */
    const char **systems; /**< [system_count] that can run it */
    uint32_t system_count;
    rpsim_study study; /**< of this run, with intervals */
    bool decided;      /**< faster than the next row, as far as the intervals say; the last: true
                        */
    rpsim_decision decision; /**< against the next row */
    double hours;            /**< of --tokens; NaN without */
    double usd;              /**< of these hours; NaN without a price */
} rpadvise_row;

/** Reasons why a schedule is not the answer. */
typedef enum rpadvise_reason {
    RPADVISE_REASON_SLOWER,  /**< its best run is; `best` is that run, explained */
    RPADVISE_REASON_MEMORY,  /**< nothing of it fits; `best` needs least */
    RPADVISE_REASON_REFUSED, /**< rpsim refuses all of it; `best` says why */
    RPADVISE_REASON_UNTRIED, /**< the budget ended before any of it */
} rpadvise_reason;

/** A schedule that has no row. */
typedef struct rpadvise_note {
    const rp_schedule_type *schedule;
    rpadvise_reason reason;
    rpadvise_outcome best;
    double tokens_per_s; /**< of its best run; 0: it does not fit */
} rpadvise_note;

/** Changes of the server, and of the work. */
typedef enum rpadvise_change_kind {
    RPADVISE_CHANGE_GPU_MEMORY,  /**< gpu_bytes of the run are what is needed */
    RPADVISE_CHANGE_HOST_MEMORY, /**< host_bytes likewise */
    RPADVISE_CHANGE_LINK,        /**< host links twice as fast */
    RPADVISE_CHANGE_GPU,         /**< one GPU more, of one server */
    RPADVISE_CHANGE_SERVER,      /**< one server more, of several */
    /* Where nothing fits. */
    RPADVISE_CHANGE_ADAPTERS, /**< of rank `value` alone */
    RPADVISE_CHANGE_SEQ_LEN,  /**< sequences of `value` tokens */
    RPADVISE_CHANGE_GPUS,     /**< `value` of them, in a server */
    RPADVISE_CHANGE_SERVERS,  /**< `value` of them */
} rpadvise_change_kind;

typedef struct rpadvise_change {
    rpadvise_change_kind kind;
    uint32_t value;
    rpadvise_candidate candidate; /**< the best run then; where nothing fits, of short runs */
    rpadvise_outcome outcome;
} rpadvise_change;

#define RPADVISE_MOST_POINTS 16u
#define RPADVISE_MOST_CHANGES 8u

typedef struct rpadvise_advice {
    const rpadvise_search *search;
    rpadvise_row *rows;
    uint32_t row_count; /**< 0: nothing fits */
    rpadvise_note *notes;
    uint32_t note_count;
    /** Runs that no other beats in both speed and peak GPU memory, fastest first. */
    const rpadvise_trial *memory_front[RPADVISE_MOST_POINTS];
    uint32_t memory_count;
    /** The first row's configuration with fewer microbatches; of a free batch. */
    const rpadvise_trial *batch_front[RPADVISE_MOST_POINTS];
    uint32_t batch_count;
    const rpadvise_trial *fresh; /**< the fastest synchronous run; NULL: none fits */
    const rpadvise_trial *late;  /**< the fastest asynchronous run; NULL: none fits */
    rpadvise_change changes[RPADVISE_MOST_CHANGES];
    uint32_t change_count;
    bool exhausted; /**< the budget left something out and nothing fits: nothing is known */
    /* Where nothing fits; the changes are those with which something does. */
    rpadvise_row *nearest; /**< what needs least beyond what there is; NULL: all refused */
    rpadvise_change vain[RPADVISE_MOST_CHANGES]; /**< tried; nothing fits with them either */
    uint32_t vain_count;
} rpadvise_advice;

/**
 * Makes the answer of a search; adds the runs that it needs to the search.
 * @param advice_out rpadvise_advice_fini, also after a failure; lives in the search's arena
 * @retval RP_OK, RP_INPUT (a range of an input is missing; logged), RP_IO, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpadvise_advice_make(rpadvise_search *search, rpadvise_advice *advice_out);

/** Destroys the studies of the rows. */
void rpadvise_advice_fini(rpadvise_advice *advice);
