/* Mixture of experts: routing, gathering, and operators on gathered rows. From the same logits come
 * the host backend's bits of probabilities, and so its choice of experts: another choice, by a
 * rounding, would be another model. */
#include "exec/cuda/kernels/device.cuh"

enum { BLOCK = 256, ROUTE_BLOCK = 128, ROW_BLOCK = 128 };

/* exec/host/lane.h's rpexec_exp, operation by operation. */
__device__ inline float host_exp(float x)
{
    const float shift = 12582912.0f;
    float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float moved = plus(times(clamped, 1.44269504088896341f), shift);
    float n = plus(moved, -shift);
    float r = plus(clamped, -times(n, 0.693359375f));
    r = plus(r, -times(n, -2.12194440e-4f));
    float p = 1.9875691500e-4f;
    p = plus(times(p, r), 1.3981999507e-3f);
    p = plus(times(p, r), 8.3334519073e-3f);
    p = plus(times(p, r), 4.1665795894e-2f);
    p = plus(times(p, r), 1.6666665459e-1f);
    p = plus(times(p, r), 5.0000001201e-1f);
    p = plus(plus(times(times(p, r), r), r), 1.0f);
    float power = __uint_as_float((__float_as_uint(moved) - 0x4b400000u + 127u) << 23);
    return x < -87.0f ? 0.0f : times(p, power);
}

/* The softmax of a token's logits into p (shared), summed in the host's order. */
template <typename T> __device__ inline void softmax(uint32_t experts, const T *logits, float *p)
{
    uint32_t lane = threadIdx.x % 32;
    float most = widen(logits[0]);
    double sum = 0;
    for (uint32_t e = 1; e < experts; e++) {
        float z = widen(logits[e]);
        most = z > most ? z : most;
    }
    for (uint32_t e = lane; e < experts; e += 32) {
        p[e] = host_exp(plus(widen(logits[e]), -most));
    }
    __syncwarp();
    for (uint32_t e = 0; e < experts; e++) {
        sum += (double)p[e];
    }
    __syncwarp();
    for (uint32_t e = lane; e < experts; e += 32) {
        p[e] = (float)((double)p[e] / sum);
    }
    __syncwarp();
}

/* True if expert e with probability p comes before expert f with probability q. */
__device__ inline bool before(float p, uint32_t e, float q, uint32_t f)
{
    return p > q || (p == q && e < f);
}

/* The expert after `last` (`experts`: the first expert) by falling probability, then by number, in
 * all lanes; `experts` if none is left. Skips NaN. */
__device__ inline uint32_t next_best(uint32_t experts, const float *p, uint32_t last)
{
    uint32_t best = experts;
    for (uint32_t e = threadIdx.x % 32; e < experts; e += 32) {
        bool candidate = p[e] == p[e] && (last == experts || before(p[last], last, p[e], e));
        if (candidate && (best == experts || before(p[e], e, p[best], best))) {
            best = e;
        }
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, best, mask);
        if (other != experts && (best == experts || before(p[other], other, p[best], best))) {
            best = other;
        }
    }
    return best;
}

