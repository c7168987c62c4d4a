/* Labels of rows, padded in every way, against a second definition that looks at each token by
 * itself, and files that are refused. The definition follows transformers' collators
 * (data_collator.py): DataCollatorForLanguageModeling puts -100 at every padding token,
 * DataCollatorForSeq2Seq only at the places that it adds. Losses with both are in packing.c.
 * RP_LONG=1: longer rows. */
#include "exec/data/tokens.h"
#include "exec/operators/operators.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VOCAB 7u
#define PADDING 2
#define MOST_LENGTH 6u

static char path[] = "/tmp/rp-rows-XXXXXX";

static void begin(void)
{
    rp_test_log_begin();
    int descriptor = mkstemp(path);
    cr_assert(descriptor >= 0 && close(descriptor) == 0);
}

static void end(void)
{
    rp_test_none_left(unlink(path) != 0, "files");
    rp_test_log_end();
}

TestSuite(exec_data_rows, .init = begin, .fini = end, .timeout = 300);

/* numpy.save of int32: version 1, [rows, length] or, with `labels`, [2, rows, length]; [length]
 * without rows. */
static void write_npy(uint32_t rows, uint32_t length, const int32_t *ids, const int32_t *labels)
{
    char header[128];
    FILE *stream = fopen(path, "wb");
    cr_assert(stream != NULL);
    int count =
        snprintf(header, sizeof header,
                 rows == 0 ? "{'descr': '<i4', 'fortran_order': False, 'shape': (%.0s%.0u%u,), }\n"
                           : "{'descr': '<i4', 'fortran_order': False, 'shape': (%s%u, %u), }\n",
                 labels != NULL ? "2, " : "", rows, length);
    const unsigned char magic[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)count, 0};
    size_t values = (size_t)(rows == 0 ? 1 : rows) * length;
    (void)fwrite(magic, 1, sizeof magic, stream);
    (void)fwrite(header, 1, (size_t)count, stream);
    (void)fwrite(ids, sizeof *ids, values, stream);
    if (labels != NULL) {
        (void)fwrite(labels, sizeof *labels, values, stream);
    }
    cr_assert(eq(int, fclose(stream), 0));
}

static rp_status open_rows(uint32_t seq_len, rpexec_padding padding, rpexec_tokens *t)
{
    const rpexec_tokens_wanted wanted = {
        .seq_len = seq_len, .vocab = VOCAB, .seed = 5, .padding = padding};
    *t = (rpexec_tokens){0};
    rp_test_log_again();
    return rpexec_tokens_open(path, &wanted, rp_test_arena, t);
}

/* ---- the second definition ------------------------------------------------------------------- */

/* True if all of [from, to) could be padding. */
static bool pads(const int32_t *row, uint32_t from, uint32_t to, bool known)
{
    bool all = true;
    for (uint32_t i = from; i < to; i++) {
        all = all && (row[i] == RPEXEC_IGNORED || (known && row[i] == PADDING));
    }
    return all;
}

static int32_t expected_label(const int32_t *row, uint32_t length, uint32_t i, rpexec_padding p)
{
    bool one = pads(row, i, i + 1, p.is_known);
    if (!p.begins && !p.ends) {
        return one ? RPEXEC_IGNORED : row[i];
    }
    bool last = pads(row, i, length, p.is_known);
    bool first = pads(row, 0, i + 1, p.is_known);
    bool ends_text = p.ends && row[i] == PADDING && !pads(row, i - 1, i, true);
    bool begins_text = p.begins && i + 1 < length && !pads(row, i + 1, i + 2, true);
    return (last && !ends_text) || (first && !last && !begins_text) || row[i] == RPEXEC_IGNORED
               ? RPEXEC_IGNORED
               : row[i];
}

/* Checks a row with every kind of padding. @param labels the row's own labels; NULL: none */
static void check_row(const int32_t *row, uint32_t length, const int32_t *labels)
{
    static const rpexec_padding paddings[] = {{0},
                                              {.is_known = true, .token = PADDING},
                                              {true, PADDING, true, false},
                                              {true, PADDING, false, true},
                                              {true, PADDING, true, true}};
    write_npy(1, length, row, labels);
    for (size_t n = 0; n < 2 * sizeof paddings / sizeof paddings[0]; n++) {
        const rpexec_padding p = paddings[n / 2];
        uint32_t seq_len = length - 1 + n % 2;
        int32_t ids[MOST_LENGTH];
        int32_t got[MOST_LENGTH];
        int32_t right[MOST_LENGTH];
        uint64_t valid = 0;
        rpexec_tokens t;
        for (uint32_t k = 0; k < seq_len; k++) {
            bool none = k + 1 == length;
            right[k] = none             ? RPEXEC_IGNORED
                       : labels != NULL ? labels[k + 1]
                                        : expected_label(row, length, k + 1, p);
            valid += right[k] != RPEXEC_IGNORED ? 1 : 0;
        }
        rp_status status = open_rows(seq_len, p, &t);
        cr_assert(eq(int, status, valid > 0 ? RP_OK : RP_INPUT), "%s", rp_test_messages);
        cr_expect(valid > 0 || strstr(rp_test_messages, "no token is a label") != NULL, "%s",
                  rp_test_messages);
        if (valid > 0) {
            cr_expect(eq(u64, rpexec_tokens_read(&t, 3, 1, ids, got), valid));
        }
        for (uint32_t k = 0; valid > 0 && k < seq_len; k++) {
            int32_t id = row[k] != RPEXEC_IGNORED ? row[k] : p.is_known ? PADDING : 0;
            cr_expect(eq(i32, ids[k], id));
            cr_expect(eq(i32, got[k], right[k]), "%d %d %d %d ...: label %u, padding %zu", row[0],
                      row[1], row[2], row[3], k, n / 2);
        }
        rpexec_tokens_close(&t);
    }
}

