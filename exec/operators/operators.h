/** @file operators.h  The operators of a decoder on one GPU's memory: the tables a backend fills.
 *
 * One table per storage type (dtype.h): void pointers are to tensors of the table's type, floats to
 * what is fp32 always. Operators compute in fp32 and round to nearest even when they store; where
 * they add to a tensor, that is one rounding of the sum. All matrices are row-major, all pointers
 * lie in the memory of the GPU whose `rpexec_lane` is given. Operators of one lane run in the order
 * they are called; on the host backend a call returns when the operator is done. Formulas:
 * executor.md section 5. T = tokens of a microbatch = sequences x seq_len; sequences
 * lie one after the other.
 *
 * Gradients of weights are added to tensors of the table's type or, where `wide` is said, to fp32
 * sums of many microbatches, which add_sums rounds when all have been added.
 *
 * Every operator is deterministic: the order of its floating-point sums depends on its sizes only,
 * not on the number of GPUs, on addresses or on what else runs.
 */
#pragma once

#include "exec/operators/adam.h"
#include "exec/operators/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/** The compute queue of one GPU with its scratch memory; a backend's own type. */
typedef struct rpexec_lane rpexec_lane;

/** Sizes of causal grouped-query attention. Query head j uses kv head j / (heads / kv_heads). */
typedef struct rpexec_attention_sizes {
    uint32_t sequences;
    uint32_t seq_len;
    uint32_t heads;    /**< H */
    uint32_t kv_heads; /**< K, divides H */
    uint32_t head_dim; /**< h */
    uint32_t window;   /**< a token attends to itself and window - 1 tokens before; 0: to all */
} rpexec_attention_sizes;

/** Label of a token that has none: it adds nothing to loss and gradient. */
#define RPEXEC_IGNORED INT32_C(-100)

/**
 * Which experts the tokens of a microbatch go to; pointers into the GPU's memory. Each token goes
 * to `active` experts, so that tokens x active rows are gathered: those of expert 0 first, and of
 * one expert by ascending token. No token is dropped: an expert may get all of them, or none.
 */
typedef struct rpexec_routing {
    uint64_t tokens;      /**< T */
    uint32_t experts;     /**< E */
    uint32_t active;      /**< k, at most E */
    bool raw;             /**< weights are the softmax's own, not divided by the chosen ones' sum */
    float *probabilities; /**< [T, E] softmax of the logits */
    uint32_t *chosen;     /**< [T, k] experts by falling probability, equal ones by number */
    uint32_t *rows;       /**< [T, k] where the token lies among the gathered rows */
    float *weights;       /**< [T k] of each gathered row */
    uint32_t *begins;     /**< [E + 1] expert e has gathered rows begins[e] .. begins[e + 1] */
} rpexec_routing;

/** The same matrix of all experts: matrix e, [out, in], lies `stride` values after matrix e - 1. */
typedef struct rpexec_matrices {
    uint32_t in;
    uint32_t out;
    uint64_t stride;
} rpexec_matrices;

/** Arrays in a GPU's memory that Adam works on: `count` values. */
typedef struct rpexec_update {
    float *master;
    void *weights; /**< become the rounded masters; NULL in fp32: the masters are what computes */
    const void *gradients;
    float *m;
    float *v;
    float scale; /**< divisor of the gradients: the scale of their loss; 1 in fp32 */
    uint64_t count;
} rpexec_update;

