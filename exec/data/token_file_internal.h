/** @file token_file_internal.h  Shared by the readers of token files' headers, and used only in
 * exec/data.
 */
#pragma once

#include "exec/data/token_file.h"

#define RPEXEC_NPY_MAGIC "\x93NUMPY"

/** @return an integer of `width` bytes. */
static inline uint64_t rpexec_little_endian(const unsigned char *bytes, uint32_t width)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < width; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

/** As rpexec_token_file_parse, for a file that begins with RPEXEC_NPY_MAGIC. */
rp_status rpexec_npy_parse(const char *path, const unsigned char *bytes, uint64_t size,
                           rpexec_token_file *file_out);
