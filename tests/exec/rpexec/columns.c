/* Rows of rpexec's columns: the units in their names, and the lines of the text output. */
#include "exec/rpexec/columns.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(exec_columns, .timeout = 60);

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

/* The names contain the units; the store has picoseconds. */
Test(exec_columns, units_are_in_the_names)
{
    static const struct {
        const char *end;
        const char *unit;
    } units[] = {{"_ms", "ms"},       {"_us", "us"},     {"_pct", "%"},
                 {"_bytes", "bytes"}, {"_flop", "FLOP"}, {"tokens_per_s", "tokens/s"}};
    for (uint32_t i = 0; i < rpexec_column_count; i++) {
        const rpexec_column *c = &rpexec_columns[i];
        for (size_t u = 0; u < sizeof units / sizeof units[0] && !c->unlisted; u++) {
            bool stated = c->unit != NULL && strcmp(c->unit, units[u].unit) == 0;
            cr_expect(eq(int, ends_with(c->key, units[u].end), stated), "%s", c->key);
        }
        cr_expect(c->metric == NULL || !ends_with(c->metric, "_ms"), "%s", c->key);
        cr_expect(c->unlisted || c->help != NULL, "%s", c->key);
        cr_expect(not(c->unlisted) || c->metric != NULL || c->line != RPEXEC_LINE_NONE, "%s",
                  c->key);
    }
}

/* The parts of each line are numbered from 1 on, without a gap and each number once. */
Test(exec_columns, lines_have_no_gaps)
{
    for (uint32_t i = 0; i < rpexec_column_count; i++) {
        const rpexec_column *c = &rpexec_columns[i];
        uint32_t here = 0;
        uint32_t before = 0;
        for (uint32_t k = 0; k < rpexec_column_count; k++) {
            const rpexec_column *other = &rpexec_columns[k];
            here += other->line == c->line && other->place == c->place;
            before += other->line == c->line && other->place + 1 == c->place;
        }
        if (c->line != RPEXEC_LINE_NONE) {
            cr_expect(here == 1 && c->place > 0 && (before == 1 || c->place == 1), "%s", c->key);
        }
    }
}
