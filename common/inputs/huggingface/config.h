/** @file config.h  Models of Hugging Face: config.json, as versions of transformers write it.
 *
 * A family (model_type) is a row of families.c: the keys of its configuration class in transformers
 * that set shapes, their defaults for files without the key, and the properties of its layers.
 * Every key that some family reads has a type and a range in keys.c, whatever the file's own
 * family: other values are refused. A warning names a key that the family does not read, unless the
 * key is known to alter nothing; if the family is assumed, such a key is refused if it sets shapes.
 * Parameters equal the counts of transformers (tests/golden/hf), which leave out heads of
 * multi-token prediction.
 */
#pragma once

#include "common/base/text.h"
#include "common/inputs/model.h"

#include <jansson.h>

/** Most bytes of a file: lists of layers that are not quantised have millions. */
#define RP_HF_MAX_BYTES ((size_t)8 << 20)

/** Most bytes of a model_type, with its end. */
#define RP_HF_TYPE_SIZE 64u

/** Rules for which layers have a sliding window. A rule applies if sliding_window gives a length
 * and, in families with that key, use_sliding_window is true. In families with `layer_types` that
 * key comes first. */
typedef enum rp_hf_windows {
    RP_HF_NO_WINDOWS,
    RP_HF_TYPED_WINDOWS,     /**< as layer_types says; without it no layer */
    RP_HF_ALL_WINDOWS,       /**< every layer */
    RP_HF_LATE_WINDOWS,      /**< layers from max_window_layers on */
    RP_HF_FIRST_WINDOWS,     /**< even layers before max_window_layers (Qwen2-MoE) */
    RP_HF_UNROTATED_WINDOWS, /**< layers without rotation (SmolLM3) */
    RP_HF_PATTERN_WINDOWS,   /**< all layers but n - 1, 2n - 1, …; n is sliding_window_pattern in
                                families with that key, otherwise `pattern` */
    RP_HF_LEADING_WINDOWS,   /**< all layers but 0, n, 2n, … */
    RP_HF_CHUNKS, /**< no windows but chunks of tokens (Llama 4), read as full attention */
} rp_hf_windows;

/** Rules for which layers have experts. In families with `mlp_layer_types` that key comes first. */
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
    const char *class; /**< name in architectures; NULL: it is part of another class */
    const char *keys;  /**< JSON: keys that set shapes, with defaults of transformers 5.24; families
                          call the keys of experts and epsilon differently */
    const char *also;  /**< "NAME=KEY …": other names of keys that the class reads; NULL: none */
    const char *derived; /**< keys that follow from other keys, separated by spaces; NULL: none */
    bool null_kv_heads;  /**< null means as many as heads; in other families null is an error */
    bool own_head_dim;   /**< the length of a head is always hidden_size / num_attention_heads,
                            whatever the file says */
    bool null_head_dim;  /**< null means hidden_size / num_attention_heads */
    bool qk_norm; /**< queries and keys have norms; in families with use_qk_norm or qk_layernorm
                     that key decides */
    bool wide_qk_norm; /**< with qk_norm, each norm spans all heads, or has its own weights for each
                          head */
    bool four_norms;   /**< rp_model's; in families with use_post_norm that key decides */
    bool one_norm;     /**< this and the next two are rp_model's */
    bool layer_norm;
    bool plain_mlp;
    bool joined;      /**< rp_model's */
    bool gemma;       /**< sets shifted_norms, gelu_gate and scaled_embedding of rp_model */
    bool qkv_bias;    /**< biases on q, k and v without a key */
    bool bare_output; /**< attention_bias is a bias of queries, keys and values only */
    bool whole_heads; /**< all heads together are as long as hidden_size */
    bool sinks;       /**< a logit per head, and biases of experts and router (gpt-oss) */
    bool latent;      /**< latent attention (MLA) */
    bool shared_gate;
    bool router_bias;        /**< rp_model's */
    bool normalises;         /**< experts' weights are divided by their sum, without a key for it */
    uint32_t shared_experts; /**< number of shared experts in each layer with experts, without a key
                                for it */
    uint32_t dense_first;    /**< number of dense layers for RP_HF_LATE_EXPERTS without
                                first_k_dense_replace */
    uint32_t pattern;        /**< n for RP_HF_PATTERN_WINDOWS and RP_HF_LEADING_WINDOWS */
    rp_hf_windows windows;
    rp_hf_mixture mixture;
    const char *other_values; /**< computations that alter no shape and that rpexec does in another
                                 way; NULL: none */
} rp_hf_family;

/** Position that the search for a key's line in a file has reached (rp_hf_line). */
typedef struct rp_hf_cursor {
    size_t at;
    size_t line;
    uint32_t misses; /* number of keys that were not found */
    uint32_t depth;
    bool inside;      /**< the position is inside of the object `name` */
    const char *name; /**< as rp_hf_config's */
} rp_hf_cursor;

