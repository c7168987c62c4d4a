/** @file rpsim.h  librpsim: simulations of pipeline schedules, as rpsim runs them.
 *
 * Every function that can fail returns an rp_code. The reason is then rp_last_error() of the same
 * thread. No function prints, ends the process, or changes its signal handlers, locale or standard
 * streams. Threads may call functions at the same time, but an object may be used by only a single
 * thread at a time. Texts are UTF-8.
 *
 * Models, platforms and cost tables are looked for in the folders that environment variable
 * RP_TRACES names, then in the folder that RP_DATA names or, without it, in the nearest share/rpsim
 * at or above the library's own folder.
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

/** @return version of the library in use, "MAJOR.MINOR.PATCH"; static. */
RP_API const char *rp_version(void);

/* ---- errors ---------------------------------------------------------------------------------- */

/** Outcome of a call; the same numbers as the exit statuses of rpsim. */
typedef enum rp_code {
    RP_CODE_OK = 0,
    RP_CODE_FAILED = 1,    /**< no memory, a file that cannot be written, a defect */
    RP_CODE_BAD_INPUT = 2, /**< an argument, a file or a combination is refused */
} rp_code;

/**
 * Reason why this thread's last call of a function that returns an rp_code failed: the cause and
 * the valid values, on a line without a final newline. Several causes stand on a line each.
 * @return "" if the call succeeded; valid until this thread's next call of such a function
 */
RP_API const char *rp_last_error(void);

/**
 * Warnings of this thread's last call of a function that returns an rp_code, successful or not: the
 * warnings that rpsim would print on standard error, a line each.
 * @return "" if there are none; valid as long as rp_last_error
 */
RP_API const char *rp_last_warnings(void);

/* ---- a command line -------------------------------------------------------------------------- */

/**
 * Runs `rpsim ARGUMENTS --format json` in this process and gives its output. Files that options
 * name (--gantt-out, --db and others) are written.
 * @param argc number of arguments, >= 0
 * @param argv [argc] rpsim's options without the program's name: "--schedule", "roundpipe". Options
 * that give text instead of JSON (--help, --version, --list, --check, --platform-out), another
 * --format, and "-" for an output are refused
 * @param json_out receives an array with an object per run, or the object of --flows, followed by a
 * newline. Free it with rp_free_json; NULL after a failure
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT, RP_CODE_FAILED
 */
RP_API int rp_run_json(int argc, const char *const *argv, char **json_out);

/**
 * Runs `rpadvise ARGUMENTS --format json` in this process and gives its output.
 * @param argv [argc] rpadvise's options: "--model", "llama3.1-8b". Those that give text are refused
 * @param json_out as in rp_run_json: an array of rows, best first. If nothing fits, it has the run
 * that needs least beyond the memory there is, with false as `fits`
 * @return RP_CODE_OK (also if nothing fits), RP_CODE_BAD_INPUT, RP_CODE_FAILED
 */
RP_API int rp_advise_json(int argc, const char *const *argv, char **json_out);

/** Frees a text that a function has given as `json_out`. NULL is allowed. */
RP_API void rp_free_json(char *json);

/* ---- inputs ---------------------------------------------------------------------------------- */

/** Kinds of named things that the data folder and the library know. */
typedef enum rp_kind {
    RP_KIND_MODEL = 0,
    RP_KIND_PLATFORM = 1, /**< servers and their GPUs */
    RP_KIND_COSTS = 2,    /**< tables of layer times */
    RP_KIND_SCHEDULE = 3, /**< part of the library: it has names, but no file */
} rp_kind;

/**
 * Gives the names of a kind, as `rpsim --list` prints them.
 * @param names_out [*count_out], sorted except for schedules. Free it with rp_free_names; NULL
 * after a failure
 */
RP_API rp_code rp_names(rp_kind kind, char ***names_out, uint32_t *count_out);

/** Frees the names that rp_names has given. NULL is allowed. */
RP_API void rp_free_names(char **names);

/** A model, platform or cost table that has been read. It never changes, so that several threads
 * and simulations may use it at the same time. */
typedef struct rp_input rp_input;

/**
 * Reads an input.
 * @param kind any but RP_KIND_SCHEDULE
 * @param name a registered name or the path of a file. A model may also be given in the other forms
 * of `rpsim --model`: a Hugging Face config.json or its folder, and gpt:HIDDENxHEADSxLAYERS
 * @param input_out to be freed by rp_input_free; NULL after a failure
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT (unknown name, or a file with a mistake, whose line the
 * message names), RP_CODE_FAILED
 */
