/* Completion functions of bash and zsh, from the rows. */
#include "common/cli/options_internal.h"

#include <ctype.h>
#include <string.h>

/* Completion of a single argument, derived from its placeholder. */
typedef struct completion {
    char words[256]; /* separated by blanks */
    bool files;
    bool folders;
    bool names;
} completion;

static bool is(const char *piece, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(piece, word, length) == 0;
}

/* True if a piece of a placeholder is a value itself: small letters and digits only. */
static bool is_word(const char *piece, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!islower((unsigned char)piece[i]) && !isdigit((unsigned char)piece[i]) &&
            piece[i] != '-' && piece[i] != '.') {
            return false;
        }
    }
    return piece[0] != '-' && piece[0] != '.';
}

static completion completion_of(const char *argument)
{
    completion c = {0};
    for (size_t n = 0; (n = rp_options_piece(&argument, "|")) > 0; argument += n) {
        size_t plain = strcspn(argument, "[|");
        size_t used = strlen(c.words);
        if (is_word(argument, n)) {
            (void)snprintf(c.words + used, sizeof c.words - used, "%s%.*s", used > 0 ? " " : "",
                           (int)n, argument);
        }
        c.files |= is(argument, plain, "F") || is(argument, plain, "FILE") ||
                   is(argument, plain, "PREFIX");
        c.folders |= is(argument, plain, "DIR");
        c.names |= is(argument, plain, "NAME");
    }
    return c;
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void write_bash(const completion *c, const char *names, FILE *stream)
{
    if (c->words[0] != '\0') {
        fprintf(stream, "        words='%s'\n", c->words);
    }
    if (c->names && names != NULL) {
        fprintf(stream,
                "        words+=\" $(rpsim --list %s --format csv 2>/dev/null | tail -n +2 | "
                "cut -d, -f1)\"\n",
                names);
    }
    if (c->files || c->folders) {
        fprintf(stream, "        kind=%s\n", c->files ? "-f" : "-d");
    }
}

void rp_options_bash(const rp_options_program *program, FILE *stream)
{
    const char *name = program->name;
    fprintf(stream,
            "# bash completion of %s, made from its options.\n"
            "_%s()\n{\n"
            "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
            "    local words= kind= item\n"
            "    COMPREPLY=()\n"
            "    if [[ $cur == = ]]; then\n"
            "        cur=\n"
            "    elif [[ $prev == = ]]; then\n"
            "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
            "    fi\n"
            "    case $prev in\n",
            name, name);
    for (uint32_t i = 0; rp_options_row(program, i) != NULL; i++) {
        const rp_option *row = rp_options_row(program, i);
        if (rp_options_argument(row) != NULL) {
            const completion c = completion_of(rp_options_argument(row));
            fprintf(stream, "    --%s)\n", row->name);
            write_bash(&c, row->names, stream);
            fputs("        ;;\n", stream);
        }
    }
    fputs("    *)\n", stream);
    const completion c = completion_of(program->words != NULL ? program->words : "");
    write_bash(&c, NULL, stream);
    fputs("        [[ $cur != -* ]] || kind= words='", stream);
    for (uint32_t i = 0; rp_options_row(program, i) != NULL; i++) {
        fprintf(stream, "%s--%s", i > 0 ? " " : "", rp_options_row(program, i)->name);
    }
    fprintf(stream,
            "'\n        ;;\n    esac\n"
            "    [[ -z $kind ]] || compopt -o filenames 2>/dev/null\n"
            "    while IFS= read -r item; do\n"
            "        COMPREPLY+=(\"$item\")\n"
            "    done < <(compgen ${kind:+$kind} -W \"$words\" -- \"$cur\")\n"
            "}\ncomplete -F _%s %s\n",
            name, name);
}

/* ---- zsh ------------------------------------------------------------------------------------- */

/* Writes text inside '…' in a specification of _arguments, in which [ ] and : have a meaning. */
static void write_quoted(const char *text, FILE *stream)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs("'\\''", stream);
        } else {
            fprintf(stream, "%s%c", strchr("[]:\\", *text) != NULL ? "\\" : "", *text);
        }
    }
}

/* ":PLACEHOLDER: FUNCTION KIND NAMES WORDS"; the blank keeps _arguments from adding arguments. */
static void write_zsh(const char *program, const char *argument, const char *names, FILE *stream)
{
    const completion c = completion_of(argument);
    fputc(':', stream);
    write_quoted(argument, stream);
    fprintf(stream, ": _%s_value %s %s %s", program,
            c.files     ? "files"
            : c.folders ? "folders"
                        : "-",
            c.names && names != NULL ? names : "-", c.words);
}

void rp_options_zsh(const rp_options_program *program, FILE *stream)
{
    fprintf(stream,
            "#compdef %s\n# zsh completion of %s, made from its options.\n"
            "_%s_value()\n{\n"
            "    local kind=$1 names=$2\n"
            "    shift 2\n"
            "    local -a words=(\"$@\")\n"
            "    [[ $names == - ]] || words+=(${(f)\"$(rpsim --list $names --format csv "
            "2>/dev/null | tail -n +2 | cut -d, -f1)\"})\n"
            "    compadd -a words\n"
            "    [[ $kind != files ]] || _files\n"
            "    [[ $kind != folders ]] || _files -/\n"
            "}\n_arguments -S",
            program->name, program->name, program->name);
    for (uint32_t i = 0; rp_options_row(program, i) != NULL; i++) {
        const rp_option *row = rp_options_row(program, i);
        const char *argument = rp_options_argument(row);
        fprintf(stream, " \\\n    '%s--%s%s[", row->repeats ? "*" : "", row->name,
                argument != NULL ? "=" : "");
        write_quoted(row->help, stream);
        fputc(']', stream);
        if (argument != NULL) {
            write_zsh(program->name, argument, row->names, stream);
        }
        fputc('\'', stream);
    }
    if (program->words != NULL) {
        fputs(" \\\n    '*", stream);
        write_zsh(program->name, program->words, NULL, stream);
        fputc('\'', stream);
    }
    fputc('\n', stream);
}
