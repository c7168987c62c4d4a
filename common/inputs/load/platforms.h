/** @file platforms.h  Platforms by the value of --platform: a name or a file of traces/platforms
 * (platform.h), "detect" for this machine (detect/detect.h), or CARDxCOUNT. Objects live in
 * `arena`.
 *
 * CARDxCOUNT, as 4090x2 or h100x4, is the first COUNT GPUs of the smallest server of that card that
 * has a file CARDxN; the card's "rtx" may be left out. A file of exactly this name comes first.
 *
 * CARDxCOUNT,CARDxCOUNT, as 5090x2,4090x3, is a server with these GPUs in this order (`gpu_list`):
 * the fastest card's smallest server, with the links that each card has in its own. Cards that
 * differ share no NVLink.
 */
#pragma once

#include "common/inputs/changes.h"

/** @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY */
rp_status rp_platform_load(const char *name_or_path, rp_arena *arena, rp_platform *platform_out);

/** As rp_platform_load, with changes, which the platform's name lists. @param changes NULL: none */
rp_status rp_platform_load_changed(const char *name_or_path, const rp_changes *changes,
                                   rp_arena *arena, rp_platform *platform_out, rp_reason *reason);
