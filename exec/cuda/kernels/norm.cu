/* RMSNorm: a warp for each short row (queries and keys), a block for each longer row. The gradient
 * of the weight is summed over parts of the rows, then over the parts, in a fixed order. */
#include "exec/cuda/kernels/device.cuh"

enum { BLOCK = 256, LONGEST_OF_A_WARP = 1024, SUM_WARPS = 16 };

template <typename T, int THREADS>
__global__ void __launch_bounds__(BLOCK)
    norm(uint64_t rows, uint32_t width, float eps, float one, const T *x, const T *weight, T *y,
         float *r, bool whole)
{
    constexpr int N = per_pack<T>::count;
    __shared__ float parts[BLOCK / 32];
    uint32_t lane = threadIdx.x % THREADS;
    uint64_t per_block = BLOCK / THREADS;
    for (uint64_t row = blockIdx.x * per_block + threadIdx.x / THREADS; row < rows;
         row += gridDim.x * per_block) {
        const T *from = x + row * width;
        float sum = 0;
        for (uint32_t j = lane * N; j < width; j += THREADS * N) {
            float in[N];
            load<N>(from + j, width - j, whole, in);
            for (int i = 0; i < N; i++) {
                sum += in[i] * in[i];
            }
        }
        float scale = 1.0f / sqrtf(group_sum<THREADS>(sum, parts) / (float)width + eps);
        for (uint32_t j = lane * N; j < width; j += THREADS * N) {
            float in[N], w[N];
            load<N>(from + j, width - j, whole, in);
            load<N>(weight + j, width - j, whole, w);
            for (int i = 0; i < N; i++) {
                in[i] = in[i] * scale * (w[i] + MUTATE(weights_without_one, one, 0));
            }
            store<N>(in, width - j, whole, y + row * width + j);
        }
        if (lane == 0) {
            r[row] = scale;
        }
    }
}

template <typename T, int THREADS>
__global__ void __launch_bounds__(BLOCK)
    norm_input(uint64_t rows, uint32_t width, float one, const T *x, const T *weight,
               const float *r, const T *dy, const T *base, T *dx, bool whole)
{
    constexpr int N = per_pack<T>::count;
    __shared__ float parts[BLOCK / 32];
    uint32_t lane = threadIdx.x % THREADS;
    uint64_t per_block = BLOCK / THREADS;
    for (uint64_t row = blockIdx.x * per_block + threadIdx.x / THREADS; row < rows;
         row += gridDim.x * per_block) {
        uint64_t at = row * width;
        float sum = 0;
        float in[N], w[N], from[N];
        for (uint32_t j = lane * N; j < width; j += THREADS * N) {
            load<N>(x + at + j, width - j, whole, in);
            load<N>(weight + j, width - j, whole, w);
            load<N>(dy + at + j, width - j, whole, from);
            for (int i = 0; i < N; i++) {
                sum += from[i] * (w[i] + MUTATE(sums_without_one, one, 0)) * in[i];
            }
        }
        float scale = r[row];
        float mean = group_sum<THREADS>(sum, parts) / (float)width;
        float pull = scale * scale * scale * mean;
        for (uint32_t j = lane * N; j < width; j += THREADS * N) {
            float old[N] = {};
            load<N>(x + at + j, width - j, whole, in);
            load<N>(weight + j, width - j, whole, w);
            load<N>(dy + at + j, width - j, whole, from);
            if (MUTATE(norm_base_lost, base != nullptr, false)) {
                load<N>(MUTATE(dx_for_base, base, dx) + MUTATE(first_row_of_base, at, 0) + j,
                        width - j, whole, old);
            }
            for (int i = 0; i < N; i++) {
                old[i] += scale * from[i] * (w[i] + one) - in[i] * pull;
            }
            store<N>(old, width - j, whole, dx + at + j);
        }
    }
}

/* Two columns per lane, a warp's rows eight apart; then the warps' sums in order. Without x and r
 * it sums dy alone, for a bias. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    norm_weight_parts(uint64_t rows, uint32_t width, uint64_t per_part, const T *x, const float *r,
                      const T *dy, float *parts, bool whole)
{
    __shared__ float sums[BLOCK / 32][64];
    uint32_t warp = threadIdx.x / 32;
    uint32_t column = blockIdx.x * 64 + threadIdx.x % 32 * 2;
    uint64_t first = blockIdx.y * per_part;
    uint64_t end = first + per_part < rows ? first + per_part : rows;
    float sum[2] = {};
    for (uint64_t row = first + warp; row < end && column < width; row += BLOCK / 32) {
        float in[2] = {1.0f, 1.0f}, from[2];
        float factor = MUTATE(bias_scaled, 1.0f, 2.0f);
        load<2>(dy + row * width + column, width - column, whole, from);
        if (x != nullptr) {
            load<2>(x + row * width + column, width - column, whole, in);
            factor = r[row];
        }
        sum[0] += from[0] * in[0] * factor;
        sum[1] += from[1] * in[1] * factor;
    }
    sums[warp][threadIdx.x % 32 * 2] = sum[0];
    sums[warp][threadIdx.x % 32 * 2 + 1] = sum[1];
    __syncthreads();
    column = blockIdx.x * 64 + threadIdx.x;
    if (threadIdx.x < 64 && column < width) {
        float total = 0;
        for (int i = 0; i < BLOCK / 32; i++) {
            total += sums[i][threadIdx.x];
        }
        parts[(uint64_t)blockIdx.y * width + column] = total;
    }
}

/* A block has 32 columns; each warp adds up every SUM_WARPS-th part, ascending. The warps' sums are
 * added in pairs (w and w + 8, then w and w + 4, ...), last to the old gradient. */
