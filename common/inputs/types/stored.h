/** @file stored.h  Bytes of tensors in the types of frozen weights and optimizer states, as
 * bitsandbytes and torchao hold them (tests/golden/stored.csv has their own tensors).
 */
#pragma once

#include "common/program/dtype.h"

/** Values that share a scale in NF4. */
#define RP_NF4_BLOCK 64u

/** Bytes of a frozen matrix. */
typedef struct rp_stored {
    uint64_t values; /**< a parameter, which sharded systems divide */
    uint64_t scales; /**< attributes beside it, whole on each GPU */
} rp_stored;

/**
 * Gives the bytes of a frozen matrix:
 *  - nf4, nf4-single: bitsandbytes' Linear4bit. Blocks of 64 values share a scale. A table of 16
 *    floats; of nf4 also one of 256 and an offset, for scales that are stored in 8 bits each and in
 *    turn share a float among 256;
 *  - fp8: torchao's Float8WeightOnlyConfig, a float per row;
 *  - mxfp4: torchao's MXTensor and OpenAI's checkpoints, an exponent of 8 bits for 32 values of a
 *    row.
 * @param rows outputs of the layer
 * @param columns its inputs
 * @param value_bytes of the run's type, for RP_FROZEN_DTYPE
 */
rp_stored rp_stored_matrix(rp_frozen frozen, uint64_t rows, uint64_t columns, uint64_t value_bytes);

/** @return whether matrices are stored in other values than products take, which are made of them
 * in each pass. */
static inline bool rp_frozen_is_quantised(rp_frozen frozen)
{
    return frozen > RP_FROZEN_BF16;
}

/**
 * Gives the bytes of both moments of Adam for a tensor. 8bit: bitsandbytes' AdamW8bit, blocks of
 * 256 elements that share a float; tensors of fewer than 4096 elements have fp32. All tensors of an
 * optimizer share two tables of 1024 bytes, which are not counted (torchao's have two each).
 */
uint64_t rp_states_bytes(rp_states states, uint64_t elements);

/** @return bytes of a weight that the optimizer steps beside the working weight. */
uint64_t rp_master_bytes(rp_master master);
