/** @file run.h  Prediction of one run of a published system by the simulator, on any
 * platform, by the same rules for every report (experiments/prediction.md).
 */
#pragma once

#include "common/base/mem.h"
#include "common/formats/csv.h"
#include "sim/run/intervals.h"

#define RPSIM_PREDICT_DRAWS 32u /* at most, and unless others are asked for */

/** Reads FOLDER/NAME, a table of published results. @retval as rp_csv_read_file */
rp_status rpsim_read_published(const char *folder, const char *name, rp_arena *arena,
                               rp_csv *table_out);

/** Predicts a row. @param arena the row's own, gone afterwards */
typedef rp_status (*rpsim_predict_row)(void *context, uint32_t row, rp_arena *arena);

/**
 * Calls `predict` for each row of a table, on all cores. Messages name the row's line.
 * @retval RP_OK, RP_NO_MEMORY, what `predict` returned
 */
rp_status rpsim_predict_rows(const rp_csv *table, rpsim_predict_row predict, void *context);

/** One run that is asked for. */
typedef struct rpsim_question {
    const char *framework; /**< as published (rp_published_schedule) */
    const char *model;
    bool longest;   /**< the longest sequence that fits is asked for, no throughput */
    uint32_t draws; /**< of the inputs, at most RPSIM_PREDICT_DRAWS */
    /** Schedule, GPUs (1 to the platform's), optimizer and sizes; seq_len is not read if `longest`;
     * iterations 0: enough for a steady state; costs NULL: rp_find_costs. */
    rp_resolved run;
    const char *file; /**< that asks, for messages; NULL: none */
    size_t line;
} rpsim_question;

typedef struct rpsim_answer {
    double tokens_per_s; /**< of the steady state, whether it fits or not; NaN where `longest` */
    double draws[RPSIM_PREDICT_DRAWS]; /**< [draws of the question] tokens per second of each; not
                                            where `longest`, nor of what does not fit */
    uint32_t seq_len; /**< of the run; where `longest`, the longest, 0: none fits */
    bool fits;        /**< as far as limits are known */
    bool beats_peak;  /**< GPUs compute faster than they can: the times are wrong */
    /** Need and limit, as rpsim_memory_say_need; "": it fits, or nothing is known. */
    char need[RPSIM_OOM_REASON_SIZE];
    bool host_known; /**< otherwise only GPUs are known to have room */
} rpsim_answer;

/**
 * Answers every question once, on all cores. The answers do not depend on how many there are.
 *
 * Times are those of the model's table on the platform's GPU (rp_find_costs). RoundPipe has its
 * planner; the others the published partition of their throughput runs where there is one, else the
 * even one. For the longest sequences the partition of a pipeline with resident weights balances
 * bytes.
 * @param answers_out [count]
 * @retval RP_OK, RP_USAGE (an unknown framework or model, a batch that cannot be split; logged),
 * RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_answer_all(const rp_platform *platform, const rpsim_question *questions,
                           uint32_t count, rpsim_answer *answers_out);
