/** @file operators.h  The list of a decoder's operators, which work in a GPU's memory.
 *
 * Each storage type (dtype.h) has a table: void pointers are to tensors of the table's type, float
 * pointers to tensors that are always fp32. Operators compute in fp32 and round to nearest even
 * when they store; if they add to a tensor, the sum is rounded once. All matrices are row-major,
 * and all pointers lie in the memory of the GPU whose `rpexec_lane` is given. Operators of a lane
 * run in the order of their calls; on the host backend a call returns when the operator is done.
 * Formulas: executor.md section 5. T = tokens of a microbatch = sequences x seq_len; sequences are
 * contiguous.
 *
 * Gradients of weights are added to tensors of the table's type or, with `wide`, to fp32 sums of
 * many microbatches, which add_sums rounds when all have been added.
 *
 * Every operator is deterministic: the order of its floating-point sums depends only on its sizes,
 * not on the number of GPUs, on addresses or on other work.
 */
#pragma once

#include "exec/operators/adam.h"
#include "exec/operators/dtype.h"
#include "exec/operators/each.h"
#include "exec/operators/squares.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/** A GPU's compute queue with its scratch memory; a backend's own type. */
typedef struct rpexec_lane rpexec_lane;

/** Sizes of causal grouped-query attention. Query head j uses kv head j / (heads / kv_heads). */
typedef struct rpexec_attention_sizes {
    uint32_t sequences;
    uint32_t seq_len;
    uint32_t heads;    /**< H */
    uint32_t kv_heads; /**< K, divides H */
    uint32_t head_dim; /**< h */
    uint32_t window;   /**< a token attends to itself and window - 1 tokens before; 0: to all */
    float scale;       /**< factor of scores; 0: 1 / sqrt(h) */
    float cap;         /**< c: scaled scores s become c tanh(s / c); 0: no cap */
} rpexec_attention_sizes;

/** @return the scale of scores. */
static inline float rpexec_attention_scale(const rpexec_attention_sizes *sizes)
{
    return sizes->scale != 0 ? sizes->scale : 1.0f / sqrtf((float)sizes->head_dim);
}

/** Label of a token without a label: it adds nothing to loss and gradient. */
#define RPEXEC_IGNORED INT32_C(-100)

/**
 * The experts to which the tokens of a microbatch go; pointers into the GPU's memory. Each token
 * goes to `active` experts, so that tokens x active rows are gathered: the rows of expert 0 first,
 * and each expert's rows by ascending token. No token is dropped: an expert may get all of them, or
 * none.
 */
typedef struct rpexec_routing {
    uint64_t tokens;      /**< T */
    uint32_t experts;     /**< E */
    uint32_t active;      /**< k, at most E */
    bool raw;             /**< weights are the softmax's own, not divided by the sum of the chosen
                               weights */
    float *probabilities; /**< [T, E] softmax of the router's logits */
    uint32_t *chosen;     /**< [T, k] experts by falling probability, equal probabilities by
                               number */
    uint32_t *rows;       /**< [T, k] number of the token's row among the gathered rows */
    float *weights;       /**< [T k] weight of each gathered row */
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
    void *weights; /**< become the rounded masters; NULL in fp32: the masters are used to compute */
    const void *gradients;
    float *m;
    float *v;
    float scale; /**< divisor of the gradients: the scale of their loss; 1 in fp32 */
    uint64_t count;
} rpexec_update;

/* Parameters of operators: numbers, addresses in the GPU's memory (of tensors unless a type is
 * given), structures on the host. */
#define RPEXEC_TYPE_U64 uint64_t
#define RPEXEC_TYPE_U32 uint32_t
#define RPEXEC_TYPE_FLAG bool
#define RPEXEC_TYPE_F32 float
#define RPEXEC_TYPE_IN const void *
#define RPEXEC_TYPE_OUT void *
#define RPEXEC_TYPE_IN_F32 const float *
#define RPEXEC_TYPE_OUT_F32 float *
#define RPEXEC_TYPE_OUT_U32 uint32_t *
#define RPEXEC_TYPE_IN_I32 const int32_t *
#define RPEXEC_TYPE_OUT_F64 double *
#define RPEXEC_TYPE_SIZES const rpexec_attention_sizes *
#define RPEXEC_TYPE_ROUTING const rpexec_routing *
#define RPEXEC_TYPE_MATRICES const rpexec_matrices *
#define RPEXEC_TYPE_FACTORS const rpexec_adam_factors *
#define RPEXEC_TYPE_UPDATE const rpexec_update *

