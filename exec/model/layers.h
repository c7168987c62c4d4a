/** @file layers.h  Forward and backward of stages, made of a backend's operators.
 *
 * A stage is layers [begin, end) as exec/model/model.h counts them. Nothing here knows schedules or
 * queues: the executor calls these functions for each compute op, with pointers into one GPU's
 * memory. All functions add to the gradients of weights, so that microbatches accumulate.
 *
 * The head's forward computes loss and gradient of its input at once, in chunks of tokens
 * (executor.md 5.1), since the upstream gradient is known beforehand: its gradients are added in
 * FORWARD, and its backward begins with the head_gradient of that FORWARD. The head is not part of
 * a recompute.
 */
#pragma once

#include "exec/model/model.h"
#include "exec/operators/operators.h"

/** Tokens whose logits the head holds at a time. In 16-bit types as many tokens as the model is
 * wide, if that is more, up to the second number: then logits take no more memory than the head's
 * table. */
#define RPEXEC_LOSS_CHUNK_TOKENS 512u
#define RPEXEC_LOSS_CHUNK_MOST 4096u

/**
 * The ranks of a tensor-parallel group, as seen by a rank (tensor_parallel.h): all compute the same
 * layers of the same tokens at the same time, each with its slice. The calls are ordered with the
 * lane's work: earlier work is done before, and later work sees the result. All ranks make the same
 * calls. After a failure the calls do nothing; the maker of the ranks learns of it.
 */
typedef struct rpexec_ranks {
    uint32_t count;
    uint32_t rank;
    uint32_t first_id; /**< first token of the rank's part of the vocabulary */
    /** Every rank's array becomes the sum of all ranks' arrays. */
    void (*all_reduce)(struct rpexec_ranks *ranks, rp_dtype dtype, uint64_t count, void *array);
    /** Gathers an fp32 array of all ranks' parts in every rank. A part has `count` values, a
     * multiple of 16; a rank's own part lies in its place already, `rank` times `count` from the
     * beginning. */
    void (*all_gather)(struct rpexec_ranks *ranks, uint64_t count, float *array);
} rpexec_ranks;

/** Common input of all functions. */
typedef struct rpexec_compute {
    const rpexec_model *model;         /**< the model; with ranks the rank's slice */
    const rpexec_operators *operators; /**< operators for the model's storage type */
    rpexec_lane *lane;
    const float *rotary; /**< the model's cosines, then its sines, in the GPU's memory; NULL: the
                              arrays of the model */
    rpexec_ranks *ranks; /**< NULL: the model is whole */
    bool wide;           /**< gradients of weights are added up in fp32, in every storage type */
} rpexec_compute;

/** @return the address of gradient `index` in an array of weights' gradients. */
static inline void *rpexec_gradient(const rpexec_compute *compute, void *gradients, uint64_t index)
{
    return rpexec_element(compute->wide ? RP_DTYPE_F32 : compute->model->dtype, gradients, index);
}

/** A copy of a layer's output that a forward leaves behind: the input of a later backward stage. */
typedef struct rpexec_stage_save {
    uint32_t layer;
    void *to; /**< [T, hidden] */
} rpexec_stage_save;

