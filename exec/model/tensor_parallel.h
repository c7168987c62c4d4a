/** @file tensor_parallel.h  The slice of a model in a rank of a tensor-parallel group (Megatron-LM,
 * section 3).
 *
 * q, k, v, gate and up are cut by rows, o and down by columns, so that a rank has whole heads and
 * computes the activations between the two without other ranks. The matrices of each expert are cut
 * in the same way. If there are fewer kv heads than ranks, several ranks have the same kv head.
 * Embedding and head are cut by vocabulary, in parts that need not be equally long. Norms, the
 * router, A of adapters on matrices cut by rows, and B of adapters on matrices cut by columns are
 * whole on every rank.
 *
 * A slice is itself a model, laid out as in exec/model/model.h: a rank computes with it as with a
 * smaller model, and only the sums of the ranks' outputs are special (layers.h).
 */
#pragma once

#include "exec/model/model.h"

typedef struct rpexec_slice {
    const rpexec_model *whole; /**< borrowed */
    rpexec_model model;        /**< the rank's slice */
    rp_model config;           /**< config of `model` */
    uint32_t ranks;
    uint32_t rank;
    uint32_t first_id; /**< the rank's tables are rows [first_id, first_id + config.vocab) */
} rpexec_slice;

/**
 * Lays out a rank's slice.
 * @param ranks at least 1, @param rank less than `ranks`
 * @param slice_out must not be moved, since it points to itself
 * @retval RP_OK, RP_USAGE (heads, kv heads, the MLP or the vocabulary cannot be cut into `ranks`
 *         parts; logged with the valid numbers of GPUs), RP_NO_MEMORY
 */
rp_status rpexec_slice_create(const rpexec_model *whole, uint32_t ranks, uint32_t rank,
                              rp_arena *arena, rpexec_slice *slice_out);

/**
 * @return 0 if a rank's gradient of a block's tensor, by number, is complete: no other rank has the
 *         same part, or all ranks that have it compute the same gradient. Otherwise the number of
 *         parts into which the tensor is cut, 1 if it is whole; a part's gradient is the sum over
 *         the ranks that have the part
 */
uint32_t rpexec_slice_sums(const rpexec_slice *slice, uint32_t tensor);

/** @return the number of the part that the rank has. */
uint32_t rpexec_slice_part(const rpexec_slice *slice, uint32_t parts);

/** @return whether a rank before this rank has the same part of a layer's tensor, by number. */
bool rpexec_slice_copies(const rpexec_slice *slice, uint32_t layer, uint32_t tensor);

/** A copy of a layer's tensors, its source and destination. */
typedef struct rpexec_slice_copy {
    uint32_t layer;
    uint64_t width; /**< bytes of an element */
    bool trained;   /**< the arrays hold only the trained values; otherwise all values */
    bool to_whole;  /**< copy back; a part that several ranks have is copied only from the first of
                         them */
    void *whole;    /**< the layer of the whole model */
    void *table;    /**< the whole head's table if it lies elsewhere; NULL: in `whole` */
    void *part;     /**< the layer of the slice */
} rpexec_slice_copy;

/** Copies in host memory between the whole layer and the rank's. */
void rpexec_slice_move(const rpexec_slice *slice, const rpexec_slice_copy *copy);
