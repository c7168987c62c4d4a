/** @file config_key_internal.h  Messages about the keys of a schema; used by config.c only. */
#pragma once

#include "common/base/text.h"
#include "common/formats/config.h"

/** Bytes that hold the keys of any schema. */
#define RP_CONFIG_KEYS_SIZE (RP_CONFIG_MAX_FIELDS * 40u)

/** Writes "a, b, c" of a NULL-terminated list, cut at `size` bytes. */
void rp_config_join_choices(const char *const *choices, char *buffer, size_t size);

/** Writes the keys of a schema as "a, b, c", cut at `size` bytes. */
void rp_config_join_keys(const rp_config_schema *schema, char *buffer, size_t size);

/**
 * Logs that `key` is unknown, with the expected unit if only the unit differs (fwd_us for fwd_ms),
 * otherwise with the nearest known key; then with all known keys.
 */
void rp_config_refuse_key(const char *file, size_t line, const char *key,
                          const rp_config_schema *schema);

/**
 * Lists the keys that a file lacks, and their values: "the key 'a'; valid values are …", or "the
 * keys 'a', 'b' or 'c', …" with the values of each.
 * @param lines [field_count] line of each key; 0: the file lacks the key
 * @param text_out the list is appended to it; unchanged if no key is missing
 * @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rp_config_list_missing(const rp_config_schema *schema, const size_t *lines,
                                 rp_text *text_out);
