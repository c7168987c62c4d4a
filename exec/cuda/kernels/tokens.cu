/* Embedding and loss. */
#include "exec/cuda/kernels/device.cuh"

enum { BLOCK = 256, LOSS_BLOCK = 512 };

/* Blocks of a loss that fill a multiprocessor: it has 1536 threads on 8.6, 8.9 and 12.0, else 2048.
 * The compiler keeps to as many registers. */
#if defined __CUDA_ARCH__ && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
#define LOSS_BLOCKS 3
#else
#define LOSS_BLOCKS 4
#endif

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    embed(uint64_t tokens, uint32_t width, const int32_t *ids, const T *table, T *x, bool whole)
{
    constexpr int N = per_pack<T>::count;
    uint32_t packs = (width + N - 1) / N;
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < tokens * packs;
         i += (uint64_t)gridDim.x * BLOCK) {
        uint64_t t = i / packs;
        uint32_t j = (uint32_t)(i % packs) * N;
        float row[N] = {};
        int32_t id = ids[t];
        if (id >= 0) {
            load<N>(table + (uint64_t)MUTATE(row_of_first_token, id, ids[0]) * width + j, width - j,
                    whole, row);
        }
        store<N>(row, MUTATE(tail_of_row_as_pack, width - j, N), whole, x + t * width + j);
    }
}

/* Copies the ids: without an upload they are the host's, and each read crosses the link. */
__global__ void __launch_bounds__(BLOCK)
    fetch_ids(uint64_t tokens, const int32_t *ids, int32_t *near)
{
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < tokens;
         i += (uint64_t)gridDim.x * BLOCK) {
        near[i] = ids[i];
    }
}

/* Tokens in bins by id, so that no search goes through all tokens. */
struct token_bins {
    uint32_t count;   /* a power of two */
    uint32_t *sizes;  /* [count] */
    uint32_t *begins; /* [count + 1] each bin's beginning in `order` */
    uint32_t *order;  /* tokens by bin, ascending in each, without negative ids */
};

__device__ inline bool is_in(const token_bins &bins, uint32_t bin, int32_t id)
{
    return id >= 0 && ((uint32_t)id & (bins.count - 1)) == bin;
}

/* A block per bin. */
__global__ void __launch_bounds__(BLOCK)
    count_tokens(uint64_t tokens, const int32_t *ids, token_bins bins)
{
    __shared__ uint32_t parts[BLOCK / 32];
    uint32_t mine = 0;
    for (uint64_t t = threadIdx.x; t < tokens; t += BLOCK) {
        mine += is_in(bins, blockIdx.x, ids[t]);
    }
    mine = group_sum<BLOCK>(mine, parts);
    if (threadIdx.x == 0) {
        bins.sizes[blockIdx.x] = mine;
    }
}

/* A block per bin, after count_tokens. */
__global__ void __launch_bounds__(BLOCK)
    order_tokens(uint64_t tokens, const int32_t *ids, token_bins bins)
{
    __shared__ uint32_t parts[BLOCK / 32];
    uint32_t warp = threadIdx.x / 32;
    uint32_t lower = (1u << threadIdx.x % 32) - 1;
    uint32_t before = 0;
    for (uint32_t i = threadIdx.x; i < blockIdx.x; i += BLOCK) {
        before += bins.sizes[i];
    }
    uint32_t at = group_sum<BLOCK>(before, parts);
    if (threadIdx.x == 0) {
        bins.begins[blockIdx.x] = at;
        if (blockIdx.x + 1 == bins.count) {
            bins.begins[bins.count] = at + bins.sizes[blockIdx.x];
        }
    }
    for (uint64_t first = 0; first < tokens; first += BLOCK) {
        uint64_t t = first + threadIdx.x;
        bool mine = t < tokens && is_in(bins, blockIdx.x, ids[t]);
        uint32_t bits = __ballot_sync(0xffffffffu, mine);
        if (threadIdx.x % 32 == 0) {
            parts[warp] = (uint32_t)__popc(bits);
        }
        __syncthreads();
        uint32_t place = at + MUTATE(warps_tokens_descending, (uint32_t)__popc(bits & lower),
                                     (uint32_t)__popc(bits & ~lower) - mine);
        for (uint32_t i = 0; i < BLOCK / 32; i++) {
            place += i < warp ? parts[i] : 0;
            at += parts[i];
        }
        if (mine) {
            bins.order[place] = (uint32_t)t;
        }
        MUTATE(counts_overwritten, __syncthreads(), );
    }
}

