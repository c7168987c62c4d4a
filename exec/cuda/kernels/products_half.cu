/* Matrix products of 16-bit values by tensor cores, added up in fp32: tiles of 128 x 128, eight
 * warps with 64 x 32 each, two stages of k in shared memory. For the same cases as products.cu. */
#include "exec/cuda/kernels/products.cuh"
#include "exec/cuda/kernels/tensor_core.cuh"

enum { SIZE = 128, DEPTH = 32, BLOCK = 256, STAGES = 2 };
enum { TILE = 128 * (32 + 8) /* values, of the larger layout */ };

/* Begins to copy an operand's tile of the stage. */
template <bool ALONG_K, typename T>
__device__ inline void fetch_operand(const T *from, uint64_t pitch, uint64_t line,
                                     uint64_t line_end, uint64_t k, uint64_t k_end, bool whole,
                                     T *to)
{
    if (ALONG_K) {
        fetch<SIZE, DEPTH, BLOCK>(from, pitch, line, line_end, k, k_end, whole, to);
    } else {
        fetch<DEPTH, SIZE, BLOCK>(from, pitch, k, k_end, line, line_end, whole, to);
    }
}

/* A stage's products: the warp's 64 x 32. */
template <bool A_ALONG_K, bool B_ALONG_K, typename T>
__device__ inline void multiply_stage(const T *a, const T *b, uint32_t row, uint32_t column,
                                      float sum[4][4][4])
{
#pragma unroll
    for (uint32_t k = 0; k < DEPTH; k += 16) {
        uint32_t left[4][4], right[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (A_ALONG_K) {
                load_a<DEPTH>(left[i], a, row + i * 16, k);
            } else {
                load_a_across<SIZE>(left[i], a, row + i * 16, k);
            }
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if (B_ALONG_K) {
                load_b<DEPTH>(right[j], b, column + j * 16, k);
            } else {
                load_b_across<SIZE>(right[j], b, column + j * 16, k);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                multiply(T(), sum[i][j], left[i], right[j / 2] + j % 2 * 2);
            }
        }
    }
}

/* Stores two neighbouring results. */
template <typename T>
__device__ inline void put(T *to, float first, float second, const T *base, bool pairs,
                           uint64_t left)
{
    if (pairs && left > 1) {
        if (base != nullptr) {
            uint32_t old = *wide<const uint32_t>(base);
            first = widen(T{(uint16_t)MUTATE(halves_exchanged, old, (old >> 16))}) +
                    MUTATE(rounded_before_base, first, MUTATE_ROUNDED(T, first));
            second = widen(T{(uint16_t)(old >> 16)}) + second;
        }
        *wide<uint32_t>(to) = pair(T(), first, second);
        return;
    }
    if (left > 0) {
        narrow(base != nullptr ? widen(base[0]) + first : first, &to[0]);
    }
    if (left > 1) {
        narrow(MUTATE(last_column_without_base, base != nullptr, false) ? widen(base[1]) + second
                                                                        : second,
               &to[1]);
    }
}

/* The same for fp32. */
__device__ inline void put(float *to, float first, float second, const float *base, bool pairs,
                           uint64_t left)
{
    float from[2] = {first, second};
    if (base != nullptr) {
        float old[2];
        load<2>(base, left, pairs, old);
        from[0] += old[0];
        from[1] += MUTATE(every_other_sum_anew, old[1], 0);
    }
    store<2>(from, left, pairs, to);
}

