/** @file config_rows.h  Makes schemas from rows.
 *
 * A kind of file has a row for each key, in its KIND_rows.inc:
 *
 *     KEY(member, TYPE, TABLE, low, high, unit, PRESENCE, .help = "…")
 *
 * The file is included for the members of its struct (RP_CONFIG_MEMBER_##TYPE), for an enumeration
 * of the keys, which gives the order of the lines of rp_config_parse, and for the fields
 * (RP_CONFIG_FIELD). Messages, --set, written files and docs/generated come from the fields: a new
 * key needs its row and the code that uses it. Only files that make fields include this header.
 */
#pragma once

#include "common/formats/config.h"

/** The field of a row. @param place member of `object`; the other arguments as in the row */
#define RP_CONFIG_FIELD(object, place, name, kind, of_table, least, most, of_unit, ...)            \
    {                                                                                              \
        .key = name, .type = RP_CONFIG_##kind, .offset = offsetof(object, place), .low = (least),  \
        .high = (most), .unit = (of_unit), .table = #of_table, __VA_ARGS__                         \
    }

/** PRESENCE of a key: a file must have it, or may omit it; DEFAULT gives the value of an omitted
 * key. */
#define REQUIRED .optional = false
#define OPTIONAL .optional = true
#define DEFAULT(number) .optional = true, .standard = (number)
/** After DEFAULT: written files contain the key even with that value. */
#define STATED .stated = true
/** Lists the valid values of a text. */
#define WORDS(...)                                                                                 \
    .choices = (const char *const[])                                                               \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/** @return the schema of an array of fields. */
#define RP_CONFIG_FIELDS(array) .fields = (array), .field_count = sizeof(array) / sizeof(array)[0]
