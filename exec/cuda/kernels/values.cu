/* Operators on single values or pairs: bound by memory, so accesses have 16 bytes if addresses
 * allow it. */
#include "exec/cuda/kernels/device.cuh"

enum { BLOCK = 256, SUM_WARPS = 32 };

/* f(values of a, b and c, results) for `count` values in packs; a tensor may be NULL. */
template <typename T, int RESULTS, typename F>
__device__ inline void for_packs(uint64_t count, bool whole, const T *a, const T *b, const T *c,
                                 T *first, T *second, F f)
{
    constexpr int N = per_pack<T>::count;
    for (uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * N; i < count;
         i += (uint64_t)gridDim.x * BLOCK * N) {
        float in[3][N] = {};
        float out[2][N];
        load<N>(a + i, count - i, whole, in[0]);
        if (b != nullptr) {
            load<N>(b + i, count - i, whole, in[1]);
        }
        if (c != nullptr) {
            load<N>(c + i, count - i, whole, in[2]);
        }
        for (int j = 0; j < N; j++) {
            f(in[0][j], in[1][j], in[2][j], &out[0][j], &out[1][j]);
        }
        store<N>(out[0], count - i, whole, first + i);
        if (RESULTS == 2) {
            store<N>(out[1], count - i, whole, second + i);
        }
    }
}

template <typename T>
__global__ void swiglu(uint64_t count, const T *gate, const T *up, T *s, bool whole)
{
    for_packs<T, 1>(count, whole, gate, up, nullptr, s, nullptr,
                    [](float g, float u, float, float *y, float *) {
                        *y = g * sigmoid(g) * MUTATE(swiglu_without_up, u, 1);
                    });
}

/* A pack is read before it is written: dgate or dup may be ds. */
template <typename T>
__global__ void swiglu_backward(uint64_t count, const T *gate, const T *up, const T *ds, T *dgate,
                                T *dup, bool whole)
{
    for_packs<T, 2>(count, whole, gate, up, ds, dgate, dup,
                    [](float g, float u, float d, float *to_gate, float *to_up) {
                        float sigma = sigmoid(g);
                        *to_gate =
                            d * u *
                            (sigma * (1.0f + g * MUTATE(slope_of_sigmoid, (1.0f - sigma), sigma)));
                        *to_up = d * g * sigma;
                    });
}

/* GELU's approximation as g sigmoid(z), like the host: (1 + tanh x) / 2 is sigmoid(2 x). The form
 * with tanh loses digits for g far below zero. */
#define GELU_SLOPE (2 * 0.797884560802865356f) /* 2 sqrt(2 / pi) */
#define GELU_CUBE 0.044715f

__device__ inline float gelu_argument(float g)
{
    return GELU_SLOPE * (g + GELU_CUBE * g * g * g);
}

template <typename T>
__global__ void geglu(uint64_t count, const T *gate, const T *up, T *s, bool whole)
{
    for_packs<T, 1>(
        count, whole, gate, up, nullptr, s, nullptr,
        [](float g, float u, float, float *y, float *) {
            *y = g * sigmoid(MUTATE(geglu_without_cube, gelu_argument(g), GELU_SLOPE * g)) * u;
        });
}

template <typename T>
__global__ void geglu_backward(uint64_t count, const T *gate, const T *up, const T *ds, T *dgate,
                               T *dup, bool whole)
{
    for_packs<T, 2>(count, whole, gate, up, ds, dgate, dup,
                    [](float g, float u, float d, float *to_gate, float *to_up) {
                        float z = gelu_argument(g);
                        float sigma = sigmoid(z);
                        float slope = GELU_SLOPE *
                                      (1.0f + MUTATE(slope_of_cube, 3.0f, 1) * GELU_CUBE * g * g);
                        /* not 1 - sigma, whose rounding g slope would enlarge */
                        *to_gate = d * u * (sigma * (1.0f + g * sigmoid(-z) * slope));
                        *to_up = d * g * sigma;
                    });
}

