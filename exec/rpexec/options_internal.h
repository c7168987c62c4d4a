/** @file options_internal.h  The command line of rpexec. */
#pragma once

#include "common/cli/options.h"
#include "exec/run/driver.h"
#include "exec/run/work.h"

typedef enum rpexec_action {
    RPEXEC_ACTION_RUN,
    RPEXEC_ACTION_LIST,
} rpexec_action;

#define RPEXEC_MAX_GPUS 64u

/** Default of --piece-mb: an activation waits for a piece at most, 1.3 ms of 25 GB/s. The library's
 * pieces, and so rpsim's, are RP_PIECE_BYTES, eight times as large. */
#define RPEXEC_PIECE_MB 32u

/** Texts are borrowed from the arguments. */
typedef struct rpexec_options {
    rp_options common; /**< first, as rp_options_parse wants it */
    rpexec_action action;
    const char *list;
    const rp_schedule_type *schedule;
    const char *backend; /**< one of this build's; NULL until it is known */
    const char *model;
    const char *weights;    /**< NULL: initialised from the seed */
    const char *data;       /**< NULL: random tokens */
    const char *partition;  /**< NULL: even */
    const char *platform;   /**< NULL: none */
    bool peers;             /**< GPUs send to each other, whatever the platform says */
    const char *save;       /**< folder of checkpoints; NULL: none */
    const char *program_in; /**< NULL: the schedule's */
    const char *program_out;
    const char *timeline_out;
    const char *trace_out;
    const char *gantt_out;
    const char *loss_out;
    const char *record;       /**< folder; NULL: nothing is measured */
    const char *costs;        /**< folder or file of an earlier --record; NULL: FLOP counts */
    const char *db;           /**< store; NULL: none */
    const char *command;      /**< the whole line, set by main */
    uint32_t gpus;            /**< 0 until it is known */
    uint32_t virtual_gpus;    /**< parts of one device; 0: GPUs are devices */
    uint32_t microbatches;    /**< 0: 2 N */
    uint32_t microbatch_size; /**< 0 with program_in: not given */
    uint32_t accumulate;      /**< 0 with program_in: not given */
    uint32_t seq_len;
    uint32_t steps; /**< 0 with program_in: not given */
    uint32_t round;
    uint32_t save_every;
    uint32_t lora_rank;     /**< 0: what the model's file says */
    uint32_t piece_mb;      /**< largest piece of a parameter upload, MiB */
    uint32_t gpu_memory_mb; /**< 0: the platform's, or what the plan needs */
    uint32_t watchdog_s;
    uint64_t seed;
    double lr;
    double lora_alpha; /**< 0: the rank, so that adapters are not scaled */
    double weight_decay;
    double link_gb_per_s; /**< of each GPU, per direction; 0: the platform's */
    rpexec_dtype dtype;
    rp_recompute recompute;
    bool recompute_given;
    bool layer_grain;
    bool asynchronous;
    bool resume;
    bool check;
    bool json;
    bool db_ops;
    bool bind;   /**< host: each GPU's threads stay on one core */
    bool graphs; /**< cuda: operators that come again are launched as graphs */
    bool staged; /**< the same as transport */
    rpexec_transport transport;
    rpexec_attention_by attention; /**< cuda: who does its forward */
    bool half_accumulation;        /**< cuda, fp16: products add up in fp16 */
    bool predict;
} rpexec_options;

/** @param arena owns what rp_options_parse makes @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY */
rp_status rpexec_options_parse(int argc, char **argv, rp_arena *arena, rpexec_options *options_out);

/** Rows of all options, for rp_options_answer and the settings. */
extern const rp_options_program rpexec_command_line;
