/* Backward of causal grouped-query attention on tensor cores. Two kernels add up in registers in a
 * fixed order, without atomics: attention_keys has a block of keys and goes over the queries that
 * see them (dk, dv), attention_queries has a block of queries and goes over their keys (dq). Both
 * compute the scores: 7 products instead of 5. Products take weights rounded to 16 bits. Warps keep
 * their 16 rows of the block in registers. Shared memory has only the tiles that go by, so that two
 * blocks fit into the 100 KiB of some multiprocessors. */
#include "exec/cuda/kernels/attention_half.cuh"

enum { ROWS = 64, BLOCK = 128, LINES = 32 /* of a tile that goes by */ };

/** Shared memory: two stages of two tiles that go by (before the loop the two that stay), then the
 * stages' logsumexp and sums. */
template <int HEAD> struct passing {
    static constexpr int tile = LINES * tile_pitch<HEAD>::values;
    static constexpr size_t bytes = (size_t)4 * tile * 2 + 4 * LINES * sizeof(float);
};
static_assert(2 * ROWS == 4 * LINES, "the tiles that stay fit where those go by");

/** [heads][tokens]: logsumexp times log2(e), and sums of d_o o. */
struct by_head {
    const float *logsumexp;
    const float *sums;
};

/* Reads fragments of 64 lines of a and b by way of `tiles`, which are free again afterwards. */
template <int HEAD, typename T>
__device__ inline void keep_tiles(const T *a, const T *b, uint64_t pitch, uint32_t line,
                                  uint32_t end, T *tiles, uint32_t kept_a[HEAD / 16][4],
                                  uint32_t kept_b[HEAD / 16][4])
{
    uint32_t row = threadIdx.x / 32 * 16;
    fetch<ROWS, HEAD, BLOCK>(a, pitch, line, end, 0, HEAD, true, tiles);
    fetch<ROWS, HEAD, BLOCK>(b, pitch, line, end, 0, HEAD, true, tiles + 2 * passing<HEAD>::tile);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    keep_lines<HEAD>(tiles, row, kept_a);
    keep_lines<HEAD>(tiles + 2 * passing<HEAD>::tile, row, kept_b);
    MUTATE(kept_tiles_overwritten, __syncthreads(), );
}

/* Begins to copy a block of queries, their gradients, and their floats. */
template <int HEAD, typename T>
__device__ inline void fetch_queries(const head_view<T> &h, uint32_t query, const T *q,
                                     const T *d_o, by_head rows, T *tiles, float *floats)
{
    fetch<LINES, HEAD, BLOCK>(q + h.q_at, h.q_pitch, query, h.seq_len, 0, HEAD, true, tiles);
    fetch<LINES, HEAD, BLOCK>(d_o + h.q_at, h.q_pitch, query, h.seq_len, 0, HEAD, true,
                              tiles + passing<HEAD>::tile);
    if (threadIdx.x < 2 * LINES) {
        uint32_t line = query + threadIdx.x % LINES;
        bool valid = line < h.seq_len;
        const float *from = threadIdx.x < LINES ? rows.logsumexp : rows.sums;
        copy_float_async(floats + threadIdx.x, from + h.by_head_at + (valid ? line : 0), valid);
    }
}

/* Rows are keys, columns queries: p becomes weights, dp becomes ds. */
template <typename T>
__device__ inline void weights_of_keys(const head_view<T> &h, float scale, uint32_t key,
                                       uint32_t query, const float *floats, float p[LINES / 8][4],
                                       float dp[LINES / 8][4])
{
    uint32_t lane = threadIdx.x % 32;
    if (!sees_all(h, query, MUTATE(mask_of_half_the_queries, LINES, LINES / 2), key, 16)) {
#pragma unroll
        for (int n = 0; n < LINES / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool seen =
                    sees(h, query + n * 8 + lane % 4 * 2 + i % 2, key + lane / 4 + i / 2 * 8);
                p[n][i] = seen ? p[n][i] : -INFINITY;
            }
        }
    }
#pragma unroll
    for (int n = 0; n < LINES / 8; n++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t column = n * 8 + lane % 4 * 2 + i;
            float l = floats[column];
            float sum = floats[LINES + column];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float score = p[n][half * 2 + i] * (scale * RPEXEC_LOG2_E);
                float weight = power_of_two(score - l);
                p[n][half * 2 + i] = weight;
                dp[n][half * 2 + i] =
                    weight * (dp[n][half * 2 + i] - sum) * MUTATE(dk_without_scale, scale, 1);
            }
        }
    }
}

