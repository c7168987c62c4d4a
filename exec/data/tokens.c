#include "exec/data/tokens.h"

#include "common/base/log.h"
#include "exec/operators/operators.h"
#include "exec/operators/random.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_VOCAB 256u
#define TEXT_LOOK_BYTES 65536u /* bytes in which a file that is not a text has a NUL */
#define CONVERTER "exec/data/make_tokens.py"

/* Tokens that identify a file: blocks of a large file, all tokens of a small file. */
#define HASHED_BLOCK UINT64_C(64)
#define HASHED_BLOCKS UINT64_C(1024)

/* ---- files ----------------------------------------------------------------------------------- */

static rp_status map(const char *path, void **mapping_out, uint64_t *bytes_out)
{
    struct stat about;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* do not block on a FIFO, which
                                                                       is refused */
    if (descriptor < 0 || fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode) ||
        about.st_size == 0) {
        const char *cause = descriptor < 0 ? strerror(errno) : "empty, or no regular file";
        rp_log_error("%s: %s; valid are token files and texts", path, cause);
        if (descriptor >= 0) {
            (void)close(descriptor);
        }
        return RP_INPUT;
    }
    *bytes_out = (uint64_t)about.st_size;
    *mapping_out = rp_mem_map(descriptor, *bytes_out);
    int error = errno;
    (void)close(descriptor);
    if (*mapping_out == NULL) {
        rp_log_error("%s: mmap: %s", path, strerror(error));
        return RP_INPUT;
    }
    return RP_OK;
}

/* The file of the same name with the ending `to` in place of `from`. */
static rp_status neighbour(const char *path, const char *from, const char *to, rp_arena *arena,
                           const char **path_out)
{
    size_t length = strlen(path);
    size_t end = strlen(from);
    *path_out = NULL;
    if (length <= end || strcmp(path + length - end, from) != 0) {
        return RP_OK;
    }
    return rp_arena_print(arena, path_out, "%.*s%s", (int)(length - end), path, to);
}

/* A .bin is Megatron's if an .idx lies beside it, since it has no header itself. */
static rp_status map_both(const char *path, rp_arena *arena, rpexec_tokens *t,
                          const char **index_path_out)
{
    const char *other = NULL;
    RP_TRY(map(path, &t->mapping, &t->mapped_bytes));
    if (!rpexec_token_index_begins(t->mapping, t->mapped_bytes)) {
        RP_TRY(neighbour(path, ".bin", ".idx", arena, &other));
        *index_path_out = other;
        return other != NULL && access(other, F_OK) == 0 ? map(other, &t->index, &t->index_bytes)
                                                         : RP_OK;
    }
    t->index = t->mapping;
    t->index_bytes = t->mapped_bytes;
    t->mapping = NULL;
    *index_path_out = path;
    RP_TRY(neighbour(path, ".idx", ".bin", arena, &other));
    if (other == NULL) {
        rp_log_error("%s: Megatron's index; valid are names that end in .idx, beside .bin", path);
        return RP_INPUT;
    }
    t->path = other;
    return map(other, &t->mapping, &t->mapped_bytes);
}

static rp_status parse_text(const rpexec_tokens_wanted *wanted, rpexec_tokens *t)
{
    uint64_t look = t->mapped_bytes < TEXT_LOOK_BYTES ? t->mapped_bytes : TEXT_LOOK_BYTES;
    if (!wanted->bytes && memchr(t->mapping, '\0', look) != NULL) {
        rp_log_error("%s: no text, and no header of a token file; valid are RPTOKENS, NumPy's "
                     ".npy, llm.c's .bin, Megatron's .bin with its .idx beside it, texts, and with "
                     "{bytes} any file",
                     t->path);
        return RP_INPUT;
    }
    if (!wanted->bytes && wanted->vocab > TEXT_VOCAB) {
        rp_log_error("%s: a text, and the model has %" PRIu32
                     " tokens; valid are files of its tokens, which " CONVERTER
                     " makes of texts with its tokenizer.json, or {bytes}: each byte a token",
                     t->path, wanted->vocab);
        return RP_INPUT;
    }
    t->file = (rpexec_token_file){.values = t->mapping, .width = 1, .count = t->mapped_bytes};
    return RP_OK;
}