template <typename T> __global__ void add(uint64_t count, const T *a, const T *b, T *y, bool whole)
{
    for_packs<T, 1>(count, whole, a, b, nullptr, y, nullptr,
                    [](float x, float z, float, float *sum, float *) { *sum = x + z; });
}

template <typename T>
__global__ void add_bias(uint64_t count, uint32_t width, const T *bias, const T *base, T *y,
                         bool whole)
{
    constexpr int N = per_pack<T>::count;
    for (uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * N; i < count;
         i += (uint64_t)gridDim.x * BLOCK * N) {
        float from[N] = {}, sum[N] = {};
        uint32_t column = (uint32_t)(i % width);
        if (base != nullptr) {
            load<N>(base + i, count - i, whole, sum);
        }
        if (whole) { /* rows are whole packs */
            load<N>(bias + MUTATE(first_bias_for_all, column, 0), N, true, from);
        }
        for (int j = 0; j < N; j++) {
            if (!whole && i + j < count) {
                from[j] = widen(bias[column]);
                column = column + 1 < width ? column + 1 : MUTATE(bias_beyond_row, 0, column + 1);
            }
            sum[j] += from[j];
        }
        store<N>(sum, count - i, whole, y + i);
    }
}

template <typename T>
__global__ void add_sums(uint64_t count, const float *sums, T *gradients, bool whole)
{
    constexpr int N = per_pack<T>::count;
    for (uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * N; i < count;
         i += (uint64_t)gridDim.x * BLOCK * N) {
        float from[N], to[N];
        load<N>(sums + i, count - i, whole, from);
        load<N>(gradients + i, count - i, whole, to);
        for (int j = 0; j < N; j++) {
            MUTATE(gradients_replaced,
                   to[j] += MUTATE(sums_rounded, from[j], MUTATE_ROUNDED(T, from[j])),
                   to[j] = from[j]);
        }
        store<N>(to, MUTATE(tail_of_sums_as_pack, count - i, N), whole, gradients + i);
    }
}

template <typename T> __global__ void scale(uint64_t count, float factor, T *x, bool whole)
{
    for_packs<T, 1>(count, whole, x, nullptr, nullptr, x, nullptr,
                    [=](float in, float, float, float *out, float *) { *out = in * factor; });
}

/* N pairs (i, i + turned / 2) of a head per thread. I counts groups of pairs: in 32 bits if they
 * suffice, which the GPU divides several times as fast. */
template <typename T, int N, typename I>
__global__ void rotate(I groups, uint32_t seq_len, uint32_t heads, uint32_t head_dim,
                       uint32_t turned, const float *cosines, const float *sines, float sign, T *x)
{
    uint32_t half = MUTATE(partners_half_a_head_away, turned, head_dim) / 2;
    uint32_t per_head = half / N;
    for (uint64_t at = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; at < groups;
         at += (uint64_t)gridDim.x * BLOCK) {
        I head = (I)at / per_head;
        uint32_t i = (uint32_t)((I)at % per_head) * MUTATE(packs_as_pairs, N, 1);
        uint64_t angle =
            (uint64_t)(head / heads % MUTATE(angles_beyond_sequence, seq_len, UINT32_MAX)) * half +
            i;
        T *first = x + (uint64_t)head * head_dim + i;
        float a[N], b[N], turned_a[N], turned_b[N];
        load<N>(first, N, true, a);
        load<N>(first + half, N, true, b);
        for (int j = 0; j < N; j++) {
            float c = cosines[angle + j];
            float s = MUTATE(inverse_turns_forward, sign, 1) * sines[angle + j];
            turned_a[j] = a[j] * c - b[j] * s;
            turned_b[j] = b[j] * c + a[j] * s;
        }
        store<N>(turned_a, N, true, first);
        store<N>(turned_b, N, true, first + half);
    }
}