/** A microbatch of a stage: its arrays in the GPU's memory, in the model's storage type. */
typedef struct rpexec_stage_data {
    uint32_t begin; /**< layers [begin, end) */
    uint32_t end;
    uint32_t sequences;
    const void *weights; /**< arrays of the layers, one after the other */
    const void *root;    /**< embedding and head, one after the other, if `weights` lacks them;
                              otherwise NULL */
    void *gradients;    /**< like weights, or fp32 (rpexec_compute.wide); added to. May be NULL in a
                             forward without head */
    const void *input;  /**< [T, hidden], or NULL if the stage begins with the embedding */
    const int32_t *ids; /**< [T], if the stage begins with the embedding; with ranks the tokens of
                             the rank's part of the vocabulary count from 0, all others are -1 */
    void *embedded;     /**< [T, hidden] the embedding's output, which a forward keeps here for a
                             recompute; NULL: it is computed again */
    bool is_embedded;   /**< a recompute finds the output in `embedded` */
    const int32_t *labels; /**< [T], if the stage has the head */
    float loss_scale;      /**< gradient of the summed loss: 1 / valid tokens of the step */
    double *loss;          /**< added to, not scaled */
    bool loss_only;        /**< the head computes no gradients: there is no backward */
    void *output; /**< [T, hidden], of the last layer below the head; NULL in a recompute */
    const rpexec_stage_save *saves; /**< [save_count] ascending by layer */
    uint32_t save_count;
    void *tape;           /**< rpexec_stage_tape_bytes; for the backward */
    void *weight_tape;    /**< rpexec_stage_weight_tape_bytes; split backward only */
    void *scratch;        /**< rpexec_stage_scratch_bytes */
    void *head_gradient;  /**< [T, hidden] from the head's forward to its backward */
    float *statistics;    /**< rpexec_statistics_bytes; with ranks and the head */
    const void *d_output; /**< [T, hidden]; unused if the stage has the head */
    void *d_input;        /**< [T, hidden]; NULL if the stage begins with the embedding */
} rpexec_stage_data;

/** @return bytes of a layer's tape for T tokens: the values that its backward reads. */
uint64_t rpexec_tape_bytes(const rpexec_model *model, uint32_t layer, uint64_t tokens);

/** Sums an array over the ranks, if there are ranks. */
static inline void rpexec_all_reduce(const rpexec_compute *compute, rp_dtype dtype, uint64_t count,
                                     void *array)
{
    if (compute->ranks != NULL) {
        compute->ranks->all_reduce(compute->ranks, dtype, count, array);
    }
}

/** @return tokens, of T, whose logits the head holds at a time. The gradient of such a chunk is a
 * single product, added to that of the chunks before. */
uint64_t rpexec_loss_chunk(const rpexec_model *model, uint64_t tokens);

/** @return bytes of the statistics of T tokens' logits that ranks gather. */
uint64_t rpexec_statistics_bytes(const rpexec_model *model, uint32_t ranks, uint64_t tokens);

/** @return elements of the longest array that the ranks sum or gather for a layer and T tokens. */
uint64_t rpexec_exchange_count(const rpexec_model *model, uint64_t tokens);

/** @return bytes of scratch that a forward or backward of the layer needs. */
uint64_t rpexec_scratch_bytes(const rpexec_model *model, uint32_t layer, uint64_t tokens);

/** The same for layers [begin, end); without `keep` the forward needs the tape of a single layer
 * only. */
uint64_t rpexec_stage_tape_bytes(const rpexec_model *model, uint32_t begin, uint32_t end,
                                 uint64_t tokens, bool keep);
uint64_t rpexec_stage_weight_tape_bytes(const rpexec_model *model, uint32_t begin, uint32_t end,
                                        uint64_t tokens);
uint64_t rpexec_stage_scratch_bytes(const rpexec_model *model, uint32_t begin, uint32_t end,
                                    uint64_t tokens);

/**
 * Runs layers [begin, end) except the head forward: the work of FORWARD or RECOMPUTE.
 * @param keep the whole tape is kept; otherwise each layer overwrites the tape of the layer before
 */
void rpexec_stage_forward(const rpexec_compute *compute, const rpexec_stage_data *data, bool keep);

/** Runs the head on the output of the layers below: adds loss and gradients, fills
 * head_gradient. */
void rpexec_stage_head(const rpexec_compute *compute, const rpexec_stage_data *data);

/** Parts of the backward that a call computes. */
typedef enum rpexec_backward_part {
    RPEXEC_BACKWARD_BOTH,
    RPEXEC_BACKWARD_INPUT,  /**< gradients of inputs and norms; fills weight_tape */
    RPEXEC_BACKWARD_WEIGHT, /**< gradients of matrices and the embedding from the weight_tape */
} rpexec_backward_part;

/** Runs layers [begin, end) backward, after a forward that kept the tape. */
void rpexec_stage_backward(const rpexec_compute *compute, const rpexec_stage_data *data,
                           rpexec_backward_part part);
