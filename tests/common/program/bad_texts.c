/* Programs' texts with a mistake each: base.txt with the edits of tests/bad/programs/expected.tsv
 * (tests/tools/folded.py makes them). */
#include "common/base/log.h"
#include "common/formats/csv.h"
#include "common/program/program.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

#define BAD_PROGRAMS RP_TEST_ROOT "/bad/programs/"

TestSuite(bad_texts, .init = rp_test_arena_begin, .fini = rp_test_arena_end);

static const char *cell(const rp_csv *table, uint32_t row, const char *header)
{
    uint32_t column = 0;
    cr_assert(eq(int, rp_csv_column(table, header, &column), RP_OK));
    return rp_csv_cell(table, row, column);
}

/* The mistake's line, or "rule" for a well-formed text of an invalid program. */
static void check_bad_text(const rp_csv *table, uint32_t row)
{
    char log[4096];
    rp_text text = {0};
    const char *path;
    const char *name = cell(table, row, "file");
    const char *prefix = "program: ";
    rp_program *program = NULL;
    const char *line = cell(table, row, "line");
    bool rule = strcmp(line, "rule") == 0;
    if (!rule) {
        cr_assert(eq(int, rp_arena_print(rp_test_arena, &prefix, "%s:%s: ", name, line), RP_OK));
    }
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &path, BAD_PROGRAMS "%s", name), RP_OK));
    cr_assert(eq(int, rp_text_read_file(path, 1u << 20, &text), RP_OK));
    rp_log_capture_begin(log, sizeof log);
    rp_status status = rp_program_read(name, text.bytes, text.length, &program);
    rp_log_capture_end();
    rp_text_fini(&text);
    cr_expect(eq(int, status, rule ? RP_INVALID_PROGRAM : RP_INPUT), "%s", name);
    cr_expect(eq(ptr, program, NULL));
    cr_expect(strncmp(log, prefix, strlen(prefix)) == 0, "%s begins with %s", log, prefix);
    cr_expect(strstr(log, cell(table, row, "message contains")) != NULL, "%s: %s", name, log);
    cr_expect(strchr(log, '\n') == log + strlen(log) - 1, "one line: %s", log);
}

Test(bad_texts, are_refused)
{
    rp_text text = {0};
    rp_text base = {0};
    rp_program *program = NULL;
    rp_csv table;
    const char *path = BAD_PROGRAMS "expected.tsv";
    cr_assert(eq(int, rp_text_read_file(path, 1u << 20, &text), RP_OK));
    cr_assert(
        eq(int, rp_csv_parse(path, text.bytes, text.length, '\t', rp_test_arena, &table), RP_OK));
    rp_text_fini(&text);
    cr_assert(ge(u32, table.rows, 90));
    cr_assert(eq(int, rp_text_read_file(BAD_PROGRAMS "base.txt", 1u << 20, &base), RP_OK));
    cr_assert(eq(int, rp_program_read("base", base.bytes, base.length, &program), RP_OK));
    rp_program_destroy(program);
    rp_text_fini(&base);
    for (uint32_t row = 0; row < table.rows; row++) {
        check_bad_text(&table, row);
    }
}