/* exec/operators/adam.c, four values per thread; gradients are divided by the loss's scale, a power
 * of two. */
template <typename T>
__global__ void adam(uint64_t count, rpexec_adam_factors f, float inverse_scale, const T *gradients,
                     float *p, float *m, float *v, T *weights, bool whole)
{
    constexpr int N = 4;
    for (uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * N; i < count;
         i += (uint64_t)gridDim.x * BLOCK * N) {
        float g[N], value[N], first[N], second[N];
        load<N>(gradients + i, count - i, whole, g);
        load<N>(p + i, count - i, whole, value);
        load<N>(m + i, count - i, whole, first);
        load<N>(v + i, count - i, whole, second);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float slope = g[j] * inverse_scale * f.clip + f.decay * value[j];
            first[j] = f.beta1 * first[j] + f.one_minus_beta1 * slope;
            second[j] = f.beta2 * second[j] + f.one_minus_beta2 * (slope * slope);
            value[j] -=
                value[j] * f.shrink + f.rate * first[j] / (sqrtf(second[j]) * f.unbias + f.eps);
        }
        store<N>(first, count - i, whole, m + i);
        store<N>(second, count - i, whole, v + i);
        store<N>(value, count - i, whole, p + i);
        if (weights != nullptr) {
            store<N>(value, count - i, whole, weights + i);
        }
    }
}

/* Sum of a block's squares, in the order of exec/operators/squares.c. */
template <typename T>
__device__ inline double block_squares(uint64_t count, uint64_t first, const T *x, bool whole)
{
    constexpr int N = per_pack<T>::count < 4 ? per_pack<T>::count : 4;
    float values[RPEXEC_SQUARES_BLOCK];
    double sums[8];
    for (uint32_t i = 0; i < RPEXEC_SQUARES_BLOCK; i += N) {
        load<N>(x + first + i, first + i < count ? count - first - i : 0, whole, values + i);
    }
    for (int i = 0; i < 8; i++) {
        double a = values[i];
        double b = values[i + 8];
        sums[i] = a * a + b * b;
    }
    for (int i = 0; i < 4; i++) {
        sums[i] += sums[i + 4];
    }
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

/* A sum's part in a limb; the place after the limbs counts sums that are not finite. */
__device__ inline uint64_t limb_of(double sum, uint32_t limb)
{
    uint64_t bits = (uint64_t)__double_as_longlong(sum);
    uint64_t exponent = bits >> 52;
    if (exponent == 0 || exponent >= 0x7ff) {
        return limb == RPEXEC_SQUARES_LIMBS && exponent != 0 ? 1 : 0;
    }
    uint64_t mantissa = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
    uint32_t place = (uint32_t)exponent - 1075 + RPEXEC_SQUARES_EXPONENT;
    uint32_t shift = place % 32;
    uint32_t part = limb - place / 32;
    uint64_t low = mantissa << shift;
    return part == 0   ? low & 0xffffffffu
           : part == 1 ? low >> 32
           : part == 2 ? mantissa >> 1 >> (63 - shift)
                       : 0;
}

/* A warp takes 32 blocks of values at a time; lane i has limb i of their sums. */
template <typename T>
__global__ void squares(uint64_t count, const T *x, uint64_t *parts, bool whole)
{
    __shared__ uint64_t limbs[BLOCK / 32][32];
    uint32_t lane = threadIdx.x % 32;
    uint32_t warp = threadIdx.x / 32;
    uint64_t all = (count + RPEXEC_SQUARES_BLOCK - 1) / RPEXEC_SQUARES_BLOCK;
    uint64_t mine = 0;
    for (uint64_t at = ((uint64_t)blockIdx.x * (BLOCK / 32) + warp) * 32; at < all;
         at += (uint64_t)gridDim.x * BLOCK) {
        double sum = block_squares(count, (at + lane) * RPEXEC_SQUARES_BLOCK, x, whole);
        for (int i = 0; i < 32; i++) {
            mine += limb_of(__shfl_sync(0xffffffffu, sum, i), lane);
        }
    }
    limbs[warp][lane] = mine;
    __syncthreads();
    if (warp == 0) {
        for (int i = 1; i < BLOCK / 32; i++) {
            mine += limbs[i][lane];
        }
        parts[(uint64_t)blockIdx.x * 32 + lane] = mine;
    }
}

/* A single block: each warp adds up every SUM_WARPS-th part. The sum replaces the first part. */
__global__ void __launch_bounds__(SUM_WARPS * 32) add_parts(uint32_t count, uint64_t *parts)
{
    __shared__ uint64_t sums[SUM_WARPS][32];
    uint32_t warp = threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    uint64_t sum = 0;
#pragma unroll 8
    for (uint32_t i = warp; i < count; i += SUM_WARPS) {
        sum += parts[(uint64_t)i * 32 + lane];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0) {
        for (int i = 1; i < SUM_WARPS; i++) {
            sum += sums[i][lane];
        }
        parts[lane] = sum;
    }
}

extern "C" cudaError_t rpexec_cuda_rotate(const rpexec_cuda_target *target, uint32_t sequences,
                                          uint32_t seq_len, uint32_t heads, uint32_t head_dim,
                                          uint32_t turned, const float *cosines, const float *sines,
                                          bool inverse, void *x)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = per_pack<T>::count;
        bool whole = aligned(16, x) && turned / 2 % N == 0 && head_dim % N == 0;
        uint64_t groups =
            (uint64_t)sequences * seq_len * heads * (turned / 2) / (whole ? (uint64_t)N : 1);
        float sign = inverse ? -1.0f : 1.0f;
        if (groups > UINT32_MAX) {
            auto kernel = whole ? rotate<T, N, uint64_t> : rotate<T, 1, uint64_t>;
            return launch_loop(target, kernel, BLOCK, groups, BLOCK, groups, seq_len, heads,
                               head_dim, turned, cosines, sines, sign, static_cast<T *>(x));
        }
        auto kernel = whole ? rotate<T, N, uint32_t> : rotate<T, 1, uint32_t>;
        return launch_loop(target, kernel, BLOCK, groups, BLOCK, groups, seq_len, heads, head_dim,
                           turned, cosines, sines, sign, static_cast<T *>(x));
    });
}

