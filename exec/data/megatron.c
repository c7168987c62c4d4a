/* Megatron's indexed datasets, .idx: 9 bytes "MMIDIDX", uint64 version 1, a byte for the type,
 * uint64 sequences, uint64 document indices; then int32 lengths and int64 byte offsets of all
 * sequences, and the document indices: int64, the first sequence of each document, followed by the
 * number of sequences. The .bin has only the tokens. megatron.core.datasets.indexed_dataset writes
 * sequences one after the other, so that the .bin is a single stream.
 */
#include "common/base/log.h"
#include "exec/data/token_file_internal.h"

#include <inttypes.h>
#include <string.h>

#define MAGIC "MMIDIDX\0"
#define MAGIC_BYTES sizeof MAGIC /* 9, with a second NUL */
#define HEADER_BYTES 34u
#define INTEGERS 9

/* Types by their codes; floating-point types (6 and 7) have width 0 here. */
static const struct {
    uint32_t width;
    bool is_signed;
} types[INTEGERS] = {{0, false}, {1, false}, {1, true},  {2, true}, {4, true},
                     {8, true},  {0, false}, {0, false}, {2, false}};

bool rpexec_token_index_begins(const unsigned char *bytes, uint64_t size)
{
    return size >= MAGIC_BYTES && memcmp(bytes, MAGIC, MAGIC_BYTES) == 0;
}

/* Each sequence must begin at the end of the sequence before it, and the last sequence must end
 * with the file. */
static rp_status check_sequences(const char *path, const unsigned char *lengths,
                                 const rpexec_token_file *f)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < f->sequences; i++) {
        uint64_t length = rpexec_little_endian(lengths + 4 * i, 4);
        uint64_t pointer = rpexec_little_endian(f->pointers + 8 * i, 8);
        if (length > INT32_MAX || pointer != at * f->width || length > f->count - at) {
            rp_log_error("%s: sequence %" PRIu64 " is said to have %" PRIu64
                         " tokens from byte %" PRIu64 " on; valid are sequences one behind the "
                         "other, here from byte %" PRIu64 " on, up to byte %" PRIu64,
                         path, i, length, pointer, at * f->width, f->count * f->width);
            return RP_INPUT;
        }
        at += length;
    }
    if (at != f->count) {
        rp_log_error("%s: its sequences have %" PRIu64 " tokens, the .bin beside it has %" PRIu64
                     "; they are not of one dataset, or one is cut off",
                     path, at, f->count);
        return RP_INPUT;
    }
    return RP_OK;
}

/* Checks the f->documents + 1 document indices. */
static rp_status check_documents(const char *path, const rpexec_token_file *f)
{
    uint64_t before = 0;
    for (uint64_t i = 0; i <= f->documents; i++) {
        uint64_t first = rpexec_little_endian(f->starts + 8 * i, 8);
        bool ends = i == f->documents;
        if ((i == 0 && first != 0) || first < before || first > f->sequences ||
            (ends && first != f->sequences)) {
            rp_log_error("%s: document index %" PRIu64 " is %" PRIu64
                         "; valid are 0 for the first one, ascending ones, and %" PRIu64
                         " for the last one",
                         path, i, first, f->sequences);
            return RP_INPUT;
        }
        before = first;
    }
    return RP_OK;
}

static rp_status refuse(const char *path, const char *what)
{
    rp_log_error("%s: Megatron's index %s; valid are MMIDIDX, version 1, types of integers and "
                 "what the numbers of sequences and documents take",
                 path, what);
    return RP_INPUT;
}

rp_status rpexec_token_index_parse(const char *path, const unsigned char *index,
                                   uint64_t index_size, const unsigned char *values, uint64_t size,
                                   rpexec_token_file *file_out)
{
    rpexec_token_file f = {.format = "Megatron", .values = values};
    if (!rpexec_token_index_begins(index, index_size) || index_size < HEADER_BYTES) {
        return refuse(path, "is cut off");
    }
    uint32_t type = index[17];
    f.sequences = rpexec_little_endian(index + 18, 8);
    uint64_t indices = rpexec_little_endian(index + 26, 8);
    if (rpexec_little_endian(index + 9, 8) != 1) {
        return refuse(path, "has another version");
    }
    if (type >= INTEGERS || types[type].width == 0) {
        return refuse(path, "says that the tokens are no integers");
    }
    uint64_t behind = index_size - HEADER_BYTES;
    if (f.sequences == 0 || f.sequences > behind / 12 || indices < 2 || indices > behind / 8 ||
        (behind != 12 * f.sequences + 8 * indices && behind != 13 * f.sequences + 8 * indices)) {
        return refuse(path, "is not as long as its numbers of sequences and documents say");
    }
    if (behind != 12 * f.sequences + 8 * indices) {
        return refuse(path, "is of a multimodal dataset, which is not read");
    }
    f.width = types[type].width;
    f.is_signed = types[type].is_signed;
    f.count = size / f.width;
    f.documents = indices - 1;
    f.pointers = index + HEADER_BYTES + 4 * f.sequences;
    f.starts = f.pointers + 8 * f.sequences;
    if (size % f.width != 0 || f.count == 0) {
        rp_log_error("%s: the .bin beside it has %" PRIu64 " bytes; valid are tokens of %" PRIu32
                     " bytes, at least one",
                     path, size, f.width);
        return RP_INPUT;
    }
    RP_TRY(check_sequences(path, index + HEADER_BYTES, &f));
    RP_TRY(check_documents(path, &f));
    *file_out = f;
    return RP_OK;
}
