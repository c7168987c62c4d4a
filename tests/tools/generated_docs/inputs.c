/* Keys of models, platforms and cost tables. */
#include "common/inputs/costs.h"
#include "common/inputs/model.h"
#include "common/inputs/platform.h"
#include "common/inputs/stacks/stack.h"
#include "tests/tools/generated_docs/pages.h"

#include <string.h>

static void write_values(const rp_config_field *field, FILE *stream)
{
    if (field->choices != NULL) {
        for (size_t i = 0; field->choices[i] != NULL; i++) {
            fprintf(stream, "%s`%s`", i == 0 ? "" : ", ", field->choices[i]);
        }
    } else if (field->type == RP_CONFIG_BOOL) {
        fputs("`true`, `false`", stream);
    } else if (field->type == RP_CONFIG_NAME || field->type == RP_CONFIG_TEXT) {
        fputs(field->type == RP_CONFIG_NAME ? "name" : "text", stream);
    } else {
        const char *list = field->type == RP_CONFIG_NUMBERS ? ", or a list"
                           : field->list != 0               ? ", or by GPU"
                                                            : "";
        fprintf(stream, "%.15g to %.15g%s", field->low, field->high, list);
    }
}

static void write_absent(const rp_config_field *field, FILE *stream)
{
    bool number = field->type == RP_CONFIG_U32 || field->type == RP_CONFIG_DOUBLE;
    if (!field->optional) {
        fputs("refused", stream);
    } else if (number && (field->standard != 0 || field->low <= 0)) {
        fprintf(stream, "%.9g", field->standard);
    } else {
        fputs(field->type == RP_CONFIG_BOOL ? "`false`" : "–", stream);
    }
}

static void write_key(const rp_config_field *field, FILE *stream)
{
    if (field->help == NULL || field->help[0] == '\0') {
        docs_fail("has no help", field->key);
        return;
    }
    fprintf(stream, "| `%s` | %s | ", field->key, field->unit != NULL ? field->unit : "–");
    write_values(field, stream);
    fputs(" | ", stream);
    write_absent(field, stream);
    fprintf(stream, " | %s |\n", field->help);
}

/* Writes the keys table by table, without headings for a schema with a single table (title NULL).
 */
static void write_keys(const rp_config_schema *schema, const char *const (*titles)[2], size_t count,
                       FILE *stream)
{
    size_t written = 0;
    for (size_t t = 0; t < count; t++) {
        if (titles[t][1] != NULL) {
            fprintf(stream, "## %s\n\n", titles[t][1]);
        }
        fputs("| key | unit | values | absent | meaning |\n|---|---|---|---|---|\n", stream);
        for (size_t i = 0; i < schema->field_count; i++) {
            if (strcmp(schema->fields[i].table, titles[t][0]) == 0) {
                write_key(&schema->fields[i], stream);
                written++;
            }
        }
        fputs(t + 1 < count ? "\n" : "", stream);
    }
    if (written != schema->field_count) {
        docs_fail("keys stand in no table", schema->what);
    }
}

void docs_write_models(FILE *stream)
{
    static const char *const titles[][2] = {{"MODEL", NULL}};
    fputs("Keys of `models/NAME.yaml`. [traces](" DOCS_ROOT
          "traces/README.md) has the rules of such files "
          "and the counts of parameters.\n\n",
          stream);
    write_keys(&rp_model_schema, titles, COUNT(titles), stream);
}

void docs_write_platforms(FILE *stream)
{
    static const char *const titles[][2] = {{"FILE", "Names"},
                                            {"GPU", "The GPU"},
                                            {"SERVER", "The server"},
                                            {"LINK", "Host link"},
                                            {"PEERS", "Links between GPUs"},
                                            {"HOST", "Host work"},
                                            {"KERNELS", "Kernels and ops"},
                                            {"SYSTEMS", "Systems of the paper"},
                                            {"ORIGIN", "Origin of the values"}};
    fputs(
        "Keys of `platforms/NAME.yaml`. [traces](" DOCS_ROOT
        "traces/README.md) has the rules of such "
        "files. Rates are per GPU unless the meaning says otherwise. `gpus/NAME.yaml` has the keys "
        "of the tables Names, The GPU and Origin of the values; a platform file without them has "
        "those of its `gpu`.\n\n",
        stream);
    write_keys(&rp_platform_schema, titles, COUNT(titles), stream);
}

void docs_write_stacks(FILE *stream)
{
    static const char *const titles[][2] = {{"STACK", "Name"},
                                            {"GPU", "Kernels"},
                                            {"PASSES", "Passes over memory"},
                                            {"HOST", "The host"},
                                            {"COLLECTIVES", "Collectives"},
                                            {"RECOMPUTE", "Recompute"},
                                            {"LAYERS", "Stages"},
                                            {"MEMORY", "Memory of a layer"},
                                            {"ORIGIN", "Origin of the values"}};
    fputs("Keys of `stacks/NAME.yaml`. [traces](" DOCS_ROOT
          "traces/README.md) has the rules of such files. Bytes of passes are read and written; "
          "those "
          "of memory are kept.\n\n",
          stream);
    write_keys(&rp_stack_schema, titles, COUNT(titles), stream);
}

void docs_write_costs(FILE *stream)
{
    static const char *const titles[][2] = {{"COSTS", NULL}};
    fputs("Keys of `costs/MODEL@GPU.yaml`. [traces](" DOCS_ROOT
          "traces/README.md) has the rules of such "
          "files. Times are those of one microbatch.\n\n",
          stream);
    write_keys(&rp_costs_schema, titles, COUNT(titles), stream);
}
