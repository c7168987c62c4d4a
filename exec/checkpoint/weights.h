/** @file weights.h  Checkpoints of Hugging Face's layout: a folder with config.json and weights.
 *
 * Weights are a single model.safetensors, or without it shards named in
 * model.safetensors.index.json. Every expected tensor must be there with its shape; unknown names
 * are refused, except buffers that the configuration determines. A tied table may be stored as the
 * embedding, as the head, or twice with equal values (executor.md 4.2).
 */
#pragma once

#include "exec/checkpoint/safetensors.h"
#include "exec/state/state.h"

/**
 * Reads a config.json for training: shapes as rpsim reads them (huggingface/config.h), in either
 * style (rope_theta and rope_scaling, or rope_parameters) of a model_type whose layers are
 * computed; of other types the parts that are not computed are named. In qwen3_moe every layer must
 * have experts; their weights are divided by their sum if norm_topk_prob is true, and not if it is
 * missing. Sizes must be there; other missing keys have the defaults of transformers. Keys that
 * training depends on but does not compute, and unknown keys, are refused, all of them by name
 * (config_keys.c).
 * @param path of the file, or of the folder with a config.json
 * @param assume model_type for a file whose own is unknown; NULL: such a file is refused
 * @param model_out lives in `arena`; its name is the folder's, with _ for characters that names may
 *        not have
 * @retval RP_OK, RP_INPUT ("path:line: key: cause; valid values are …"), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_config_load(const char *path, const char *assume, rp_arena *arena,
                             rp_model *model_out);

/**
 * Fills the master weights from a folder and refreshes the working ones. With LoRA: the frozen
 * weights; adapters stay as they are.
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_weights_load(const char *folder, rpexec_state *state);

/**
 * Fills the adapters from adapter_model.safetensors of a folder, named as PEFT names them.
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_adapters_load(const char *folder, rpexec_state *state);

/**
 * Lists all trained parameters as Hugging Face names them, adapters as PEFT does, in the order of
 * the layers; the table of a tied head is left out. Each part of a joined tensor has its own name.
 * @param values an fp32 array of the state; NULL: lists the weights that are not trained, in the
 *        storage type
 * @param prefix of every name, "" for weights
 * @param tensors_out [*count_out] in `arena`, pointing into `values`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_weights_list(const rpexec_state *state, const float *values, const char *prefix,
                              rp_arena *arena, rpexec_writable **tensors_out, uint32_t *count_out);

/** A part of a joined tensor (rpexec_joined), [rows, columns]. */
typedef struct rpexec_weight_part {
    const rpexec_tensor *tensor; /**< a tensor whose `part` is set */
    const void *values;          /**< in the type of the joined tensor */
} rpexec_weight_part;

/**
 * Lists the same tensors as checkpoints hold them, with parts joined into their tensors.
 * @param tensors_out [*count_out] in `arena`; rpexec_weights_put_together gives the values of
 *        joined tensors
 */
rp_status rpexec_weights_joined(const rpexec_state *state, const float *values, const char *prefix,
                                rp_arena *arena, rpexec_writable **tensors_out,
                                uint32_t *count_out);

/** Puts the values of a joined tensor together from its parts. @param to [elements] of the tensor's
 * type */
void rpexec_weights_put_together(const rpexec_writable *tensor, void *to);

/** Most bytes of tensors in a file of weights, as in huggingface_hub. */
#define RPEXEC_SHARD_BYTES UINT64_C(5000000000)

/**
 * Writes the trained weights into a folder, in the model's storage type: model.safetensors, or, if
 * that would have more than `shard_bytes` of tensors, model-0000I-of-0000N.safetensors and their
 * index, cut as by transformers' save_pretrained, in the order of rpexec_weights_list. Adapters are
 * a single adapter_model.safetensors.
 * @retval RP_OK, RP_INPUT, RP_IO (logged), RP_NO_MEMORY
 */
rp_status rpexec_weights_write(const rpexec_state *state, const char *folder, uint64_t shard_bytes);

/** Writes in the same way the weights that LoRA does not change, under the names of the model
 * without adapters. */
rp_status rpexec_frozen_write(const rpexec_state *state, const char *folder, uint64_t shard_bytes);

/** @return whether the two functions above write files of this name. */
bool rpexec_weights_is_file(const char *name);

/**
 * Looks for tensors that hold a NaN or an infinity, among the weights that computations use and the
 * masters of trained weights.
 * @param name_out the first such tensor in the order of the layers, in `arena`; NULL: there is none
 * @param count_out number of such tensors
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_weights_not_finite(const rpexec_state *state, rp_arena *arena,
                                    const char **name_out, uint32_t *count_out);