/* dv and dk of 64 keys of a kv head. */
template <int HEAD, typename T>
__global__ void __launch_bounds__(BLOCK)
    attention_keys(rpexec_attention_sizes s, float scale, const T *q, const T *k, const T *v,
                   const T *d_o, by_head rows, T *dk, T *dv)
{
    constexpr int TILE = passing<HEAD>::tile;
    T *stages = reinterpret_cast<T *>(dynamic_shared());
    float *floats = wide<float>(stages + 4 * TILE);
    uint32_t key = blockIdx.x * ROWS;
    uint32_t key_end = key + ROWS < s.seq_len ? key + ROWS : s.seq_len;
    uint32_t row = key + threadIdx.x / 32 * 16; /* of the warp */
    uint32_t end = s.window == 0 || s.seq_len - key_end < s.window
                       ? s.seq_len
                       : key_end + s.window - MUTATE(last_query_of_window, 1, 2);
    uint32_t group = s.heads / s.kv_heads;
    uint32_t head = blockIdx.y * group;
    uint32_t query = key;
    uint32_t keys[HEAD / 16][4], values[HEAD / 16][4];
    float to_keys[HEAD / 8][4] = {}, to_values[HEAD / 8][4] = {};
    const float one[2] = {1.0f, 1.0f};
    head_view<T> h = view_of<T>(s, blockIdx.z, head);
    keep_tiles<HEAD>(k + h.kv_at, v + h.kv_at, h.kv_pitch, key, key_end, stages, keys, values);
    fetch_queries<HEAD>(h, query, q, d_o, rows, stages, floats);
    copies_commit();
    /* Over the group's heads, and the blocks of each. */
    for (uint32_t stage = 0; head < (blockIdx.y + 1) * group; stage ^= 1) {
        T *queries = stages + stage * 2 * TILE;
        T *gradients = queries + TILE;
        bool last = query + LINES >= end;
        uint32_t later = last ? key : query + LINES;
        float p[LINES / 8][4] = {}, dp[LINES / 8][4] = {};
        head += last;
        if (head < (blockIdx.y + 1) * group) {
            fetch_queries<HEAD>(
                view_of<T>(s, blockIdx.z, MUTATE(first_head_of_group, head, blockIdx.y * group)),
                later, q, d_o, rows, stages + (stage ^ 1) * 2 * TILE,
                floats + MUTATE(floats_of_stage_before, (stage ^ 1), stage) * 2 * LINES);
        }
        copies_commit();
        copies_wait<MUTATE(waits_too_late, 1, 2)>();
        __syncthreads();
        multiply_lines<HEAD, LINES>(keys, queries, p);
        multiply_lines<HEAD, LINES>(values, gradients, dp);
        weights_of_keys(h, scale, row, query, floats + stage * 2 * LINES, p, dp);
        multiply_weights<HEAD, LINES>(p, gradients, to_values);
        multiply_weights<HEAD, LINES>(dp, queries, to_keys);
        query = later;
        /* the next round fills this stage again */
        MUTATE(key_stages_overwritten, __syncthreads(), );
    }
    store_lines<HEAD>(to_keys, one, row, MUTATE(keys_beyond_sequence, key_end, key_end + 1),
                      h.kv_pitch, dk + h.kv_at);
    store_lines<HEAD>(to_values, one, row, key_end, h.kv_pitch, dv + h.kv_at);
}

/* Rows are queries, columns keys: dp becomes ds. */
template <typename T>
__device__ inline void slopes_of_queries(const head_view<T> &h, float scale, uint32_t query,
                                         uint32_t key, const float l[2], const float sum[2],
                                         const float p[LINES / 8][4], float dp[LINES / 8][4])
{
    uint32_t lane = threadIdx.x % 32;
    bool all = sees_all(h, query, 16, key, MUTATE(mask_of_half_the_keys, LINES, LINES / 2));
#pragma unroll
    for (int n = 0; n < LINES / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool seen =
                all || sees(h, query + lane / 4 + i / 2 * 8, key + n * 8 + lane % 4 * 2 + i % 2);
            float score = p[n][i] * (scale * RPEXEC_LOG2_E);
            float weight = seen ? power_of_two(score - l[i / 2]) : 0.0f;
            dp[n][i] = weight * (dp[n][i] - sum[MUTATE(sums_of_other_half, i / 2, 0)]) *
                       MUTATE(dq_without_scale, scale, 1);
        }
    }
}