RP_API rp_code rp_input_load(rp_kind kind, const char *name, rp_input **input_out);

/** Frees an input. Simulations that use it stay valid. NULL is allowed. */
RP_API void rp_input_free(rp_input *input);

/** @return the kind that the input was loaded as; for NULL RP_KIND_SCHEDULE, which no input has. */
RP_API rp_kind rp_input_kind(const rp_input *input);

/** @return the name that the input's file gives; valid as long as the input. NULL for NULL. */
RP_API const char *rp_input_name(const rp_input *input);

/**
 * Gives a number of an input.
 * @param key of a platform: each key of its file whose value is a number (memory_gb, link_gb_per_s,
 * …), in the unit of that file; the number is 0 if the file lacks the key and the key has no
 * default. For a model: layers, hidden, heads, kv_heads, head_dim, intermediate, experts,
 * active_experts, vocab, max_positions, lora_rank, parameters, active_parameters. For a cost table:
 * layers, microbatch_size, seq_len, hop_ms, and fwd_ms and bwd_ms, the times of a microbatch
 * through all layers and the head
 * @param number_out NaN after a failure
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT (no such key; the message lists the valid keys)
 */
RP_API rp_code rp_input_number(const rp_input *input, const char *key, double *number_out);

/* ---- simulations ----------------------------------------------------------------------------- */

/**
 * Settings of a simulation. Begin with RP_SETTINGS_INIT. 0 and NULL stand for rpsim's default,
 * which depends on the other settings; only in `intervals` 0 means none. Limits are the same as in
 * rpsim's options. Texts and lists are read only during rp_simulation_prepare.
 */
typedef struct rp_settings {
    size_t size;              /**< sizeof(rp_settings); RP_SETTINGS_INIT sets it */
    const char *schedule;     /**< a name, several with commas between, or "all" */
    const rp_input *model;    /**< NULL: the model of `costs`; without these qwen3-1.7b */
    const rp_input *platform; /**< NULL: rtx4090x8 */
    const rp_input *costs;    /**< NULL: the table of model and GPU, or computed times */
    const char *fidelity;     /**< "hardware" (NULL) or "stage" */
    const char *partition;    /**< "even", "paper", "auto", "tuned" or layers: "3,3,4" */
    const char *recompute;    /**< "none", "wait", "early", "selective", "all" */
    const char *grain;        /**< "stage" or "layer" */
    const char *dtype;        /**< "fp16", "bf16", "fp32" */
    const char *optimizer;    /**< "sync" or "async" */
    uint32_t gpus;
    uint32_t nodes;           /**< servers */
    uint32_t microbatches;    /**< microbatches of a call */
    uint32_t microbatch_size; /**< sequences */
    uint32_t seq_len;         /**< tokens */
    uint32_t global_batch;    /**< sequences of a step */
    uint32_t accumulate;      /**< calls of a step */
    uint32_t iterations;
    uint32_t lora_rank;
    uint32_t intervals; /**< draws for p10, p50 and p90 of the throughput; 0: none */
    uint64_t seed;
    int32_t keep_timeline;      /**< not 0: rp_simulation_ops may be called */
    uint32_t option_count;      /**< length of `options` */
    const char *const *options; /**< further options of rpsim: "--partition", "even" */
    const char *accumulation;   /**< type in which products of fp16 add up: "fp16", "fp32" */
} rp_settings;

/* clang-format off */
#define RP_SETTINGS_INIT                                                                           \
    {sizeof(rp_settings), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,              \
     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL}
/* clang-format on */

/** A group of runs: a run for each schedule and recompute mode that was asked for. */
typedef struct rp_simulation rp_simulation;

/**
 * Resolves settings and checks that every run is allowed; nothing is simulated. With schedule
 * "all", schedules that do not allow the sizes are left out with a warning.
 * @param simulation_out to be freed by rp_simulation_free; NULL after a failure
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT (the message names rpsim's option of the same name), FAILED
 */
RP_API rp_code rp_simulation_prepare(const rp_settings *settings, rp_simulation **simulation_out);

/**
 * Simulates every run, on all cores if `intervals` asks for draws, and writes the files that
 * `options` name. It may be called once. With schedule "all", a schedule that cannot run is left
 * out with a warning, and the runs are ranked.
 */
RP_API rp_code rp_simulation_run(rp_simulation *simulation);

/** Frees a simulation with all texts and lists that it gave. NULL is allowed. */
RP_API void rp_simulation_free(rp_simulation *simulation);

/** @return the number of runs that have been simulated; 0 before rp_simulation_run and after its
 * failure. */
RP_API uint32_t rp_simulation_count(const rp_simulation *simulation);

