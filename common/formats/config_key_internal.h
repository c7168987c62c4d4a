/** @file config_key_internal.h  Messages about the keys of a schema; used by config.c only. */
#pragma once

#include "common/formats/config.h"

/** Writes "a, b, c" of a NULL-terminated list, cut at `size` bytes. */
void rp_config_join_choices(const char *const *choices, char *buffer, size_t size);

/** Writes the keys of a schema as "a, b, c", cut at `size` bytes. */
void rp_config_join_keys(const rp_config_schema *schema, char *buffer, size_t size);

/**
 * Logs that `key` is unknown: the unit that is expected where only the unit differs (fwd_us for
 * fwd_ms), otherwise the nearest known key, then all known keys.
 */
void rp_config_refuse_key(const char *file, size_t line, const char *key,
                          const rp_config_schema *schema);
