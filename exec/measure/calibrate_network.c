/* Measures sums over the processes of a run. */
#include "common/base/median.h"
#include "exec/measure/calibrate.h"

#include <math.h>

/* Sums of each size; the first sum does not count. They follow each other, as the sums of layers
 * do. */
#define SUMS 9u
#define LEAST_BYTES (UINT64_C(16) << 10)
#define MOST_BYTES (UINT64_C(16) << 20)
#define GROWTH 4u
#define MOST_SIZES 6u
/* Seconds of a size's sums in the slowest process, after which no larger sizes are measured. */
#define BUDGET_S 0.5

/* Nothing else uses this tag while a record is made. */
#define TAG (UINT64_C(1) << 63)

static double now_s(void)
{
    return 1e-9 * (double)rpexec_driver_now_ns();
}

/* @param spent_out seconds of all sums in the slowest process, the same value in all processes */
static rp_status measure_size(rpexec_processes *processes, uint64_t bytes, float *array,
                              double *median_out, double *spent_out)
{
    double seconds[SUMS - 1];
    double all[RPEXEC_MAX_PROCESSES];
    RP_TRY(rpexec_processes_meet(processes));
    double begin_s = now_s();
    double last_s = begin_s;
    for (uint32_t i = 0; i < SUMS; i++) {
        RP_TRY(rpexec_processes_all_reduce(processes, TAG, RP_DTYPE_F32, bytes / sizeof *array,
                                           array));
        double end_s = now_s();
        if (i > 0) {
            seconds[i - 1] = end_s - last_s;
        }
        last_s = end_s;
    }
    *median_out = rp_median(seconds, SUMS - 1);
    *spent_out = 0;
    RP_TRY(rpexec_processes_gather(processes, TAG, last_s - begin_s, all));
    for (uint32_t i = 0; i < rpexec_processes_count(processes); i++) {
        *spent_out = fmax(*spent_out, all[i]);
    }
    return RP_OK;
}

static rp_status measure_sizes(rpexec_processes *processes, rp_arena *arena,
                               rpexec_link_fit *fit_out)
{
    uint32_t n = rpexec_processes_count(processes);
    double bytes[MOST_SIZES];
    double seconds[MOST_SIZES];
    double spent_s = 0;
    uint32_t sizes = 0;
    float *array = NULL;
    RP_TRY(rp_arena_alloc(arena, MOST_BYTES / sizeof *array, sizeof *array, &array));
    for (uint64_t size = LEAST_BYTES; size <= MOST_BYTES && spent_s < BUDGET_S; size *= GROWTH) {
        bytes[sizes] = 2.0 * (n - 1) / n * (double)size;
        RP_TRY(measure_size(processes, size, array, &seconds[sizes], &spent_s));
        sizes++;
    }
    *fit_out = rpexec_link_fit_of(sizes, bytes, seconds, INFINITY);
    return RP_OK;
}

rp_status rpexec_calibrate_network(rpexec_processes *processes, rp_arena *arena,
                                   rpexec_link_fit *fit_out)
{
    *fit_out = (rpexec_link_fit){0};
    if (processes == NULL) {
        return RP_OK;
    }
    RP_TRY(rpexec_processes_meet(processes)); /* earlier messages have left */
    double bits_per_s = rpexec_processes_limit(processes, 0);
    rp_status status = measure_sizes(processes, arena, fit_out);
    (void)rpexec_processes_limit(processes, bits_per_s);
    if (status == RP_OK && bits_per_s > 0) {
        rpexec_link_fit limited;
        RP_TRY(rpexec_processes_meet(processes));
        status = measure_sizes(processes, arena, &limited);
        fit_out->overhead_s = limited.overhead_s;
    }
    return status;
}