static cudaError_t gated(const rpexec_cuda_target *target, bool gelu, uint64_t count,
                         const void *gate, const void *up, void *s)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = gelu ? geglu<T> : swiglu<T>;
        return launch_loop(target, kernel, BLOCK, count, BLOCK * per_pack<T>::count, count,
                           static_cast<const T *>(gate), static_cast<const T *>(up),
                           static_cast<T *>(s), aligned(16, gate, MUTATE(up_unaligned, up, s), s));
    });
}

static cudaError_t gated_backward(const rpexec_cuda_target *target, bool gelu, uint64_t count,
                                  const void *gate, const void *up, const void *ds, void *dgate,
                                  void *dup)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = gelu ? geglu_backward<T> : swiglu_backward<T>;
        return launch_loop(target, kernel, BLOCK, count, BLOCK * per_pack<T>::count, count,
                           static_cast<const T *>(gate), static_cast<const T *>(up),
                           static_cast<const T *>(ds), static_cast<T *>(dgate),
                           static_cast<T *>(dup), aligned(16, gate, up, ds, dgate, dup));
    });
}

extern "C" cudaError_t rpexec_cuda_swiglu(const rpexec_cuda_target *target, uint64_t count,
                                          const void *gate, const void *up, void *s)
{
    return gated(target, false, count, gate, up, s);
}

extern "C" cudaError_t rpexec_cuda_swiglu_backward(const rpexec_cuda_target *target, uint64_t count,
                                                   const void *gate, const void *up, const void *ds,
                                                   void *dgate, void *dup)
{
    return gated_backward(target, false, count, gate, up, ds, dgate, dup);
}

