/** @file config_rows.h  Schemas from rows.
 *
 * A kind of file has one row for each key, in its KIND_rows.inc:
 *
 *     KEY(member, TYPE, TABLE, low, high, unit, PRESENCE, .help = "…")
 *
 * which is included for the members of its struct (RP_CONFIG_MEMBER_##TYPE), for an enumeration of
 * the keys, in whose order the lines of rp_config_parse are, and for the fields (RP_CONFIG_FIELD).
 * Messages, --set, written files and docs/generated come from the fields: a key is its row and its
 * use. Only files that make fields include this.
 */
#pragma once

#include "common/formats/config.h"

/** The field of a row. @param place member of `object`; the rest as in the row */
#define RP_CONFIG_FIELD(object, place, name, kind, of_table, least, most, of_unit, ...)            \
    {                                                                                              \
        .key = name, .type = RP_CONFIG_##kind, .offset = offsetof(object, place), .low = (least),  \
        .high = (most), .unit = (of_unit), .table = #of_table, __VA_ARGS__                         \
    }

/** PRESENCE: a file must have the key, or need not; with the value where it has not. */
#define REQUIRED .optional = false
#define OPTIONAL .optional = true
#define DEFAULT(number) .optional = true, .standard = (number)
/** Behind DEFAULT: written files have it with that value, too. */
#define STATED .stated = true
/** Valid values of a text. */
#define WORDS(...)                                                                                 \
    .choices = (const char *const[])                                                               \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/** @return the schema of an array of fields. */
#define RP_CONFIG_FIELDS(array) .fields = (array), .field_count = sizeof(array) / sizeof(array)[0]
