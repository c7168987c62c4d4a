/** @file tape.h  What the forward of a layer keeps for its backward (its tape) in the software of a
 * stack: the keys `*_saved_bytes` of its file.
 *
 * Held against the tensors that PyTorch saves, to the byte: tests/golden/tapes.csv, which
 * tests/tools/record_tapes.py records. Latent attention, shared experts and Cohere's and Gemma's
 * norms follow from the same rules and were not recorded.
 */
#pragma once

#include "common/inputs/model.h"
#include "common/inputs/stacks/stack.h"
#include "common/program/dtype.h"

/** Bytes per token; a member for each sub-block that software recomputes apart. */
typedef struct rp_tape {
    uint64_t norms;      /**< norms of layer, heads and latent vectors, without their outputs */
    uint64_t inputs;     /**< outputs of norms, as inputs of q, k and v, and of gate and up */
    uint64_t attention;  /**< queries, keys, values, output, the sum of each head */
    uint64_t activation; /**< gate, up, and what the activation keeps between them */
    uint64_t product;    /**< input of down */
    uint64_t adapters;   /**< masks and copies of their inputs, inner vectors */
    uint64_t experts;    /**< inputs and outputs that a mixture gathers by expert */
} rp_tape;

/**
 * @param layer as rp_model_of_layer gives it, or a GPU's part of it (rp_model_cut)
 * @param dtype type of activations: values double in fp32, fp32 copies and sums do not
 */
rp_tape rp_stack_tape(const rp_stack *stack, const rp_model *layer, rp_dtype dtype);

/** @return the sum of all members. */
uint64_t rp_tape_bytes(const rp_tape *tape);

/** @return most bytes per token that the backward of a layer holds beside its tape. */
uint64_t rp_stack_temporary(const rp_stack *stack, const rp_model *layer, rp_dtype dtype);

/** @return bytes per token that a norm over the hidden vector keeps. */
uint64_t rp_stack_norm_tape(const rp_stack *stack, const rp_model *model, rp_dtype dtype);

/** @return bytes per token that the final norm keeps, with the input of a trained head. */
uint64_t rp_stack_head_tape(const rp_stack *stack, const rp_model *model, rp_dtype dtype);
