#include "exec/host/rates.h"

#include "common/crew.h"
#include "common/lower.h"
#include "common/mem.h"
#include "exec/adam.h"

#include <cblas.h>
#include <string.h>
#include <time.h>

/* Three matrices of this size stay in a core's own cache. */
#define SIZE 128
#define PRODUCTS 1000u
/* Floats of an array: several of them are more than caches hold. */
#define COUNT (UINT64_C(1) << 22)
#define ARRAYS 4u

typedef struct bench {
    float *arrays; /* [thread][ARRAYS * COUNT] */
    double (*work)(float *arrays);
    double rates[RP_CREW_MAX_THREADS];
} bench;

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- what threads do: amounts, per second of processor time ----------------------------------
 */

static double multiply(float *a)
{
    for (uint32_t i = 0; i < PRODUCTS; i++) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIZE, SIZE, SIZE, 1.0f, a, SIZE,
                    a + SIZE * SIZE, SIZE, 0.0f, a + 2 * SIZE * SIZE, SIZE);
    }
    return PRODUCTS;
}

static double copy(float *a)
{
    memcpy(a, a + COUNT, COUNT * sizeof(float));
    return COUNT * sizeof(float);
}

/* As a rank does: what comes of another one is copied, then added (host/collective.c). */
static double reduce(float *a)
{
    memcpy(a, a + COUNT, COUNT * sizeof(float));
    for (uint64_t i = 0; i < COUNT; i++) {
        a[2 * COUNT + i] += a[i];
    }
    return COUNT * sizeof(float);
}

static double update(float *a)
{
    const rpexec_adam adam = rpexec_adam_defaults();
    const rpexec_adam_slice slice = {.parameters = a,
                                     .gradients = a + COUNT,
                                     .m = a + 2 * COUNT,
                                     .v = a + 3 * COUNT,
                                     .count = COUNT};
    rpexec_adam_step(&adam, 1, &slice);
    return (double)RP_GPU_ADAM_BYTES * COUNT;
}

/* ---- alone and together -----------------------------------------------------------------------
 */

static rp_status work(void *context, uint32_t thread)
{
    bench *b = context;
    float *arrays = b->arrays + (size_t)thread * ARRAYS * COUNT;
    double begin_s = thread_s();
    double amount = b->work(arrays);
    b->rates[thread] = amount / (thread_s() - begin_s);
    return RP_OK;
}

static double alone(bench *b, double (*what)(float *arrays))
{
    b->work = what;
    (void)work(b, 0); /* clocks go up, pages and BLAS's buffers appear */
    (void)work(b, 0);
    return b->rates[0];
}

/* @return the sum of all threads' rates */
static double together(bench *b, uint32_t threads, double (*what)(float *arrays))
{
    double sum = 0;
    b->work = what;
    (void)rp_crew_run(threads, threads, work, b);
    (void)rp_crew_run(threads, threads, work, b);
    for (uint32_t i = 0; i < threads; i++) {
        sum += b->rates[i];
    }
    return sum;
}

rp_status rpexec_host_measure(rpexec_host_rates *rates_out)
{
    uint32_t threads = rp_crew_threads(0, RP_CREW_MAX_THREADS);
    rp_arena *arena = NULL;
    bench b = {0};
    RP_TRY(rp_arena_create(&arena));
    rp_status status =
        rp_arena_alloc(arena, (size_t)threads * ARRAYS * COUNT, sizeof(float), &b.arrays);
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    double one = alone(&b, multiply);
    double cores = together(&b, threads, multiply) / one;
    *rates_out = (rpexec_host_rates){.cores = cores < 1         ? 1
                                              : cores > threads ? threads
                                                                : cores,
                                     .threads = threads,
                                     .copy_Bps = alone(&b, copy),
                                     .update_Bps = together(&b, threads, update) / threads};
    rates_out->collective_Bps = 2 / (1 / rates_out->copy_Bps + 1 / alone(&b, reduce));
    rp_arena_destroy(arena);
    return RP_OK;
}
