#include "common/cli/options_internal.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"

#include <inttypes.h>
#include <string.h>

/* ---- rows ------------------------------------------------------------------------------------ */

#define REQUEST(asked)                                                                             \
    .kind = RP_OPTION_FLAG, .to = RP_OPTION_MEMBER(rp_options, request), .means = (asked)

/* Rows that follow the own rows of every program. */
static const rp_option standard[] = {
    {.name = "help", .letter = 'h', .help = "this text", REQUEST(RP_OPTIONS_HELP)},
    {.name = "version", .letter = 'V', .help = "version, git commit", REQUEST(RP_OPTIONS_VERSION)},
};
#define STANDARD_COUNT ((uint32_t)(sizeof standard / sizeof standard[0]))

/* Options for the build, which --help does not list. */
static const rp_option hidden[] = {
    {.name = "print-man", REQUEST(RP_OPTIONS_MAN)},
    {.name = "print-bash", REQUEST(RP_OPTIONS_BASH)},
    {.name = "print-zsh", REQUEST(RP_OPTIONS_ZSH)},
};

const rp_option *rp_options_row(const rp_options_program *program, uint32_t index)
{
    if (index < program->row_count) {
        return &program->rows[index];
    }
    index -= program->row_count;
    return index < STANDARD_COUNT ? &standard[index] : NULL;
}

uint32_t rp_options_by_group(const rp_options_program *program, const rp_option **rows_out,
                             const char **titles_out)
{
    uint32_t count = 0;
    for (uint32_t g = 0; g <= program->group_count; g++) {
        bool own = g < program->group_count;
        const char *title = own ? program->groups[g].title : "Help";
        const rp_option *rows = own ? program->rows : standard;
        for (uint32_t i = 0; i < (own ? program->row_count : STANDARD_COUNT); i++) {
            if (!own || rows[i].group == g) {
                rows_out[count] = &rows[i];
                titles_out[count++] = title;
                title = NULL;
            }
        }
    }
    return count;
}

const char *rp_options_exit_status(const rp_options_program *program)
{
    return program->exit_status != NULL ? program->exit_status
                                        : "0 success, 1 the run failed, 2 bad usage or bad input.";
}

const char *rp_options_argument(const rp_option *row)
{
    return row->argument != NULL ? row->argument : row->choices;
}

static bool has_name(const rp_option *row, const char *name, size_t length)
{
    return row->name[0] == name[0] && strncmp(row->name, name, length) == 0 &&
           row->name[length] == '\0';
}

uint32_t rp_options_find(const rp_options_program *program, const char *name, size_t length)
{
    for (uint32_t i = 0; rp_options_row(program, i) != NULL; i++) {
        if (has_name(rp_options_row(program, i), name, length)) {
            return i;
        }
    }
    return RP_OPTIONS_MAX;
}

size_t rp_options_piece(const char **text, const char *separators)
{
    *text += strspn(*text, separators);
    return strcspn(*text, separators);
}

#define LARGE 1000 /* larger counts are also written with k, M and B */

/* ---- values ---------------------------------------------------------------------------------- */

static void put(void *options, rp_option_member to, uint32_t value)
{
    char *member = (char *)options + to.offset;
    if (to.size == sizeof(bool)) {
        bool flag = value != 0;
        memcpy(member, &flag, sizeof flag);
    } else if (to.size == sizeof value) {
        memcpy(member, &value, sizeof value);
    }
}

static rp_status refuse(const rp_option *row, const char *text, rp_reason *reason)
{
    char valid[80];
    switch (row->kind) {
    case RP_OPTION_U32:
    case RP_OPTION_MIB:
        (void)snprintf(valid, sizeof valid, "%sintegers from 1 to %.0f%s",
                       row->all ? "all and " : "", row->most,
                       row->most >= LARGE ? ", also with k, M or B behind them" : "");
        break;
    case RP_OPTION_REAL:
        (void)snprintf(valid, sizeof valid, "numbers from 0 to %g", row->most);
        break;
    case RP_OPTION_U64:
        (void)snprintf(valid, sizeof valid, "integers from 0 to 18446744073709551615");
        break;
    case RP_OPTION_FLAG:
    case RP_OPTION_TEXT:
    case RP_OPTION_CHOICE:
    case RP_OPTION_LIST:
    case RP_OPTION_TAKE:
        return rp_option_bad(row->name, text, row->valid != NULL ? row->valid : row->choices,
                             reason);
    }
    return rp_option_bad(row->name, text, row->valid != NULL ? row->valid : valid, reason);
}

