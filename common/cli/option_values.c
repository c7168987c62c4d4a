#include "common/cli/option_values.h"

#include "common/base/reason.h"
#include "common/base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_NUMBER 40u   /* bytes of a number and the letter after it */
#define MOST_EXACT 0x1p53 /* a double represents all integers up to this */

rp_log_words rp_option_key(const char *option)
{
    rp_log_words key;
    (void)snprintf(key.text, sizeof key.text, "%s", option);
    for (char *at = key.text; *at != '\0'; at++) {
        *at = (char)(*at == '-' ? '_' : *at);
    }
    return key;
}

rp_status rp_option_bad(const char *option, const char *value, const char *valid, rp_reason *reason)
{
    return rp_refuse_setting(reason, RP_USAGE, rp_option_key(option).text,
                             "'%s' is not valid; valid values are %s", value, valid);
}

rp_status rp_option_factor(const char *option, const char *text, uint32_t count, double high,
                           uint32_t *index_out, double *factor_out, rp_reason *reason)
{
    char number[12]; /* of any uint32_t */
    uint64_t index = 0;
    size_t length = strcspn(text, "*");
    size_t kept = length < sizeof number ? length : 0;
    memcpy(number, text, kept);
    number[kept] = '\0';
    if (text[length] == '\0' || !rp_parse_u64(number, 0, count - 1, &index) ||
        !rp_parse_double(text + length + 1, 1, high, factor_out)) {
        return rp_refuse_setting(reason, RP_USAGE, rp_option_key(option).text,
                                 "'%s' is not valid; valid values are N*FACTOR, N from 0 to %u and "
                                 "FACTOR from 1 to %g",
                                 text, count - 1, high);
    }
    *index_out = (uint32_t)index;
    return RP_OK;
}

/* Reads a number that k, M, B or T may follow, which stand for powers of `thousand`. */
static bool read_scaled(const char *text, double thousand, double *value_out)
{
    static const char letters[] = "kMBTKmbt";
    char number[MOST_NUMBER];
    size_t length = strlen(text);
    const char *letter = length > 1 ? strchr(letters, text[length - 1]) : NULL;
    length -= letter != NULL ? 1 : 0;
    if (length >= sizeof number) {
        return false;
    }
    memcpy(number, text, length);
    number[length] = '\0';
    bool good = rp_parse_double(number, 0, 1e18, value_out);
    if (good && letter != NULL) {
        *value_out *= pow(thousand, (double)((letter - letters) % 4) + 1);
    }
    return good;
}

bool rp_option_count(const char *text, double thousand, uint64_t low, uint64_t high,
                     uint64_t *count_out)
{
    double value = 0;
    size_t length = strlen(text);
    bool scaled = length > 0 && isalpha((unsigned char)text[length - 1]) != 0;
    if (!scaled) {
        return rp_parse_u64(text, low, high, count_out);
    }
    if (!read_scaled(text, thousand, &value) || !(value <= MOST_EXACT)) {
        return false;
    }
    double whole = round(value); /* 2.3 has no exact double, 2.3k is 2300 */
    *count_out = (uint64_t)whole;
    return fabs(value - whole) <= 1e-9 * value && *count_out >= low && *count_out <= high;
}

rp_status rp_option_tokens(const char *option, const char *text, double *tokens_out,
                           rp_reason *reason)
{
    if (!read_scaled(text, 1000, tokens_out) || !(*tokens_out >= 1) || *tokens_out > 1e18) {
        return rp_option_bad(option, text,
                             "counts from 1, also with k, M, B or T behind them, such as 300M",
                             reason);
    }
    return RP_OK;
}

rp_status rp_option_list(const char *option, const char *text, rp_arena *arena,
                         const char ***names_out, uint32_t *count_out, rp_reason *reason)
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
            return rp_option_bad(option, text, "names separated by single commas", reason);
        }
        RP_TRY(rp_arena_copy_text(arena, begin, length, &names[i]));
        begin += length + 1;
    }
    *names_out = names;
    *count_out = (uint32_t)(commas + 1);
    return RP_OK;
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
