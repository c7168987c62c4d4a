/* Token files of NumPy, llm.c and Megatron, written by those programs (tests/golden/tokens, whose
 * make.py has the formula of their tokens), and our own format; labels at the borders of documents
 * against a walk over all tokens; damaged files. */
#include "exec/data/tokens.h"
#include "exec/operators/operators.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN RP_TEST_ROOT "/golden/tokens/"
#define COUNT 60u

static char folder[] = "/tmp/rp-tokens-XXXXXX";

static void begin(void)
{
    rp_test_log_begin();
    cr_assert(mkdtemp(folder) != NULL);
}

static void end(void)
{
    const char *command = NULL;
    (void)rp_arena_print(rp_test_arena, &command, "rm -rf %s", folder);
    int status = system(command); // NOLINT(cert-env33-c)
    rp_test_none_left(status != 0, "folders");
    rp_test_log_end();
}

TestSuite(exec_data_tokens, .init = begin, .fini = end, .timeout = 60);

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct content {
    unsigned char bytes[4096];
    size_t size;
} content;

static content load(const char *name)
{
    content c = {.size = 0};
    const char *path = NULL;
    (void)rp_arena_print(rp_test_arena, &path, GOLDEN "%s", name);
    FILE *stream = fopen(path, "rb");
    cr_assert(stream != NULL, "%s", path);
    c.size = fread(c.bytes, 1, sizeof c.bytes, stream);
    fclose(stream);
    return c;
}

static const char *store(const char *name, const void *bytes, size_t size)
{
    const char *path = NULL;
    (void)rp_arena_print(rp_test_arena, &path, "%s/%s", folder, name);
    FILE *stream = fopen(path, "wb");
    cr_assert(stream != NULL && fwrite(bytes, 1, size, stream) == size);
    fclose(stream);
    return path;
}

static void put(content *c, uint64_t value, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++) {
        c->bytes[c->size++] = (unsigned char)(value >> (8 * i));
    }
}

/* Changes a field at a place within the file. */
static void set(content *c, size_t at, uint64_t value, uint32_t width)
{
    content field = {.size = at};
    put(&field, value, width);
    memcpy(c->bytes + at, field.bytes + at, width);
}

/* A file of our own format, whose token i is `first` + i. @param documents 0: version 1 */
static content own(uint32_t width, uint32_t vocab, uint32_t first, uint32_t count,
                   const uint32_t *starts, uint32_t documents)
{
    content c = {.size = 8};
    memcpy(c.bytes, "RPTOKENS", 8);
    put(&c, documents > 0 ? 2 : 1, 4);
    put(&c, width, 4);
    put(&c, vocab, 4);
    put(&c, 0, 4);
    put(&c, count, 8);
    if (documents > 0) {
        put(&c, documents, 8);
    }
    for (uint32_t i = 0; i < count; i++) {
        put(&c, first + i, width);
    }
    for (uint32_t i = 0; i < documents; i++) {
        put(&c, starts[i], 8);
    }
    return c;
}

static rp_status open_as(const char *path, uint32_t seq_len, uint32_t vocab, rpexec_tokens *t)
{
    const rpexec_tokens_wanted wanted = {.seq_len = seq_len, .vocab = vocab, .seed = 5};
    rp_test_log_again();
    return rpexec_tokens_open(path, &wanted, rp_test_arena, t);
}

