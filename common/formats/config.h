/** @file config.h  Reads flat YAML files by a schema: a single mapping whose values are scalars or
 * lists of numbers.
 *
 * Every mistake is logged as "FILE:LINE: cause; valid values are …" (log.h). libyaml's event API is
 * used, not its document API: anchors, aliases, tags and nesting are refused as soon as they begin,
 * so nothing is expanded and memory stays proportional to the file. The reader is stricter than
 * YAML 1.1: numbers are plain decimals (no octal, sexagesimal, underscores or quotes), and booleans
 * are true and false.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Longest file that is read, in bytes. */
#define RP_CONFIG_MAX_BYTES ((size_t)16 << 20)
/** Most items of a list. */
#define RP_CONFIG_MAX_ITEMS 65536u
/** Most fields of a schema. */
#define RP_CONFIG_MAX_FIELDS 96u

typedef enum rp_config_type {
    RP_CONFIG_TEXT,    /**< const char *; any text without control characters */
    RP_CONFIG_NAME,    /**< const char *; a text that rp_config_is_name accepts */
    RP_CONFIG_BOOL,    /**< bool */
    RP_CONFIG_U32,     /**< uint32_t */
    RP_CONFIG_U64,     /**< uint64_t */
    RP_CONFIG_DOUBLE,  /**< double, never NaN or infinite */
    RP_CONFIG_NUMBERS, /**< rp_config_numbers: a number, or a list that is not empty */
} rp_config_type;

/** Value of an RP_CONFIG_NUMBERS field. */
typedef struct rp_config_numbers {
    double *values; /**< [count], in the arena; NULL when the key is absent */
    uint32_t count; /**< 1 for a single number */
    bool is_list;   /**< false: a single number that stands for all */
} rp_config_numbers;

/** C types of members by the kind that a row of keys names (config_rows.h). */
#define RP_CONFIG_MEMBER_TEXT const char *
#define RP_CONFIG_MEMBER_NAME const char *
#define RP_CONFIG_MEMBER_BOOL bool
#define RP_CONFIG_MEMBER_U32 uint32_t
#define RP_CONFIG_MEMBER_U64 uint64_t
#define RP_CONFIG_MEMBER_DOUBLE double
#define RP_CONFIG_MEMBER_NUMBERS rp_config_numbers

/** A key of a schema. */
typedef struct rp_config_field {
    const char *key;
    rp_config_type type;
    bool optional; /**< the key may be absent: the member then keeps its value, or is `standard` */
    double standard;  /**< value of an absent U32 or DOUBLE; 0: the member is kept */
    bool stated;      /**< written files contain the key even if it has its standard value */
    double low;       /**< numbers: least value */
    double high;      /**< numbers: greatest value; texts: most bytes */
    const char *unit; /**< unit in messages, as "ms"; NULL: none */
    const char *const *choices; /**< texts: NULL-terminated valid values; NULL: any */
    size_t offset;              /**< offset of the member in the struct that is filled */
    size_t list;                /**< U32, DOUBLE: offset of an rp_config_numbers, for files with a
                                   list of numbers; the member is then the least. 0: no lists */
    const char *table;          /**< table of the document that lists the key; NULL: none */
    const char *help;           /**< meaning of the key, for documents; NULL: not in documents */
} rp_config_field;

/** Two keys for the same value in two units; a file needs either of them. */
typedef struct rp_config_either {
    size_t fields[2];
} rp_config_either;

typedef struct rp_config_schema {
    const char *what;   /**< kind of object in messages, as "a model" */
    const char *prefix; /**< prefix of its keys among other schemas, as "platform."; NULL: none */
    const rp_config_field *fields;
    size_t field_count;             /**< at most RP_CONFIG_MAX_FIELDS */
    const rp_config_either *either; /**< NULL: none */
    size_t either_count;
} rp_config_schema;

/**
 * Reads a YAML document. A single message names all missing keys.
 * @param name origin of the bytes, for messages
 * @param bytes need not end in NUL; not kept
 * @param arena owns texts and lists
 * @param object_out the struct of the schema, filled with defaults by the caller; undefined on
 *        failure
 * @param lines_out [field_count] one-based line of each key, 0 for absent keys; may be NULL
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY (logged)
 */
rp_status rp_config_parse(const char *name, const char *bytes, size_t length,
                          const rp_config_schema *schema, rp_arena *arena, void *object_out,
                          size_t *lines_out);

/** As rp_config_parse, but keys may be missing.
 * @param first_line_out line of the first key */
rp_status rp_config_parse_part(const char *name, const char *bytes, size_t length,
                               const rp_config_schema *schema, rp_arena *arena, void *object_out,
                               size_t *lines_out, size_t *first_line_out);

/** Refuses missing keys as rp_config_parse does. @param lines [field_count] 0: the key is missing
 * @param first_line as rp_config_parse_part gives it
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY (logged) */
rp_status rp_config_check_missing(const char *name, size_t first_line,
                                  const rp_config_schema *schema, const size_t *lines);

/**
 * @param text [length] a whole name, or the beginning of a file's name
 * @return whether it may be the name of a model, platform or cost table: letters, digits and . _ +
 * - @, of which + - @ must not come first, because spreadsheets take a text that begins with them
 * for a formula
 */
bool rp_config_is_name(const char *text, size_t length);

/** Describes the valid values of a field, as "numbers from 0 to 10 ms". @return `buffer` */
const char *rp_config_valid_values(const rp_config_field *field, char *buffer, size_t size);
