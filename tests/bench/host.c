/* Benchmark of the host backend: how close the passes of an optimizer step come to the memory's
 * bandwidth, and the share of matrix products in a block's forward.
 *
 * Usage: bench_host [REPETITIONS [MIB]] > host.csv
 * MIB: size of each fp32 array (default 256, far above caches).
 * Columns: quantity, case, median, minimum and maximum over the repetitions, unit. The first
 * repetition is a warm-up.
 *
 * Bandwidths count the bytes read plus the bytes written. Per parameter these are 28 B in Adam, 6 B
 * in a refresh or a collect of 16-bit types and 8 B in fp32, 28 B in a fused step of 16-bit types
 * and 32 B in fp32. Lines that a cache fetches before they are overwritten do not count. There are
 * two copy loops: the compiler's loop for `to[i] = from[i]`, and a call of memcpy. Passes and loops
 * run on the same threads, over arrays that these threads touched first. Each pass is compared with
 * the mean of two copy loops, run immediately before and after it, so that other load on the
 * machine hits pass and loops equally.
 *
 * The share in the forward is the time spent inside cblas_sgemm, in linear layers and attention, on
 * a single thread; the linker's --wrap times the calls. The block has the sizes of qwen3-0.6b
 * (hidden 1024). */
#include "common/base/crew.h"
#include "common/inputs/load/models.h"
#include "common/inputs/model.h"
#include "exec/host/lane.h"
#include "exec/model/block.h"
#include "exec/state/pass.h"

#include <cblas.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_REPETITIONS 101

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check(rp_status status, const char *what)
{
    if (status != RP_OK) {
        fprintf(stderr, "bench_host: %s failed\n", what);
        exit(1);
    }
}

/* ---- statistics ------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *quantity, const char *of, double *samples, int count,
                  const char *unit)
{
    qsort(samples, (size_t)count, sizeof *samples, by_value);
    double middle = samples[count / 2];
    double median = count % 2 == 1 ? middle : (samples[count / 2 - 1] + middle) / 2;
    printf("%s,%s,%.4g,%.4g,%.4g,%s\n", quantity, of, median, samples[0], samples[count - 1], unit);
    fflush(stdout);
}

/* ---- passes against copies ------------------------------------------------------------------- */

typedef struct arrays {
    float *p, *g, *m, *v;
    void *half[2]; /* gradients and working weights in 16 bits */
    uint64_t count;
    rpexec_pool *pool;
    rp_dtype dtype;
    uint64_t step;
} arrays;

/* Compiled so that the loop does not become a call of memcpy (CMakeLists.txt). */
RPEXEC_VECTOR
static void copy_floats(float *restrict to, const float *restrict from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        to[i] = from[i];
    }
}

static void copy_piece(void *context, uint64_t first, uint64_t count)
{
    const arrays *a = context;
    copy_floats(a->p + first, a->g + first, count);
}

static void memcpy_piece(void *context, uint64_t first, uint64_t count)
{
    const arrays *a = context;
    memcpy(a->p + first, a->g + first, count * sizeof(float));
}

static void copy_loop(arrays *a)
{
    rpexec_pool_run(a->pool, a->count, copy_piece, a);
}

static void copy_memcpy(arrays *a)
{
    rpexec_pool_run(a->pool, a->count, memcpy_piece, a);
}

static rpexec_adam_factors factors_of(arrays *a)
{
    const rpexec_adam adam = rpexec_adam_defaults();
    return rpexec_adam_factors_of(&adam, ++a->step);
}

static void adam(arrays *a)
{
    const rpexec_adam_factors factors = factors_of(a);
    const rpexec_adam_slice slice = {
        .parameters = a->p, .gradients = a->g, .m = a->m, .v = a->v, .count = a->count};
    rpexec_pass_adam(a->pool, &factors, &slice);
}

static bool is_wide(const arrays *a)
{
    return a->dtype == RP_DTYPE_F32;
}

static void refresh(arrays *a)
{
    rpexec_pass_refresh(a->pool, a->dtype, a->count, a->p, is_wide(a) ? a->g : a->half[1]);
}

