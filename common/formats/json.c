#define _GNU_SOURCE /* fputs_unlocked, fwrite_unlocked: traces have millions of short writes */

#include "common/formats/json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A caller that breaks the grammar has a bug that would silently corrupt files: stops in every
 * build. */
static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void write_text(rp_json *json, const char *text)
{
    fputs_unlocked(text, json->stream);
}

static void new_line(rp_json *json)
{
    putc_unlocked('\n', json->stream);
    for (unsigned i = 0; i < json->depth; i++) {
        write_text(json, "  ");
    }
}

/* Writes the separators between the previous item and the next. */
static void begin_item(rp_json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->need_comma) {
        putc_unlocked(',', json->stream);
    }
    if (json->depth > 0 && json->depth <= json->lines_depth) {
        new_line(json);
    }
}

static void begin_container(rp_json *json, char bracket)
{
    begin_item(json);
    putc_unlocked(bracket, json->stream);
    json->depth++;
    json->need_comma = false;
}

static void end_container(rp_json *json, char bracket)
{
    require(json->depth > 0 && !json->after_key);
    bool has_lines = json->need_comma && json->depth <= json->lines_depth;
    json->depth--;
    if (has_lines) {
        new_line(json);
    }
    putc_unlocked(bracket, json->stream);
    json->need_comma = true;
}

static void write_scalar(rp_json *json, const char *text)
{
    begin_item(json);
    write_text(json, text);
    json->need_comma = true;
}

void rp_json_begin_document(rp_json *json, FILE *stream, unsigned lines_depth)
{
    *json = (rp_json){.stream = stream, .lines_depth = lines_depth};
}

void rp_json_end_document(rp_json *json)
{
    require(json->depth == 0 && !json->after_key);
    putc_unlocked('\n', json->stream);
}

void rp_json_begin_object(rp_json *json)
{
    begin_container(json, '{');
}

void rp_json_end_object(rp_json *json)
{
    end_container(json, '}');
}

void rp_json_begin_array(rp_json *json)
{
    begin_container(json, '[');
}

void rp_json_end_array(rp_json *json)
{
    end_container(json, ']');
}

static bool is_continuation(unsigned char byte)
{
    return (byte & 0xc0u) == 0x80u;
}

/* Length of the valid UTF-8 sequence at `text`, 0 if it is invalid (RFC 3629, no surrogates). */
static size_t utf8_length(const unsigned char *text, size_t left)
{
    unsigned char lead = text[0];
    if (lead < 0x80) {
        return 1;
    }
    size_t length = lead >= 0xc2 && lead <= 0xdf ? 2 : (lead & 0xf0u) == 0xe0u ? 3 : 4;
    if (lead < 0xc2 || lead > 0xf4 || length > left) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if (!is_continuation(text[i])) {
            return 0;
        }
    }
    bool too_long = (lead == 0xe0 && text[1] < 0xa0) || (lead == 0xf0 && text[1] < 0x90);
    bool surrogate = lead == 0xed && text[1] > 0x9f;
    bool too_large = lead == 0xf4 && text[1] > 0x8f;
    return too_long || surrogate || too_large ? 0 : length;
}

static void write_escaped(rp_json *json, unsigned char byte)
{
    switch (byte) {
    case '"':
        write_text(json, "\\\"");
        break;
    case '\\':
        write_text(json, "\\\\");
        break;
    case '\n':
        write_text(json, "\\n");
        break;
    case '\t':
        write_text(json, "\\t");
        break;
    case '\r':
        write_text(json, "\\r");
        break;
    default:
        fprintf(json->stream, "\\u%04x", byte);
        break;
    }
}

static bool is_plain(const rp_json *json, unsigned char byte)
{
    return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\' &&
           !(json->in_html && byte == '<');
}

static void write_quoted(rp_json *json, const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    putc_unlocked('"', json->stream);
    for (size_t i = 0; i < length;) {
        size_t end = i;
        while (end < length && is_plain(json, bytes[end])) {
            end++;
        }
        fwrite_unlocked(bytes + i, 1, end - i, json->stream);
        i = end;
        if (i == length) {
            break;
        }
        size_t sequence = utf8_length(bytes + i, length - i);
        if (sequence == 0) {
            write_text(json, "\xef\xbf\xbd");
        } else if (sequence == 1) {
            write_escaped(json, bytes[i]);
        } else {
            fwrite_unlocked(bytes + i, 1, sequence, json->stream);
        }
        i += sequence == 0 ? 1 : sequence;
    }
    putc_unlocked('"', json->stream);
}

