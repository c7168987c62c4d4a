/* Benchmark of the host backend: how near Adam comes to the memory's bandwidth, and how much of a
 * block's forward is matrix products.
 *
 * Usage: bench_host [REPETITIONS [MIB]] > host.csv
 * MIB: size of each of Adam's four arrays and of the copied ones (default 256, far above caches).
 * Columns: quantity, case, median, minimum and maximum over the repetitions, unit. One warm-up.
 *
 * Bandwidths count what is read plus what is written (Adam: 28 B per parameter), not the lines that
 * a cache fetches before they are overwritten. Two copy loops: one that a compiler makes of
 * `to[i] = from[i]` and one that calls memcpy, which writes around the caches. Adam and the copies
 * alternate, on the same threads, so that other load hits them alike.
 *
 * The share of the forward counts the time inside cblas_sgemm, linear layers and attention, on one
 * thread; calls are timed by the linker's --wrap. Block: the sizes of qwen3-0.6b (hidden 1024). */
#include "common/crew.h"
#include "common/model.h"
#include "exec/adam.h"
#include "exec/host/lane.h"
#include "exec/model/block.h"

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

/* ---- statistics -------------------------------------------------------------------------------
 */

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

/* ---- Adam against copies ----------------------------------------------------------------------
 */

typedef struct arrays {
    float *p, *g, *m, *v;
    uint64_t count;
    uint32_t threads;
} arrays;

typedef struct copying {
    float *to;
    const float *from;
    uint64_t count;
    uint32_t parts;
} copying;

static void part_of(const copying *c, uint32_t job, uint64_t *begin, uint64_t *end)
{
    *begin = c->count * job / c->parts;
    *end = c->count * (job + 1) / c->parts;
}

/* Compiled so that this does not become a call of memcpy (CMakeLists.txt). */
RPEXEC_VECTOR
static void copy_floats(float *restrict to, const float *restrict from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        to[i] = from[i];
    }
}

static rp_status copy_loop(void *context, uint32_t job)
{
    const copying *c = context;
    uint64_t begin;
    uint64_t end;
    part_of(c, job, &begin, &end);
    copy_floats(c->to + begin, c->from + begin, end - begin);
    return RP_OK;
}

static rp_status copy_memcpy(void *context, uint32_t job)
{
    const copying *c = context;
    uint64_t begin;
    uint64_t end;
    part_of(c, job, &begin, &end);
    memcpy(c->to + begin, c->from + begin, (end - begin) * sizeof(float));
    return RP_OK;
}

static double copy_rate(const arrays *a, rp_crew_job how)
{
    copying c = {.to = a->p, .from = a->g, .count = a->count, .parts = a->threads};
    double begin = now_s();
    check(rp_crew_run(a->threads, c.parts, how, &c), "copy");
    return 8e-9 * (double)a->count / (now_s() - begin);
}

static double adam_rate(const arrays *a, uint64_t step)
{
    rpexec_adam adam = rpexec_adam_defaults();
    rpexec_adam_slice slice = {
        .parameters = a->p, .gradients = a->g, .m = a->m, .v = a->v, .count = a->count};
    double begin = now_s();
    rpexec_adam_steps(&adam, step, &slice, 1, a->threads);
    return 28e-9 * (double)a->count / (now_s() - begin);
}

static void bench_adam(rp_arena *arena, int repetitions, uint64_t mib)
{
    arrays a = {.count = (mib << 20) / sizeof(float),
                .threads = rp_crew_threads(0, RP_CREW_MAX_THREADS)};
    float **const all[] = {&a.p, &a.g, &a.m, &a.v};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        check(rp_arena_alloc(arena, a.count, sizeof(float), all[i]), "allocation");
        for (uint64_t k = 0; k < a.count; k++) {
            (*all[i])[k] = 1e-3f * (float)(k % 1000 + 1); /* no denormals, no zero pages */
        }
    }
    double adam[MAX_REPETITIONS];
    double loop[MAX_REPETITIONS];
    double library[MAX_REPETITIONS];
    double ratio[MAX_REPETITIONS];
    double ratio_library[MAX_REPETITIONS];
    for (int i = -1; i < repetitions; i++) {
        int at = i < 0 ? 0 : i;
        adam[at] = adam_rate(&a, (uint64_t)(i + 2));
        loop[at] = copy_rate(&a, copy_loop);
        library[at] = copy_rate(&a, copy_memcpy);
        ratio[at] = adam[at] / loop[at];
        ratio_library[at] = adam[at] / library[at];
    }
    char of[64];
    snprintf(of, sizeof of, "%" PRIu32 " threads; %" PRIu64 " MiB arrays", a.threads, mib);
    print("adam_bandwidth", of, adam, repetitions, "GB/s");
    print("copy_loop_bandwidth", of, loop, repetitions, "GB/s");
    print("memcpy_bandwidth", of, library, repetitions, "GB/s");
    print("adam_of_copy_loop", of, ratio, repetitions, "1");
    print("adam_of_memcpy", of, ratio_library, repetitions, "1");
}

/* ---- a block's forward ------------------------------------------------------------------------
 */

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
    check(rpexec_model_create(&config, seq_len, RPEXEC_DTYPE_F32, arena, &model), "model");
    rpexec_lane lane;
    check(rpexec_host_lane_create(&model, seq_len, arena, &lane), "allocation");
    const rpexec_compute c = {
        .model = &model, .operators = rpexec_host_operators[RPEXEC_DTYPE_F32], .lane = &lane};
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
        rpexec_block_forward(&c, weights, 1, x, y, tape, scratch);
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
    bench_adam(arena, repetitions, (uint64_t)mib);
    bench_block(arena, repetitions, 512);
    bench_block(arena, repetitions, 2048);
    rp_arena_destroy(arena);
    return 0;
}
