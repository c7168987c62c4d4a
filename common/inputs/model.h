/** @file model.h  Decoder models, GPU platforms, cost tables and published partitions: data in
 * traces/.
 *
 * Every loader reads a YAML file by a schema (config.h): unknown keys, wrong types, NaN, negative
 * or absurd numbers and sums that do not match are refused with "file:line: cause; valid values are
 * …" and RP_INPUT. `name_or_path` is a registered name (traces/KIND/NAME.yaml) or, when it contains
 * '/' or ends in ".yaml", a path. An unknown name lists the known ones. Objects live in `arena`.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define RP_MAX_LAYERS 65536u

/** A decoder-only transformer as its config.json describes it. */
typedef struct rp_model {
    const char *name;
    const char *source;      /**< where the configuration comes from */
    uint32_t layers;         /**< transformer blocks, without embedding and head */
    uint32_t hidden;         /**< d */
    uint32_t heads;          /**< query heads H */
    uint32_t kv_heads;       /**< K, divides H */
    uint32_t head_dim;       /**< h, an independent field: H * h need not be d */
    uint32_t intermediate;   /**< f, per expert for MoE */
    uint32_t experts;        /**< E, 1 for dense */
    uint32_t active_experts; /**< per token, 1 for dense */
    uint32_t vocab;          /**< V */
    uint32_t max_positions;
    double rope_theta;
    double norm_eps;
    bool tied_head; /**< LM head shares the embedding table */
    bool qk_norm;
    bool attention_bias;      /**< biases on q, k, v, o and one sink logit per query head */
    bool expert_bias;         /**< biases on router and experts (gpt-oss) */
    const char *rope_scaling; /**< "none", "llama3" or "yarn" */
    uint32_t lora_rank;       /**< of adapters on all linear layers of the blocks; 0: none, all
                                   parameters are trained */
    uint32_t sliding_window; /**< tokens that even layers (0, 2, …) attend to; 0: all layers full */
    double lora_alpha;       /**< adapters are scaled by lora_alpha / lora_rank; 0: not scaled */
    bool raw_routing; /**< experts' weights are the softmax's own: config.json's norm_topk_prob is
                           false. Otherwise the chosen ones are divided by their sum */
    /* computed by rp_model_load, formulas of executor.md section 4.2 */
    uint64_t attention_parameters; /**< one layer: d(H+2K)h + Hhd, plus biases and sinks */
    uint64_t mlp_parameters;       /**< one layer: 3df, or E * 3df + Ed (+ biases) */
    uint64_t norm_parameters;      /**< one layer: 2d (+ 2h with QK-norm) */
    uint64_t layer_parameters;     /**< the sum of the three */
    uint64_t embedding_parameters; /**< V * d, the table once */
    uint64_t total_parameters;     /**< layers, embedding, head unless tied, final norm */
    uint64_t active_parameters;    /**< total with only the active experts counted */
    uint64_t adapter_parameters;   /**< one layer: lora_rank * (in + out) of q, k, v, o and of gate,
                                        up and down of every expert; counted in none of the above */
} rp_model;

/** @return trained parameters of one layer: its adapters where there are any, else all. */
static inline uint64_t rp_model_trainable_layer(const rp_model *model)
{
    return model->lora_rank != 0 ? model->adapter_parameters : model->layer_parameters;
}

/** @return parameters that one layer holds: weights and adapters. */
static inline uint64_t rp_model_held_layer(const rp_model *model)
{
    return model->layer_parameters + model->adapter_parameters;
}

/** Gives a model adapters of rank `rank` instead of those it has; 0: none. */
void rp_model_set_lora_rank(rp_model *model, uint32_t rank);

/**
 * Loads a model and checks its parameter counts against the published ones in the file.
 * @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rp_model_load(const char *name_or_path, rp_arena *arena, rp_model *model_out);

/**
 * As rp_model_load, from bytes in memory (fuzzing, tests).
 * @param name origin of the bytes, for messages
 * @retval RP_OK, RP_INPUT, RP_NO_MEMORY
 */
rp_status rp_model_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                         rp_model *model_out);

/** How GPUs reach each other. */
typedef enum rp_peer_access {
    RP_PEER_NONE,   /**< through the host */
    RP_PEER_PCIE,   /**< over their PCIe links */
    RP_PEER_NVLINK, /**< over NVLink: all GPUs of a node, or pairs (rp_platform.nvlink_gpus) */
} rp_peer_access;

