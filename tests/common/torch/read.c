/* Schedule CSVs: files with a mistake each (tests/bad/torch) and files written by PyTorch
 * (tests/golden/torch). */
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/csv.h"
#include "common/torch/torch_csv.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAD RP_TEST_ROOT "/bad/torch/"
#define GOLDEN RP_TEST_ROOT "/golden/torch/"

TestSuite(torch_csv_read, .init = rp_test_log_begin, .fini = rp_test_log_end);

/* From memory that ends with the file, so that AddressSanitizer sees reads beyond it. */
static rp_status read_exact(const char *path, rp_torch_csv *csv)
{
    rp_text file = {0};
    char *exact = NULL;
    cr_assert(eq(int, rp_text_read_file(path, SIZE_MAX, &file), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, file.length, 1, &exact), RP_OK));
    if (file.length > 0) {
        memcpy(exact, file.bytes, file.length);
    }
    rp_status status = rp_torch_csv_parse(path, exact, file.length, rp_test_arena, csv);
    rp_text_fini(&file);
    return status == RP_OK ? rp_torch_csv_check(csv, rp_test_arena) : status;
}

static const char *cell(const rp_csv *table, uint32_t row, const char *header)
{
    uint32_t column = 0;
    cr_assert(eq(int, rp_csv_column(table, header, &column), RP_OK));
    return rp_csv_cell(table, row, column);
}

/* True if a message has "row R, column C: "; column 0: the row or file is wrong. */
static bool names_place(const char *message, const char *row, const char *column)
{
    const char *place = NULL;
    if (strcmp(column, "0") == 0) {
        return strstr(message, "column") == NULL;
    }
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &place, ": row %s, column %s: ", row, column),
                 RP_OK));
    return strstr(message, place) != NULL;
}

Test(torch_csv_read, bad_files)
{
    rp_csv table;
    rp_text text = {0};
    uint32_t refused = 0;
    cr_assert(eq(int, rp_text_read_file(BAD "expected.tsv", SIZE_MAX, &text), RP_OK));
    cr_assert(eq(int,
                 rp_csv_parse("expected.tsv", text.bytes, text.length, '\t', rp_test_arena, &table),
                 RP_OK));
    rp_text_fini(&text);
    for (uint32_t row = 0; row < table.rows; row++) {
        const char *path = NULL;
        const char *place = NULL;
        const char *file = cell(&table, row, "file");
        const char *line = cell(&table, row, "line");
        const char *wanted = cell(&table, row, "message contains");
        rp_torch_csv csv;
        rp_test_log_again();
        cr_assert(eq(int, rp_arena_print(rp_test_arena, &path, BAD "%s", file), RP_OK));
        cr_assert(eq(int, rp_arena_print(rp_test_arena, &place, "%s:%s: ", path, line), RP_OK));
        rp_status status = read_exact(path, &csv);
        if (strcmp(line, "0") == 0) {
            cr_expect(eq(int, status, RP_OK), "%s: %s", file, rp_test_messages);
            continue;
        }
        refused++;
        cr_expect(eq(int, status, RP_INPUT), "%s", file);
        cr_expect(strncmp(rp_test_messages, place, strlen(place)) == 0, "%s: %s", file,
                  rp_test_messages);
        cr_expect(strstr(rp_test_messages, wanted) != NULL, "%s: %s", file, rp_test_messages);
        cr_expect(strstr(rp_test_messages, "valid ") != NULL, "%s: %s", file, rp_test_messages);
        cr_expect(names_place(rp_test_messages, line, cell(&table, row, "column")), "%s: %s", file,
                  rp_test_messages);
        const char *newline = strchr(rp_test_messages, '\n');
        cr_expect(newline != NULL && newline[1] == '\0', "%s: %s", file, rp_test_messages);
    }
    cr_expect(ge(u32, refused, 50));
}

