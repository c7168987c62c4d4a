/* The table of operators: the choice of a kernel for each operator. No choice depends on
 * addresses. */
#include "common/base/log.h"
#include "exec/cuda/cublas.h"
#include "exec/cuda/cudnn.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/lane.h"

#include <string.h>

/* Keeps the lane's first failure; later failures mostly follow from it. */
static void keep(rpexec_lane *lane, rp_status status)
{
    if (lane->status == RP_OK) {
        lane->status = status;
    }
}

static void keep_cuda(rpexec_lane *lane, cudaError_t error, const char *call, int line)
{
    if (error != cudaSuccess && lane->status == RP_OK) {
        lane->status = rpexec_cuda_check(error, call, __FILE__, line);
    }
}

#define DO(call) keep_cuda(lane, (call), #call, __LINE__)

static rpexec_cuda_target target_of(const rpexec_lane *lane)
{
    return (rpexec_cuda_target){
        .stream = lane->stream, .sm_count = lane->sm_count, .dtype = lane->dtype};
}

/* The lane's scratch; NULL (logged) if the operator needs more. */
static void *scratch(rpexec_lane *lane, size_t bytes)
{
    if (bytes > lane->scratch_bytes) {
        if (lane->status == RP_OK) {
            rp_log_error("an operator needs %zu bytes of scratch, the lane has %zu: "
                         "rpexec_cuda_scratch_bytes of another model, or of fewer tokens",
                         bytes, lane->scratch_bytes);
        }
        keep(lane, RP_BROKEN);
        return NULL;
    }
    return lane->scratch;
}

/* ---- norms ----------------------------------------------------------------------------------- */

static void cuda_rms_norm(rpexec_lane *lane, uint64_t rows, uint32_t width, float eps, bool shifted,
                          const void *x, const void *weight, void *y, float *r)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_rms_norm(&target, rows, width, eps, shifted, x, weight, y, r));
}

static void cuda_rms_norm_input(rpexec_lane *lane, uint64_t rows, uint32_t width, bool shifted,
                                const void *x, const void *weight, const float *r, const void *dy,
                                const void *base, void *dx)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_rms_norm_input(&target, rows, width, shifted, x, weight, r, dy, base, dx));
}

static void cuda_rms_norm_weight(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *x,
                                 const float *r, const void *dy, bool wide, void *dweight)
{
    const rpexec_cuda_target target = target_of(lane);
    float *parts = scratch(lane, (size_t)rpexec_cuda_norm_parts(rows) * width * sizeof *parts);
    if (parts != NULL) {
        DO(rpexec_cuda_rms_norm_weight(&target, rows, width, x, r, dy, parts, wide, dweight));
    }
}

static void cuda_bias_weight(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *dy,
                             bool wide, void *dbias)
{
    cuda_rms_norm_weight(lane, rows, width, NULL, NULL, dy, wide, dbias);
}

/* ---- products -------------------------------------------------------------------------------- */

static void own_products(rpexec_lane *lane, const rpexec_cuda_products *products, const void *a,
                         const void *b, void *c)
{
    const rpexec_cuda_target target = target_of(lane);
    if (lane->dtype == RP_DTYPE_F32) {
        DO(rpexec_cuda_products_fp32(&target, products, a, b, c));
    } else {
        DO(rpexec_cuda_products_half(&target, products, a, b, c));
    }
}

static void product(rpexec_lane *lane, rpexec_cuda_product which, uint64_t rows, uint32_t in,
                    uint32_t out, const void *a, const void *b, const void *base, bool wide,
                    void *c)
{
    const rpexec_cuda_products one = {.which = which,
                                      .rows = rows,
                                      .in = in,
                                      .out = out,
                                      .experts = 1,
                                      .base = base,
                                      .wide = wide};
    if (rows == 0) {
        return;
    }
    if (lane->own_products) {
        own_products(lane, &one, a, b, c);
    } else if (lane->status == RP_OK) {
        keep(lane, rpexec_cublas_product(lane, &one, a, b, c));
    }
}

static void cuda_linear(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out, const void *x,
                        const void *weight, const void *base, void *y)
{
    product(lane, RPEXEC_CUDA_FORWARD, rows, in, out, x, weight, base, false, y);
}

static void cuda_linear_input(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out,
                              const void *dy, const void *weight, bool add, void *dx)
{
    product(lane, RPEXEC_CUDA_INPUT, rows, in, out, dy, weight, add ? dx : NULL, false, dx);
}

