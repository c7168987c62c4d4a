/* Matrix products in fp32 (no TF32): tiles of 64 x 64, 4 x 4 per thread. For experts, whose numbers
 * of rows only the GPU knows, and for runs without cuBLAS. */
#include "exec/cuda/kernels/products.cuh"

enum { SIZE = 64, DEPTH = 16, BLOCK = 256, PITCH = SIZE + 4 };

/* to[k][line] = from[line, k], zeros outside; ALONG_K: lines of memory run along k. */
template <bool ALONG_K>
__device__ inline void fetch(const float *from, uint64_t pitch, uint64_t line, uint64_t line_end,
                             uint64_t k, uint64_t k_end, float (*to)[PITCH])
{
    for (uint32_t i = threadIdx.x; i < SIZE * DEPTH; i += BLOCK) {
        uint32_t x = ALONG_K ? i / DEPTH : i % SIZE;
        uint32_t y = ALONG_K ? i % DEPTH : i / SIZE;
        bool valid = line + x < line_end && k + y < k_end;
        uint64_t at = ALONG_K ? (line + x) * pitch + k + y : (k + y) * pitch + line + x;
        to[y][x] = valid ? from[at] : 0.0f;
    }
}

template <bool A_ALONG_K, bool B_ALONG_K>
__global__ void __launch_bounds__(BLOCK)
    multiply_fp32(product<float> p, uint64_t a_pitch, uint64_t b_pitch, uint64_t c_pitch)
{
    __shared__ float a[DEPTH][PITCH];
    __shared__ float b[DEPTH][PITCH];
    tile t = tile_of(p.sizes, SIZE);
    bool weight = p.sizes.which == RPEXEC_CUDA_WEIGHT;
    uint32_t row = threadIdx.x / 16 * 4;
    uint32_t column = threadIdx.x % 16 * 4;
    float sum[4][4] = {};
    if (!t.any) {
        return;
    }
    for (uint64_t k = t.k; k < t.k_end; k += DEPTH) {
        fetch<A_ALONG_K>(p.a, a_pitch, t.m, t.m_end, k, t.k_end, a);
        fetch<B_ALONG_K>(p.b + (weight ? 0 : t.matrix), b_pitch, t.n, t.n_end, k, t.k_end, b);
        __syncthreads();
        for (uint32_t depth = 0; depth < DEPTH; depth++) {
            for (int i = 0; i < 4; i++) {
                for (int j = 0; j < 4; j++) {
                    sum[i][j] += a[depth][row + i] * b[depth][column + j];
                }
            }
        }
        __syncthreads();
    }
    uint64_t first = weight ? t.matrix : 0;
    const float *base = static_cast<const float *>(p.sizes.base);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            uint64_t m = t.m + row + i;
            uint64_t n = t.n + column + j;
            if (m < t.m_end && n < t.n_end) {
                uint64_t at = first + m * c_pitch + n;
                p.c[at] = MUTATE(base_lost, base != nullptr, false)
                              ? MUTATE(result_for_base_fp32, base, p.c)[at] + sum[i][j]
                              : sum[i][j];
            }
        }
    }
}

extern "C" cudaError_t rpexec_cuda_products_fp32(const rpexec_cuda_target *target,
                                                 const rpexec_cuda_products *products,
                                                 const void *a, const void *b, void *c)
{
    product<float> p = {*products,
                        static_cast<const float *>(a),
                        static_cast<const float *>(b),
                        static_cast<float *>(c),
                        true,
                        false};
    dim3 grid = product_grid(products, SIZE);
    uint64_t in = products->in;
    uint64_t out = products->out;
    switch (products->which) {
    case RPEXEC_CUDA_FORWARD:
        return launch(multiply_fp32<true, true>, grid, BLOCK, 0, target->stream, p, in, in, out);
    case RPEXEC_CUDA_INPUT:
        return launch(multiply_fp32<true, false>, grid, BLOCK, 0, target->stream, p, out, in, in);
    case RPEXEC_CUDA_WEIGHT:
        return launch(multiply_fp32<false, false>, grid, BLOCK, 0, target->stream, p, out, in, in);
    }
    return cudaErrorInvalidValue;
}
