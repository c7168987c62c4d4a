/** @file provenance.h  Where the value of an input of a prediction comes from.
 *
 * A platform file says it in three lists of its keys, `measured`, `moved` and `set`; what they do
 * not name is assumed. --set asks what if the file had another value: the kind stays.
 */
#pragma once

#include "common/inputs/changes.h"

/** X(enumerator, word). */
#define RP_PROVENANCES(X)                                                                          \
    X(ASSUMED, "assumed")                                                                          \
    X(MEASURED, "measured") /* on this GPU and server */                                           \
    X(MOVED, "moved")       /* from another GPU or server, by stated ratios */                     \
    X(SET, "set")           /* on a published cell (traces/configs/paper.csv) */

/** @return the word, as JSON has it. */
const char *rp_provenance_text(rp_provenance kind);

/** @return false where no kind is called that; `length` bytes of `word` count. */
bool rp_provenance_parse(const char *word, size_t length, rp_provenance *kind_out);

/**
 * Reads the lists of a file: its keys that are called as kinds, texts.
 * @param name of the file, for messages
 * @param lines [fields of the schema] of the file's keys
 * @param object the struct of the schema
 * @param kinds_out [fields of the schema] an rp_provenance, in `arena`
 * @retval RP_OK, RP_INPUT (a word is no key with a number, or named twice; logged),
 * RP_NO_MEMORY
 */
rp_status rp_provenance_read(const char *name, const rp_config_schema *schema, const size_t *lines,
                             const void *object, rp_arena *arena, const uint8_t **kinds_out);

/** @return the kind of a key's value; assumed where the platform names it nowhere.
 * @param key of a platform file */
rp_provenance rp_platform_provenance(const rp_platform *platform, const char *key);
