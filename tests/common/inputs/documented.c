/* The tables of traces/README.md are the rows of keys of models, platforms and cost tables.
 * RP_WRITE=1 in the environment writes those that differ. */
#include "common/inputs/costs.h"
#include "common/inputs/model.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(documented, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

#define DOCUMENT RP_SOURCE_ROOT "/traces/README.md"
#define PRINT(text, ...)                                                                           \
    cr_assert(eq(int, rp_arena_print(rp_test_tool_arena(), &(text), __VA_ARGS__), RP_OK))

static const struct {
    const char *folder;
    const rp_config_schema *schema;
    size_t least; /* keys that there were when this was written, or fewer */
} kinds[] = {{"models", &rp_model_schema, 30},
             {"platforms", &rp_platform_schema, 70},
             {"costs", &rp_costs_schema, 12}};
#define KINDS (sizeof kinds / sizeof kinds[0])

static const char *values_of(const rp_config_field *field)
{
    const char *values = "text";
    if (field->choices != NULL) {
        values = "";
        for (size_t i = 0; field->choices[i] != NULL; i++) {
            PRINT(values, "%s%s`%s`", values, i == 0 ? "" : ", ", field->choices[i]);
        }
    } else if (field->type == RP_CONFIG_BOOL) {
        values = "`true`, `false`";
    } else if (field->type == RP_CONFIG_NAME) {
        values = "name";
    } else if (field->type != RP_CONFIG_TEXT) {
        const char *list = field->type == RP_CONFIG_NUMBERS ? ", or a list" : "";
        PRINT(values, "%.15g to %.15g%s", field->low, field->high, list);
    }
    return values;
}

static const char *absent_of(const rp_config_field *field)
{
    bool number = field->type == RP_CONFIG_U32 || field->type == RP_CONFIG_DOUBLE;
    const char *absent = field->type == RP_CONFIG_BOOL ? "`false`" : "–";
    if (!field->optional) {
        absent = "refused";
    } else if (number && (field->standard != 0 || field->low <= 0)) {
        PRINT(absent, "%.9g", field->standard);
    }
    return absent;
}

/* The line above a table. */
static const char *mark_of(const char *folder, const char *table)
{
    const char *mark = NULL;
    PRINT(mark, "<!-- keys: %s %s -->\n", folder, table);
    return mark;
}

static const char *make_table(const rp_config_schema *schema, const char *table)
{
    const char *text = "| key | unit | values | absent | meaning |\n|---|---|---|---|---|\n";
    for (size_t i = 0; i < schema->field_count; i++) {
        const rp_config_field *field = &schema->fields[i];
        if (strcmp(field->table, table) == 0) {
            PRINT(text, "%s| `%s` | %s | %s | %s | %s |\n", text, field->key,
                  field->unit != NULL ? field->unit : "–", values_of(field), absent_of(field),
                  field->help);
        }
    }
    return text;
}

/* Length of the table behind the mark, to the empty line. @return where it begins; NULL: nowhere */
static const char *find_table(const char *document, const char *mark, size_t *length_out)
{
    const char *at = strstr(document, mark);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(mark);
    const char *end = strstr(at, "\n\n");
    *length_out = end != NULL ? (size_t)(end + 1 - at) : strlen(at);
    return at;
}

/* @return the document with the tables of the rows; *wrong_out how many others it had */
static const char *with_tables(const char *document, uint32_t *wrong_out)
{
    *wrong_out = 0;
    for (size_t k = 0; k < KINDS; k++) {
        const rp_config_schema *schema = kinds[k].schema;
        for (size_t i = 0; i < schema->field_count; i++) {
            const char *name = schema->fields[i].table;
            const char *mark = mark_of(kinds[k].folder, name);
            const char *table = make_table(schema, name);
            size_t length = 0;
            const char *at = find_table(document, mark, &length);
            cr_assert(at != NULL, "traces/README.md has no line %s", mark);
            if (strlen(table) == length && strncmp(at, table, length) == 0) {
                continue;
            }
            ++*wrong_out;
            PRINT(document, "%.*s%s%s", (int)(at - document), document, table, at + length);
        }
    }
    return document;
}

Test(documented, keys_of_data_files)
{
    for (size_t k = 0; k < KINDS; k++) {
        cr_expect(ge(sz, kinds[k].schema->field_count, kinds[k].least), "%s", kinds[k].folder);
        for (size_t i = 0; i < kinds[k].schema->field_count; i++) {
            const rp_config_field *field = &kinds[k].schema->fields[i];
            cr_expect(field->help != NULL && field->help[0] != '\0', "%s", field->key);
        }
    }
    uint32_t wrong = 0;
    const char *document = with_tables(rp_test_tool_read(DOCUMENT), &wrong);
    if (wrong > 0 && getenv("RP_WRITE") != NULL) {
        FILE *stream = fopen(DOCUMENT, "w");
        cr_assert(stream != NULL);
        cr_expect(fputs(document, stream) >= 0);
        cr_expect(eq(int, fclose(stream), 0));
        return;
    }
    cr_expect(eq(u32, wrong, 0), "tables of traces/README.md are not those of "
                                 "common/inputs/*_rows.inc: RP_WRITE=1 ctest -R documented");
}

/* A row more, another key and another unit are noticed, and mended. */
Test(documented, tables_that_differ)
{
    uint32_t wrong = 0;
    const char *document = "";
    for (size_t k = 0; k < KINDS; k++) {
        const rp_config_schema *schema = kinds[k].schema;
        for (size_t i = 0; i < schema->field_count; i++) {
            const char *mark = mark_of(kinds[k].folder, schema->fields[i].table);
            if (strstr(document, mark) == NULL) {
                PRINT(document, "%s%s%s\n", document, mark,
                      make_table(schema, schema->fields[i].table));
            }
        }
    }
    cr_expect(eq(str, (char *)with_tables(document, &wrong), (char *)document));
    cr_expect(eq(u32, wrong, 0));
    static const struct {
        const char *from;
        const char *to;
    } changes[] = {{"| `gpus` |", "| `more` |  |\n| `gpus` |"},
                   {"| `lora_rank` |", "| `lora_ranks` |"},
                   {"| `hop_ms` | ms |", "| `hop_ms` | s |"}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const char *changed = NULL;
        const char *at = strstr(document, changes[i].from);
        cr_assert(at != NULL, "%s", changes[i].from);
        PRINT(changed, "%.*s%s%s", (int)(at - document), document, changes[i].to,
              at + strlen(changes[i].from));
        changed = with_tables(changed, &wrong);
        cr_expect(eq(u32, wrong, 1), "%s", changes[i].to);
        cr_expect(eq(str, (char *)changed, (char *)document), "%s", changes[i].to);
    }
}
