/* Backward of causal grouped-query attention on tensor cores. Two kernels, each of which adds up in
 * registers and in a fixed order, so that no atomics are needed: one has a block of keys and goes
 * over the queries that see them (dk, dv), one a block of queries and goes over their keys (dq).
 * Scores are computed in both: 7 products instead of 5. Products with weights take them rounded to
 * 16 bits. */
#include "exec/cuda/attention_half.cuh"

enum { ROWS = 64, BLOCK = 128 };

/** Lines of the tiles that go by: fewer where heads are long, for registers and shared memory. */
template <int HEAD> struct passing {
    static constexpr int lines = HEAD == 64 ? 64 : 32;
    static constexpr int tile = lines * tile_pitch<HEAD>::values;
    static constexpr int resident = ROWS * tile_pitch<HEAD>::values;
    /* Two resident tiles, and two stages of two that go by. */
    static constexpr size_t bytes = (size_t)(2 * resident + 4 * tile) * 2;
};

/* dv and dk of 64 keys of a kv head. Rows of a warp's results are keys, columns are queries. */
template <int HEAD, typename T>
__device__ inline void weights_of_keys(const head_view<T> &h, float scale, uint32_t key,
                                       uint32_t query, const float *logsumexp, const float *sums,
                                       float p[passing<HEAD>::lines / 8][4],
                                       float dp[passing<HEAD>::lines / 8][4])
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < passing<HEAD>::lines / 8; n++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t column = query + n * 8 + lane % 4 * 2 + i;
            bool valid = column < h.seq_len;
            uint64_t at = h.row_at + (uint64_t)(valid ? column : 0) * h.heads;
            float l = logsumexp[at] * RPEXEC_LOG2_E;
            float sum = sums[at];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                bool seen = sees(h, column, key + lane / 4 + half * 8);
                float score = p[n][half * 2 + i] * (scale * RPEXEC_LOG2_E);
                float weight = seen ? power_of_two(score - l) : 0.0f;
                p[n][half * 2 + i] = weight;
                dp[n][half * 2 + i] = weight * (dp[n][half * 2 + i] - sum) * scale;
            }
        }
    }
}

/* One block of queries of one head: its tiles are in `queries` and `gradients`. */
template <int HEAD, typename T>
__device__ inline void add_queries(const head_view<T> &h, float scale, uint32_t key, uint32_t query,
                                   const float *logsumexp, const float *sums, const T *keys,
                                   const T *values, const T *queries, const T *gradients,
                                   float dk[HEAD / 8][4], float dv[HEAD / 8][4])
{
    constexpr int LINES = passing<HEAD>::lines;
    uint32_t row = threadIdx.x / 32 * 16;
    float p[LINES / 8][4] = {}, dp[LINES / 8][4] = {};
    multiply_lines<HEAD, LINES>(keys, row, queries, p);
    multiply_lines<HEAD, LINES>(values, row, gradients, dp);
    weights_of_keys<HEAD>(h, scale, key + row, query, logsumexp, sums, p, dp);
    multiply_weights<HEAD, LINES>(p, gradients, dv);
    multiply_weights<HEAD, LINES>(dp, queries, dk);
}

