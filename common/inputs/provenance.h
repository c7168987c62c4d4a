/** @file provenance.h  The origin of each value that a prediction reads.
 *
 * A platform file names keys in three lists, `measured`, `moved` and `set`; a key in no list is
 * assumed. A value that --set changes keeps its kind, as if the file had that value.
 */
#pragma once

#include "common/inputs/changes.h"

/** X(enumerator, word). */
#define RP_PROVENANCES(X)                                                                          \
    X(ASSUMED, "assumed")                                                                          \
    X(MEASURED, "measured") /* on this GPU and server */                                           \
    X(MOVED, "moved")       /* from another GPU or server, by stated ratios */                     \
    X(SET, "set")           /* on a published cell (traces/configs/paper.csv) */

/** @return the kind's word, as JSON has it. */
const char *rp_provenance_text(rp_provenance kind);

/** @return false if no kind has this word, the first `length` bytes of `word`. */
bool rp_provenance_parse(const char *word, size_t length, rp_provenance *kind_out);

/**
 * Reads the lists of a file: text keys whose names are those of kinds.
 * @param name the file's, for messages
 * @param lines [fields of the schema] lines of the file's keys
 * @param object the struct of the schema
 * @param kinds_out [fields of the schema] an rp_provenance, in `arena`
 * @retval RP_OK, RP_INPUT (a word is no key with a number, or is named twice; logged), RP_NO_MEMORY
 */
rp_status rp_provenance_read(const char *name, const rp_config_schema *schema, const size_t *lines,
                             const void *object, rp_arena *arena, const uint8_t **kinds_out);

/** @return the kind of a key's value; assumed if no list of the platform names it.
 * @param key a key of a platform file */
rp_provenance rp_platform_provenance(const rp_platform *platform, const char *key);
