/* Options of each program, and the keys and columns of its output. */
#include "exec/rpexec/columns.h"
#include "exec/rpexec/options.h"
#include "experiments/options.h"
#include "sim/rpadvise/options.h"
#include "sim/rpsim/options_internal.h"
#include "sim/run/bounds/bounds.h"
#include "sim/run/explain/explain.h"
#include "sim/study/columns.h"
#include "tests/tools/generated_docs/pages.h"

static const docs_output of_rpadvise[] = {
#include "sim/rpadvise/output_rows.inc"
};
static const docs_output of_studies[] = {
#include "sim/study/output_rows.inc"
};
static const docs_output of_records[] = {
#include "exec/measure/output_rows.inc"
};

void docs_write_outputs(const docs_output *rows, size_t count, FILE *stream)
{
    for (size_t i = 0; i < count; i++) {
        const docs_output *row = &rows[i];
        if (row->unit == NULL) {
            fprintf(stream, "\n## %s\n\n%s\n\n| key | unit | value |\n|---|---|---|\n", row->place,
                    row->meaning);
        } else {
            fprintf(stream, "| `%s` | %s | %s |\n", row->place, row->unit, row->meaning);
        }
    }
}

/* Writes a column's key, unit, metric in stores and meaning. */
static void write_column(const char *key, const char *unit, const char *metric, const char *help,
                         FILE *stream)
{
    if (help == NULL || help[0] == '\0') {
        docs_fail("has no help", key);
        return;
    }
    fprintf(stream, "| `%s` | %s |", key, unit != NULL ? unit : "");
    fprintf(stream, metric != NULL ? " `%s` | %s |\n" : " %s| %s |\n", metric != NULL ? metric : "",
            help);
}

static void write_rpsim_columns(FILE *stream)
{
    fputs("\n## JSON and CSV\n\nJSON is an array with one object per run; CSV has the same keys as "
          "columns, in this order. A metric has the value in a [store](store.md), times in "
          "picoseconds. Keys of memory are null at stage fidelity.\n\n"
          "| key | unit | metric | value |\n|---|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < rpsim_column_count; i++) {
        const rpsim_column *c = &rpsim_columns[i];
        if (!c->stored_only) {
            write_column(c->key, c->unit, c->metric, c->help, stream);
        }
    }
    const char *before = "\nMetrics without a key:";
    for (uint32_t i = 0; i < rpsim_column_count; i++) {
        if (rpsim_columns[i].stored_only) {
            fprintf(stream, "%s `%s`", before, rpsim_columns[i].metric);
            before = ",";
        }
    }
    fputs(".\n", stream);
}

/* Writes the keys of an object of the explanation, each with its words. */
static void write_explanation(FILE *stream)
{
    static const char *const shares[][2] = {
#define SHARE(name, key, words) {key, words},
        RPSIM_SHARE_LIST(SHARE)
#undef SHARE
    };
    static const char *const bounds[][2] = {
#define BOUND(name, key, of_class, words) {key, words},
        RPSIM_BOUND_LIST(BOUND)
#undef BOUND
    };
    fputs("\n| key of `attribution_ms` | GPU time |\n|---|---|\n", stream);
    for (size_t i = 0; i < COUNT(shares); i++) {
        fprintf(stream, "| `%s` | %s |\n", shares[i][0], shares[i][1]);
    }
    fputs("\n| key of `bounds_ms` | bound by |\n|---|---|\n", stream);
    for (size_t i = 0; i < COUNT(bounds); i++) {
        fprintf(stream, "| `%s` | %s |\n", bounds[i][0], bounds[i][1]);
    }
}

/* Writes the keys of the settings that follow the columns in JSON and are in config_json of stores.
 */
static void write_settings(const rp_options_program *program, FILE *stream)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->row_count; i++) {
        const rp_option *row = &program->rows[i];
        if (!program->groups[row->group].settings || row->own_setting) {
            continue;
        }
        fputs(count++ > 0 ? ", `" : "`", stream);
        for (const char *c = row->key != NULL ? row->key : row->name; *c != '\0'; c++) {
            fputc(*c == '-' ? '_' : *c, stream);
        }
        fputc('`', stream);
    }
    fputs(".\n", stream);
}

static void write_rpexec_columns(FILE *stream)
{
    fputs("\n## JSON\n\nOne object. A metric has the value in a [store](store.md), times in "
          "picoseconds, arrays as their largest value.\n\n"
          "| key | unit | metric | value |\n|---|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < rpexec_column_count; i++) {
        const rpexec_column *c = &rpexec_columns[i];
        if (!c->unlisted) {
            write_column(c->key, c->unit, c->metric, c->help, stream);
        }
    }
    const char *before = "\nMetrics without a key:";
    for (uint32_t i = 0; i < rpexec_column_count; i++) {
        if (rpexec_columns[i].unlisted && rpexec_columns[i].metric != NULL) {
            fprintf(stream, "%s `%s`", before, rpexec_columns[i].metric);
            before = ",";
        }
    }
    fputs(".\n", stream);
    fputs("\nThe settings follow under the names of their options with `_` for `-`; switches are 0 "
          "or 1: ",
          stream);
    write_settings(rpexec_command_line(), stream);
    fputs("\n## CSV of `--loss-out`\n\nA row for each step, and a second row for a step that is "
          "evaluated. A run that resumes drops the rows after the step of its checkpoint, so that "
          "every step stands there once.\n\n| key | unit | value |\n|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < rpexec_step_column_count; i++) {
        const rpexec_step_column *c = &rpexec_step_columns[i];
        fprintf(stream, "| `%s` | %s | %s |\n", c->key, c->unit != NULL ? c->unit : "", c->help);
    }
}

void docs_write_rpsim(FILE *stream)
{
    rp_options_markdown(&rpsim_command_line, stream);
    write_rpsim_columns(stream);
    WRITE_OUTPUTS(of_studies, stream);
    write_explanation(stream);
}

void docs_write_rpadvise(FILE *stream)
{
    rp_options_markdown(&rpadvise_command_line, stream);
    WRITE_OUTPUTS(of_rpadvise, stream);
}

void docs_write_rpexec(FILE *stream)
{
    rp_options_markdown(rpexec_command_line(), stream);
    write_rpexec_columns(stream);
    WRITE_OUTPUTS(of_records, stream);
}

void docs_write_rpsweep(FILE *stream)
{
    rp_options_markdown(&rpsweep_command_line, stream);
    fputs("\nThe tables and views that `export` prints: [store](store.md).\n", stream);
}