typedef struct rpexec_operators {
    /** y[rows, width] = x * r * weight with r[row] = (mean(x^2) + eps)^(-1/2), kept in `r`. */
    void (*rms_norm)(rpexec_lane *lane, uint64_t rows, uint32_t width, float eps, const void *x,
                     const void *weight, void *y, float *r);
    /** dx = base + r (dy w) - x (r^3 / width) sum(dy w x). base may be dx; NULL: nothing is added,
     * and dx may be dy. */
    void (*rms_norm_input)(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *x,
                           const void *weight, const float *r, const void *dy, const void *base,
                           void *dx);
    /** dweight += sum over rows of dy x r. */
    void (*rms_norm_weight)(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *x,
                            const float *r, const void *dy, bool wide, void *dweight);
    /** y[rows, out] = base[rows, out] + x[rows, in] weight[out, in]^T. base may be y; NULL: nothing
     * is added. */
    void (*linear)(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out, const void *x,
                   const void *weight, const void *base, void *y);
    /** dx[rows, in] (+)= dy[rows, out] weight[out, in]. */
    void (*linear_input)(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out,
                         const void *dy, const void *weight, bool add, void *dx);
    /** dweight[out, in] += dy[rows, out]^T x[rows, in]. */
    void (*linear_weight)(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out,
                          const void *dy, const void *x, bool wide, void *dweight);
    /**
     * Rotates x[T, heads, head_dim] in place, half-split form: with a = x_i, b = x_(i + h/2) it
     * becomes (a cos - b sin, b cos + a sin); `inverse` turns back (the backward).
     * @param cosines [seq_len, head_dim / 2], @param sines of the same shape
     */
    void (*rotate)(rpexec_lane *lane, uint32_t sequences, uint32_t seq_len, uint32_t heads,
                   uint32_t head_dim, const float *cosines, const float *sines, bool inverse,
                   void *x);
    /**
     * o = softmax(mask(q k^T / sqrt(h))) v, in blocks: no seq_len x seq_len matrix is ever stored.
     * q, o [T, H, h]; k, v [T, K, h]; `logsumexp` [T, H] is kept for the backward.
     */
    void (*attention)(rpexec_lane *lane, const rpexec_attention_sizes *sizes, const void *q,
                      const void *k, const void *v, void *o, float *logsumexp);
    /** Gradients of the above, overwritten; P is computed again from q, k and logsumexp. */
    void (*attention_backward)(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                               const void *q, const void *k, const void *v, const void *o,
                               const float *logsumexp, const void *d_o, void *dq, void *dk,
                               void *dv);
    /** s = gate sigmoid(gate) up. */
    void (*swiglu)(rpexec_lane *lane, uint64_t count, const void *gate, const void *up, void *s);
    /** dgate, dup from ds; either may be ds. */
    void (*swiglu_backward)(rpexec_lane *lane, uint64_t count, const void *gate, const void *up,
                            const void *ds, void *dgate, void *dup);
    /** y = a + b; y may be a or b. */
    void (*add)(rpexec_lane *lane, uint64_t count, const void *a, const void *b, void *y);
    /** x[t, :] = table[ids[t], :], zeroes where the id is negative. ids are below the vocabulary:
     * the reader of the data checks it. */
    void (*embed)(rpexec_lane *lane, uint64_t tokens, uint32_t width, const int32_t *ids,
                  const void *table, void *x);
    /** dtable[ids[t], :] += dx[t, :], t ascending, but where the id is negative. */
    void (*embed_weight)(rpexec_lane *lane, uint64_t tokens, uint32_t width, const int32_t *ids,
                         const void *dx, bool wide, void *dtable);
    /**
     * Softmax cross-entropy of rows of logits z[rows, vocab], replaced by their gradient
     * (softmax(z) - onehot) * scale; rows labelled RPEXEC_IGNORED get 0. *loss += the sum of
     * (logsumexp - z_label) of the others, in double, not scaled.
     */
    void (*cross_entropy)(rpexec_lane *lane, uint64_t rows, uint32_t vocab, const int32_t *labels,
                          float scale, void *z, double *loss);
    /** Statistics for the other ranks of a rank's logits z[rows, vocab], a part of the vocabulary:
     * of each row the largest and the sum of e^(z - largest). */
    void (*row_statistics)(rpexec_lane *lane, uint64_t rows, uint32_t vocab, const void *z,
                           float *statistics);
    /**
     * cross_entropy of all parts of the vocabulary, of which z[rows, vocab] is that from `first`
     * on: z becomes its part of the gradient, and rows whose labels are in it are added to *loss.
     * @param statistics [parts][stride] of row_statistics
     */
    void (*cross_entropy_part)(rpexec_lane *lane, uint64_t rows, uint32_t vocab, uint32_t first,
                               const int32_t *labels, uint32_t parts, const float *statistics,
                               uint64_t stride, float scale, void *z, double *loss);
    /** x *= factor. */
    void (*scale)(rpexec_lane *lane, uint64_t count, float factor, void *x);
    /** Fills the arrays of `routing` from the router's logits [T, E]. */
    void (*route)(rpexec_lane *lane, const rpexec_routing *routing, const void *logits);
    /** dlogits[T, E] from the gradients [T k] of the gathered rows' weights. */
    void (*route_backward)(rpexec_lane *lane, const rpexec_routing *routing, const float *dweights,
                           void *dlogits);
    /** y[T k, width] = x[T, width] of each gathered row's token. */
    void (*gather)(rpexec_lane *lane, const rpexec_routing *routing, uint32_t width, const void *x,
                   void *y);
    /** y[T, width] (+)= the sum of each token's rows of x[T k, width], as `chosen` has them. */
    void (*scatter)(rpexec_lane *lane, const rpexec_routing *routing, uint32_t width, const void *x,
                    bool add, void *y);
    /** linear, linear_input and linear_weight of gathered rows, each with its expert's matrix. */
    void (*experts_linear)(rpexec_lane *lane, const rpexec_routing *routing,
                           const rpexec_matrices *matrices, const void *x, const void *weights,
                           bool add, void *y);
    void (*experts_linear_input)(rpexec_lane *lane, const rpexec_routing *routing,
                                 const rpexec_matrices *matrices, const void *dy,
                                 const void *weights, bool add, void *dx);
    void (*experts_linear_weight)(rpexec_lane *lane, const rpexec_routing *routing,
                                  const rpexec_matrices *matrices, const void *dy, const void *x,
                                  bool wide, void *dweights);
    /** s = weight gate sigmoid(gate) up of gathered rows [T k, width], each with its weight: scaled
     * before the down projection, so that a plain sum of rows is left to do after it. */
    void (*experts_swiglu)(rpexec_lane *lane, const rpexec_routing *routing, uint32_t width,
                           const void *gate, const void *up, void *s);
    /** dgate, dup (either may be ds) and the gradients [T k] of the rows' weights. */
    void (*experts_swiglu_backward)(rpexec_lane *lane, const rpexec_routing *routing,
                                    uint32_t width, const void *gate, const void *up,
                                    const void *ds, void *dgate, void *dup, float *dweights);
    /** gradients += sums, which are fp32 in every storage type. */
    void (*add_sums)(rpexec_lane *lane, uint64_t count, const float *sums, void *gradients);
    /** Sets `count` values to zero. */
    void (*zero)(rpexec_lane *lane, uint64_t count, void *x);
    /** Copies `count` values within the GPU. */
    void (*copy)(rpexec_lane *lane, uint64_t count, const void *from, void *to);
    /** @return true where all of `count` values are finite; waits for the operators before it. */
    bool (*finite)(rpexec_lane *lane, uint64_t count, const void *x);
    /** One Adam step of arrays in the GPU's memory (adam.h). */
    void (*adam)(rpexec_lane *lane, const rpexec_adam *adam, uint64_t step,
                 const rpexec_update *update);
} rpexec_operators;
