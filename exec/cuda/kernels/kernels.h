/** @file kernels.h  Launchers of the CUDA kernels, in plain C, by families, each with its file.
 *
 * They enqueue into the target's stream and return the launch's error. Formulas, layouts and
 * pointers that may be NULL are those of exec/operators/operators.h; memory is the GPU's. Grids of
 * loops over values fit the target's multiprocessors; no sum depends on them, nor on the addresses'
 * alignment.
 */
#pragma once

#include "exec/operators/operators.h"

#include <cuda_runtime_api.h>

/** The target of launches. */
typedef struct rpexec_cuda_target {
    cudaStream_t stream;
    uint32_t sm_count;
    rp_dtype dtype;
} rpexec_cuda_target;

/** The three products of a linear layer. */
typedef enum rpexec_cuda_product {
    RPEXEC_CUDA_FORWARD, /**< y[rows, out] = x[rows, in] weight[out, in]^T */
    RPEXEC_CUDA_INPUT,   /**< dx[rows, in] = dy[rows, out] weight[out, in] */
    RPEXEC_CUDA_WEIGHT,  /**< dweight[out, in] = dy[rows, out]^T x[rows, in] */
} rpexec_cuda_product;

/** Products by our own kernels. */
typedef struct rpexec_cuda_products {
    rpexec_cuda_product which;
    uint64_t rows; /**< of all experts */
    uint32_t in;
    uint32_t out;
    uint32_t experts;
    uint64_t stride;        /**< values between the experts' matrices */
    const uint32_t *begins; /**< [experts + 1], the GPU's; NULL: a single expert */
    const void *base;       /**< added to the product: the result itself, another tensor, or NULL */
    bool wide;              /**< WEIGHT: result and `base` are fp32 for every dtype */
} rpexec_cuda_products;