static void expect_refused(const char *path, uint32_t seq_len, uint32_t vocab, const char *cause)
{
    rpexec_tokens t = {0};
    rp_status status = open_as(path, seq_len, vocab, &t);
    cr_expect(eq(int, status, RP_INPUT), "%s is taken: %s", path, cause);
    cr_expect(strstr(rp_test_messages, cause) != NULL, "no '%s': %s", cause, rp_test_messages);
    cr_expect(strstr(rp_test_messages, folder) != NULL || strstr(rp_test_messages, GOLDEN) != NULL);
    rpexec_tokens_close(&t);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int32_t golden_token(uint64_t i)
{
    return (int32_t)((7 * i * i + 3 * i) % 89);
}

/* Expects each sequence of an epoch exactly once. The tokens of a sequence tell its place in the
 * file, since each token is found once in the files below 60, and consecutive tokens are in the
 * others. @param token gives the token of a place in the file; NULL: the token is the place itself
 * @param border [i] true: token i is no label, by a walk over all tokens */
static void expect_epoch(const rpexec_tokens *t, uint64_t count, uint64_t stride,
                         int32_t (*token)(uint64_t), const bool *border)
{
    uint32_t length = t->seq_len;
    bool seen[512] = {false};
    int32_t *ids = NULL;
    int32_t *labels = NULL;
    cr_assert(rp_arena_alloc(rp_test_arena, length, sizeof *ids, &ids) == RP_OK);
    cr_assert(rp_arena_alloc(rp_test_arena, length, sizeof *labels, &labels) == RP_OK);
    for (uint64_t place = 0; place < t->sequences; place++) {
        uint64_t valid = rpexec_tokens_read(t, place, 1, ids, labels);
        uint64_t at = 0;
        uint64_t expected_valid = 0;
        bool found = false;
        for (uint64_t s = 0; s < t->sequences && !found; s++) {
            found = true;
            for (uint32_t k = 0; k < length; k++) {
                uint64_t i = s * stride + k;
                found = found && ids[k] == (token != NULL ? token(i) : (int32_t)i);
            }
            at = s * stride;
        }
        cr_assert(found && !seen[at], "place %u", (unsigned)place);
        seen[at] = true;
        for (uint32_t k = 0; k < length; k++) {
            uint64_t i = at + k + 1;
            bool ignored = i >= count || border[i];
            int32_t expected = ignored ? RPEXEC_IGNORED : token != NULL ? token(i) : (int32_t)i;
            cr_expect(eq(i32, labels[k], expected), "token %u", (unsigned)i);
            expected_valid += ignored ? 0 : 1;
        }
        cr_expect(eq(u64, valid, expected_valid));
    }
}

static void expect_golden(const char *name, uint32_t seq_len, uint64_t stride, const bool *border)
{
    const char *path = NULL;
    rpexec_tokens t = {0};
    (void)rp_arena_print(rp_test_arena, &path, GOLDEN "%s", name);
    cr_assert(eq(int, open_as(path, seq_len, 89, &t), RP_OK), "%s", rp_test_messages);
    cr_expect(eq(u64, t.file.count, COUNT));
    cr_expect(eq(u64, t.sequences, stride == seq_len ? (COUNT - 1) / seq_len : COUNT / stride));
    expect_epoch(&t, COUNT, stride, golden_token, border);
    rpexec_tokens_close(&t);
}

Test(exec_data_tokens, files_of_numpy_and_llmc_are_streams)
{
    static const char *const names[] = {
        "numpy-uint8.npy", "numpy-uint16.npy", "numpy-uint32.npy",
        "numpy-int32.npy", "numpy-int64.npy",  "numpy-v2.npy",
        "numpy-v3.npy",    "llmc-gpt2.bin",    "llmc-llama3.bin",
    };
    const bool none[COUNT + 1] = {false};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        expect_golden(names[i], 4, 4, none);
        expect_golden(names[i], 7, 7, none);
    }
}

/* The documents of make.py have 7, 1, 12, 20, 4 and 16 tokens. */
Test(exec_data_tokens, first_tokens_of_megatrons_documents_are_no_labels)
{
    bool border[COUNT + 1] = {false};
    border[0] = border[7] = border[8] = border[20] = border[40] = border[44] = true;
    static const char *const names[] = {"megatron-uint16.bin", "megatron-uint16.idx",
                                        "megatron-int32.bin", "megatron-int32.idx"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        expect_golden(names[i], 4, 4, border);
        expect_golden(names[i], 9, 9, border);
        expect_golden(names[i], 40, 40, border);
    }
}

Test(exec_data_tokens, rows_of_a_table_are_sequences)
{
    bool border[COUNT + 1] = {false};
    expect_golden("numpy-rows.npy", 4, 5, border);
    for (uint32_t i = 0; i <= COUNT; i += 5) {
        border[i] = true; /* rows are as long as the sequences: the last token has no label */
    }
    const char *path = GOLDEN "numpy-rows.npy";
    rpexec_tokens t = {0};
    cr_assert(eq(int, open_as(path, 5, 89, &t), RP_OK), "%s", rp_test_messages);
    cr_expect(eq(u64, t.sequences, 12));
    expect_epoch(&t, COUNT, 5, golden_token, border);
    rpexec_tokens_close(&t);
    expect_refused(path, 6, 89, "of 5 with --seq-len 4, or 5");
    expect_refused(path, 3, 89, "its rows have 5 tokens");
}

