/** @file platform_machine.h  The machine of hardware fidelity that a platform file describes. */
#pragma once

#include "common/model.h"
#include "sim/machine.h"

/**
 * @return the machine, rates of 0 where the platform does not say them. Uplinks and root complexes
 * are as effective as the host link (rpsim_link_bytes_per_s), the other rates as written. The host
 * works at optimizer_threads times optimizer_thread_gb_per_s, but not above host_optimizer_gb_per_s
 * where both are there. What the software decides (collect_Bps, local_memory) is left 0.
 */
rpsim_machine rpsim_machine_of(const rp_platform *platform);

/** @return how many successive GPUs send boundary tensors to each other directly
 * (rp_lower_config.peer_gpus): 0: none, UINT32_MAX: all, over NVLink, PCIe or the network. */
uint32_t rpsim_peer_gpus(const rp_platform *platform);