/* The place of `text` among the choices, or how many there are. */
static uint32_t choice_of(const char *choices, const char *text, bool *found_out)
{
    uint32_t index = 0;
    size_t wanted = strlen(text);
    size_t length = 0;
    *found_out = false;
    for (; (length = rp_options_piece(&choices, "|")) > 0; choices += length, index++) {
        if (length == wanted && memcmp(choices, text, length) == 0) {
            *found_out = true;
            break;
        }
    }
    return index;
}

static rp_status take_text(const rp_option *row, const char *text, void *options, rp_reason *reason)
{
    bool found = false;
    if (row->choices != NULL) {
        (void)choice_of(row->choices, text, &found);
        if (!found) {
            return refuse(row, text, reason);
        }
    }
    if (row->none != NULL && strcmp(text, row->none) == 0) {
        text = NULL;
    }
    memcpy((char *)options + row->to.offset, &text, sizeof text);
    return RP_OK;
}

static rp_status take_value(const rp_option *row, const char *text, rp_arena *arena, void *options,
                            rp_reason *reason)
{
    char *member = (char *)options + row->to.offset;
    uint64_t integer = 0;
    double real = 0;
    bool good = true;
    const char **names = NULL;
    uint32_t count = 0;
    switch (row->kind) {
    case RP_OPTION_FLAG:
        put(options, row->to, row->means != 0 ? row->means : 1);
        break;
    case RP_OPTION_U32:
        good = rp_option_count(text, row->binary ? 1024 : 1000, 1, (uint64_t)row->most, &integer);
        good = good || (row->all && strcmp(text, "all") == 0);
        put(options, row->to, (uint32_t)integer);
        break;
    case RP_OPTION_U64:
        good = rp_parse_u64(text, 0, UINT64_MAX, &integer);
        memcpy(member, &integer, sizeof integer);
        break;
    case RP_OPTION_MIB:
        good = rp_option_count(text, row->binary ? 1024 : 1000, 1, (uint64_t)row->most, &integer);
        integer <<= 20;
        memcpy(member, &integer, sizeof integer);
        break;
    case RP_OPTION_REAL:
        good = rp_parse_double(text, 0, row->most, &real);
        memcpy(member, &real, sizeof real);
        break;
    case RP_OPTION_CHOICE:
        integer = choice_of(row->choices, text, &good);
        if (!good && row->aliases != NULL) {
            integer = choice_of(row->aliases, text, &good);
        }
        put(options, row->to, (uint32_t)integer);
        break;
    case RP_OPTION_TEXT:
        return take_text(row, text, options, reason);
    case RP_OPTION_LIST:
        RP_TRY(rp_option_list(row->name, text, arena, &names, &count, reason));
        memcpy(member, &names, sizeof(void *));
        put(options, row->count, count);
        break;
    case RP_OPTION_TAKE:
        return row->take(row, text, arena, options, reason);
    }
    return good ? RP_OK : refuse(row, text, reason);
}

rp_status rp_option_assign(const rp_option *row, const char *text, rp_arena *arena, void *object,
                           rp_reason *reason)
{
    RP_TRY(take_value(row, text, arena, object, reason));
    put(object, row->given, row->means != 0 ? row->means : 1);
    return RP_OK;
}

rp_status rp_option_check(const rp_option *row, const void *object, rp_reason *reason)
{
    const char *member = (const char *)object + row->to.offset;
    char text[32];
    uint32_t u32 = 0;
    uint64_t bytes = 0;
    double number = 0;
    if (row->kind == RP_OPTION_U32) {
        memcpy(&u32, member, sizeof u32);
        number = u32;
    } else if (row->kind == RP_OPTION_MIB) {
        memcpy(&bytes, member, sizeof bytes);
        number = (double)(bytes >> 20);
    } else if (row->kind == RP_OPTION_REAL) {
        memcpy(&number, member, sizeof number);
    }
    if (number <= row->most) {
        return RP_OK;
    }
    (void)snprintf(text, sizeof text, "%.15g", number);
    return refuse(row, text, reason);
}