/* Documents of 1 to 9 tokens from a simple generator; sequences of 1 to 70 tokens. */
Test(exec_data_tokens, documents_are_packed_as_a_walk_over_all_tokens_has_them)
{
    uint32_t state = 12345;
    for (uint32_t round = 0; round < 40; round++) {
        bool border[400] = {false};
        uint32_t starts[400];
        uint32_t documents = 0;
        uint32_t count = 150 + round;
        for (uint32_t at = 0; at < count;) {
            border[at] = true;
            starts[documents++] = at;
            state = state * 1664525u + 1013904223u;
            at += round == 0 ? 150 : 2 + (state >> 24) % 8 - (round % 2 == 1 ? 1 : 0);
        }
        for (uint32_t length = 1; length <= 70; length += 1 + round % 7) {
            content c = own(round % 3 == 0 ? 2 : 4, 400, 0, count, starts, documents);
            rpexec_tokens t = {0};
            const char *path = store("own.bin", c.bytes, c.size);
            cr_assert(eq(int, open_as(path, length, 400, &t), RP_OK), "%s", rp_test_messages);
            expect_epoch(&t, count, length, NULL, border);
            rpexec_tokens_close(&t);
        }
    }
}

/* A file of version 3: 9 tokens from 0 on in documents of 4 and 5, with prompts of `a` and `b`. */
static rp_status open_prompts(uint64_t a, uint64_t b, rpexec_tokens *t)
{
    content c = own(2, 400, 0, 9, (const uint32_t[]){0, 4}, 2);
    set(&c, 8, 3, 4);
    put(&c, a, 8);
    put(&c, b, 8);
    return open_as(store("prompts.bin", c.bytes, c.size), 4, 400, t);
}

/* Training on answers alone, as TRL's completion_only_loss: prompts are read and are no labels. */
Test(exec_data_tokens, prompts_are_no_labels)
{
    static const struct {
        uint64_t a;
        uint64_t b;
        bool label[9]; /* by token */
    } files[] = {{0, 0, {0, 1, 1, 1, 0, 1, 1, 1, 1}},
                 {1, 1, {0, 1, 1, 1, 0, 1, 1, 1, 1}},
                 {3, 2, {0, 0, 0, 1, 0, 0, 1, 1, 1}},
                 {4, 4, {0, 0, 0, 0, 0, 0, 0, 0, 1}},
                 {0, 5, {0, 1, 1, 1, 0, 0, 0, 0, 0}}};
    const char *identities[5];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        rpexec_tokens t = {0};
        cr_assert(eq(int, open_prompts(files[i].a, files[i].b, &t), RP_OK), "%s", rp_test_messages);
        for (uint64_t place = 0; place < 2; place++) {
            int32_t ids[4];
            int32_t labels[4];
            uint64_t valid = 0;
            uint64_t said = rpexec_tokens_read(&t, place, 1, ids, labels);
            for (uint32_t k = 0; k < 4; k++) {
                bool label = files[i].label[ids[k] + 1];
                cr_expect(eq(i32, labels[k], label ? ids[k] + 1 : RPEXEC_IGNORED));
                valid += label ? 1 : 0;
            }
            cr_expect(eq(u64, said, valid));
        }
        cr_assert(eq(int, rpexec_tokens_identity(&t, rp_test_arena, &identities[i]), RP_OK));
        cr_expect(i < 2 || strcmp(identities[i], identities[i - 1]) != 0, "%s", identities[i]);
        rpexec_tokens_close(&t);
    }
    rpexec_tokens t = {0};
    cr_expect(eq(int, open_prompts(5, 0, &t), RP_INPUT));
    cr_expect(strstr(rp_test_messages, "document 0 has a prompt of 5 tokens") != NULL);
    cr_expect(eq(int, open_prompts(4, 5, &t), RP_INPUT));
    cr_expect(strstr(rp_test_messages, "all are prompts") != NULL, "%s", rp_test_messages);
}

