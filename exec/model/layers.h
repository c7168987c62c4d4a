/** @file layers.h  Forward and backward of stages, made of a backend's operators.
 *
 * A stage is layers [begin, end) as exec/model/model.h counts them. Nothing here knows schedules or
 * queues: the executor calls these functions for each compute op, with pointers into one GPU's
 * memory. All of them are linear in the gradients they add to, so that microbatches accumulate.
 *
 * The head's forward computes loss and gradient of its input at once, in chunks of tokens
 * (executor.md 5.1), since the upstream gradient is known beforehand: its gradients are added to in
 * FORWARD, and its backward begins with what that left in head_gradient. It is not part of a
 * recompute.
 */
#pragma once

#include "exec/model/model.h"
#include "exec/operators/operators.h"

/** Tokens of which the head holds logits at a time; in 16-bit types as many more as the model is
 * wide, so that they take no more than the head's table, up to the second number. */
#define RPEXEC_LOSS_CHUNK_TOKENS 512u
#define RPEXEC_LOSS_CHUNK_MOST 4096u

/**
 * The ranks of a tensor-parallel group as one of them sees them (tensor_parallel.h): all compute
 * the same layers of the same tokens at the same time, each with its slice. The calls belong to the
 * lane's work: what was computed before is done, what comes afterwards sees the result, and all
 * ranks make the same calls. After a failure they do nothing, and the maker of the ranks knows.
 */
typedef struct rpexec_ranks {
    uint32_t count;
    uint32_t rank;
    uint32_t first_id; /**< of the rank's part of the vocabulary */
    /** Every rank's array becomes the sum of them all. */
    void (*all_reduce)(struct rpexec_ranks *ranks, rp_dtype dtype, uint64_t count, void *array);
    /** Every rank gets all ranks' parts of an fp32 array of `count` each, a multiple of 16: its own
     * lies in its place already, `rank` times `count` from the beginning. */
    void (*all_gather)(struct rpexec_ranks *ranks, uint64_t count, float *array);
} rpexec_ranks;

/** Common input of all functions. */
typedef struct rpexec_compute {
    const rpexec_model *model;         /**< with ranks the rank's slice */
    const rpexec_operators *operators; /**< of the model's storage type */
    rpexec_lane *lane;
    const float *rotary; /**< the model's cosines, then its sines, in the GPU's memory; NULL: the
                              model's own */
    rpexec_ranks *ranks; /**< NULL: the model is whole */
    bool wide;           /**< gradients of weights are added up in fp32, in every storage type */
} rpexec_compute;

/** @return where gradient `index` of an array of weights' gradients is. */
static inline void *rpexec_gradient(const rpexec_compute *compute, void *gradients, uint64_t index)
{
    return rpexec_element(compute->wide ? RP_DTYPE_F32 : compute->model->dtype, gradients, index);
}

/** A copy of a layer's output that a forward leaves behind: the input of a later backward stage. */
typedef struct rpexec_stage_save {
    uint32_t layer;
    void *to; /**< [T, hidden] */
} rpexec_stage_save;