/* The lowest expert not among the first `count` of `chosen`. */
__device__ inline uint32_t first_left(const uint32_t *chosen, uint32_t count)
{
    for (uint32_t e = 0;; e++) {
        bool taken = false;
        for (uint32_t j = 0; j < count; j++) {
            taken = taken || chosen[j] == e;
        }
        if (!taken) {
            return e;
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(ROUTE_BLOCK) choose(rpexec_routing r, const T *logits)
{
    uint32_t lane = threadIdx.x % 32;
    float *p = reinterpret_cast<float *>(dynamic_shared()) + threadIdx.x / 32 * r.experts;
    uint64_t step = (uint64_t)gridDim.x * (ROUTE_BLOCK / 32);
    for (uint64_t t = (uint64_t)blockIdx.x * (ROUTE_BLOCK / 32) + threadIdx.x / 32; t < r.tokens;
         t += step) {
        uint32_t *chosen = r.chosen + t * r.active;
        uint32_t last = r.experts;
        softmax(r.experts, logits + t * r.experts, p);
        for (uint32_t e = lane; e < r.experts; e += 32) {
            r.probabilities[t * r.experts + e] = p[e];
        }
        for (uint32_t j = 0; j < r.active; j++) {
            uint32_t best = next_best(r.experts, p, last);
            if (best == r.experts) { /* NaN: indices stay valid */
                best = first_left(chosen, j);
            }
            if (lane == 0) {
                chosen[j] = best;
            }
            last = best;
            __syncwarp();
        }
    }
}

/* begins[e + 1] becomes the number of rows of expert e = blockIdx.x. */
__global__ void __launch_bounds__(BLOCK) count_rows(rpexec_routing r)
{
    __shared__ uint32_t parts[BLOCK / 32];
    uint32_t count = 0;
    for (uint64_t i = threadIdx.x; i < r.tokens * r.active; i += BLOCK) {
        count += r.chosen[i] == blockIdx.x;
    }
    count = group_sum<BLOCK>(count, parts);
    if (threadIdx.x == 0) {
        r.begins[blockIdx.x + 1] = count;
    }
}

/* A warp takes 32 experts at a time, and waits for memory once. */
__global__ void __launch_bounds__(32) add_counts(rpexec_routing r)
{
    uint32_t before = 0;
    for (uint32_t first = 0; first < r.experts; first += 32) {
        uint32_t expert = first + threadIdx.x;
        uint32_t sum = expert < r.experts ? r.begins[expert + 1] : 0;
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            uint32_t other = __shfl_up_sync(0xffffffffu, sum, distance);
            sum += threadIdx.x >= distance ? other : 0;
        }
        if (expert < r.experts) {
            r.begins[expert + 1] = before + sum;
        }
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (threadIdx.x == 0) {
        r.begins[0] = 0;
    }
}

/* Each thread counts the expert's entries in a run of all entries; sums of counts give the rows. */
__global__ void __launch_bounds__(BLOCK) place_rows(rpexec_routing r)
{
    __shared__ uint32_t counts[BLOCK];
    uint64_t entries = r.tokens * r.active;
    uint64_t run = (entries + BLOCK - 1) / BLOCK;
    uint64_t first = threadIdx.x * run;
    uint64_t end = first + run < entries ? first + run : entries;
    uint32_t mine = 0;
    for (uint64_t i = first; i < end; i++) {
        mine += r.chosen[i] == blockIdx.x;
    }
    counts[threadIdx.x] = mine;
    __syncthreads();
    for (uint32_t distance = 1; distance < BLOCK; distance *= 2) {
        uint32_t other = threadIdx.x >= distance ? counts[threadIdx.x - distance] : 0;
        __syncthreads();
        counts[threadIdx.x] += other;
        __syncthreads();
    }
    uint32_t row = r.begins[blockIdx.x] + counts[threadIdx.x] - mine;
    for (uint64_t i = first; i < end; i++) {
        if (r.chosen[i] == blockIdx.x) {
            r.rows[i] = row++;
        }
    }
}

__global__ void __launch_bounds__(BLOCK) weigh(rpexec_routing r)
{
    for (uint64_t t = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; t < r.tokens;
         t += (uint64_t)gridDim.x * BLOCK) {
        const float *p = r.probabilities + t * r.experts;
        float sum = 0;
        for (uint64_t i = t * r.active; i < (t + 1) * r.active; i++) {
            sum = plus(sum, p[r.chosen[i]]);
        }
        for (uint64_t i = t * r.active; i < (t + 1) * r.active; i++) {
            r.weights[r.rows[i]] = r.raw ? p[r.chosen[i]] : p[r.chosen[i]] / sum;
        }
    }
}

/* A warp per token; exec/host/experts.c has the formula. */
template <typename T>
__global__ void __launch_bounds__(ROUTE_BLOCK)
    route_backward(rpexec_routing r, const float *dweights, T *dlogits)
{
    uint32_t lane = threadIdx.x % 32;
    uint64_t step = (uint64_t)gridDim.x * (ROUTE_BLOCK / 32);
    for (uint64_t t = (uint64_t)blockIdx.x * (ROUTE_BLOCK / 32) + threadIdx.x / 32; t < r.tokens;
         t += step) {
        T *row = dlogits + t * r.experts;
        float sum = 0;
        for (uint64_t i = t * r.active; i < (t + 1) * r.active; i++) {
            sum += r.weights[r.rows[i]] * dweights[r.rows[i]];
        }
        for (uint32_t e = lane; e < r.experts; e += 32) {
            narrow(r.raw ? -r.probabilities[t * r.experts + e] * sum : 0.0f, &row[e]);
        }
        __syncwarp();
        for (uint32_t j = lane; j < r.active; j += 32) {
            uint32_t from = r.rows[t * r.active + j];
            narrow(r.weights[from] * (dweights[from] - sum), &row[r.chosen[t * r.active + j]]);
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    gather(rpexec_routing r, uint32_t width, const T *x, T *y, bool whole)
{
    constexpr int N = per_pack<T>::count;
    uint32_t packs = (width + N - 1) / N;
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < r.tokens * r.active * packs;
         i += (uint64_t)gridDim.x * BLOCK) {
        uint64_t entry = i / packs;
        uint32_t j = (uint32_t)(i % packs) * N;
        float row[N];
        load<N>(x + entry / r.active * width + j, width - j, whole, row);
        store<N>(row, width - j, whole, y + (uint64_t)r.rows[entry] * width + j);
    }
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    scatter(rpexec_routing r, uint32_t width, const T *x, bool add, T *y, bool whole)
{
    constexpr int N = per_pack<T>::count;
    uint32_t packs = (width + N - 1) / N;
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < r.tokens * packs;
         i += (uint64_t)gridDim.x * BLOCK) {
        uint64_t t = i / packs;
        uint32_t j = (uint32_t)(i % packs) * N;
        float sum[N] = {};
        float in[N];
        for (uint64_t entry = t * r.active; entry < (t + 1) * r.active; entry++) {
            load<N>(x + (uint64_t)r.rows[entry] * width + j, width - j, whole, in);
            for (int k = 0; k < N; k++) {
                sum[k] += in[k];
            }
        }
        if (add) {
            load<N>(y + t * width + j, width - j, whole, in);
            for (int k = 0; k < N; k++) {
                sum[k] += in[k];
            }
        }
        store<N>(sum, width - j, whole, y + t * width + j);
    }
}

/* Limits of gate and up before their product; true if the gradient passes. */
__device__ inline bool clamp_gate(float limit, float *gate)
{
    bool moves = limit == 0.0f || !(*gate > limit);
    *gate = moves ? *gate : limit;
    return moves;
}

__device__ inline bool clamp_up(float limit, float *up)
{
    bool moves = limit == 0.0f || (!(*up > limit) && !(*up < -limit));
    *up = moves ? *up : *up > 0 ? limit : -limit;
    *up += limit == 0.0f ? 0.0f : MUTATE(up_without_one, 1.0f, 0.0f);
    return moves;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    experts_swiglu(rpexec_routing r, uint32_t width, float alpha, float limit, const T *gate,
                   const T *up, T *s, bool whole)
{
    constexpr int N = per_pack<T>::count;
    uint32_t packs = (width + N - 1) / N;
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < r.tokens * r.active * packs;
         i += (uint64_t)gridDim.x * BLOCK) {
        uint64_t row = i / packs;
        uint32_t j = (uint32_t)(i % packs) * N;
        uint64_t at = row * width + j;
        float g[N], u[N];
        load<N>(gate + at, width - j, whole, g);
        load<N>(up + at, width - j, whole, u);
        for (int k = 0; k < N; k++) {
            clamp_gate(limit, &g[k]);
            clamp_up(limit, &u[k]);
            g[k] = MUTATE(swiglu_without_weights, r.weights[row], 1) *
                   (g[k] * sigmoid(alpha * g[k]) * u[k]);
        }
        store<N>(g, width - j, whole, s + at);
    }
}

template <typename T>
__global__ void __launch_bounds__(ROW_BLOCK, 8)
    experts_swiglu_backward(rpexec_routing r, uint32_t width, float alpha, float limit,
                            const T *gate, const T *up, const T *ds, T *dgate, T *dup,
                            float *dweights, bool whole)
{
    constexpr int N = per_pack<T>::count;
    __shared__ double parts[ROW_BLOCK / 32];
    for (uint64_t row = blockIdx.x; row < r.tokens * r.active; row += gridDim.x) {
        float weight = r.weights[row];
        double sum = 0;
        for (uint32_t j = threadIdx.x * N; j < width; j += ROW_BLOCK * N) {
            uint64_t at = row * width + j;
            float g[N], u[N], d[N], to_gate[N], to_up[N];
            load<N>(gate + at, width - j, whole, g);
            load<N>(up + at, width - j, whole, u);
            load<N>(ds + at, width - j, whole, d);
            for (int k = 0; k < N; k++) {
                bool gate_moves = clamp_gate(limit, &g[k]);
                bool up_moves = clamp_up(limit, &u[k]);
                float sigma = sigmoid(alpha * g[k]);
                float slope = sigma * (1.0f + alpha * g[k] * (1.0f - sigma));
                float weighted = d[k] * weight;
                sum += (double)(MUTATE(own_gradient_with_weight, d[k], weighted) * g[k] * sigma *
                                u[k]);
                to_gate[k] =
                    MUTATE(gates_beyond_limit, gate_moves, true) ? weighted * u[k] * slope : 0.0f;
                to_up[k] =
                    up_moves ? MUTATE(dup_without_weight, weighted, d[k]) * g[k] * sigma : 0.0f;
            }
            store<N>(to_gate, width - j, whole, dgate + at);
            store<N>(to_up, width - j, whole, dup + at);
        }
        sum = group_sum<ROW_BLOCK>(sum, parts);
        if (threadIdx.x == 0) {
            dweights[row] = (float)sum;
        }
    }
}

/* The expert of a gathered row: the last to begin at it or before. */
__device__ inline uint32_t expert_of(const rpexec_routing &r, uint64_t row)
{
    uint32_t low = 0, high = r.experts;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        low = r.begins[middle] <= row ? middle : low;
        high = low == middle ? high : middle;
    }
    return low;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    experts_bias(rpexec_routing r, uint32_t width, const T *bias, bool weighted, T *y, bool whole)
{
    constexpr int N = per_pack<T>::count;
    uint32_t packs = (width + N - 1) / N;
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < r.tokens * r.active * packs;
         i += (uint64_t)gridDim.x * BLOCK) {
        uint64_t row = i / packs;
        uint32_t j = (uint32_t)(i % packs) * N;
        float b[N];
        load<N>(bias +
                    (uint64_t)MUTATE(bias_of_expert_behind, expert_of(r, row),
                                     ((expert_of(r, row) + 1) % r.experts)) *
                        width +
                    j,
                width - j, whole, b);
        for (int k = 0; k < N; k++) {
            b[k] = weighted ? r.weights[row] * b[k] : b[k];
        }
        store<N>(b, width - j, whole, y + row * width + j);
    }
}

template <typename T>
__global__ void __launch_bounds__(ROW_BLOCK)
    experts_bias_input(rpexec_routing r, uint32_t width, const T *dy, const T *bias,
                       float *dweights, bool whole)
{
    constexpr int N = per_pack<T>::count;
    __shared__ double parts[ROW_BLOCK / 32];
    for (uint64_t row = blockIdx.x; row < r.tokens * r.active; row += gridDim.x) {
        const T *own = bias + (uint64_t)expert_of(r, row) * width;
        double sum = 0;
        for (uint32_t j = threadIdx.x * N; j < width; j += ROW_BLOCK * N) {
            float d[N], b[N];
            load<N>(dy + row * width + j, width - j, whole, d);
            load<N>(own + j, width - j, whole, b);
            for (int k = 0; k < N; k++) {
                sum += (double)(d[k] * b[k]);
            }
        }
        sum = group_sum<ROW_BLOCK>(sum, parts);
        if (threadIdx.x == 0) {
            MUTATE(weight_gradients_lost, dweights[row] += (float)sum, dweights[row] = (float)sum);
        }
    }
}

/* A lane per column of an expert; a warp has every eighth row. The warps' sums are added in order,
 * last to the old gradient. */
template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    experts_bias_weight(rpexec_routing r, uint32_t width, const T *dy, bool weighted, G *dbias)
{
    __shared__ float sums[BLOCK / 32][32];
    uint32_t warp = threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    uint32_t column = blockIdx.x * 32 + lane;
    float sum = 0;
    for (uint64_t row = r.begins[blockIdx.y] + warp;
         row < r.begins[blockIdx.y + 1] && column < width; row += BLOCK / 32) {
        float d = widen(dy[row * width + column]);
        sum += MUTATE(bias_without_weights, weighted, false) ? r.weights[row] * d : d;
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < width) {
        float total = 0;
        for (int i = 0; i < BLOCK / 32; i++) {
            total += sums[i][lane];
        }
        G *to = dbias + (uint64_t)blockIdx.y * width + column;
        narrow(widen(*to) + total, to);
    }
}

extern "C" cudaError_t rpexec_cuda_route(const rpexec_cuda_target *target,
                                         const rpexec_routing *routing, const void *logits)
{
    const rpexec_routing r = *routing;
    if (r.experts > RPEXEC_CUDA_MOST_EXPERTS || r.active > r.experts) {
        return cudaErrorInvalidValue;
    }
    size_t shared = ROUTE_BLOCK / 32 * r.experts * sizeof(float);
    cudaError_t error = for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch(choose<T>,
                      blocks_for(target, resident_blocks(choose<T>, ROUTE_BLOCK, shared), r.tokens,
                                 ROUTE_BLOCK / 32),
                      ROUTE_BLOCK, shared, target->stream, r, static_cast<const T *>(logits));
    });
    if (error == cudaSuccess) {
        error = launch(count_rows, r.experts, BLOCK, 0, target->stream, r);
    }
    if (error == cudaSuccess) {
        error = launch(add_counts, 1, 32, 0, target->stream, r);
    }
    if (error == cudaSuccess) {
        error = launch(place_rows, r.experts, BLOCK, 0, target->stream, r);
    }
    if (error == cudaSuccess) {
        error = launch_loop(target, weigh, BLOCK, r.tokens, BLOCK, r);
    }
    return error;
}

extern "C" cudaError_t rpexec_cuda_route_backward(const rpexec_cuda_target *target,
                                                  const rpexec_routing *routing,
                                                  const float *dweights, void *dlogits)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_loop(target, route_backward<T>, ROUTE_BLOCK, routing->tokens,
                           ROUTE_BLOCK / 32, *routing, dweights, static_cast<T *>(dlogits));
    });
}