static void cuda_linear_weight(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out,
                               const void *dy, const void *x, bool wide, void *dweight)
{
    product(lane, RPEXEC_CUDA_WEIGHT, rows, in, out, dy, x, dweight, wide, dweight);
}

/* Always uses our own kernels, which read `begins`: cuBLAS needs the number of an expert's rows on
 * the host, and only the GPU has it. */
static void experts_product(rpexec_lane *lane, rpexec_cuda_product which, const rpexec_routing *r,
                            const rpexec_matrices *m, const void *a, const void *b, bool add,
                            bool wide, void *c)
{
    const rpexec_cuda_products products = {.which = which,
                                           .rows = r->tokens * r->active,
                                           .in = m->in,
                                           .out = m->out,
                                           .experts = r->experts,
                                           .stride = m->stride,
                                           .begins = r->begins,
                                           .base = add ? c : NULL,
                                           .wide = wide};
    own_products(lane, &products, a, b, c);
}

static void cuda_experts_linear(rpexec_lane *lane, const rpexec_routing *r,
                                const rpexec_matrices *m, const void *x, const void *weights,
                                bool add, void *y)
{
    experts_product(lane, RPEXEC_CUDA_FORWARD, r, m, x, weights, add, false, y);
}

static void cuda_experts_linear_input(rpexec_lane *lane, const rpexec_routing *r,
                                      const rpexec_matrices *m, const void *dy, const void *weights,
                                      bool add, void *dx)
{
    experts_product(lane, RPEXEC_CUDA_INPUT, r, m, dy, weights, add, false, dx);
}

static void cuda_experts_linear_weight(rpexec_lane *lane, const rpexec_routing *r,
                                       const rpexec_matrices *m, const void *dy, const void *x,
                                       bool wide, void *dweights)
{
    experts_product(lane, RPEXEC_CUDA_WEIGHT, r, m, dy, x, true, wide, dweights);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Depends only on type and sizes, since another kernel gives other bits. */
static bool by_tensor_cores(const rpexec_lane *lane, const rpexec_attention_sizes *sizes)
{
    return lane->dtype != RP_DTYPE_F32 && sizes->cap == 0 &&
           (sizes->head_dim == 64 || sizes->head_dim == 128);
}

static void cuda_attention(rpexec_lane *lane, const rpexec_attention_sizes *sizes, const void *q,
                           const void *k, const void *v, void *o, float *logsumexp)
{
    const rpexec_cuda_target target = target_of(lane);
    if (lane->cudnn != NULL && rpexec_cudnn_has(lane->cudnn, sizes)) {
        keep(lane, rpexec_cudnn_attention(lane->cudnn, sizes, q, k, v, o, logsumexp));
    } else if (by_tensor_cores(lane, sizes)) {
        DO(rpexec_cuda_attention_half(&target, sizes, q, k, v, o, logsumexp));
    } else {
        DO(rpexec_cuda_attention(&target, sizes, q, k, v, o, logsumexp));
    }
}

static void cuda_attention_backward(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                                    const void *q, const void *k, const void *v, const void *o,
                                    const float *logsumexp, const void *d_o, void *dq, void *dk,
                                    void *dv)
{
    const rpexec_cuda_target target = target_of(lane);
    size_t rows = (size_t)sizes->sequences * sizes->seq_len * sizes->heads;
    bool fast = by_tensor_cores(lane, sizes);
    float *floats = scratch(lane, rows * (fast ? 2 : 1) * sizeof *floats);
    if (floats == NULL) {
        return;
    }
    if (fast) {
        DO(rpexec_cuda_attention_by_head(&target, sizes, o, d_o, logsumexp, floats));
        DO(rpexec_cuda_attention_half_backward(&target, sizes, q, k, v, d_o, floats, dq, dk, dv));
    } else {
        DO(rpexec_cuda_attention_backward(&target, sizes, q, k, v, o, logsumexp, d_o, floats, dq,
                                          dk, dv));
    }
}

static void cuda_join_sinks(rpexec_lane *lane, uint64_t tokens, uint32_t heads, uint32_t head_dim,
                            const void *sinks, void *o, float *logsumexp)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_join_sinks(&target, tokens, heads, head_dim, sinks, o, logsumexp));
}

