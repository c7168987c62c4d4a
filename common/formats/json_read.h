/** @file json_read.h  Reads JSON with jansson: documents, unknown keys, integers in a range. */
#pragma once

#include "common/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Parses a document; an object with the same key twice is refused.
 *
 * @param name the file's name, for messages
 * @param bytes [length]; NULL if `length` is 0
 * @param valid end of the message, as "valid is one JSON object with the keys …"
 * @param document_out to be released with json_decref; NULL unless RP_OK
 * @retval RP_OK, RP_INPUT (logged with its line)
 */
rp_status rp_json_parse(const char *name, const char *bytes, size_t length, const char *valid,
                        json_t **document_out);

/**
 * @param object a value that is not an object has no keys
 * @param keys all known keys, as a message lists them: "bytes, id, route"
 * @return the first key of `object` that is not among `keys`, borrowed; NULL if all are known
 */
const char *rp_json_unknown_key(json_t *object, const char *keys);

/** @return true if `value` is an integer from `low` to `high`; false for NULL and reals */
bool rp_json_is_integer(const json_t *value, int64_t low, int64_t high);
