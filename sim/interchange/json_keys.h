/** @file json_keys.h  Which keys an object of an input file may have. */
#pragma once

#include <jansson.h>

/**
 * @param object anything else has no keys
 * @param keys all that are known, as a message lists them: "bytes, id, route"
 * @return the first key of `object` that is not among `keys`, borrowed; NULL where there is none
 */
const char *rpsim_json_unknown_key(json_t *object, const char *keys);