/* All rows of three different tokens, of which PADDING is the padding: by themselves, with labels
 * of their own, and with their ends replaced by -100. */
Test(exec_data_rows, labels_are_those_of_a_look_at_each_token)
{
    static const int32_t alphabet[] = {PADDING, 3, 0};
    const char *long_run = getenv("RP_LONG");
    uint32_t length = long_run != NULL && strcmp(long_run, "1") == 0 ? MOST_LENGTH : 4;
    uint32_t count = 1;
    for (uint32_t i = 0; i < length; i++) {
        count *= 3;
    }
    for (uint32_t number = 0; number < count; number++) {
        int32_t row[MOST_LENGTH];
        int32_t labels[MOST_LENGTH];
        uint32_t rest = number;
        for (uint32_t i = 0; i < length; i++) {
            row[i] = alphabet[rest % 3];
            labels[i] = (number * 7 + i * 5) % 4 < 2 ? RPEXEC_IGNORED : (int32_t)(rest % VOCAB);
            rest /= 3;
        }
        check_row(row, length, NULL);
        check_row(row, length, labels);
        for (uint32_t filled = 1; filled <= length - 1; filled += 2) {
            row[length - filled] = RPEXEC_IGNORED;
            for (uint32_t i = length - filled; i < length; i++) {
                row[i] = RPEXEC_IGNORED;
            }
            check_row(row, length, NULL);
        }
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

Test(exec_data_rows, bad_tokens_and_labels_have_their_place)
{
    static const struct {
        int32_t ids[6];
        int32_t labels[6];
        bool labelled;
        const char *cause;
    } files[] = {{{1, 1, 1, -100, 1, 1},
                  {0},
                  false,
                  "token 3 is -100; valid for this model are 0 to 6, and "
                  "-100 behind a row's text (labels of their own: "},
                 {{1, -100, 1, 1, 1, 1}, {0}, false, "token 1 is -100"},
                 {{1, 1, -100, 1, 1, 7}, {0}, false, "token 5 is 7"},
                 {{1, 1, -99, 1, 1, 1}, {0}, false, "token 2 is -99"},
                 {{1, 1, 1, 1, 1, 1},
                  {1, 1, 1, 1, -101, 1},
                  true,
                  "label 4 is -101; valid for this model "
                  "are 0 to 6, and -100 for none"},
                 {{1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 7}, true, "label 5 is 7"},
                 {{1, 1, 1, 1, 1, 1}, {1, -100, -100, 1, -100, -100}, true, "no token is a label"},
                 {{1, -100, -100, 1, -100, -100}, {0}, false, "no token is a label"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        rpexec_tokens t;
        write_npy(2, 3, files[i].ids, files[i].labelled ? files[i].labels : NULL);
        cr_expect(eq(int, open_rows(2, (rpexec_padding){0}, &t), RP_INPUT), "%zu", i);
        cr_expect(strstr(rp_test_messages, files[i].cause) != NULL, "%s", rp_test_messages);
        rpexec_tokens_close(&t);
    }
}

/* As DataCollatorForLanguageModeling has it; with a token that ends texts, too, all are learned. */
Test(exec_data_rows, padding_of_a_stream_is_no_label)
{
    static const rpexec_padding paddings[] = {
        {0}, {.is_known = true, .token = PADDING}, {true, PADDING, false, true}};
    const int32_t stream[] = {3, PADDING, 4, PADDING, PADDING, 5, 6};
    for (size_t i = 0; i < sizeof paddings / sizeof paddings[0]; i++) {
        int32_t ids[6];
        int32_t labels[6];
        rpexec_tokens t;
        write_npy(0, 7, stream, NULL);
        cr_assert(eq(int, open_rows(6, paddings[i], &t), RP_OK), "%s", rp_test_messages);
        cr_expect(eq(u64, rpexec_tokens_read(&t, 0, 1, ids, labels), i == 1 ? 3 : 6));
        for (uint32_t k = 0; k < 6; k++) {
            bool padding = i == 1 && stream[k + 1] == PADDING;
            cr_expect(eq(i32, ids[k], stream[k]));
            cr_expect(eq(i32, labels[k], padding ? RPEXEC_IGNORED : stream[k + 1]));
        }
        rpexec_tokens_close(&t);
    }
    rpexec_tokens all;
    write_npy(0, 3, (const int32_t[]){PADDING, PADDING, PADDING}, NULL);
    cr_expect(eq(int, open_rows(2, paddings[1], &all), RP_INPUT));
    cr_expect(strstr(rp_test_messages, "no token is a label") != NULL, "%s", rp_test_messages);
}

/* A second half of [2, rows, length] that is 0 and 1 alone is a mask; with -100, or if the tokens
 * are 0 and 1 alone, too, it is labels. Labels a place too early are warned about. */
Test(exec_data_rows, a_half_of_zeros_and_ones_is_a_mask)
{
    static const struct {
        int32_t ids[6];
        int32_t labels[6];
        int32_t right[4];
        const char *warning;
    } files[] = {{{3, 4, 5, 6, 5, 4}, {0, 0, 1, 1, 1, 0}, {-100, 5, 5, -100}, NULL},
                 {{3, 4, 5, 6, 5, 4}, {1, 1, 1, 1, 1, 1}, {4, 5, 5, 4}, NULL},
                 {{3, 4, 5, 6, 5, -100}, {0, 0, 1, 1, 1, 1}, {-100, 5, 5, -100}, NULL},
                 {{3, 4, 5, 6, 5, 4}, {-100, 0, 1, -100, 1, 0}, {0, 1, 1, 0}, NULL},
                 {{0, 1, 0, 0, 1, 1}, {0, 1, 0, 1, 1, 0}, {1, 0, 1, 0}, NULL},
                 {{3, 4, 5, 6, 2, 4},
                  {4, 5, -100, 2, 4, -100},
                  {5, -100, 4, -100},
                  "4 of 4 labels are the tokens a place further"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        int32_t ids[2];
        int32_t labels[2];
        rpexec_tokens t;
        write_npy(2, 3, files[i].ids, files[i].labels);
        cr_assert(eq(int, open_rows(2, (rpexec_padding){0}, &t), RP_OK), "%s", rp_test_messages);
        for (uint64_t place = 0; place < 2; place++) {
            (void)rpexec_tokens_read(&t, place, 1, ids, labels);
            const int32_t *right = &files[i].right[ids[0] == files[i].ids[0] ? 0 : 2];
            cr_expect(labels[0] == right[0] && labels[1] == right[1], "%zu: %d %d", i, labels[0],
                      labels[1]);
        }
        const char *said = rp_test_messages;
        cr_expect(files[i].warning == NULL ? said[0] == '\0'
                                           : strstr(said, files[i].warning) != NULL,
                  "%s", said);
        rpexec_tokens_close(&t);
    }
}

/* A checkpoint made with some labels does not go on with others. */
Test(exec_data_rows, identities_are_of_labels_too)
{
    const int32_t ids[6] = {1, 2, 3, 4, 5, 6};
    const char *texts[8];
    for (uint32_t i = 0; i < 8; i++) {
        int32_t labels[6] = {1, 2, 3, 4, 5, 6};
        rpexec_tokens t;
        if (i < 6) {
            labels[i] = RPEXEC_IGNORED;
        }
        write_npy(2, 3, ids, i == 7 ? NULL : labels);
        cr_assert(eq(int, open_rows(2, (rpexec_padding){0}, &t), RP_OK), "%s", rp_test_messages);
        cr_assert(eq(int, rpexec_tokens_identity(&t, rp_test_arena, &texts[i]), RP_OK));
        rpexec_tokens_close(&t);
        for (uint32_t k = 0; k < i; k++) {
            cr_expect(ne(str, (char *)texts[i], (char *)texts[k]), "%u and %u", i, k);
        }
    }
}

/* Padding that no setting names is learned; a message warns if a file looks like that. */
Test(exec_data_rows, runs_at_the_ends_of_rows_are_warned_about)
{
    static const struct {
        int32_t ids[12];
        rpexec_padding padding;
        bool warns;
    } files[] = {{{1, 5, 5, 3, 5, 5, 1, 4, 5, 3, 2, 1}, {0}, true},
                 {{1, 5, 5, 3, 5, 5, 1, 4, 5, 3, 2, 1}, {.is_known = true, .token = 4}, true},
                 {{1, 5, 5, 3, 5, 5, 1, 4, 5, 3, 2, 1}, {.is_known = true, .token = 5}, false},
                 {{1, 5, 5, 3, 5, 5, 1, 4, 5, 3, 2, 1}, {true, 5, true, true}, false},
                 {{1, 5, 5, 3, 4, 5, 1, 4, 5, 3, 2, 1}, {0}, false},
                 {{1, 5, 5, 3, 4, 4, 1, 4, 5, 3, 2, 1}, {0}, false}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        rpexec_tokens t;
        write_npy(4, 3, files[i].ids, NULL);
        cr_assert(eq(int, open_rows(2, files[i].padding, &t), RP_OK), "%s", rp_test_messages);
        const char *said = strstr(rp_test_messages, "2 of 4 rows end in a run of token 5");
        cr_expect(eq(int, said != NULL, files[i].warns), "%zu: %s", i, rp_test_messages);
        cr_expect(files[i].warns || rp_test_messages[0] == '\0', "%s", rp_test_messages);
        rpexec_tokens_close(&t);
    }
}
