#include "exec/host/rates.h"

#include "common/base/crew.h"
#include "common/base/median.h"
#include "common/base/mem.h"
#include "common/lower/lower.h"
#include "exec/host/lane.h"
#include "exec/state/pass.h"

#include <cblas.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* Three matrices of this size stay in a core's own cache. A thread multiplies for MULTIPLY_S,
 * however fast it is, PRODUCTS at a time. */
#define SIZE 128
#define PRODUCTS 25u
#define MULTIPLY_S 0.01
/* Rounds of measuring alone and together in turn: the median counts, since others use the machine,
 * too. */
#define ROUNDS 5u
/* Two medians are trusted if they differ by at most the share AGREES and reach the share FULL of
 * all threads. Otherwise further measurements follow, PAUSE_NS apart: a hypervisor that has put two
 * processors on the same core (awake.h; seen: 1.07 instead of 1.97, for up to 1.5 s) takes a while
 * to part them. Hyperthreads are always below FULL, and cost 2 s more. */
#define AGREES 0.1
#define FULL 0.75
#define PAUSE_NS 200000000L
/* Floats of an array: several arrays are larger than the caches. */
#define COUNT (UINT64_C(1) << 22)
#define ARRAYS 4u
#define SCRATCH (UINT64_C(1) << 16)

typedef struct bench {
    rp_dtype dtype; /* type of gradients and working weights */
    float *arrays;  /* [thread][ARRAYS * COUNT], then scratch */
    double (*work)(rp_dtype dtype, float *arrays);
    double rates[RP_CREW_MAX_THREADS];
    rpexec_host_rates found;
} bench;

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- threads' work: amounts, per second of processor time ------------------------------------ */

static double multiply(rp_dtype dtype, float *a)
{
    double end_s = thread_s() + MULTIPLY_S;
    double products = 0;
    (void)dtype;
    while (thread_s() < end_s) {
        for (uint32_t i = 0; i < PRODUCTS; i++) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIZE, SIZE, SIZE, 1.0f, a, SIZE,
                        a + SIZE * SIZE, SIZE, 0.0f, a + 2 * SIZE * SIZE, SIZE);
        }
        products += PRODUCTS;
    }
    return products;
}

static double copy_floats(rp_dtype dtype, float *a)
{
    (void)dtype;
    memcpy(a, a + COUNT, COUNT * sizeof(float));
    return COUNT * sizeof(float);
}

/* Works as a rank does: values of another rank are copied, then added (run/rank_collective.c). */
static double reduce(rp_dtype dtype, float *a)
{
    (void)dtype;
    memcpy(a, a + COUNT, COUNT * sizeof(float));
    for (uint64_t i = 0; i < COUNT; i++) {
        a[2 * COUNT + i] += a[i];
    }
    return COUNT * sizeof(float);
}

/* Parameters that a GPU's UPDATE steps: in 16 bits, weights and gradients share an array. */
static double update(rp_dtype dtype, float *a)
{
    const rpexec_adam adam = rpexec_adam_defaults();
    const rpexec_adam_factors factors = rpexec_adam_factors_of(&adam, 1);
    bool wide = dtype == RP_DTYPE_F32;
    rpexec_lane lane = {.dtype = dtype, .scratch = a + ARRAYS * COUNT, .scratch_count = SCRATCH};
    const rpexec_update what = {.master = a,
                                .weights = wide ? NULL : rpexec_element(dtype, a + COUNT, COUNT),
                                .gradients = a + COUNT,
                                .m = a + 2 * COUNT,
                                .v = a + 3 * COUNT,
                                .scale = 1,
                                .count = COUNT};
    rpexec_host_operators[dtype]->adam(&lane, &factors, &what);
    return COUNT;
}

/* Parameters of the host's ops: collecting gradients, Adam, refreshing working weights. */
static double collect_gradients(rp_dtype dtype, float *a)
{
    (void)rpexec_pass_collect(NULL, dtype, COUNT, a + COUNT, 1, false, a);
    return COUNT;
}

static double step(rp_dtype dtype, float *a)
{
    const rpexec_adam adam = rpexec_adam_defaults();
    const rpexec_adam_slice slice = {.parameters = a,
                                     .gradients = a + COUNT,
                                     .m = a + 2 * COUNT,
                                     .v = a + 3 * COUNT,
                                     .count = COUNT};
    (void)dtype;
    rpexec_adam_step(&adam, 1, &slice);
    return COUNT;
}

