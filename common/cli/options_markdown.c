/* Reference pages in Markdown, from the rows. */
#include "common/cli/options_internal.h"

#include <ctype.h>
#include <string.h>

/* Writes text up to the end of its line as prose in a cell of a table: names of options as code,
 * and no byte that has a meaning in Markdown. */
static void write_text(const char *text, FILE *stream)
{
    bool begins = true; /* a word */
    while (*text != '\0' && *text != '\n') {
        if (begins && strncmp(text, "--", 2) == 0 && islower((unsigned char)text[2])) {
            size_t length = 2 + strspn(text + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
            fprintf(stream, "`%.*s`", (int)length, text);
            text += length;
            begins = false;
            continue;
        }
        if (strchr("*<|", *text) != NULL) {
            fputc('\\', stream);
        }
        begins = *text == ' ' || *text == '(';
        fputc(*text++, stream);
    }
}

/* Each line of `text` is a paragraph. */
static void write_paragraphs(const char *text, FILE *stream)
{
    for (size_t length = 0; (length = rp_options_piece(&text, "\n")) > 0; text += length) {
        write_text(text, stream);
        fputs("\n\n", stream);
    }
}

static void write_row(const rp_option *row, FILE *stream)
{
    const char *argument = rp_options_argument(row);
    fputs("| `", stream);
    if (row->letter != 0) {
        fprintf(stream, "-%c, ", row->letter);
    }
    fprintf(stream, "--%s%s", row->name, argument != NULL ? " " : "");
    for (; argument != NULL && *argument != '\0'; argument++) {
        fprintf(stream, "%s%c", *argument == '|' ? "\\" : "", *argument);
    }
    fputs("` | ", stream);
    write_text(row->help, stream);
    fputs(" |\n", stream);
}

void rp_options_markdown(const rp_options_program *program, FILE *stream)
{
    const rp_option *rows[RP_OPTIONS_MAX];
    const char *titles[RP_OPTIONS_MAX];
    fprintf(stream, "`%s` ", program->name);
    write_text(program->purpose, stream);
    fprintf(stream, ".\n\n```text\n%s\n```\n\n", program->usage);
    write_paragraphs(program->description, stream);
    fputs("## Options\n", stream);
    uint32_t count = rp_options_by_group(program, rows, titles);
    for (uint32_t i = 0; i < count; i++) {
        if (titles[i] != NULL) {
            fprintf(stream, "\n### %s\n\n| option | meaning (default) |\n|---|---|\n", titles[i]);
        }
        write_row(rows[i], stream);
    }
    fputs("\n", stream);
    write_paragraphs(program->notes != NULL ? program->notes : "", stream);
    fputs("Exit status: ", stream);
    write_text(rp_options_exit_status(program), stream);
    fprintf(stream, "\n\n```text\n%s\n```\n", program->example);
}
