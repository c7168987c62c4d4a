#include "common/cli/option_values.h"

#include "common/base/log.h"
#include "common/base/text.h"

#include <stdio.h>
#include <string.h>

/* More options than any of the programs has. */
#define MAX_OPTIONS 128

void rp_option_print(const rp_option_help *entries, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *argument = entries[i].argument != NULL ? entries[i].argument : "";
        printf("  --%s %s\n        %s\n", entries[i].option, argument, entries[i].help);
    }
}

rp_status rp_option_bad(const char *option, const char *value, const char *valid)
{
    rp_log_error("--%s: '%s' is not valid; valid values are %s", option, value, valid);
    return RP_USAGE;
}

rp_status rp_option_u32(const char *option, const char *text, uint32_t high, uint32_t *value_out)
{
    uint64_t value = 0;
    if (!rp_parse_u64(text, 1, high, &value)) {
        rp_log_error("--%s: '%s' is not valid; valid values are integers from 1 to %u", option,
                     text, high);
        return RP_USAGE;
    }
    *value_out = (uint32_t)value;
    return RP_OK;
}

rp_status rp_option_factor(const char *option, const char *text, uint32_t count, double high,
                           uint32_t *index_out, double *factor_out)
{
    char number[12]; /* of any uint32_t */
    uint64_t index = 0;
    size_t length = strcspn(text, "*");
    size_t kept = length < sizeof number ? length : 0;
    memcpy(number, text, kept);
    number[kept] = '\0';
    if (text[length] == '\0' || !rp_parse_u64(number, 0, count - 1, &index) ||
        !rp_parse_double(text + length + 1, 1, high, factor_out)) {
        rp_log_error("--%s: '%s' is not valid; valid values are N*FACTOR, N from 0 to %u and "
                     "FACTOR from 1 to %g",
                     option, text, count - 1, high);
        return RP_USAGE;
    }
    *index_out = (uint32_t)index;
    return RP_OK;
}

rp_status rp_option_list(const char *option, const char *text, rp_arena *arena,
                         const char ***names_out, uint32_t *count_out)
{
    size_t commas = 0;
    for (const char *c = text; *c != '\0'; c++) {
        commas += *c == ',' ? 1 : 0;
    }
    const char **names = NULL;
    RP_TRY(rp_arena_alloc(arena, commas + 1, sizeof *names, &names));
    const char *begin = text;
    for (size_t i = 0; i <= commas; i++) {
        size_t length = strcspn(begin, ",");
        if (length == 0) {
            return rp_option_bad(option, text, "names separated by single commas");
        }
        RP_TRY(rp_arena_copy_text(arena, begin, length, &names[i]));
        begin += length + 1;
    }
    *names_out = names;
    *count_out = (uint32_t)(commas + 1);
    return RP_OK;
}

rp_status rp_option_choice(const char *option, const char *text, const char *names,
                           uint32_t *index_out)
{
    uint32_t index = 0;
    size_t wanted = strlen(text);
    for (const char *begin = names; *begin != '\0'; index++) {
        size_t length = strcspn(begin, "|");
        if (length == wanted && memcmp(begin, text, length) == 0) {
            *index_out = index;
            return RP_OK;
        }
        begin += length + (begin[length] == '|' ? 1 : 0);
    }
    return rp_option_bad(option, text, names);
}

rp_status rp_option_unknown(const char *program, const char *text, int result,
                            const struct option *options)
{
    if (result == ':') {
        rp_log_error("%s: the value is missing; see %s --help", text, program);
        return RP_USAGE;
    }
    const char *names[MAX_OPTIONS];
    size_t count = 0;
    for (; options[count].name != NULL && count < MAX_OPTIONS; count++) {
        names[count] = options[count].name;
    }
    const char *word = strncmp(text, "--", 2) == 0 ? text + 2 : text;
    const char *nearest = rp_text_nearest(word, names, count);
    rp_log_error("%s: unknown or incomplete option%s%s; see %s --help for the valid ones", text,
                 nearest != NULL ? "; did you mean --" : "", nearest != NULL ? nearest : "",
                 program);
    return RP_USAGE;
}

rp_status rp_option_command(const char *program, int argc, char **argv, rp_arena *arena,
                            const char **command_out)
{
    rp_text text = {0};
    rp_status status = rp_text_append(&text, program, strlen(program));
    for (int i = 1; i < argc && status == RP_OK; i++) {
        status = rp_text_print(&text, " %s", argv[i]);
    }
    if (status == RP_OK) {
        status = rp_arena_copy_text(arena, text.bytes, text.length, command_out);
    }
    rp_text_fini(&text);
    return status;
}