/* A file's cells in PyTorch's numbering, without blanks and carriage returns. */
static const char *squeezed(const char *path)
{
    rp_text text = {0};
    char *out = NULL;
    cr_assert(eq(int, rp_text_read_file(path, SIZE_MAX, &text), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, text.length + 1, 1, &out), RP_OK));
    size_t length = 0;
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.bytes[i];
        bool row_begins = length == 0 || out[length - 1] == '\n';
        if (byte == '\n' && length > 0 && out[length - 1] == ',') {
            length--;
        }
        if (byte == '\r' || (byte == ',' && (row_begins || out[length - 1] == ','))) {
            continue;
        }
        out[length++] = byte;
    }
    rp_text_fini(&text);
    return out;
}

static const char *printed(const rp_torch_csv *csv)
{
    char *bytes = NULL;
    const char *copy = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&bytes, &length);
    rp_torch_csv_print(csv, stream);
    fclose(stream);
    cr_assert(eq(int, rp_arena_copy_text(rp_test_arena, bytes, length, &copy), RP_OK));
    free(bytes);
    return copy;
}

/* PyTorch's files are accepted, and written with the same cells. */
Test(torch_csv_read, files_of_pytorch)
{
    glob_t files = {0};
    cr_assert(eq(int, glob(GOLDEN "*.csv", 0, NULL, &files), 0));
    cr_assert(ge(sz, files.gl_pathc, 20));
    for (size_t i = 0; i < files.gl_pathc; i++) {
        rp_torch_csv csv;
        const char *path = files.gl_pathv[i];
        rp_test_log_again();
        cr_expect(eq(int, read_exact(path, &csv), RP_OK), "%s: %s", path, rp_test_messages);
        cr_expect(eq(str, (char *)printed(&csv), (char *)squeezed(path)), "%s", path);
        cr_expect(eq(int, csv.lowered, strstr(path, ".compute.") == NULL), "%s", path);
        cr_expect(not(csv.legacy), "%s", path);
    }
    globfree(&files);
}

static rp_torch_csv read_text(const char *text)
{
    rp_torch_csv csv;
    rp_test_log_again();
    cr_assert(eq(int, rp_torch_csv_parse("text", text, strlen(text), rp_test_arena, &csv), RP_OK),
              "%s", rp_test_messages);
    cr_assert(eq(int, rp_torch_csv_check(&csv, rp_test_arena), RP_OK), "%s", rp_test_messages);
    return csv;
}

/* Removes the cell of a stage's last RESHARD, with its comma, if no UNSHARD follows. */
static bool leave_gathered(char *text, uint32_t stage)
{
    char cell[32];
    char again[32];
    char *last = NULL;
    int length = snprintf(cell, sizeof cell, ",%uRESHARD", stage);
    snprintf(again, sizeof again, ",%uUNSHARD", stage);
    for (char *at = text; (at = strstr(at, cell)) != NULL; at++) {
        last = at;
    }
    if (last == NULL || strstr(last, again) != NULL) {
        return false;
    }
    memmove(last, last + length, strlen(last + length) + 1);
    return true;
}

/* PyTorch 2.5 to 2.9 writes no last RESHARD (_add_unshard_reshard): the row's end replaces it, for
 * one stage, every other or all. Earlier ones must be there. */
Test(torch_csv_read, rows_that_end_gathered)
{
    glob_t files = {0};
    uint32_t accepted = 0;
    cr_assert(eq(int, glob(GOLDEN "*.deferred*.csv", 0, NULL, &files), 0));
    cr_assert(eq(int, glob(GOLDEN "*.asap*.csv", GLOB_APPEND, NULL, &files), 0));
    for (size_t i = 0; i < files.gl_pathc; i++) {
        rp_torch_csv whole;
        const char *text = squeezed(files.gl_pathv[i]);
        cr_assert(eq(int, read_exact(files.gl_pathv[i], &whole), RP_OK));
        for (uint32_t way = 0; way < whole.stage_count + 2; way++) {
            char *left = NULL;
            rp_torch_csv csv;
            uint32_t taken = 0;
            cr_assert(eq(int, rp_arena_alloc(rp_test_arena, strlen(text) + 1, 1, &left), RP_OK));
            memcpy(left, text, strlen(text) + 1);
            for (uint32_t s = 0; s < whole.stage_count; s++) {
                bool chosen = way == whole.stage_count || way == s ||
                              (way == whole.stage_count + 1 && s % 2 == 0);
                taken += chosen && leave_gathered(left, s) ? 1 : 0;
            }
            rp_test_log_again();
            rp_status status = rp_torch_csv_parse("text", left, strlen(left), rp_test_arena, &csv);
            status = status == RP_OK ? rp_torch_csv_check(&csv, rp_test_arena) : status;
            cr_expect(eq(int, status, RP_OK), "%s, %u: %s", files.gl_pathv[i], way,
                      rp_test_messages);
            accepted += taken > 0 ? 1 : 0;
        }
    }
    globfree(&files);
    cr_expect(ge(u32, accepted, 100), "%u", accepted);
}