static double refresh(rp_dtype dtype, float *a)
{
    rpexec_pass_refresh(NULL, dtype, COUNT, a, a + COUNT);
    return COUNT;
}

/* ---- alone and together ---------------------------------------------------------------------- */

static rp_status measure_rate(void *context, uint32_t thread)
{
    bench *b = context;
    float *arrays = b->arrays + (size_t)thread * (ARRAYS * COUNT + SCRATCH);
    double begin_s = thread_s();
    double amount = b->work(b->dtype, arrays);
    b->rates[thread] = amount / (thread_s() - begin_s);
    return RP_OK;
}

static double alone(bench *b, double (*what)(rp_dtype dtype, float *arrays))
{
    b->work = what;
    (void)measure_rate(b, 0); /* a warm-up: clocks go up, pages and BLAS's buffers appear */
    (void)measure_rate(b, 0);
    return b->rates[0];
}

/* @return the sum of all threads' rates */
static double together(bench *b, uint32_t threads, double (*what)(rp_dtype dtype, float *arrays))
{
    double sum = 0;
    b->work = what;
    (void)rp_crew_run(threads, threads, measure_rate, b);
    (void)rp_crew_run(threads, threads, measure_rate, b);
    for (uint32_t i = 0; i < threads; i++) {
        sum += b->rates[i];
    }
    return sum;
}

double rpexec_host_settle(double (*measure)(void *context), void (*between)(void *context),
                          double all, void *context)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    double values[RPEXEC_SETTLE_MOST];
    values[0] = measure(context);
    between(context);
    values[1] = measure(context);
    double least = fmin(values[0], values[1]);
    if (fabs(values[1] - values[0]) <= AGREES * least && least >= FULL * all) {
        return rp_median(values, 2);
    }
    for (uint32_t i = 2; i < RPEXEC_SETTLE_MOST; i++) {
        (void)nanosleep(&pause, NULL);
        values[i] = measure(context);
    }
    return rp_median(values, RPEXEC_SETTLE_MOST);
}

static double measure_cores(void *context)
{
    bench *b = context;
    uint32_t threads = b->found.threads;
    double ratios[ROUNDS];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        double one = alone(b, multiply);
        ratios[i] = together(b, threads, multiply) / one;
    }
    double median = rp_median(ratios, ROUNDS);
    return median < 1 ? 1 : median > threads ? threads : median;
}

static void measure_rates(void *context)
{
    bench *b = context;
    rpexec_host_rates *r = &b->found;
    r->flops = 2.0 * SIZE * SIZE * SIZE * alone(b, multiply);
    r->copy_Bps = alone(b, copy_floats);
    r->update_Bps = RP_GPU_ADAM_BYTES * together(b, r->threads, update) / r->threads;
    r->collect_s = r->threads / together(b, r->threads, collect_gradients);
    r->step_s = r->threads / together(b, r->threads, step);
    r->refresh_s = r->threads / together(b, r->threads, refresh);
    r->collective_Bps = 2 / (1 / r->copy_Bps + 1 / alone(b, reduce));
}

rp_status rpexec_host_measure(rp_dtype dtype, rpexec_host_rates *rates_out)
{
    uint32_t threads = rp_crew_threads(0, RP_CREW_MAX_THREADS);
    rp_arena *arena = NULL;
    bench b = {.dtype = dtype, .found = {.threads = threads}};
    openblas_set_num_threads(1); /* a product is the work of the thread that asks for it */
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, (size_t)threads * (ARRAYS * COUNT + SCRATCH),
                                      sizeof(float), &b.arrays);
    status = status == RP_OK ? rpexec_host_reserve_buffers(threads) : status;
    if (status == RP_OK) {
        b.found.cores = rpexec_host_settle(measure_cores, measure_rates, b.found.threads, &b);
        *rates_out = b.found;
    }
    rp_arena_destroy(arena);
    return status;
}

double rpexec_host_Bps(const rpexec_host_rates *rates, uint32_t threads)
{
    double seconds = rates->collect_s + rates->step_s + rates->refresh_s;
    return threads * (RP_COLLECT_BYTES + RP_ADAM_BYTES + RP_REFRESH_BYTES) / seconds;
}
