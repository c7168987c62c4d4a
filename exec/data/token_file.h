/** @file token_file.h  Reads token files from their bytes: the tokens, and the beginnings of
 * documents.
 *
 * Files are recognised by their first bytes: our own (RPTOKENS), NumPy's arrays (.npy), llm.c's and
 * Megatron's index (.idx), whose tokens are in a second file. Each is little-endian; formats.md
 * 10 describes our own. Nothing is copied or allocated: files may be larger than memory.
 */
#pragma once

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rpexec_token_file {
    const char *format;          /**< name of the format; NULL: no header was recognised */
    const unsigned char *values; /**< not aligned */
    uint32_t width;              /**< bytes per token: 1, 2, 4 or 8 */
    bool is_signed;
    uint64_t count;
    uint32_t vocab;     /**< size of the tokens' vocabulary; 0: the file does not tell */
    uint64_t row;       /**< tokens of each row of a table of sequences; 0: a single stream */
    bool labelled;      /**< a table whose tokens are followed by their labels in the same form;
                             RPEXEC_IGNORED is no label */
    uint64_t documents; /**< number of documents; 0: the file does not tell their beginnings */
    const unsigned char *starts;   /**< first token of each document, or its first sequence */
    const unsigned char *prompts;  /**< tokens at each document's beginning that are no labels;
                                        NULL: only the first is none */
    const unsigned char *pointers; /**< first byte of each sequence; NULL: there are no pointers */
    uint64_t sequences;            /**< number of pointers */
} rpexec_token_file;

/**
 * Reads the header at the beginning of a file, and checks everything except the tokens' values.
 * @param path for messages
 * @param file_out format NULL: the header belongs to no known format
 * @retval RP_OK, RP_INPUT (damaged, or a form that is not read; logged with the remedy)
 */
rp_status rpexec_token_file_parse(const char *path, const unsigned char *bytes, uint64_t size,
                                  rpexec_token_file *file_out);

/** @return whether the bytes begin like Megatron's index. */
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

/** @return the number of a document's first token; never less than that of the document before
 *         it. */
uint64_t rpexec_token_file_start(const rpexec_token_file *file, uint64_t document);

/** @return the number of a document's first tokens that are no labels, at least 1. */
uint64_t rpexec_token_file_prompt(const rpexec_token_file *file, uint64_t document);

/** @return a token as it is stored; a negative token is beyond every vocabulary. */
uint64_t rpexec_token_file_at(const rpexec_token_file *file, uint64_t index);

/** @return the largest value that the tokens' type holds. */
uint64_t rpexec_token_file_most(const rpexec_token_file *file);