template <int HEAD, typename T>
__global__ void __launch_bounds__(BLOCK)
    attention_keys(rpexec_attention_sizes s, float scale, const T *q, const T *k, const T *v,
                   const float *logsumexp, const T *d_o, const float *sums, T *dk, T *dv)
{
    constexpr int LINES = passing<HEAD>::lines;
    constexpr int TILE = passing<HEAD>::tile;
    T *keys = reinterpret_cast<T *>(dynamic_shared());
    T *values = keys + passing<HEAD>::resident;
    T *stages = values + passing<HEAD>::resident;
    uint32_t key = blockIdx.x * ROWS;
    uint32_t key_end = key + ROWS < s.seq_len ? key + ROWS : s.seq_len;
    uint32_t begin = key / LINES * LINES;
    uint32_t end =
        s.window == 0 || s.seq_len - key_end < s.window ? s.seq_len : key_end + s.window - 1;
    uint32_t blocks = (end - begin + LINES - 1) / LINES;
    uint32_t group = s.heads / s.kv_heads;
    float to_keys[HEAD / 8][4] = {}, to_values[HEAD / 8][4] = {};
    const float one[2] = {1.0f, 1.0f};
    head_view<T> h = view_of<T>(s, blockIdx.z, blockIdx.y * group);
    fetch<ROWS, HEAD, BLOCK>(k + h.kv_at, h.kv_pitch, key, key_end, 0, HEAD, true, keys);
    fetch<ROWS, HEAD, BLOCK>(v + h.kv_at, h.kv_pitch, key, key_end, 0, HEAD, true, values);
    fetch<LINES, HEAD, BLOCK>(q + h.q_at, h.q_pitch, begin, s.seq_len, 0, HEAD, true, stages);
    fetch<LINES, HEAD, BLOCK>(d_o + h.q_at, h.q_pitch, begin, s.seq_len, 0, HEAD, true,
                              stages + TILE);
    copies_commit();
    /* Steps: the blocks of the group's first head, of its second, ... */
    for (uint32_t step = 0; step < blocks * group; step++) {
        T *now = stages + step % 2 * 2 * TILE;
        T *next = stages + (step + 1) % 2 * 2 * TILE;
        h = view_of<T>(s, blockIdx.z, blockIdx.y * group + step / blocks);
        if (step + 1 < blocks * group) {
            head_view<T> later =
                view_of<T>(s, blockIdx.z, blockIdx.y * group + (step + 1) / blocks);
            uint32_t query = begin + (step + 1) % blocks * LINES;
            fetch<LINES, HEAD, BLOCK>(q + later.q_at, h.q_pitch, query, s.seq_len, 0, HEAD, true,
                                      next);
            fetch<LINES, HEAD, BLOCK>(d_o + later.q_at, h.q_pitch, query, s.seq_len, 0, HEAD, true,
                                      next + TILE);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        add_queries<HEAD>(h, scale, key, begin + step % blocks * LINES, logsumexp, sums, keys,
                          values, now, now + TILE, to_keys, to_values);
        __syncthreads(); /* the next round fills this stage again */
    }
    uint32_t row = key + threadIdx.x / 32 * 16;
    store_lines<HEAD>(to_keys, one, row, key_end, h.kv_pitch, dk + h.kv_at);
    store_lines<HEAD>(to_values, one, row, key_end, h.kv_pitch, dv + h.kv_at);
}

/* Rows of a warp's results are queries, columns are keys: dp becomes ds. */
template <int HEAD, typename T>
__device__ inline void slopes_of_queries(const head_view<T> &h, float scale, uint32_t query,
                                         uint32_t key, const float l[2], const float sum[2],
                                         const float p[passing<HEAD>::lines / 8][4],
                                         float dp[passing<HEAD>::lines / 8][4])
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < passing<HEAD>::lines / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool seen = sees(h, query + lane / 4 + i / 2 * 8, key + n * 8 + lane % 4 * 2 + i % 2);
            float score = p[n][i] * (scale * RPEXEC_LOG2_E);
            float weight = seen ? power_of_two(score - l[i / 2]) : 0.0f;
            dp[n][i] = weight * (dp[n][i] - sum[i / 2]) * scale;
        }
    }
}