static rp_status parse(const char *index_path, const rpexec_tokens_wanted *wanted, rpexec_tokens *t)
{
    if (t->index != NULL && rpexec_token_index_begins(t->index, t->index_bytes)) {
        return rpexec_token_index_parse(index_path, t->index, t->index_bytes, t->mapping,
                                        t->mapped_bytes, &t->file);
    }
    RP_TRY(rpexec_token_file_parse(t->path, t->mapping, t->mapped_bytes, &t->file));
    if (t->file.format == NULL && t->index != NULL) {
        rp_log_error("%s: no index of Megatron's, which %s needs; valid are MMIDIDX and version 1",
                     index_path, t->path);
        return RP_INPUT;
    }
    return t->file.format != NULL ? RP_OK : parse_text(wanted, t);
}

/* ---- checks ---------------------------------------------------------------------------------- */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are taken as they are");

/* Checks that all tokens are below `vocab`, which a negative token is not. Compilers vectorise
 * it. */
#define FITS(type)                                                                                 \
    static bool fits_##type(const unsigned char *values, size_t count, uint64_t vocab)             \
    {                                                                                              \
        type most = 0;                                                                             \
        for (size_t i = 0; i < count; i++) {                                                       \
            type value;                                                                            \
            memcpy(&value, values + i * sizeof value, sizeof value);                               \
            most = value > most ? value : most;                                                    \
        }                                                                                          \
        return most < vocab;                                                                       \
    }
FITS(uint8_t)
FITS(uint16_t)
FITS(uint32_t)
FITS(uint64_t)

static bool fits(const rpexec_token_file *f, uint64_t first, size_t count, uint64_t vocab)
{
    const unsigned char *values = f->values + first * f->width;
    return f->width == 1   ? fits_uint8_t(values, count, vocab)
           : f->width == 2 ? fits_uint16_t(values, count, vocab)
           : f->width == 4 ? fits_uint32_t(values, count, vocab)
                           : fits_uint64_t(values, count, vocab);
}

/* The stored value of "no label"; no token of an unsigned type is so large. */
#define NO_LABEL ((uint64_t)(int64_t)RPEXEC_IGNORED)

static rp_status refuse_token(const rpexec_tokens *t, uint64_t index, uint32_t vocab)
{
    uint64_t value = rpexec_token_file_at(&t->file, index);
    bool negative = t->file.is_signed && value > INT64_MAX;
    bool label = index >= t->file.count;
    bool wrapped = !t->file.is_signed && t->file.row != 0 &&
                   value == (NO_LABEL & rpexec_token_file_most(&t->file));
    rp_log_error("%s: %s %" PRIu64 " is %s%" PRIu64 "; valid for this model are 0 to %" PRIu32
                 "%s: make the file with its own tokenizer (" CONVERTER ")",
                 t->path, label ? "label" : "token", label ? index - t->file.count : index,
                 negative ? "-" : "", negative ? -value : value, vocab - 1,
                 wrapped                        ? ", and -100 in a signed type: .astype('<i4')"
                 : label                        ? ", and -100 for none"
                 : negative && t->file.row != 0 ? ", and -100 behind a row's text (labels of "
                                                  "their own: numpy.stack([input_ids, labels]))"
                                                : "");
    return RP_INPUT;
}

/* @return the end of the row if it is filled with NO_LABEL from the token on; otherwise the
 * token */
static uint64_t behind_filling(const rpexec_token_file *f, uint64_t index)
{
    uint64_t end = f->row == 0 ? index : (index / f->row + 1) * f->row;
    for (uint64_t i = index; i < end; i++) {
        if (rpexec_token_file_at(f, i) != NO_LABEL) {
            return index;
        }
    }
    return end;
}

