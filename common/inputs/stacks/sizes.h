/** @file sizes.h  Bytes in memory that depend on a stack. */
#pragma once

#include "common/inputs/sizes.h"
#include "common/inputs/stacks/stack.h"

/**
 * Sets the sizes that a stack's keys of memory decide: tapes, temporaries, logits, gradients, and
 * what a step takes. Models whose cost tables have a loss of their own keep it.
 * @param model a GPU's part of it (rp_model_cut)
 * @param sizes of that model (rp_sizes_of_model), for sequences of `seq_len` tokens
 */
void rp_stack_set_sizes(const rp_stack *stack, const rp_model *model, uint32_t seq_len,
                        rp_sizes *sizes);
