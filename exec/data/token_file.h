/** @file token_file.h  What the bytes of a token file say: its tokens, and where documents begin.
 *
 * Files are recognised by their first bytes: our own (RPTOKENS), NumPy's arrays (.npy), llm.c's and
 * Megatron's index (.idx), whose tokens are in a second file. Each is little-endian; formats.md
 * 10 has our own. Nothing is copied or allocated: files may be larger than memory.
 */
#pragma once

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rpexec_token_file {
    const char *format;          /**< whose it is; NULL: no header was recognised */
    const unsigned char *values; /**< not aligned */
    uint32_t width;              /**< bytes per token: 1, 2, 4 or 8 */
    bool is_signed;
    uint64_t count;
    uint32_t vocab;     /**< that the tokens are of; 0: the file does not say */
    uint64_t row;       /**< tokens of each row of a table of sequences; 0: one stream */
    bool labelled;      /**< of a table: behind its tokens, as theirs are, lie their labels, which
                             RPEXEC_IGNORED says there are none for */
    uint64_t documents; /**< 0: the file does not say where they begin */
    const unsigned char *starts;   /**< of each document: its first token, or its first sequence */
    const unsigned char *pointers; /**< of each sequence: its first byte; NULL: there are none */
    uint64_t sequences;            /**< of the pointers */
} rpexec_token_file;

/**
 * Reads the header in front of a file's bytes, and checks everything but the tokens' values.
 * @param path for messages
 * @param file_out format NULL: the header is of no known file
 * @retval RP_OK, RP_INPUT (damaged, or a form that is not read; logged with the remedy)
 */
rp_status rpexec_token_file_parse(const char *path, const unsigned char *bytes, uint64_t size,
                                  rpexec_token_file *file_out);

/** @return whether the bytes begin as Megatron's index does. */
bool rpexec_token_index_begins(const unsigned char *bytes, uint64_t size);

/**
 * Reads Megatron's index, and checks it against the file with the tokens.
 * @param path, @param index, @param index_size of the .idx
 * @param values, @param size of the .bin
 * @retval RP_OK, RP_INPUT (logged)
 */
rp_status rpexec_token_index_parse(const char *path, const unsigned char *index,
                                   uint64_t index_size, const unsigned char *values, uint64_t size,
                                   rpexec_token_file *file_out);

/** @return the token that a document begins with; never less than that of the one before it. */
uint64_t rpexec_token_file_start(const rpexec_token_file *file, uint64_t document);

/** @return a token as it is stored; a negative one is beyond every vocabulary. */
uint64_t rpexec_token_file_at(const rpexec_token_file *file, uint64_t index);

/** @return the largest value that the tokens' type holds. */
uint64_t rpexec_token_file_most(const rpexec_token_file *file);
