/** @file safetensors.h  Reading and writing safetensors files (executor.md section 4.4).
 *
 * A file has 8 bytes with the little-endian number N, N bytes of JSON, then the tensors' bytes
 * without holes. The reader trusts nothing: sizes are multiplied with checks, keys may not repeat,
 * tensors must cover the data exactly, and alignment is never assumed. Types other than U8 and
 * those of dtype.h are refused by name. Values are converted to fp32.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "exec/operators/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPEXEC_SAFETENSORS_MAX_RANK 8u
/** The reference reader's limit. */
#define RPEXEC_SAFETENSORS_MAX_HEADER UINT64_C(100000000)

typedef struct rpexec_stored {
    const char *name;
    bool is_bytes; /**< U8: bytes into which values are packed */
    rp_dtype dtype;
    uint32_t rank;
    uint64_t shape[RPEXEC_SAFETENSORS_MAX_RANK];
    uint64_t elements;
    uint64_t begin; /**< first byte, counted from the beginning of the file */
    uint64_t end;
} rpexec_stored;

typedef struct rpexec_metadata {
    const char *key;
    const char *value;
} rpexec_metadata;

/** Owned by the arena that it was read into, except for `descriptor`. */
typedef struct rpexec_safetensors {
    const char *path;
    int descriptor; /**< -1 if only a header was parsed */
    uint32_t count;
    rpexec_stored *tensors; /**< by their place in the file */
    const rpexec_stored **by_name;
    uint32_t metadata_count;
    rpexec_metadata *metadata;
} rpexec_safetensors;

/**
 * Checks a header.
 * @param path for messages; borrowed
 * @param bytes the first `length` bytes of the file, at least 8 + N of them if N is valid
 * @param file_bytes size of the whole file
 * @retval RP_OK, RP_INPUT ("path: cause; valid values are …"), RP_NO_MEMORY
 */
rp_status rpexec_safetensors_parse(const char *path, const unsigned char *bytes, size_t length,
                                   uint64_t file_bytes, rp_arena *arena,
                                   rpexec_safetensors *file_out);

/** Opens a regular file, or a link as links.h allows it, and checks its header. Close it with
 * rpexec_safetensors_close.
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY */
rp_status rpexec_safetensors_open(const char *path, rp_arena *arena, rpexec_safetensors *file_out);

/** Closes a file; does nothing for a file that was only parsed. */
void rpexec_safetensors_close(rpexec_safetensors *file);

/** @return the tensor of that name, by binary search, or NULL (nothing is logged). */
const rpexec_stored *rpexec_safetensors_find(const rpexec_safetensors *file, const char *name);

/** @return the name of a type in files: "F32", "F16", "BF16". */
const char *rpexec_safetensors_dtype(rp_dtype dtype);

/** @return the metadata of that key, or NULL. */
const char *rpexec_safetensors_metadata(const rpexec_safetensors *file, const char *key);

/**
 * Reads a tensor's values as fp32.
 * @param to [elements]
 * @retval RP_OK, RP_INPUT (logged; a tensor of bytes), RP_IO (logged; also if the file has become
 *         shorter)
 */
rp_status rpexec_safetensors_read(const rpexec_safetensors *file, const rpexec_stored *tensor,
                                  float *to);

/** Reads bytes [first, first + count) of a tensor of type U8. @retval RP_OK, RP_IO (logged) */
rp_status rpexec_safetensors_read_bytes(const rpexec_safetensors *file, const rpexec_stored *tensor,
                                        uint64_t first, uint64_t count, uint8_t *to);

/** A tensor to be written. */
typedef struct rpexec_writable {
    const char *name; /**< plain text: no quotes, backslashes or control characters */
    rp_dtype dtype;
    uint32_t rank;
    uint64_t shape[RPEXEC_SAFETENSORS_MAX_RANK];
    const void *values;
    uint32_t part_count; /**< parts of a joined tensor (weights.h), which has no `values`; otherwise
                              0 */
    const struct rpexec_weight_part *parts; /**< the parts; of a tensor that is itself a part, that
                                                 part */
} rpexec_writable;

/** @return elements of a tensor to be written. */
uint64_t rpexec_writable_elements(const rpexec_writable *tensor);

/**
 * Writes a file, atomically; the tensors, all with their values, lie in the order given.
 * @retval RP_OK, RP_INPUT (cannot be opened), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_safetensors_write(const char *path, const rpexec_writable *tensors, uint32_t count,
                                   const rpexec_metadata *metadata, uint32_t metadata_count);
