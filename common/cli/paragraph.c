#define _DEFAULT_SOURCE /* struct winsize */
#include "common/cli/paragraph.h"

#include "common/base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define LEAST_COLUMNS 40u

uint32_t rp_paragraph_columns(FILE *stream, uint32_t usual)
{
    uint64_t columns = usual;
    struct winsize size;
    const char *set = getenv("COLUMNS");
    if (set != NULL && rp_parse_u64(set, LEAST_COLUMNS, UINT32_MAX, &columns)) {
        return (uint32_t)columns;
    }
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col >= LEAST_COLUMNS) {
        return size.ws_col;
    }
    return usual;
}

uint32_t rp_paragraph_width(const char *text, size_t length)
{
    uint32_t width = 0;
    for (size_t i = 0; i < length; i++) {
        width += ((unsigned char)text[i] & 0xC0) != 0x80 ? 1 : 0;
    }
    return width;
}

/* True if the word that ends at `blank` is a number and the next word its unit. */
static bool has_unit(const char *word, const char *blank)
{
    static const char *const units[] = {"%",   "x",    "B",  "kB", "MB", "GB",      "MiB",
                                        "GiB", "GB/s", "us", "ms", "s",  "TFLOP/s", "tokens/s"};
    bool number = *blank == ' ' && blank > word && isdigit((unsigned char)blank[-1]);
    size_t length = number ? strcspn(blank + 1, " \n,;:.()") : 0;
    bool found = false;
    for (size_t i = 0; number && i < sizeof units / sizeof units[0]; i++) {
        found = found || (strlen(units[i]) == length && memcmp(units[i], blank + 1, length) == 0);
    }
    return found;
}

/* Bytes of the next word, with the unit of a number if both fit. */
static size_t next_word(const char *text, uint32_t room)
{
    size_t length = strcspn(text, " \n");
    if (has_unit(text, text + length)) {
        size_t both = length + 1 + strcspn(text + length + 1, " \n");
        length = rp_paragraph_width(text, both) <= room ? both : length;
    }
    return length;
}

/* Bytes of a word up to its last permitted break within `room` columns; the whole word if it fits
 * or has no such break. */
static size_t breakable(const char *word, size_t length, uint32_t room)
{
    size_t at = 0;
    for (size_t i = 0; i < length && rp_paragraph_width(word, i + 1) <= room; i++) {
        at = strchr(",|/", word[i]) != NULL ? i + 1 : at;
    }
    return rp_paragraph_width(word, length) <= room || at == 0 ? length : at;
}

void rp_paragraph_write(const char *text, uint32_t at, uint32_t indent, uint32_t columns,
                        FILE *stream)
{
    size_t end = strcspn(text, "\n");
    bool first = true;
    bool blank = false; /* a blank is due before the word */
    for (const char *stop = text + end; text < stop;) {
        uint32_t room = columns > indent ? columns - indent : 0;
        size_t length = breakable(text, next_word(text, room), room);
        uint32_t width = rp_paragraph_width(text, length);
        if (!first && at + (blank ? 1 : 0) + width > columns) {
            fprintf(stream, "\n%*s", (int)indent, "");
            at = indent;
        } else if (blank) {
            fputc(' ', stream);
            at++;
        }
        fwrite(text, 1, length, stream);
        at += width;
        first = false;
        text += length;
        blank = *text == ' ';
        text += blank ? 1 : 0;
    }
    fputc('\n', stream);
}
