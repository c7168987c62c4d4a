/** @file rpsim.h  librpsim: simulations of pipeline schedules, as rpsim runs them.
 *
 * Every function that can fail returns an rp_code. The reason is then rp_last_error() of the same
 * thread. Nothing is printed, nothing ends the process, and no function changes its signal
 * handlers, its locale or its standard streams. Threads may call at the same time; one object is
 * for one thread at a time. Texts are UTF-8.
 *
 * Models, platforms and cost tables are found in folders of environment variable RP_TRACES, and in
 * the nearest share/rpsim at or above the library's own folder, or where RP_DATA says.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RP_API __attribute__((visibility("default")))
#else
#define RP_API
#endif

/* ---- version --------------------------------------------------------------------------------- */

/** Version of this header. Before 1.0 a new MINOR may change functions; a new PATCH does not. */
#define RP_VERSION_MAJOR 0
#define RP_VERSION_MINOR 3
#define RP_VERSION_PATCH 0

/** @return version of the library that runs, "MAJOR.MINOR.PATCH"; static. */
RP_API const char *rp_version(void);

/* ---- errors ---------------------------------------------------------------------------------- */

/** Outcome of a call; the same numbers as the exit statuses of rpsim. */
typedef enum rp_code {
    RP_CODE_OK = 0,
    RP_CODE_FAILED = 1,    /**< no memory, a file that cannot be written, a defect */
    RP_CODE_BAD_INPUT = 2, /**< an argument, a file or a combination is refused */
} rp_code;

/**
 * Reason why this thread's last call that returns an rp_code has failed: cause and valid values.
 * One line without a newline behind it; of several causes a line each.
 * @return "" where it succeeded; valid until the next such call of this thread
 */
RP_API const char *rp_last_error(void);

/**
 * Warnings of this thread's last call that returns an rp_code, successful or not: what rpsim would
 * print on standard error, a line each.
 * @return "" without any; valid as rp_last_error
 */
RP_API const char *rp_last_warnings(void);

/* ---- a command line -------------------------------------------------------------------------- */

/**
 * Does what `rpsim ARGUMENTS --format json` does and gives what that prints. Files that options
 * name (--gantt-out, --db and others) are written.
 * @param argc number of arguments, >= 0
 * @param argv [argc] rpsim's options without the program's name: "--schedule", "roundpipe". Refused
 * are options that give text instead of JSON (--help, --version, --list, --check, --platform-out),
 * another --format, and "-" for an output
 * @param json_out receives an array of one object per run, with a newline behind it; of --flows
 * rpsim's object. Ended by rp_free_json; NULL after a failure
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT, RP_CODE_FAILED
 */
RP_API int rp_run_json(int argc, const char *const *argv, char **json_out);

/** Frees what a function has given as `json_out`. NULL is allowed. */
RP_API void rp_free_json(char *json);

/* ---- inputs ---------------------------------------------------------------------------------- */

/** Things with names that the data folder and the library know. */
typedef enum rp_kind {
    RP_KIND_MODEL = 0,
    RP_KIND_PLATFORM = 1, /**< servers and their GPUs */
    RP_KIND_COSTS = 2,    /**< tables of layer times */
    RP_KIND_SCHEDULE = 3, /**< part of the library: has names, and no file */
} rp_kind;

/**
 * Names of a kind, as `rpsim --list` has them.
 * @param names_out [*count_out] sorted but for schedules; ended by rp_free_names; NULL after a
 * failure
 */
RP_API rp_code rp_names(rp_kind kind, char ***names_out, uint32_t *count_out);

/** Frees what rp_names has given. NULL is allowed. */
RP_API void rp_free_names(char **names);

/** A model, platform or cost table that has been read. It never changes: several threads and
 * simulations may use one at the same time. */
typedef struct rp_input rp_input;

/**
 * Reads an input.
 * @param kind any but RP_KIND_SCHEDULE
 * @param name a registered name, or the path of a file; of a model also what `rpsim --model` takes
 * besides: a Hugging Face config.json or its folder, and gpt:HIDDENxHEADSxLAYERS
 * @param input_out ended by rp_input_free; NULL after a failure
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT (unknown name, or a file with a mistake, whose line the
 * message names), RP_CODE_FAILED
 */
RP_API rp_code rp_input_load(rp_kind kind, const char *name, rp_input **input_out);

