/* Man pages in roff, from the rows. */
#include "common/cli/options_internal.h"

#include "common/base/version.h"

#include <ctype.h>
#include <string.h>

/* Writes text up to the end of its line. A line of roff must not begin with . or ', and - must be
 * escaped to stay a minus. */
static void write_text(const char *text, FILE *stream)
{
    if (*text == '.' || *text == '\'') {
        fputs("\\&", stream);
    }
    for (; *text != '\0' && *text != '\n'; text++) {
        if (*text == '\\') {
            fputs("\\e", stream);
        } else if (*text == '-') {
            fputs("\\-", stream);
        } else {
            fputc(*text, stream);
        }
    }
    fputc('\n', stream);
}

/* Each line of `text` is a paragraph, after a request such as ".PP". */
static void write_paragraphs(const char *before, const char *text, FILE *stream)
{
    for (size_t length = 0; (length = rp_options_piece(&text, "\n")) > 0; text += length) {
        fputs(before, stream);
        write_text(text, stream);
    }
}

static void write_row(const rp_option *row, FILE *stream)
{
    char names[160];
    const char *argument = rp_options_argument(row);
    const char letter[] = {'-', row->letter, ',', ' ', '\0'};
    (void)snprintf(names, sizeof names, "%s--%s%s%s", row->letter != 0 ? letter : "", row->name,
                   argument != NULL ? " " : "", argument != NULL ? argument : "");
    fputs(".TP\n.B ", stream);
    write_text(names, stream);
    write_text(row->help, stream);
}

void rp_options_man(const rp_options_program *program, FILE *stream)
{
    const rp_option *rows[RP_OPTIONS_MAX];
    const char *titles[RP_OPTIONS_MAX];
    fputs(".TH ", stream);
    for (const char *c = program->name; *c != '\0'; c++) {
        fputc(toupper((unsigned char)*c), stream);
    }
    fprintf(stream, " 1 \"\" \"rpsim %s\"\n.SH NAME\n", rp_version());
    fprintf(stream, "%s \\- ", program->name);
    write_text(program->purpose, stream);
    fputs(".SH SYNOPSIS\n.nf\n", stream);
    write_paragraphs("", program->usage, stream);
    fputs(".fi\n.SH DESCRIPTION\n", stream);
    write_paragraphs(".PP\n", program->description, stream);
    fputs(".SH OPTIONS\n", stream);
    uint32_t count = rp_options_by_group(program, rows, titles);
    for (uint32_t i = 0; i < count; i++) {
        if (titles[i] != NULL) {
            fputs(".SS ", stream);
            write_text(titles[i], stream);
        }
        write_row(rows[i], stream);
    }
    if (program->notes != NULL) {
        fputs(".SH NOTES\n", stream);
        write_paragraphs(".PP\n", program->notes, stream);
    }
    fputs(".SH EXIT STATUS\n", stream);
    write_text(rp_options_exit_status(program), stream);
    fputs(".SH EXAMPLES\n.nf\n", stream);
    write_text(program->example, stream);
    fputs(".fi\n", stream);
}