/* @return whether the labels are 0 and 1 alone, and not the tokens */
static bool is_mask(const rpexec_token_file *f)
{
    bool other = false;
    for (uint64_t i = 0; i < f->count; i++) {
        uint64_t label = rpexec_token_file_at(f, f->count + i);
        if (label > 1) {
            return false;
        }
        other |= rpexec_token_file_at(f, i) > 1;
    }
    return other;
}

/* Checks values in blocks that stay in a cache, so that the first bad token is then found in its
 * block. */
static rp_status check_values(rpexec_tokens *t, uint32_t vocab)
{
    const rpexec_token_file *f = &t->file;
    const uint64_t block = 16384;
    if (rpexec_token_file_most(f) < vocab && !f->is_signed) {
        t->masked = f->labelled && is_mask(f);
        return RP_OK;
    }
    (void)madvise(t->mapping, t->mapped_bytes, MADV_SEQUENTIAL);
    for (uint64_t first = 0; first < f->count;) {
        uint64_t count = f->count - first < block ? f->count - first : block;
        uint64_t end = first + count;
        first = fits(f, first, count, vocab) ? end : first;
        while (first < end) {
            bool fine = rpexec_token_file_at(f, first) < vocab;
            uint64_t next = fine ? first + 1 : behind_filling(f, first);
            if (next == first) {
                return refuse_token(t, first, vocab);
            }
            first = next;
        }
    }
    for (uint64_t i = f->count; f->labelled && i < 2 * f->count; i++) {
        uint64_t label = rpexec_token_file_at(f, i);
        if (label >= vocab && label != NO_LABEL) {
            return refuse_token(t, i, vocab);
        }
    }
    t->masked = f->labelled && is_mask(f);
    (void)madvise(t->mapping, t->mapped_bytes, MADV_NORMAL);
    return RP_OK;
}

/* Tokens of a larger vocabulary, or of a type too small for the model's vocabulary, come from
 * another tokenizer or were cut off when they were stored. */
static rp_status check_vocab(const rpexec_tokens *t, uint32_t vocab)
{
    const rpexec_token_file *f = &t->file;
    if (f->vocab > vocab) {
        rp_log_error("%s: its tokens are of a vocabulary of %" PRIu32 ", the model has %" PRIu32
                     "; valid are files made with the model's tokenizer.json and config.json "
                     "(" CONVERTER ")",
                     t->path, f->vocab, vocab);
        return RP_INPUT;
    }
    if (f->format != NULL && rpexec_token_file_most(f) < vocab - 1) {
        rp_log_error("%s: tokens of %s have %" PRIu32 " bytes, up to %" PRIu64
                     ", the model's go up to %" PRIu32 ": another tokenizer's, or cut off; valid "
                     "are files of wider tokens (" CONVERTER ")",
                     t->path, f->format, f->width, rpexec_token_file_most(f), vocab - 1);
        return RP_INPUT;
    }
    if (f->vocab != 0 && f->vocab < vocab) {
        rp_log_warning("%s: its tokens are of a vocabulary of %" PRIu32 ", the model has %" PRIu32
                       ": its table has rows to spare, or the tokens are another tokenizer's",
                       t->path, f->vocab, vocab);
    }
    return RP_OK;
}