/** One kind of GPU in one kind of server. Rates are per GPU; decimal units (1 GB = 1e9 bytes). */
typedef struct rp_platform {
    const char *name;
    const char *source;
    const char *gpu;                /**< cost tables are called MODEL@GPU */
    uint32_t gpus;                  /**< how many all nodes have together */
    double fp16_tflops_fp16_acc;    /**< dense tensor peak with fp16 accumulation */
    double fp16_tflops_fp32_acc;    /**< dense tensor peak with fp32 accumulation */
    double memory_gb;               /**< nominal device memory */
    double memory_gib;              /**< the same as the file may say it; memory_gb counts */
    double memory_gb_per_s;         /**< HBM or GDDR bandwidth */
    uint32_t pcie_gen;              /**< 3 to 5, 0 where the file says link_gb_per_s */
    uint32_t pcie_lanes;            /**< of the host link, with pcie_gen; 16 */
    double link_gb_per_s;           /**< host link, nominal, per direction */
    double link_effective_gb_per_s; /**< as measured; 0 where nobody has measured it */
    double peer_gb_per_s;           /**< per direction; 0: peers are reached through the host */
    /* Hardware fidelity; 0 where nobody has measured them. */
    double attention_fwd_tflops; /**< of the causal attention kernel, effective */
    double attention_bwd_tflops;
    double memory_effective_gb_per_s; /**< device memory */
    double host_optimizer_gb_per_s;   /**< memory traffic of the host's Adam, casts, collection */
    double collective_gb_per_s;       /**< of an all-gather or reduce-scatter through each GPU */
    double zero_gradient_gb_per_s;    /**< DeepSpeed's host gradient path, all GPUs together */
    /* Topology (common/machine/machine.h): successive GPUs belong together. A count and its rate:
     * both or none. Rates are per direction. */
    uint32_t gpus_per_switch;    /**< that share a PCIe switch's uplink, divides a node's; 0: every
                                      GPU has a root port of its own */
    double switch_gb_per_s;      /**< uplink of a switch, nominal: as effective as link_gb_per_s */
    uint32_t gpus_per_root;      /**< that share a root complex; 0: it limits nothing */
    double root_gb_per_s;        /**< of a root complex, nominal: as effective as link_gb_per_s */
    uint32_t sockets;            /**< of a node, each with its part of GPUs and memory; 1 */
    double intersocket_gb_per_s; /**< between any two of them, effective */
    uint32_t nodes;              /**< divides gpus; 1 */
    double network_gb_per_s;     /**< of a node to all others, effective */
    double host_dram_gb_per_s;   /**< of a node, effective; shared by transfers and the optimizer;
                                      0: no bottleneck */
    uint32_t optimizer_threads;  /**< of a node's optimizer; 0: host_optimizer_gb_per_s says all */
    double optimizer_thread_gb_per_s; /**< memory traffic of one of them */
    /* GPUs emulated by threads of the host (rpexec's host backend). */
    double host_cores;  /**< that all compute of GPUs and host shares; 0: GPUs compute themselves */
    const char *copies; /**< with host_cores: links, or cores: copies are work of threads, too;
                             NULL: links */
    uint32_t bound_cores;       /**< with host_cores: GPU g has core g mod this alone; 0: any */
    bool copies_on_cores;       /**< what `copies` says */
    const char *peer;           /**< none, pcie or nvlink; NULL: nvlink if peer_gb_per_s > 0 */
    rp_peer_access peer_access; /**< what `peer` says */
    uint32_t nvlink_gpus;       /**< that NVLink joins, 2 for bridged pairs; 0: all of a node */
    /* Memory (sim/run/memory/memory.h). */
    double usable_memory_gb;       /**< per GPU, context included; 0: memory_gb */
    double context_gb;             /**< CUDA context per process; 0.75 where the file has none */
    double workspace_gb;           /**< of the libraries; 32 MiB where the file has none */
    double communicator_gb;        /**< of a collective library; 0.6 where the file has none */
    double allocator_overhead_pct; /**< of what is allocated */
    double host_memory_gb;         /**< of a node; 0: unknown, nobody knows what fits there */
    double host_memory_gib;        /**< the same as the file may say it; host_memory_gb counts */
    /* Roofline (sim/roofline/roofline.h); 0 where the file does not say. */
    double gemm_efficiency;    /**< of the peak with fp16 accumulation, 0 to 1 */
    double link_efficiency;    /**< of the nominal link, where no effective rate was measured */
    double launch_overhead_us; /**< per kernel */
    /* Dispatch (sim/engine/dispatch.h); 0: not modelled. */
    uint32_t launch_queue_depth;   /**< launches that a GPU takes ahead of what it has done */
    double dispatch_us_per_module; /**< host time to clone one module for a job */
    /* Links as measured by direction, effective; 0: both as link_effective_gb_per_s. */
    double upload_gb_per_s;
    double download_gb_per_s;
    double duplex_efficiency; /**< of PCIe links, both directions at once over each alone; 1 */
    /* What starting takes (common/machine/machine.h); 0: nothing. */
    double copy_latency_us; /**< of every transfer between host and GPU */
    double op_gap_us;       /**< between two ops of a queue */
    double op_wake_us;      /**< from the end of another queue's op to what waits for it */
} rp_platform;

