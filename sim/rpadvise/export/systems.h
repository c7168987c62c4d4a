/** @file systems.h  Public systems that can train the configurations that rpsim simulates, and the
 * runs that each can be told to do. The data are in traces/configs/systems.csv.
 *
 * A row of the table is a system and one of its schedules, with the conditions for a configuration.
 * `pipelines` and `all` are the schedules that the system's rows above do not name.
 * A setting that the system's own options, its command line or its constructors cannot express is a
 * condition; a setting that they express only in part stands in the notes of an export (export.h).
 */
#pragma once

#include "sim/study/study.h"

/** X(enumerator, word in the table, text of the refusal). Properties of models that a system, or an
 * export for it, does not cover. */
#define RPADVISE_LACK_LIST(X)                                                                      \
    X(ADAPTERS, "adapters", "it has no options for adapters (LoRA)")                               \
    X(SINKS, "sinks", "attention sinks are not covered")                                           \
    X(EXPERT_BIASES, "expert-biases", "biases of experts are not covered")                         \
    X(LINEAR_BIASES, "linear-biases", "biases of linear layers are not covered")                   \
    X(LEARNED_POSITIONS, "learned-positions", "learned positions are not covered")                 \
    X(LAYER_NORM, "layer-norm", "LayerNorm is not covered")                                        \
    X(PLAIN_MLP, "plain-mlp", "MLPs without a gate are not covered")                               \
    X(SLIDING_WINDOW, "sliding-window", "sliding windows are not covered")                         \
    X(ROPE_SCALING, "rope-scaling", "this scaling of rotary embeddings is not covered")            \
    X(QKV_BIASES, "qkv-biases", "biases of queries, keys and values are not covered")              \
    X(OTHER_BIASES, "other-biases", "biases of outputs or of MLPs alone are not covered")          \
    X(OTHER_NORMS, "other-norms",                                                                  \
      "four norms in a layer, or norms over all heads, are not covered")                           \
    X(LATENT_ATTENTION, "latent-attention", "attention over latent vectors is not covered")        \
    X(SHARED_EXPERTS, "shared-experts", "shared experts are not covered")                          \
    X(MIXED_LAYERS, "mixed-layers", "layers that differ are not covered")                          \
    X(TYPES, "types", "states, masters and frozen weights have the usual types")

typedef enum rpadvise_lack {
#define RPADVISE_LACK_ENUM(name, word, text) RPADVISE_LACK_##name,
    RPADVISE_LACK_LIST(RPADVISE_LACK_ENUM)
#undef RPADVISE_LACK_ENUM
        RPADVISE_LACK_COUNT
} rpadvise_lack;

/** Partitions that a system can be given. */
typedef enum rpadvise_partitions {
    RPADVISE_PARTITIONS_ANY,
    RPADVISE_PARTITIONS_EVEN,  /**< all stages have as many layers */
    RPADVISE_PARTITIONS_FUSED, /**< RoundPipe's library: the forward ends where the head's backward
                                  stage begins */
} rpadvise_partitions;

/** A row of the table: a schedule of a system. */
typedef struct rpadvise_rule {
    const char *system;
    const char *schedule;
    bool asynchronous; /**< the optimizer may step during the next step */
    rpadvise_partitions partitions;
    bool recomputes[RP_RECOMPUTE_COUNT];
    bool stage_grain; /**< recompute can work stage by stage */
    bool dtypes[RP_DTYPE_COUNT];
    bool one_call;    /**< forward and backward of a step are a single call */
    bool even_batch;  /**< all microbatches, and all ranks, must have equally many sequences */
    bool one_server;  /**< it runs only inside a single server */
    uint32_t gpus;    /**< largest number of GPUs; 0: any number */
    uint32_t lacking; /**< bits of rpadvise_lack */
} rpadvise_rule;

/** The table; lives in an arena. */
typedef struct rpadvise_systems {
    const rpadvise_rule *rules; /**< the rules of a system are adjacent */
    uint32_t rule_count;
    const char **names; /**< names of the systems, in the table's order */
    uint32_t name_count;
} rpadvise_systems;

/**
 * Layout of a run on its GPUs, in the terms of other systems. With tensor parallelism a microbatch
 * of rpsim is a GPU's slice; here a microbatch is all slices together.
 */
typedef struct rpadvise_layout {
    uint32_t gpus;         /**< tensor * pipeline * data */
    uint32_t tensor;       /**< degree of tensor parallelism */
    uint32_t pipeline;     /**< GPUs of a pipeline */
    uint32_t data;         /**< replicas */
    uint32_t stages;       /**< stages of a pipeline; 1 without a pipeline */
    uint32_t batch;        /**< sequences of an optimizer step, all replicas together */
    uint32_t microbatches; /**< microbatches of a replica in a step, all calls together */
    uint32_t size;         /**< sequences of a microbatch; the largest number if they differ */
    uint32_t calls;        /**< calls that the step is split into */
    bool even; /**< all microbatches have `size` sequences, and all replicas equally many
                  microbatches */
} rpadvise_layout;

/** @param row of hardware fidelity, prepared @return its layout */
rpadvise_layout rpadvise_layout_of(const rpsim_row *row);

/**
 * Reads the table; a mistake is refused with file, line and the valid values.
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpadvise_systems_load(rp_arena *arena, rpadvise_systems *systems_out);

/**
 * Reads the table as rpadvise_systems_load does, but from bytes in memory.
 * @param name origin of the bytes, for messages; must outlive the call
 */
rp_status rpadvise_systems_parse(const char *name, const char *bytes, size_t length,
                                 rp_arena *arena, rpadvise_systems *systems_out);

/**
 * Checks the name of a system.
 * @retval RP_OK, RP_USAGE (logged, with the valid names), RP_NO_MEMORY
 */
rp_status rpadvise_systems_require(const rpadvise_systems *systems, const char *system);

/** @return the row of a system and a schedule, or NULL: a search need not try the schedule. */
const rpadvise_rule *rpadvise_systems_rule(const rpadvise_systems *systems, const char *system,
                                           const char *schedule);

/**
 * Says whether a system can be told to do a run.
 * @param row of hardware fidelity, prepared; it need not have run
 * @param why_out the first condition that it does not meet, a static text; NULL: it runs
 * @return *why_out == NULL
 */
bool rpadvise_runs(const rpadvise_systems *systems, const char *system, const rpsim_row *row,
                   const char **why_out);
