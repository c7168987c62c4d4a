/** @file platform_machine.h  The machine of hardware fidelity that a platform file describes. */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/platform.h"
#include "common/machine/machine.h"

/**
 * The host link: as measured, otherwise link_efficiency of nominal; 0 where the platform says
 * neither.
 * @return bytes per second
 */
double rp_link_bytes_per_s(const rp_platform *platform);

/** @return most that a GPU sends to or receives from others, bytes per second: peer_gb_per_s
 * times link_efficiency, where the file says one; 0: GPUs reach each other through the host only.
 */
double rp_peer_bytes_per_s(const rp_platform *platform);

/**
 * @return the machine, rates of 0 where the platform does not say them. Uplinks and root complexes
 * are as effective as the host link (rp_link_bytes_per_s), the other rates as written. The host
 * works at optimizer_threads times optimizer_thread_gb_per_s, but not above host_optimizer_gb_per_s
 * where both are there. What the software decides (local_memory) is left 0.
 */
rp_machine rp_machine_of(const rp_platform *platform);

/** @return the number of successive GPUs that send boundary tensors to each other directly
 * (rp_lower_config.peer_gpus): 0: none, UINT32_MAX: all, over NVLink, PCIe or the network. */
uint32_t rp_peer_gpus(const rp_platform *platform);

/** A rate that something needs, as it is to be named. */
typedef struct rp_needed_rate {
    const char *keys; /**< of the file: "a", or "a or b" */
    double value;
} rp_needed_rate;

/**
 * Refuses a platform that does not say all rates, and names those that it lacks.
 * @param needed [count]
 * @param why for the message, as "which hardware fidelity needs"
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY
 */
rp_status rp_platform_need(const rp_platform *platform, const rp_needed_rate *needed, size_t count,
                           const char *why, rp_reason *reason);