/* clang-format off */

/**
 * X(operator, (FLOP, values of tensors, fp32 values, shape...), (KIND, parameter)...): all
 * operators but `squares`, which has a result. Every operator is void f(rpexec_lane *lane,
 * parameters...). Values are the least that it reads and writes; calls.c defines the terms of
 * costs.
 */
#define RPEXEC_OPERATOR_LIST(X)                                                                    \
    /* y[rows, width] = x * r * weight with r[row] = (mean(x^2) + eps)^(-1/2), kept in `r`.        \
     * @param shifted weights are stored less 1: 1 + weight is meant */                            \
    X(rms_norm, (0, 2 * area((double)rows, width), 0, ROWS_SHAPE(rows, width)),                    \
      (U64, rows), (U32, width), (F32, eps), (FLAG, shifted), (IN, x), (IN, weight), (OUT, y),     \
      (OUT_F32, r))                                                                                \
    /* dx = base + r (dy w) - x (r^3 / width) sum(dy w x). base may be dx; NULL: nothing is added, \
     * and dx may be dy. */                                                                        \
    X(rms_norm_input,                                                                              \
      (0, area((double)rows, width) * (base != NULL ? 4 : 3), 0, ROWS_SHAPE(rows, width)),         \
      (U64, rows), (U32, width), (FLAG, shifted), (IN, x), (IN, weight), (IN_F32, r), (IN, dy),    \
      (IN, base), (OUT, dx))                                                                       \
    /* dweight += sum over rows of dy x r. */                                                      \
    X(rms_norm_weight, (0, 2 * area((double)rows, width), 0, ROWS_SHAPE(rows, width)),             \
      (U64, rows), (U32, width), (IN, x), (IN_F32, r), (IN, dy), (FLAG, wide), (OUT, dweight))     \
    /* y[rows, width] = base[rows, width] + bias[width]. base may be y; NULL: y is the bias. */    \
    X(add_bias, (0, area((double)rows, width) * (base != NULL ? 2 : 1), 0,                         \
                 ROWS_SHAPE(rows, width)),                                                         \
      (U64, rows), (U32, width), (IN, bias), (IN, base), (OUT, y))                                 \
    /* dbias += sum over rows of dy. */                                                            \
    X(bias_weight, (0, area((double)rows, width), 0, ROWS_SHAPE(rows, width)),                     \
      (U64, rows), (U32, width), (IN, dy), (FLAG, wide), (OUT, dbias))                             \
    /* A further key of each head, its sink, joins the softmax of `attention`. It has no value:    \
     * o[tokens, heads, head_dim] shrinks by its share. It becomes a part of logsumexp[tokens,     \
     * heads], which attention_backward takes. */                                                  \
    X(join_sinks, (0, 2 * area((double)tokens, (double)heads * head_dim),                          \
                   2 * area((double)tokens, heads), HEADS_SHAPE),                                  \
      (U64, tokens), (U32, heads), (U32, head_dim), (IN, sinks), (OUT, o), (OUT_F32, logsumexp))   \
    /* dsinks[heads] -= sum over tokens of e^(sink - logsumexp) (o . d_o), after join_sinks. */    \
    X(sinks_weight, (0, 2 * area((double)tokens, (double)heads * head_dim),                        \
                     area((double)tokens, heads), HEADS_SHAPE),                                    \
      (U64, tokens), (U32, heads), (U32, head_dim), (IN, sinks), (IN, o), (IN_F32, logsumexp),     \
      (IN, d_o), (FLAG, wide), (OUT, dsinks))                                                      \
    /* y[rows, out] = base[rows, out] + x[rows, in] weight[out, in]^T. base may be y; NULL: nothing\
     * is added. */                                                                                \
    X(linear, (2 * area((double)rows, in) * out, area((double)rows, in) + area(in, out) +          \
       into(area((double)rows, out), base != NULL), 0, LINEAR_SHAPE),                              \
      (U64, rows), (U32, in), (U32, out), (IN, x), (IN, weight), (IN, base), (OUT, y))             \
    /* dx[rows, in] (+)= dy[rows, out] weight[out, in]. */                                         \
    X(linear_input, (2 * area((double)rows, in) * out, area((double)rows, out) + area(in, out) +   \
       into(area((double)rows, in), add), 0, LINEAR_SHAPE),                                        \
      (U64, rows), (U32, in), (U32, out), (IN, dy), (IN, weight), (FLAG, add), (OUT, dx))          \
    /* dweight[out, in] += dy[rows, out]^T x[rows, in]. */                                         \
    X(linear_weight,                                                                               \
      (2 * area((double)rows, in) * out, area((double)rows, in) + area((double)rows, out) +        \
       (wide ? 0 : into(area(in, out), true)), wide ? into(area(in, out), true) : 0,               \
       LINEAR_SHAPE),                                                                              \
      (U64, rows), (U32, in), (U32, out), (IN, dy), (IN, x), (FLAG, wide), (OUT, dweight))         \
    /* Rotates the first `turned` values of each head of x[T, heads, head_dim] in place, half-split\
     * form: with a = x_i, b = x_(i + turned/2) it becomes (a cos - b sin, b cos + a sin);         \
     * `inverse` turns back (the backward).                                                        \
     * @param cosines [seq_len, turned / 2], @param sines of the same shape */                     \
    X(rotate,                                                                                      \
      (0, 2 * area((double)sequences * seq_len, (double)heads * turned), 0, "%" PRIu32 "x%"        \
       PRIu32 " heads %" PRIu32 "x%" PRIu32, sequences, seq_len, heads, head_dim),                 \
      (U32, sequences), (U32, seq_len), (U32, heads), (U32, head_dim), (U32, turned),              \
      (IN_F32, cosines), (IN_F32, sines), (FLAG, inverse), (OUT, x))                               \
    /* o = softmax(mask(cap(q k^T scale))) v, in blocks: no seq_len x seq_len matrix is stored.    \
     * q, o [T, H, h]; k, v [T, K, h]; `logsumexp` [T, H] is kept for the backward. */             \
    X(attention, (attention_flop(sizes), attention_values(sizes), 0, ATTENTION_SHAPE),             \
      (SIZES, sizes), (IN, q), (IN, k), (IN, v), (OUT, o), (OUT_F32, logsumexp))                   \
    /* Gradients of the above, overwritten; P is computed again from q, k and logsumexp. */        \
    X(attention_backward,                                                                          \
      (2.5 * attention_flop(sizes), 2 * attention_values(sizes), 0, ATTENTION_SHAPE),              \
      (SIZES, sizes), (IN, q), (IN, k), (IN, v), (IN, o), (IN_F32, logsumexp), (IN, d_o),          \
      (OUT, dq), (OUT, dk), (OUT, dv))                                                             \
    /* s = gate sigmoid(gate) up. */                                                               \
    X(swiglu, (0, 3 * (double)count, 0, COUNT_SHAPE),                                              \
      (U64, count), (IN, gate), (IN, up), (OUT, s))                                                \
    /* dgate, dup from ds; either may be ds. */                                                    \
    X(swiglu_backward, (0, 5 * (double)count, 0, COUNT_SHAPE),                                     \
      (U64, count), (IN, gate), (IN, up), (IN, ds), (OUT, dgate), (OUT, dup))                      \
    /* s = gelu(gate) up, gelu(g) = g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))). */              \
    X(geglu, (0, 3 * (double)count, 0, COUNT_SHAPE),                                               \
      (U64, count), (IN, gate), (IN, up), (OUT, s))                                                \
    /* dgate, dup from ds; either may be ds. */                                                    \
    X(geglu_backward, (0, 5 * (double)count, 0, COUNT_SHAPE),                                      \
      (U64, count), (IN, gate), (IN, up), (IN, ds), (OUT, dgate), (OUT, dup))                      \
    /* y = a + b; y may be a or b. */                                                              \
    X(add, (0, 3 * (double)count, 0, COUNT_SHAPE),                                                 \
      (U64, count), (IN, a), (IN, b), (OUT, y))                                                    \
    /* x[t, :] = table[ids[t], :], zeroes if the id is negative. ids are below the vocabulary: the \
     * reader of the data checks this. */                                                          \
    X(embed, (0, 2 * area((double)tokens, width), 0, ROWS_SHAPE(tokens, width)),                   \
      (U64, tokens), (U32, width), (IN_I32, ids), (IN, table), (OUT, x))                           \
    /* dtable[ids[t], :] += dx[t, :], t ascending, unless the id is negative. */                   \
    X(embed_weight,                                                                                \
      (0, area((double)tokens, width) * (wide ? 1 : 3),                                            \
       wide ? 2 * area((double)tokens, width) : 0, ROWS_SHAPE(tokens, width)),                     \
      (U64, tokens), (U32, width), (IN_I32, ids), (IN, dx), (FLAG, wide), (OUT, dtable))           \
    /* Softmax cross-entropy of rows of logits z[rows, vocab], replaced by their gradient          \
     * (softmax(z) - onehot) * scale; rows labelled RPEXEC_IGNORED get 0. *loss += the sum of      \
     * (logsumexp - z_label) of the others, in double, not scaled.                                 \
     * @param cap c: logits z become c tanh(z / c), and the gradient is z's; 0: no cap */          \
    X(cross_entropy, (0, 3 * area((double)rows, vocab), 0, ROWS_SHAPE(rows, vocab)),               \
      (U64, rows), (U32, vocab), (IN_I32, labels), (F32, cap), (F32, scale), (OUT, z),             \
      (OUT_F64, loss))                                                                             \
    /* Statistics for the other ranks of a rank's logits z[rows, vocab], a part of the vocabulary: \
     * of each row the largest and the sum of e^(z - largest); `cap` as for cross_entropy. */      \
    X(row_statistics,                                                                              \
      (0, area((double)rows, vocab), 2 * (double)rows, ROWS_SHAPE(rows, vocab)),                   \
      (U64, rows), (U32, vocab), (F32, cap), (IN, z), (OUT_F32, statistics))                       \
    /* cross_entropy over all parts of the vocabulary, of which z[rows, vocab] is the part from    \
     * `first` on: z becomes its part of the gradient, and rows whose labels are in it are added to\
     * *loss.                                                                                      \
     * @param statistics [parts][stride] of row_statistics */                                      \
    X(cross_entropy_part,                                                                          \
      (0, 2 * area((double)rows, vocab), 2 * area((double)rows, parts), ROWS_SHAPE(rows, vocab)),  \
      (U64, rows), (U32, vocab), (U32, first), (IN_I32, labels), (U32, parts),                     \
      (IN_F32, statistics), (U64, stride), (F32, cap), (F32, scale), (OUT, z), (OUT_F64, loss))    \
    /* x *= factor. */                                                                             \
    X(scale, (0, 2 * (double)count, 0, COUNT_SHAPE),                                               \
      (U64, count), (F32, factor), (OUT, x))                                                       \
    /* Fills the arrays of `routing` from the router's logits [T, E]. */                           \
    X(route, (0, scores(routing), scores(routing), ROUTED("")),                                    \
      (ROUTING, routing), (IN, logits))                                                            \
    /* dlogits[T, E] from the gradients [T k] of the gathered rows' weights. */                    \
    X(route_backward, (0, scores(routing), scores(routing), ROUTED("")),                           \
      (ROUTING, routing), (IN_F32, dweights), (OUT, dlogits))                                      \
    /* y[T k, width] = x[T, width] of each gathered row's token. */                                \
    X(gather, (0, area((double)routing->tokens + routed(routing), width), 0, ROUTED_SHAPE),        \
      (ROUTING, routing), (U32, width), (IN, x), (OUT, y))                                         \
    /* y[T, width] (+)= the sum of each token's rows of x[T k, width], as `chosen` has them. */    \
    X(scatter,                                                                                     \
      (0, area(routed(routing), width) + into(area((double)routing->tokens, width), add), 0,       \
       ROUTED_SHAPE),                                                                              \
      (ROUTING, routing), (U32, width), (IN, x), (FLAG, add), (OUT, y))                            \
    /* linear, linear_input and linear_weight of gathered rows, each with its expert's matrix. */  \
    X(experts_linear, (experts_flop(routing, matrices), area(routed(routing), matrices->in) +      \
       experts_values(routing, matrices) + into(area(routed(routing), matrices->out), add), 0,     \
       EXPERTS_SHAPE),                                                                             \
      (ROUTING, routing), (MATRICES, matrices), (IN, x), (IN, weights), (FLAG, add), (OUT, y))     \
    X(experts_linear_input,                                                                        \
      (experts_flop(routing, matrices), area(routed(routing), matrices->out) +                     \
       experts_values(routing, matrices) + into(area(routed(routing), matrices->in), add), 0,      \
       EXPERTS_SHAPE),                                                                             \
      (ROUTING, routing), (MATRICES, matrices), (IN, dy), (IN, weights), (FLAG, add), (OUT, dx))   \
    X(experts_linear_weight,                                                                       \
      (experts_flop(routing, matrices), area(routed(routing), (double)matrices->in +               \
       matrices->out) + (wide ? 0 : into(experts_values(routing, matrices), true)),                \
       wide ? into(experts_values(routing, matrices), true) : 0, EXPERTS_SHAPE),                   \
      (ROUTING, routing), (MATRICES, matrices), (IN, dy), (IN, x), (FLAG, wide), (OUT, dweights))  \
    /* y[T k, width] = the bias[E, width] of each gathered row's expert; `weighted`: times the     \
     * row's weight. */                                                                            \
    X(experts_bias, (0, area(routed(routing), width), 0, ROUTED_SHAPE),                            \
      (ROUTING, routing), (U32, width), (IN, bias), (FLAG, weighted), (OUT, y))                    \
    /* dweights[T k] += dy . bias, for rows with weighted biases. */                               \
    X(experts_bias_input, (0, area(routed(routing), width), routed(routing), ROUTED_SHAPE),        \
      (ROUTING, routing), (U32, width), (IN, dy), (IN, bias), (OUT_F32, dweights))                 \
    /* dbias[E, width] += sum over an expert's rows of dy, each times its weight if `weighted`. */ \
    X(experts_bias_weight, (0, area(routed(routing), width), 0, ROUTED_SHAPE),                     \
      (ROUTING, routing), (U32, width), (IN, dy), (FLAG, weighted), (FLAG, wide), (OUT, dbias))    \
    /* s = weight gate sigmoid(alpha gate) up of gathered rows [T k, width], each with its weight: \
     * scaled before the down projection, so that a plain sum of rows is left to do after it. With \
     * a limit, gate is at most the limit, up between -limit and limit, and 1 is added to up; 0:   \
     * none. */                                                                                    \
    X(experts_swiglu, (0, 3 * area(routed(routing), width), 0, ROUTED_SHAPE),                      \
      (ROUTING, routing), (U32, width), (F32, alpha), (F32, limit), (IN, gate), (IN, up),          \
      (OUT, s))                                                                                    \
    /* dgate, dup (either may be ds) and the gradients [T k] of the rows' weights. */              \
    X(experts_swiglu_backward, (0, 5 * area(routed(routing), width), 0, ROUTED_SHAPE),             \
      (ROUTING, routing), (U32, width), (F32, alpha), (F32, limit), (IN, gate), (IN, up), (IN, ds),\
      (OUT, dgate), (OUT, dup), (OUT_F32, dweights))                                               \
    /* gradients += sums, which are fp32 in every storage type. */                                 \
    X(add_sums, (0, 2 * (double)count, (double)count, COUNT_SHAPE),                                \
      (U64, count), (IN_F32, sums), (OUT, gradients))                                              \
    /* Sets `count` values to zero. */                                                             \
    X(zero, (0, (double)count, 0, COUNT_SHAPE),                                                    \
      (U64, count), (OUT, x))                                                                      \
    /* Copies `count` values within the GPU. */                                                    \
    X(copy, (0, 2 * (double)count, 0, COUNT_SHAPE),                                                \
      (U64, count), (IN, from), (OUT, to))                                                         \
    /* An Adam step of arrays in the GPU's memory (adam.h). */                                     \
    X(adam,                                                                                        \
      (0, (update->weights != NULL ? 2 : 1) * (double)update->count, 6 * (double)update->count,    \
       "%" PRIu64, update->count),                                                                 \
      (FACTORS, factors), (UPDATE, update))

/* clang-format on */

/** A parameter of an operator, after its lane. */
#define RPEXEC_PARAMETER(kind, name) , RPEXEC_TYPE_##kind name
#define RPEXEC_PARAMETERS(...) RPEXEC_EACH(RPEXEC_PARAMETER, __VA_ARGS__)

/** A backend's operators. */
typedef struct rpexec_operators {
#define RPEXEC_MEMBER(name, costs, ...)                                                            \
    void (*name)(rpexec_lane * lane RPEXEC_PARAMETERS(__VA_ARGS__));
    RPEXEC_OPERATOR_LIST(RPEXEC_MEMBER)
    /** Adds the squares of `count` values to a sum on the host; waits for the operators before
     * it. */
    void (*squares)(rpexec_lane *lane, uint64_t count, const void *x, rpexec_squares *sum);
} rpexec_operators;