/* True, in all threads, if a token of the bin before `place` has the id. */
__device__ inline bool seen_before(const int32_t *ids, const uint32_t *order, uint32_t begin,
                                   uint32_t place, int32_t id)
{
    for (uint32_t first = begin; first < place;
         first += MUTATE(seen_among_first_256, BLOCK, place)) {
        uint32_t at = first + threadIdx.x;
        if (__syncthreads_or(at < place && ids[order[at]] == id)) {
            return true;
        }
    }
    return false;
}

/* If the token at place p of the order is the first of its id, block (p, c) adds the rows of all
 * tokens of the id to the table, by ascending token, a pack of columns per thread. */
template <typename T, typename S>
__global__ void __launch_bounds__(BLOCK)
    embed_weight(uint32_t width, const int32_t *ids, token_bins bins, const T *dx, S *dtable,
                 bool whole)
{
    constexpr int N = per_pack<T>::count;
    __shared__ uint32_t matches[BLOCK / 32];
    uint32_t place = blockIdx.x;
    if (place >= bins.begins[bins.count]) {
        return;
    }
    int32_t id = ids[bins.order[place]];
    uint32_t bin = (uint32_t)id & (bins.count - 1);
    uint32_t end = bins.begins[bin + 1];
    if (seen_before(ids, bins.order, bins.begins[bin], place, id)) {
        return;
    }
    uint32_t column = (blockIdx.y * BLOCK + threadIdx.x) * N;
    uint64_t left = column < width ? width - column : 0;
    float sum[N] = {};
    S *row = dtable + (uint64_t)id * width + column;
    load<N>(row, left, whole, sum);
    for (uint32_t first = place; first < end; first += MUTATE(first_256_of_bin, BLOCK, end)) {
        uint32_t at = first + threadIdx.x;
        uint32_t bits = __ballot_sync(0xffffffffu, at < end && ids[bins.order[at]] == id);
        if (threadIdx.x % 32 == 0) {
            matches[threadIdx.x / 32] = bits;
        }
        __syncthreads();
        for (uint32_t word = 0; word < BLOCK / 32; word++) {
            for (uint32_t rest = matches[MUTATE(descending_tokens, word, BLOCK / 32 - 1 - word)];
                 rest != 0; rest &= rest - 1) {
                uint64_t from =
                    bins.order[first +
                               MUTATE(descending_tokens, word, (BLOCK / 32 - 1 - word)) * 32 +
                               (uint32_t)(__ffs((int)rest) - 1)];
                float in[N];
                load<N>(dx + from * width + column, left, whole, in);
                for (int i = 0; i < N; i++) {
                    MUTATE(rounded_after_each_token,
                           sum[i] += MUTATE(
                               first_token_twice, in[i],
                               (first == place && word == 0 && rest == matches[0] ? 2 : 1) * in[i]),
                           sum[i] = MUTATE_ROUNDED(T, sum[i] + in[i]));
                }
            }
        }
        __syncthreads();
    }
    store<N>(sum, left, whole, row);
}

/* N logits from column j on; 0 beyond the row. */
template <int N, typename T>
__device__ inline void load_logits(const T *z, uint32_t j, uint32_t vocab, float cap, bool whole,
                                   float to[N])
{
    load<N>(z + j, vocab - j, whole, to);
    if (cap > 0.0f) {
        for (int i = 0; i < N; i++) {
            to[i] = capped(to[i], cap);
        }
    }
}

/* Gradients of N logits from column j on; `own` is the label's share. */
template <int N, typename T>
__device__ inline void gradient_of(const T *z, uint32_t j, uint32_t vocab, float cap, bool whole,
                                   float most, float factor, int64_t label, float own, float to[N])
{
    load_logits<N>(z, j, vocab, cap, whole, to);
    for (int i = 0; i < N; i++) {
        float slope = slope_of_cap(to[i], cap);
        to[i] = (expf(to[i] - most) * factor - (j + i == label ? own : 0.0f)) *
                MUTATE(loss_without_slope, slope, 1);
    }
}

