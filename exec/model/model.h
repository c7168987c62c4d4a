/** @file model.h  The parameters of a decoder as the executor stores them.
 *
 * Layers are counted as the lowering counts them (common/lower/lower.h): 0 the embedding, 1 .. L
 * the blocks, L + 1 the head (final norm and language model head). A layer's parameters are one
 * contiguous array, tensor after tensor, each tensor beginning at a multiple of 16 values; the
 * padding is zero and stays zero. With LoRA (lora_rank of the model) the adapters come last and
 * only they are trained: gradients, masters and moments are arrays of the trained values only.
 * Masters, moments and master gradients are arrays of floats, working weights and gradients of the
 * run's storage type (dtype.h), with the same offsets. Names, shapes and order: executor.md section
 * 4.3.
 */
#pragma once

#include "common/inputs/model.h"
#include "common/lower/lower.h"
#include "exec/operators/dtype.h"
#include "exec/pool/pool.h"

typedef enum rpexec_initial {
    RPEXEC_INITIAL_NORMAL,   /**< normal with standard deviation 0.02 */
    RPEXEC_INITIAL_RESIDUAL, /**< 0.02 / sqrt(2 L): matrices that add to the residual stream
                                  (GPT-2) */
    RPEXEC_INITIAL_ONES,     /**< vectors: weights of norms */
    RPEXEC_INITIAL_UNIFORM, /**< between -1 and 1 / sqrt(columns): LoRA's A (Kaiming, as in PEFT) */
    RPEXEC_INITIAL_ZEROS,   /**< LoRA's B, and biases */
} rpexec_initial;

/** The place of a tensor in a joined tensor of checkpoints: value [row, column] has index first +
 * row * row_stride + column * column_stride there. Parts of a joined tensor do not overlap; values
 * in none of its parts are 0. */
typedef struct rpexec_joined {
    const char *name; /**< name of the joined tensor, in the form of rpexec_tensor.name */
    uint32_t rank;    /**< 2 or 3 */
    uint64_t shape[3];
    uint64_t first;
    uint64_t row_stride;
    uint64_t column_stride;
} rpexec_joined;

/** A parameter tensor, row-major [rows, columns]; a vector has a single row. */
typedef struct rpexec_tensor {
    const char *name; /**< without "model.layers.N."; "model.norm.weight" and so on elsewhere */
    uint64_t rows;
    uint64_t columns;
    uint64_t offset; /**< values from the beginning of the layer's array */
    rpexec_initial initial;
    bool vector;               /**< the weight of a norm, or a bias */
    const rpexec_joined *part; /**< NULL: checkpoints have the tensor as it is */
} rpexec_tensor;

typedef struct rpexec_layer {
    uint32_t tensor_count;
    rpexec_tensor *tensors;
    uint64_t floats; /**< values of the array, padding included */
    uint64_t frozen; /**< values at the beginning that are not trained: with LoRA all but the
                          adapters, otherwise 0 */
} rpexec_layer;

/** @return values of a layer that are trained: the end of its array. */
static inline uint64_t rpexec_layer_trained(const rpexec_layer *layer)
{
    return layer->floats - layer->frozen;
}

/** The tensors of a block; tensors of experts are represented by those of expert 0. */
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
    RPEXEC_ATTENTION_NORM, /**< only with four norms: after attention, and after the MLP */
    RPEXEC_MLP_NORM,
    RPEXEC_ROUTER,      /**< only with experts */
    RPEXEC_ROUTER_BIAS, /**< only with expert_bias */
    RPEXEC_SINKS,       /**< [heads], only with attention_bias */
    RPEXEC_BLOCK_TENSORS
} rpexec_block_tensor;

/** A block's linear layer: matrix W [out, in], and if it has them a bias and adapters A [rank, in]
 * and B [out, rank]: y = x W^T + bias + scale (x A^T) B^T. Offsets count values from the beginning
 * of the layer's array; the matrices of successive experts lie a stride apart. */
