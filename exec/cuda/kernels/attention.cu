/* Causal grouped-query attention without tensor cores, for every type and head size: a warp per
 * row goes over keys (or queries) singly. fp32 uses it, and the fast kernels are compared with it.
 */
#include "exec/cuda/kernels/device.cuh"

enum { BLOCK = 128, MOST_COLUMNS = 8 /* columns of a lane: head_dim is 256 at most */ };

/* A lane's columns of a row. */
template <typename T>
__device__ inline void load_row(const T *row, uint32_t head_dim, float to[MOST_COLUMNS])
{
#pragma unroll
    for (uint32_t i = 0; i < MOST_COLUMNS; i++) {
        uint32_t column = threadIdx.x % 32 + i * 32;
        to[i] = column < head_dim ? widen(row[column]) : 0.0f;
    }
}

template <typename T>
__device__ inline void store_row(const float from[MOST_COLUMNS], uint32_t head_dim, T *row)
{
#pragma unroll
    for (uint32_t i = 0; i < MOST_COLUMNS; i++) {
        uint32_t column = threadIdx.x % 32 + i * 32;
        if (column < head_dim) {
            narrow(from[i], &row[column]);
        }
    }
}

__device__ inline float dot(const float a[MOST_COLUMNS], const float b[MOST_COLUMNS])
{
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < MOST_COLUMNS; i++) {
        sum += a[i] * b[i];
    }
    return warp_sum(sum);
}

/* into := into * shrink + from * factor. */
__device__ inline void blend(float into[MOST_COLUMNS], float shrink, const float from[MOST_COLUMNS],
                             float factor)
{
#pragma unroll
    for (uint32_t i = 0; i < MOST_COLUMNS; i++) {
        into[i] = into[i] * shrink + from[i] * factor;
    }
}

/* The row of this warp: a head of a token. */
struct place {
    uint32_t token; /* in its sequence */
    uint32_t head;
    uint64_t first; /* the sequence's first token */
    bool any;
};