/** One microbatch of a stage: what is in the GPU's memory, in the model's storage type. */
typedef struct rpexec_stage_data {
    uint32_t begin; /**< layers [begin, end) */
    uint32_t end;
    uint32_t sequences;
    const void *weights; /**< arrays of the layers, one after the other */
    const void *root;    /**< embedding and head, one after the other, where `weights` is without
                              them; otherwise NULL */
    void *gradients;    /**< like weights, or fp32 (rpexec_compute.wide); added to. May be NULL in a
                             forward without head */
    const void *input;  /**< [T, hidden], or NULL where the stage begins with the embedding */
    const int32_t *ids; /**< [T], where it begins with the embedding; with ranks those of its part
                             of the vocabulary from 0 on, all others -1 */
    void *embedded;   /**< [T, hidden] the embedding's output is kept there by a forward, and taken
                           by a recompute; NULL: it is computed again */
    bool is_embedded; /**< a recompute: it is there */
    const int32_t *labels; /**< [T], where it has the head */
    float loss_scale;      /**< gradient of the summed loss: 1 / valid tokens of the step */
    double *loss;          /**< added to, not scaled */
    bool loss_only;        /**< the head computes no gradients: nothing goes back from it */
    void *output; /**< [T, hidden], of the last layer below the head; NULL in a recompute */
    const rpexec_stage_save *saves; /**< [save_count] ascending by layer */
    uint32_t save_count;
    void *tape;           /**< rpexec_stage_tape_bytes; for the backward */
    void *weight_tape;    /**< rpexec_stage_weight_tape_bytes; split backward only */
    void *scratch;        /**< rpexec_stage_scratch_bytes */
    void *head_gradient;  /**< [T, hidden] from the head's forward to its backward */
    float *statistics;    /**< rpexec_statistics_bytes; with ranks and the head */
    const void *d_output; /**< [T, hidden]; unused where the stage has the head */
    void *d_input;        /**< [T, hidden]; NULL where the stage begins with the embedding */
} rpexec_stage_data;

/** @return bytes of tape, of T tokens, that a layer needs: what its backward reads. */
uint64_t rpexec_tape_bytes(const rpexec_model *model, uint32_t layer, uint64_t tokens);

/** Every rank's sum, where there are ranks. */
static inline void rpexec_all_reduce(const rpexec_compute *compute, rp_dtype dtype, uint64_t count,
                                     void *array)
{
    if (compute->ranks != NULL) {
        compute->ranks->all_reduce(compute->ranks, dtype, count, array);
    }
}

/** @return tokens of which the head has logits at a time, of T tokens: of so many at once a
 * gradient is one product, and added to what the chunks before have given. */
uint64_t rpexec_loss_chunk(const rpexec_model *model, uint64_t tokens);

/** @return bytes of what ranks tell each other of the logits of T tokens. */
uint64_t rpexec_statistics_bytes(const rpexec_model *model, uint32_t ranks, uint64_t tokens);

/** @return elements of the longest array that a layer's ranks sum or gather, T tokens. */
uint64_t rpexec_exchange_count(const rpexec_model *model, uint64_t tokens);

/** @return bytes of scratch that a forward or backward of the layer needs. */
uint64_t rpexec_scratch_bytes(const rpexec_model *model, uint32_t layer, uint64_t tokens);

/** The same for layers [begin, end); without `keep` the forward runs on the tape of one layer. */
uint64_t rpexec_stage_tape_bytes(const rpexec_model *model, uint32_t begin, uint32_t end,
                                 uint64_t tokens, bool keep);
uint64_t rpexec_stage_weight_tape_bytes(const rpexec_model *model, uint32_t begin, uint32_t end,
                                        uint64_t tokens);
uint64_t rpexec_stage_scratch_bytes(const rpexec_model *model, uint32_t begin, uint32_t end,
                                    uint64_t tokens);

/**
 * Layers [begin, end) but the head forward: FORWARD of them, or RECOMPUTE.
 * @param keep the whole tape is kept; otherwise it is one layer's and overwritten
 */
void rpexec_stage_forward(const rpexec_compute *compute, const rpexec_stage_data *data, bool keep);

/** The head on what the layers below gave: adds loss and gradients, fills head_gradient. */
void rpexec_stage_head(const rpexec_compute *compute, const rpexec_stage_data *data);

/** Parts of the backward that a call does. */
typedef enum rpexec_backward_part {
    RPEXEC_BACKWARD_BOTH,
    RPEXEC_BACKWARD_INPUT,  /**< gradients of inputs and norms; fills weight_tape */
    RPEXEC_BACKWARD_WEIGHT, /**< gradients of matrices and the embedding from the weight_tape */
} rpexec_backward_part;

/** The backward of layers [begin, end), after a forward that kept the tape. */
void rpexec_stage_backward(const rpexec_compute *compute, const rpexec_stage_data *data,
                           rpexec_backward_part part);
