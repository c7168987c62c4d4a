/** @file platforms.h  Platforms by the value of --platform: a name or a file of traces/platforms
 * (platform.h), or "detect" for this machine (detect/detect.h). Objects live in `arena`.
 */
#pragma once

#include "common/inputs/changes.h"

/** @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY */
rp_status rp_platform_load(const char *name_or_path, rp_arena *arena, rp_platform *platform_out);

/** As rp_platform_load, with changes, which the platform's name lists. @param changes NULL: none */
rp_status rp_platform_load_changed(const char *name_or_path, const rp_changes *changes,
                                   rp_arena *arena, rp_platform *platform_out, rp_reason *reason);
