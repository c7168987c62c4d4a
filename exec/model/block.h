/** @file block.h  One transformer block: forward, backward of its input and of its weights. */
#pragma once

#include "exec/model/layers.h"

/** Floats that a block's forward keeps for its backward, without its output. */
uint64_t rpexec_block_tape_floats(const rp_model *model, uint64_t tokens);

/** Floats that the input part of a backward hands to the weight part, without the gradient of the
 * block's output. */
uint64_t rpexec_block_weight_tape_floats(const rp_model *model, uint64_t tokens);

/** Floats of scratch of any of the three functions. */
uint64_t rpexec_block_scratch_floats(const rp_model *model, uint64_t tokens);

/** y = block(x). @param weights the layer's array; all others as named above */
void rpexec_block_forward(const rpexec_compute *compute, const float *weights, uint32_t sequences,
                          const float *x, float *y, float *tape, float *scratch);

/** dx and the gradients of the norms' weights; fills `weight_tape`. dx must not be dy. */
void rpexec_block_backward_input(const rpexec_compute *compute, const float *weights,
                                 float *gradients, uint32_t sequences, const float *x,
                                 const float *tape, const float *dy, float *dx, float *weight_tape,
                                 float *scratch);

/** The gradients of the matrices. */
void rpexec_block_backward_weight(const rpexec_compute *compute, float *gradients,
                                  uint32_t sequences, const float *tape, const float *dy,
                                  const float *weight_tape, float *scratch);
