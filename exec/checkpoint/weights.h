/** @file weights.h  Checkpoints of Hugging Face's layout: a folder with config.json and weights.
 *
 * Weights are one model.safetensors, or without it shards named in model.safetensors.index.json.
 * Every expected tensor must be there with its shape; unknown names are refused, but for buffers
 * that the configuration determines. Of a tied table the embedding or the head may be absent, or
 * both be present and equal (executor.md 4.2).
 */
#pragma once

#include "exec/checkpoint/safetensors.h"
#include "exec/state/state.h"

/**
 * Reads a config.json for training: shapes as rpsim reads them (huggingface/config.h), in either
 * style (rope_theta and rope_scaling, or rope_parameters) of model_type llama, qwen3 or qwen3_moe;
 * of others what is not computed is named. In qwen3_moe every layer must have experts; their
 * weights are divided by their sum where norm_topk_prob says so, which a file without it does not.
 * Sizes must be there; other missing keys are what transformers takes for them. Keys that training
 * depends on and that are not computed, and unknown ones, are refused, all of them by name
 * (config_keys.c).
 * @param path of the file; a folder's config.json is meant by the folder, too
 * @param assume model_type that the file is read as where its own is unknown; NULL: refused
 * @param model_out lives in `arena`; its name is the folder's, _ for what names may not have
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
 * the layers; a tied head's table is left out. Parts of joined tensors have names of their own.
 * @param values one of the state's fp32 arrays; NULL: all that is not trained, in the storage type
 * @param prefix before every name, "" for weights
 * @param tensors_out [*count_out] in `arena`, pointing into `values`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_weights_list(const rpexec_state *state, const float *values, const char *prefix,
                              rp_arena *arena, rpexec_writable **tensors_out, uint32_t *count_out);

/** A part of a joined tensor (rpexec_joined), [rows, columns]. */
typedef struct rpexec_weight_part {
    const rpexec_tensor *tensor; /**< with a part */
    const void *values;          /**< of the type of the joined tensor */
} rpexec_weight_part;

/**
 * The same tensors as checkpoints have them: those that are parts of one are joined there.
 * @param tensors_out [*count_out] in `arena`; joined ones are to be put together
 */
rp_status rpexec_weights_joined(const rpexec_state *state, const float *values, const char *prefix,
                                rp_arena *arena, rpexec_writable **tensors_out,
                                uint32_t *count_out);

/** Puts a joined tensor's values together. @param to [elements] of the tensor's type */
void rpexec_weights_put_together(const rpexec_writable *tensor, void *to);

/** Bytes of tensors that a file of weights has at most, as huggingface_hub cuts them. */
#define RPEXEC_SHARD_BYTES UINT64_C(5000000000)

/**
 * Writes the trained weights into a folder, in the model's storage type: model.safetensors, or
 * where that would have more than `shard_bytes` of tensors model-0000I-of-0000N.safetensors and
 * their index, cut as transformers' save_pretrained does, in the order of rpexec_weights_list.
 * Adapters are one adapter_model.safetensors.
 * @retval RP_OK, RP_INPUT, RP_IO (logged), RP_NO_MEMORY
 */
rp_status rpexec_weights_write(const rpexec_state *state, const char *folder, uint64_t shard_bytes);

/** The same of the weights that LoRA leaves as they are, named as those of the model without
 * adapters. */
rp_status rpexec_frozen_write(const rpexec_state *state, const char *folder, uint64_t shard_bytes);

/** @return true of the names of files that the two functions above write. */
bool rpexec_weights_is_file(const char *name);

/**
 * Looks for tensors that hold a NaN or an infinity, among the weights that are computed with and
 * the masters of those that are trained.
 * @param name_out the first one in the order of the layers, in `arena`; NULL: there is none
 * @param count_out how many there are
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_weights_not_finite(const rpexec_state *state, rp_arena *arena,
                                    const char **name_out, uint32_t *count_out);
