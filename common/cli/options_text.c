/* Values as the text that their options take, from the rows. */
#include "common/cli/options_internal.h"

#include "common/base/log.h"
#include "common/base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

size_t rp_options_choice(const rp_option *row, const char *member, const char **choice_out)
{
    const char *choices = row->choices;
    uint32_t index = 0;
    memcpy(&index, member, row->to.size < sizeof index ? row->to.size : sizeof index);
    for (; index > 0; index--) {
        choices += rp_options_piece(&choices, "|");
    }
    size_t length = rp_options_piece(&choices, "|");
    *choice_out = choices;
    return length;
}

/* Reads a flag, an enum or a count; a bool is a single byte. */
static uint32_t number_at(const void *object, rp_option_member of)
{
    uint32_t number = 0;
    memcpy(&number, (const char *)object + of.offset,
           of.size < sizeof number ? of.size : sizeof number);
    return number;
}

/* Gives the shortest text that reads as this number. */
static rp_status text_of_real(double real, rp_arena *arena, const char **text_out)
{
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, real);
        if (strtod(text, NULL) == real) {
            break;
        }
    }
    return rp_arena_copy_text(arena, text, strlen(text), text_out);
}

static rp_status text_of_list(const rp_option *row, const void *object, rp_arena *arena,
                              const char **text_out)
{
    const char *const *names = NULL;
    memcpy(&names, (const char *)object + row->to.offset, sizeof(void *));
    for (uint32_t i = 0; i < number_at(object, row->count); i++) {
        RP_TRY(rp_arena_print(arena, text_out, "%s%s%s", i != 0 ? *text_out : "", i != 0 ? "," : "",
                              names[i]));
    }
    return RP_OK;
}

/* A member that is 0 counts as not given unless the row has `given` or `usual`. */
static rp_status text_of_value(const rp_option *row, const void *object, rp_arena *arena,
                               const char **text_out)
{
    const char *member = (const char *)object + row->to.offset;
    bool zero = row->given.size != 0 || row->usual != NULL;
    uint32_t number = number_at(object, row->to);
    uint64_t u64 = 0;
    double real = 0;
    switch (row->kind) {
    case RP_OPTION_FLAG:
        *text_out = number == (row->means != 0 ? row->means : 1) ? "" : NULL;
        return RP_OK;
    case RP_OPTION_U32:
        if (number == 0) {
            *text_out = row->all ? "all" : NULL;
            return RP_OK;
        }
        return rp_arena_print(arena, text_out, "%u", number);
    case RP_OPTION_U64:
        memcpy(&u64, member, sizeof u64);
        return u64 != 0 || zero ? rp_arena_print(arena, text_out, "%" PRIu64, u64) : RP_OK;
    case RP_OPTION_MIB:
        memcpy(&u64, member, sizeof u64);
        return u64 != 0 ? rp_arena_print(arena, text_out, "%" PRIu64, u64 >> 20) : RP_OK;
    case RP_OPTION_REAL:
        memcpy(&real, member, sizeof real);
        return real > 0 || zero ? text_of_real(real, arena, text_out) : RP_OK;
    case RP_OPTION_TEXT:
        memcpy(text_out, member, sizeof *text_out);
        return RP_OK;
    case RP_OPTION_CHOICE:
        if (number != 0 || zero) {
            const char *choice = NULL;
            size_t length = rp_options_choice(row, member, &choice);
            return rp_arena_copy_text(arena, choice, length, text_out);
        }
        return RP_OK;
    case RP_OPTION_LIST:
        return text_of_list(row, object, arena, text_out);
    case RP_OPTION_TAKE:
        if (row->text != NULL) {
            return row->text(row, object, arena, text_out);
        }
    }
    return rp_broken(); /* rows of this kind have no text */
}

rp_status rp_option_text(const rp_option *row, const void *object, rp_arena *arena,
                         const char **text_out)
{
    bool counts = row->given.size != 0;
    *text_out = NULL;
    if (counts && number_at(object, row->given) != (row->means != 0 ? row->means : 1)) {
        return RP_OK;
    }
    RP_TRY(text_of_value(row, object, arena, text_out));
    if (!counts && *text_out != NULL && row->usual != NULL && strcmp(*text_out, row->usual) == 0) {
        *text_out = NULL;
    }
    return RP_OK;
}

/* Appends a word, quoted for a shell. */
static rp_status add_word(const char *word, rp_text *line)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_.,/:=+@%";
    if (*word != '\0' && word[strspn(word, plain)] == '\0') {
        return rp_text_print(line, " %s", word);
    }
    RP_TRY(rp_text_print(line, " '"));
    for (; *word != '\0'; word++) {
        RP_TRY(*word == '\'' ? rp_text_print(line, "'\\''") : rp_text_print(line, "%c", *word));
    }
    return rp_text_print(line, "'");
}

rp_status rp_option_add(const rp_option *row, const void *object, rp_arena *arena, rp_text *line)
{
    const char *text = NULL;
    RP_TRY(rp_option_text(row, object, arena, &text));
    if (text == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_text_print(line, " --%s", row->name));
    return row->kind == RP_OPTION_FLAG ? RP_OK : add_word(text, line);
}
