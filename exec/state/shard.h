/** @file shard.h  Parameters that each rank of a data-parallel group owns.
 *
 * Layers are cut in pieces, and each piece in a share for each rank (exec/operators/collective.h).
 * A piece is a layer's array; the head's array is two pieces, the norm and the table, so that the
 * shares of a tied table lie with the same ranks as those of the embedding. With LoRA the frozen
 * and the trained values of a layer are separate pieces; only the trained piece has gradients and
 * moments. A rank keeps its shares of several layers packed, one after the other.
 */
#pragma once

#include "exec/model/model.h"
#include "exec/operators/collective.h"

/** A walk over the pieces of layers [begin, end), in the order in which they lie. */
typedef struct rpexec_pieces {
    const rpexec_model *model;
    uint32_t ranks;
    uint32_t rank;
    uint32_t layer; /**< layer of the current piece */
    uint32_t end;
    bool table;      /**< the current piece is the embedding's or the head's table */
    uint64_t at;     /**< elements from the beginning of the first layer's array to the piece */
    uint64_t count;  /**< elements of the piece */
    uint64_t begin;  /**< the rank's share: elements [begin, begin + share) of the piece */
    uint64_t share;  /**< its length */
    uint64_t packed; /**< place of the share among the rank's packed shares, in elements */
    bool trained;    /**< the current piece is trained; then trained_at and trained_packed are `at`
                          and `packed`, counted over trained pieces only */
    uint64_t trained_at;
    uint64_t trained_packed;
    bool started;
    uint64_t inside; /**< values of the current layer before the piece */
} rpexec_pieces;

/** @return a walk that stands before the first piece. */
rpexec_pieces rpexec_pieces_of(const rpexec_model *model, uint32_t begin, uint32_t end,
                               uint32_t ranks, uint32_t rank);

/** @return whether there is another piece; then the walk stands on it. */
bool rpexec_pieces_next(rpexec_pieces *pieces);

/** @return elements of a rank's packed shares of layers [begin, end). */
uint64_t rpexec_shard_values(const rpexec_model *model, uint32_t begin, uint32_t end,
                             uint32_t ranks, uint32_t rank);

/** @return elements of a rank's packed shares of the trained pieces of these layers. */
uint64_t rpexec_shard_trained(const rpexec_model *model, uint32_t begin, uint32_t end,
                              uint32_t ranks, uint32_t rank);

/** @return most pieces that a walk over all layers meets. */
static inline uint32_t rpexec_most_pieces(const rpexec_model *model)
{
    return 2 * model->layer_count + 1;
}

/** @return elements of the longest share of a trained piece of these layers. */
uint64_t rpexec_longest_share(const rpexec_model *model, uint32_t begin, uint32_t end,
                              uint32_t ranks);