void rp_json_key(rp_json *json, const char *key)
{
    require(json->depth > 0 && !json->after_key);
    begin_item(json);
    write_quoted(json, key, strlen(key));
    putc_unlocked(':', json->stream);
    if (json->depth <= json->lines_depth) {
        putc_unlocked(' ', json->stream);
    }
    json->after_key = true;
    json->need_comma = false;
}

void rp_json_string_n(rp_json *json, const char *text, size_t length)
{
    begin_item(json);
    write_quoted(json, text, length);
    json->need_comma = true;
}

void rp_json_string(rp_json *json, const char *text)
{
    if (text == NULL) {
        rp_json_null(json);
        return;
    }
    rp_json_string_n(json, text, strlen(text));
}

void rp_json_int(rp_json *json, int64_t value)
{
    char text[RP_JSON_NUMBER_SIZE];
    snprintf(text, sizeof text, "%" PRId64, value);
    write_scalar(json, text);
}

void rp_json_uint(rp_json *json, uint64_t value)
{
    char text[RP_JSON_NUMBER_SIZE];
    snprintf(text, sizeof text, "%" PRIu64, value);
    write_scalar(json, text);
}

void rp_json_bool(rp_json *json, bool value)
{
    write_scalar(json, value ? "true" : "false");
}

void rp_json_null(rp_json *json)
{
    write_scalar(json, "null");
}

void rp_json_print_double(double value, char text_out[static RP_JSON_NUMBER_SIZE])
{
    if (!isfinite(value)) {
        snprintf(text_out, RP_JSON_NUMBER_SIZE, "null");
        return;
    }
    /* Normal doubles keep any 15-digit decimal, so %.15g finds the shortest if it has at most 15
     * digits; subnormal doubles keep fewer digits. */
    int digits = fabs(value) < DBL_MIN ? 1 : 15;
    do {
        snprintf(text_out, RP_JSON_NUMBER_SIZE, "%.*g", digits, value);
        digits++;
    } while (digits <= 17 && strtod(text_out, NULL) != value);
}

void rp_json_double(rp_json *json, double value)
{
    char text[RP_JSON_NUMBER_SIZE];
    rp_json_print_double(value, text);
    write_scalar(json, text);
}

/* Prints value / 10^decimals exactly; the magnitude is unsigned because -INT64_MIN does not exist.
 */
static void print_decimal(int64_t value, int decimals, char text_out[static RP_JSON_NUMBER_SIZE])
{
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint64_t unit = 1;
    for (int i = 0; i < decimals; i++) {
        unit *= 10;
    }
    int length = snprintf(text_out, RP_JSON_NUMBER_SIZE, "%s%" PRIu64 ".%0*" PRIu64,
                          value < 0 ? "-" : "", magnitude / unit, decimals, magnitude % unit);
    while (text_out[length - 1] == '0') {
        text_out[--length] = '\0';
    }
    if (text_out[length - 1] == '.') {
        text_out[--length] = '\0';
    }
}

void rp_json_print_ms(int64_t time_ps, char text_out[static RP_JSON_NUMBER_SIZE])
{
    print_decimal(time_ps, 9, text_out);
}

void rp_json_ms(rp_json *json, int64_t time_ps)
{
    char text[RP_JSON_NUMBER_SIZE];
    rp_json_print_ms(time_ps, text);
    write_scalar(json, text);
}

void rp_json_us(rp_json *json, int64_t time_ps)
{
    char text[RP_JSON_NUMBER_SIZE];
    print_decimal(time_ps, 6, text);
    write_scalar(json, text);
}

void rp_json_member_string(rp_json *json, const char *key, const char *value)
{
    rp_json_key(json, key);
    rp_json_string(json, value);
}

void rp_json_member_int(rp_json *json, const char *key, int64_t value)
{
    rp_json_key(json, key);
    rp_json_int(json, value);
}

void rp_json_member_uint(rp_json *json, const char *key, uint64_t value)
{
    rp_json_key(json, key);
    rp_json_uint(json, value);
}

void rp_json_member_bool(rp_json *json, const char *key, bool value)
{
    rp_json_key(json, key);
    rp_json_bool(json, value);
}

void rp_json_member_double(rp_json *json, const char *key, double value)
{
    rp_json_key(json, key);
    rp_json_double(json, value);
}

void rp_json_member_ms(rp_json *json, const char *key, int64_t time_ps)
{
    rp_json_key(json, key);
    rp_json_ms(json, time_ps);
}
