/* Rows of rpsim's columns: their list in cli.md, the units in their names. */
#include "sim/study/columns.h"
#include "common/base/text.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <string.h>

#define HEAD "| key | unit | value |\n|---|---|---|\n"

TestSuite(columns, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* The table of cli.md 2.6, with the empty line behind it. */
static const char *make_list(void)
{
    const char *list = HEAD;
    for (uint32_t i = 0; i < rpsim_column_count; i++) {
        const rpsim_column *c = &rpsim_columns[i];
        if (!c->stored_only) {
            rp_status status =
                rp_arena_print(rp_test_tool_arena(), &list, "%s| `%s` | %s | %s |\n", list, c->key,
                               c->unit != NULL ? c->unit : "", c->help);
            cr_assert(eq(int, status, RP_OK));
        }
    }
    cr_assert(eq(int, rp_arena_print(rp_test_tool_arena(), &list, "%s\n", list), RP_OK));
    return list;
}

/* The document with `new` instead of `old`, which it must have. */
static const char *replace(const char *document, const char *old, const char *new)
{
    const char *at = strstr(document, old);
    const char *changed = NULL;
    cr_assert(at != NULL, "%s", old);
    rp_status status = rp_arena_print(rp_test_tool_arena(), &changed, "%.*s%s%s",
                                      (int)(at - document), document, new, at + strlen(old));
    cr_assert(eq(int, status, RP_OK));
    return changed;
}

Test(columns, cli_md_lists_the_rows)
{
    const char *list = make_list();
    const char *document = rp_test_tool_read(RP_SOURCE_ROOT "/common/cli/cli.md");
    cr_expect(strstr(document, list) != NULL, "cli.md 2.6 shall have\n%s", list);
    const char *ops = "| `ops` |  | ops of the program |\n";
    cr_expect(strstr(replace(document, ops, ""), list) == NULL, "a row is missing");
    cr_expect(strstr(replace(document, ops, "| `Ops` |"), list) == NULL, "a row is another one");
    cr_expect(strstr(replace(document, "off` |\n\n", "off` |\n| `more` |\n\n"), list) == NULL,
              "there is a row too many");
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

/* Units are in the names; the store has picoseconds. */
Test(columns, units_are_in_the_names)
{
    static const struct {
        const char *end;
        const char *unit;
    } units[] = {{"_ms", "ms"}, {"_pct", "%"}, {"_bytes", "bytes"}, {"tokens_per_s", "tokens/s"}};
    for (uint32_t i = 0; i < rpsim_column_count; i++) {
        const rpsim_column *c = &rpsim_columns[i];
        for (size_t u = 0; u < sizeof units / sizeof units[0] && !c->stored_only; u++) {
            bool percentile = strncmp(c->key, "tokens_per_s_p", 14) == 0;
            bool named = ends_with(percentile ? "tokens_per_s" : c->key, units[u].end);
            bool stated = c->unit != NULL && strcmp(c->unit, units[u].unit) == 0;
            cr_expect(eq(int, named, stated), "%s", c->key);
        }
        if (c->metric != NULL) {
            size_t stem = strlen(c->key) - (ends_with(c->key, "_ms") ? 2 : 0);
            cr_expect(strncmp(c->key, c->metric, stem) == 0, "%s", c->key);
            cr_expect(eq(str, (char *)c->metric + stem, stem < strlen(c->key) ? "ps" : ""), "%s",
                      c->key);
        }
    }
}