/* Stores values of type S. */
template <bool A_ALONG_K, bool B_ALONG_K, typename T, typename S>
__global__ void __launch_bounds__(BLOCK)
    multiply_half(product<T, S> p, uint64_t a_pitch, uint64_t b_pitch, uint64_t c_pitch)
{
    T *shared = reinterpret_cast<T *>(dynamic_shared());
    tile t = tile_of(p.sizes, SIZE);
    bool weight = p.sizes.which == RPEXEC_CUDA_WEIGHT;
    const T *b = p.b + (weight ? 0 : t.matrix);
    uint32_t lane = threadIdx.x % 32;
    uint32_t row = threadIdx.x / 32 / 4 * 64;
    uint32_t column = threadIdx.x / 32 % 4 * 32;
    float sum[4][4][4] = {};
    if (!t.any) {
        return;
    }
    fetch_operand<A_ALONG_K>(p.a, a_pitch, t.m, t.m_end, t.k, t.k_end, p.whole, shared);
    fetch_operand<B_ALONG_K>(b, b_pitch, t.n, t.n_end, t.k, t.k_end, p.whole, shared + TILE);
    copies_commit();
    uint32_t stage = 0;
    for (uint64_t k = t.k; k < t.k_end; k += DEPTH, stage ^= 1) {
        T *now = shared + stage * 2 * TILE;
        T *next = shared + (stage ^ 1) * 2 * TILE;
        if (k + DEPTH < t.k_end) {
            fetch_operand<A_ALONG_K>(p.a, a_pitch, t.m, t.m_end, k + DEPTH, t.k_end, p.whole, next);
            fetch_operand<B_ALONG_K>(b, b_pitch, t.n, t.n_end, k + DEPTH, t.k_end, p.whole,
                                     next + TILE);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        multiply_stage<A_ALONG_K, B_ALONG_K>(now, now + TILE, row, column, sum);
        __syncthreads(); /* the next round fills this stage again */
    }
    const S *base = static_cast<const S *>(p.sizes.base);
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint64_t m = t.m + row + i * 16 + lane / 4 + half * 8;
                uint64_t n = t.n + column + j * 8 + lane % 4 * 2;
                if (m < t.m_end && n < t.n_end) {
                    uint64_t at =
                        (weight ? MUTATE(first_matrix_for_all, t.matrix, 0) : 0) + m * c_pitch + n;
                    put(p.c + at,
                        MUTATE(wide_sums_rounded, sum[i][j][half * 2],
                               MUTATE_ROUNDED(T, sum[i][j][half * 2])),
                        sum[i][j][half * 2 + 1],
                        base != nullptr ? MUTATE(result_for_base, base, p.c) + at : nullptr,
                        p.pairs, t.n_end - n);
                }
            }
        }
    }
}

/* Products of T, stored as S. */
template <typename T, typename S>
static cudaError_t products_of(const rpexec_cuda_target *target,
                               const rpexec_cuda_products *products, const void *a, const void *b,
                               void *c)
{
    uint64_t in = products->in;
    uint64_t out = products->out;
    bool whole = aligned(16, a, b) && in % 8 == 0 && out % 8 == 0 && products->stride % 8 == 0;
    uint64_t columns = products->which == RPEXEC_CUDA_FORWARD ? out : in;
    bool pairs = aligned(2 * sizeof(MUTATE(wide_pairs_aligned_as_half, S, T)), c,
                         MUTATE(base_unaligned, products->base, c)) &&
                 columns % 2 == 0 && products->stride % 2 == 0;
    product<T, S> p = {
        *products, static_cast<const T *>(a), static_cast<const T *>(b), static_cast<S *>(c), whole,
        pairs};
    dim3 grid = product_grid(products, SIZE);
    size_t shared = STAGES * 2 * TILE * sizeof(T);
    cudaStream_t stream = target->stream;
    if (products->which == RPEXEC_CUDA_WEIGHT) {
        return launch(multiply_half<false, false, T, S>, grid, BLOCK, shared, stream, p, out, in,
                      in);
    }
    if constexpr (sizeof(S) == sizeof(T)) {
        return products->which == RPEXEC_CUDA_FORWARD
                   ? launch(multiply_half<true, true, T, S>, grid, BLOCK, shared, stream, p, in, in,
                            out)
                   : launch(multiply_half<true, false, T, S>, grid, BLOCK, shared, stream, p, out,
                            in, in);
    }
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t rpexec_cuda_products_half(const rpexec_cuda_target *target,
                                                 const rpexec_cuda_products *products,
                                                 const void *a, const void *b, void *c)
{
    return for_half_type(target, [&](auto zero) {
        using T = decltype(zero);
        return MUTATE(never_wide, products->wide, false)
                   ? products_of<T, float>(target, products, a, b, c)
                   : products_of<T, T>(target, products, a, b, c);
    });
}
