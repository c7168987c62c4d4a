/** @file layer_tensors.h  Tensors of one decoder layer, from allocation to free, forward with tape
 * and backward, in PyTorch's order: recorded (traces/layers), with sizes in the model's dimensions.
 */
#pragma once

#include "common/inputs/model.h"

typedef enum rpsim_tensor_event_kind {
    RPSIM_TENSOR_ALLOC,
    RPSIM_TENSOR_FREE,
} rpsim_tensor_event_kind;

typedef struct rpsim_tensor_event {
    rpsim_tensor_event_kind kind;
    uint32_t tensor;
    uint64_t bytes; /**< of an allocation */
    bool weight;    /**< of an allocation: its size is that of weights, not of tokens */
} rpsim_tensor_event;

/** A layer over some tokens. The layer's input and its output's gradient are not in it. */
typedef struct rpsim_layer_tensors {
    rpsim_tensor_event *events;
    size_t count;
    size_t backward; /**< index of the first event of the backward */
    uint32_t tensors;
    uint32_t output;         /**< lives on after the forward, and after the backward */
    uint32_t input_gradient; /**< lives on after the backward, as do gradients of weights */
} rpsim_layer_tensors;

/** @return whether there is a recording for a model's kind of layer: those of models with LayerNorm
 * or a plain MLP were not recorded, nor what only config.json says, nor layers of several kinds. */
static inline bool rpsim_layer_is_recorded(const rp_model *model)
{
    bool biases = model->qkv_bias || model->output_bias || model->mlp_bias || model->router_bias;
    bool latent = model->kv_rank != 0 || model->shared_intermediate != 0;
    bool norms = rp_model_layer_norms(model) != 2 || model->wide_qk_norm || model->layer_norm;
    return !model->plain_mlp && !biases && !latent && !norms && model->kinds == NULL;
}

/**
 * The recording for a model's kind of layer, for `tokens` tokens; experts get equal shares.
 * @param model rpsim_layer_is_recorded
 * @param arena owns the events
 * @retval RP_OK, RP_INPUT (the recording is malformed; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_layer_tensors_load(const rp_model *model, uint64_t tokens, rp_arena *arena,
                                   rpsim_layer_tensors *tensors_out);
