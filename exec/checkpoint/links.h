/** @file links.h  Links in a checkpoint's folder, which may come from a stranger. A run would copy
 * the target of a link, whatever it is, into its checkpoints.
 */
#pragma once

#include "common/base/status.h"

/**
 * Refuses a file that is a link, unless its final target lies in its own folder or in ../../blobs
 * relative to that folder: Hugging Face's cache has its files in models--NAME/blobs, and links to
 * them in models--NAME/snapshots/REVISION.
 * @param path of a file in a folder; a missing file is left to its reader to refuse
 * @retval RP_OK, RP_INPUT (logged)
 */
rp_status rpexec_links_check(const char *path);