typedef struct rpexec_linear {
    uint32_t in;
    uint32_t out;
    uint32_t experts; /**< 1: all rows have the same matrix */
    uint64_t weight;
    uint64_t weight_stride;
    uint32_t rank; /**< rank of its adapters, equal to the model's; 0: it has none */
    uint64_t a;
    uint64_t a_stride;
    uint64_t b;
    uint64_t b_stride;
    bool biased;
    uint64_t bias; /**< [out], if `biased`; [E, out] for experts */
} rpexec_linear;

enum { RPEXEC_HEAD_NORM, RPEXEC_HEAD_TABLE };

/** A model, owned by the arena in which it was made. */
typedef struct rpexec_model {
    const rp_model *config; /**< borrowed */
    rp_dtype dtype;         /**< type of working weights, boundaries, tape and gradients */
    uint32_t layer_count;   /**< L + 2 */
    rpexec_layer embedding;
    rpexec_layer block;
    rpexec_layer head; /**< a tied head, too, has a table here, a copy of the embedding's */
    uint32_t block_tensors[RPEXEC_BLOCK_TENSORS]; /**< indices into block.tensors */
    rpexec_linear linears[RPEXEC_DOWN + 1];       /**< RPEXEC_Q .. O, GATE .. DOWN */
    uint32_t rank;                                /**< rank of LoRA's adapters; 0: all weights are
                                                       trained */
    float adapter_scale;                          /**< alpha / rank */
    uint32_t rotated;       /**< number of a head's first values that are rotated */
    uint32_t rotary_tables; /**< number of tables; 2: the second is for layers with windows */
    float *cosines;         /**< [rotary_tables, seq_len, rotated / 2] of the rotary embedding */
    float *sines;
    uint32_t seq_len;
} rpexec_model;

/** Families of config.json that are computed; NULL ends the list. */
extern const char *const rpexec_model_families[];

/**
 * Lays out the parameters and computes the rotary tables: angle = position * frequency, frequency
 * theta^(-2i/r) for r rotated values, with the model's scaling (executor.md 4.1).
 * @param seq_len longest sequence, 1 to max_positions
 * @param dtype storage type of the run
 * @retval RP_OK, RP_INPUT (the executor cannot compute a part of the model; logged), RP_NO_MEMORY
 */
rp_status rpexec_model_create(const rp_model *config, uint32_t seq_len, rp_dtype dtype,
                              rp_arena *arena, rpexec_model *model_out);

/** @return number of cosines in a table. */
static inline uint64_t rpexec_model_table_values(const rpexec_model *model)
{
    return (uint64_t)model->seq_len * (model->rotated / 2);
}

/** @return number of all cosines; there are as many sines. */
static inline uint64_t rpexec_model_rotary_values(const rpexec_model *model)
{
    return model->rotary_tables * rpexec_model_table_values(model);
}

/** @return whether a tensor of the layer is trained. */
static inline bool rpexec_tensor_trained(const rpexec_layer *layer, const rpexec_tensor *tensor)
{
    return tensor->offset >= layer->frozen;
}

/** @return the end of the run of successive tensors, all vectors or all matrices, that contains
 * value `at`; both are counted among the layer's trained values. @param vectors_out whether the
 * tensors are vectors */
uint64_t rpexec_layer_run(const rpexec_layer *layer, uint64_t at, bool *vectors_out);

/** @return the layout of layer `layer` < layer_count. */
const rpexec_layer *rpexec_model_layer(const rpexec_model *model, uint32_t layer);

/** @return number of values in the arrays of layers [begin, end), and number of trained values. */
uint64_t rpexec_model_values(const rpexec_model *model, uint32_t begin, uint32_t end);
uint64_t rpexec_model_trained(const rpexec_model *model, uint32_t begin, uint32_t end);

/**
 * Fills a layer's array from a seed. The same (seed, layer, tensor) gives the same values,
 * independent of other layers and of threads; a tied head's table is that of layer 0.
 * @param base false: the model's own matrices are set to 0, since a checkpoint is read next;
 *        drawing a number takes 40 ns, and a checkpoint has billions. Adapters are drawn in any
 *        case.
 * @param pool the pool whose threads work; NULL: the calling thread
 * @param array [layer floats]
 */
void rpexec_model_initialise(const rpexec_model *model, uint32_t layer, uint64_t seed, bool base,
                             rpexec_pool *pool, float *array);