/* The largest logit of a thread's share, and the sum of e^(z - most). */
template <int N, typename T>
__device__ inline void share(const T *z, uint32_t vocab, float cap, bool whole, float *most_out,
                             float *sum_out)
{
    float most = -3.402823466e+38f; /* finite, since e^(most - most) must be a number */
    float sum = 0;
    for (uint32_t j = threadIdx.x * N; j < vocab; j += LOSS_BLOCK * N) {
        float in[N];
        float here = most;
        load_logits<N>(z, j, vocab, cap, whole, in);
        for (int i = 0; i < N; i++) {
            here =
                MUTATE(largest_beyond_vocabulary, j + i < vocab, true) ? fmaxf(here, in[i]) : here;
        }
        if (here > most) {
            sum *= MUTATE(loss_sum_does_not_shrink, expf(most - here), 1);
            most = here;
        }
        for (int i = 0; i < N; i++) {
            sum += MUTATE(sum_beyond_vocabulary, j + i < vocab, true) ? expf(in[i] - most) : 0.0f;
        }
    }
    *most_out = most;
    *sum_out = sum;
}

/* The same for a whole row, in all threads of the block. When it returns, the row may be
 * overwritten, and `mosts` and `sums` are free. */
template <int N, typename T>
__device__ inline double row_sum(const T *z, uint32_t vocab, float cap, bool whole, float *mosts,
                                 double *sums, float *most_out)
{
    float mine, sum;
    share<N>(z, vocab, cap, whole, &mine, &sum);
    float most = warp_most(mine);
    if (threadIdx.x % 32 == 0) {
        mosts[threadIdx.x / 32] = most;
    }
    MUTATE(largest_of_warps_to_come, __syncthreads(), );
    for (int i = 0; i < LOSS_BLOCK / 32; i++) {
        most = fmaxf(most, mosts[i]);
    }
    *most_out = most;
    return group_sum<LOSS_BLOCK>((double)sum * (double)expf(MUTATE(own_largest, mine - most, 0.0f)),
                                 sums);
}

template <typename T>
__global__ void __launch_bounds__(LOSS_BLOCK, LOSS_BLOCKS)
    cross_entropy(uint32_t vocab, const int32_t *labels, float cap, float scale, T *logits,
                  double *losses, bool whole)
{
    constexpr int N = per_pack<T>::count;
    __shared__ float mosts[LOSS_BLOCK / 32];
    __shared__ double sums[LOSS_BLOCK / 32];
    uint64_t row = blockIdx.x;
    T *z = logits + row * vocab;
    int64_t label = labels[row];
    bool ignored = label == RPEXEC_IGNORED;
    float most = 0, own = 0;
    double total = 1;
    if (!ignored) {
        own = capped(widen(z[label]), cap);
        total = row_sum<N>(z, vocab, cap, whole, mosts, sums, &most);
    }
    float factor = (float)((double)scale / total);
    for (uint32_t j = threadIdx.x * N; j < vocab; j += LOSS_BLOCK * N) {
        float out[N] = {};
        if (!ignored) {
            gradient_of<N>(z, j, vocab, cap, whole, most, factor, label, scale, out);
        }
        store<N>(out, vocab - j, whole, z + j);
    }
    if (threadIdx.x == 0) {
        losses[row] = ignored ? 0.0
                              : log(total) + (double)most -
                                    (double)MUTATE(label_overwritten, own, widen(z[label]));
    }
}

template <typename T>
__global__ void __launch_bounds__(LOSS_BLOCK, LOSS_BLOCKS)
    row_statistics(uint32_t vocab, float cap, const T *logits, float *statistics, bool whole)
{
    __shared__ float mosts[LOSS_BLOCK / 32];
    __shared__ double sums[LOSS_BLOCK / 32];
    uint64_t row = blockIdx.x;
    float most;
    double total =
        row_sum<per_pack<T>::count>(logits + row * vocab, vocab, cap, whole, mosts, sums, &most);
    if (threadIdx.x == 0) {
        statistics[2 * row] = most;
        statistics[2 * row + 1] = (float)total;
    }
}