#ifdef __cplusplus
extern "C" {
#endif

/* norm.cu. `parts` is scratch: rpexec_cuda_norm_parts(rows) x width floats. Without x and r
 * rms_norm_weight is bias_weight. */
cudaError_t rpexec_cuda_rms_norm(const rpexec_cuda_target *target, uint64_t rows, uint32_t width,
                                 float eps, bool shifted, const void *x, const void *weight,
                                 void *y, float *r);
cudaError_t rpexec_cuda_rms_norm_input(const rpexec_cuda_target *target, uint64_t rows,
                                       uint32_t width, bool shifted, const void *x,
                                       const void *weight, const float *r, const void *dy,
                                       const void *base, void *dx);
cudaError_t rpexec_cuda_rms_norm_weight(const rpexec_cuda_target *target, uint64_t rows,
                                        uint32_t width, const void *x, const float *r,
                                        const void *dy, float *parts, bool wide, void *dweight);

/** dsums[width] += sums over the rows of fp32 values[rows, width]. */
cudaError_t rpexec_cuda_sum_rows(const rpexec_cuda_target *target, uint64_t rows, uint32_t width,
                                 const float *values, float *parts, bool wide, void *dsums);

/** @return parts of the rows that rms_norm_weight sums: depends on `rows` only, at most 256 */
uint32_t rpexec_cuda_norm_parts(uint64_t rows);

/* values.cu. */
cudaError_t rpexec_cuda_rotate(const rpexec_cuda_target *target, uint32_t sequences,
                               uint32_t seq_len, uint32_t heads, uint32_t head_dim, uint32_t turned,
                               const float *cosines, const float *sines, bool inverse, void *x);
cudaError_t rpexec_cuda_swiglu(const rpexec_cuda_target *target, uint64_t count, const void *gate,
                               const void *up, void *s);
cudaError_t rpexec_cuda_swiglu_backward(const rpexec_cuda_target *target, uint64_t count,
                                        const void *gate, const void *up, const void *ds,
                                        void *dgate, void *dup);
cudaError_t rpexec_cuda_geglu(const rpexec_cuda_target *target, uint64_t count, const void *gate,
                              const void *up, void *s);
cudaError_t rpexec_cuda_geglu_backward(const rpexec_cuda_target *target, uint64_t count,
                                       const void *gate, const void *up, const void *ds,
                                       void *dgate, void *dup);
cudaError_t rpexec_cuda_add(const rpexec_cuda_target *target, uint64_t count, const void *a,
                            const void *b, void *y);
cudaError_t rpexec_cuda_add_bias(const rpexec_cuda_target *target, uint64_t rows, uint32_t width,
                                 const void *bias, const void *base, void *y);
cudaError_t rpexec_cuda_add_sums(const rpexec_cuda_target *target, uint64_t count,
                                 const float *sums, void *gradients);
cudaError_t rpexec_cuda_scale(const rpexec_cuda_target *target, uint64_t count, float factor,
                              void *x);
cudaError_t rpexec_cuda_adam(const rpexec_cuda_target *target, const rpexec_adam_factors *factors,
                             const rpexec_update *update);
/** The first 32 words become the limbs of rpexec_squares, then its count of values that are not
 * finite. @param parts [RPEXEC_CUDA_SQUARES_PARTS][32] */
cudaError_t rpexec_cuda_squares(const rpexec_cuda_target *target, uint64_t count, const void *x,
                                uint64_t *parts);
#define RPEXEC_CUDA_SQUARES_PARTS 2048u /* blocks: as many as fit a GPU */
#define RPEXEC_CUDA_SQUARES_SCRATCH ((size_t)RPEXEC_CUDA_SQUARES_PARTS * 32 * sizeof(uint64_t))

/* tokens.cu. `losses` is scratch, [rows]; `scratch` has
 * rpexec_cuda_embed_scratch bytes. `ids` and `labels` may lie in pinned memory of the host, which
 * the GPU does not cache. */
cudaError_t rpexec_cuda_embed(const rpexec_cuda_target *target, uint64_t tokens, uint32_t width,
                              const int32_t *ids, void *scratch, const void *table, void *x);
cudaError_t rpexec_cuda_embed_weight(const rpexec_cuda_target *target, uint64_t tokens,
                                     uint32_t width, const int32_t *ids, void *scratch,
                                     const void *dx, bool wide, void *dtable);
/** @return bytes of scratch, which depend on `tokens` only */
size_t rpexec_cuda_embed_scratch(uint64_t tokens);

/** The loss of whole rows of logits, which become the gradient. */
cudaError_t rpexec_cuda_cross_entropy(const rpexec_cuda_target *target, uint64_t rows,
                                      uint32_t vocab, const int32_t *labels, float cap, float scale,
                                      void *z, double *losses, double *loss);

/** For the loss of a part of the vocabulary. */
cudaError_t rpexec_cuda_row_statistics(const rpexec_cuda_target *target, uint64_t rows,
                                       uint32_t vocab, float cap, const void *z, float *statistics);
/** The same, with the statistics of all parts. */
cudaError_t rpexec_cuda_cross_entropy_part(const rpexec_cuda_target *target, uint64_t rows,
                                           uint32_t vocab, uint32_t first, const int32_t *labels,
                                           uint32_t parts, const float *statistics, uint64_t stride,
                                           float cap, float scale, void *z, double *losses,
                                           double *loss);

/* experts.cu. */
cudaError_t rpexec_cuda_route(const rpexec_cuda_target *target, const rpexec_routing *routing,
                              const void *logits);
cudaError_t rpexec_cuda_route_backward(const rpexec_cuda_target *target,
                                       const rpexec_routing *routing, const float *dweights,
                                       void *dlogits);
cudaError_t rpexec_cuda_gather(const rpexec_cuda_target *target, const rpexec_routing *routing,
                               uint32_t width, const void *x, void *y);
cudaError_t rpexec_cuda_scatter(const rpexec_cuda_target *target, const rpexec_routing *routing,
                                uint32_t width, const void *x, bool add, void *y);
cudaError_t rpexec_cuda_experts_bias(const rpexec_cuda_target *target,
                                     const rpexec_routing *routing, uint32_t width,
                                     const void *bias, bool weighted, void *y);
cudaError_t rpexec_cuda_experts_bias_input(const rpexec_cuda_target *target,
                                           const rpexec_routing *routing, uint32_t width,
                                           const void *dy, const void *bias, float *dweights);
cudaError_t rpexec_cuda_experts_bias_weight(const rpexec_cuda_target *target,
                                            const rpexec_routing *routing, uint32_t width,
                                            const void *dy, bool weighted, bool wide, void *dbias);
cudaError_t rpexec_cuda_experts_swiglu(const rpexec_cuda_target *target,
                                       const rpexec_routing *routing, uint32_t width, float alpha,
                                       float limit, const void *gate, const void *up, void *s);
cudaError_t rpexec_cuda_experts_swiglu_backward(const rpexec_cuda_target *target,
                                                const rpexec_routing *routing, uint32_t width,
                                                float alpha, float limit, const void *gate,
                                                const void *up, const void *ds, void *dgate,
                                                void *dup, float *dweights);

/** Most experts of `route`, whose probabilities lie in shared memory. */
#define RPEXEC_CUDA_MOST_EXPERTS 2048u

/* products.cu (fp32), products_half.cu (16 bits, tensor cores): `a` and `b` are the operands in the
 * formula's order, `c` is the result. */
cudaError_t rpexec_cuda_products_fp32(const rpexec_cuda_target *target,
                                      const rpexec_cuda_products *products, const void *a,
                                      const void *b, void *c);
cudaError_t rpexec_cuda_products_half(const rpexec_cuda_target *target,
                                      const rpexec_cuda_products *products, const void *a,
                                      const void *b, void *c);

/* attention.cu: any type and head_dim up to 256, slow. `sums` is scratch, tokens x heads floats.
 */
cudaError_t rpexec_cuda_attention(const rpexec_cuda_target *target,
                                  const rpexec_attention_sizes *sizes, const void *q, const void *k,
                                  const void *v, void *o, float *logsumexp);
cudaError_t rpexec_cuda_attention_backward(const rpexec_cuda_target *target,
                                           const rpexec_attention_sizes *sizes, const void *q,
                                           const void *k, const void *v, const void *o,
                                           const float *logsumexp, const void *d_o, float *sums,
                                           void *dq, void *dk, void *dv);
cudaError_t rpexec_cuda_join_sinks(const rpexec_cuda_target *target, uint64_t tokens,
                                   uint32_t heads, uint32_t head_dim, const void *sinks, void *o,
                                   float *logsumexp);
/** @param sums tokens x heads, then rpexec_cuda_norm_parts(tokens) x heads floats of scratch */
cudaError_t rpexec_cuda_sinks_weight(const rpexec_cuda_target *target, uint64_t tokens,
                                     uint32_t heads, uint32_t head_dim, const void *sinks,
                                     const void *o, const float *logsumexp, const void *d_o,
                                     float *sums, bool wide, void *dsinks);
/** @param by_head [2][heads][tokens], for rpexec_cuda_attention_half_backward: logsumexp times
 * log2(e), and the sums over the head of d_o o */
cudaError_t rpexec_cuda_attention_by_head(const rpexec_cuda_target *target,
                                          const rpexec_attention_sizes *sizes, const void *o,
                                          const void *d_o, const float *logsumexp, float *by_head);

/* attention_half.cu, attention_half_backward.cu: tensor cores, 16-bit storage, head_dim 64 and 128,
 * tensors aligned to 16 bytes. */
cudaError_t rpexec_cuda_attention_half(const rpexec_cuda_target *target,
                                       const rpexec_attention_sizes *sizes, const void *q,
                                       const void *k, const void *v, void *o, float *logsumexp);
/** @param by_head from rpexec_cuda_attention_by_head */
cudaError_t rpexec_cuda_attention_half_backward(const rpexec_cuda_target *target,
                                                const rpexec_attention_sizes *sizes, const void *q,
                                                const void *k, const void *v, const void *d_o,
                                                const float *by_head, void *dq, void *dk, void *dv);

#ifdef __cplusplus
}
#endif
