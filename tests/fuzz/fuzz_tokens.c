/* The readers of token files. If the first byte is even, the rest is a file. If it is odd, the
 * second byte is the length of Megatron's .bin, which follows, and then comes its .idx. */
#include "exec/data/tokens.h"
#include "exec/operators/operators.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#define SEQ_LEN 3u

/* Properties of every file: all tokens can be read, and the beginnings of documents ascend. */
static void check(const rpexec_token_file *f, const uint8_t *data, size_t size)
{
    uint64_t most = rpexec_token_file_most(f);
    fuzz_require(f->values >= data && f->values <= data + size, "tokens begin in the file");
    fuzz_require(f->width > 0 && f->count > 0, "there are tokens");
    uint64_t arrays = f->labelled ? 2 : 1;
    fuzz_require(f->count <= (size_t)(data + size - f->values) / f->width / arrays,
                 "tokens and labels end in the file");
    for (uint64_t i = 0; i < arrays * f->count; i++) {
        uint64_t token = rpexec_token_file_at(f, i);
        fuzz_require(token <= most || f->is_signed, "a token is one of its type");
    }
    uint64_t before = 0;
    for (uint64_t i = 0; i < f->documents; i++) {
        uint64_t start = rpexec_token_file_start(f, i);
        fuzz_require(start >= before && start <= f->count, "documents ascend");
        fuzz_require(i > 0 || start == 0, "the first document begins with the first token");
        before = start;
    }
}

/* Computes labels by a look at all documents for each token. */
static void check_labels(const rpexec_token_file *f)
{
    rpexec_tokens t = {.file = *f, .seq_len = SEQ_LEN};
    t.sequences = f->row == 0 ? (f->count - 1) / SEQ_LEN : f->count / f->row;
    bool fits = f->row == 0 || f->row == SEQ_LEN || f->row == SEQ_LEN + 1;
    for (uint64_t place = 0; fits && place < t.sequences && place < 50; place++) {
        int32_t ids[SEQ_LEN];
        int32_t labels[SEQ_LEN];
        uint64_t valid = rpexec_tokens_read(&t, place, 1, ids, labels);
        uint64_t kept = 0;
        for (uint32_t k = 0; k < SEQ_LEN; k++) {
            kept += labels[k] != RPEXEC_IGNORED ? 1 : 0;
        }
        fuzz_require(kept <= valid && valid <= SEQ_LEN, "labels are counted");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    rpexec_token_file file = {0};
    rp_status status = RP_OK;
    bool indexed = size > 0 && data[0] % 2 == 1;
    size_t before = indexed ? 2 : 1;
    if (size < before || (indexed && size - before < data[1])) {
        return fuzz_end();
    }
    /* Copies of exactly this length, so that a sanitizer knows their ends. */
    size_t length = indexed ? data[1] : size - before;
    uint8_t *values = malloc(length == 0 ? 1 : length);
    uint8_t *index = malloc(size - before - length == 0 ? 1 : size - before - length);
    fuzz_require(values != NULL && index != NULL, "memory");
    for (size_t i = 0; i < size - before; i++) {
        *(i < length ? values + i : index + i - length) = data[before + i];
    }
    if (indexed) {
        status = rpexec_token_index_parse(FUZZ_FILE, index, size - before - length, values, length,
                                          &file);
    } else {
        status = rpexec_token_file_parse(FUZZ_FILE, values, length, &file);
    }
    if (status != RP_OK) {
        fuzz_require_refusal(status, "");
    } else if (file.format != NULL) {
        check(&file, values, length);
        check_labels(&file);
    }
    free(values);
    free(index);
    return fuzz_end();
}