template <int HEAD, typename T>
__global__ void __launch_bounds__(BLOCK)
    attention_queries(rpexec_attention_sizes s, float scale, const T *q, const T *k, const T *v,
                      const T *d_o, by_head rows, T *dq)
{
    constexpr int TILE = passing<HEAD>::tile;
    T *stages = reinterpret_cast<T *>(dynamic_shared());
    head_view<T> h = view_of<T>(s, blockIdx.z, blockIdx.y);
    uint32_t lane = threadIdx.x % 32;
    uint32_t first = (gridDim.x - 1 - blockIdx.x) * ROWS;
    uint32_t end = first + ROWS < s.seq_len ? first + ROWS : s.seq_len;
    uint32_t row = first + threadIdx.x / 32 * 16; /* of the warp */
    uint32_t begin = first_key(h, first, LINES);
    uint32_t queries[HEAD / 16][4], gradients[HEAD / 16][4];
    float to_queries[HEAD / 8][4] = {};
    float l[2], sum[2];
    const float one[2] = {1.0f, 1.0f};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t line = row + lane / 4 + half * 8;
        uint64_t at = h.by_head_at + (line < end ? line : first);
        l[half] = rows.logsumexp[at];
        sum[half] = rows.sums[at];
    }
    keep_tiles<HEAD>(q + h.q_at, d_o + h.q_at, h.q_pitch, first, end, stages, queries, gradients);
    fetch<LINES, HEAD, BLOCK>(k + h.kv_at, h.kv_pitch, begin, end, 0, HEAD, true, stages);
    fetch<LINES, HEAD, BLOCK>(v + h.kv_at, h.kv_pitch, begin, end, 0, HEAD, true, stages + TILE);
    copies_commit();
    uint32_t stage = 0;
    for (uint32_t key = begin; key < end; key += LINES, stage ^= 1) {
        float p[LINES / 8][4] = {}, dp[LINES / 8][4] = {};
        T *now = stages + stage * 2 * TILE;
        T *next = stages + (stage ^ 1) * 2 * TILE;
        if (key + LINES < end) {
            fetch<LINES, HEAD, BLOCK>(k + h.kv_at, h.kv_pitch, key + LINES,
                                      MUTATE(last_block_without_last_key, end, end - 1), 0, HEAD,
                                      true, next);
            fetch<LINES, HEAD, BLOCK>(v + h.kv_at, h.kv_pitch, key + LINES, end, 0, HEAD, true,
                                      next + TILE);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        multiply_lines<HEAD, LINES>(queries, now, p);
        multiply_lines<HEAD, LINES>(gradients, now + TILE, dp);
        slopes_of_queries(h, scale, row, key, l, sum, p, dp);
        multiply_weights<HEAD, LINES>(dp, now, to_queries);
        /* the next round fills this stage again */
        MUTATE(query_stages_overwritten, __syncthreads(), );
    }
    store_lines<HEAD>(to_queries, one, row, end, h.q_pitch, dq + h.q_at);
}

template <int HEAD, typename T>
static cudaError_t run(const rpexec_cuda_target *target, const rpexec_attention_sizes *s,
                       const T *q, const T *k, const T *v, const T *d_o, by_head rows, T *dq, T *dk,
                       T *dv)
{
    uint32_t blocks = (s->seq_len + ROWS - 1) / ROWS;
    size_t shared = passing<HEAD>::bytes;
    float scale = rpexec_attention_scale(s);
    cudaError_t error =
        launch(attention_keys<HEAD, T>, dim3(blocks, s->kv_heads, s->sequences), BLOCK, shared,
               target->stream, *s, scale, q, k, v, d_o, rows, dk, dv);
    if (error != cudaSuccess) {
        return error;
    }
    return launch(attention_queries<HEAD, T>, dim3(blocks, s->heads, s->sequences), BLOCK, shared,
                  target->stream, *s, scale, q, k, v, d_o, rows, dq);
}

extern "C" cudaError_t rpexec_cuda_attention_half_backward(const rpexec_cuda_target *target,
                                                           const rpexec_attention_sizes *sizes,
                                                           const void *q, const void *k,
                                                           const void *v, const void *d_o,
                                                           const float *by_head_floats, void *dq,
                                                           void *dk, void *dv)
{
    return for_half_type(target, [&](auto zero) {
        using T = decltype(zero);
        uint32_t head = sizes->head_dim;
        uint64_t rows = (uint64_t)sizes->sequences * sizes->seq_len * sizes->heads;
        if (!are_computed(sizes) ||
            !aligned(16, q, k, v, d_o, dq, dk, MUTATE(dv_unaligned, dv, dk))) {
            return cudaErrorInvalidValue;
        }
        return (head == 64 ? run<64, T>
                           : run<128, T>)(target, sizes, static_cast<const T *>(q),
                                          static_cast<const T *>(k), static_cast<const T *>(v),
                                          static_cast<const T *>(d_o),
                                          by_head{by_head_floats, by_head_floats + rows},
                                          static_cast<T *>(dq), static_cast<T *>(dk),
                                          static_cast<T *>(dv));
    });
}