/* The order is the same as in runs that began with files of version 1, or with texts. */
Test(exec_data_tokens, the_order_does_not_depend_on_the_form)
{
    const uint32_t starts[] = {0, 3, 50};
    const bool joined[] = {false, true, false};
    int32_t first[3][40];
    for (uint32_t form = 0; form < 3; form++) {
        const rpexec_tokens_wanted wanted = {
            .seq_len = 5, .vocab = 256, .seed = 5, .joined = joined[form]};
        content c = form < 2 ? own(2, 256, 0, 101, starts, 3) : own(4, 256, 0, 101, NULL, 0);
        int32_t labels[5];
        int32_t ids[5];
        rpexec_tokens t = {0};
        const char *path = store("order", c.bytes, c.size);
        cr_assert(rpexec_tokens_open(path, &wanted, rp_test_arena, &t) == RP_OK);
        cr_assert(eq(u64, t.sequences, 20));
        for (uint64_t place = 0; place < 40; place++) {
            uint64_t valid = rpexec_tokens_read(&t, place, 1, ids, labels);
            first[form][place] = ids[0];
            cr_expect(form == 0 || valid == 5, "joined documents have all labels");
        }
        rpexec_tokens_close(&t);
    }
    cr_expect(eq(int, memcmp(first[0], first[1], sizeof first[0]), 0));
    cr_expect(eq(int, memcmp(first[0], first[2], sizeof first[0]), 0));
    cr_expect(ne(int, memcmp(first[0], first[0] + 20, 20 * sizeof(int32_t)), 0), "two epochs");
}

static const char *identity_of(const content *c, bool joined)
{
    const rpexec_tokens_wanted wanted = {
        .seq_len = 5, .vocab = 512, .bytes = true, .joined = joined};
    const char *text = NULL;
    rpexec_tokens t = {0};
    const char *path = store("identity", c->bytes, c->size);
    cr_assert(rpexec_tokens_open(path, &wanted, rp_test_arena, &t) == RP_OK);
    cr_assert(rpexec_tokens_identity(&t, rp_test_arena, &text) == RP_OK);
    rpexec_tokens_close(&t);
    return text;
}

/* The same tokens in another form are the same data. */
Test(exec_data_tokens, identities_are_of_tokens_and_documents)
{
    const uint32_t starts[] = {0, 3, 50};
    const content plain = own(4, 512, 0, 101, NULL, 0);
    const content narrow = own(2, 512, 0, 101, NULL, 0);
    const content documents = own(4, 512, 0, 101, starts, 3);
    const content longer = own(4, 512, 0, 102, NULL, 0);
    const char *text = identity_of(&plain, false);
    cr_expect(eq(str, (char *)text, (char *)identity_of(&narrow, false)));
    cr_expect(eq(str, (char *)text, (char *)identity_of(&documents, true)));
    cr_expect(ne(str, (char *)text, (char *)identity_of(&documents, false)));
    cr_expect(ne(str, (char *)text, (char *)identity_of(&longer, false)));
    for (uint32_t i = 0; i < 101; i++) {
        content other = plain;
        set(&other, plain.size - 4 * (101 - i), 500, 4);
        cr_expect(ne(str, (char *)text, (char *)identity_of(&other, false)), "token %u", i);
    }
}

/* The identity of a large file depends on its first tokens, its last tokens, and places between
 * them. */
