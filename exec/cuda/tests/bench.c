/* Speed of the CUDA operators, as CSV on stdout: sizes of Qwen3-8B with 8192 tokens. Each operator
 * runs a few times unmeasured, then REPETITIONS times between two events, the L2 cache overwritten
 * before each; the output has the median and the fastest time. Bytes are the least that an operator
 * must read and write, FLOP those of its formula (executor.md section 5): the real rates of the GPU
 * are at least these. Exit status 77: no device. usage: PROGRAM [part of a name]... */
#include "exec/cuda/lane.h"
#include "exec/operators/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 3, REPETITIONS = 21, TENSORS = 8 };
enum { TOKENS = 8192, HIDDEN = 4096, WIDE = 12288, HEADS = 32, KV_HEADS = 8, HEAD = 128 };
enum { VOCAB = 151936, LOSS_ROWS = 512, SEQUENCE = 2048, EXPERTS = 128, ACTIVE = 8 };
enum { EXPERT_HIDDEN = 2048, EXPERT_WIDE = 768 /* Qwen3-30B-A3B */ };
#define TENSOR_BYTES ((size_t)1 << 30)
#define FLUSH_BYTES ((size_t)256 << 20) /* more than any L2 */

typedef struct bench {
    rpexec_lane *lane;
    const rpexec_operators *op;
    void *x[TENSORS]; /* random values of the lane's type */
    float *floats;    /* random values, too */
    int32_t *ids;
    rpexec_routing routing;
    void *flush;
    cudaEvent_t begin, end;
    char **only; /* parts of the names to measure, up to a NULL; none: all */
} bench;

typedef void (*bench_operator)(const bench *b);

/* ---- operators ------------------------------------------------------------------------------- */

static const rpexec_attention_sizes attention_sizes = {
    TOKENS / SEQUENCE, SEQUENCE, HEADS, KV_HEADS, HEAD, 0, 0, 0};
static const rpexec_attention_sizes long_sizes = {1, TOKENS, HEADS, KV_HEADS, HEAD, 0, 0, 0};

static void norm(const bench *b)
{
    b->op->rms_norm(b->lane, TOKENS, HIDDEN, 1e-6f, false, b->x[0], b->x[1], b->x[2], b->floats);
}

static void norm_input(const bench *b)
{
    b->op->rms_norm_input(b->lane, TOKENS, HIDDEN, false, b->x[0], b->x[1], b->floats, b->x[2],
                          b->x[3], b->x[3]);
}

static void norm_weight(const bench *b)
{
    b->op->rms_norm_weight(b->lane, TOKENS, HIDDEN, b->x[0], b->floats, b->x[2], false, b->x[3]);
}

static void head_norm(const bench *b)
{
    b->op->rms_norm(b->lane, (uint64_t)TOKENS * HEADS, HEAD, 1e-6f, false, b->x[0], b->x[1],
                    b->x[2], b->floats);
}

static void head_norm_input(const bench *b)
{
    b->op->rms_norm_input(b->lane, (uint64_t)TOKENS * HEADS, HEAD, false, b->x[0], b->x[1],
                          b->floats, b->x[2], NULL, b->x[3]);
}

static void rotate(const bench *b)
{
    b->op->rotate(b->lane, TOKENS / SEQUENCE, SEQUENCE, HEADS, HEAD, HEAD, b->floats, b->floats,
                  false, b->x[0]);
}

static void swiglu(const bench *b)
{
    b->op->swiglu(b->lane, (uint64_t)TOKENS * WIDE, b->x[0], b->x[1], b->x[2]);
}

static void swiglu_backward(const bench *b)
{
    b->op->swiglu_backward(b->lane, (uint64_t)TOKENS * WIDE, b->x[0], b->x[1], b->x[2], b->x[3],
                           b->x[4]);
}

static void add(const bench *b)
{
    b->op->add(b->lane, (uint64_t)TOKENS * HIDDEN, b->x[0], b->x[1], b->x[2]);
}

static void copy(const bench *b)
{
    b->op->copy(b->lane, (uint64_t)TOKENS * HIDDEN, b->x[0], b->x[1]);
}

/* The rate of the memory itself. */
static void copy_tensor(const bench *b)
{
    b->op->copy(b->lane, TENSOR_BYTES / rp_dtype_bytes(b->lane->dtype), b->x[0], b->x[1]);
}

static void squares(const bench *b)
{
    rpexec_squares sum = {0};
    b->op->squares(b->lane, (uint64_t)HIDDEN * WIDE, b->x[0], &sum);
}

