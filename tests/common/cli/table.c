/* Tables and paragraphs on a page: widths, columns left out, UTF-8. */
#include "common/cli/table.h"
#include "common/cli/page.h"
#include "common/cli/paragraph.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(table, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 30);

static const rp_table_column columns[] = {RP_TABLE_LEFT("name", 3), RP_TABLE_RIGHT("n", 3),
                                          RP_TABLE_LEFT("note", 1), RP_TABLE_RIGHT("more", 2),
                                          RP_TABLE_LEFT("none", 3)};

static char page[4096];

static rp_table *table_of_two_rows(void)
{
    rp_table *table = NULL;
    cr_assert(eq(int, rp_table_create(columns, 5, 2, rp_test_arena, &table), RP_OK));
    static const char *const cells[] = {"été", "7",   "long words", "1",  "",
                                        "a",   "123", "",           "22", ""};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        cr_assert(eq(int, rp_table_print(table, "%s", cells[i]), RP_OK));
    }
    return table;
}

static const char *written(const rp_table *table, uint32_t indent, uint32_t width)
{
    memset(page, 0, sizeof page);
    FILE *stream = fmemopen(page, sizeof page, "w");
    cr_assert(ne(ptr, stream, NULL));
    rp_table_write(table, indent, width, stream);
    cr_assert(eq(int, fclose(stream), 0));
    return page;
}

/* Empty columns are left out; lines end without blanks; accents have width 1. */
Test(table, all_columns)
{
    cr_expect(eq(str, (char *)written(table_of_two_rows(), 1, 100),
                 " name   n note       more\n"
                 " été    7 long words    1\n"
                 " a    123              22\n"));
}

Test(table, those_that_keep_least_go_first)
{
    rp_table *table = table_of_two_rows();
    cr_expect(eq(str, (char *)written(table, 0, 24),
                 "name   n note       more\n"
                 "été    7 long words    1\n"
                 "a    123              22\n"));
    cr_expect(eq(str, (char *)written(table, 0, 23),
                 "name   n more\n"
                 "été    7    1\n"
                 "a    123   22\n"));
    cr_expect(eq(str, (char *)written(table, 0, 12),
                 "name   n\n"
                 "été    7\n"
                 "a    123\n"));
    cr_expect(eq(str, (char *)written(table, 0, 1),
                 "…\n"
                 "…\n"
                 "a\n"));
    cr_expect(eq(str, (char *)written(table, 0, 3),
                 "na…\n"
                 "été\n"
                 "a\n"));
}

Test(table, no_room)
{
    rp_table *table = table_of_two_rows();
    cr_expect(eq(int, rp_table_print(table, "one too many"), RP_BROKEN));
    cr_expect(eq(int, rp_table_create(columns, 0, 1, rp_test_arena, &table), RP_BROKEN));
    cr_expect(eq(int, rp_table_create(columns, RP_TABLE_MAX_COLUMNS + 1, 1, rp_test_arena, &table),
                 RP_BROKEN));
}

/* At every width a column's place is that of its heading. */
Test(table, places_are_those_that_are_written)
{
    uint32_t left_out = 0;
    for (uint32_t width = 1; width < 40; width++) {
        const rp_table *table = table_of_two_rows();
        const char *text = written(table, 2, width);
        size_t line = strcspn(text, "\n");
        for (uint32_t i = 2; i < 5; i++) { /* " n" begins " name", too */
            char heading[16];
            snprintf(heading, sizeof heading, " %s", columns[i].heading);
            const char *at = strstr(text, heading);
            bool found = at != NULL && at < text + line;
            cr_expect(eq(int, rp_table_has_place(table, i, 2, width), found), "%u: %s", width,
                      text);
            left_out += found ? 0 : 1;
        }
    }
    cr_expect(gt(u32, left_out, 39)); /* the empty column, and others */
}

Test(table, paragraphs)
{
    memset(page, 0, sizeof page);
    FILE *stream = fmemopen(page, sizeof page, "w");
    rp_paragraph_write("one two three fourandmore five\nnot this", 0, 2, 9, stream);
    cr_assert(eq(int, fclose(stream), 0));
    cr_expect(eq(str, page, "one two\n  three\n  fourandmore\n  five\n"));
    cr_expect(eq(u32, rp_paragraph_width("été", strlen("été")), 3));
}

/* At every width a number and its unit stay on a line, unless both are wider; other words break as
 * before. */
