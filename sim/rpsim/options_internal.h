/** @file options_internal.h  rpsim's command line (cli.md) as a value. */
#pragma once

#include "common/cli/options.h"
#include "common/inputs/changes.h"
#include "common/torch/torch_csv.h"

/** Most evaluations of --partition tuned. */
#define RPSIM_MAX_TUNE_BUDGET 100000000u

typedef enum rpsim_format {
    RPSIM_FORMAT_TABLE,
    RPSIM_FORMAT_JSON,
    RPSIM_FORMAT_CSV,
    RPSIM_FORMAT_KV,
} rpsim_format;

typedef enum rpsim_action {
    RPSIM_ACTION_RUN,
    RPSIM_ACTION_CHECK,
    RPSIM_ACTION_LIST,
    RPSIM_ACTION_FLOWS,
} rpsim_action;

/** All text is borrowed from argv or lives in the arena; 0 and NULL mean "not given". */
typedef struct rpsim_options {
    rp_options common; /**< first, as rp_options_parse wants it */
    rpsim_action action;
    const char *list;       /**< kind that --list lists */
    const char *flows;      /**< file that --flows solves */
    const char **schedules; /**< names; all registered ones for `all` */
    uint32_t schedule_count;
    bool all_schedules;
    const char **models;
    uint32_t model_count;
    const char *platform;
    const char *costs;
    rp_changes changes; /**< of platform and cost table: --set */
    uint32_t gpus;
    uint32_t microbatches;
    uint32_t microbatch_size;
    uint32_t seq_len;
    uint32_t stages;
    bool hardware;         /**< --fidelity hardware; otherwise stage */
    bool config_paper;     /**< --config paper */
    uint32_t global_batch; /**< sequences per step, hardware only */
    uint32_t accumulate;   /**< calls per step, hardware only */
    const char *partition; /**< as given */
    rp_recompute recomputes[RP_RECOMPUTE_COUNT];
    uint32_t recompute_count; /**< 0: each schedule's own; both for `all` schedules */
    uint32_t iterations;
    bool optimizer_given;
    bool asynchronous;
    bool round_given;
    uint32_t round; /**< RP_ROUND_ALL for `all` */
    bool round_start_given;
    rp_round_start round_start;
    bool max_seqlen; /**< the longest sequence that fits, instead of a run */
    bool grain_given;
    bool layer_grain;     /**< --grain layer */
    uint32_t piece_mb;    /**< largest piece of a parameter upload, MiB; hardware only */
    uint32_t tune_budget; /**< evaluations of --partition tuned */
    uint64_t seed;
    bool jitter_given;
    double jitter;     /**< coefficient of variation of compute times */
    uint32_t replicas; /**< with --jitter: never 0 */
    uint32_t slow_gpu;
    double slow_factor; /**< 0 without --slow-gpu */
    rpsim_format format;
    const char *trace_out;
    const char *timeline_out;
    const char *gantt_out;
    const char *program_out;
    const char *torch_csv_out;
    const char *chakra_out;    /**< prefix of the files' names */
    const char *torch_sidecar; /**< read with torch_csv_in, else written with torch_csv_out */
    bool multi_rank_stages;    /**< --allow-multi-rank-stages */
    bool torch_lowered;        /**< the CSV that is written has transfers; else compute-only */
    bool torch_legacy;         /**< the CSV that is written is in the dialect of 2024 */
    rp_torch_lowering torch_lowering; /**< of a lowered CSV */
    const char *program_in;
    const char *torch_csv_in;
    const char *db;
    bool quiet;   /**< not an option: schedules that are left out are no news */
    bool explain; /**< why each run takes as long as it does */
    bool db_ops;  /**< store every op of the timeline, too */
} rpsim_options;

/**
 * Parses argv. Every bad option is reported with the option and its valid values.
 * @param options_out zeroed by the callee; lists live in `arena`
 * @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rpsim_options_parse(int argc, char **argv, rp_arena *arena, rpsim_options *options_out);

/** @return true where the partition is searched for. */
bool rpsim_options_tuned(const rpsim_options *options);

/** Rows of all options, for rp_options_answer and the settings. */
extern const rp_options_program rpsim_command_line;