static void collect(arrays *a)
{
    const void *from = is_wide(a) ? a->p : a->half[0];
    if (!rpexec_pass_collect(a->pool, a->dtype, a->count, from, 2, false, a->g)) {
        check(RP_BROKEN, "collect");
    }
}

/* The fifth array of the fp32 step is made of both 16-bit arrays. */
static void fused(arrays *a)
{
    const rpexec_adam_factors factors = factors_of(a);
    const rpexec_pass_step step = {
        .dtype = a->dtype,
        .gradients = is_wide(a) ? (void *)a->g : a->half[0],
        .scale = 2,
        .slice = {.parameters = a->p, .m = a->m, .v = a->v, .count = a->count},
        .working = is_wide(a) ? a->half[0] : a->half[1]};
    rpexec_pass_run_step(a->pool, &factors, &step);
}

static double rate(arrays *a, void (*pass)(arrays *a), uint64_t bytes)
{
    double begin = now_s();
    pass(a);
    return 1e-9 * (double)(bytes * a->count) / (now_s() - begin);
}

static void bench_pass(arrays *a, const char *name, void (*pass)(arrays *a), uint64_t bytes,
                       int repetitions, const char *of)
{
    double rates[MAX_REPETITIONS];
    double ratios[MAX_REPETITIONS];
    char quantity[64];
    double before = rate(a, copy_loop, 8);
    for (int i = -1; i < repetitions; i++) {
        int at = i < 0 ? 0 : i;
        rates[at] = rate(a, pass, bytes);
        double after = rate(a, copy_loop, 8);
        ratios[at] = rates[at] / ((before + after) / 2);
        before = after;
    }
    snprintf(quantity, sizeof quantity, "%s_bandwidth", name);
    print(quantity, of, rates, repetitions, "GB/s");
    snprintf(quantity, sizeof quantity, "%s_of_copy_loop", name);
    print(quantity, of, ratios, repetitions, "1");
}

static void fill_piece(void *context, uint64_t first, uint64_t count)
{
    const arrays *a = context;
    float *const all[] = {a->p, a->g, a->m, a->v};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (uint64_t k = first; k < first + count; k++) {
            all[i][k] = 1e-3f * (float)(k % 1000 + 1); /* neither denormals nor zero pages */
        }
    }
    for (size_t i = 0; i < 2; i++) { /* both 16-bit types: finite, no denormals */
        memset((uint16_t *)a->half[i] + first, 0x2c, count * sizeof(uint16_t));
    }
}

static void bench_passes(rp_arena *arena, int repetitions, uint64_t mib)
{
    uint32_t threads = rp_crew_threads(0, RP_CREW_MAX_THREADS);
    arrays a = {.count = (mib << 20) / sizeof(float)};
    check(rpexec_pool_create(threads, arena, &a.pool), "pool");
    float **const all[] = {&a.p, &a.g, &a.m, &a.v};
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        check(rpexec_pass_array(arena, i + 1, a.count, sizeof(float), all[i]), "allocation");
    }
    check(rpexec_pass_array(arena, 0, a.count, sizeof(float), &a.half[0]), "allocation");
    a.half[1] = (uint16_t *)a.half[0] + a.count;
    rpexec_pool_run(a.pool, a.count, fill_piece, &a);
    char of[64];
    snprintf(of, sizeof of, "%" PRIu32 " threads; %" PRIu64 " MiB arrays", threads, mib);
    bench_pass(&a, "copy_loop", copy_loop, 8, repetitions, of);
    bench_pass(&a, "memcpy", copy_memcpy, 8, repetitions, of);
    bench_pass(&a, "adam", adam, 28, repetitions, of);
    for (int i = 0; i < RP_DTYPE_COUNT; i++) {
        a.dtype = (rp_dtype)i;
        uint64_t width = rp_dtype_bytes(a.dtype);
        rpexec_pool_run(a.pool, a.count, fill_piece, &a);
        snprintf(of, sizeof of, "%s; %" PRIu32 " threads; %" PRIu64 " MiB arrays",
                 rp_dtype_text(a.dtype), threads, mib);
        bench_pass(&a, "refresh", refresh, 4 + width, repetitions, of);
        bench_pass(&a, "collect", collect, 4 + width, repetitions, of);
        bench_pass(&a, "step", fused, 24 + 2 * width, repetitions, of);
    }
}