/* The table of formats.md 1: B is I and BW is B; today's files stay. */
Test(torch_csv_read, legacy_dialect)
{
    static const struct {
        const char *text;
        const char *rows;
        bool legacy;
    } cases[] = {
        {"0F0,0F1,0BW0,0B1,0W1\n", "0F0,0F1,0B0,0I1,0W1\n", true},
        {"0F0,0BW0\n", "0F0,0B0\n", true},
        {"0F0,0B0,0W0\n", "0F0,0I0,0W0\n", true},
        {"0F0,0F1,0B0,0I1,0W1\n", "0F0,0F1,0B0,0I1,0W1\n", false},
        {"0F0,0B0\n", "0F0,0B0\n", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_torch_csv csv = read_text(cases[i].text);
        cr_expect(eq(int, csv.legacy, cases[i].legacy), "%s", cases[i].text);
        cr_expect(eq(str, (char *)printed(&csv), (char *)cases[i].text), "%s", cases[i].text);
        csv.legacy = false; /* written in today's dialect */
        cr_expect(eq(str, (char *)printed(&csv), (char *)cases[i].rows), "%s", cases[i].text);
    }
}

/* Rows give stages' ranks, whatever the placement. */
Test(torch_csv_read, ranks_of_stages)
{
    rp_torch_csv csv = read_text("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
    static const uint32_t ranks[] = {0, 1, 1, 0};
    cr_assert(eq(u32, csv.stage_count, 4));
    for (uint32_t s = 0; s < 4; s++) {
        cr_expect(eq(u32, csv.stage_ranks[s], ranks[s]));
    }
}

/* ---- the dry run against a slow dry run ------------------------------------------------------ */

enum { RANKS = 3, MICROBATCHES = 3, CELLS = 2 * MICROBATCHES };

typedef struct slow_cell {
    bool backward;
    uint32_t microbatch;
} slow_cell;

/* True if all ranks end their first `columns` cells, by passes over all ranks until nothing moves.
 * Inputs outside the prefix count as present. Stage = rank. */
static bool slow_run(slow_cell rows[RANKS][CELLS], uint32_t columns)
{
    bool done[RANKS][2][MICROBATCHES];
    uint32_t next[RANKS] = {0};
    memset(done, 1, sizeof done);
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t c = 0; c < columns; c++) {
            done[r][rows[r][c].backward][rows[r][c].microbatch] = false;
        }
    }
    bool moved = true;
    bool all = false;
    while (moved) {
        moved = false;
        all = true;
        for (uint32_t r = 0; r < RANKS; r++) {
            if (next[r] == columns) {
                continue;
            }
            slow_cell head = rows[r][next[r]];
            bool edge = head.backward ? r == RANKS - 1 : r == 0;
            if (edge || done[head.backward ? r + 1 : r - 1][head.backward][head.microbatch]) {
                done[r][head.backward][head.microbatch] = true;
                next[r]++;
                moved = true;
            }
            all = all && next[r] == columns;
        }
    }
    return all;
}

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 16) % below;
}