Test(exec_data_tokens, identities_of_large_files_are_of_a_sample)
{
    enum { TOKENS = 200000 };
    unsigned char *bytes = NULL;
    const rpexec_tokens_wanted wanted = {.seq_len = 5, .vocab = 256, .bytes = true};
    const uint32_t places[] = {TOKENS, 0, 63, TOKENS - 64, TOKENS - 1};
    const char *first = NULL;
    cr_assert(rp_arena_alloc(rp_test_arena, TOKENS, 1, &bytes) == RP_OK);
    memset(bytes, 'a', TOKENS);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *text = NULL;
        rpexec_tokens t = {0};
        if (i > 0) {
            bytes[places[i]] = 'b';
        }
        const char *path = store("large", bytes, TOKENS);
        cr_assert(rpexec_tokens_open(path, &wanted, rp_test_arena, &t) == RP_OK);
        cr_assert(rpexec_tokens_identity(&t, rp_test_arena, &text) == RP_OK);
        rpexec_tokens_close(&t);
        if (i > 0) {
            cr_expect(ne(str, (char *)first, (char *)text), "token %u", places[i]);
            bytes[places[i]] = 'a';
        } else {
            first = text;
        }
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

Test(exec_data_tokens, tokens_that_the_model_does_not_have_are_refused)
{
    content c = own(4, 1000, 900, 100, NULL, 0);
    const char *path = store("own.bin", c.bytes, c.size);
    expect_refused(path, 4, 999, "vocabulary of 1000, the model has 999");
    c = own(4, 999, 900, 100, NULL, 0);
    path = store("own.bin", c.bytes, c.size);
    expect_refused(path, 4, 999, "own.bin: token 99 is 999; valid for this model are 0 to 998");
    expect_refused(GOLDEN "numpy-int64.npy", 4, 87,
                   "token 46 is 87; valid for this model are 0 to 86");
    expect_refused(GOLDEN "numpy-uint8.npy", 4, 257, "tokens of NumPy have 1 bytes, up to 255");
    expect_refused(GOLDEN "llmc-gpt2.bin", 4, 65537, "tokens of llm.c have 2 bytes, up to 65535");
    expect_refused(GOLDEN "megatron-uint16.idx", 4, 151936, "go up to 151935");
    content negative = load("numpy-int64.npy");
    set(&negative, negative.size - 16, UINT64_MAX - 6, 8);
    path = store("negative.npy", negative.bytes, negative.size);
    expect_refused(path, 4, 89, "token 58 is -7; valid");
    negative = load("numpy-int32.npy");
    set(&negative, negative.size - 4, UINT32_MAX, 4);
    path = store("negative.npy", negative.bytes, negative.size);
    expect_refused(path, 4, 89, "token 59 is -1; valid");
    expect_refused(GOLDEN "numpy-v2.npy", 60, 89, "60 tokens; valid for sequences of 60");
}

Test(exec_data_tokens, texts_are_taken_for_vocabularies_of_bytes_or_when_asked_for)
{
    const char *text = store("text", "a text of some bytes", 20);
    rpexec_tokens t = {0};
    cr_expect(eq(int, open_as(text, 4, 256, &t), RP_OK));
    rpexec_tokens_close(&t);
    expect_refused(text, 4, 257,
                   "make_tokens.py makes of texts with its tokenizer.json, or --bytes");
    const rpexec_tokens_wanted wanted = {.seq_len = 4, .vocab = 50000, .bytes = true};
    cr_expect(eq(int, rpexec_tokens_open(text, &wanted, rp_test_arena, &t), RP_OK));
    cr_expect(eq(u64, t.file.count, 20));
    rpexec_tokens_close(&t);
    expect_refused(store("raw.bin", "\1\0\2\0\3\0\4\0", 8), 4, 256, "no header of a token file");
}

Test(exec_data_tokens, forms_of_numpy_that_are_no_tokens_are_refused_by_name)
{
    expect_refused(GOLDEN "bad-big-endian.npy", 4, 89, "big-endian");
    expect_refused(GOLDEN "bad-fortran.npy", 4, 89, "Fortran order");
    expect_refused(GOLDEN "bad-floats.npy", 4, 89, "'<f4' is none of tokens");
    expect_refused(GOLDEN "bad-cube.npy", 4, 89, "3 dimensions");
    static const struct {
        const char *header;
        const char *cause;
    } headers[] = {
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (9223372036854775809, 2), }\n",
         "9223372036854775809 x 2 values"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,), }\n",
         "NumPy's header, byte"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (-4,), }\n", "NumPy's header, byte"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (0,), }\n", "0 x 1 values"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (4, 0), }\n", "4 x 0 values"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (), }\n", "0 dimensions"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (5,), }\n", "5 x 1 values"},
        {"{'descr': '<1 ', 'fortran_order': False, 'shape': (4,), }\n", "'<1 ' is none of tokens"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (4,), }\n", "'|O' is none of tokens"},
        {"{'descr': '|b1', 'fortran_order': False, 'shape': (8,), }\n", "'|b1' is none of tokens"},
        {"{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (4,), }\n", "header, byte"},
        {"{'descr': '<u2', 'fortran_order': 1, 'shape': (4,), }\n", "NumPy's header, byte"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (4,), 'x': 1}\n", "header, byte"},
        {"{'descr': '<u2', 'descr': '<u2', 'shape': (4,), }\n", "NumPy's header, byte"},
        {"{'descr': '<u2', 'fortran_order': False}\n", "NumPy's header, byte"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (4,), } x\n", "NumPy's header, byte"},
        {"\n", "NumPy's header, byte"},
        {"{", "NumPy's header, byte"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        content c = {.size = 8};
        memcpy(c.bytes, "\x93NUMPY\1\0", 8);
        put(&c, strlen(headers[i].header), 2);
        memcpy(c.bytes + c.size, headers[i].header, strlen(headers[i].header));
        c.size += strlen(headers[i].header);
        put(&c, UINT64_C(0x0001000200030004), 8);
        expect_refused(store("header.npy", c.bytes, c.size), 1, 89, headers[i].cause);
    }
    content c = load("numpy-uint16.npy");
    c.bytes[6] = 4;
    expect_refused(store("version.npy", c.bytes, c.size), 4, 89, "versions 1 to 3");
}

