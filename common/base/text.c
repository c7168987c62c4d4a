#define _GNU_SOURCE /* strtod_l */
#include "common/base/text.h"

#include "common/base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* Growable text. */

static rp_status reserve(rp_text *text, size_t extra)
{
    size_t needed;
    if (__builtin_add_overflow(text->length, extra, &needed) || needed >= SIZE_MAX / 2) {
        rp_log_error("out of memory: a text of more than %zu bytes", SIZE_MAX / 2);
        return RP_NO_MEMORY;
    }
    if (needed + 1 <= text->capacity) {
        return RP_OK;
    }
    size_t capacity = text->capacity < 64 ? 64 : text->capacity * 2;
    capacity = capacity < needed + 1 ? needed + 1 : capacity;
    RP_TRY(rp_mem_resize(&text->bytes, capacity));
    text->capacity = capacity;
    return RP_OK;
}

rp_status rp_text_append(rp_text *text, const char *bytes, size_t length)
{
    RP_TRY(reserve(text, length));
    if (length > 0) {
        memcpy(text->bytes + text->length, bytes, length);
    }
    text->length += length;
    text->bytes[text->length] = '\0';
    return RP_OK;
}

rp_status rp_text_print(rp_text *text, const char *format, ...)
{
    RP_TRY(reserve(text, 64)); /* enough for most pieces, so that they are formatted only once */
    va_list arguments;
    va_start(arguments, format);
    size_t room = text->capacity - text->length;
    int length = vsnprintf(text->bytes + text->length, room, format, arguments);
    va_end(arguments);
    if (length < 0) {
        rp_log_error("a text is too long to be formatted");
        return RP_NO_MEMORY;
    }
    if ((size_t)length >= room) {
        text->bytes[text->length] = '\0';
        RP_TRY(reserve(text, (size_t)length));
        va_start(arguments, format);
        vsnprintf(text->bytes + text->length, (size_t)length + 1, format, arguments);
        va_end(arguments);
    }
    text->length += (size_t)length;
    return RP_OK;
}

void rp_text_fini(rp_text *text)
{
    rp_mem_release(&text->bytes);
    text->length = 0;
    text->capacity = 0;
}

/* Reading. */

static rp_status refuse_read(const char *path, const char *cause)
{
    rp_log_error_at(path, 0, "cannot be read: %s", cause);
    return RP_INPUT;
}

/* Opens a regular file. Never blocks on a FIFO, which is refused after the open. */
static rp_status open_regular(const char *path, int *descriptor_out)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return refuse_read(path, strerror(errno));
    }
    struct stat status;
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(descriptor);
        return refuse_read(path, "not a regular file");
    }
    *descriptor_out = descriptor;
    return RP_OK;
}

static rp_status read_all(const char *path, int descriptor, size_t limit, rp_text *text)
{
    for (;;) {
        RP_TRY(reserve(text, 4096));
        size_t room = text->capacity - text->length - 1;
        ssize_t got = read(descriptor, text->bytes + text->length, room);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            rp_log_error_at(path, 0, "cannot be read: %s", strerror(errno));
            return RP_IO;
        }
        text->length += (size_t)got;
        text->bytes[text->length] = '\0';
        if (text->length > limit) {
            rp_log_error_at(path, 0, "the file is too long; valid values are at most %zu bytes",
                            limit);
            return RP_INPUT;
        }
        if (got == 0) {
            return RP_OK;
        }
    }
}

rp_status rp_text_read_file(const char *path, size_t limit_bytes, rp_text *text_out)
{
    bool from_stdin = strcmp(path, "-") == 0;
    int descriptor = STDIN_FILENO;
    if (!from_stdin) {
        RP_TRY(open_regular(path, &descriptor));
    }
    text_out->length = 0;
    rp_status status = read_all(from_stdin ? "stdin" : path, descriptor, limit_bytes, text_out);
    if (!from_stdin) {
        close(descriptor);
    }
    if (status != RP_OK) {
        rp_text_fini(text_out);
    }
    return status;
}

/* Numbers. */

bool rp_parse_u64(const char *text, uint64_t low, uint64_t high, uint64_t *value_out)
{
    uint64_t value = 0;
    if (*text == '\0') {
        return false;
    }
    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value)) {
            return false;
        }
    }
    if (value < low || value > high) {
        return false;
    }
    *value_out = value;
    return true;
}

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Accepts less than strtod: no blanks, hexadecimal, "inf" or "nan". */
static bool is_decimal(const char *text)
{
    text += *text == '+' || *text == '-';
    size_t whole = count_digits(text);
    text += whole;
    size_t fraction = 0;
    if (*text == '.') {
        fraction = count_digits(++text);
        text += fraction;
    }
    if (whole + fraction == 0) {
        return false;
    }
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '+' || *text == '-';
        size_t exponent = count_digits(text);
        if (exponent == 0) {
            return false;
        }
        text += exponent;
    }
    return *text == '\0';
}

bool rp_parse_double(const char *text, double low, double high, double *value_out)
{
    if (!is_decimal(text)) {
        return false;
    }
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* glibc: no allocation */
    if (plain == (locale_t)0) {
        return false;
    }
    double value = strtod_l(text, NULL, plain);
    freelocale(plain);
    if (!isfinite(value) || value < low || value > high) {
        return false;
    }
    *value_out = value;
    return true;
}

/* Nearest name. */

#define NEAREST_MAX 63u

/* Edit distance, case ignored; both texts have at most NEAREST_MAX bytes. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[NEAREST_MAX + 1];
    for (size_t j = 0; j <= b_length; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            bool differ = tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]);
            size_t best = diagonal + differ;
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_length];
}

/* A text that is the beginning of a name counts as a single wrong letter, another part of the name
 * as two: batch-size for microbatch-size. */
static size_t name_distance(const char *text, size_t length, const char *name)
{
    size_t name_length = strlen(name);
    if (name_length > NEAREST_MAX) {
        return SIZE_MAX;
    }
    size_t distance = edit_distance(text, length, name, name_length);
    bool part = length >= 3 && name_length > length;
    size_t most = part && strncasecmp(text, name, length) == 0 ? 1
                  : part && strcasestr(name, text) != NULL     ? 2
                                                               : SIZE_MAX;
    return distance < most ? distance : most;
}

const char *rp_text_nearest(const char *text, const char *const *names, size_t count)
{
    size_t length = strlen(text);
    if (length == 0 || length > NEAREST_MAX) {
        return NULL;
    }
    const char *nearest = NULL;
    size_t least = length / 3 + 1; /* a larger distance means another name, not a typing error */
    for (size_t i = 0; i < count; i++) {
        size_t distance = name_distance(text, length, names[i]);
        if (distance < least || (distance == least && !nearest && distance < length)) {
            least = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

size_t rp_utf8_decode(const char *bytes, size_t length, uint32_t *code_out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *text = (const unsigned char *)bytes;
    unsigned char first = text[0];
    size_t size = first < 0x80 ? 1 : first < 0xC0 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (size == 0 || size > length || first > 0xF4) {
        return 0;
    }
    uint32_t code = size == 1 ? first : first & (0x7Fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((text[i] & 0xC0u) != 0x80) {
            return 0;
        }
        code = code << 6 | (text[i] & 0x3Fu);
    }
    *code_out = code;
    return code < least[size] || code > 0x10FFFF || (code & ~0x7FFu) == 0xD800 ? 0 : size;
}

bool rp_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x061C || code == 0xFEFF ||
           (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
           (code >= 0x2060 && code <= 0x206F);
}
