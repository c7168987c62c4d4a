/** @file block.h  A transformer block: forward, and backward of its input and of its weights. */
#pragma once

#include "exec/model/layers.h"

/** Bytes that a block's forward keeps for its backward, without its output. */
uint64_t rpexec_block_tape_bytes(const rpexec_model *model, uint64_t tokens);

/** Bytes that the input part of a backward hands to the weight part, without the gradient of the
 * block's output. */
uint64_t rpexec_block_weight_tape_bytes(const rpexec_model *model, uint64_t tokens);

/** Bytes of scratch of any of the three functions. */
uint64_t rpexec_block_scratch_bytes(const rpexec_model *model, uint64_t tokens);

/** y = block(x). @param layer from 1 to L: windows of attention may differ @param weights the
 * layer's array. The functions above give the sizes of `tape` and `scratch`. */
void rpexec_block_forward(const rpexec_compute *compute, uint32_t layer, const void *weights,
                          uint32_t sequences, const void *x, void *y, void *tape, void *scratch);

/** Computes dx, adds the gradients of the norms' weights and of sinks, and fills `weight_tape`. dx
 * must not be dy.
 */
void rpexec_block_backward_input(const rpexec_compute *compute, uint32_t layer, const void *weights,
                                 void *gradients, uint32_t sequences, const void *x,
                                 const void *tape, const void *dy, void *dx, void *weight_tape,
                                 void *scratch);

/** Adds the gradients of the matrices and biases. */
void rpexec_block_backward_weight(const rpexec_compute *compute, uint32_t layer, void *gradients,
                                  uint32_t sequences, const void *tape, const void *dy,
                                  const void *weight_tape, void *scratch);
