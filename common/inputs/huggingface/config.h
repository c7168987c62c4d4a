/** @file config.h  Models of Hugging Face: config.json, as versions of transformers write it.
 *
 * A family (model_type) is a row of families.c: defaults of its configuration class in
 * transformers, which stand for missing keys, and what its layers have. Keys that alter no shape
 * are known by name (keys.c); each other key that is not used is named in a warning. Parameters
 * equal what transformers counts (tests/golden/hf), to which heads of multi-token prediction do not
 * belong.
 */
#pragma once

#include "common/base/text.h"
#include "common/inputs/model.h"

#include <jansson.h>

/** Rules for which layers have a sliding window; `layer_types` comes first where the
 * family has it. */
typedef enum rp_hf_windows {
    RP_HF_NO_WINDOWS,
    RP_HF_ALL_WINDOWS,   /**< sliding_window, of every layer */
    RP_HF_QWEN_WINDOWS,  /**< layers from max_window_layers on, where use_sliding_window is true */
    RP_HF_ASKED_WINDOWS, /**< every layer, where use_sliding_window is true */
    RP_HF_FIRST_WINDOWS, /**< even layers before max_window_layers, likewise (Qwen2-MoE) */
    RP_HF_UNROTATED_WINDOWS, /**< layers without rotation, likewise (SmolLM3) */
    RP_HF_PATTERN_WINDOWS,   /**< all but every n-th, n: sliding_window_pattern, or 2 */
} rp_hf_windows;

/** Rules for which layers have experts. */
typedef enum rp_hf_mixture {
    RP_HF_DENSE,
    RP_HF_ALL_EXPERTS,      /**< num_local_experts of intermediate_size in every layer */
    RP_HF_QWEN_EXPERTS,     /**< num_experts of moe_intermediate_size; decoder_sparse_step,
                               mlp_only_layers */
    RP_HF_DEEPSEEK_EXPERTS, /**< n_routed_experts; the first first_k_dense_replace layers are dense
                             */
} rp_hf_mixture;

typedef struct rp_hf_family {
    const char *type;     /**< model_type */
    const char *class;    /**< in architectures */
    const char *defaults; /**< JSON: of the configuration class in transformers 5.23 */
    bool null_kv_heads;   /**< null means as many as heads; elsewhere it is an error */
    bool null_head_dim;   /**< null means hidden_size / num_attention_heads */
    bool qk_norm;
    bool wide_qk_norm;
    bool four_norms;
    bool joined;   /**< rp_model's, likewise the next one for three fields */
    bool gemma;    /**< norms of 1 + w, gates of GELU, scaled embeddings */
    bool qkv_bias; /**< always */
    bool sinks;    /**< a logit per head, and biases of experts and router (gpt-oss) */
    bool latent;   /**< MLA */
    bool shared_gate;
    const char *experts_too; /**< another name of the number of experts; NULL: none */
    bool normalises; /**< experts' weights are divided by their sum, without a key that says so */
    rp_hf_windows windows;
    rp_hf_mixture mixture;
    const char *other_values; /**< computed otherwise than rpexec does, without altering a shape */
} rp_hf_family;

/** A file's object, or one inside of it. */
typedef struct rp_hf_config {
    const char *path;
    const rp_text *text;
    const char *name; /**< of the object; NULL: the file's */
    const json_t *values;
    json_t *rest; /**< `values` without the keys that have been used */
    const rp_hf_family *family;
    const json_t *defaults; /**< the family's; NULL: none */
} rp_hf_config;

/** @return true for what is read as a Hugging Face model: a path that ends in .json, and a folder.
 * One without a slash must have a config.json, and not the name of a model in traces/models. */
bool rp_hf_is_config(const char *name_or_path);

/**
 * Reads a model and warns, with lines, of all that is not used.
 * @param path of a config.json, or of its folder
 * @param assume model_type that the file is read as where its own is unknown; NULL: refused
 * @param model_out lives in `arena`; its name is the folder's, _ for what names may not have.
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

/* ---- for readers of such files ----------------------------------------------------------------
 */

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

/** @return the family of a model_type; NULL: unknown, or no string. */
const rp_hf_family *rp_hf_family_of(const json_t *type);

/** @return families, in the order of the table, one after the other; NULL behind the last one */
const rp_hf_family *rp_hf_family_at(size_t index);

/** @return all model types, "llama, mistral, …", in `arena` @retval RP_OK, RP_NO_MEMORY */
rp_status rp_hf_family_names(rp_arena *arena, const char **names_out);

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

/** @return the line of a key in the file; 0 where it is missing or written with escapes. */
size_t rp_hf_line(const rp_hf_config *config, const char *key);

/** Makes `rest` from `values`; nothing has been used yet. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_hf_copy_keys(rp_hf_config *config);

/** @return a key's value, which leaves `rest`; NULL: it is missing */
const json_t *rp_hf_get(const rp_hf_config *config, const char *key);

/** A number above 0. @param value_out what a missing one is, where that is above 0
 * @retval RP_OK, RP_INPUT */
rp_status rp_hf_number(const rp_hf_config *config, const char *key, double *value_out);

/** true or false; a missing one is the family's default, or false. @retval RP_OK, RP_INPUT */
rp_status rp_hf_flag(const rp_hf_config *config, const char *key, bool *value_out);

/** A whole number from `least` to `most`; a missing one is the family's default.
 * @param null what null stands for, in the file where `null_is_valid` and in the defaults; 0:
 * nothing
 * @retval RP_OK, RP_INPUT */
rp_status rp_hf_count(const rp_hf_config *config, const char *key, uint32_t least, uint32_t most,
                      uint32_t null, bool null_is_valid, uint32_t *value_out);

/** @return true for null, [] and {}. */
bool rp_hf_is_empty(const json_t *value);

/** @return true for keys on which neither shapes nor values of a training run depend. */
bool rp_hf_is_unneeded(const char *key);

/** Warns of every key of `rest` that is unknown or has an effect that is not simulated. */
void rp_hf_warn_of_rest(const rp_hf_config *config);
