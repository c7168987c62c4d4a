/** @file device.cuh  Shared by the kernels: packs of values, sums over threads, grids. */
#pragma once

#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/mutants.h"

#include <machine.cuh>

/** log2(e): exponentials are powers of two. */
#define RPEXEC_LOG2_E 1.44269504088896341f

/** Values in 16 bytes. */
template <typename T> struct per_pack {
    static constexpr int count = 16 / (int)sizeof(T);
};

template <typename T, int N> struct alignas(N * sizeof(T)) pack {
    T x[N];
};

/** c tanh(x / c), or x without a cap (0). */
__device__ inline float capped(float x, float cap)
{
    return cap > 0.0f ? MUTATE(caps_that_cut, cap * tanhf(x / cap), fminf(x, cap)) : x;
}

/** The derivative of capped at a result y. */
__device__ inline float slope_of_cap(float y, float cap)
{
    return cap > 0.0f ? 1.0f - y / cap * (y / cap) : 1.0f;
}

/**
 * Reads N values as fp32; those beyond `left` are 0. With `whole` the address allows a single
 * access, which changes no order of sums.
 */
template <int N, typename T>
__device__ inline void load(const T *from, uint64_t left, bool whole, float to[N])
{
    if (whole && left >= N) {
        pack<T, N> values = *wide<const pack<T, N>>(from);
#pragma unroll
        for (int i = 0; i < N; i++) {
            to[i] = widen(values.x[i]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        to[i] = (uint64_t)i < left ? widen(from[i]) : 0.0f;
    }
}

template <int N, typename T>
__device__ inline void store(const float from[N], uint64_t left, bool whole, T *to)
{
    if (whole && left >= N) {
        pack<T, N> values;
#pragma unroll
        for (int i = 0; i < N; i++) {
            narrow(from[i], &values.x[i]);
        }
        store_pack(to, values);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        if ((uint64_t)i < left) {
            narrow(from[i], &to[i]);
        }
    }
}

/** The sum of a warp's values, the same bits in every lane. */
template <typename F> __device__ inline F warp_sum(F x)
{
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, mask);
    }
    return x;
}

__device__ inline float warp_most(float x)
{
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, mask));
    }
    return x;
}

/**
 * The sum over THREADS consecutive threads: a warp, or the whole block. `parts` is shared memory
 * for a value per warp, free again afterwards.
 */
template <int THREADS, typename F> __device__ inline F group_sum(F x, F *parts)
{
    x = warp_sum(x);
    if (THREADS > 32) {
        F sum = 0;
        if (threadIdx.x % 32 == 0) {
            parts[threadIdx.x / 32] = x;
        }
        __syncthreads();
        for (int i = 0; i < THREADS / 32; i++) {
            sum += parts[i];
        }
        __syncthreads();
        x = sum;
    }
    return x;
}

/** e^x / (1 + e^x). */
__device__ inline float sigmoid(float x)
{
    return reciprocal(1.0f + expf(MUTATE(sigmoid_other_sign, -x, x)));
}

/* ---- on the host ----------------------------------------------------------------------------- */

template <typename... P> static bool aligned(size_t bytes, const P *...pointers)
{
    return ((reinterpret_cast<uintptr_t>(pointers) | ... | 0) % bytes) == 0;
}

/** Blocks of a loop over `items`, `per_block` at a time; at most `resident` per multiprocessor. */
static inline uint32_t blocks_for(const rpexec_cuda_target *target, uint32_t resident,
                                  uint64_t items, uint64_t per_block)
{
    uint64_t most = (uint64_t)target->sm_count * resident;
    uint64_t needed = (items + per_block - 1) / per_block;
    return (uint32_t)(needed < most ? needed : most);
}

/** Runs a kernel that loops over `items`, `per_block` at a time, on as many blocks as fit the
 * multiprocessors at once. */
template <typename... P, typename... A>
cudaError_t launch_loop(const rpexec_cuda_target *target, void (*kernel)(P...),
                        unsigned int threads, uint64_t items, uint64_t per_block, A... arguments)
{
    uint32_t blocks = blocks_for(target, resident_blocks(kernel, threads, 0), items, per_block);
    return launch(kernel, blocks, threads, 0, target->stream, arguments...);
}

/** Calls f with a value of the storage type. */
template <typename F> cudaError_t for_type(const rpexec_cuda_target *target, F f)
{
    switch (target->dtype) {
    case RP_DTYPE_F32:
        return f(float());
    case RP_DTYPE_F16:
        return f(half16());
    case RP_DTYPE_BF16:
        return f(bfloat16());
    case RP_DTYPE_COUNT:
        break;
    }
    return cudaErrorInvalidValue;
}

/** The same for 16-bit storage only. */
template <typename F> cudaError_t for_half_type(const rpexec_cuda_target *target, F f)
{
    if (target->dtype == RP_DTYPE_F16) {
        return f(half16());
    }
    return target->dtype == RP_DTYPE_BF16 ? f(bfloat16()) : cudaErrorInvalidValue;
}