Test(table, numbers_keep_their_units)
{
    static const char text[] = "knowing it to +-22.5 % (not +-30.1 %) at 5 GB/s, 10 ms: 12 steps";
    for (uint32_t width = 12; width < sizeof text; width++) {
        memset(page, 0, sizeof page);
        FILE *stream = fmemopen(page, sizeof page, "w");
        rp_paragraph_write(text, 0, 2, width, stream);
        cr_assert(eq(int, fclose(stream), 0));
        cr_expect(ne(ptr, strstr(page, "+-22.5 %"), NULL), "%s", page);
        cr_expect(ne(ptr, strstr(page, "+-30.1 %)"), NULL), "%s", page);
        cr_expect(ne(ptr, strstr(page, "5 GB/s,"), NULL), "%s", page);
        cr_expect(ne(ptr, strstr(page, "10 ms:"), NULL), "%s", page);
        for (char *at = page; *at != '\0'; at = strchr(at, '\n') + 1) {
            cr_expect(le(sz, strcspn(at, "\n"), width), "%u: %s", width, page);
        }
    }
    memset(page, 0, sizeof page);
    FILE *stream = fmemopen(page, sizeof page, "w");
    rp_paragraph_write("of 5 steps 1234567 % 8 % 1", 0, 2, 8, stream);
    cr_assert(eq(int, fclose(stream), 0));
    cr_expect(eq(str, page, "of 5\n  steps\n  1234567\n  % 8 %\n  1\n"));
}

Test(table, words_take_what_is_left)
{
    static const rp_table_column of_list[] = {RP_TABLE_LEFT("", 1), RP_TABLE_WORDS("", 1)};
    rp_table *table = NULL;
    cr_assert(eq(int, rp_table_create(of_list, 2, 1, rp_test_arena, &table), RP_OK));
    cr_assert(eq(int, rp_table_print(table, "a"), RP_OK));
    cr_assert(eq(int, rp_table_print(table, "one two three four five six seven eight"), RP_OK));
    cr_expect(
        eq(str, (char *)written(table, 0, 30), "a one two three four five six\n  seven eight\n"));
}

Test(table, all_columns_in_tables_below_each_other)
{
    memset(page, 0, sizeof page);
    FILE *stream = fmemopen(page, sizeof page, "w");
    rp_table_write_all(table_of_two_rows(), 1, 0, 16, stream);
    cr_assert(eq(int, fclose(stream), 0));
    cr_expect(eq(str, page,
                 "name   n\nété    7\na    123\n\n"
                 "name note\nété  long words\na\n\n"
                 "name more\nété     1\na      22\n"));
}

Test(table, markdown)
{
    memset(page, 0, sizeof page);
    FILE *stream = fmemopen(page, sizeof page, "w");
    rp_table_write_markdown(table_of_two_rows(), stream);
    cr_assert(eq(int, fclose(stream), 0));
    cr_expect(eq(str, page,
                 "| name | n | note | more |\n|---|--:|---|--:|\n"
                 "| été | 7 | long words | 1 |\n| a | 123 |  | 22 |\n"));
}

/* Long lines go on below their second column, or indented by 2. */
Test(table, pages_wrap_long_lines)
{
    rp_page of_test;
    memset(page, 0, sizeof page);
    FILE *stream = fmemopen(page, sizeof page, "w");
    (void)setenv("COLUMNS", "40", 1);
    cr_assert(eq(int, rp_page_open(stream, rp_test_arena, &of_test), RP_OK));
    (void)unsetenv("COLUMNS");
    fputs("short  line\n\n  one two three four five six seven eight nine\n", of_test.stream);
    fputs("  label    one two three four five six seven\nno end", of_test.stream);
    rp_page_close(&of_test);
    cr_assert(eq(int, fclose(stream), 0));
    cr_expect(eq(str, page,
                 "short  line\n\n  one two three four five six seven\n    eight nine\n"
                 "  label    one two three four five six\n           seven\nno end\n"));
}

Test(table, columns_of_a_page)
{
    FILE *stream = tmpfile();
    (void)unsetenv("COLUMNS");
    cr_expect(eq(u32, rp_paragraph_columns(stream, 77), 77));
    static const struct {
        const char *set;
        uint32_t columns;
    } cases[] = {{"120", 120}, {"40", 40}, {"39", 77}, {"wide", 77}, {"", 77}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)setenv("COLUMNS", cases[i].set, 1);
        cr_expect(eq(u32, rp_paragraph_columns(stream, 77), cases[i].columns), "%s", cases[i].set);
    }
    (void)unsetenv("COLUMNS");
    (void)fclose(stream);
}