/* A row's largest logit in all parts, and the sum of e^(z - largest). */
__device__ inline double join_parts(uint32_t parts, const float *statistics, uint64_t stride,
                                    float *most_out)
{
    float most = statistics[0];
    double total = 0;
    for (uint32_t i = 1; i < parts; i++) {
        most = fmaxf(most, statistics[i * stride]);
    }
    for (uint32_t i = 0; i < parts; i++) {
        total += (double)statistics[i * stride + 1] *
                 (double)expf(MUTATE(own_largest_of_parts, statistics[i * stride] - most, 0.0f));
    }
    *most_out = most;
    return total;
}

template <typename T>
__global__ void __launch_bounds__(LOSS_BLOCK, LOSS_BLOCKS)
    cross_entropy_part(uint32_t vocab, uint32_t first, const int32_t *labels, uint32_t parts,
                       const float *statistics, uint64_t stride, float cap, float scale, T *logits,
                       double *losses, bool whole)
{
    constexpr int N = per_pack<T>::count;
    uint64_t row = blockIdx.x;
    T *z = logits + row * vocab;
    bool ignored = labels[row] == RPEXEC_IGNORED;
    int64_t label = (int64_t)labels[row] - first;
    bool mine = label >= 0 && label < vocab; /* an ignored label is negative */
    float most, own = mine ? capped(widen(z[label]), MUTATE(label_without_cap, cap, 0)) : 0.0f;
    double total = join_parts(parts, statistics + 2 * row, stride, &most);
    float factor = (float)((double)scale / total);
    /* all threads have read the label's logit */
    MUTATE(label_being_overwritten, __syncthreads(), );
    for (uint32_t j = threadIdx.x * N; j < vocab; j += LOSS_BLOCK * N) {
        float out[N] = {};
        if (!ignored) {
            gradient_of<N>(z, j, vocab, cap, whole, most, factor, label, mine ? scale : 0.0f, out);
        }
        store<N>(out, vocab - j, whole, z + j);
    }
    if (threadIdx.x == 0) {
        losses[row] = mine ? log(total) + (double)most - (double)own : 0.0;
    }
}

/* A block per row, which the GPU begins when another has ended: as many as fit at once, each with
 * several rows, would wait for the slowest. */
template <typename... P, typename... A>
static cudaError_t launch_rows(const rpexec_cuda_target *target, void (*kernel)(P...),
                               uint64_t rows, A... arguments)
{
    return launch(kernel, (uint32_t)rows, LOSS_BLOCK, 0, target->stream, arguments...);
}

/* A single block sums each thread's rows, ascending, then threads in order. */
__global__ void __launch_bounds__(BLOCK)
    add_losses(uint64_t rows, const double *losses, double *loss)
{
    __shared__ double parts[BLOCK / 32];
    double sum = 0;
    for (uint64_t row = threadIdx.x; row < rows; row += BLOCK) {
        sum += losses[row];
    }
    sum = group_sum<BLOCK>(sum, parts);
    if (threadIdx.x == 0) {
        MUTATE(loss_so_far_lost, *loss += sum, *loss = sum);
    }
}

/* About 64 tokens per bin for evenly distributed ids; each bin's block looks at all tokens. */
static uint32_t bins_for(uint64_t tokens)
{
    uint32_t bins = 1;
    while (bins < 1024 && bins * UINT64_C(64) < tokens) {
        bins *= 2;
    }
    return bins;
}

extern "C" size_t rpexec_cuda_embed_scratch(uint64_t tokens)
{
    return (2 * tokens + 2 * (uint64_t)bins_for(tokens) + 1) * sizeof(uint32_t);
}

extern "C" cudaError_t rpexec_cuda_embed(const rpexec_cuda_target *target, uint64_t tokens,
                                         uint32_t width, const int32_t *ids, void *scratch,
                                         const void *table, void *x)
{
    int32_t *near = static_cast<int32_t *>(scratch);
    cudaError_t error = launch_loop(target, fetch_ids, BLOCK, tokens, BLOCK, tokens, ids, near);
    if (error != cudaSuccess) {
        return error;
    }
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        constexpr uint32_t N = per_pack<T>::count;
        return launch_loop(target, embed<T>, BLOCK, tokens * ((width + N - 1) / N), BLOCK, tokens,
                           width, static_cast<const int32_t *>(near), static_cast<const T *>(table),
                           static_cast<T *>(x), aligned(16, table, x) && width % N == 0);
    });
}