/* Files that are cut off or have one byte too many are refused. (A file shorter than its magic
 * number would be a text.) */
Test(exec_data_tokens, files_that_are_cut_off_are_refused)
{
    static const char *const names[] = {"numpy-uint8.npy", "numpy-rows.npy",      "numpy-v3.npy",
                                        "llmc-gpt2.bin",   "megatron-uint16.idx", "own"};
    const uint32_t starts[] = {0, 9, 30};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        content c = strcmp(names[i], "own") == 0 ? own(2, 89, 0, 60, starts, 3) : load(names[i]);
        bool megatron = strstr(names[i], ".idx") != NULL;
        content other = load("megatron-uint16.bin");
        (void)store("cut.bin", other.bytes, other.size);
        c.bytes[c.size] = 0;
        for (size_t size = 9; size <= c.size + 1; size += size < 60 || size >= c.size - 3 ? 1
                                                          : c.size - 3 - size < 7         ? 2
                                                                                          : 7) {
            const char *path = store(megatron ? "cut.idx" : "cut", c.bytes, size);
            rpexec_tokens t = {0};
            rp_status status = open_as(path, 4, 89, &t);
            cr_expect(eq(int, status, size == c.size ? RP_OK : RP_INPUT), "%s, %zu bytes: %s",
                      names[i], size, rp_test_messages);
            rpexec_tokens_close(&t);
        }
    }
    content index = load("megatron-uint16.idx");
    content c = load("megatron-uint16.bin");
    (void)store("cut.idx", index.bytes, index.size);
    for (size_t size = 0; size < c.size; size += 13) {
        expect_refused(store("cut.bin", c.bytes, size), 4, 89, size == 0 ? "empty" : "cut.");
    }
}

