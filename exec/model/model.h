/** @file model.h  The parameters of a decoder as the executor stores them.
 *
 * Layers are counted as the lowering counts them (common/lower/lower.h): 0 the embedding, 1 .. L
 * the blocks, L + 1 the head (final norm and language model head). A layer's parameters are one
 * contiguous array, tensor after tensor, each tensor beginning at a multiple of 16 values; the rest
 * is zero and stays zero. With LoRA (lora_rank of the model) the adapters come last and only they
 * are trained: gradients, masters and moments are arrays of what is trained. Masters, moments and
 * master gradients are arrays of floats, working weights and gradients of the run's storage type
 * (dtype.h), with the same offsets. Names, shapes and order: executor.md section 4.3.
 */
#pragma once

#include "common/inputs/model.h"
#include "common/lower/lower.h"
#include "exec/operators/dtype.h"
#include "exec/pool/pool.h"

typedef enum rpexec_initial {
    RPEXEC_INITIAL_NORMAL,   /**< normal with standard deviation 0.02 */
    RPEXEC_INITIAL_RESIDUAL, /**< 0.02 / sqrt(2 L): what is added to the residual stream (GPT-2) */
    RPEXEC_INITIAL_ONES,     /**< vectors: weights of norms */
    RPEXEC_INITIAL_UNIFORM, /**< between -1 and 1 / sqrt(columns): LoRA's A (Kaiming, as in PEFT) */
    RPEXEC_INITIAL_ZEROS,   /**< LoRA's B, and biases */
} rpexec_initial;

/** A part of a tensor that checkpoints join: value [row, column] is number first + row * row_stride
 * + column * column_stride of it. Parts of one do not overlap; what none of them has is 0. */
typedef struct rpexec_joined {
    const char *name; /**< of the joined tensor, as rpexec_tensor has names */
    uint32_t rank;    /**< 2 or 3 */
    uint64_t shape[3];
    uint64_t first;
    uint64_t row_stride;
    uint64_t column_stride;
} rpexec_joined;

/** One parameter tensor, row-major [rows, columns]; a vector has one row. */
typedef struct rpexec_tensor {
    const char *name; /**< without "model.layers.N."; "model.norm.weight" and so on elsewhere */
    uint64_t rows;
    uint64_t columns;
    uint64_t offset; /**< values from the beginning of the layer's array */
    rpexec_initial initial;
    bool vector;               /**< the weight of a norm, or a bias */
    const rpexec_joined *part; /**< NULL: checkpoints have it as it is */
} rpexec_tensor;

typedef struct rpexec_layer {
    uint32_t tensor_count;
    rpexec_tensor *tensors;
    uint64_t floats; /**< values of the array, padding included */
    uint64_t frozen; /**< so many of them, from the beginning on, are not trained: with LoRA all but
                        the adapters, otherwise 0 */
} rpexec_layer;

/** @return values of a layer that are trained: the end of its array. */
static inline uint64_t rpexec_layer_trained(const rpexec_layer *layer)
{
    return layer->floats - layer->frozen;
}

/** The tensors of a block; of those that every expert has, expert 0's. */
typedef enum rpexec_block_tensor {
    RPEXEC_NORM_1,
    RPEXEC_Q,
    RPEXEC_K,
    RPEXEC_V,
    RPEXEC_O,
    RPEXEC_NORM_2,
    RPEXEC_GATE,
    RPEXEC_UP,
    RPEXEC_DOWN,
    RPEXEC_Q_NORM, /**< only with QK-norm */
    RPEXEC_K_NORM,
    RPEXEC_ATTENTION_NORM, /**< only with four norms: behind attention, and behind the MLP */
    RPEXEC_MLP_NORM,
    RPEXEC_ROUTER,      /**< only with experts */
    RPEXEC_ROUTER_BIAS, /**< only with expert_bias */
    RPEXEC_SINKS,       /**< [heads], only with attention_bias */
    RPEXEC_BLOCK_TENSORS
} rpexec_block_tensor;

/** Matrices of a block's linear layer, [out, in], its bias, and, where it has them, adapters A
 * [rank, in] and B [out, rank]: y = x W^T + bias + scale (x A^T) B^T. Offsets in values from the
 * beginning of the layer's array; the experts' matrices lie one stride after the other. */