static void cuda_sinks_weight(rpexec_lane *lane, uint64_t tokens, uint32_t heads, uint32_t head_dim,
                              const void *sinks, const void *o, const float *logsumexp,
                              const void *d_o, bool wide, void *dsinks)
{
    const rpexec_cuda_target target = target_of(lane);
    size_t rows = tokens + rpexec_cuda_norm_parts(tokens);
    float *sums = scratch(lane, rows * heads * sizeof *sums);
    if (sums != NULL) {
        DO(rpexec_cuda_sinks_weight(&target, tokens, heads, head_dim, sinks, o, logsumexp, d_o,
                                    sums, wide, dsinks));
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

static void cuda_rotate(rpexec_lane *lane, uint32_t sequences, uint32_t seq_len, uint32_t heads,
                        uint32_t head_dim, uint32_t turned, const float *cosines,
                        const float *sines, bool inverse, void *x)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_rotate(&target, sequences, seq_len, heads, head_dim, turned, cosines, sines,
                          inverse, x));
}

static void cuda_swiglu(rpexec_lane *lane, uint64_t count, const void *gate, const void *up,
                        void *s)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_swiglu(&target, count, gate, up, s));
}

static void cuda_swiglu_backward(rpexec_lane *lane, uint64_t count, const void *gate,
                                 const void *up, const void *ds, void *dgate, void *dup)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_swiglu_backward(&target, count, gate, up, ds, dgate, dup));
}

static void cuda_geglu(rpexec_lane *lane, uint64_t count, const void *gate, const void *up, void *s)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_geglu(&target, count, gate, up, s));
}

static void cuda_geglu_backward(rpexec_lane *lane, uint64_t count, const void *gate, const void *up,
                                const void *ds, void *dgate, void *dup)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_geglu_backward(&target, count, gate, up, ds, dgate, dup));
}

static void cuda_add(rpexec_lane *lane, uint64_t count, const void *a, const void *b, void *y)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_add(&target, count, a, b, y));
}

static void cuda_add_bias(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *bias,
                          const void *base, void *y)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_add_bias(&target, rows, width, bias, base, y));
}

static void cuda_add_sums(rpexec_lane *lane, uint64_t count, const float *sums, void *gradients)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_add_sums(&target, count, sums, gradients));
}

static void cuda_scale(rpexec_lane *lane, uint64_t count, float factor, void *x)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_scale(&target, count, factor, x));
}

/* Without bytes nothing is enqueued, so that a graph gets no node. */
static void cuda_zero(rpexec_lane *lane, uint64_t count, void *x)
{
    if (count != 0) {
        DO(cudaMemsetAsync(x, 0, count * rp_dtype_bytes(lane->dtype), lane->stream));
    }
}

static void cuda_copy(rpexec_lane *lane, uint64_t count, const void *from, void *to)
{
    if (count != 0) {
        DO(cudaMemcpyAsync(to, from, count * rp_dtype_bytes(lane->dtype), cudaMemcpyDeviceToDevice,
                           lane->stream));
    }
}

static void cuda_squares(rpexec_lane *lane, uint64_t count, const void *x, rpexec_squares *sum)
{
    const rpexec_cuda_target target = target_of(lane);
    uint64_t *parts = scratch(lane, RPEXEC_CUDA_SQUARES_SCRATCH);
    rpexec_squares got;
    if (parts == NULL) {
        sum->not_finite++;
        return;
    }
    if (count == 0) {
        return;
    }
    DO(rpexec_cuda_squares(&target, count, x, parts));
    DO(cudaMemcpyAsync(lane->pinned, parts, sizeof got, cudaMemcpyDeviceToHost, lane->stream));
    DO(cudaStreamSynchronize(lane->stream));
    memcpy(&got, lane->pinned, sizeof got);
    rpexec_squares_merge(&got, sum);
    sum->not_finite += lane->status == RP_OK ? 0 : 1;
}

static void cuda_adam(rpexec_lane *lane, const rpexec_adam_factors *factors,
                      const rpexec_update *update)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_adam(&target, factors, update));
}

/* ---- tokens and experts ---------------------------------------------------------------------- */

static void cuda_embed(rpexec_lane *lane, uint64_t tokens, uint32_t width, const int32_t *ids,
                       const void *table, void *x)
{
    const rpexec_cuda_target target = target_of(lane);
    void *work = scratch(lane, rpexec_cuda_embed_scratch(tokens));
    if (work != NULL) {
        DO(rpexec_cuda_embed(&target, tokens, width, ids, work, table, x));
    }
}

