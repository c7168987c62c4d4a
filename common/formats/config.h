/** @file config.h  Reads flat YAML files by a schema: one mapping, its values scalars or lists of
 * numbers.
 *
 * Every mistake is logged as "FILE:LINE: cause; valid values are …" (log.h). libyaml's event API
 * is used, not its document API: anchors, aliases, tags and nesting are refused where they begin,
 * so nothing is expanded and memory stays proportional to the file. Stricter than YAML 1.1: numbers
 * are plain decimals (no octal, sexagesimal, underscores or quotes), booleans are true and false.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Longest file that is read, in bytes. */
#define RP_CONFIG_MAX_BYTES ((size_t)16 << 20)
/** Most items of one list. */
#define RP_CONFIG_MAX_ITEMS 65536u
/** Most fields of one schema. */
#define RP_CONFIG_MAX_FIELDS 96u

typedef enum rp_config_type {
    RP_CONFIG_TEXT,    /**< const char *; any text without control characters */
    RP_CONFIG_NAME,    /**< const char *; as rp_config_is_name says */
    RP_CONFIG_BOOL,    /**< bool */
    RP_CONFIG_U32,     /**< uint32_t */
    RP_CONFIG_U64,     /**< uint64_t */
    RP_CONFIG_DOUBLE,  /**< double, never NaN or infinite */
    RP_CONFIG_NUMBERS, /**< rp_config_numbers: one number, or a list of at least one */
} rp_config_type;

/** Value of an RP_CONFIG_NUMBERS field. */
typedef struct rp_config_numbers {
    double *values; /**< [count], in the arena; NULL when the key is absent */
    uint32_t count; /**< 1 for a single number */
    bool is_list;   /**< false: one number that stands for all */
} rp_config_numbers;

/** C types of members by the kind that a row of keys names (config_rows.h). */
#define RP_CONFIG_MEMBER_TEXT const char *
#define RP_CONFIG_MEMBER_NAME const char *
#define RP_CONFIG_MEMBER_BOOL bool
#define RP_CONFIG_MEMBER_U32 uint32_t
#define RP_CONFIG_MEMBER_U64 uint64_t
#define RP_CONFIG_MEMBER_DOUBLE double
#define RP_CONFIG_MEMBER_NUMBERS rp_config_numbers

/** One key. */
typedef struct rp_config_field {
    const char *key;
    rp_config_type type;
    bool optional;    /**< absent: the member keeps what it had before, or is `standard` */
    double standard;  /**< of optional U32 and DOUBLE: the value of an absent key; 0: what
                           the member had before */
    bool stated;      /**< written files have it at its standard value, too */
    double low;       /**< numbers: least value */
    double high;      /**< numbers: greatest value; texts: most bytes */
    const char *unit; /**< for messages, as "ms"; NULL: none */
    const char *const *choices; /**< texts: NULL-terminated valid values; NULL: any */
    size_t offset;              /**< of the member in the struct that is filled */
    const char *table;          /**< of the document that the key stands in; NULL: of none */
    const char *help;           /**< what it says, for documents; NULL: in none */
} rp_config_field;

/** Two optional keys of which a file needs one: the same value in two units. */
typedef struct rp_config_either {
    size_t fields[2];
} rp_config_either;

typedef struct rp_config_schema {
    const char *what; /**< as "a model", for messages */
    const char
        *prefix; /**< of its keys among those of several schemas, as "platform."; NULL: none */
    const rp_config_field *fields;
    size_t field_count;             /**< at most RP_CONFIG_MAX_FIELDS */
    const rp_config_either *either; /**< NULL: none */
    size_t either_count;
} rp_config_schema;

/**
 * Reads one YAML document. Keys that are missing are named all at once.
 * @param name origin of the bytes, for messages
 * @param bytes need not end in NUL; not kept
 * @param arena owns texts and lists
 * @param object_out the struct of the schema, filled with defaults by the caller; undefined on
 *        failure
 * @param lines_out [field_count] one-based line of each key, 0 where absent; may be NULL
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY (logged)
 */
rp_status rp_config_parse(const char *name, const char *bytes, size_t length,
                          const rp_config_schema *schema, rp_arena *arena, void *object_out,
                          size_t *lines_out);

/**
 * @param text [length] a name as it is, or the beginning of a file's name
 * @return whether it may be the name of a model, platform or cost table: letters, digits and
 * . _ + - @, of which + - @ are not first, since spreadsheets take what they begin for a formula
 */
bool rp_config_is_name(const char *text, size_t length);

/** Describes the valid values of a field, as "numbers from 0 to 10 ms". @return `buffer` */
const char *rp_config_valid_values(const rp_config_field *field, char *buffer, size_t size);