template <typename T>
__global__ void __launch_bounds__(SUM_WARPS * 32)
    norm_weight_sum(uint32_t count, uint32_t width, const float *parts, T *dweight)
{
    __shared__ float sums[SUM_WARPS][32];
    uint32_t warp = threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    uint32_t column = blockIdx.x * 32 + lane;
    float sum = 0;
    if (column < width) {
#pragma unroll 8
        for (uint32_t i = warp; i < count;
             i += MUTATE(parts_added_twice, MUTATE(first_part_of_each_warp, SUM_WARPS, count),
                         SUM_WARPS / 2)) {
            sum += parts[(uint64_t)i * width + column];
        }
    }
    sums[warp][lane] = sum;
    for (uint32_t half = SUM_WARPS / 2; half > 0; half /= 2) {
        MUTATE(tree_without_barriers, __syncthreads(), );
        if (warp < half) {
            sums[warp][lane] += sums[warp + half][lane];
        }
    }
    if (warp == 0 && column < width) {
        narrow(MUTATE(old_gradient_lost, widen(dweight[column]), 0) + sums[0][lane],
               &dweight[column]);
    }
}

extern "C" uint32_t rpexec_cuda_norm_parts(uint64_t rows)
{
    uint64_t parts = (rows + 63) / 64;
    return (uint32_t)(parts < 256 ? parts : 256);
}

extern "C" cudaError_t rpexec_cuda_rms_norm(const rpexec_cuda_target *target, uint64_t rows,
                                            uint32_t width, float eps, bool shifted, const void *x,
                                            const void *weight, void *y, float *r)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        bool whole = aligned(16, x, weight, y) && width % per_pack<T>::count == 0;
        bool by_warp = width <= LONGEST_OF_A_WARP;
        auto kernel = by_warp ? norm<T, 32> : norm<T, BLOCK>;
        return launch_loop(target, kernel, BLOCK, rows, by_warp ? BLOCK / 32 : 1, rows, width, eps,
                           shifted ? 1.0f : 0.0f, static_cast<const T *>(x),
                           static_cast<const T *>(weight), static_cast<T *>(y), r, whole);
    });
}

extern "C" cudaError_t rpexec_cuda_rms_norm_input(const rpexec_cuda_target *target, uint64_t rows,
                                                  uint32_t width, bool shifted, const void *x,
                                                  const void *weight, const float *r,
                                                  const void *dy, const void *base, void *dx)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        bool whole = aligned(16, x, weight, dy, MUTATE(norm_base_unaligned, base, dx), dx) &&
                     width % per_pack<T>::count == 0;
        bool by_warp = width <= LONGEST_OF_A_WARP;
        auto kernel = by_warp ? norm_input<T, 32> : norm_input<T, BLOCK>;
        return launch_loop(target, kernel, BLOCK, rows, by_warp ? BLOCK / 32 : 1, rows, width,
                           shifted ? 1.0f : 0.0f, static_cast<const T *>(x),
                           static_cast<const T *>(weight), r, static_cast<const T *>(dy),
                           static_cast<const T *>(base), static_cast<T *>(dx), whole);
    });
}

/* Sums over parts of the rows. */
template <typename V>
static cudaError_t sum_parts(const rpexec_cuda_target *target, uint64_t rows, uint32_t width,
                             const V *x, const float *r, const V *dy, float *parts)
{
    bool whole = aligned(2 * sizeof(V), x, dy) && width % 2 == 0;
    uint32_t count = rpexec_cuda_norm_parts(rows);
    uint64_t per_part = count > 0 ? (rows + count - 1) / count : 0;
    return launch(norm_weight_parts<V>, dim3((width + 63) / 64, count), BLOCK, 0, target->stream,
                  rows, width, per_part, x, r, dy, parts, whole);
}

template <typename T>
static cudaError_t add_parts(const rpexec_cuda_target *target, uint64_t rows, uint32_t width,
                             const float *parts, bool wide, T *sums)
{
    uint32_t count = rpexec_cuda_norm_parts(rows);
    if (count == 0) {
        return cudaSuccess;
    }
    if (wide) {
        return launch(
            norm_weight_sum<MUTATE(wide_norm_sums_as_half, float, T)>, (width + 31) / 32,
            SUM_WARPS * 32, 0, target->stream, count, width, parts,
            static_cast<MUTATE(wide_norm_sums_as_half, float, T) *>(static_cast<void *>(sums)));
    }
    return launch(norm_weight_sum<T>, (width + MUTATE(columns_beyond_32, 31, 30)) / 32,
                  SUM_WARPS * 32, 0, target->stream, count, width, parts, sums);
}

extern "C" cudaError_t rpexec_cuda_rms_norm_weight(const rpexec_cuda_target *target, uint64_t rows,
                                                   uint32_t width, const void *x, const float *r,
                                                   const void *dy, float *parts, bool wide,
                                                   void *dweight)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        cudaError_t error = sum_parts<T>(target, rows, width, static_cast<const T *>(x), r,
                                         static_cast<const T *>(dy), parts);
        return error != cudaSuccess
                   ? error
                   : add_parts<T>(target, rows, width, parts, wide, static_cast<T *>(dweight));
    });
}

extern "C" cudaError_t rpexec_cuda_sum_rows(const rpexec_cuda_target *target, uint64_t rows,
                                            uint32_t width, const float *values, float *parts,
                                            bool wide, void *dsums)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        cudaError_t error = sum_parts<float>(target, rows, width, nullptr, nullptr, values, parts);
        return error != cudaSuccess
                   ? error
                   : add_parts<T>(target, rows, width, parts, wide, static_cast<T *>(dsums));
    });
}