static void embed(const bench *b)
{
    b->op->embed(b->lane, TOKENS, HIDDEN, b->ids, b->x[0], b->x[1]);
}

static void embed_weight(const bench *b)
{
    b->op->embed_weight(b->lane, TOKENS, HIDDEN, b->ids, b->x[0], false, b->x[1]);
}

static void loss(const bench *b)
{
    b->op->cross_entropy(b->lane, LOSS_ROWS, VOCAB, b->ids, 0, 0.01f, b->x[0], (double *)b->x[1]);
}

static void adam(const bench *b)
{
    const rpexec_adam defaults = rpexec_adam_defaults();
    const rpexec_adam_factors factors = rpexec_adam_factors_of(&defaults, 3);
    const rpexec_update update = {.master = b->x[0],
                                  .weights = b->lane->dtype == RP_DTYPE_F32 ? NULL : b->x[1],
                                  .gradients = b->x[2],
                                  .m = b->x[3],
                                  .v = b->x[4],
                                  .scale = 1,
                                  .count = (uint64_t)HIDDEN * WIDE};
    b->op->adam(b->lane, &factors, &update);
}

static void linear(const bench *b)
{
    b->op->linear(b->lane, TOKENS, HIDDEN, WIDE, b->x[0], b->x[1], NULL, b->x[2]);
}

static void linear_input(const bench *b)
{
    b->op->linear_input(b->lane, TOKENS, HIDDEN, WIDE, b->x[0], b->x[1], NULL, b->x[2]);
}

static void linear_weight(const bench *b)
{
    b->op->linear_weight(b->lane, TOKENS, HIDDEN, WIDE, b->x[0], b->x[1], false, b->x[2]);
}

static void attention(const bench *b)
{
    b->op->attention(b->lane, &attention_sizes, b->x[0], b->x[1], b->x[2], b->x[3], b->floats);
}

static void attention_backward(const bench *b)
{
    b->op->attention_backward(b->lane, &attention_sizes, b->x[0], b->x[1], b->x[2], b->x[3],
                              b->floats, b->x[4], b->x[5], b->x[6], b->x[7]);
}

static void long_attention(const bench *b)
{
    b->op->attention(b->lane, &long_sizes, b->x[0], b->x[1], b->x[2], b->x[3], b->floats);
}

static void long_attention_backward(const bench *b)
{
    b->op->attention_backward(b->lane, &long_sizes, b->x[0], b->x[1], b->x[2], b->x[3], b->floats,
                              b->x[4], b->x[5], b->x[6], b->x[7]);
}

static void route(const bench *b)
{
    b->op->route(b->lane, &b->routing, b->x[0]);
}

static const rpexec_matrices matrices = {
    .in = EXPERT_HIDDEN, .out = EXPERT_WIDE, .stride = (uint64_t)EXPERT_HIDDEN * EXPERT_WIDE};

static void experts_linear(const bench *b)
{
    b->op->experts_linear(b->lane, &b->routing, &matrices, b->x[0], b->x[1], false, b->x[2]);
}

static void experts_linear_weight(const bench *b)
{
    b->op->experts_linear_weight(b->lane, &b->routing, &matrices, b->x[2], b->x[0], false, b->x[1]);
}

static void experts_swiglu(const bench *b)
{
    b->op->experts_swiglu(b->lane, &b->routing, EXPERT_WIDE, 1, 0, b->x[0], b->x[1], b->x[2]);
}

static void experts_swiglu_backward(const bench *b)
{
    b->op->experts_swiglu_backward(b->lane, &b->routing, EXPERT_WIDE, 1, 0, b->x[0], b->x[1],
                                   b->x[2], b->x[3], b->x[4], b->floats);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    float left = *(const float *)a;
    float right = *(const float *)b;
    return (left > right) - (left < right);
}

static bool is_asked(const bench *b, const char *name)
{
    char **part = b->only;
    while (*part != NULL && strstr(name, *part) == NULL) {
        part++;
    }
    return *part != NULL || *b->only == NULL;
}

