/** @file links.h  Links in a checkpoint's folder, which may be a stranger's. What a link leads to
 * would be copied into the checkpoints of a run, whatever it is.
 */
#pragma once

#include "common/base/status.h"

/**
 * Refuses a file that is a link, unless it leads, by whatever ways, to something in its own folder,
 * or in ../../blobs seen from there: Hugging Face's cache has its files in models--NAME/blobs, and
 * links to them in models--NAME/snapshots/REVISION.
 * @param path of a file in a folder; one that is not there is its reader's to refuse
 * @retval RP_OK, RP_INPUT (logged)
 */
rp_status rpexec_links_check(const char *path);