static void random_row(uint32_t *state, slow_cell row[CELLS])
{
    bool gone[2][MICROBATCHES] = {{false}};
    for (uint32_t c = 0; c < CELLS;) {
        slow_cell cell = {draw(state, 2) == 1, draw(state, MICROBATCHES)};
        if (gone[cell.backward][cell.microbatch] || (cell.backward && !gone[0][cell.microbatch])) {
            continue;
        }
        gone[cell.backward][cell.microbatch] = true;
        row[c++] = cell;
    }
}

Test(torch_csv_read, dry_run_as_a_slow_one)
{
    uint32_t state = 1;
    uint32_t stuck = 0;
    for (uint32_t trial = 0; trial < 2000; trial++) {
        slow_cell rows[RANKS][CELLS];
        char text[400];
        char wanted[64];
        size_t length = 0;
        rp_torch_csv csv;
        for (uint32_t r = 0; r < RANKS; r++) {
            random_row(&state, rows[r]);
            for (uint32_t c = 0; c < CELLS; c++) {
                length += (size_t)snprintf(text + length, sizeof text - length, "%s%u%s%u",
                                           c == 0 ? "" : ",", r, rows[r][c].backward ? "B" : "F",
                                           rows[r][c].microbatch);
            }
            length += (size_t)snprintf(text + length, sizeof text - length, "\n");
        }
        uint32_t columns = 0;
        while (columns <= CELLS && slow_run(rows, columns)) {
            columns++;
        }
        rp_test_log_again();
        cr_assert(eq(int, rp_torch_csv_parse("text", text, length, rp_test_arena, &csv), RP_OK));
        rp_status status = rp_torch_csv_check(&csv, rp_test_arena);
        cr_assert(eq(int, status, columns > CELLS ? RP_OK : RP_INPUT), "%s%s", text,
                  rp_test_messages);
        if (columns <= CELLS) {
            snprintf(wanted, sizeof wanted, "the smallest prefix that fails is columns 1 to %u;",
                     columns);
            cr_assert(strstr(rp_test_messages, wanted) != NULL, "%s%s", text, rp_test_messages);
            stuck++;
        }
    }
    cr_expect(gt(u32, stuck, 200));
    cr_expect(lt(u32, stuck, 1990));
}

/* ---- lowering, against PyTorch's ------------------------------------------------------------- */

Test(torch_csv_read, lowered_as_by_pytorch)
{
    static const struct {
        const char *form;
        rp_torch_lowering how;
    } forms[] = {
        {"asap", {RP_TORCH_RECEIVES_ASAP, true}},
        {"asap-no-waits", {RP_TORCH_RECEIVES_ASAP, false}},
        {"deferred", {RP_TORCH_RECEIVES_JUST_IN_TIME, true}},
        {"deferred-no-waits", {RP_TORCH_RECEIVES_JUST_IN_TIME, false}},
    };
    glob_t files = {0};
    uint32_t compared = 0;
    cr_assert(eq(int, glob(GOLDEN "*.compute.csv", 0, NULL, &files), 0));
    for (size_t i = 0; i < files.gl_pathc * 4; i++) {
        rp_torch_csv csv;
        rp_torch_csv lowered;
        const char *path = files.gl_pathv[i / 4];
        const char *golden = NULL;
        int stem = (int)(strstr(path, ".compute.csv") - path);
        cr_assert(
            eq(int,
               rp_arena_print(rp_test_arena, &golden, "%.*s.%s.csv", stem, path, forms[i % 4].form),
               RP_OK));
        if (access(golden, R_OK) != 0) {
            continue; /* large files exist in some forms only */
        }
        rp_test_log_again();
        cr_assert(eq(int, read_exact(path, &csv), RP_OK), "%s", rp_test_messages);
        cr_assert(
            eq(int, rp_torch_csv_lower(&csv, &forms[i % 4].how, rp_test_arena, &lowered), RP_OK));
        cr_expect(eq(str, (char *)printed(&lowered), (char *)squeezed(golden)), "%s", golden);
        cr_expect(eq(int, rp_torch_csv_check(&lowered, rp_test_arena), RP_OK), "%s",
                  rp_test_messages);
        compared++;
    }
    globfree(&files);
    cr_expect(ge(u32, compared, 25));
}