extern "C" cudaError_t rpexec_cuda_embed_weight(const rpexec_cuda_target *target, uint64_t tokens,
                                                uint32_t width, const int32_t *ids, void *scratch,
                                                const void *dx, bool wide, void *dtable)
{
    int32_t *near = static_cast<int32_t *>(scratch);
    token_bins bins = {};
    bins.count = bins_for(tokens);
    bins.order = reinterpret_cast<uint32_t *>(near + tokens);
    bins.sizes = bins.order + tokens;
    bins.begins = bins.sizes + bins.count;
    cudaError_t error = launch_loop(target, fetch_ids, BLOCK, tokens, BLOCK, tokens, ids, near);
    if (error == cudaSuccess) {
        error = launch(count_tokens, bins.count, BLOCK, 0, target->stream, tokens, near, bins);
    }
    if (error == cudaSuccess) {
        error = launch(order_tokens, bins.count, BLOCK, 0, target->stream, tokens, near, bins);
    }
    if (error != cudaSuccess) {
        return error;
    }
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        constexpr uint32_t N = per_pack<T>::count;
        dim3 grid((uint32_t)tokens, (width + BLOCK * N - 1) / (BLOCK * N));
        if (wide) {
            bool whole =
                aligned(16, dx) && aligned(sizeof(pack<float, N>),
                                           MUTATE(wide_table_unaligned, dtable, (void *)nullptr));
            return launch(embed_weight<T, MUTATE(wide_table_as_half, float, T)>, grid, BLOCK, 0,
                          target->stream, width, near, bins, static_cast<const T *>(dx),
                          static_cast<MUTATE(wide_table_as_half, float, T) *>(dtable),
                          whole && width % N == 0);
        }
        return launch(embed_weight<T, T>, grid, BLOCK, 0, target->stream, width, near, bins,
                      static_cast<const T *>(dx), static_cast<T *>(dtable),
                      aligned(16, dx, dtable) && width % N == 0);
    });
}

extern "C" cudaError_t rpexec_cuda_cross_entropy(const rpexec_cuda_target *target, uint64_t rows,
                                                 uint32_t vocab, const int32_t *labels, float cap,
                                                 float scale, void *z, double *losses, double *loss)
{
    cudaError_t error = for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_rows(target, cross_entropy<T>, rows, vocab, labels, cap, scale,
                           static_cast<T *>(z), losses,
                           aligned(16, z) && vocab % per_pack<T>::count == 0);
    });
    if (error != cudaSuccess || rows == 0) {
        return error;
    }
    return launch(add_losses, 1, BLOCK, 0, target->stream, rows,
                  static_cast<const double *>(losses), loss);
}

extern "C" cudaError_t rpexec_cuda_row_statistics(const rpexec_cuda_target *target, uint64_t rows,
                                                  uint32_t vocab, float cap, const void *z,
                                                  float *statistics)
{
    return for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_rows(target, row_statistics<T>, rows, vocab, cap, static_cast<const T *>(z),
                           statistics, aligned(16, z) && vocab % per_pack<T>::count == 0);
    });
}

extern "C" cudaError_t rpexec_cuda_cross_entropy_part(const rpexec_cuda_target *target,
                                                      uint64_t rows, uint32_t vocab, uint32_t first,
                                                      const int32_t *labels, uint32_t parts,
                                                      const float *statistics, uint64_t stride,
                                                      float cap, float scale, void *z,
                                                      double *losses, double *loss)
{
    cudaError_t error = for_type(target, [&](auto zero) {
        using T = decltype(zero);
        return launch_rows(target, cross_entropy_part<T>, rows, vocab, first, labels, parts,
                           statistics, stride, cap, scale, static_cast<T *>(z), losses,
                           aligned(16, z) && vocab % per_pack<T>::count == 0);
    });
    if (error != cudaSuccess || rows == 0) {
        return error;
    }
    return launch(add_losses, 1, BLOCK, 0, target->stream, rows,
                  static_cast<const double *>(losses), loss);
}