/** A file's object, or an object inside of it. */
typedef struct rp_hf_config {
    const char *path;
    const rp_text *text;
    const char *name; /**< name of the object; NULL: it is the file's */
    json_t *values;   /**< under the names that the family reads (rp_hf_set_family) */
    json_t *rest;     /**< `values` without the keys that have been read */
    const rp_hf_family *family;
    json_t *defaults;     /**< the family's keys; NULL: no family yet */
    rp_hf_cursor *cursor; /**< the file's cursor; NULL: searches begin at the file's start */
    rp_reason *reason; /**< reason of a caller that tries a family, without warnings; NULL: refusals
                          are logged */
    bool assumed;      /**< the file's own family is unknown, and `family` is assumed instead */
} rp_hf_config;

/** @return whether a name or path is read as a Hugging Face model: a path that ends in .json, or a
 * folder. A folder without a slash in its path must have a config.json, and its name must not be a
 * model of traces/models. */
bool rp_hf_is_config(const char *name_or_path);

/**
 * Finds the folder of a model by its name on the Hugging Face Hub, "Qwen/Qwen3-8B": the folder of
 * its revision `main` in the cache of Hugging Face's programs (HF_HUB_CACHE, HF_HOME/hub,
 * XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub). Nothing is fetched.
 * @param path_out in `arena`; it is name_or_path itself if that is an existing path or no such name
 * @retval RP_OK, RP_INPUT (the cache has no config.json of it; logged with a command that fetches
 *         it and an equal registered model), RP_IO, RP_NO_MEMORY
 */
rp_status rp_hf_locate(const char *name_or_path, rp_arena *arena, const char **path_out);

/**
 * Reads a model and warns of all unused keys, with their lines.
 * @param path a config.json's, or its folder's
 * @param assume model_type as which the file is read if its own is unknown; NULL: an unknown type
 * is refused
 * @param model_out lives in `arena`; its name is the folder's, with _ for characters that names may
 *        not have; for a folder of Hugging Face's cache it is NAME of ORG/NAME. `recorded` is the
 *        model of traces/models that has the same shapes, if any: its recorded times, and its
 *        software's properties, are this model's as well
 * @retval RP_OK, RP_INPUT ("path:line: key: cause; valid values are …"), RP_IO, RP_NO_MEMORY
 */
rp_status rp_hf_model_load(const char *path, const char *assume, rp_arena *arena,
                           rp_model *model_out);

/** As rp_hf_model_load, from bytes in memory (fuzzing, tests): no recorded model is looked for.
 * @param name origin of the bytes, for messages; also the model's name */
rp_status rp_hf_model_parse(const char *name, const char *bytes, size_t length, const char *assume,
                            rp_arena *arena, rp_model *model_out);

/** Looks for the model of traces/models that has the same shapes and copies the known facts from
 * it: `recorded`, and properties of the software that trains it.
 * @retval RP_OK, RP_INPUT, RP_NO_MEMORY
 */
rp_status rp_hf_find_recorded(rp_arena *arena, rp_model *model);

/* ---- for readers of such files --------------------------------------------------------------- */

/** A reader of an open file. @param context passed on from the caller */
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

/** @return "Infinity", "-Infinity" or "NaN" if a value is, or holds, such a number; otherwise NULL
 */
const char *rp_hf_not_finite(const json_t *value);

/**
 * Opens an object inside of an open object; its keys keep their names, as the family renames none
 * of them.
 * @param inner_out to be released with rp_hf_close, unless RP_NO_MEMORY
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_hf_open(const rp_hf_config *outer, const char *name, const json_t *object,
                     rp_hf_config *inner_out);

/** Releases the values that rp_hf_open and rp_hf_set_family made. */
void rp_hf_close(rp_hf_config *config);

/** Puts all keys into `rest` again. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_hf_rewind(rp_hf_config *config);

/**
 * Checks types and ranges of all keys that are known, and makes the family the object's; other
 * names of the family's keys are replaced.
 * @retval RP_OK, RP_INPUT (refused: a value, or two names with different values), RP_NO_MEMORY
 */
rp_status rp_hf_set_family(rp_hf_config *config, const rp_hf_family *family);

/** @return the family of a model_type, whose "_text" at the end may be left out; NULL: the type is
 * unknown or NULL. */
const rp_hf_family *rp_hf_family_of(const char *type);

/** @return the family at an index of the table; NULL after the last */
const rp_hf_family *rp_hf_family_at(size_t index);

/** @return all model types, "llama, mistral, …", in `arena` @retval RP_OK, RP_NO_MEMORY */
rp_status rp_hf_family_names(rp_arena *arena, const char **names_out);

/** @return whether a message may propose a family. */
typedef bool (*rp_hf_proposable)(const rp_hf_family *family);

