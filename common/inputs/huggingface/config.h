/** @file config.h  Models of Hugging Face: config.json, as versions of transformers write it.
 *
 * A family (model_type) is a row of families.c: the keys of its configuration class in transformers
 * that say shapes, with defaults which stand for missing keys, and what its layers have. Every key
 * that some family reads has a type and a range in keys.c, whatever the file's own family: other
 * values are refused. A key that the family does not read is named in a warning, unless it is known
 * to alter nothing; where the family is assumed, a key that says shapes is refused. Parameters
 * equal what transformers counts (tests/golden/hf), to which heads of multi-token prediction do not
 * belong.
 */
#pragma once

#include "common/base/text.h"
#include "common/inputs/model.h"

#include <jansson.h>

/** Most bytes of a file: lists of layers that are not quantised have millions. */
#define RP_HF_MAX_BYTES ((size_t)8 << 20)

/** Most bytes of a model_type, with its end. */
#define RP_HF_TYPE_SIZE 64u

/** Rules for which layers have a sliding window, where sliding_window says one and
 * use_sliding_window, of families with that key, asks for it. `layer_types` comes first where the
 * family has it. */
typedef enum rp_hf_windows {
    RP_HF_NO_WINDOWS,
    RP_HF_TYPED_WINDOWS,     /**< as layer_types says, otherwise none */
    RP_HF_ALL_WINDOWS,       /**< every layer */
    RP_HF_LATE_WINDOWS,      /**< layers from max_window_layers on */
    RP_HF_FIRST_WINDOWS,     /**< even layers before max_window_layers (Qwen2-MoE) */
    RP_HF_UNROTATED_WINDOWS, /**< layers without rotation (SmolLM3) */
    RP_HF_PATTERN_WINDOWS, /**< all but layers n - 1, 2n - 1, …; n: sliding_window_pattern, where
                              the family has that key, or `pattern` */
    RP_HF_LEADING_WINDOWS, /**< all but layers 0, n, 2n, … */
    RP_HF_CHUNKS,          /**< none: chunks of tokens (Llama 4), read as full attention */
} rp_hf_windows;

/** Rules for which layers have experts; `mlp_layer_types` comes first where the family has it. */
typedef enum rp_hf_mixture {
    RP_HF_DENSE,
    RP_HF_ALL_EXPERTS,   /**< every layer */
    RP_HF_STEP_EXPERTS,  /**< every decoder_sparse_step-th but mlp_only_layers (Qwen) */
    RP_HF_LATE_EXPERTS,  /**< all but the first first_k_dense_replace, or `dense_first` */
    RP_HF_EVERY_EXPERTS, /**< moe_layers, or every interleave_moe_layer_step-th (Llama 4) */
    RP_HF_RANGE_EXPERTS, /**< every moe_layer_interval-th from moe_layer_start_index to
                            moe_layer_end_index (ERNIE 4.5) */
} rp_hf_mixture;

typedef struct rp_hf_family {
    const char *type;  /**< model_type */
    const char *class; /**< in architectures; NULL: part of another */
    const char *keys;  /**< JSON: keys that say shapes, with the class's defaults in transformers
                          5.24; of a number of experts or a norm's epsilon each has its own name */
    const char *also;  /**< "NAME=KEY …": other names of keys that the class reads; NULL: none */
    const char *derived; /**< keys that follow from others, by spaces; NULL: none */
    bool null_kv_heads;  /**< null means as many as heads; elsewhere it is an error */
    bool own_head_dim;   /**< it is hidden_size / num_attention_heads, whatever a file says */
    bool null_head_dim;  /**< null means hidden_size / num_attention_heads */
    bool qk_norm;        /**< where use_qk_norm or qk_layernorm, if it has such a key, is true */
    bool wide_qk_norm;   /**< likewise, of all heads together or of each */
    bool four_norms;     /**< where use_post_norm, if it has that key, is true */
    bool one_norm;       /**< rp_model's, as the next two */
    bool layer_norm;
    bool plain_mlp;
    bool joined;      /**< rp_model's, likewise the next one for three fields */
    bool gemma;       /**< norms of 1 + w, gates of GELU, scaled embeddings */
    bool qkv_bias;    /**< always */
    bool bare_output; /**< attention_bias is of queries, keys and values alone */
    bool whole_heads; /**< all heads together are as long as hidden_size */
    bool sinks;       /**< a logit per head, and biases of experts and router (gpt-oss) */
    bool latent;      /**< MLA */
    bool shared_gate;
    bool router_bias; /**< rp_model's */
    bool normalises;  /**< experts' weights are divided by their sum, without a key saying so */
    uint32_t shared_experts; /**< of each layer with experts, without a key that says so */
    uint32_t dense_first;    /**< of RP_HF_LATE_EXPERTS without first_k_dense_replace */
    uint32_t pattern;        /**< of RP_HF_PATTERN_WINDOWS and RP_HF_LEADING_WINDOWS */
    rp_hf_windows windows;
    rp_hf_mixture mixture;
    const char *other_values; /**< computed otherwise than rpexec does, without altering a shape */
} rp_hf_family;

