/* Units in the names of rpsim's columns. */
#include "sim/study/columns.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(columns, .timeout = 60);

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

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
