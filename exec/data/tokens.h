/** @file tokens.h  Training data: token files and plain text, cut into shuffled sequences.
 *
 * A token file (little-endian): 8 bytes "RPTOKENS", uint32 version 1, uint32 bytes per token (2 or
 * 4), uint32 vocabulary, uint32 0, uint64 count, then the tokens. Any other file is read as bytes,
 * each a token from 0 to 255. Files are memory-mapped and must not change while they are used.
 *
 * Sequence i is tokens [i S, i S + S) with those one further as labels, so that every token but the
 * first is a label once per epoch. Each epoch is a permutation of all sequences by the seed; place
 * n of the stream is sequence n mod count of epoch n / count. The place is all there is to resume.
 */
#pragma once

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rpexec_tokens {
    const char *path; /**< borrowed */
    void *mapping;
    uint64_t mapped_bytes;
    const unsigned char *values; /**< not aligned */
    uint32_t width;              /**< bytes per token: 1, 2 or 4 */
    uint64_t count;
    uint32_t seq_len;
    uint64_t sequences; /**< of an epoch, at least 1 */
    uint64_t seed;
} rpexec_tokens;

/**
 * Opens a file and checks every token.
 * @param vocab tokens must be below it
 * @retval RP_OK, RP_INPUT (not readable, damaged, too short, a token out of range; logged with its
 *         place)
 */
rp_status rpexec_tokens_open(const char *path, uint32_t seq_len, uint32_t vocab, uint64_t seed,
                             rpexec_tokens *tokens_out);

/**
 * Copies `count` sequences from `place` of the stream on.
 * @param ids [count][seq_len], @param labels likewise
 */
void rpexec_tokens_read(const rpexec_tokens *tokens, uint64_t place, uint32_t count, int32_t *ids,
                        int32_t *labels);

/** Harmless on zeroes. */
void rpexec_tokens_close(rpexec_tokens *tokens);