/* Launches a kernel with a thread for each pack of [rows, width]; its last argument: packs are
 * whole and aligned. */
template <typename T, typename Kernel, typename... Arguments>
static cudaError_t launch_packs(const rpexec_cuda_target *target, Kernel kernel, uint64_t rows,
                                const rpexec_routing *routing, uint32_t width, bool is_aligned,
                                Arguments... arguments)
{
    constexpr uint32_t N = per_pack<T>::count;
    uint64_t packs = rows * ((width + N - 1) / N);
    return launch_loop(target, kernel, BLOCK, packs, BLOCK, *routing, width, arguments...,
                       is_aligned && width % N == 0);
}

extern "C" cudaError_t rpexec_cuda_gather(const rpexec_cuda_target *target,
                                          const rpexec_routing *routing, uint32_t width,
                                          const void *x, void *y)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_packs<T>(target, gather<T>, routing->tokens * routing->active, routing, width,
                               aligned(16, x, y), static_cast<const T *>(x), static_cast<T *>(y));
    });
}

extern "C" cudaError_t rpexec_cuda_scatter(const rpexec_cuda_target *target,
                                           const rpexec_routing *routing, uint32_t width,
                                           const void *x, bool add, void *y)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_packs<T>(target, scatter<T>, routing->tokens, routing, width,
                               aligned(16, x, y), static_cast<const T *>(x), add,
                               static_cast<T *>(y));
    });
}