/** Gives the runs as JSON, as rp_run_json does. @param json_out as in rp_run_json */
RP_API rp_code rp_simulation_json(const rp_simulation *simulation, char **json_out);

/* ---- results ----------------------------------------------------------------------------------
 * Functions of this section and the next are valid after rp_simulation_run has succeeded; `index`
 * must be below rp_simulation_count. Otherwise they return RP_CODE_BAD_INPUT.
 */

/** Answer to a question whose answer may be unknown. */
typedef enum rp_answer {
    RP_ANSWER_NO = 0,
    RP_ANSWER_YES = 1,
    RP_ANSWER_UNKNOWN = 2,
} rp_answer;

/** Result of a run. Texts and lists belong to the simulation. A number that is not known is NaN. */
typedef struct rp_result {
    size_t size; /**< sizeof(rp_result), set by the caller: RP_RESULT_INIT */
    const char *schedule;
    const char *model;
    const char *platform;  /**< NULL if none was used (stage fidelity with a cost table) */
    const char *partition; /**< layers of each stage */
    double tokens_per_s;   /**< tokens of a step over its period */
    double iteration_ms;   /**< period of a step */
    double makespan_ms;    /**< time of a step by itself */
    double bubble_pct;     /**< GPU time without compute, in percent of makespan times GPUs */
    double lower_bound_ms; /**< lower bound on the makespan */
    rp_answer fits; /**< in GPU and host memory; RP_ANSWER_UNKNOWN at stage fidelity, and if the
                       platform's host memory is unknown */
    const char *oom_reason; /**< NULL, or the allocation that does not fit, with need and limit */
    uint32_t gpus;
    uint32_t rank;                  /**< rank from 1, with schedule "all"; 0: not ranked */
    const uint64_t *peak_gpu_bytes; /**< [gpus]; NULL at stage fidelity */
    uint64_t peak_host_bytes;       /**< 0 at stage fidelity */
    uint64_t host_memory_bytes;     /**< limit of host memory; 0: not known */
} rp_result;

/* clang-format off */
#define RP_RESULT_INIT                                                                             \
    {sizeof(rp_result), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, RP_ANSWER_UNKNOWN, NULL,            \
     0, 0, NULL, 0, 0}
/* clang-format on */

/** Gives a run's result. @param result_out with `size` set; members beyond that size stay as they
 * are */
RP_API rp_code rp_simulation_result(const rp_simulation *simulation, uint32_t index,
                                    rp_result *result_out);

/**
 * Gives a number of the JSON.
 * @param key key of the JSON: "bubble_ms"; if its value is a list, the largest number counts
 * @param number_out 1 for true, 0 for false, NaN for null and for a text
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT (no such key)
 */
RP_API rp_code rp_simulation_number(const rp_simulation *simulation, uint32_t index,
                                    const char *key, double *number_out);

/** Gives a text of the JSON. @param text_out NULL for null and for a number; it lives as long as
 * the simulation */
RP_API rp_code rp_simulation_text(const rp_simulation *simulation, uint32_t index, const char *key,
                                  const char **text_out);

/* ---- timelines ------------------------------------------------------------------------------- */

#define RP_NO_OP UINT32_MAX

/** An op of a run. */
typedef struct rp_timed_op {
    const char *kind;    /**< its name in program text: "F", "B", "UPLOAD_PARAMS"; static */
    const char *meaning; /**< its meaning in a few words: "forward"; static */
    const char *queue; /**< name of its queue, whose ops run one by one: "compute", "param-upload";
                          static */
    int32_t gpu;       /**< index of the GPU; -1: the host */
    uint32_t stage;
    uint32_t microbatch; /**< index of the microbatch; for ops of the host, of the layer */
    uint32_t layer;      /**< 0: all layers of the stage; otherwise only this layer, from 1 */
    uint32_t iteration;
    uint32_t waited_for; /**< index of the op whose end this op waited for last: an op that it
                            depends on, or the op before it in its queue; RP_NO_OP: none */
    double start_ms;     /**< time since the beginning of the run */
    double end_ms;
} rp_timed_op;

/**
 * Gives all ops of a run, queue by queue, each queue in the order of time.
 * @param ops_out [*count_out]; the ops live as long as the simulation
 * @return RP_CODE_OK, RP_CODE_BAD_INPUT (also if the settings did not have keep_timeline),
 * RP_CODE_FAILED
 */
RP_API rp_code rp_simulation_ops(rp_simulation *simulation, uint32_t index,
                                 const rp_timed_op **ops_out, uint32_t *count_out);

#ifdef __cplusplus
}
#endif
