/** @file changes.h  Numbers of a cost table or a platform other than its file says: what-if.
 *
 * A change is written costs.KEY=NUMBER, costs.KEY*FACTOR or the same with platform., KEY being a
 * key of the file: the schema's prefix and a key of it. It is made before anything is derived from
 * the file or checked against another of its keys, so that all comes out as if the file had said
 * so. A list of numbers can be multiplied, or set to one number that stands for all.
 */
#pragma once

#include "common/base/reason.h"
#include "common/base/text.h"
#include "common/formats/config.h"
#include "common/inputs/costs.h"
#include "common/inputs/platform.h"

/** One change. */
typedef struct rp_change {
    const char *text;               /**< KEY=NUMBER or KEY*FACTOR, without the kind before it */
    const rp_config_schema *schema; /**< of the kind of file */
    size_t field;                   /**< of the schema */
    double number;
    bool multiply;
} rp_change;

/** In the order in which they are made. Zeroed: none. */
typedef struct rp_changes {
    rp_change *items; /**< [count] */
    uint32_t count;
} rp_changes;

/**
 * Appends the changes of "CHANGE[,CHANGE…]", their keys and numbers checked.
 * @param option for messages, without "--"
 * @param arena owns texts and items
 * @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rp_changes_add(const char *option, const char *text, rp_arena *arena, rp_changes *changes,
                         rp_reason *reason);

/** @return true where there is a change of a kind of file. NULL is allowed. */
bool rp_changes_any(const rp_changes *changes, const rp_config_schema *schema);

/**
 * Makes the changes of one kind in what rp_config_parse has read.
 * @param changes NULL: none
 * @param name of the file, for messages
 * @param object the struct of the schema
 * @param lines of rp_config_parse; keys that the file lacks and a change sets get line 1
 * @retval RP_OK, RP_INPUT (out of the key's range, or nothing to multiply; logged), RP_NO_MEMORY
 */
rp_status rp_changes_apply(const rp_changes *changes, const rp_config_schema *schema,
                           const char *name, rp_arena *arena, void *object, size_t *lines,
                           rp_reason *reason);

/** @return true where a field of a schema is set. NULL is allowed. */
bool rp_changes_set(const rp_changes *changes, const rp_config_schema *schema, size_t field);

/** @return whether a change sets or multiplies a field of a schema. NULL is allowed. */
bool rp_changes_touch(const rp_changes *changes, const rp_config_schema *schema, size_t field);

/**
 * Name of a changed file in results: "NAME with KEY=NUMBER KEY*FACTOR", NAME where nothing
 * changes. @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_changes_name(const rp_changes *changes, const rp_config_schema *schema,
                          rp_arena *arena, const char **name);

/** Reads a platform file. The platform's name tells the changes. @param changes NULL: none
 * @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY */
rp_status rp_platform_read(const char *name_or_path, const rp_changes *changes, rp_arena *arena,
                           rp_platform *platform_out, rp_reason *reason);

/**
 * As rp_platform_read, from the bytes of the file.
 * @param name_or_path that was asked for; a name must be the platform's own
 * @param path of the file, for messages
 */
rp_status rp_platform_parse_changed(const char *name_or_path, const char *path, const rp_text *text,
                                    const rp_changes *changes, rp_arena *arena,
                                    rp_platform *platform_out, rp_reason *reason);

/** As rp_costs_load, with changes. The table's name tells them. @param changes NULL: none */
rp_status rp_costs_load_changed(const char *name_or_path, const rp_changes *changes,
                                rp_arena *arena, rp_costs *costs_out, rp_reason *reason);