/** Where a search for a key's line in a file has come to (rp_hf_line). */
typedef struct rp_hf_cursor {
    size_t at;
    size_t line;
    uint32_t misses; /* keys that were not found */
    uint32_t depth;
    bool inside;      /**< of the object `name` */
    const char *name; /**< as rp_hf_config's */
} rp_hf_cursor;

/** A file's object, or one inside of it. */
typedef struct rp_hf_config {
    const char *path;
    const rp_text *text;
    const char *name; /**< of the object; NULL: the file's */
    json_t *values;   /**< under the names that the family reads (rp_hf_set_family) */
    json_t *rest;     /**< `values` without the keys that have been used */
    const rp_hf_family *family;
    json_t *defaults;     /**< the family's keys; NULL: no family yet */
    rp_hf_cursor *cursor; /**< of the file; NULL: searches begin at its start */
    rp_reason *reason; /**< of who tries a family, who is not warned either; NULL: nobody tries */
    bool assumed;      /**< the file's own family is another one, which is unknown */
} rp_hf_config;

/** @return true for what is read as a Hugging Face model: a path that ends in .json, and a folder.
 * One without a slash must have a config.json, and not the name of a model in traces/models. */
bool rp_hf_is_config(const char *name_or_path);

/**
 * Where a model lies that is called as on the Hugging Face Hub, "Qwen/Qwen3-8B": the folder of its
 * revision `main` in the cache of Hugging Face's programs (HF_HUB_CACHE, HF_HOME/hub,
 * XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub). Nothing is fetched.
 * @param path_out in `arena`; all that is no such name, and paths that there are: name_or_path
 * @retval RP_OK, RP_INPUT (the cache has no config.json of it; logged, with how to fetch it and
 *         the registered model that is the same), RP_IO, RP_NO_MEMORY
 */
rp_status rp_hf_locate(const char *name_or_path, rp_arena *arena, const char **path_out);

/**
 * Reads a model and warns, with lines, of all that is not used.
 * @param path of a config.json, or of its folder
 * @param assume model_type that the file is read as where its own is unknown; NULL: refused
 * @param model_out lives in `arena`; its name is the folder's, _ for what names may not have; of a
 *        folder of Hugging Face's cache it is NAME of ORG/NAME.
 *        `recorded` is the model of traces/models that has the same shapes, if any: its recorded
 *        times, and its software's properties, are this model's as well
 * @retval RP_OK, RP_INPUT ("path:line: key: cause; valid values are …"), RP_IO, RP_NO_MEMORY
 */
rp_status rp_hf_model_load(const char *path, const char *assume, rp_arena *arena,
                           rp_model *model_out);

/** As rp_hf_model_load, from bytes in memory (fuzzing, tests): no recorded model is looked for.
 * @param name origin of the bytes, for messages, and the model's name */
rp_status rp_hf_model_parse(const char *name, const char *bytes, size_t length, const char *assume,
                            rp_arena *arena, rp_model *model_out);

/** Looks for the model of traces/models that has the same shapes and sets what is known of it:
 * `recorded`, and properties of the software that trains it. @retval RP_OK, RP_INPUT, RP_NO_MEMORY
 */
rp_status rp_hf_find_recorded(rp_arena *arena, rp_model *model);

/* ---- for readers of such files --------------------------------------------------------------- */

/** A reader of an open file. @param context the caller's */
typedef rp_status (*rp_hf_reader)(rp_hf_config *config, rp_arena *arena, void *context,
                                  rp_model *model);

/**
 * Reads and parses a file, or a folder's config.json, gives its object to `reader`, names the model
 * and releases everything.
 * @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY, and the reader's
 */
rp_status rp_hf_read(const char *path, rp_hf_reader reader, void *context, rp_arena *arena,
                     rp_model *model_out);

/**
 * Parses JSON as Python writes it: with Infinity, -Infinity and NaN, which rp_hf_not_finite finds.
 * @param root_out to be released with json_decref; NULL unless RP_OK
 * @retval RP_OK, RP_INPUT (logged with its line), RP_NO_MEMORY
 */
rp_status rp_hf_parse(const char *path, const rp_text *text, json_t **root_out);

/** @return "Infinity", "-Infinity" or "NaN" where a value is, or holds, such a number; NULL: none
 */
const char *rp_hf_not_finite(const json_t *value);

/**
 * Opens an object inside of one that is open, for whose keys the family has no names.
 * @param inner_out to be released with rp_hf_close, unless RP_NO_MEMORY
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_hf_open(const rp_hf_config *outer, const char *name, const json_t *object,
                     rp_hf_config *inner_out);

/** Releases what rp_hf_open and rp_hf_set_family made. */
void rp_hf_close(rp_hf_config *config);

/** Begins again with all keys in `rest`. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_hf_rewind(rp_hf_config *config);

/**
 * Checks types and ranges of all keys that are known, and makes the family the object's: its other
 * names of keys are replaced.
 * @retval RP_OK, RP_INPUT (logged: a value, or two names that differ), RP_NO_MEMORY
 */
rp_status rp_hf_set_family(rp_hf_config *config, const rp_hf_family *family);

