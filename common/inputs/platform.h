/** @file platform.h  GPU platforms: data in traces/platforms.
 *
 * The loader reads a YAML file by a schema (common/formats/config.h): unknown keys, wrong types,
 * NaN, negative or absurd numbers and sums that do not match are refused with "file:line: cause;
 * valid values are …" and RP_INPUT. `name_or_path` is a registered name
 * (traces/platforms/NAME.yaml) or, when it contains '/' or ends in ".yaml", a path. An unknown name
 * lists the known ones. Keys of the GPU may stand in a file of their own (gpu.h). "detect" is this
 * machine (load/platforms.h). Objects live in `arena`.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/reason.h"
#include "common/base/status.h"
#include "common/formats/config.h"

#include <stdbool.h>
#include <stdint.h>

#define RP_GB_PER_GIB 1.073741824

/** Path on which GPUs reach each other. */
typedef enum rp_peer_access {
    RP_PEER_NONE,   /**< through the host */
    RP_PEER_PCIE,   /**< over their PCIe links */
    RP_PEER_NVLINK, /**< over NVLink: all GPUs of a node, or groups (nvlink_gpus, nvlink_groups) */
} rp_peer_access;

/** Origin of a value (common/inputs/provenance.h). */
typedef enum rp_provenance { RP_ASSUMED, RP_MEASURED, RP_MOVED, RP_SET } rp_provenance;

/** A kind of GPU in a kind of server. Rates are per GPU, in decimal units (1 GB = 1e9 bytes).
 * Members are the keys of its file, whose rows explain them. A key that the file leaves out is 0 or
 * NULL, unless its row has another default. */
typedef struct rp_platform {
#define KEY(member, type, ...) RP_CONFIG_MEMBER_##type member;
#include "common/inputs/platform_rows.inc"
#undef KEY
    struct { /**< lists by GPU of a node; empty: all GPUs have the member's value,
                which is the least of a list */
        rp_config_numbers memory_gb, memory_gib, usable_memory_gb, pcie_lanes, link_gb_per_s,
            link_effective_gb_per_s, upload_gb_per_s, download_gb_per_s;
    } each;
    bool copies_on_cores;       /**< whether `copies` is "cores" */
    rp_peer_access peer_access; /**< `peer`; without it nvlink if peer_gb_per_s > 0 */
    /** [GPU of a node] first GPU of its group that NVLink joins; NULL: nvlink_gpus successive */
    const uint32_t *nvlink_first;
    const struct rp_products *products; /**< measured products of its GPU (gpu.h); NULL: none */
    /** [GPU of a node] with `gpu_list`: the platform with the keys of that GPU's card, whose
     * `cards` is NULL. NULL: all cards are `gpu` */
    const struct rp_platform *const *cards;
    uint32_t used_gpus;        /**< GPUs of a short name as 4090x2; 0: all (load/platforms.h) */
    const uint8_t *provenance; /**< [rp_platform_key] each an rp_provenance; NULL: all assumed */
} rp_platform;

/** Fields of the schema. */
typedef enum rp_platform_key {
#define KEY(member, ...) RP_PLATFORM_##member,
#include "common/inputs/platform_rows.inc"
#undef KEY
} rp_platform_key;

/** @return the platform with the keys of a GPU's card. @param gpu number in its node */
static inline const rp_platform *rp_platform_card(const rp_platform *platform, uint32_t gpu)
{
    return platform->cards != NULL ? platform->cards[gpu] : platform;
}

/** @return GPUs that a run takes which does not say how many. */
static inline uint32_t rp_platform_usual_gpus(const rp_platform *platform)
{
    return platform->used_gpus != 0 ? platform->used_gpus : platform->gpus;
}

/** The keys of a platform. */
extern const rp_config_schema rp_platform_schema;

/**
 * Turns the platform of a single server into a platform of `nodes` servers, each with `gpus` of its
 * GPUs (0: all).
 * @retval RP_OK, RP_USAGE (the file has several servers already, has no network_gb_per_s, or its
 * servers cannot be cut so; given as the reason)
 */
rp_status rp_platform_set_nodes(rp_platform *platform, uint32_t nodes, uint32_t gpus,
                                rp_reason *reason);

/**
 * Checks the keys of the network between servers: adapters, leaf switches, rails, the spine.
 * @param lines [rp_platform_key] the key's line in the file `name`; 0: the file has no such key
 * @retval RP_OK, RP_INPUT (given as the reason)
 */
rp_status rp_platform_check_network(const char *name, const size_t *lines,
                                    const rp_platform *platform, rp_reason *reason);

/**
 * Checks `nvlink_gpus` and `nvlink_groups`, and sets nvlink_first where groups are not successive
 * and equal.
 * @param lines as for rp_platform_check_network
 * @retval RP_OK, RP_INPUT (given as the reason), RP_NO_MEMORY
 */
rp_status rp_platform_set_bridges(const char *name, const size_t *lines, rp_arena *arena,
                                  rp_platform *platform, rp_reason *reason);

/**
 * Checks lists of values by GPU, and derives those of other units: memory_gb, link_gb_per_s.
 * @retval RP_OK, RP_INPUT (given as the reason), RP_NO_MEMORY
 */
rp_status rp_platform_set_each(const char *name, const size_t *lines, rp_arena *arena,
                               rp_platform *platform, rp_reason *reason);

/** @return a GPU's value of a list over the least value, which the member holds; 1 without a list.
 * @param gpu number in its node */
double rp_platform_share(const rp_config_numbers *list, uint32_t gpu);

/** @return whether GPUs of a node differ, so that the machine lists them. */
bool rp_platform_lists(const rp_platform *platform);

/** @return whether NVLink joins all GPUs of each node. */
bool rp_platform_joins_all(const rp_platform *platform);

/** Reads a platform from bytes in memory. @retval RP_OK, RP_INPUT, RP_NO_MEMORY */
rp_status rp_platform_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                            rp_platform *platform_out);
