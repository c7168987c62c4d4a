/** @file platform.h  GPU platforms: data in traces/platforms.
 *
 * The loader reads a YAML file by a schema (common/formats/config.h): unknown keys, wrong types,
 * NaN, negative or absurd numbers and sums that do not match are refused with "file:line: cause;
 * valid values are …" and RP_INPUT. `name_or_path` is a registered name
 * (traces/platforms/NAME.yaml) or, when it contains '/' or ends in ".yaml", a path. An unknown name
 * lists the known ones. "detect" is this machine (detect/detect.h). Objects live in `arena`.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/** Path on which GPUs reach each other. */
typedef enum rp_peer_access {
    RP_PEER_NONE,   /**< through the host */
    RP_PEER_PCIE,   /**< over their PCIe links */
    RP_PEER_NVLINK, /**< over NVLink: all GPUs of a node, or pairs (rp_platform.nvlink_gpus) */
} rp_peer_access;

/** Where a value comes from (common/inputs/provenance.h). */
typedef enum rp_provenance { RP_ASSUMED, RP_MEASURED, RP_MOVED, RP_SET } rp_provenance;

/** One kind of GPU in one kind of server. Rates are per GPU; decimal units (1 GB = 1e9 bytes). */
typedef struct rp_platform {
    const char *name;
    const char *source;
    const char *gpu;                /**< cost tables are called MODEL@GPU */
    const char *gpu_names;          /**< products that it is, with commas between; NULL: none */
    uint32_t gpus;                  /**< of all nodes together */
    double fp16_tflops_fp16_acc;    /**< dense tensor peak with fp16 accumulation */
    double fp16_tflops_fp32_acc;    /**< dense tensor peak with fp32 accumulation; bf16's, too */
    double fp32_tflops;             /**< peak of fp32, without tensor cores; 0: unknown */
    double memory_gb;               /**< device memory, all that there is */
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
    double host_adam_gb_per_s;        /**< of Adam alone; 0: host_optimizer_gb_per_s */
    double host_refresh_gb_per_s;     /**< of casts to working weights alone; 0: likewise */
    double host_collect_gb_per_s;     /**< of the collection of gradients alone; 0: likewise */
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
    double network_gb_per_s;     /**< of a node to all others, effective; of all its adapters */
    uint32_t adapters;           /**< of a node, each with its part of GPUs and rate; 1 */
    uint32_t leaf_nodes;         /**< successive nodes below a leaf switch; 0: one switch has all */
    bool rails;                  /**< leaf switches join adapters of one number; otherwise all */
    double spine_oversubscription; /**< rate of a leaf's adapters over that of its uplinks; 1 */
    double host_dram_gb_per_s;   /**< of a node, effective; shared by transfers and the optimizer;
                                      0: no bottleneck */
    uint32_t optimizer_threads;  /**< of a node's optimizer; 0: host_optimizer_gb_per_s says all */
    double optimizer_thread_gb_per_s; /**< memory traffic of one of them */
    /* GPUs emulated by threads of the host (rpexec's host backend). */
    double host_cores;  /**< that all compute of GPUs and host shares; 0: GPUs compute themselves */
    const char *copies; /**< with host_cores: links, or cores: copies are work of threads, too;
                             NULL: links */
    uint32_t bound_cores;       /**< with host_cores: GPU g has core g mod this alone; 0: any */
    bool copies_on_cores;       /**< as `copies` says */
    const char *peer;           /**< none, pcie or nvlink; NULL: nvlink if peer_gb_per_s > 0 */
    rp_peer_access peer_access; /**< as `peer` says */
    uint32_t nvlink_gpus;       /**< that NVLink joins, 2 for bridged pairs; 0: all of a node */
    /* Memory (sim/run/memory/memory.h). */
    double reserved_gib;           /**< that the driver keeps of memory_gb */
    double usable_memory_gb;       /**< per GPU, context included; 0: what is not reserved */
    double context_gb;             /**< CUDA context per process; 0.75 where the file has none */
    double process_gb;             /**< on each GPU beside the context, where one process has all */
    double workspace_gb;           /**< of the libraries; 32 MiB where the file has none */
    double communicator_gb;        /**< of a collective library; 0.6 where the file has none */
    double allocator_overhead_pct; /**< of what is allocated */
    double host_memory_gb;         /**< of a node; 0: unknown, nobody knows what fits there */
    double host_memory_gib;        /**< the same as the file may say it; host_memory_gb counts */
    /* Roofline (common/roofline/roofline.h); 0 where the file does not say. */
    double gemm_efficiency;    /**< of the peak with fp16 accumulation, 0 to 1 */
    double link_efficiency;    /**< of the nominal link, where no effective rate was measured */
    double launch_overhead_us; /**< per kernel */
    double layer_time_factor;  /**< times of layers at hardware fidelity over what tables and
                                    roofline give; 1, and 0 stands for 1 */
    /* The same in detail (common/roofline/kernels.c); sms 0: not described. */
    uint32_t sms;                    /**< streaming multiprocessors */
    double sm_clock_ghz;             /**< at which the peaks are stated */
    double gemm_fp32_acc_efficiency; /**< of the peak with fp32 accumulation, within a tile */
    double flash_fwd_tflops;         /**< fused attention of long sequences, masked half of the
                                          pairs not counted; forward */
    double flash_bwd_tflops;
    /* Collectives; 0: none. */
    double collective_latency_us; /**< of each */
    double collective_hop_us;     /**< from GPU to GPU of a server, around the ring */
    double collective_part_gb_per_s; /**< collective_gb_per_s of groups that have only some GPUs of
                                          a server; 0: the same */
    double network_hop_us;        /**< from server to server */
    uint32_t collective_sms;      /**< that a collective keeps from what computes beside it */
    /* Dispatch (sim/engine/dispatch.h); 0: not modelled. */
    uint32_t launch_queue_depth;    /**< launches that a GPU takes ahead of what it has done */
    double dispatch_us_per_module;  /**< host time to clone one module and give it up */
    double optimizer_us_per_object; /**< host time for a module or tensor in a pass of them */
    /* Links as measured by direction, effective; 0: both as link_effective_gb_per_s. */
    double upload_gb_per_s;
    double download_gb_per_s;
    double duplex_efficiency; /**< of PCIe links, both directions at once over each alone; 1 */
    /* Times that starting takes (common/machine/machine.h); 0: none. */
    double copy_latency_us;   /**< of every transfer between host and GPU */
    double op_gap_us;         /**< between two ops of a queue */
    double op_wake_us;        /**< from the end of another queue's op to what waits for it */
    double recorded_busy_pct; /**< of the processors that other processes used while the file's
                                   values were measured; 0: next to nothing */
    /* Keys of the file whose values are not assumed (common/inputs/provenance.h); NULL: none. */
    const char *measured;      /**< on this GPU and server */
    const char *moved;         /**< from another one, by stated ratios */
    const char *set;           /**< on a published cell */
    const uint8_t *provenance; /**< [field of the file] an rp_provenance; NULL: all assumed */
} rp_platform;

/**
 * Makes a platform of one server one of several: `nodes` servers, each with `gpus` of its GPUs
 * (0: all).
 * @retval RP_OK, RP_USAGE (the file has several already, says no network_gb_per_s, or its servers
 * cannot be cut so; logged)
 */
rp_status rp_platform_set_nodes(rp_platform *platform, uint32_t nodes, uint32_t gpus);

/**
 * Checks the keys that say what connects servers: adapters, leaf switches, rails, the spine.
 * @param lines [field of the schema] its line in the file `name`; 0: it is not there
 * @retval RP_OK, RP_INPUT (logged)
 */
rp_status rp_platform_check_network(const char *name, const size_t *lines,
                                    const rp_platform *platform);

/** @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY */
rp_status rp_platform_load(const char *name_or_path, rp_arena *arena, rp_platform *platform_out);

/** As rp_platform_load, from bytes in memory. @retval RP_OK, RP_INPUT, RP_NO_MEMORY */
rp_status rp_platform_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                            rp_platform *platform_out);