/** Gives an input back. Simulations that were made of it go on. NULL is allowed. */
RP_API void rp_input_free(rp_input *input);

/** @return kind that it was loaded as; RP_KIND_SCHEDULE, which no input is, for NULL. */
RP_API rp_kind rp_input_kind(const rp_input *input);

/** @return name that its file gives it; valid as long as the input. NULL for NULL. */
RP_API const char *rp_input_name(const rp_input *input);

/**
 * A number of an input.
 * @param key of a platform: each key of its file that is a number (memory_gb, link_gb_per_s, …) in
 * the unit of that file, 0 where the file lacks it and has no default; of a model: layers, hidden,
 * heads, kv_heads, head_dim, intermediate, experts, active_experts, vocab, max_positions,
 * lora_rank, parameters, active_parameters; of a cost table: layers, microbatch_size, seq_len,
 * hop_ms, and of a microbatch through all layers and the head fwd_ms and bwd_ms
 * @param number_out NaN after a failure
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT (no such key; the message has the valid ones)
 */
RP_API rp_code rp_input_number(const rp_input *input, const char *key, double *number_out);

/* ---- simulations ----------------------------------------------------------------------------- */

/**
 * What to simulate. Begin with RP_SETTINGS_INIT. 0 and NULL stand for rpsim's default, which
 * depends on the other settings; of `intervals` 0 stands for none. Limits are those of rpsim's
 * options. Texts and lists are only read during rp_simulation_prepare.
 */
typedef struct rp_settings {
    size_t size;              /**< sizeof(rp_settings); RP_SETTINGS_INIT sets it */
    const char *schedule;     /**< a name, several with commas between, or "all" */
    const rp_input *model;    /**< NULL: qwen3-1.7b; with `costs`, what these say */
    const rp_input *platform; /**< NULL: rtx4090x8 */
    const rp_input *costs;    /**< NULL: the table of model and GPU, or computed times */
    const char *fidelity;     /**< "hardware" (NULL) or "stage" */
    const char *partition;    /**< "even", "paper", "auto", "tuned" or layers: "3,3,4" */
    const char *recompute;    /**< "none", "wait", "early", "all" */
    const char *grain;        /**< "stage" or "layer" */
    const char *dtype;        /**< "fp16", "bf16", "fp32" */
    const char *optimizer;    /**< "sync" or "async" */
    uint32_t gpus;
    uint32_t nodes;           /**< servers */
    uint32_t microbatches;    /**< of a call */
    uint32_t microbatch_size; /**< sequences */
    uint32_t seq_len;         /**< tokens */
    uint32_t global_batch;    /**< sequences of a step */
    uint32_t accumulate;      /**< calls of a step */
    uint32_t iterations;
    uint32_t lora_rank;
    uint32_t intervals; /**< draws for p10, p50 and p90 of the throughput; 0: none */
    uint64_t seed;
    int32_t keep_timeline;      /**< not 0: rp_simulation_ops can be asked */
    uint32_t option_count;      /**< of `options` */
    const char *const *options; /**< further options of rpsim: "--partition", "even" */
    const char *accumulation;   /**< of products of fp16: "fp16", "fp32" */
} rp_settings;

/* clang-format off */
#define RP_SETTINGS_INIT                                                                           \
    {sizeof(rp_settings), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,              \
     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL}
/* clang-format on */

/** One or more runs: one for each schedule and recompute mode that was asked for. */
typedef struct rp_simulation rp_simulation;

/**
 * Resolves settings and checks that every run is allowed; nothing is simulated. With schedule
 * "all", those that do not allow the sizes are left out with a warning.
 * @param simulation_out ended by rp_simulation_free; NULL after a failure
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT (the message names rpsim's option of the same name), FAILED
 */
RP_API rp_code rp_simulation_prepare(const rp_settings *settings, rp_simulation **simulation_out);

/**
 * Simulates every run, on all cores where there are draws, and writes the files that `options`
 * name. Legal once. With schedule "all" a schedule that cannot run is left out with a warning, and
 * the runs are ranked.
 */
RP_API rp_code rp_simulation_run(rp_simulation *simulation);

/** NULL is allowed. Texts and lists that it gave go with it. */
RP_API void rp_simulation_free(rp_simulation *simulation);