/**
 * Chooses the family of an object: its own, or the assumed family if its own is unknown. Refusals
 * propose a family to assume, or name the keys that no family reads.
 * @param type its model_type; NULL: the file has none
 * @param assume NULL: an unknown family is refused
 * @param names families that are read, for messages
 * @param proposable NULL: all families are
 * @retval RP_OK, RP_INPUT, RP_USAGE (`assume` is not known), RP_NO_MEMORY
 */
rp_status rp_hf_choose_family(rp_hf_config *config, const json_t *type, const char *assume,
                              const char *names, rp_hf_proposable proposable, rp_arena *arena);

/**
 * Sets shapes and counts from the keys of `config->family`; keys that are read leave `rest`.
 * @retval RP_OK, RP_INPUT (refused), RP_NO_MEMORY
 */
rp_status rp_hf_read_shapes(rp_hf_config *config, rp_arena *arena, rp_model *model);

/** Refuses with "FILE:LINE: KEY: CAUSE; valid values are VALID", without a line if the file lacks
 * the key. The message becomes config->reason, or is logged if that is NULL.
 * @param cause may be empty
 * @retval RP_INPUT */
rp_status rp_hf_refuse(const rp_hf_config *config, const char *key, const char *cause,
                       const char *valid);

/** Warns "FILE:LINE: KEY: EFFECT", without a line if the file lacks the key. */
void rp_hf_warn(const rp_hf_config *config, const char *key, const char *effect);

/** Warns "FILE:LINE: key 'KEY' is not known and was not used", without a line if the file lacks
 * it. */
void rp_hf_warn_unknown(const rp_hf_config *config, const char *key);

/** Warns of a key with Infinity or NaN, which was not used. */
void rp_hf_warn_not_finite(const rp_hf_config *config, const char *key);

/** @return the line of a key in the file; 0 if it is missing or written with escapes. */
size_t rp_hf_line(const rp_hf_config *config, const char *key);

/** @return a key's value, which leaves `rest`; NULL: it is missing */
const json_t *rp_hf_get(const rp_hf_config *config, const char *key);

/** Reads a number above 0.
 * @param value_out before the call, the value of a missing key, if that is above 0
 * @retval RP_OK, RP_INPUT */
rp_status rp_hf_number(const rp_hf_config *config, const char *key, double *value_out);

/** Reads true or false. A missing key has the family's default, otherwise false; null, if the key
 * may be null, is false.
 * @retval RP_OK, RP_INPUT */
rp_status rp_hf_flag(const rp_hf_config *config, const char *key, bool *value_out);

/** Reads a whole number in the key's range; a missing key has the family's default.
 * @param null number that null stands for, in the file if `null_is_valid` and in the defaults; 0:
 * null is refused
 * @retval RP_OK, RP_INPUT */
rp_status rp_hf_count(const rp_hf_config *config, const char *key, uint32_t null,
                      bool null_is_valid, uint32_t *value_out);

/** @return true for null, [] and {}. */
bool rp_hf_is_empty(const json_t *value);

/** @return whether neither shapes nor values of a training run depend on a key. */
bool rp_hf_is_unneeded(const char *key);

/** @return whether a key has a row in keys.c.
 * @param shape_out whether shapes of models of some family depend on it
 * @param effect_out effect of unusual values, which is not simulated; NULL: none */
bool rp_hf_is_known(const char *key, bool *shape_out, const char **effect_out);

/** @return whether a key with this value leaves a model of `config->family` as it is. */
bool rp_hf_is_usual(const rp_hf_config *config, const char *key, const json_t *value);

/** @return whether a key with this value alters shapes of models of some family, or has a name that
 * sounds as if it did. */
bool rp_hf_alters_shapes(const rp_hf_config *config, const char *key, const json_t *value);

/** The range of a key that holds a whole number. @param key it has a row in keys.c */
void rp_hf_range(const char *key, int64_t *least_out, int64_t *most_out);

/** Checks types and ranges of an object's keys. @retval RP_OK, RP_INPUT */
rp_status rp_hf_check_types(const rp_hf_config *config);

/** Warns of every key of `rest` that is unknown or has an effect that is not simulated; if the
 * family is assumed, refuses keys that alter shapes.
 * @retval RP_OK, RP_INPUT */
rp_status rp_hf_check_rest(const rp_hf_config *config);

/** Warns of an unknown activation function; if the family is assumed, refuses a function of MLPs
 * with another number of matrices.
 * @retval RP_OK, RP_INPUT */
rp_status rp_hf_check_activation(const rp_hf_config *config);

/** @return the number of sizes that files usually give and this file lacks.
 * @param list_out "num_experts 128, …", in `arena`
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rp_hf_missing(const rp_hf_config *config, rp_arena *arena, uint32_t *count_out,
                        const char **list_out);
