/** @file link_machine.h  The machine whose links the host backend's copies go over. */
#pragma once

#include "common/machine/platform_machine.h"

/** Machine of --platform and --link-gb-per-s. Both may be given. */
typedef struct rpexec_machine {
    rp_platform platform; /**< its name is NULL if none was given */
    rp_machine machine;
    bool limited; /**< false: links are as fast as memory */
} rpexec_machine;

/**
 * Loads the platform and makes its machine.
 * @param platform name or file, as for rpsim; NULL: GPUs whose links share nothing
 * @param link_gb_per_s rate of each GPU's link and direction; 0: the platform's, or no limit
 *        without a platform
 * @param gpus must not be more than the platform has
 * @retval RP_OK, RP_USAGE (more GPUs; logged), RP_INPUT (no rate of links; logged), RP_IO,
 *         RP_NO_MEMORY
 */
rp_status rpexec_machine_load(const char *platform, double link_gb_per_s, uint32_t gpus,
                              rp_arena *arena, rpexec_machine *machine_out);