static rp_status assign_count(const rp_option *row, uint64_t count, rp_arena *arena, void *object,
                              rp_reason *reason)
{
    const char *text = NULL;
    if (row->kind == RP_OPTION_U32 && count >= 1 && count <= (uint64_t)row->most) {
        put(object, row->to, (uint32_t)count);
    } else if (row->kind == RP_OPTION_U64) {
        memcpy((char *)object + row->to.offset, &count, sizeof count);
    } else { /* a rule of its own, or refused */
        RP_TRY(rp_arena_print(arena, &text, "%" PRIu64, count));
        RP_TRY(take_value(row, text, arena, object, reason));
    }
    put(object, row->given, row->means != 0 ? row->means : 1);
    return RP_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Makes the option whose name has `length` bytes the subject of a refusal. */
static rp_status about(const char *name, size_t length, rp_status status, rp_reason *reason)
{
    if (reason != NULL && reason->status != RP_OK) {
        (void)snprintf(reason->subject, sizeof reason->subject, "%.*s", (int)length, name);
        for (char *at = reason->subject; *at != '\0'; at++) {
            *at = (char)(*at == '-' ? '_' : *at);
        }
    }
    return status;
}

static rp_status about_row(const rp_option *row, rp_status status, rp_reason *reason)
{
    return row != NULL ? about(row->name, strlen(row->name), status, reason) : status;
}

static const char *name_in(const char *word)
{
    return strncmp(word, "--", 2) == 0 ? word + 2 : word;
}

static rp_status refuse_unknown(const rp_options_program *program, const char *word,
                                rp_reason *reason)
{
    const char *names[RP_OPTIONS_MAX];
    size_t count = 0;
    for (; rp_options_row(program, (uint32_t)count) != NULL; count++) {
        names[count] = rp_options_row(program, (uint32_t)count)->name;
    }
    const char *name = name_in(word);
    const char *nearest = rp_text_nearest(name, names, count);
    rp_status status = rp_refuse(
        reason, RP_USAGE, "%s: unknown or incomplete option%s%s; see %s --help for the valid ones",
        word, nearest != NULL ? "; did you mean --" : "", nearest != NULL ? nearest : "",
        program->name);
    return about(name, strcspn(name, "="), status, reason);
}

static rp_status refuse_missing(const rp_options_program *program, const char *word,
                                rp_reason *reason)
{
    const char *name = name_in(word);
    return about(
        name, strcspn(name, "="),
        rp_refuse(reason, RP_USAGE, "%s: the value is missing; see %s --help", word, program->name),
        reason);
}

/* The row of a name. The name may be shortened if it is the beginning of a single row's name, and a
 * plural may lack its s: --gpu means --gpus even though --gpu-memory exists. RP_OPTIONS_MAX:
 * none. */
static uint32_t find_cut(const rp_options_program *program, const char *name, size_t length)
{
    uint32_t found = rp_options_find(program, name, length);
    uint32_t begun = 0;
    uint32_t last = RP_OPTIONS_MAX;
    for (uint32_t i = 0; found == RP_OPTIONS_MAX && rp_options_row(program, i) != NULL; i++) {
        const char *row = rp_options_row(program, i)->name;
        bool begins = strncmp(row, name, length) == 0;
        begun += begins;
        last = begins ? i : last;
        found = begins && strcmp(row + length, "s") == 0 ? i : found;
    }
    return found == RP_OPTIONS_MAX && begun == 1 ? last : found;
}

/* Notes that an option was given; options that repeat keep all their texts. */
static rp_status note(const rp_option *row, uint32_t index, const char *value, rp_arena *arena,
                      rp_options *options)
{
    const char **text = &options->given[index].text;
    options->given[index].when = ++options->given_count;
    bool joins = *text != NULL && value != NULL && row->repeats;
    *text = joins ? *text : value;
    return joins ? rp_arena_print(arena, text, "%s,%s", *text, value) : RP_OK;
}

rp_status rp_options_set(const rp_options_program *program, const char *key, const char *text,
                         rp_arena *arena, void *options, rp_reason *reason)
{
    uint32_t index = find_cut(program, key, strlen(key));
    const rp_option *row = index < RP_OPTIONS_MAX ? rp_options_row(program, index) : NULL;
    bool flag = row != NULL && row->kind == RP_OPTION_FLAG;
    if (row == NULL || flag != (text == NULL)) {
        const char *word = NULL;
        RP_TRY(rp_arena_print(arena, &word, "--%s%s%s", key, text != NULL ? "=" : "",
                              text != NULL ? text : ""));
        return row != NULL && !flag ? refuse_missing(program, word, reason)
                                    : refuse_unknown(program, word, reason);
    }
    RP_TRY(about_row(row, rp_option_assign(row, text, arena, options, reason), reason));
    return note(row, index, text, arena, options);
}

rp_status rp_options_set_count(const rp_options_program *program, const char *key, uint64_t count,
                               rp_arena *arena, void *options, rp_reason *reason)
{
    uint32_t index = rp_options_find(program, key, strlen(key));
    if (index == RP_OPTIONS_MAX) {
        return rp_broken();
    }
    const rp_option *row = rp_options_row(program, index);
    RP_TRY(about_row(row, assign_count(row, count, arena, options, reason), reason));
    return note(row, index, NULL, arena, options);
}

/* ---- words of the command line --------------------------------------------------------------- */

typedef struct scan {
    const rp_options_program *program;
    int argc;
    char **argv;
    int at; /* the next word */
    rp_arena *arena;
    rp_options *options; /* followed by the program's own members */
} scan;

/* @param value NULL: none was given with the option itself */
static rp_status take_option(scan *s, const rp_option *row, uint32_t index, const char *word,
                             const char *value, rp_reason *reason)
{
    bool flag = row->kind == RP_OPTION_FLAG;
    if (flag && value != NULL) {
        return refuse_unknown(s->program, word, reason);
    }
    if (!flag && value == NULL && s->at == s->argc) {
        return refuse_missing(s->program, word, reason);
    }
    if (!flag && value == NULL) {
        value = s->argv[s->at++];
    }
    RP_TRY(about_row(row, rp_option_assign(row, value, s->arena, s->options, reason), reason));
    return index < RP_OPTIONS_MAX ? note(row, index, value, s->arena, s->options) : RP_OK;
}

static rp_status take_letter(scan *s, const char *word, rp_reason *reason)
{
    for (uint32_t i = 0; rp_options_row(s->program, i) != NULL; i++) {
        const rp_option *row = rp_options_row(s->program, i);
        if (row->letter == word[1]) {
            return take_option(s, row, i, word, word[2] != '\0' ? word + 2 : NULL, reason);
        }
    }
    return refuse_unknown(s->program, word, reason);
}

/* "--NAME" or "--NAME=VALUE". */
static rp_status take_name(scan *s, const char *word, rp_reason *reason)
{
    const char *name = word + 2;
    size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        if (has_name(&hidden[i], name, length)) {
            return take_option(s, &hidden[i], RP_OPTIONS_MAX, word, value, reason);
        }
    }
    uint32_t found = find_cut(s->program, name, length);
    return found < RP_OPTIONS_MAX
               ? take_option(s, rp_options_row(s->program, found), found, word, value, reason)
               : refuse_unknown(s->program, word, reason);
}

