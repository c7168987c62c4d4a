/** @file tokens.h  Training data: token files and texts, cut into shuffled sequences.
 *
 * Token files are recognised by their first bytes (token_file.h), Megatron's .bin by the .idx
 * beside it. Any other file is a text: bytes, each a token from 0 to 255. Files are memory-mapped,
 * read once from end to end when they are opened, and must not change while they are used.
 *
 * Of a stream of tokens, sequence i is tokens [i S, i S + S) with those one further as labels, so
 * that every token but the first is a label once per epoch. Documents lie in it one behind the
 * other. Where the file says where they begin, the first token of a document is no label
 * (RPEXEC_IGNORED): nothing before it tells it. Attention does look into the document before, and
 * positions go on. A table's rows are sequences of their own: S + 1 tokens, or S, whose last one
 * has no label.
 *
 * Rows may be padded, at either end, with a token that the model knows as that, or behind their
 * text with RPEXEC_IGNORED. Padding is no label, and neither is the same token within the text, as
 * with transformers' DataCollatorForLanguageModeling. But where texts begin or end with that token,
 * too, place decides: of a run of it at that end of a row the innermost one is text, and so are all
 * within the text. A table that has labels (token_file.h) says itself which tokens are.
 * Attention is not masked: tokens see padding that is before them, and positions count it.
 *
 * Each epoch is a permutation of all sequences by the seed; place n of the stream is sequence n mod
 * count of epoch n / count. The place is all there is to resume.
 */
#pragma once

#include "common/base/mem.h"
#include "exec/data/token_file.h"

/** The token that rows are padded with. */
typedef struct rpexec_padding {
    bool is_known;
    uint32_t token;
    bool begins; /**< texts begin with it as well */
    bool ends;   /**< and end */
} rpexec_padding;

/** Conditions that a run sets to its data. */
typedef struct rpexec_tokens_wanted {
    uint32_t seq_len;
    uint32_t vocab; /**< tokens must be below it */
    uint64_t seed;  /**< of the order */
    bool bytes;     /**< texts are taken for models with more than 256 tokens, too */
    bool joined;    /**< first tokens of documents are labels, too */
    rpexec_padding padding;
} rpexec_tokens_wanted;

typedef struct rpexec_tokens {
    const char *path; /**< of the tokens, for messages */
    void *mapping;    /**< NULL: not open */
    uint64_t mapped_bytes;
    void *index; /**< Megatron's; NULL: there is none */
    uint64_t index_bytes;
    rpexec_token_file file;
    rpexec_padding padding;
    uint32_t seq_len;
    uint64_t sequences; /**< of an epoch, at least 1 */
    uint64_t seed;
} rpexec_tokens;

/**
 * Opens a file and checks every token: a pass over all of it.
 * @param path borrowed; of Megatron's two files either
 * @param arena for the other one's name
 * @param tokens_out given back with rpexec_tokens_close
 * @retval RP_OK, RP_INPUT (not readable, damaged, too short, of another vocabulary, a token out of
 *         range, no label; logged with its place and what to do), RP_NO_MEMORY
 */
rp_status rpexec_tokens_open(const char *path, const rpexec_tokens_wanted *wanted, rp_arena *arena,
                             rpexec_tokens *tokens_out);

/**
 * What a place in the stream depends on beside seed and sequences' length, in words: the number of
 * tokens, rows, documents, and a hash of tokens. Of files of more than 65536 tokens it is of 1024
 * blocks of 64, the first and the last among them. The same tokens in another format are equal.
 * @param tokens not open: none, whose tokens are random
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_tokens_identity(const rpexec_tokens *tokens, rp_arena *arena,
                                 const char **text_out);

/**
 * Copies `count` sequences from `place` of the stream on.
 * @param ids [count][seq_len], @param labels likewise
 * @return labels that are not ignored
 */
uint64_t rpexec_tokens_read(const rpexec_tokens *tokens, uint64_t place, uint32_t count,
                            int32_t *ids, int32_t *labels);

/** Harmless on zeroes. */
void rpexec_tokens_close(rpexec_tokens *tokens);
