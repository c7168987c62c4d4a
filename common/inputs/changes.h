/** @file changes.h  Changes of numbers of a cost table, a platform or a stack, to try other values.
 *
 * A change is written costs.KEY=NUMBER, costs.KEY*FACTOR or the same with the prefix `platform.` or
 * `stack.`; KEY is a key of the file. A change is made before anything is derived from the file or
 * checked against another of its keys, so the results are those of a file with the changed number.
 * A list of numbers can be multiplied, or set to a single number that stands for all its items.
 */
#pragma once

#include "common/base/reason.h"
#include "common/base/text.h"
#include "common/formats/config.h"
#include "common/inputs/costs.h"
#include "common/inputs/platform.h"

/** The keys of a stack (stacks/stack.c, whose folder includes this one). */
extern const rp_config_schema rp_stack_schema;

/** A change of one key's value. */
typedef struct rp_change {
    const char *text;               /**< KEY=NUMBER or KEY*FACTOR, without the kind before it */
    const rp_config_schema *schema; /**< schema of the kind of file that it changes */
    size_t field;                   /**< index of the key in the schema's fields */
    double number;
    bool multiply;
} rp_change;

/** Changes in the order in which they are made. Zeroed: none. */
typedef struct rp_changes {
    rp_change *items; /**< [count] */
    uint32_t count;
} rp_changes;

/**
 * Appends the changes of "CHANGE[,CHANGE…]", their keys and numbers checked.
 * @param option its name for messages, without "--"
 * @param arena owns texts and items
 * @retval RP_OK, RP_USAGE (given as the reason), RP_NO_MEMORY
 */
rp_status rp_changes_add(const char *option, const char *text, rp_arena *arena, rp_changes *changes,
                         rp_reason *reason);

/** @return whether there is a change of a file of this schema. `changes` may be NULL. */
bool rp_changes_any(const rp_changes *changes, const rp_config_schema *schema);

/**
 * Makes the changes of one kind of file in the struct that rp_config_parse has filled.
 * @param changes NULL: none
 * @param name the file's, for messages
 * @param object the struct of the schema
 * @param lines as rp_config_parse gives them; a key that the file lacks and a change sets gets line
 * 1
 * @retval RP_OK, RP_INPUT (out of the key's range, or nothing to multiply; given as the reason),
 * RP_NO_MEMORY
 */
rp_status rp_changes_apply(const rp_changes *changes, const rp_config_schema *schema,
                           const char *name, rp_arena *arena, void *object, size_t *lines,
                           rp_reason *reason);

/** @return whether a change sets a field of a schema to a number. `changes` may be NULL. */
bool rp_changes_set(const rp_changes *changes, const rp_config_schema *schema, size_t field);

/** @return whether a change sets or multiplies a field of a schema. `changes` may be NULL. */
bool rp_changes_touch(const rp_changes *changes, const rp_config_schema *schema, size_t field);

/**
 * Appends the changes to a file's name, as results show it: "NAME with KEY=NUMBER KEY*FACTOR";
 * without changes the name stays NAME.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_changes_name(const rp_changes *changes, const rp_config_schema *schema,
                          rp_arena *arena, const char **name);

/** Reads a platform file and makes the changes, which the platform's name lists.
 * @param changes NULL: none
 * @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY */
rp_status rp_platform_read(const char *name_or_path, const rp_changes *changes, rp_arena *arena,
                           rp_platform *platform_out, rp_reason *reason);

/**
 * As rp_platform_read, from the bytes of the file.
 * @param name_or_path as the caller asked for it; a registered name must equal the platform's
 * `name`
 * @param path the file's, for messages
 */
rp_status rp_platform_parse_changed(const char *name_or_path, const char *path, const rp_text *text,
                                    const rp_changes *changes, rp_arena *arena,
                                    rp_platform *platform_out, rp_reason *reason);

/** As rp_costs_load, with changes, which the table's name lists. @param changes NULL: none */
rp_status rp_costs_load_changed(const char *name_or_path, const rp_changes *changes,
                                rp_arena *arena, rp_costs *costs_out, rp_reason *reason);