/** @return the family of a model_type, which may leave out "_text" at the end; NULL: unknown, or
 * NULL was given. */
const rp_hf_family *rp_hf_family_of(const char *type);

/** @return families, in the order of the table, one after the other; NULL behind the last one */
const rp_hf_family *rp_hf_family_at(size_t index);

/** @return all model types, "llama, mistral, …", in `arena` @retval RP_OK, RP_NO_MEMORY */
rp_status rp_hf_family_names(rp_arena *arena, const char **names_out);

/** @return whether a family may be proposed. */
typedef bool (*rp_hf_proposable)(const rp_hf_family *family);

/**
 * The family of an object: its own, or the one that is assumed where that is unknown. Refusals say
 * what the file could be assumed to be, or which of its keys no family reads.
 * @param type its model_type; NULL: none is said
 * @param assume NULL: an unknown family is refused
 * @param names families that are read, for messages
 * @param proposable NULL: all are
 * @retval RP_OK, RP_INPUT, RP_USAGE (`assume` is not known), RP_NO_MEMORY
 */
rp_status rp_hf_choose_family(rp_hf_config *config, const json_t *type, const char *assume,
                              const char *names, rp_hf_proposable proposable, rp_arena *arena);

/**
 * Shapes and counts from the keys of `config->family`; keys that are used leave `rest`.
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY
 */
rp_status rp_hf_read_shapes(rp_hf_config *config, rp_arena *arena, rp_model *model);

/** Logs "FILE:LINE: KEY: CAUSE; valid values are VALID", without a line where the key is missing.
 * @param cause may be empty
 * @retval RP_INPUT */
rp_status rp_hf_refuse(const rp_hf_config *config, const char *key, const char *cause,
                       const char *valid);

/** Warns "FILE:LINE: KEY: EFFECT", without a line where the key is missing. */
void rp_hf_warn(const rp_hf_config *config, const char *key, const char *effect);

/** Warns "FILE:LINE: key 'KEY' is not known and was not used", likewise. */
void rp_hf_warn_unknown(const rp_hf_config *config, const char *key);

/** Warns of a key with Infinity or NaN, which was not used. */
void rp_hf_warn_not_finite(const rp_hf_config *config, const char *key);

/** @return the line of a key in the file; 0 where it is missing or written with escapes. */
size_t rp_hf_line(const rp_hf_config *config, const char *key);

/** @return a key's value, which leaves `rest`; NULL: it is missing */
const json_t *rp_hf_get(const rp_hf_config *config, const char *key);

/** A number above 0. @param value_out what a missing one is, where that is above 0
 * @retval RP_OK, RP_INPUT */
rp_status rp_hf_number(const rp_hf_config *config, const char *key, double *value_out);

/** true or false; a missing one is the family's default, or false, and so is null where the key may
 * be that. @retval RP_OK, RP_INPUT */
rp_status rp_hf_flag(const rp_hf_config *config, const char *key, bool *value_out);

/** A whole number in the key's range; a missing one is the family's default.
 * @param null what null stands for, in the file where `null_is_valid` and in the defaults; 0:
 * nothing
 * @retval RP_OK, RP_INPUT */
rp_status rp_hf_count(const rp_hf_config *config, const char *key, uint32_t null,
                      bool null_is_valid, uint32_t *value_out);

/** @return true for null, [] and {}. */
bool rp_hf_is_empty(const json_t *value);

/** @return true for keys on which neither shapes nor values of a training run depend. */
bool rp_hf_is_unneeded(const char *key);

/** @return whether a key has a row in keys.c.
 * @param shape_out shapes of models of some family depend on it
 * @param effect_out of values that are not usual and not simulated; NULL: none */
bool rp_hf_is_known(const char *key, bool *shape_out, const char **effect_out);

/** @return true for a key with a value that leaves a model of `config->family` as it is. */
bool rp_hf_is_usual(const rp_hf_config *config, const char *key, const json_t *value);

/** @return true for a key that alters shapes of models of some family, with that value, or whose
 * name sounds as if it did. */
bool rp_hf_alters_shapes(const rp_hf_config *config, const char *key, const json_t *value);

/** The range of a whole number. @param key one that has a row in keys.c */
void rp_hf_range(const char *key, int64_t *least_out, int64_t *most_out);

/** Types and ranges of an object's keys. @retval RP_OK, RP_INPUT */
rp_status rp_hf_check_types(const rp_hf_config *config);

/** Warns of every key of `rest` that is unknown or has an effect that is not simulated; where the
 * family is assumed, refuses those that alter shapes. @retval RP_OK, RP_INPUT */
rp_status rp_hf_check_rest(const rp_hf_config *config);

/** Warns of a function that is not known; where the family is assumed, refuses that of an MLP with
 * another number of matrices. @retval RP_OK, RP_INPUT */
rp_status rp_hf_check_activation(const rp_hf_config *config);

/** @return the number of sizes that no file leaves out and that are missing.
 * @param list_out "num_experts 128, …", in `arena`
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rp_hf_missing(const rp_hf_config *config, rp_arena *arena, uint32_t *count_out,
                        const char **list_out);