typedef struct rpexec_linear {
    uint32_t in;
    uint32_t out;
    uint32_t experts; /**< 1: all rows have the same matrix */
    uint64_t weight;
    uint64_t weight_stride;
    uint32_t rank; /**< of its adapters, the model's; 0: it has none */
    uint64_t a;
    uint64_t a_stride;
    uint64_t b;
    uint64_t b_stride;
    bool biased;
    uint64_t bias; /**< [out], where it is biased; of experts [E, out] */
} rpexec_linear;

enum { RPEXEC_HEAD_NORM, RPEXEC_HEAD_TABLE };

/** Owned by the arena it was made in. */
typedef struct rpexec_model {
    const rp_model *config; /**< borrowed */
    rp_dtype dtype;         /**< of working weights, boundaries, tape and gradients */
    uint32_t layer_count;   /**< L + 2 */
    rpexec_layer embedding;
    rpexec_layer block;
    rpexec_layer head; /**< a tied head has the table here, too: a copy of the embedding's */
    uint32_t block_tensors[RPEXEC_BLOCK_TENSORS]; /**< indices into block.tensors */
    rpexec_linear linears[RPEXEC_DOWN + 1];       /**< RPEXEC_Q .. O, GATE .. DOWN */
    uint32_t rank;                                /**< of LoRA's adapters; 0: all is trained */
    float adapter_scale;                          /**< alpha / rank */
    uint32_t rotated;       /**< values of a head that are rotated, its first ones */
    uint32_t rotary_tables; /**< 1; 2: the second one is that of layers with windows */
    float *cosines;         /**< [rotary_tables, seq_len, rotated / 2] of the rotary embedding */
    float *sines;
    uint32_t seq_len;
} rpexec_model;

/** Families of config.json that are computed, NULL behind the last one. */
extern const char *const rpexec_model_families[];

/**
 * Lays out the parameters and computes the rotary tables: angle = position * frequency, frequency
 * theta^(-2i/r) of r values, with the scaling that the model has (executor.md 4.1).
 * @param seq_len longest sequence, 1 to max_positions
 * @param dtype storage type of the run
 * @retval RP_OK, RP_INPUT (the model has what the executor cannot compute; logged), RP_NO_MEMORY
 */
rp_status rpexec_model_create(const rp_model *config, uint32_t seq_len, rp_dtype dtype,
                              rp_arena *arena, rpexec_model *model_out);

/** @return values of the cosines of a table. */
static inline uint64_t rpexec_model_table_values(const rpexec_model *model)
{
    return (uint64_t)model->seq_len * (model->rotated / 2);
}

/** @return values of all cosines; there are as many sines. */
static inline uint64_t rpexec_model_rotary_values(const rpexec_model *model)
{
    return model->rotary_tables * rpexec_model_table_values(model);
}

/** @return true where a tensor of the layer is trained. */
static inline bool rpexec_tensor_trained(const rpexec_layer *layer, const rpexec_tensor *tensor)
{
    return tensor->offset >= layer->frozen;
}

/** @return where the run of tensors ends that are all vectors, or all matrices, and of which `at`
 * is a value: both counted among the layer's trained values. @param vectors_out which they are */
uint64_t rpexec_layer_run(const rpexec_layer *layer, uint64_t at, bool *vectors_out);

/** @return the layout of layer `layer` < layer_count. */
const rpexec_layer *rpexec_model_layer(const rpexec_model *model, uint32_t layer);

/** @return values of the arrays of layers [begin, end), and of what of them is trained. */
uint64_t rpexec_model_values(const rpexec_model *model, uint32_t begin, uint32_t end);
uint64_t rpexec_model_trained(const rpexec_model *model, uint32_t begin, uint32_t end);

/**
 * Fills a layer's array from a seed. The same (seed, layer, tensor) gives the same values, with any
 * other layers and any threads; a tied head's table is that of layer 0.
 * @param base false: the model's own matrices are 0, as a checkpoint is read next; drawing a number
 *        takes 40 ns, and a checkpoint has billions. Adapters are drawn.
 * @param pool whose threads work; NULL: the calling one
 * @param array [layer floats]
 */
void rpexec_model_initialise(const rpexec_model *model, uint32_t layer, uint64_t seed, bool base,
                             rpexec_pool *pool, float *array);
