/** @file run.h  Prediction of a run of a published system by the simulator, on any platform, by the
 * same rules for every report (experiments/prediction.md).
 */
#pragma once

#include "common/base/mem.h"
#include "common/formats/csv.h"
#include "sim/run/intervals.h"

#define RPSIM_PREDICT_DRAWS 32u /* default and largest number of draws */

/** Reads FOLDER/NAME, a table of published results. @retval as rp_csv_read_file */
rp_status rpsim_read_published(const char *folder, const char *name, rp_arena *arena,
                               rp_csv *table_out);

/** Predicts a row. @param arena for this row only; it is destroyed afterwards */
typedef rp_status (*rpsim_predict_row)(void *context, uint32_t row, rp_arena *arena);

/**
 * Calls `predict` for each row of a table, on all cores. Messages name the row's line.
 * @retval RP_OK, RP_NO_MEMORY, the status of `predict`
 */
rp_status rpsim_predict_rows(const rp_csv *table, rpsim_predict_row predict, void *context);

/** A run to predict. */
typedef struct rpsim_question {
    const char *framework; /**< name of the system as published (rp_published_schedule) */
    const char *model;
    bool longest;   /**< true: asks for the longest sequence that fits, not for a throughput */
    uint32_t draws; /**< number of draws of the inputs, at most RPSIM_PREDICT_DRAWS */
    /** Schedule, GPUs (1 to the platform's), optimizer and sizes; seq_len is not read if `longest`.
     * iterations 0: enough for a steady state. costs NULL: rp_find_costs finds them. */
    rp_resolved run;
    const char *file; /**< file that asks, for messages; NULL: none */
    size_t line;
} rpsim_question;

typedef struct rpsim_answer {
    double tokens_per_s; /**< of the steady state, whether the run fits or not; NaN if `longest` */
    double draws[RPSIM_PREDICT_DRAWS]; /**< [draws of the question] tokens per second of each; unset
                                          if `longest`, or if the run does not fit */
    uint32_t seq_len; /**< tokens of a sequence; if `longest`, the answer; 0: none fits */
    bool fits;        /**< as far as limits are known */
    bool beats_peak;  /**< GPUs compute faster than their peak: the times are wrong */
    /** Need and limit, as rpsim_memory_say_need writes them; "": the run fits, or nothing is known.
     */
    char need[RPSIM_OOM_REASON_SIZE];
    bool host_known; /**< host memory is known; if false, only the GPUs are known to have room */
} rpsim_answer;

/**
 * Answers every question once, on all cores. The answers do not depend on the number of cores.
 *
 * Times are those of the model's table on the platform's GPU (rp_find_costs). RoundPipe has its
 * planner; other systems have the published partition of their throughput runs or, without it, an
 * even partition. For the longest sequences the partition of a pipeline with resident weights
 * balances bytes.
 * @param answers_out [count]
 * @retval RP_OK, RP_USAGE (an unknown framework or model, a batch that cannot be split; logged),
 * RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_answer_all(const rp_platform *platform, const rpsim_question *questions,
                           uint32_t count, rpsim_answer *answers_out);