template <int HEAD, typename T>
__global__ void __launch_bounds__(BLOCK)
    attention_queries(rpexec_attention_sizes s, float scale, const T *q, const T *k, const T *v,
                      const float *logsumexp, const T *d_o, const float *sums, T *dq)
{
    constexpr int LINES = passing<HEAD>::lines;
    constexpr int TILE = passing<HEAD>::tile;
    T *queries = reinterpret_cast<T *>(dynamic_shared());
    T *gradients = queries + passing<HEAD>::resident;
    T *stages = gradients + passing<HEAD>::resident;
    head_view<T> h = view_of<T>(s, blockIdx.z, blockIdx.y);
    uint32_t lane = threadIdx.x % 32;
    uint32_t first = (gridDim.x - 1 - blockIdx.x) * ROWS;
    uint32_t end = first + ROWS < s.seq_len ? first + ROWS : s.seq_len;
    uint32_t row = threadIdx.x / 32 * 16;
    uint32_t begin = first_key(h, first, LINES);
    float to_queries[HEAD / 8][4] = {};
    float l[2], sum[2];
    const float one[2] = {1.0f, 1.0f};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t line = first + row + lane / 4 + half * 8;
        uint64_t at = h.row_at + (uint64_t)(line < end ? line : first) * h.heads;
        l[half] = logsumexp[at] * RPEXEC_LOG2_E;
        sum[half] = sums[at];
    }
    fetch<ROWS, HEAD, BLOCK>(q + h.q_at, h.q_pitch, first, end, 0, HEAD, true, queries);
    fetch<ROWS, HEAD, BLOCK>(d_o + h.q_at, h.q_pitch, first, end, 0, HEAD, true, gradients);
    fetch<LINES, HEAD, BLOCK>(k + h.kv_at, h.kv_pitch, begin, end, 0, HEAD, true, stages);
    fetch<LINES, HEAD, BLOCK>(v + h.kv_at, h.kv_pitch, begin, end, 0, HEAD, true, stages + TILE);
    copies_commit();
    uint32_t stage = 0;
    for (uint32_t key = begin; key < end; key += LINES, stage ^= 1) {
        float p[LINES / 8][4] = {}, dp[LINES / 8][4] = {};
        T *now = stages + stage * 2 * TILE;
        T *next = stages + (stage ^ 1) * 2 * TILE;
        if (key + LINES < end) {
            fetch<LINES, HEAD, BLOCK>(k + h.kv_at, h.kv_pitch, key + LINES, end, 0, HEAD, true,
                                      next);
            fetch<LINES, HEAD, BLOCK>(v + h.kv_at, h.kv_pitch, key + LINES, end, 0, HEAD, true,
                                      next + TILE);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        multiply_lines<HEAD, LINES>(queries, row, now, p);
        multiply_lines<HEAD, LINES>(gradients, row, now + TILE, dp);
        slopes_of_queries<HEAD>(h, scale, first + row, key, l, sum, p, dp);
        multiply_weights<HEAD, LINES>(dp, now, to_queries);
        __syncthreads(); /* the next round fills this stage again */
    }
    store_lines<HEAD>(to_queries, one, first + row, end, h.q_pitch, dq + h.q_at);
}

template <int HEAD, typename T>
static cudaError_t run(const rpexec_cuda_target *target, const rpexec_attention_sizes *s,
                       const T *q, const T *k, const T *v, const float *logsumexp, const T *d_o,
                       const float *sums, T *dq, T *dk, T *dv)
{
    uint32_t blocks = (s->seq_len + ROWS - 1) / ROWS;
    size_t shared = passing<HEAD>::bytes;
    float scale = scale_of_head(s);
    cudaError_t error =
        launch(attention_keys<HEAD, T>, dim3(blocks, s->kv_heads, s->sequences), BLOCK, shared,
               target->stream, *s, scale, q, k, v, logsumexp, d_o, sums, dk, dv);
    if (error != cudaSuccess) {
        return error;
    }
    return launch(attention_queries<HEAD, T>, dim3(blocks, s->heads, s->sequences), BLOCK, shared,
                  target->stream, *s, scale, q, k, v, logsumexp, d_o, sums, dq);
}

template <int HEAD, typename T> static cudaError_t allow()
{
    cudaError_t error = allow_shared(attention_keys<HEAD, T>, passing<HEAD>::bytes);
    return error != cudaSuccess ? error
                                : allow_shared(attention_queries<HEAD, T>, passing<HEAD>::bytes);
}

extern "C" cudaError_t rpexec_cuda_attention_half_allow(const rpexec_cuda_target *target)
{
    return for_half_type(target, [&](auto zero) {
        using T = decltype(zero);
        cudaError_t error = allow<64, T>();
        return error != cudaSuccess ? error : allow<128, T>();
    });
}

extern "C" cudaError_t rpexec_cuda_attention_half_backward(const rpexec_cuda_target *target,
                                                           const rpexec_attention_sizes *sizes,
                                                           const void *q, const void *k,
                                                           const void *v, const float *logsumexp,
                                                           const void *d_o, const float *sums,
                                                           void *dq, void *dk, void *dv)
{
    return for_half_type(target, [&](auto zero) {
        using T = decltype(zero);
        uint32_t head = sizes->head_dim;
        if ((head != 64 && head != 128) || !aligned(16, q, k, v, d_o, dq, dk, dv)) {
            return cudaErrorInvalidValue;
        }
        return (head == 64 ? run<64, T> : run<128, T>)(target, sizes, static_cast<const T *>(q),
                                                       static_cast<const T *>(k),
                                                       static_cast<const T *>(v), logsumexp,
                                                       static_cast<const T *>(d_o), sums,
                                                       static_cast<T *>(dq), static_cast<T *>(dk),
                                                       static_cast<T *>(dv));
    });
}