extern "C" cudaError_t rpexec_cuda_geglu(const rpexec_cuda_target *target, uint64_t count,
                                         const void *gate, const void *up, void *s)
{
    return gated(target, true, count, gate, up, s);
}

extern "C" cudaError_t rpexec_cuda_geglu_backward(const rpexec_cuda_target *target, uint64_t count,
                                                  const void *gate, const void *up, const void *ds,
                                                  void *dgate, void *dup)
{
    return gated_backward(target, true, count, gate, up, ds, dgate, dup);
}

extern "C" cudaError_t rpexec_cuda_add(const rpexec_cuda_target *target, uint64_t count,
                                       const void *a, const void *b, void *y)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_loop(target, add<T>, BLOCK, count, BLOCK * per_pack<T>::count, count,
                           static_cast<const T *>(a), static_cast<const T *>(b),
                           static_cast<T *>(y), aligned(16, a, b, y));
    });
}

extern "C" cudaError_t rpexec_cuda_add_bias(const rpexec_cuda_target *target, uint64_t rows,
                                            uint32_t width, const void *bias, const void *base,
                                            void *y)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        uint64_t count = rows * width;
        bool whole = aligned(16, bias, base, y) && width % per_pack<T>::count == 0;
        return launch_loop(target, add_bias<T>, BLOCK, count, BLOCK * per_pack<T>::count, count,
                           width, static_cast<const T *>(bias), static_cast<const T *>(base),
                           static_cast<T *>(y), whole);
    });
}

extern "C" cudaError_t rpexec_cuda_add_sums(const rpexec_cuda_target *target, uint64_t count,
                                            const float *sums, void *gradients)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        bool whole = aligned(sizeof(pack<float, per_pack<T>::count>), sums) &&
                     aligned(16, MUTATE(gradients_unaligned, gradients, sums));
        return launch_loop(target, add_sums<T>, BLOCK, count, BLOCK * per_pack<T>::count, count,
                           sums, static_cast<T *>(gradients), whole);
    });
}

extern "C" cudaError_t rpexec_cuda_scale(const rpexec_cuda_target *target, uint64_t count,
                                         float factor, void *x)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_loop(target, scale<T>, BLOCK, count, BLOCK * per_pack<T>::count, count,
                           factor, static_cast<T *>(x), aligned(16, x));
    });
}

extern "C" cudaError_t rpexec_cuda_adam(const rpexec_cuda_target *target,
                                        const rpexec_adam_factors *factors,
                                        const rpexec_update *update)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        bool whole = aligned(16, update->master, update->m, update->v) &&
                     aligned(4 * sizeof(T), update->gradients, update->weights);
        return launch_loop(target, adam<T>, BLOCK, update->count, BLOCK * 4, update->count,
                           *factors, 1.0f / update->scale,
                           static_cast<const T *>(update->gradients), update->master, update->m,
                           update->v, static_cast<T *>(update->weights), whole);
    });
}

extern "C" cudaError_t rpexec_cuda_squares(const rpexec_cuda_target *target, uint64_t count,
                                           const void *x, uint64_t *parts)
{
    uint32_t blocks = 0;
    cudaError_t error = for_type(target, [&](auto zero) {
        using T = decltype(zero);
        blocks = blocks_for(target, resident_blocks(squares<T>, BLOCK, 0), count,
                            BLOCK * RPEXEC_SQUARES_BLOCK);
        blocks = blocks < RPEXEC_CUDA_SQUARES_PARTS ? blocks : RPEXEC_CUDA_SQUARES_PARTS;
        return launch(squares<T>, blocks, BLOCK, 0, target->stream, count,
                      static_cast<const T *>(x), parts, aligned(16, x));
    });
    return error != cudaSuccess
               ? error
               : launch(add_parts, 1, SUM_WARPS * 32, 0, target->stream, blocks, parts);
}
