#include "common/program/read_internal.h"

#include <string.h>

bool rp_read_line(rp_reader *r)
{
    while (r->cursor < r->end) {
        const char *begin = r->cursor;
        const char *newline = memchr(begin, '\n', (size_t)(r->end - begin));
        const char *stop = newline != NULL ? newline : r->end;
        r->cursor = newline != NULL ? newline + 1 : r->end;
        r->line++;
        const char *comment = memchr(begin, '#', (size_t)(stop - begin));
        r->word_begin = begin;
        r->line_end = comment != NULL ? comment : stop;
        while (r->word_begin < r->line_end && *r->word_begin == ' ') {
            r->word_begin++;
        }
        if (r->word_begin < r->line_end) {
            return true;
        }
    }
    r->line = r->line > 0 ? r->line : 1; /* even an empty file has a first line */
    return false;
}

bool rp_read_word(rp_reader *r)
{
    while (r->word_begin < r->line_end && *r->word_begin == ' ') {
        r->word_begin++;
    }
    size_t length = 0;
    for (; r->word_begin < r->line_end && *r->word_begin != ' '; r->word_begin++) {
        if (length + 1 == RP_READ_MAX_WORD) {
            memcpy(&r->word[RP_READ_MAX_WORD - 4], "...", 4);
            continue;
        }
        bool plain = *r->word_begin > ' ' && *r->word_begin <= '~';
        r->word[length++] = plain ? *r->word_begin : '?';
    }
    r->word[length] = '\0';
    return length != 0;
}

rp_status rp_read_number(rp_reader *r, const char *what, uint64_t low, uint64_t high,
                         uint64_t *value_out)
{
    if (!rp_read_word(r)) {
        RP_READ_FAIL(r, "%s is missing; valid values are %llu to %llu", what,
                     (unsigned long long)low, (unsigned long long)high);
    }
    if (!rp_parse_u64(r->word, low, high, value_out)) {
        RP_READ_FAIL(r, "%s: '%s' is not valid; valid values are %llu to %llu", what, r->word,
                     (unsigned long long)low, (unsigned long long)high);
    }
    return RP_OK;
}

rp_status rp_read_line_end(rp_reader *r)
{
    if (rp_read_word(r)) {
        RP_READ_FAIL(r, "'%s' is one word too many", r->word);
    }
    return RP_OK;
}

rp_status rp_read_key(rp_reader *r, const char *key)
{
    if (!rp_read_line(r)) {
        RP_READ_FAIL(r, "the file ends where '%s' is expected", key);
    }
    rp_read_word(r);
    if (strcmp(r->word, key) != 0) {
        RP_READ_FAIL(r, "'%s' where '%s' is expected", r->word, key);
    }
    return RP_OK;
}