__device__ inline place place_of(const rpexec_attention_sizes &s, uint32_t heads)
{
    uint64_t row = (uint64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    uint64_t token = row / heads;
    place p = {};
    p.any = token < (uint64_t)s.sequences * s.seq_len;
    p.token = (uint32_t)(token % s.seq_len);
    p.head = (uint32_t)(row % heads);
    p.first = token - p.token;
    return p;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    attention(rpexec_attention_sizes s, float scale, const T *q, const T *k, const T *v, T *o,
              float *logsumexp)
{
    place p = place_of(s, s.heads);
    uint32_t h = s.head_dim;
    if (!p.any) {
        return;
    }
    uint64_t row = (p.first + p.token) * s.heads + p.head;
    uint32_t kv_head = p.head / (s.heads / s.kv_heads);
    uint32_t key = s.window == 0 || p.token < s.window ? 0 : p.token + 1 - s.window;
    float query[MOST_COLUMNS], other[MOST_COLUMNS], out[MOST_COLUMNS] = {};
    float most = -INFINITY, sum = 0;
    load_row(q + row * h, h, query);
    for (; key <= p.token; key++) {
        uint64_t at = ((p.first + key) * s.kv_heads + kv_head) * h;
        load_row(k + at, h, other);
        float score = capped(dot(query, other) * scale, MUTATE(scores_without_cap, s.cap, 0));
        float now = fmaxf(most, score);
        float shrink = expf(most - now);
        float weight = expf(score - now);
        load_row(v + at, h, other);
        blend(out, shrink, other, weight);
        sum = sum * shrink + weight;
        most = now;
    }
    blend(out, 1.0f / sum, out, 0.0f);
    store_row(out, h, o + row * h);
    if (threadIdx.x % 32 == 0) {
        logsumexp[row] = most + logf(sum);
    }
}

/* A warp per row, N neighbouring values per lane. With `logsumexp` stores both as
 * rpexec_cuda_attention_by_head does, else the sums as [token, head]. */
template <typename T, int N>
__global__ void __launch_bounds__(BLOCK)
    attention_sums(uint64_t rows, uint32_t heads, uint32_t head_dim, const T *o, const T *d_o,
                   const float *logsumexp, float *sums, bool whole)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint64_t row = (uint64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32; row < rows;
         row += (uint64_t)gridDim.x * (BLOCK / 32)) {
        float sum = 0;
        for (uint32_t column = lane * N; column < head_dim;
             column += MUTATE(first_columns_only, 32 * N, head_dim)) {
            float a[N], b[N];
            load<N>(o + row * head_dim + column, head_dim - column, whole, a);
            load<N>(d_o + row * head_dim + column, head_dim - column, whole, b);
            for (int i = 0; i < N; i++) {
                sum += a[i] * b[i];
            }
        }
        sum = warp_sum(sum);
        if (lane == 0 && logsumexp == nullptr) {
            sums[row] = sum;
        } else if (lane == 0) {
            uint64_t at = row % heads * (rows / heads) + row / heads;
            sums[at] = logsumexp[row] * MUTATE(logsumexp_of_e, RPEXEC_LOG2_E, 1);
            sums[rows + MUTATE(sums_by_token, at, row)] = sum;
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    attention_dq(rpexec_attention_sizes s, float scale, const T *q, const T *k, const T *v,
                 const float *logsumexp, const T *d_o, const float *sums, T *dq)
{
    place p = place_of(s, s.heads);
    uint32_t h = s.head_dim;
    if (!p.any) {
        return;
    }
    uint64_t row = (p.first + p.token) * s.heads + p.head;
    uint32_t kv_head = p.head / (s.heads / s.kv_heads);
    uint32_t key = s.window == 0 || p.token < s.window ? 0 : p.token + 1 - s.window;
    float query[MOST_COLUMNS], gradient[MOST_COLUMNS];
    float other[MOST_COLUMNS], value[MOST_COLUMNS], sum[MOST_COLUMNS] = {};
    load_row(q + row * h, h, query);
    load_row(d_o + row * h, h, gradient);
    for (; key <= p.token; key++) {
        uint64_t at = ((p.first + key) * s.kv_heads + kv_head) * h;
        load_row(k + at, h, other);
        load_row(v + at, h, value);
        float score = capped(dot(query, other) * scale, s.cap);
        float slope = scale * slope_of_cap(score, MUTATE(dq_without_slope, s.cap, 0));
        float weight = expf(score - logsumexp[row]);
        blend(sum, 1.0f, other, weight * (dot(gradient, value) - sums[row]) * slope);
    }
    store_row(sum, h, dq + row * h);
}

/* Gradients of a key and its value, from the queries that see it in the group's heads, ascending.
 * Five blocks at a time leave registers for four rows; for a sixth the compiler would spill on
 * sm_120. */
template <typename T>
__global__ void __launch_bounds__(BLOCK, 5)
    attention_dkv(rpexec_attention_sizes s, float scale, const T *q, const T *k, const T *v,
                  const float *logsumexp, const T *d_o, const float *sums, T *dk, T *dv)
{
    place p = place_of(s, s.kv_heads);
    uint32_t h = s.head_dim;
    if (!p.any) {
        return;
    }
    uint64_t row = (p.first + p.token) * s.kv_heads + p.head;
    uint32_t group = s.heads / s.kv_heads;
    uint32_t left = s.seq_len - p.token;
    uint32_t end = p.token + (s.window == 0 || left < s.window ? left : s.window);
    float key[MOST_COLUMNS], value[MOST_COLUMNS], other[MOST_COLUMNS], gradient[MOST_COLUMNS];
    float to_key[MOST_COLUMNS] = {}, to_value[MOST_COLUMNS] = {};
    load_row(k + row * h, h, key);
    load_row(v + row * h, h, value);
    for (uint32_t head = p.head * group; head < (p.head + 1) * group; head++) {
        for (uint32_t query = p.token; query < end; query++) {
            uint64_t at = (p.first + query) * s.heads + head;
            load_row(q + at * h, h, other);
            load_row(d_o + at * h, h, gradient);
            float score = capped(dot(other, key) * scale, s.cap);
            float weight = expf(score - logsumexp[at]);
            float slope = weight * (dot(gradient, value) - sums[at]) * scale *
                          slope_of_cap(score, MUTATE(dk_without_slope, s.cap, 0));
            blend(to_value, 1.0f, gradient, weight);
            blend(to_key, 1.0f, other, slope);
        }
    }
    store_row(to_key, h, dk + row * h);
    store_row(to_value, h, dv + row * h);
}

/* A warp per row, with the logf and expf of attention. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    join_sinks(uint64_t rows, uint32_t heads, uint32_t head_dim, const T *sinks, T *o,
               float *logsumexp)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint64_t row = (uint64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32; row < rows;
         row += (uint64_t)gridDim.x * (BLOCK / 32)) {
        float keys = logsumexp[row];
        float sink = widen(sinks[MUTATE(sink_of_token, row, row / heads) % heads]);
        float most = fmaxf(keys, sink);
        float all = most + logf(expf(keys - most) + expf(sink - most));
        float share = expf(keys - all);
        __syncwarp(); /* every lane has read `keys` */
        for (uint32_t i = lane; i < head_dim; i += 32) {
            T *at = o + row * head_dim + i;
            narrow(widen(*at) * share, at);
        }
        if (lane == 0) {
            logsumexp[row] = all;
        }
    }
}

/* Gradients of sinks for each row. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    sink_slopes(uint64_t rows, uint32_t heads, uint32_t head_dim, const T *sinks, const T *o,
                const float *logsumexp, const T *d_o, float *slopes)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint64_t row = (uint64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32; row < rows;
         row += (uint64_t)gridDim.x * (BLOCK / 32)) {
        float sum = 0;
        for (uint32_t i = lane; i < head_dim; i += 32) {
            sum += widen(o[row * head_dim + i]) * widen(d_o[row * head_dim + i]);
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            slopes[row] =
                MUTATE(sinks_other_sign, -expf, expf)(widen(sinks[row % heads]) - logsumexp[row]) *
                sum;
        }
    }
}

extern "C" cudaError_t rpexec_cuda_join_sinks(const rpexec_cuda_target *target, uint64_t tokens,
                                              uint32_t heads, uint32_t head_dim, const void *sinks,
                                              void *o, float *logsumexp)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_loop(target, join_sinks<T>, BLOCK, tokens * heads, BLOCK / 32, tokens * heads,
                           heads, head_dim, static_cast<const T *>(sinks), static_cast<T *>(o),
                           logsumexp);
    });
}

extern "C" cudaError_t rpexec_cuda_sinks_weight(const rpexec_cuda_target *target, uint64_t tokens,
                                                uint32_t heads, uint32_t head_dim,
                                                const void *sinks, const void *o,
                                                const float *logsumexp, const void *d_o,
                                                float *sums, bool wide, void *dsinks)
{
    cudaError_t error = for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_loop(target, sink_slopes<T>, BLOCK, tokens * heads, BLOCK / 32,
                           tokens * heads, heads, head_dim, static_cast<const T *>(sinks),
                           static_cast<const T *>(o), logsumexp, static_cast<const T *>(d_o), sums);
    });
    return error != cudaSuccess ? error
                                : rpexec_cuda_sum_rows(target, tokens, heads, sums,
                                                       sums + tokens * heads, wide, dsinks);
}

/* Blocks with a warp per row; a launch refuses more than a grid can have. */
static dim3 warps_for(const rpexec_attention_sizes *s, uint32_t heads)
{
    uint64_t rows = (uint64_t)s->sequences * s->seq_len * heads;
    return dim3((uint32_t)((rows + BLOCK / 32 - 1) / (BLOCK / 32)));
}

extern "C" cudaError_t rpexec_cuda_attention(const rpexec_cuda_target *target,
                                             const rpexec_attention_sizes *sizes, const void *q,
                                             const void *k, const void *v, void *o,
                                             float *logsumexp)
{
    if (sizes->head_dim > MOST_COLUMNS * 32) {
        return cudaErrorInvalidValue;
    }
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch(attention<T>, warps_for(sizes, sizes->heads), BLOCK, 0, target->stream,
                      *sizes, rpexec_attention_scale(sizes), static_cast<const T *>(q),
                      static_cast<const T *>(k), static_cast<const T *>(v), static_cast<T *>(o),
                      logsumexp);
    });
}

