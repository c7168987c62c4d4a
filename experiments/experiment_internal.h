/** @file experiment_internal.h  Inside of the reader of experiment files. Not for other modules. */
#pragma once

#include "experiments/experiment.h"

#include <yaml.h>

/** A document while it is read. */
typedef struct rpsweep_reader {
    yaml_document_t document;
    rp_arena *arena;
    rpsweep_experiment *experiment;
} rpsweep_reader;

#define RPSWEEP_MOST_NAME_BYTES 64u
#define RPSWEEP_MOST_VALUE_BYTES 4096u
#define RPSWEEP_MOST_KEYS 1000u /* of a mapping: each key is compared with all keys before it */
/** Largest number of values of an option, and of entries of a list. */
#define RPSWEEP_MOST_VALUES 1000000u

/** @return the line of the file on which a node begins. */
uint32_t rpsweep_line_of(const yaml_node_t *node);

/** @return true if a name stands for a number that rpsim --set changes: costs.fwd_ms,
 * costs.fwd_ms*. */
bool rpsweep_is_change(const char *name);

/** Logs a cause with a node's line. @return RP_INPUT */
rp_status rpsweep_refuse(const rpsweep_reader *in, const yaml_node_t *node, const char *cause);

/** Reads one line of 1 to `most` bytes. @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY */
rp_status rpsweep_scalar_text(rpsweep_reader *in, const yaml_node_t *node, size_t most,
                              const char **text_out);

/** Reads an option's value: NULL for false and null, "" for true. @retval as above */
rp_status rpsweep_option_value(rpsweep_reader *in, const yaml_node_t *node, const char **value_out);

/** Reads a whole number from `low` to `high`. @retval as above */
rp_status rpsweep_whole_number(rpsweep_reader *in, const yaml_node_t *node, uint64_t low,
                               uint64_t high, uint64_t *value_out);

/** @return the number of pairs of a mapping. */
uint32_t rpsweep_pair_count(const yaml_node_t *node);

/** Gives key and value of a pair; a key that occurs twice is refused. @retval as above */
rp_status rpsweep_pair_at(rpsweep_reader *in, yaml_node_t *mapping, uint32_t index,
                          yaml_node_t **key_out, yaml_node_t **value_out);

/** @return true if a key is `name`. */
bool rpsweep_key_is(const yaml_node_t *key, const char *name);

/** Reads the alternatives of an option: a value, a list, or a range. @retval as above */
rp_status rpsweep_alternatives(rpsweep_reader *in, yaml_node_t *node, const char ***values_out,
                               uint32_t *count_out);