static void cuda_embed_weight(rpexec_lane *lane, uint64_t tokens, uint32_t width,
                              const int32_t *ids, const void *dx, bool wide, void *dtable)
{
    const rpexec_cuda_target target = target_of(lane);
    void *work = scratch(lane, rpexec_cuda_embed_scratch(tokens));
    if (work != NULL) {
        DO(rpexec_cuda_embed_weight(&target, tokens, width, ids, work, dx, wide, dtable));
    }
}

static void cuda_cross_entropy(rpexec_lane *lane, uint64_t rows, uint32_t vocab,
                               const int32_t *labels, float cap, float factor, void *z,
                               double *loss)
{
    const rpexec_cuda_target target = target_of(lane);
    double *losses = scratch(lane, rows * sizeof *losses);
    if (losses != NULL) {
        DO(rpexec_cuda_cross_entropy(&target, rows, vocab, labels, cap, factor, z, losses, loss));
    }
}

static void cuda_row_statistics(rpexec_lane *lane, uint64_t rows, uint32_t vocab, float cap,
                                const void *z, float *statistics)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_row_statistics(&target, rows, vocab, cap, z, statistics));
}

static void cuda_cross_entropy_part(rpexec_lane *lane, uint64_t rows, uint32_t vocab,
                                    uint32_t first, const int32_t *labels, uint32_t parts,
                                    const float *statistics, uint64_t stride, float cap,
                                    float factor, void *z, double *loss)
{
    const rpexec_cuda_target target = target_of(lane);
    double *losses = scratch(lane, rows * sizeof *losses);
    if (losses != NULL) {
        DO(rpexec_cuda_cross_entropy_part(&target, rows, vocab, first, labels, parts, statistics,
                                          stride, cap, factor, z, losses, loss));
    }
}

static void cuda_route(rpexec_lane *lane, const rpexec_routing *routing, const void *logits)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_route(&target, routing, logits));
}

static void cuda_route_backward(rpexec_lane *lane, const rpexec_routing *routing,
                                const float *dweights, void *dlogits)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_route_backward(&target, routing, dweights, dlogits));
}

static void cuda_gather(rpexec_lane *lane, const rpexec_routing *routing, uint32_t width,
                        const void *x, void *y)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_gather(&target, routing, width, x, y));
}

static void cuda_scatter(rpexec_lane *lane, const rpexec_routing *routing, uint32_t width,
                         const void *x, bool adding, void *y)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_scatter(&target, routing, width, x, adding, y));
}

static void cuda_experts_bias(rpexec_lane *lane, const rpexec_routing *routing, uint32_t width,
                              const void *bias, bool weighted, void *y)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_experts_bias(&target, routing, width, bias, weighted, y));
}

static void cuda_experts_bias_input(rpexec_lane *lane, const rpexec_routing *routing,
                                    uint32_t width, const void *dy, const void *bias,
                                    float *dweights)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_experts_bias_input(&target, routing, width, dy, bias, dweights));
}

static void cuda_experts_bias_weight(rpexec_lane *lane, const rpexec_routing *routing,
                                     uint32_t width, const void *dy, bool weighted, bool wide,
                                     void *dbias)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_experts_bias_weight(&target, routing, width, dy, weighted, wide, dbias));
}

static void cuda_experts_swiglu(rpexec_lane *lane, const rpexec_routing *routing, uint32_t width,
                                float alpha, float limit, const void *gate, const void *up, void *s)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_experts_swiglu(&target, routing, width, alpha, limit, gate, up, s));
}

static void cuda_experts_swiglu_backward(rpexec_lane *lane, const rpexec_routing *routing,
                                         uint32_t width, float alpha, float limit, const void *gate,
                                         const void *up, const void *ds, void *dgate, void *dup,
                                         float *dweights)
{
    const rpexec_cuda_target target = target_of(lane);
    DO(rpexec_cuda_experts_swiglu_backward(&target, routing, width, alpha, limit, gate, up, ds,
                                           dgate, dup, dweights));
}

/* A single table serves all types: the lane has the type. */
#define ENTRY(name, ...) .name = cuda_##name,
static const rpexec_operators operators = {RPEXEC_OPERATOR_LIST(ENTRY).squares = cuda_squares};

const rpexec_operators *const rpexec_cuda_operators[RP_DTYPE_COUNT] = {
    [RP_DTYPE_F32] = &operators,
    [RP_DTYPE_F16] = &operators,
    [RP_DTYPE_BF16] = &operators,
};
