/* Forward of causal grouped-query attention on tensor cores: a block has 64 queries of a head, and
 * each warp keeps 16 of them in registers while keys and values go by in blocks of 64 (online
 * softmax). Values arrive while scores are computed, the next keys while values are added up.
 * Weights are rounded to 16 bits for their product with the values, but not for their sum. */
#include "exec/cuda/kernels/attention_half.cuh"

enum { QUERIES = 64, KEYS = 64, BLOCK = 128 };

/* A lane's two rows: lane / 4, and eight below. */
struct softmax_rows {
    float most[2]; /* largest score, not scaled */
    float sum[2];  /* of this lane's columns */
};

/* The scores of a block of keys become weights; `out` shrinks to the new maximum. */
template <int HEAD>
__device__ inline void join_block(float scores[KEYS / 8][4], float scale_log2, softmax_rows *rows,
                                  float out[HEAD / 8][4])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float now = rows->most[half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            now = fmaxf(now, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
        }
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
        float base = now == -INFINITY ? 0.0f : now * scale_log2; /* no key seen yet */
        float shrink = power_of_two(rows->most[half] * scale_log2 - base);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int i = half * 2; i < half * 2 + 2; i++) {
                scores[n][i] = power_of_two(scores[n][i] * scale_log2 - base);
                sum += scores[n][i];
            }
        }
        rows->sum[half] = rows->sum[half] * MUTATE(sum_does_not_shrink, shrink, 1) + sum;
        rows->most[half] = now;
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            out[n][half * 2] *= shrink;
            out[n][half * 2 + 1] *= shrink;
        }
    }
}

template <typename T>
__device__ inline void mask(const head_view<T> &h, uint32_t query, uint32_t key,
                            float scores[KEYS / 8][4])
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (!sees(h, query + lane / 4 + i / 2 * 8, key + n * 8 + lane % 4 * 2 + i % 2)) {
                scores[n][i] = -INFINITY;
            }
        }
    }
}

template <int HEAD, typename T>
__global__ void __launch_bounds__(BLOCK)
    attention_forward(rpexec_attention_sizes s, float scale, const T *q, const T *k, const T *v,
                      T *o, float *logsumexp)
{
    T *keys = reinterpret_cast<T *>(dynamic_shared());
    T *values = keys + KEYS * tile_pitch<HEAD>::values;
    head_view<T> h = view_of<T>(s, blockIdx.z, blockIdx.y);
    uint32_t lane = threadIdx.x % 32;
    uint32_t first = (gridDim.x - 1 - blockIdx.x) * QUERIES; /* long rows begin first */
    uint32_t query = first + threadIdx.x / 32 * 16;          /* of the warp */
    uint32_t end = first + QUERIES < s.seq_len ? first + QUERIES : s.seq_len;
    uint32_t queries[HEAD / 16][4];
    float out[HEAD / 8][4] = {};
    softmax_rows rows = {{-INFINITY, -INFINITY}, {0, 0}};
    fetch<QUERIES, HEAD, BLOCK>(q + h.q_at, h.q_pitch, first, end, 0, HEAD, true, keys);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    keep_lines<HEAD>(keys, threadIdx.x / 32 * 16, queries);
    __syncthreads();
    uint32_t key = first_key(h, first, KEYS);
    fetch<KEYS, HEAD, BLOCK>(k + h.kv_at, h.kv_pitch, key, end, 0, HEAD, true, keys);
    copies_commit();
    for (; key < end; key += KEYS) {
        float scores[KEYS / 8][4] = {};
        copies_wait<0>();
        /* the keys have arrived, and all warps have read the values before */
        MUTATE(values_overwritten, __syncthreads(), );
        fetch<KEYS, HEAD, BLOCK>(v + h.kv_at, h.kv_pitch, key, end, 0, HEAD, true, values);
        copies_commit();
        multiply_lines<HEAD, KEYS>(queries, keys, scores);
        copies_wait<0>();
        __syncthreads(); /* the values have arrived, and all have read the keys */
        if (key + KEYS < end) {
            fetch<KEYS, HEAD, BLOCK>(k + h.kv_at, h.kv_pitch, key + KEYS, end, 0, HEAD, true, keys);
        }
        copies_commit();
        if (!sees_all(h, query, 16, key, KEYS)) {
            mask(h, query, key, scores);
        }
        join_block<HEAD>(scores, scale * RPEXEC_LOG2_E, &rows, out);
        multiply_weights<HEAD, KEYS>(scores, values, out);
    }
    float inverse[2];
    for (int half = 0; half < 2; half++) {
        float sum = rows.sum[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        inverse[half] = 1.0f / sum;
        uint32_t line = query + lane / 4 + half * 8;
        if (line < end && lane % 4 == 0) {
            logsumexp[h.row_at + (uint64_t)line * MUTATE(tokens_of_one_head, h.heads, 1)] =
                rows.most[half] * MUTATE(logsumexp_without_scale, scale, 1) + logf(sum);
        }
    }
    store_lines<HEAD>(out, inverse, query, end, h.q_pitch, o + h.q_at);
}

extern "C" cudaError_t rpexec_cuda_attention_half(const rpexec_cuda_target *target,
                                                  const rpexec_attention_sizes *sizes,
                                                  const void *q, const void *k, const void *v,
                                                  void *o, float *logsumexp)
{
    return for_half_type(target, [&](auto zero) {
        using T = decltype(zero);
        uint32_t head = sizes->head_dim;
        dim3 grid((sizes->seq_len + QUERIES - 1) / QUERIES, sizes->heads, sizes->sequences);
        if (!are_computed(sizes) || !aligned(16, q, k, v, MUTATE(o_unaligned, o, q))) {
            return cudaErrorInvalidValue;
        }
        return launch(head == 64 ? attention_forward<64, T> : attention_forward<128, T>, grid,
                      BLOCK, (size_t)2 * KEYS * (head + 8) * sizeof(T), target->stream, *sizes,
                      rpexec_attention_scale(sizes), static_cast<const T *>(q),
                      static_cast<const T *>(k), static_cast<const T *>(v), static_cast<T *>(o),
                      logsumexp);
    });
}
