/** @file tensor_parallel.h  What one rank of a tensor-parallel group has of a model (Megatron-LM,
 * section 3).
 *
 * q, k, v, gate and up are cut by rows, o and down by columns, so that a rank has whole heads and
 * the activations between the two are its own; of experts each one's matrices are cut so. Where
 * there are fewer kv heads than ranks, several ranks have the same one. Embedding and head are cut
 * by vocabulary, in parts that need not be equally long. Norms, the router, the adapters' A of what
 * is cut by rows and B of what is cut by columns are whole on every rank.
 *
 * A slice is a model of its own, laid out as exec/model/model.h says: a rank computes with it as
 * with a smaller model, and nothing but the sums of the ranks' outputs is special (layers.h).
 */
#pragma once

#include "exec/model/model.h"

typedef struct rpexec_slice {
    const rpexec_model *whole; /**< borrowed */
    rpexec_model model;        /**< the rank's part */
    rp_model config;           /**< of `model` */
    uint32_t ranks;
    uint32_t rank;
    uint32_t first_id; /**< the rank's tables are rows [first_id, first_id + config.vocab) */
} rpexec_slice;

/**
 * Lays out a rank's slice.
 * @param ranks 1 or more, @param rank below that
 * @param slice_out points to itself: stays where it is
 * @retval RP_OK, RP_USAGE (heads, kv heads, the MLP or the vocabulary cannot be cut in so many
 *         parts; logged with the numbers of GPUs that are valid), RP_NO_MEMORY
 */
rp_status rpexec_slice_create(const rpexec_model *whole, uint32_t ranks, uint32_t rank,
                              rp_arena *arena, rpexec_slice *slice_out);

/**
 * @return 0 where a rank's gradient of a block's tensor, by number, is complete: nobody else has
 *         that part of it, or all who have it compute the same. Otherwise the parts that ranks have
 *         of the tensor, 1 being all of it; a part's gradient is the sum of all who have it
 */
uint32_t rpexec_slice_sums(const rpexec_slice *slice, uint32_t tensor);

/** @return which of the parts the rank has. */
uint32_t rpexec_slice_part(const rpexec_slice *slice, uint32_t parts);

/** @return true where a rank before this one has the same part of a layer's tensor, by number. */
bool rpexec_slice_copies(const rpexec_slice *slice, uint32_t layer, uint32_t tensor);

/** Which of a layer's tensors to copy, from where to where. */
typedef struct rpexec_slice_copy {
    uint32_t layer;
    uint64_t width; /**< bytes of an element */
    bool trained;   /**< arrays of what is trained, which begin with it; otherwise of all */
    bool to_whole;  /**< back; what several ranks have only from the first of them */
    void *whole;    /**< the layer of the whole model */
    void *table;    /**< where the whole head's table is instead; NULL: in `whole` */
    void *part;     /**< the layer of the slice */
} rpexec_slice_copy;

/** Copies in host memory between the whole layer and the rank's. */
void rpexec_slice_move(const rpexec_slice *slice, const rpexec_slice_copy *copy);
