/** @file json_read.h  Reading JSON with jansson: documents, unknown keys, integers in a range. */
#pragma once

#include "common/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Parses a document; an object with the same key twice is refused.
 *
 * @param name of the file, for messages
 * @param bytes [length], NULL where there are none
 * @param valid end of the message: "valid is one JSON object with the keys …"
 * @param document_out to be released with json_decref; NULL unless RP_OK
 * @retval RP_OK, RP_INPUT (logged with its line)
 */
rp_status rp_json_parse(const char *name, const char *bytes, size_t length, const char *valid,
                        json_t **document_out);

/**
 * @param object anything else has no keys
 * @param keys all that are known, as a message lists them: "bytes, id, route"
 * @return the first key of `object` that is not among `keys`, borrowed; NULL where there is none
 */
const char *rp_json_unknown_key(json_t *object, const char *keys);

/** @return true where `value` is an integer from `low` to `high`; NULL and reals are none */
bool rp_json_is_integer(const json_t *value, int64_t low, int64_t high);