/* ---- a block's forward ----------------------------------------------------------------------- */

static double gemm_s;

void __real_cblas_sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE a_is, CBLAS_TRANSPOSE b_is, blasint m,
                        blasint n, blasint k, float alpha, const float *a, blasint a_row,
                        const float *b, blasint b_row, float beta, float *c, blasint c_row);
void __wrap_cblas_sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE a_is, CBLAS_TRANSPOSE b_is, blasint m,
                        blasint n, blasint k, float alpha, const float *a, blasint a_row,
                        const float *b, blasint b_row, float beta, float *c, blasint c_row);

void __wrap_cblas_sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE a_is, CBLAS_TRANSPOSE b_is, blasint m,
                        blasint n, blasint k, float alpha, const float *a, blasint a_row,
                        const float *b, blasint b_row, float beta, float *c, blasint c_row)
{
    double begin = now_s();
    __real_cblas_sgemm(order, a_is, b_is, m, n, k, alpha, a, a_row, b, b_row, beta, c, c_row);
    gemm_s += now_s() - begin;
}

static float *filled(rp_arena *arena, uint64_t count, float scale)
{
    float *array = NULL;
    check(rp_arena_alloc(arena, count, sizeof(float), &array), "allocation");
    for (uint64_t i = 0; i < count; i++) {
        array[i] = scale * (float)((int64_t)(i * 2654435761u % 2001) - 1000) * 1e-3f;
    }
    return array;
}

static void bench_block(rp_arena *arena, int repetitions, uint32_t seq_len)
{
    rp_model config;
    rpexec_model model;
    check(rp_model_load("qwen3-0.6b", arena, &config), "qwen3-0.6b");
    check(rpexec_model_create(&config, seq_len, RP_DTYPE_F32, arena, &model), "model");
    rpexec_lane lane;
    check(rpexec_host_lane_create(&model, seq_len, arena, &lane), "allocation");
    const rpexec_compute c = {
        .model = &model, .operators = rpexec_host_operators[RP_DTYPE_F32], .lane = &lane};
    float *weights = filled(arena, model.block.floats, 0.05f);
    float *x = filled(arena, (uint64_t)seq_len * config.hidden, 1.0f);
    float *y = filled(arena, (uint64_t)seq_len * config.hidden, 0.0f);
    float *tape = filled(arena, rpexec_block_tape_bytes(&model, seq_len) / sizeof(float), 0.0f);
    float *scratch =
        filled(arena, rpexec_block_scratch_bytes(&model, seq_len) / sizeof(float), 0.0f);
    double seconds[MAX_REPETITIONS];
    double share[MAX_REPETITIONS];
    for (int i = -1; i < repetitions; i++) {
        int at = i < 0 ? 0 : i;
        gemm_s = 0;
        double begin = now_s();
        rpexec_block_forward(&c, 1, weights, 1, x, y, tape, scratch);
        seconds[at] = now_s() - begin;
        share[at] = gemm_s / seconds[at];
    }
    char of[64];
    snprintf(of, sizeof of, "1 x %" PRIu32 " tokens; fp32; 1 thread", seq_len);
    print("block_forward", of, seconds, repetitions, "s");
    print("block_forward_in_gemm", of, share, repetitions, "1");
}

int main(int argc, char **argv)
{
    int repetitions = argc > 1 ? atoi(argv[1]) : 11;
    int mib = argc > 2 ? atoi(argv[2]) : 256;
    if (argc > 3 || repetitions < 1 || repetitions > MAX_REPETITIONS || mib < 1) {
        fprintf(stderr, "usage: bench_host [REPETITIONS, 1 to %d [MIB]]\n", MAX_REPETITIONS);
        return 2;
    }
    openblas_set_num_threads(1);
    rp_arena *arena = NULL;
    check(rp_arena_create(&arena), "arena");
    printf("quantity,case,median,minimum,maximum,unit\n");
    bench_passes(arena, repetitions, (uint64_t)mib);
    bench_block(arena, repetitions, 512);
    bench_block(arena, repetitions, 2048);
    rp_arena_destroy(arena);
    return 0;
}
