/** @file layer_tensors.h  The tensors of a decoder layer from allocation to free, in PyTorch's
 * order, for a forward with tape and a backward. They were recorded (traces/layers); their sizes
 * are given in the model's dimensions. */
#pragma once

#include "common/inputs/model.h"

typedef enum rpsim_tensor_event_kind {
    RPSIM_TENSOR_ALLOC,
    RPSIM_TENSOR_FREE,
} rpsim_tensor_event_kind;

typedef struct rpsim_tensor_event {
    rpsim_tensor_event_kind kind;
    uint32_t tensor;
    uint64_t bytes; /**< size of an allocation */
    bool weight;    /**< an allocation whose size depends on weights, not on tokens */
} rpsim_tensor_event;

/** A layer over some tokens. The layer's input and its output's gradient are not among the
 * tensors. */
typedef struct rpsim_layer_tensors {
    rpsim_tensor_event *events;
    size_t count;
    size_t backward; /**< index of the first event of the backward */
    uint32_t tensors;
    uint32_t output;         /**< lives on after the forward, and after the backward */
    uint32_t input_gradient; /**< lives on after the backward, as do the gradients of weights */
} rpsim_layer_tensors;

/** @return whether a recording exists for a model's kind of layer. Models with LayerNorm or a plain
 * MLP were not recorded, nor were models with features known only from config.json or with layers
 * of several kinds. */
static inline bool rpsim_layer_is_recorded(const rp_model *model)
{
    bool biases = model->qkv_bias || model->output_bias || model->mlp_bias || model->router_bias;
    bool latent = model->kv_rank != 0 || model->shared_intermediate != 0;
    bool norms = rp_model_layer_norms(model) != 2 || model->wide_qk_norm || model->layer_norm;
    return !model->plain_mlp && !biases && !latent && !norms && model->kinds == NULL;
}

/**
 * Loads the recording for a model's kind of layer at `tokens` tokens; experts get equal shares.
 * @param model accepted by rpsim_layer_is_recorded
 * @param arena owns the events
 * @retval RP_OK, RP_INPUT (the recording is malformed; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_layer_tensors_load(const rp_model *model, uint64_t tokens, rp_arena *arena,
                                   rpsim_layer_tensors *tensors_out);
