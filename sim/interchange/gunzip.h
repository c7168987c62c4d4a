/** @file gunzip.h  Files that are compressed with gzip, as profilers write them. */
#pragma once

#include "common/base/text.h"

/** @return true if the bytes begin like a gzip file. */
bool rpsim_is_gzip(const char *bytes, size_t length);

/**
 * Expands gzip data, which may have several members.
 * @param name name of the file, for messages
 * @param text_out rp_text_fini, also after a failure
 * @retval RP_OK, RP_INPUT (damaged, cut, or expanding to more than 4 GiB; logged), RP_NO_MEMORY
 */
rp_status rpsim_gunzip(const char *name, const char *bytes, size_t length, rp_text *text_out);
