#include "exec/describe/host_bench.h"

#include "common/base/crew.h"
#include "common/base/host_limits.h"
#include "common/base/median.h"
#include "common/lower/lower.h"
#include "exec/measure/platform.h"
#include "exec/state/pass.h"

#include <string.h>
#include <time.h>

#define REPETITIONS 3u
/* The arrays may take this part of the machine's memory: 20 bytes for each parameter. */
#define MEMORY_PART 8

static const uint32_t sizes_mib[] = {4, 64, 256};

#define SIZES (sizeof sizes_mib / sizeof sizes_mib[0])

static const char *const names[] = {
#define PASS_NAME(name, text, bytes) text,
    RPEXEC_HOST_PASSES(PASS_NAME)
#undef PASS_NAME
};

static const uint32_t pass_bytes[] = {
#define PASS_BYTES(name, text, bytes) bytes,
    RPEXEC_HOST_PASSES(PASS_BYTES)
#undef PASS_BYTES
};

typedef struct arrays {
    float *p, *g, *m, *v;
    uint16_t *gradients, *weights; /* of 16 bits, in a single allocation */
    uint64_t most, count;
    rpexec_pool *pool;
    uint64_t step;
} arrays;

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run_pass(arrays *a, rpexec_host_pass pass)
{
    const rpexec_adam adam = rpexec_adam_defaults();
    const rpexec_adam_factors factors = rpexec_adam_factors_of(&adam, ++a->step);
    const rpexec_adam_slice slice = {
        .parameters = a->p, .gradients = a->g, .m = a->m, .v = a->v, .count = a->count};
    switch (pass) {
    case RPEXEC_HOST_ADAM:
        rpexec_pass_adam(a->pool, &factors, &slice);
        break;
    case RPEXEC_HOST_REFRESH:
        rpexec_pass_refresh(a->pool, RP_DTYPE_F16, a->count, a->p, a->weights);
        break;
    case RPEXEC_HOST_COLLECT:
    case RPEXEC_HOST_PASS_COUNT:
        (void)rpexec_pass_collect(a->pool, RP_DTYPE_F16, a->count, a->gradients, 1, false, a->g);
        break;
    }
}

static double median_s(arrays *a, rpexec_host_pass pass)
{
    double seconds[REPETITIONS];
    run_pass(a, pass);
    for (uint32_t i = 0; i < REPETITIONS; i++) {
        double begin_s = now_s();
        run_pass(a, pass);
        seconds[i] = now_s() - begin_s;
    }
    return rp_median(seconds, REPETITIONS);
}

static void measure_row(arrays *a, rpexec_host_bench *bench, uint32_t threads, uint32_t mib)
{
    rpexec_host_row *row = &bench->rows[bench->row_count++];
    double sum_s = 0;
    double bytes = 0;
    *row = (rpexec_host_row){.threads = threads, .mib = mib};
    for (uint32_t pass = 0; pass < RPEXEC_HOST_PASS_COUNT; pass++) {
        double seconds = median_s(a, (rpexec_host_pass)pass);
        double traffic = (double)pass_bytes[pass] * (double)a->count;
        row->Bps[pass] = traffic / seconds;
        sum_s += seconds;
        bytes += traffic;
    }
    bench->whole_Bps = bytes / sum_s;
}

static void fill_piece(void *context, uint64_t first, uint64_t count)
{
    const arrays *a = context;
    for (uint64_t i = first; i < first + count; i++) { /* values without denormals and pages other
                                                          than the zero page */
        a->p[i] = a->g[i] = a->m[i] = a->v[i] = 1e-3f * (float)(i % 1000 + 1);
        a->gradients[i] = a->weights[i] = 0x2c2c;
    }
}

/* Pages lie near the threads that touch them first, so the first call must have all threads. */
static rp_status measure_threads(arrays *a, uint32_t threads, bool first, rpexec_host_bench *bench)
{
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rpexec_pool_create(threads, arena, &a->pool);
    if (status == RP_OK && first) {
        rpexec_pool_run(a->pool, a->most, fill_piece, a);
    }
    for (size_t i = 0; status == RP_OK && i < SIZES; i++) {
        a->count = ((uint64_t)sizes_mib[i] << 20) / sizeof(float);
        if (a->count <= a->most && bench->row_count < RPEXEC_HOST_ROWS) {
            measure_row(a, bench, threads, sizes_mib[i]);
        }
    }
    rp_arena_destroy(arena);
    return status;
}

static rp_status measure(arrays *a, rpexec_pins *pins, rpexec_host_bench *bench)
{
    uint32_t all = rp_crew_threads(0, RP_CREW_MAX_THREADS);
    RP_TRY(measure_threads(a, all, true, bench)); /* first touches the memory that is then pinned */
    bench->row_count = 0;
    size_t bytes = 2 * a->most * sizeof *a->gradients;
    bench->pinned = pins != NULL && rpexec_pins_add(pins, a->gradients, bytes);
    rp_status status = RP_OK;
    for (uint32_t threads = 1; threads < all && status == RP_OK; threads *= 2) {
        status = measure_threads(a, threads, false, bench);
    }
    status = status == RP_OK ? measure_threads(a, all, false, bench) : status;
    if (bench->pinned) {
        rpexec_pins_remove(pins, a->gradients);
    }
    return status;
}

static uint64_t most_floats(void)
{
    size_t i = SIZES - 1;
    while (i > 0 && 20.0 / 4 * sizes_mib[i] * 1048576 * MEMORY_PART > rp_host_memory_physical()) {
        i--;
    }
    return ((uint64_t)sizes_mib[i] << 20) / sizeof(float);
}

rp_status rpexec_host_bench_run(rpexec_pins *pins, rpexec_host_bench *bench)
{
    rp_arena *arena = NULL;
    arrays a = {.most = most_floats()};
    float **const all[] = {&a.p, &a.g, &a.m, &a.v};
    *bench = (rpexec_host_bench){0};
    RP_TRY(rp_arena_create(&arena));
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < 4 && status == RP_OK; i++) {
        status = rpexec_pass_array(arena, i + 1, a.most, sizeof(float), all[i]);
    }
    if (status == RP_OK) {
        status = rpexec_pass_array(arena, 0, a.most, sizeof(float), &a.gradients);
        a.weights = status == RP_OK ? a.gradients + a.most : NULL;
    }
    status = status == RP_OK ? measure(&a, pins, bench) : status;
    rp_arena_destroy(arena);
    return status;
}

void rpexec_host_bench_write(const rpexec_host_bench *bench, FILE *stream)
{
    fprintf(stream, "# The host's part of a step in GB/s, on %s memory (threads, MiB of fp32):\n#",
            bench->pinned ? "pinned" : "pageable");
    fprintf(stream, " %7s %6s", "threads", "MiB");
    for (size_t pass = 0; pass < RPEXEC_HOST_PASS_COUNT; pass++) {
        fprintf(stream, " %8s", names[pass]);
    }
    fputc('\n', stream);
    for (uint32_t i = 0; i < bench->row_count; i++) {
        const rpexec_host_row *row = &bench->rows[i];
        fprintf(stream, "# %7u %6u", row->threads, row->mib);
        for (size_t pass = 0; pass < RPEXEC_HOST_PASS_COUNT; pass++) {
            fprintf(stream, " %8.2f", 1e-9 * row->Bps[pass]);
        }
        fputc('\n', stream);
    }
}