/** @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY */
rp_status rp_platform_load(const char *name_or_path, rp_arena *arena, rp_platform *platform_out);

/** As rp_platform_load, from bytes in memory. @retval RP_OK, RP_INPUT, RP_NO_MEMORY */
rp_status rp_platform_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                            rp_platform *platform_out);

/**
 * Longest time that one microbatch may take through all layers and the head, forward, recompute and
 * backward together with one hop: about 20 hours. Leaves room for 127 microbatches one after the
 * other in an int64; a simulation of more must check its own sum.
 */
#define RP_MAX_MICROBATCH_PS (INT64_MAX / 128)

/** Measured times of one microbatch, in picoseconds. Format: cli.md. */
typedef struct rp_costs {
    const char *name;
    const char *source; /**< where the times come from; "" where the file does not say */
    uint32_t layers;
    int64_t *fwd_ps;       /**< [layers] */
    int64_t *bwd_ps;       /**< [layers], full backward without recompute */
    int64_t *bwd_input_ps; /**< [layers], input-gradient part of bwd_ps; default half, floor */
    int64_t head_fwd_ps;   /**< final norm + LM head + loss, forward */
    int64_t head_bwd_ps;
    int64_t hop_ps; /**< boundary activation between two GPUs, stage fidelity only */
    /**
     * 0 to 1: of the shorter of a forward and a backward that run together (DualPipeV), what the
     * pair saves of their sum; stage fidelity only. 0: the sum, as published for its bubble.
     */
    double overlap_saving;
    uint32_t microbatch_size; /**< sequences */
    uint32_t seq_len;         /**< tokens per sequence */
} rp_costs;

/** @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY */
rp_status rp_costs_load(const char *name_or_path, rp_arena *arena, rp_costs *costs_out);

/** As rp_costs_load, from bytes in memory. @retval RP_OK, RP_INPUT, RP_NO_MEMORY */
rp_status rp_costs_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                         rp_costs *costs_out);

/**
 * Layers per stage. backward_count == 0: the backward stages are the forward stages (pipelines).
 * Otherwise backward_layers is in execution order, the head's stage first (schedules.md 5.6).
 */
typedef struct rp_partition {
    uint32_t forward_count;
    uint32_t *forward_layers;
    uint32_t backward_count;
    uint32_t *backward_layers;
} rp_partition;

/** Longest list of stages in one direction. */
#define RP_MAX_STAGES 32767u

/**
 * Parses "3,3,4,…" or "fwd…|bwd…". `what` names the origin in messages (an option, file:line).
 * @retval RP_OK, RP_INPUT (logged; not a number, empty item, too many stages or layers),
 * RP_NO_MEMORY
 */
rp_status rp_partition_parse(const char *what, const char *text, rp_arena *arena,
                             rp_partition *partition_out);

/** Writes the notation that rp_partition_parse reads. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_partition_text(const rp_partition *partition, rp_arena *arena, const char **text_out);

/**
 * A pipeline's contiguous stages with bytes of parameters as even as can be: the least sum of
 * squares, embedding with the first and head with the last stage; of equal ones that with most
 * layers in front.
 * @param stages 1 .. RP_MAX_STAGES; time is linear in them and quadratic in layers
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_partition_balanced(const rp_model *model, uint32_t stages, rp_arena *arena,
                                rp_partition *partition_out);

/**
 * Looks up the partition that the paper lists for (schedule, model) in traces/partitions/paper.csv.
 * @param found_out false when it is not listed; then nothing is logged.
 * @retval RP_OK, RP_INPUT (the file is malformed), RP_NO_MEMORY
 */
rp_status rp_partition_published(const char *schedule, const char *model, rp_arena *arena,
                                 rp_partition *partition_out, bool *found_out);

/**
 * As rp_partition_published, from the bytes of such a table. Every row is checked, not only the one
 * that is asked for.
 * @retval RP_OK, RP_INPUT, RP_NO_MEMORY
 */
rp_status rp_partition_find(const char *name, const char *bytes, size_t length,
                            const char *schedule, const char *model, rp_arena *arena,
                            rp_partition *partition_out, bool *found_out);

/**
 * What --list prints: sorted names of traces/KIND/ *.yaml. KIND is "models", "platforms", "costs".
 * @retval RP_OK, RP_INPUT (there is no such folder; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_data_list(const char *kind, rp_arena *arena, const char ***names_out,
                       uint32_t *count_out);

/**
 * The folder that holds models/, platforms/, costs/ and partitions/: environment RP_TRACES, else
 * ../share/roundpipe/traces beside the executable, else the source tree it was built from.
 */
const char *rp_data_root(void);