static cudaError_t sum_rows(const rpexec_cuda_target *target, const rpexec_attention_sizes *sizes,
                            const void *o, const void *d_o, const float *logsumexp, float *sums)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        uint64_t rows = (uint64_t)sizes->sequences * sizes->seq_len * sizes->heads;
        bool by_four = sizes->head_dim > 64;
        uint32_t lane = by_four ? 4 : 2;
        bool whole = aligned(lane * sizeof(T), o, MUTATE(d_o_unaligned, d_o, o)) &&
                     sizes->head_dim % lane == 0;
        auto kernel = by_four ? attention_sums<T, 4> : attention_sums<T, 2>;
        return launch_loop(target, kernel, BLOCK, rows, BLOCK / 32, rows, sizes->heads,
                           sizes->head_dim, static_cast<const T *>(o), static_cast<const T *>(d_o),
                           logsumexp, sums, whole);
    });
}

extern "C" cudaError_t rpexec_cuda_attention_by_head(const rpexec_cuda_target *target,
                                                     const rpexec_attention_sizes *sizes,
                                                     const void *o, const void *d_o,
                                                     const float *logsumexp, float *by_head)
{
    return sum_rows(target, sizes, o, d_o, logsumexp, by_head);
}

extern "C" cudaError_t rpexec_cuda_attention_backward(const rpexec_cuda_target *target,
                                                      const rpexec_attention_sizes *sizes,
                                                      const void *q, const void *k, const void *v,
                                                      const void *o, const float *logsumexp,
                                                      const void *d_o, float *sums, void *dq,
                                                      void *dk, void *dv)
{
    cudaError_t error = sum_rows(target, sizes, o, d_o, nullptr, sums);
    if (error != cudaSuccess) {
        return error;
    }
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        const T *queries = static_cast<const T *>(q);
        const T *keys = static_cast<const T *>(k);
        const T *values = static_cast<const T *>(v);
        const T *gradients = static_cast<const T *>(d_o);
        cudaError_t launched =
            launch(attention_dq<T>, warps_for(sizes, sizes->heads), BLOCK, 0, target->stream,
                   *sizes, rpexec_attention_scale(sizes), queries, keys, values, logsumexp,
                   gradients, static_cast<const float *>(sums), static_cast<T *>(dq));
        if (launched != cudaSuccess) {
            return launched;
        }
        return launch(attention_dkv<T>, warps_for(sizes, sizes->kv_heads), BLOCK, 0, target->stream,
                      *sizes, rpexec_attention_scale(sizes), queries, keys, values, logsumexp,
                      gradients, static_cast<const float *>(sums), static_cast<T *>(dk),
                      static_cast<T *>(dv));
    });
}