/* @param bytes, @param flop of a run */
static rp_status measure(const bench *b, const char *name, bench_operator operator, double bytes,
                         double flop)
{
    float ms[REPETITIONS];
    if (!is_asked(b, name)) {
        return RP_OK;
    }
    for (int i = 0; i < WARM_UP; i++) {
        operator(b);
    }
    for (int i = 0; i < REPETITIONS; i++) {
        RPEXEC_CUDA_TRY(cudaMemsetAsync(b->flush, i, FLUSH_BYTES, b->lane->stream));
        RPEXEC_CUDA_TRY(cudaEventRecord(b->begin, b->lane->stream));
        operator(b);
        RPEXEC_CUDA_TRY(cudaEventRecord(b->end, b->lane->stream));
        RPEXEC_CUDA_TRY(cudaEventSynchronize(b->end));
        RPEXEC_CUDA_TRY(cudaEventElapsedTime(&ms[i], b->begin, b->end));
    }
    RP_TRY(b->lane->status);
    qsort(ms, REPETITIONS, sizeof *ms, ascending);
    double median = (double)ms[REPETITIONS / 2] * 1e-3;
    printf("%s,%s,%.3f,%.3f,%.0f,%.0f,%.1f,%.2f\n", name, rp_dtype_text(b->lane->dtype),
           median * 1e6, (double)ms[0] * 1e3, bytes, flop, bytes / median * 1e-9,
           flop / median * 1e-12);
    fflush(stdout);
    return RP_OK;
}

static rp_status measure_values(const bench *b, double size)
{
    double small = (double)TOKENS * HIDDEN * size;
    double wide = (double)TOKENS * WIDE * size;
    double logits = (double)LOSS_ROWS * VOCAB * size;
    double count = (double)HIDDEN * WIDE;
    RP_TRY(measure(b, "copy", copy, 2 * small, 0));
    RP_TRY(measure(b, "copy of 1 GiB", copy_tensor, 2.0 * TENSOR_BYTES, 0));
    RP_TRY(measure(b, "add", add, 3 * small, 0));
    RP_TRY(measure(b, "rms_norm", norm, 2 * small, 0));
    RP_TRY(measure(b, "rms_norm of heads", head_norm, 2 * small, 0));
    RP_TRY(measure(b, "rms_norm_input", norm_input, 4 * small, 0));
    RP_TRY(measure(b, "rms_norm_input of heads", head_norm_input, 3 * small, 0));
    RP_TRY(measure(b, "rms_norm_weight", norm_weight, 2 * small, 0));
    RP_TRY(measure(b, "rotate", rotate, 2 * small, 0));
    RP_TRY(measure(b, "swiglu", swiglu, 3 * wide, 0));
    RP_TRY(measure(b, "swiglu_backward", swiglu_backward, 5 * wide, 0));
    RP_TRY(measure(b, "embed", embed, 2 * small, 0));
    RP_TRY(measure(b, "embed_weight", embed_weight, 3 * small, 0));
    RP_TRY(measure(b, "cross_entropy", loss, 3 * logits, 0));
    RP_TRY(measure(b, "squares", squares, count * size, 0));
    return measure(b, "adam", adam, count * (24 + (size == 4 ? 4 : 2 * size)), 0);
}

/* Products of a single matrix, by cuBLAS or our own kernel as the lane chooses. */
static rp_status measure_products(const bench *b, const char *by, double size)
{
    char name[64];
    double flop = 2.0 * TOKENS * HIDDEN * WIDE;
    double bytes = size * ((double)TOKENS * HIDDEN + (double)HIDDEN * WIDE + (double)TOKENS * WIDE);
    snprintf(name, sizeof name, "linear %s", by);
    RP_TRY(measure(b, name, linear, bytes, flop));
    snprintf(name, sizeof name, "linear_input %s", by);
    RP_TRY(measure(b, name, linear_input, bytes, flop));
    snprintf(name, sizeof name, "linear_weight %s", by);
    return measure(b, name, linear_weight, bytes + size * (double)HIDDEN * WIDE, flop);
}

/* Only the causal half is counted; the backward counts 2.5 times the forward. */
static rp_status measure_attention(const bench *b, double size)
{
    double heads = (double)TOKENS * HEAD;
    double bytes = size * heads * (2 * HEADS + 2 * KV_HEADS);
    double flop = 2.0 * TOKENS * SEQUENCE * HEAD * HEADS;
    double more = (double)TOKENS / SEQUENCE;
    RP_TRY(measure(b, "attention", attention, bytes, flop));
    RP_TRY(measure(b, "attention_backward", attention_backward, 2 * bytes, 2.5 * flop));
    RP_TRY(measure(b, "attention, 8192 tokens", long_attention, bytes, more * flop));
    return measure(b, "attention_backward, 8192 tokens", long_attention_backward, 2 * bytes,
                   more * 2.5 * flop);
}

/* Our own kernel and cuDNN, per sequence length, with TOKENS tokens. */
static rpexec_attention_sizes some_sizes;

static void some_attention(const bench *b)
{
    b->op->attention(b->lane, &some_sizes, b->x[0], b->x[1], b->x[2], b->x[3], b->floats);
}

