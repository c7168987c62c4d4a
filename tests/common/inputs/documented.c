/* traces/README.md names every key of models, platforms and cost tables, and none besides. */
#include "common/base/log.h"
#include "common/inputs/costs.h"
#include "common/inputs/model.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(documented, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

#define MOST_KEYS 128u
#define KEY_SIZE 64u

typedef struct keys {
    char names[MOST_KEYS][KEY_SIZE];
    uint32_t count;
} keys;

static void add(keys *list, const char *name, size_t length)
{
    cr_assert(lt(u32, list->count, MOST_KEYS));
    cr_assert(lt(sz, length, KEY_SIZE));
    memcpy(list->names[list->count], name, length);
    list->names[list->count++][length] = '\0';
}

static bool has(const keys *list, const char *name)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (strcmp(list->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* An unknown key is refused with all known ones: "…; valid values are a, b, c". */
static keys keys_of(const char *kind)
{
    static const char file[] = "no_such_key: 1\n";
    rp_arena *arena = rp_test_tool_arena();
    char log[8192];
    rp_model model;
    rp_platform platform;
    rp_costs costs;
    rp_status status = RP_OK;
    rp_log_capture_begin(log, sizeof log);
    if (strcmp(kind, "models") == 0) {
        status = rp_model_parse("f", file, sizeof file - 1, arena, &model);
    } else if (strcmp(kind, "platforms") == 0) {
        status = rp_platform_parse("f", file, sizeof file - 1, arena, &platform);
    } else {
        status = rp_costs_parse("f", file, sizeof file - 1, arena, &costs);
    }
    rp_log_capture_end();
    cr_assert(eq(int, status, RP_INPUT));
    keys list = {.count = 0};
    const char *at = strstr(log, "valid values are ");
    cr_assert(ne(ptr, (void *)at, NULL), "%s", log);
    for (at += strlen("valid values are "); *at != '\0' && *at != '\n';) {
        size_t length = strcspn(at, ",\n");
        add(&list, at, length);
        at += length;
        at += strspn(at, ", ");
    }
    return list;
}

/* Words between backticks of the first cell of a table's row. */
static void read_cell(const char *line, keys *list)
{
    const char *end = strchr(line + 1, '|');
    const char *open = strchr(line, '`');
    while (open != NULL && end != NULL && open < end) {
        const char *close = strchr(open + 1, '`');
        cr_assert(ne(ptr, (void *)close, NULL), "%s", line);
        add(list, open + 1, (size_t)(close - open - 1));
        open = strchr(close + 1, '`');
    }
}

/* Keys in the tables of one section, "## models/NAME.yaml" for models. */
static keys keys_in_document(const char *kind)
{
    const char *text = rp_test_tool_read(RP_SOURCE_ROOT "/traces/README.md");
    char heading[64];
    snprintf(heading, sizeof heading, "\n## %s/", kind);
    const char *line = strstr(text, heading);
    cr_assert(ne(ptr, (void *)line, NULL), "%s", heading);
    keys list = {.count = 0};
    for (line = strchr(line + 1, '\n') + 1; *line != '\0' && strncmp(line, "## ", 3) != 0;) {
        if (strncmp(line, "| `", 3) == 0) {
            read_cell(line, &list);
        }
        const char *end = strchr(line, '\n');
        line = end != NULL ? end + 1 : line + strlen(line);
    }
    return list;
}

Test(documented, keys_of_data_files)
{
    static const struct {
        const char *kind;
        uint32_t least; /* keys that there were when this was written, or fewer */
    } kinds[] = {{"models", 30}, {"platforms", 70}, {"costs", 12}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        keys known = keys_of(kinds[k].kind);
        keys written = keys_in_document(kinds[k].kind);
        cr_expect(ge(u32, known.count, kinds[k].least), "%s", kinds[k].kind);
        for (uint32_t i = 0; i < known.count; i++) {
            cr_expect(has(&written, known.names[i]), "%s: '%s' is not in traces/README.md",
                      kinds[k].kind, known.names[i]);
        }
        for (uint32_t i = 0; i < written.count; i++) {
            cr_expect(has(&known, written.names[i]), "%s: '%s' of traces/README.md is no key",
                      kinds[k].kind, written.names[i]);
        }
    }
}