extern "C" cudaError_t rpexec_cuda_experts_swiglu(const rpexec_cuda_target *target,
                                                  const rpexec_routing *routing, uint32_t width,
                                                  float alpha, float limit, const void *gate,
                                                  const void *up, void *s)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_packs<T>(target, experts_swiglu<T>, routing->tokens * routing->active,
                               routing, width, aligned(16, gate, up, s), alpha, limit,
                               static_cast<const T *>(gate), static_cast<const T *>(up),
                               static_cast<T *>(s));
    });
}

extern "C" cudaError_t rpexec_cuda_experts_swiglu_backward(const rpexec_cuda_target *target,
                                                           const rpexec_routing *routing,
                                                           uint32_t width, float alpha, float limit,
                                                           const void *gate, const void *up,
                                                           const void *ds, void *dgate, void *dup,
                                                           float *dweights)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        bool whole = aligned(16, gate, up, ds, dgate, MUTATE(dup_unaligned, dup, dgate)) &&
                     width % per_pack<T>::count == 0;
        return launch_loop(target, experts_swiglu_backward<T>, ROW_BLOCK,
                           routing->tokens * routing->active, 1, *routing, width, alpha, limit,
                           static_cast<const T *>(gate), static_cast<const T *>(up),
                           static_cast<const T *>(ds), static_cast<T *>(dgate),
                           static_cast<T *>(dup), dweights, whole);
    });
}

