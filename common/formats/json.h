/** @file json.h  A streaming JSON writer: it keeps nothing, so long traces cost no memory.
 *
 * The writer adds commas, quotes and escapes; the caller pairs begins with ends and gives each
 * member of an object its key (checked by assertions that stay on). Write errors stay in the stream
 * (ferror), and rp_output_commit reports them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** Plain values; initialise with rp_json_begin_document. */
typedef struct rp_json {
    FILE *stream;         /**< borrowed */
    unsigned depth;       /**< open containers */
    unsigned lines_depth; /**< containers this deep or less put each item on a line of its own */
    bool need_comma;
    bool after_key;
    bool in_html; /**< set after rp_json_begin_document: '<' is escaped, so that no text ends the
                     script element around the document */
} rp_json;

/**
 * @param stream borrowed until the document is written
 * @param lines_depth 0: a single line; 1: each item of the outermost container on its own line; …
 */
void rp_json_begin_document(rp_json *json, FILE *stream, unsigned lines_depth);

/** Ends the document with a newline; all containers must be closed. */
void rp_json_end_document(rp_json *json);

/** Begins an object, as a value; its members follow, each with its key. */
void rp_json_begin_object(rp_json *json);

/** Ends the innermost open container, which must be an object. */
void rp_json_end_object(rp_json *json);

/** Begins an array, as a value; its values follow. */
void rp_json_begin_array(rp_json *json);

/** Ends the innermost open container, which must be an array. */
void rp_json_end_array(rp_json *json);

/** Begins a member of the current object; exactly 1 value must follow. */
void rp_json_key(rp_json *json, const char *key);

/** Writes NUL-terminated text; each byte that is not part of valid UTF-8 becomes U+FFFD. NULL gives
 * null.
 */
void rp_json_string(rp_json *json, const char *text);

/** As rp_json_string, for text of a given length, which may contain NULs. */
void rp_json_string_n(rp_json *json, const char *text, size_t length);

/** Writes an integer with all its digits; readers that use doubles may round it above 2^53. */
void rp_json_int(rp_json *json, int64_t value);

/** As rp_json_int, up to 2^64 - 1. */
void rp_json_uint(rp_json *json, uint64_t value);

/** true or false. */
void rp_json_bool(rp_json *json, bool value);

/** Writes null, for a value that is not known or not modelled; never 0 instead. */
void rp_json_null(rp_json *json);

/** Writes the shortest decimal that reads back to the same double; NaN and infinities give null. */
void rp_json_double(rp_json *json, double value);

/** Writes picoseconds as exact milliseconds, at most 9 decimals without trailing zeros: 12.0345. */
void rp_json_ms(rp_json *json, int64_t time_ps);

/** Writes picoseconds as exact microseconds, at most 6 decimals without trailing zeros. */
void rp_json_us(rp_json *json, int64_t time_ps);

/** Writes a member of the current object, key and value: calls rp_json_key, then the function of
 * that type. */
void rp_json_member_string(rp_json *json, const char *key, const char *value);
void rp_json_member_int(rp_json *json, const char *key, int64_t value);
void rp_json_member_uint(rp_json *json, const char *key, uint64_t value);
void rp_json_member_bool(rp_json *json, const char *key, bool value);
void rp_json_member_double(rp_json *json, const char *key, double value);
void rp_json_member_ms(rp_json *json, const char *key, int64_t time_ps);

/** Bytes for the decimal forms below with their NUL. */
#define RP_JSON_NUMBER_SIZE 32

/**
 * Gives the text that rp_json_double prints, for other writers (CSV).
 * @param text_out receives the NUL-terminated number, or "null"
 */
void rp_json_print_double(double value, char text_out[static RP_JSON_NUMBER_SIZE]);

/** Gives the text that rp_json_ms prints, NUL-terminated. */
void rp_json_print_ms(int64_t time_ps, char text_out[static RP_JSON_NUMBER_SIZE]);
