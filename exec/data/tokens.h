/** @file tokens.h  Training data: token files and texts, cut into shuffled sequences.
 *
 * Token files are recognised by their first bytes (token_file.h), Megatron's .bin by the .idx
 * beside it. Any other file is a text, whose bytes are tokens from 0 to 255. Files are
 * memory-mapped, read once from end to end when they are opened, and must not change while they are
 * used.
 *
 * In a stream of tokens, sequence i is tokens [i S, i S + S), and the labels are the tokens [i S +
 * 1, i S + S + 1), so that every token but the first is a label once per epoch. Documents lie in
 * the stream one after the other. If the file gives their beginnings, the first token of a document
 * is no label (RPEXEC_IGNORED), since nothing before it predicts it. Attention does see the
 * document before, and positions continue. The model's padding token is no label, either, unless
 * texts may begin or end with it. Each row of a table is a sequence: S + 1 tokens, or S,
 * whose last token has no label.
 *
 * Rows may be padded at either end with the model's padding token, or after their text with
 * RPEXEC_IGNORED. Padding is no label, and neither is the same token within the text, as with
 * transformers' DataCollatorForLanguageModeling. But if texts may begin or end with that token,
 * too, its place decides: the innermost token of a run at that end of a row is text, and so are all
 * such tokens within the text. A table that has labels (token_file.h) needs no such rules; labels
 * that are 0 and 1 alone, unlike the tokens, are a mask.
 * Attention is not masked: tokens see padding before them, and positions count it.
 *
 * Each epoch is a permutation of all sequences by the seed; place n of the stream is sequence n mod
 * count of epoch n / count. The place is the whole state of the data, so a run resumes from it.
 */
#pragma once

#include "common/base/mem.h"
#include "exec/data/token_file.h"

/** The token with which rows are padded. */
typedef struct rpexec_padding {
    bool is_known;
    uint32_t token;
    bool begins; /**< texts may begin with it, too */
    bool ends;   /**< texts may end with it, too */
} rpexec_padding;

/** Settings of a run for its data. */
typedef struct rpexec_tokens_wanted {
    uint32_t seq_len;
    uint32_t vocab; /**< tokens must be below it */
    uint64_t seed;  /**< seed of the order */
    bool bytes;     /**< texts are accepted for models with more than 256 tokens, too */
    bool joined;    /**< first tokens of documents are labels, too */
    rpexec_padding padding;
} rpexec_tokens_wanted;

typedef struct rpexec_tokens {
    const char *path; /**< file of the tokens, for messages */
    void *mapping;    /**< NULL: not open */
    uint64_t mapped_bytes;
    void *index; /**< mapping of Megatron's .idx; NULL: there is none */
    uint64_t index_bytes;
    rpexec_token_file file;
    rpexec_padding padding;
    bool padded; /**< a stream whose padding is no label; texts have none */
    bool masked; /**< the table's labels are a mask: 0 for no label, 1 for the token itself */
    uint32_t seq_len;
    uint64_t sequences; /**< sequences of an epoch, at least 1 */
    uint64_t seed;
} rpexec_tokens;

/**
 * Opens a file and checks every token, in a pass over the whole file.
 * @param path borrowed; either of Megatron's two files
 * @param arena holds the name of the other file
 * @param tokens_out release with rpexec_tokens_close
 * @retval RP_OK, RP_INPUT (not readable, damaged, too short, of another vocabulary, a token out of
 *         range, no label; logged with the place and the remedy), RP_NO_MEMORY
 */
rp_status rpexec_tokens_open(const char *path, const rpexec_tokens_wanted *wanted, rp_arena *arena,
                             rpexec_tokens *tokens_out);

/**
 * Prints the identity of the data, on which a place in the stream depends beside seed and
 * sequences' length: the numbers of tokens, rows and documents, and a hash of tokens. For files of
 * more than 65536 tokens the hash covers 1024 blocks of 64, including the first and the last. The
 * same tokens in another format have the same identity.
 * @param tokens if not open, the data are random tokens
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_tokens_identity(const rpexec_tokens *tokens, rp_arena *arena,
                                 const char **text_out);

/**
 * Copies `count` sequences of the stream from `place` on.
 * @param ids [count][seq_len], @param labels [count][seq_len]
 * @return number of labels that are not ignored
 */
uint64_t rpexec_tokens_read(const rpexec_tokens *tokens, uint64_t place, uint32_t count,
                            int32_t *ids, int32_t *labels);

/** Closes the files; does nothing for zeroes. */
void rpexec_tokens_close(rpexec_tokens *tokens);