extern "C" cudaError_t rpexec_cuda_experts_bias(const rpexec_cuda_target *target,
                                                const rpexec_routing *routing, uint32_t width,
                                                const void *bias, bool weighted, void *y)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_packs<T>(target, experts_bias<T>, routing->tokens * routing->active, routing,
                               width, aligned(16, bias, y), static_cast<const T *>(bias), weighted,
                               static_cast<T *>(y));
    });
}

extern "C" cudaError_t rpexec_cuda_experts_bias_input(const rpexec_cuda_target *target,
                                                      const rpexec_routing *routing, uint32_t width,
                                                      const void *dy, const void *bias,
                                                      float *dweights)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_loop(target, experts_bias_input<T>, ROW_BLOCK,
                           routing->tokens * routing->active, 1, *routing, width,
                           static_cast<const T *>(dy), static_cast<const T *>(bias), dweights,
                           aligned(16, dy, bias) && width % per_pack<T>::count == 0);
    });
}

extern "C" cudaError_t rpexec_cuda_experts_bias_weight(const rpexec_cuda_target *target,
                                                       const rpexec_routing *routing,
                                                       uint32_t width, const void *dy,
                                                       bool weighted, bool wide, void *dbias)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        dim3 grid((width + 31) / 32, routing->experts);
        if (wide) {
            return launch(experts_bias_weight<T, float>, grid, BLOCK, 0, target->stream, *routing,
                          width, static_cast<const T *>(dy), weighted, static_cast<float *>(dbias));
        }
        return launch(experts_bias_weight<T, T>, grid, BLOCK, 0, target->stream, *routing, width,
                      static_cast<const T *>(dy), weighted, static_cast<T *>(dbias));
    });
}