rp_status rp_options_parse(const rp_options_program *program, int argc, char **argv,
                           rp_arena *arena, void *options, rp_reason *reason)
{
    scan s = {.program = program, .argc = argc, .argv = argv, .at = 1};
    bool ended = false;
    s.arena = arena;
    s.options = options;
    RP_TRY(rp_arena_alloc(arena, (size_t)argc + 1, sizeof *s.options->words, &s.options->words));
    while (s.at < argc && s.options->request == RP_OPTIONS_RUN) {
        const char *word = argv[s.at++];
        if (!ended && strcmp(word, "--") == 0) {
            ended = true;
        } else if (!ended && word[0] == '-' && word[1] == '-') {
            RP_TRY(take_name(&s, word, reason));
        } else if (!ended && word[0] == '-' && word[1] != '\0') {
            RP_TRY(take_letter(&s, word, reason));
        } else if (program->words == NULL) {
            return rp_refuse(reason, RP_USAGE, "'%s': valid are options only; see %s --help", word,
                             program->name);
        } else {
            s.options->words[s.options->word_count++] = word;
        }
    }
    return RP_OK;
}

/* ---- combinations ---------------------------------------------------------------------------- */

/* The first option with a mark that was given. */
static const rp_option *find_marked(const rp_options_program *program, const rp_options *options,
                                    unsigned mark)
{
    for (uint32_t i = 0; i < program->row_count; i++) {
        if (options->given[i].when != 0 && (program->rows[i].marks & mark) != 0) {
            return &program->rows[i];
        }
    }
    return NULL;
}

