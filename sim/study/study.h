/** @file study.h  Everything that an invocation of rpsim simulates: resolved inputs, and a row for
 * each run. */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/stacks/ledger.h"
#include "common/run/resolve.h"
#include "sim/interchange/torch_sidecar.h"
#include "sim/run/explain/explain.h"
#include "sim/run/hardware_case.h"
#include "sim/run/intervals.h"
#include "sim/study/setup.h"

/** Explanation of a run, for --explain. */
typedef struct rpsim_explained {
    rpsim_explanation explanation;
    rpsim_sensitivity sensitivity;
} rpsim_explained;

/** A run: a schedule in a recompute mode on a model. */
typedef struct rpsim_row {
    rp_resolved run;             /**< the run; for a given program, as far as the program says it */
    const char *schedule_name;   /**< name, even if a given program's schedule is not registered */
    const char *model_name;      /**< name of the model, or else of the cost table up to '@' */
    const char *recorded_name;   /**< name by which published runs are found; may be "" */
    const char *platform_name;   /**< NULL if no platform was used */
    const rp_platform *platform; /**< never NULL; platform_name says whether it was used */
    const rp_costs *compared;    /**< the same for all rows of a model, whatever their software */
    const char *partition_text;
    uint64_t tune_evaluations;  /**< evaluations of --partition tuned; otherwise 0 */
    bool tune_exact;            /**< the search has tried every point of its space */
    unsigned without;           /**< RPSIM_WITHOUT_*; 0: the run has all parts */
    bool from_program;          /**< --program-in: the rounds in `run` are unknown */
    rp_program *given;          /**< the program read, until it has run; otherwise NULL */
    rpsim_result result;        /**< has program and timeline only if they are kept */
    rpsim_memory memory;        /**< memory of the result; lives in the study's arena */
    uint32_t max_seqlen;        /**< --max-seqlen: longest length, 0 if not even 1024 tokens fit */
    double *replica_ps;         /**< [setup->replicas] iteration times; NULL without --jitter */
    rpsim_quantiles quantiles;  /**< quantiles of replica_ps */
    rpsim_intervals *intervals; /**< in the study's arena; NULL without --intervals */
    rpsim_explained *explained; /**< in the study's arena; NULL without --explain */
    const char *of_class;       /**< rp_ledger_class; NULL: unknown, or without --stack */
    rp_ledger_error error;      /**< errors of measured runs of this stack and class */
    double ideal_s; /**< rp_ideal_s of a microbatch of the table's size; 0 without --stack */
    uint32_t rank;  /**< --schedule all, from 1; 0: does not fit, or not ranked */
    uint64_t ops;
    uint64_t program_hash; /**< 0 if not asked for */
} rpsim_row;

/** A schedule that --schedule all asked for and that has no row. */
typedef struct rpsim_refusal {
    const char *schedule_name;
    const char *model_name;
    const char *reason;
} rpsim_refusal;

typedef struct rpsim_study {
    rp_arena *arena; /**< borrowed; owns all inputs */
    const rpsim_setup *setup;
    const rp_torch_csv *orders;   /**< --torch-csv-in; NULL without */
    const rpsim_sidecar *sidecar; /**< --torch-sidecar with it; NULL without */
    const rp_ledger *ledger;      /**< NULL if no row has a stack, or if nothing is reported */
    rpsim_row *rows;
    uint32_t row_count;
    rpsim_refusal *refusals;
    uint32_t refusal_count;
} rpsim_study;

/**
 * Loads models, platform, cost tables and partitions and checks that every run is allowed. With
 * --schedule all, a schedule that does not allow the sizes is left out with a warning.
 * @param study_out to be destroyed by rpsim_study_fini, also after a failure
 * @retval RP_OK, RP_USAGE, RP_INPUT (refused), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_study_prepare(const rpsim_setup *setup, rp_arena *arena, rpsim_study *study_out,
                              rp_reason *reason);

/**
 * Runs every row. Programs and timelines are kept only if an output needs them. With --schedule all
 * the rows are ranked (ranking.h), and a row that cannot run is refused with a warning.
 */
rp_status rpsim_study_run(rpsim_study *study, rp_reason *reason);

/**
 * With --jitter, runs the row's replicas and sets replica_ps and quantiles; otherwise does nothing.
 * @param row has run, and its result.program is kept
 * @retval as rpsim_study_run
 */
rp_status rpsim_row_replicate(const rpsim_study *study, rpsim_row *row);

/**
 * With --intervals, draws the inputs of a row of hardware fidelity and sets `intervals`; does
 * nothing if the row's period is unknown.
 * @param row as in rpsim_row_replicate
 * @retval as rpsim_intervals_make
 */
rp_status rpsim_row_draw(const rpsim_study *study, rpsim_row *row);

/** @return the share of replicas in which a takes less time per token than b; ties count half. */
double rpsim_row_beats(const rpsim_study *study, const rpsim_row *a, const rpsim_row *b);

#define RPSIM_MEASURED_STACKS 4u
#define RPSIM_MEASURED_TEXT 240u

/** Rows of stacks, for a sentence about their measured runs. */
typedef struct rpsim_measured {
    const char *stacks[RPSIM_MEASURED_STACKS]; /**< [stack_count] of the rows */
    uint32_t stack_count;                      /**< 0: no row has a stack */
    bool others;                               /**< some rows have none */
    struct {
        const char *stack;
        const char *name;
    } of_class[4 * RPSIM_MEASURED_STACKS]; /**< [classes] of all rows: a stack's differ in placement
                                              and training */
    uint32_t classes;
    rp_ledger_error error; /**< of these classes together */
} rpsim_measured;

/** Adds a row, which adds no errors if it has no stack or its class was added before. */
void rpsim_measured_add(rpsim_measured *measured, const rpsim_row *row);

/** Writes a sentence without its point: that rows run in different software; "" if all are of one.
 * @return `text` */
const char *rpsim_software_text(const rpsim_measured *measured,
                                char text[static RPSIM_MEASURED_TEXT]);

/** Writes a sentence without its point: how many runs were measured, and how far off their
 * predictions are; "" if no row has a stack. @return `text` */
const char *rpsim_measured_text(const rpsim_measured *measured,
                                char text[static RPSIM_MEASURED_TEXT]);

/** Builds and validates every row's program; nothing is simulated. */
rp_status rpsim_study_check(rpsim_study *study);

/** Destroys programs and timelines; the arena stays the caller's. */
void rpsim_study_fini(rpsim_study *study);
