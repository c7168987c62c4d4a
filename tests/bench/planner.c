/* Benchmark: rp_plan_make on models of growing length, in every mode.
 *
 * Usage: bench_planner [REPETITIONS] > planner.csv
 * Columns: layers, mode, repetitions, median and minimum microseconds of a plan. Layers have
 * irregular lengths (splitmix64, fixed seed), with an empty embedding and a heavy head; the memory
 * limit holds eight layers, and the tolerance is 1.1. The first plan of each row is a warm-up. */
#include "common/planner/planner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_REPETITIONS 1001

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static rp_status fill(uint32_t layers, rp_arena *arena, rp_plan_input *input)
{
    uint64_t state = 1;
    int64_t *times[2] = {0};
    uint64_t *bytes[2] = {0};
    for (int i = 0; i < 2; i++) {
        RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &times[i]));
        RP_TRY(rp_arena_alloc(arena, layers, sizeof(uint64_t), &bytes[i]));
    }
    for (uint32_t i = 0; i < layers; i++) { /* picoseconds: 7.4 ms with 5 % on top, and bytes */
        times[0][i] = (int64_t)(UINT64_C(7400000000) + next_random(&state) % 370000000);
        times[1][i] = 3 * times[0][i];
        bytes[0][i] = 100000000;
        bytes[1][i] = 200000000;
    }
    times[0][0] = times[1][0] = 0;
    times[0][layers - 1] *= 3;
    times[1][layers - 1] *= 3;
    *input = (rp_plan_input){.layers = layers,
                             .fwd_time = times[0],
                             .bwd_time = times[1],
                             .fwd_bytes = bytes[0],
                             .bwd_bytes = bytes[1],
                             .memory_limit = UINT64_C(3200000000),
                             .min_stages = 8,
                             .tolerance_num = 11,
                             .tolerance_den = 10};
    return RP_OK;
}

static rp_status time_plan(const rp_plan_input *input, double *us_out)
{
    rp_arena *arena = NULL;
    rp_plan plan;
    RP_TRY(rp_arena_create(&arena));
    double begin_us = now_us();
    rp_status status = rp_plan_make(input, arena, &plan, NULL);
    *us_out = now_us() - begin_us;
    rp_arena_destroy(arena);
    return status;
}

static rp_status bench(uint32_t layers, rp_plan_mode mode, int repetitions, rp_arena *arena)
{
    rp_plan_input input;
    double us[MAX_REPETITIONS];
    RP_TRY(fill(layers, arena, &input));
    input.mode = mode;
    RP_TRY(time_plan(&input, &us[0])); /* warm-up */
    for (int i = 0; i < repetitions; i++) {
        RP_TRY(time_plan(&input, &us[i]));
    }
    qsort(us, (size_t)repetitions, sizeof us[0], compare_doubles);
    printf("%" PRIu32 ",%s,%d,%.1f,%.1f\n", layers, rp_plan_mode_text(mode), repetitions,
           us[repetitions / 2], us[0]);
    fflush(stdout);
    return RP_OK;
}

static rp_status bench_all(int repetitions, rp_arena *arena)
{
    static const uint32_t layers[] = {10, 30, 100, 200, 1000, 10000, 65536};
    static const rp_plan_mode modes[] = {RP_PLAN_INFER, RP_PLAN_TRAIN, RP_PLAN_FUSED};
    puts("layers,mode,repetitions,median_us,min_us");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        for (size_t k = 0; k < sizeof modes / sizeof modes[0]; k++) {
            int times = layers[i] > 1000 && repetitions > 5 ? 5 : repetitions;
            RP_TRY(bench(layers[i], modes[k], times, arena));
        }
    }
    return RP_OK;
}

int main(int argc, char **argv)
{
    int repetitions = argc > 1 ? atoi(argv[1]) : 51;
    if (repetitions < 1 || repetitions > MAX_REPETITIONS) {
        fprintf(stderr, "bench: valid repetitions are 1 to %d\n", MAX_REPETITIONS);
        return 2;
    }
    rp_arena *arena = NULL;
    rp_status status = rp_arena_create(&arena);
    if (status == RP_OK) {
        status = bench_all(repetitions, arena);
    }
    rp_arena_destroy(arena);
    return rp_status_exit(status);
}