static rp_status check_length(const rpexec_tokens *t)
{
    const rpexec_token_file *f = &t->file;
    if (f->row == 0 && f->count <= t->seq_len) {
        rp_log_error("%s: %" PRIu64 " tokens; valid for sequences of %" PRIu32
                     " are at least %" PRIu32,
                     t->path, f->count, t->seq_len, t->seq_len + 1);
        return RP_INPUT;
    }
    uint64_t row = f->row == 1 ? 2 : f->row;
    if (f->row != row || (row != 0 && row != t->seq_len && row - 1 != t->seq_len)) {
        rp_log_error("%s: its rows have %" PRIu64
                     " tokens; valid are rows of 2 and more, of %" PRIu64 " with {seq_len} %" PRIu64
                     ", or %" PRIu64 ": the last one has no label",
                     t->path, f->row, row, row - 1, row);
        return RP_INPUT;
    }
    if (f->documents == f->count && f->count > 1) {
        rp_log_error("%s: each token is a document; valid are documents of 2 tokens and more, or "
                     "{join_documents}",
                     t->path);
        return RP_INPUT;
    }
    return RP_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool is_padding(const rpexec_tokens *t, uint64_t at)
{
    uint64_t token = rpexec_token_file_at(&t->file, at);
    return token == NO_LABEL || (t->padding.is_known && token == t->padding.token);
}

/* Tokens of a row that are text; the others are padding. */
typedef struct text_place {
    uint64_t begin;
    uint64_t end;
} text_place;

static text_place text_of(const rpexec_tokens *t, uint64_t row)
{
    const uint64_t begin = row * t->file.row;
    const uint64_t end = begin + t->file.row;
    text_place p = {begin, end};
    while (p.end > p.begin && is_padding(t, p.end - 1)) {
        p.end--;
    }
    while (p.begin < p.end && is_padding(t, p.begin)) {
        p.begin++;
    }
    p.begin -= t->padding.begins && p.begin > begin ? 1 : 0;
    bool filled = p.end < end && rpexec_token_file_at(&t->file, p.end) == NO_LABEL;
    p.end += t->padding.ends && p.end < end && !filled ? 1 : 0;
    return p;
}

/* The label that a token of a row gives. */
static int32_t label_at(const rpexec_tokens *t, const text_place *text, uint64_t at)
{
    const rpexec_token_file *f = &t->file;
    uint64_t label = rpexec_token_file_at(f, f->labelled ? f->count + at : at);
    label = !t->masked ? label : label == 0 ? NO_LABEL : rpexec_token_file_at(f, at);
    bool by_place = t->padding.begins || t->padding.ends;
    bool padding = at < text->begin || at >= text->end || (!by_place && is_padding(t, at));
    return label == NO_LABEL || (padding && !f->labelled) ? RPEXEC_IGNORED : (int32_t)label;
}

static bool has_label(const rpexec_tokens *t)
{
    for (uint64_t i = 1; t->file.row == 0 && i < t->file.count; i++) {
        if (!t->padded || rpexec_token_file_at(&t->file, i) != t->padding.token) {
            return true;
        }
    }
    for (uint64_t row = 0; t->file.row != 0 && row < t->sequences; row++) {
        const text_place text = text_of(t, row);
        for (uint64_t i = row * t->file.row + 1; i < (row + 1) * t->file.row; i++) {
            if (label_at(t, &text, i) != RPEXEC_IGNORED) {
                return true;
            }
        }
    }
    return false;
}

/* Warns of rows that end in runs of a token that is not known as padding; only a sample of many
 * rows is checked. */
#define SAMPLED_ROWS UINT64_C(4096)
static void warn_of_runs(const rpexec_tokens *t)
{
    const rpexec_token_file *f = &t->file;
    const uint64_t step = t->sequences / SAMPLED_ROWS + 1;
    uint64_t token = UINT64_MAX;
    uint64_t rows = 0;
    uint64_t all = 0;
    for (uint64_t row = 0; f->row > 2 && !f->labelled && row < t->sequences; row += step) {
        uint64_t end = (row + 1) * f->row;
        uint64_t last = rpexec_token_file_at(f, end - 1);
        bool runs = last == rpexec_token_file_at(f, end - 2) && !is_padding(t, end - 1);
        token = runs && token == UINT64_MAX ? last : token;
        rows += runs && token == last ? 1 : 0;
        all++;
    }
    if (rows > 1 && 2 * rows >= all) {
        rp_log_warning("%s: %" PRIu64 " of %" PRIu64 " rows end in a run of token %" PRIu64
                       ", which is learned; if it is padding, valid are its number as pad_token_id "
                       "in the model's config.json, and -100 in its place",
                       t->path, rows, all, token);
    }
}

/* Warns of labels that are mostly the next token, as other trainers store them. */
static void warn_of_shifted(const rpexec_tokens *t)
{
    const rpexec_token_file *f = &t->file;
    const uint64_t step = t->sequences / SAMPLED_ROWS + 1;
    uint64_t here = 0;
    uint64_t next = 0;
    uint64_t all = 0;
    for (uint64_t row = 0; f->labelled && !t->masked && row < t->sequences; row += step) {
        for (uint64_t i = row * f->row; i + 1 < (row + 1) * f->row; i++) {
            uint64_t label = rpexec_token_file_at(f, f->count + i);
            here += label == rpexec_token_file_at(f, i) ? 1 : 0;
            next += label == rpexec_token_file_at(f, i + 1) ? 1 : 0;
            all += label != NO_LABEL ? 1 : 0;
        }
    }
    if (next > here && 10 * next >= 9 * all) {
        rp_log_warning("%s: %" PRIu64 " of %" PRIu64 " labels are the tokens a place further, so "
                       "that two places further are learned; valid are labels in the places of "
                       "their tokens, as transformers has them",
                       t->path, next, all);
    }
}

static rp_status check_labels(const rpexec_tokens *t)
{
    if (!has_label(t)) {
        rp_log_error("%s: no token is a label: all are padding, or labelled -100; valid are "
                     "%s of two tokens and more that are none",
                     t->path, t->file.row == 0 ? "files" : "rows");
        return RP_INPUT;
    }
    if (t->file.row != 0) {
        warn_of_runs(t);
        warn_of_shifted(t);
    }
    return RP_OK;
}

rp_status rpexec_tokens_open(const char *path, const rpexec_tokens_wanted *wanted, rp_arena *arena,
                             rpexec_tokens *tokens_out)
{
    rpexec_tokens t = {
        .path = path, .seq_len = wanted->seq_len, .seed = wanted->seed, .padding = wanted->padding};
    const char *index_path = NULL;
    rp_status status = map_both(path, arena, &t, &index_path);
    status = status == RP_OK ? parse(index_path, wanted, &t) : status;
    if (status == RP_OK && wanted->joined && t.file.prompts != NULL) {
        rp_log_error("%s: it has prompts, which are no labels; valid are files without them, or "
                     "no {join_documents}",
                     path);
        status = RP_INPUT;
    }
    t.file.documents = wanted->joined ? 0 : t.file.documents;
    t.padded = t.file.format != NULL && t.file.row == 0 && wanted->padding.is_known &&
               !wanted->padding.begins && !wanted->padding.ends;
    status = status == RP_OK ? check_vocab(&t, wanted->vocab) : status;
    status = status == RP_OK ? check_length(&t) : status;
    status = status == RP_OK ? check_values(&t, wanted->vocab) : status;
    if (status == RP_OK) {
        t.sequences = t.file.row != 0 ? t.file.count / t.file.row : (t.file.count - 1) / t.seq_len;
        status = check_labels(&t);
    }
    if (status != RP_OK) {
        rpexec_tokens_close(&t);
        return status;
    }
    *tokens_out = t;
    return RP_OK;
}

/* ---- identity -------------------------------------------------------------------------------- */

static uint64_t hash_block(const rpexec_token_file *f, uint64_t first, uint64_t hash)
{
    for (uint64_t i = first; i < f->count && i < first + HASHED_BLOCK; i++) {
        hash = rpexec_random_bits(hash, rpexec_token_file_at(f, i), 0);
    }
    return hash;
}

static uint64_t hash_of(const rpexec_token_file *f, uint64_t hash)
{
    const uint64_t most = (f->count + HASHED_BLOCK - 1) / HASHED_BLOCK;
    const uint64_t blocks = most < HASHED_BLOCKS ? most : HASHED_BLOCKS;
    const uint64_t last = f->count > HASHED_BLOCK ? f->count - HASHED_BLOCK : 0;
    for (uint64_t i = 0; i < blocks; i++) {
        bool all = most <= HASHED_BLOCKS;
        hash = hash_block(f, all ? i * HASHED_BLOCK : last / (HASHED_BLOCKS - 1) * i, hash);
    }
    return hash_block(f, last, hash);
}

rp_status rpexec_tokens_identity(const rpexec_tokens *t, rp_arena *arena, const char **text_out)
{
    const rpexec_token_file *f = &t->file;
    if (t->mapping == NULL) {
        return rp_arena_print(arena, text_out, "random tokens");
    }
    uint64_t hash = hash_of(f, f->documents);
    for (uint64_t i = 0; f->prompts != NULL && i < f->documents; i++) {
        hash = rpexec_random_bits(hash, rpexec_token_file_prompt(f, i), i);
    }
    if (f->labelled) {
        rpexec_token_file labels = *f;
        labels.values += f->count * f->width;
        hash = hash_of(&labels, hash);
    }
    return rp_arena_print(arena, text_out,
                          "%" PRIu64 " tokens, rows of %" PRIu64 ", %" PRIu64
                          " documents, hash %016" PRIx64,
                          f->count, f->row, f->documents, hash);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* @return the first document that begins after `token`; the number of documents if there is none */
static uint64_t document_behind(const rpexec_token_file *f, uint64_t token)
{
    uint64_t low = 0;
    uint64_t high = f->documents;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (rpexec_token_file_start(f, middle) > token) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* @param at the sequence's first token
 * @return number of labels that are not ignored */
static uint64_t read_stream(const rpexec_tokens *t, uint64_t at, int32_t *ids, int32_t *labels)
{
    const rpexec_token_file *f = &t->file;
    uint64_t valid = 0;
    for (uint32_t k = 0; k < t->seq_len; k++) {
        uint64_t label = rpexec_token_file_at(f, at + k + 1);
        bool padding = t->padded && label == t->padding.token;
        ids[k] = (int32_t)rpexec_token_file_at(f, at + k);
        labels[k] = padding ? RPEXEC_IGNORED : (int32_t)label;
        valid += padding ? 0 : 1;
    }
    uint64_t next = document_behind(f, at);
    for (uint64_t d = next > 0 ? next - 1 : 0; d < f->documents; d++) {
        uint64_t start = rpexec_token_file_start(f, d);
        uint64_t end = start + rpexec_token_file_prompt(f, d);
        if (start > at + t->seq_len) {
            break;
        }
        for (uint64_t i = start > at ? start : at + 1; i < end && i <= at + t->seq_len; i++) {
            valid -= labels[i - at - 1] != RPEXEC_IGNORED ? 1 : 0; /* documents may be empty */
            labels[i - at - 1] = RPEXEC_IGNORED;
        }
    }
    return valid;
}

/* @return number of labels that are not ignored */
static uint64_t read_row(const rpexec_tokens *t, uint64_t row, int32_t *ids, int32_t *labels)
{
    const rpexec_token_file *f = &t->file;
    const text_place text = text_of(t, row);
    const uint64_t end = (row + 1) * f->row;
    uint64_t valid = 0;
    for (uint32_t k = 0; k < t->seq_len; k++) {
        uint64_t at = row * f->row + k;
        uint64_t id = rpexec_token_file_at(f, at);
        ids[k] = (int32_t)(id == NO_LABEL ? t->padding.token : id); /* 0 if it is not known */
        labels[k] = at + 1 < end ? label_at(t, &text, at + 1) : RPEXEC_IGNORED;
        valid += labels[k] != RPEXEC_IGNORED ? 1 : 0;
    }
    return valid;
}

uint64_t rpexec_tokens_read(const rpexec_tokens *t, uint64_t place, uint32_t count, int32_t *ids,
                            int32_t *labels)
{
    uint64_t valid = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t epoch = (place + i) / t->sequences;
        uint64_t sequence = rpexec_random_permute(rpexec_random_bits(t->seed, epoch, 0),
                                                  t->sequences, (place + i) % t->sequences);
        uint64_t first = (uint64_t)i * t->seq_len;
        valid += t->file.row != 0
                     ? read_row(t, sequence, ids + first, labels + first)
                     : read_stream(t, sequence * t->seq_len, ids + first, labels + first);
    }
    return valid;
}

void rpexec_tokens_close(rpexec_tokens *t)
{
    rp_mem_unmap(t->mapping, t->mapped_bytes);
    rp_mem_unmap(t->index, t->index_bytes);
    *t = (rpexec_tokens){0};
}
