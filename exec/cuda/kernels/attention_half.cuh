/** @file attention_half.cuh  Shared by the tensor-core kernels of attention. */
#pragma once

#include "exec/cuda/kernels/tensor_core.cuh"

/** A head of a sequence, as a block sees it. */
template <typename T> struct head_view {
    uint32_t seq_len;
    uint32_t window;
    uint64_t q_pitch;  /* values between the queries of successive tokens */
    uint64_t kv_pitch; /* of keys and values */
    uint64_t q_at;     /* first token in q, o and their gradients */
    uint64_t kv_at;
    uint64_t row_at;     /* in the forward's logsumexp: tokens are `heads` apart */
    uint64_t by_head_at; /* in floats [heads][tokens] */
    uint32_t heads;
};

template <typename T>
__device__ inline head_view<T> view_of(const rpexec_attention_sizes &s, uint32_t sequence,
                                       uint32_t head)
{
    head_view<T> h;
    uint64_t token = (uint64_t)sequence * s.seq_len;
    h.seq_len = s.seq_len;
    h.window = s.window;
    h.q_pitch = (uint64_t)s.heads * s.head_dim;
    h.kv_pitch = (uint64_t)s.kv_heads * s.head_dim;
    h.q_at = token * h.q_pitch + (uint64_t)head * s.head_dim;
    h.kv_at = token * h.kv_pitch + (uint64_t)(head / (s.heads / s.kv_heads)) * s.head_dim;
    h.row_at = token * s.heads + MUTATE(logsumexp_of_first_head, head, 0);
    h.by_head_at =
        (uint64_t)head * MUTATE(heads_without_sequences, s.sequences, 1) * s.seq_len + token;
    h.heads = s.heads;
    return h;
}

/** True if a query of the sequence sees a key. */
template <typename T>
__device__ inline bool sees(const head_view<T> &h, uint32_t query, uint32_t key)
{
    return query < h.seq_len && key <= query && (h.window == 0 || query - key < h.window);
}

/** True if all queries of [query, query + queries) see all keys of [key, key + keys). */
template <typename T>
__device__ inline bool sees_all(const head_view<T> &h, uint32_t query, uint32_t queries,
                                uint32_t key, uint32_t keys)
{
    return query + queries <= h.seq_len && key + keys <= query + 1 &&
           (h.window == 0 || query + queries - MUTATE(last_key_of_window, 1, 2) - key < h.window);
}

/** The first key that a query sees, rounded down to whole blocks. */
template <typename T>
__device__ inline uint32_t first_key(const head_view<T> &h, uint32_t query, uint32_t block)
{
    return h.window == 0 || query < h.window
               ? 0
               : (query + MUTATE(first_key_of_window, 1, 2) - h.window) / block * block;
}

/** A warp's 16 lines from `row` on, as operands of products along the lines. */
template <int HEAD, typename T>
__device__ inline void keep_lines(const T *tile, uint32_t row, uint32_t lines[HEAD / 16][4])
{
#pragma unroll
    for (int i = 0; i < HEAD / 16; i++) {
        load_a<HEAD>(lines[i], tile, row, i * 16);
    }
}

/** sum[16 x COLUMNS] of a warp += its 16 lines times all lines of b, along HEAD. */
template <int HEAD, int COLUMNS, typename T>
__device__ inline void multiply_lines(const uint32_t lines[HEAD / 16][4], const T *b,
                                      float sum[COLUMNS / 8][4])
{
#pragma unroll
    for (int i = 0; i < HEAD / 16; i++) {
        uint32_t right[4];
#pragma unroll
        for (int n = 0; n < COLUMNS; n += 16) {
            load_b<HEAD>(right, b, n, i * 16);
            multiply(T(), sum[n / 8], lines[i], right);
            multiply(T(), sum[n / 8 + 1], lines[i], right + 2);
        }
    }
}

/** sum[16 x HEAD] of a warp += weights[16 x ROWS], rounded to 16 bits, times the lines of b. */
template <int HEAD, int ROWS, typename T>
__device__ inline void multiply_weights(const float weights[ROWS / 8][4], const T *b,
                                        float sum[HEAD / 8][4])
{
#pragma unroll
    for (int k = 0; k < ROWS; k += 16) {
        uint32_t left[4], right[4];
        as_a(T(), weights[k / 8], weights[k / 8 + 1], left);
#pragma unroll
        for (int n = 0; n < HEAD; n += 16) {
            load_b_across<HEAD>(right, b, n, k);
            multiply(T(), sum[n / 8], left, right);
            multiply(T(), sum[n / 8 + 1], left, right + 2);
        }
    }
}

/** Stores 16 x HEAD, times each half's factor, as rows [row, end) of a tensor. */
template <int HEAD, typename T>
__device__ inline void store_lines(const float sum[HEAD / 8][4], const float factor[2],
                                   uint32_t row, uint32_t end, uint64_t pitch, T *to)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t line = row + lane / 4 + half * 8;
        if (line >= end) {
            continue;
        }
        uint32_t *words = wide<uint32_t>(to + line * pitch + lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            words[n * 4] =
                pair(T(), sum[n][half * 2] * factor[half], sum[n][half * 2 + 1] * factor[half]);
        }
    }
}

/** True if these kernels take the sizes; a cap would need too many registers. */
static inline bool are_computed(const rpexec_attention_sizes *s)
{
    return (s->head_dim == 64 || s->head_dim == 128) && s->cap == 0;
}