Test(exec_data_tokens, headers_that_contradict_the_file_are_refused)
{
    static const struct {
        const char *name; /* a golden file; NULL: a file of our own format with 2 documents */
        size_t at;
        uint32_t width;
        uint64_t value;
        const char *cause;
    } changes[] = {
        {NULL, 8, 4, 4, "another version"},
        {NULL, 12, 4, 8, "bytes per token"},
        {NULL, 20, 4, 1, "what has to be 0"},
        {NULL, 16, 4, 0, "has this vocabulary"},
        {NULL, 16, 4, 70000, "has this vocabulary"},
        {NULL, 24, 8, 0, "the header says 0 tokens"},
        {NULL, 24, 8, UINT64_C(1) << 63, "the header says 9223372036854775808 tokens"},
        {NULL, 24, 8, 61, "the header says 61 tokens"},
        {NULL, 32, 8, (UINT64_C(1) << 61) + 2, "2305843009213693954 documents"},
        {NULL, 160, 8, 1, "document 0 begins at token 1"},
        {NULL, 168, 8, 0, "document 1 begins at token 0"},
        {NULL, 168, 8, 60, "document 1 begins at token 60"},
        {NULL, 168, 8, UINT64_MAX, "document 1 begins at token 18446744073709551615"},
        {"llmc-gpt2.bin", 4, 4, 7, "with magic 20240520 is version 1"},
        {"llmc-llama3.bin", 4, 4, 1, "with magic 20240801 is version 7"},
        {"llmc-gpt2.bin", 8, 4, 59, "says 59 tokens of 2 bytes"},
        {"llmc-gpt2.bin", 8, 4, UINT32_MAX, "says 4294967295 tokens"},
        {"llmc-gpt2.bin", 0, 4, 20240521, "no header of a token file"},
        {"megatron-uint16.idx", 0, 1, 'm', "no text, and no header"},
        {"megatron-uint16.idx", 9, 8, 2, "another version"},
        {"megatron-uint16.idx", 17, 1, 7, "no integers"},
        {"megatron-uint16.idx", 17, 1, 200, "no integers"},
        {"megatron-uint16.idx", 17, 1, 4, "valid are sequences one behind the other"},
        {"megatron-uint16.idx", 18, 8, 8, "not as long as"},
        {"megatron-uint16.idx", 18, 8, UINT64_C(1) << 62, "not as long as"},
        {"megatron-uint16.idx", 26, 8, 0, "not as long as"},
        {"megatron-uint16.idx", 26, 8, UINT64_C(1) << 61, "not as long as"},
        {"megatron-uint16.idx", 34, 4, 8, "sequence 1 is said"},
        {"megatron-uint16.idx", 34, 4, UINT32_MAX, "sequence 0 is said to have 4294967295"},
        {"megatron-uint16.idx", 58, 4, 15, "its sequences have 59 tokens"},
        {"megatron-uint16.idx", 58, 4, 17, "sequence 6 is said to have 17"},
        {"megatron-uint16.idx", 70, 8, 16, "sequence 1 is said to have 1 tokens from byte 16"},
        {"megatron-uint16.idx", 70, 8, UINT64_MAX - 1, "sequence 1 is said"},
        {"megatron-uint16.idx", 118, 8, 1, "document index 0 is 1"},
        {"megatron-uint16.idx", 126, 8, 8, "document index 1 is 8"},
        {"megatron-uint16.idx", 134, 8, 0, "document index 2 is 0"},
        {"megatron-uint16.idx", 166, 8, 6, "document index 6 is 6"},
    };
    const uint32_t starts[] = {0, 30};
    content tokens = load("megatron-uint16.bin");
    (void)store("changed.bin", tokens.bytes, tokens.size);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *name = changes[i].name;
        content c = name == NULL ? own(2, 300, 0, 60, starts, 2) : load(name);
        set(&c, changes[i].at, changes[i].value, changes[i].width);
        bool megatron = name != NULL && strstr(name, ".idx") != NULL;
        expect_refused(store(megatron ? "changed.idx" : "changed", c.bytes, c.size), 4, 300,
                       changes[i].cause);
    }
    content c = load("megatron-uint16.idx");
    memset(c.bytes + c.size, 0, 7);
    expect_refused(store("changed.idx", c.bytes, c.size + 7), 4, 300, "multimodal");
}

Test(exec_data_tokens, files_of_megatron_need_both)
{
    content index = load("megatron-uint16.idx");
    content tokens = load("megatron-uint16.bin");
    expect_refused(store("alone.idx", index.bytes, index.size), 4, 89, "alone.bin: No such file");
    expect_refused(store("noname", index.bytes, index.size), 4, 89, "names that end in .idx");
    (void)store("other.idx", tokens.bytes, tokens.size);
    expect_refused(store("other.bin", tokens.bytes, tokens.size), 4, 89, "no index of Megatron's");
    const char *fifo = NULL;
    (void)rp_arena_print(rp_test_arena, &fifo, "%s/fifo.idx", folder);
    cr_assert(mkfifo(fifo, 0600) == 0);
    expect_refused(store("fifo.bin", tokens.bytes, tokens.size), 4, 89, "no regular file");
    (void)store("none.idx", "", 0);
    expect_refused(store("none.bin", tokens.bytes, tokens.size), 4, 89, "empty");
    content each = own(2, 300, 0, 3, (const uint32_t[]){0, 1, 2}, 3);
    expect_refused(store("each", each.bytes, each.size), 1, 300, "each token is a document");
}
