/** @file platform_machine.h  The machine of hardware fidelity that a platform file describes. */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/platform.h"
#include "common/machine/machine.h"

/**
 * Rate of the host link: as measured, otherwise link_efficiency of nominal; 0 if the platform gives
 * neither.
 * @return bytes per second
 */
double rp_link_bytes_per_s(const rp_platform *platform);

/** @return the highest rate at which a GPU sends to or receives from others, bytes per second:
 * peer_gb_per_s, times link_efficiency if the file gives it; 0: GPUs reach each other only through
 * the host.
 */
double rp_peer_bytes_per_s(const rp_platform *platform);

/**
 * @return the machine; rates that the platform does not give are 0. Uplinks and root complexes are
 * as effective as the host link (rp_link_bytes_per_s), the other rates as written. The host works
 * at optimizer_threads times optimizer_thread_gb_per_s, but not above host_optimizer_gb_per_s if
 * both are given. Decisions of the software (local_memory) are left 0.
 */
rp_machine rp_machine_of(const rp_platform *platform);

/** @return the number of successive GPUs that send boundary tensors to each other directly
 * (rp_lower_config.peer_gpus): 0: none, UINT32_MAX: all, over NVLink, PCIe or the network. If the
 * machine lists its GPUs, rp_machine_peer_groups says which. */
uint32_t rp_peer_gpus(const rp_platform *platform);

/** A rate that something needs, and its name in messages. */
typedef struct rp_needed_rate {
    const char *keys; /**< keys in the file: "a", or "a or b" */
    double value;
} rp_needed_rate;

/**
 * Refuses a platform that does not give all rates, and names the missing rates.
 * @param needed [count]
 * @param why end of the message, as "which hardware fidelity needs"
 * @retval RP_OK, RP_INPUT (given as the reason), RP_NO_MEMORY
 */
rp_status rp_platform_need(const rp_platform *platform, const rp_needed_rate *needed, size_t count,
                           const char *why, rp_reason *reason);