/** @return runs that have been simulated; 0 before rp_simulation_run and after its failure. */
RP_API uint32_t rp_simulation_count(const rp_simulation *simulation);

/** The same JSON as of rp_run_json. @param json_out likewise */
RP_API rp_code rp_simulation_json(const rp_simulation *simulation, char **json_out);

/* ---- results ----------------------------------------------------------------------------------
 * Functions of this section and the next are legal after rp_simulation_run has succeeded; `index`
 * is below rp_simulation_count. All else is RP_CODE_BAD_INPUT.
 */

/** Answer to a question that may have none. */
typedef enum rp_answer {
    RP_ANSWER_NO = 0,
    RP_ANSWER_YES = 1,
    RP_ANSWER_UNKNOWN = 2,
} rp_answer;

/** One run. Texts and lists are the simulation's. A number that is not known is NaN. */
typedef struct rp_result {
    size_t size; /**< sizeof(rp_result), set by the caller: RP_RESULT_INIT */
    const char *schedule;
    const char *model;
    const char *platform;   /**< NULL where none was used (stage fidelity with a cost table) */
    const char *partition;  /**< layers of each stage */
    double tokens_per_s;    /**< of a step over its period */
    double iteration_ms;    /**< period of a step */
    double makespan_ms;     /**< of a step by itself */
    double bubble_pct;      /**< GPU time without compute, of makespan times GPUs */
    double lower_bound_ms;  /**< on the makespan */
    rp_answer fits;         /**< in GPU and host memory; RP_ANSWER_UNKNOWN at stage fidelity, and
                                 where the platform does not say its host memory */
    const char *oom_reason; /**< NULL, or the allocation that does not fit, with need and limit */
    uint32_t gpus;
    uint32_t rank;                  /**< with schedule "all", from 1; 0: not ranked */
    const uint64_t *peak_gpu_bytes; /**< [gpus]; NULL at stage fidelity */
    uint64_t peak_host_bytes;       /**< 0 at stage fidelity */
    uint64_t host_memory_bytes;     /**< limit of it; 0: not known */
} rp_result;

/* clang-format off */
#define RP_RESULT_INIT                                                                             \
    {sizeof(rp_result), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, RP_ANSWER_UNKNOWN, NULL,            \
     0, 0, NULL, 0, 0}
/* clang-format on */

/** Gives a run's result. @param result_out its `size` is set; members beyond it stay */
RP_API rp_code rp_simulation_result(const rp_simulation *simulation, uint32_t index,
                                    rp_result *result_out);

/**
 * A number of the JSON.
 * @param key of the JSON: "bubble_ms"; of a list its largest
 * @param number_out true is 1, false 0; NaN for null and for a text
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT (no such key)
 */
RP_API rp_code rp_simulation_number(const rp_simulation *simulation, uint32_t index,
                                    const char *key, double *number_out);

/** A text of the JSON. @param text_out NULL for null and for a number; lives as the simulation */
RP_API rp_code rp_simulation_text(const rp_simulation *simulation, uint32_t index, const char *key,
                                  const char **text_out);

/* ---- timelines ------------------------------------------------------------------------------- */

#define RP_NO_OP UINT32_MAX

/** One op of a run. */
typedef struct rp_timed_op {
    const char *kind;    /**< "F", "B", "UPLOAD_PARAMS": its name in program text; static */
    const char *meaning; /**< "forward": a few words; static */
    const char *queue;   /**< "compute", "param-upload": ops of a queue run one by one; static */
    int32_t gpu;         /**< -1: the host */
    uint32_t stage;
    uint32_t microbatch; /**< for ops of the host the layer */
    uint32_t layer;      /**< 0: all layers of the stage; otherwise this one alone, from 1 */
    uint32_t iteration;
    uint32_t waited_for; /**< index of the op whose end this one waited for last: one that it
                            depends on, or the one before it in its queue; RP_NO_OP: none */
    double start_ms;     /**< from the beginning of the run */
    double end_ms;
} rp_timed_op;

/**
 * All ops of a run, queue by queue, each queue in the order of time.
 * @param ops_out [*count_out] they live as long as the simulation
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT (also without settings' keep_timeline), RP_CODE_FAILED
 */
RP_API rp_code rp_simulation_ops(rp_simulation *simulation, uint32_t index,
                                 const rp_timed_op **ops_out, uint32_t *count_out);

#ifdef __cplusplus
}
#endif