static rp_status measure_lengths(const bench *b, rp_arena *arena, double size)
{
    const char *why = "";
    char name[64];
    if (b->lane->dtype == RP_DTYPE_F32) {
        return RP_OK;
    }
    for (uint32_t length = 512; length <= TOKENS; length *= 2) {
        double bytes = size * (double)TOKENS * HEAD * (2 * HEADS + 2 * KV_HEADS);
        double flop = 2.0 * TOKENS * length * HEAD * HEADS;
        some_sizes =
            (rpexec_attention_sizes){TOKENS / length, length, HEADS, KV_HEADS, HEAD, 0, 0, 0};
        snprintf(name, sizeof name, "attention of %u by our kernel", length);
        RP_TRY(measure(b, name, some_attention, bytes, flop));
        if (rpexec_cuda_lane_plan_attention(b->lane, arena, &some_sizes, &why) != RP_OK) {
            printf("# attention of %u by cuDNN skipped: %s\n", length, why);
            continue;
        }
        snprintf(name, sizeof name, "attention of %u by cuDNN", length);
        RP_TRY(measure(b, name, some_attention, bytes, flop));
        rpexec_cuda_lane_own_attention(b->lane);
    }
    return RP_OK;
}

static rp_status measure_experts(const bench *b, double size)
{
    double rows = (double)b->routing.tokens * ACTIVE;
    double weights = (double)EXPERTS * EXPERT_HIDDEN * EXPERT_WIDE;
    double flop = 2.0 * rows * EXPERT_HIDDEN * EXPERT_WIDE;
    double bytes = size * (rows * EXPERT_HIDDEN + rows * EXPERT_WIDE + weights);
    RP_TRY(measure(b, "route", route, (double)b->routing.tokens * EXPERTS * (size + 4), 0));
    RP_TRY(measure(b, "experts_linear", experts_linear, bytes, flop));
    RP_TRY(measure(b, "experts_swiglu", experts_swiglu, 3 * size * rows * EXPERT_WIDE, 0));
    RP_TRY(measure(b, "experts_swiglu_backward", experts_swiglu_backward,
                   5 * size * rows * EXPERT_WIDE, 0));
    return measure(b, "experts_linear_weight", experts_linear_weight, bytes + size * weights, flop);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Random values of a type, repeated over a tensor. */
static rp_status fill(rp_dtype dtype, rp_arena *arena, size_t bytes, void *to)
{
    enum { COUNT = 1 << 22 };
    float *wide;
    void *narrow;
    size_t piece = COUNT * rp_dtype_bytes(dtype);
    RP_TRY(rp_arena_alloc_raw(arena, COUNT, sizeof *wide, &wide));
    RP_TRY(rp_arena_alloc_raw(arena, COUNT, sizeof *wide, &narrow));
    rpexec_random_normal(3, 0, 1, COUNT, wide);
    if (dtype == RP_DTYPE_F32) {
        narrow = wide;
    } else {
        rpexec_narrow(dtype, COUNT, wide, narrow);
    }
    for (size_t at = 0; at < bytes; at += piece) {
        size_t left = bytes - at < piece ? bytes - at : piece;
        RPEXEC_CUDA_TRY(cudaMemcpy((unsigned char *)to + at, narrow, left, cudaMemcpyHostToDevice));
    }
    return RP_OK;
}

static rp_status give_ids(rp_arena *arena, int32_t **ids_out)
{
    int32_t *ids;
    RP_TRY(rp_arena_alloc(arena, TOKENS, sizeof *ids, &ids));
    for (uint64_t i = 0; i < TOKENS; i++) {
        /* Rows of a table that fills a tensor; as labels they are below the vocabulary, too. */
        ids[i] = (int32_t)(rpexec_random_bits(4, 0, i) % (TENSOR_BYTES / 4 / HIDDEN));
    }
    RPEXEC_CUDA_TRY(cudaMalloc((void **)ids_out, TOKENS * sizeof *ids));
    RPEXEC_CUDA_TRY(cudaMemcpy(*ids_out, ids, TOKENS * sizeof *ids, cudaMemcpyHostToDevice));
    return RP_OK;
}

/* Fewer tokens than elsewhere, so that the gathered rows of fp32 fit into a tensor. */
static rp_status give_routing(rpexec_routing *r)
{
    *r = (rpexec_routing){.tokens = TOKENS / 4, .experts = EXPERTS, .active = ACTIVE};
    size_t rows = (size_t)r->tokens * ACTIVE;
    RPEXEC_CUDA_TRY(
        cudaMalloc((void **)&r->probabilities, (size_t)r->tokens * EXPERTS * sizeof(float)));
    RPEXEC_CUDA_TRY(cudaMalloc((void **)&r->chosen, rows * sizeof *r->chosen));
    RPEXEC_CUDA_TRY(cudaMalloc((void **)&r->rows, rows * sizeof *r->rows));
    RPEXEC_CUDA_TRY(cudaMalloc((void **)&r->weights, rows * sizeof *r->weights));
    RPEXEC_CUDA_TRY(cudaMalloc((void **)&r->begins, (EXPERTS + 1) * sizeof *r->begins));
    return RP_OK;
}

/* Measures a lane's operators; without `all` only its products, which then are not cuBLAS's
 * (`by`). */
static rp_status measure_lane(bench *b, const rpexec_cuda_lane_config *config, rp_arena *arena,
                              const char *by, bool all)
{
    rpexec_lane lane;
    double size = (double)rp_dtype_bytes(config->dtype);
    RP_TRY(rpexec_cuda_lane_open(config, arena, &lane));
    b->lane = &lane;
    b->op = rpexec_cuda_operators[config->dtype];
    RP_TRY(measure_products(b, by, size));
    if (all) {
        RP_TRY(measure_attention(b, size));
        RP_TRY(measure_lengths(b, arena, size));
        route(b);
        RP_TRY(measure_experts(b, size));
        RP_TRY(measure_values(b, size));
    }
    RPEXEC_CUDA_TRY(cudaStreamSynchronize(config->stream));
    rpexec_cuda_lane_close(&lane);
    return RP_OK;
}

static rp_status measure_type(bench *b, rpexec_cuda_lane_config config, rp_arena *arena)
{
    RP_TRY(fill(config.dtype, arena, TENSOR_BYTES, b->x[0]));
    for (int i = 1; i < TENSORS; i++) {
        RPEXEC_CUDA_TRY(cudaMemcpy(b->x[i], b->x[0], TENSOR_BYTES, cudaMemcpyDeviceToDevice));
    }
    RP_TRY(measure_lane(b, &config, arena, "by cuBLAS", true));
    if (config.dtype == RP_DTYPE_F16) {
        config.half_accumulation = true;
        RP_TRY(measure_lane(b, &config, arena, "by cuBLAS with fp16 accumulation", false));
        config.half_accumulation = false;
    }
    config.own_products = true;
    return measure_lane(b, &config, arena, "by our kernel", false);
}

static rp_status run(bench *b, rp_arena *arena, const struct cudaDeviceProp *properties)
{
    cudaStream_t stream;
    RPEXEC_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    RPEXEC_CUDA_TRY(cudaEventCreate(&b->begin));
    RPEXEC_CUDA_TRY(cudaEventCreate(&b->end));
    RPEXEC_CUDA_TRY(cudaMalloc(&b->flush, FLUSH_BYTES));
    RPEXEC_CUDA_TRY(cudaMalloc((void **)&b->floats, (size_t)TOKENS * HEADS * 4 * sizeof(float)));
    RP_TRY(fill(RP_DTYPE_F32, arena, (size_t)TOKENS * HEADS * 4 * sizeof(float), b->floats));
    for (int i = 0; i < TENSORS; i++) {
        RPEXEC_CUDA_TRY(cudaMalloc(&b->x[i], TENSOR_BYTES));
    }
    RP_TRY(give_ids(arena, &b->ids));
    RP_TRY(give_routing(&b->routing));
    printf("operator,dtype,median_us,fastest_us,bytes,flop,gb_per_s,tflop_per_s\n");
    for (int i = 0; i < RP_DTYPE_COUNT; i++) {
        const rpexec_cuda_lane_config config = {.dtype = (rp_dtype)i,
                                                .stream = stream,
                                                .sm_count =
                                                    (uint32_t)properties->multiProcessorCount,
                                                .scratch_bytes = (size_t)64 << 20};
        RP_TRY(measure_type(b, config, arena));
    }
    return RP_OK;
}

int main(int count, char **words)
{
    bench b = {.only = words + (count > 0)};
    struct cudaDeviceProp properties;
    rp_arena *arena;
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(error));
        return 77;
    }
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess ||
        rp_arena_create(&arena) != RP_OK) {
        return 1;
    }
    printf("# %s, compute capability %d.%d, %d multiprocessors\n", properties.name,
           properties.major, properties.minor, properties.multiProcessorCount);
    rp_status status = run(&b, arena, &properties);
    rp_arena_destroy(arena);
    return status == RP_OK ? 0 : 1;
}