/* Finds the first given option among `names`, or, with a `mark`, among those that have it. */
static rp_status find_given(const rp_options_program *program, const rp_options *options,
                            const char *names, unsigned mark, const rp_option **row_out)
{
    *row_out = NULL;
    if (mark != 0) {
        *row_out = find_marked(program, options, mark);
        return RP_OK;
    }
    names = names != NULL ? names : "";
    for (size_t length = 0; (length = rp_options_piece(&names, " ")) > 0; names += length) {
        uint32_t i = rp_options_find(program, names, length);
        if (i == RP_OPTIONS_MAX) {
            return rp_broken();
        }
        if (options->given[i].when != 0 && *row_out == NULL) {
            *row_out = rp_options_row(program, i);
        }
    }
    return RP_OK;
}

static rp_status refuse_combination(const rp_option_rule *rule, const rp_option *given,
                                    const void *options, rp_reason *reason)
{
    if (rule->message == NULL) {
        return RP_USAGE;
    }
    size_t length = 0;
    const char *message = rule->message;
    const char *first = rp_log_find_setting(message, &length);
    rp_log_words key = {""};
    if (given != NULL) {
        key = rp_option_key(given->name);
    } else if (first == message + 1 && strncmp(first + length, "}: ", 3) == 0) {
        (void)snprintf(key.text, sizeof key.text, "%.*s", (int)length, first);
        message = first + length + 3;
    }
    const rp_log_words words = rp_log_spell(message);
    int before = (int)strcspn(words.text, "@");
    const char *after = words.text + before + (words.text[before] == '@' ? 1 : 0);
    const char *subject = rule->subject != NULL ? rule->subject(options) : "";
    return key.text[0] != '\0'
               ? rp_refuse_setting(reason, RP_USAGE, key.text, "%.*s%s%s", before, words.text,
                                   subject, after)
               : rp_refuse(reason, RP_USAGE, "%.*s%s%s", before, words.text, subject, after);
}

static const char *output_of(const rp_option *row, const void *options)
{
    return row->output
               ? *(const char *const *)(const void *)((const char *)options + row->to.offset)
               : NULL;
}

/* Refuses two outputs to the same path; devices may take several outputs. */
static rp_status check_outputs(const rp_options_program *program, const void *options,
                               rp_reason *reason)
{
    for (uint32_t i = 0; i < program->row_count; i++) {
        const char *path = output_of(&program->rows[i], options);
        for (uint32_t k = 0; path != NULL && strncmp(path, "/dev/", 5) != 0 && k < i; k++) {
            const char *other = output_of(&program->rows[k], options);
            if (other != NULL && strcmp(other, path) == 0) {
                return rp_refuse(reason, RP_USAGE,
                                 "--%s: --%s writes %s, too; valid is a file of its own",
                                 program->rows[i].name, program->rows[k].name, path);
            }
        }
    }
    return RP_OK;
}

rp_status rp_options_check(const rp_options_program *program, const void *options,
                           rp_reason *reason)
{
    RP_TRY(check_outputs(program, options, reason));
    for (uint32_t i = 0; i < program->rule_count; i++) {
        const rp_option_rule *rule = &program->rules[i];
        const rp_option *given = NULL;
        const rp_option *with = NULL;
        const rp_option *without = NULL;
        bool needs = rule->given != NULL || rule->given_mark != 0;
        bool needs_with = rule->with != NULL || rule->with_mark != 0;
        RP_TRY(find_given(program, options, rule->given, rule->given_mark, &given));
        if (needs && given == NULL) {
            continue; /* the usual case */
        }
        RP_TRY(find_given(program, options, rule->with, rule->with_mark, &with));
        RP_TRY(find_given(program, options, rule->without, 0, &without));
        if ((needs_with && with == NULL) || without != NULL ||
            (rule->when != NULL && !rule->when(options))) {
            continue;
        }
        return refuse_combination(rule, given, options, reason);
    }
    return RP_OK;
}
