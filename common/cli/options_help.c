/* --help: groups as headings, options in two columns, wrapped. */
#include "common/cli/options_internal.h"
#include "common/cli/paragraph.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/base/version.h"

#include <stdlib.h>
#include <string.h>

#define USUAL_COLUMNS 80u
#define HELP_COLUMN 26u
#define NARROW_COLUMNS 60u /* on narrower pages the help stands below the option */

/* Each line of `text` is a paragraph. */
static void write_paragraphs(const char *text, uint32_t columns, FILE *stream)
{
    for (size_t length = 0; (length = rp_options_piece(&text, "\n")) > 0; text += length) {
        fputc('\n', stream);
        rp_paragraph_write(text, 0, 0, columns, stream);
    }
}

static void write_row(const rp_option *row, uint32_t columns, FILE *stream)
{
    char name[160];
    uint32_t indent = columns < NARROW_COLUMNS ? 8 : HELP_COLUMN;
    const char *argument = rp_options_argument(row);
    const char letter[] = {'-', row->letter, ',', ' ', '\0'};
    (void)snprintf(name, sizeof name, "  %s--%s%s%s", row->letter != 0 ? letter : "", row->name,
                   argument != NULL ? " " : "", argument != NULL ? argument : "");
    uint32_t width = rp_paragraph_width(name, strlen(name));
    bool below = width + 2 > indent;
    fprintf(stream, "%s%s%*s", name, below ? "\n" : "", (int)(below ? indent : indent - width), "");
    rp_paragraph_write(row->help, indent, indent, columns, stream);
}

void rp_options_help(const rp_options_program *program, uint32_t columns, FILE *stream)
{
    const rp_option *rows[RP_OPTIONS_MAX];
    const char *titles[RP_OPTIONS_MAX];
    const char *usage = program->usage;
    const char *before = "Usage: ";
    for (size_t length = 0; (length = rp_options_piece(&usage, "\n")) > 0; usage += length) {
        fputs(before, stream);
        rp_paragraph_write(usage, 7, 7, columns, stream);
        before = "       ";
    }
    write_paragraphs(program->description, columns, stream);
    uint32_t count = rp_options_by_group(program, rows, titles);
    for (uint32_t i = 0; i < count; i++) {
        if (titles[i] != NULL) {
            fprintf(stream, "\n%s:\n", titles[i]);
        }
        write_row(rows[i], columns, stream);
    }
    write_paragraphs(program->notes != NULL ? program->notes : "", columns, stream);
    fputs("\nExit status: ", stream);
    rp_paragraph_write(rp_options_exit_status(program), 13, 0, columns, stream);
    fputs("Example: ", stream);
    rp_paragraph_write(program->example, 9, 9, columns, stream);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* True if the row's members have the sizes that its kind writes. */
static bool fits(const rp_option *row)
{
    static const size_t sizes[] = {
        [RP_OPTION_U32] = sizeof(uint32_t),
        [RP_OPTION_U64] = sizeof(uint64_t),
        [RP_OPTION_MIB] = sizeof(uint64_t),
        [RP_OPTION_REAL] = sizeof(double),
        [RP_OPTION_TEXT] = sizeof(void *),
        [RP_OPTION_LIST] = sizeof(void *),
        [RP_OPTION_TAKE] = 0,
    };
    bool index = row->kind == RP_OPTION_FLAG || row->kind == RP_OPTION_CHOICE;
    size_t size = row->to.size;
    bool right = index ? size == 0 || size == sizeof(bool) || size == sizeof(uint32_t)
                       : row->kind == RP_OPTION_TAKE || size == sizes[row->kind];
    return right && (row->kind != RP_OPTION_CHOICE || row->choices != NULL) &&
           (row->kind != RP_OPTION_TAKE || row->take != NULL) &&
           (row->kind != RP_OPTION_LIST || row->count.size == sizeof(uint32_t)) &&
           (row->kind == RP_OPTION_FLAG) == (rp_options_argument(row) == NULL);
}

/* False for mistakes in the tables. */
static bool is_consistent(const rp_options_program *program)
{
    for (uint32_t i = 0; rp_options_row(program, i) != NULL; i++) {
        const rp_option *row = rp_options_row(program, i);
        if (i + 1 == RP_OPTIONS_MAX || row->help == NULL || !fits(row) ||
            rp_options_find(program, row->name, strlen(row->name)) != i) {
            return false;
        }
    }
    for (uint32_t i = 0; i < program->rule_count; i++) {
        const rp_option_rule *rule = &program->rules[i];
        const char *const lists[] = {rule->given, rule->with, rule->without};
        for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
            const char *names = lists[k] != NULL ? lists[k] : "";
            for (size_t n = 0; (n = rp_options_piece(&names, " ")) > 0; names += n) {
                if (rp_options_find(program, names, n) == RP_OPTIONS_MAX) {
                    return false;
                }
            }
        }
    }
    return true;
}

rp_status rp_options_answer(const rp_options_program *program, const void *options, FILE *stream)
{
    rp_options_request request = ((const rp_options *)options)->request;
    if (request > RP_OPTIONS_VERSION && !is_consistent(program)) {
        return rp_broken();
    }
    switch (request) {
    case RP_OPTIONS_HELP:
        rp_options_help(program, rp_paragraph_columns(stream, USUAL_COLUMNS), stream);
        return RP_OK;
    case RP_OPTIONS_VERSION:
        fprintf(stream, "%s %s (commit %s)\n", program->name, rp_version(), rp_commit());
        return RP_OK;
    case RP_OPTIONS_MAN:
        rp_options_man(program, stream);
        return RP_OK;
    case RP_OPTIONS_BASH:
        rp_options_bash(program, stream);
        return RP_OK;
    case RP_OPTIONS_ZSH:
        rp_options_zsh(program, stream);
        return RP_OK;
    case RP_OPTIONS_RUN:
        break;
    }
    return rp_broken();
}
