/* Benchmark: evaluation of a schedule at hardware fidelity, as a search does it thousands of times.
 *
 * Usage: bench_evaluate REPETITIONS OPTIONS-OF-RPSIM... > evaluate.csv
 * A row for each run of the command line has the number of ops of all iterations, and three medians
 * in milliseconds of CPU time (the machine may be busy): rpsim_hardware_case_run with all of its
 * results, with only the results that a search needs (RPSIM_WITHOUT_STEP), and the latter with 2
 * iterations. Repetitions take turns; the first repetition is a warm-up. The last two columns are
 * the periods, in milliseconds, from the full number of iterations and from 2 iterations. */
#include "sim/rpsim/options_internal.h"
#include "sim/study/study.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_REPETITIONS 101
#define FEW_ITERATIONS 2u

enum { ALL, SEARCH, FEW, WAYS };

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static void require(rp_status status)
{
    if (status != RP_OK) {
        fprintf(stderr, "bench: %s\n", rp_status_text(status));
        exit(1);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return values[count / 2];
}

static rp_status evaluate(const rpsim_row *row, int way, double *ms_out, rpsim_result *result)
{
    rp_resolved run = row->run;
    run.decided.iterations =
        way == FEW && run.decided.iterations > 1 ? FEW_ITERATIONS : run.decided.iterations;
    unsigned without = way == ALL ? 0 : RPSIM_WITHOUT_STEP | RPSIM_WITHOUT_CHECK;
    double begin_ms = cpu_ms();
    RP_TRY(rpsim_hardware_case_run(&run, row->platform, without, result, NULL));
    *ms_out = cpu_ms() - begin_ms;
    return RP_OK;
}

static void bench(const rpsim_row *row, int repetitions)
{
    double ms[WAYS][MAX_REPETITIONS + 1];
    double period_ps[WAYS] = {0};
    uint64_t peaks[WAYS] = {0};
    uint32_t ops = 0;
    for (int i = 0; i <= repetitions; i++) {
        for (int way = 0; way < WAYS; way++) {
            rpsim_result result;
            if (evaluate(row, way, &ms[way][i], &result) != RP_OK) {
                return; /* the callee has printed the reason */
            }
            period_ps[way] = result.period_ps;
            for (uint32_t g = 0; g < row->run.gpus; g++) {
                peaks[way] = result.memory.peak_gpu_bytes[g] > peaks[way]
                                 ? result.memory.peak_gpu_bytes[g]
                                 : peaks[way];
            }
            ops = way == ALL ? result.program->op_count : ops;
            rpsim_result_fini(&result);
        }
    }
    printf("%s,%s,%s,%s,%u,%" PRIu32, row->schedule_name, row->model_name,
           rp_recompute_text(row->run.recompute), row->run.decided.asynchronous ? "async" : "sync",
           row->run.decided.microbatches, ops);
    for (int way = 0; way < WAYS; way++) {
        printf(",%.3f", median(&ms[way][1], repetitions));
    }
    printf(",%.6f,%.6f", 1e-9 * period_ps[ALL], 1e-9 * period_ps[FEW]);
    printf(",%" PRIu64 ",%" PRIu64 "\n", peaks[ALL], peaks[FEW]);
}

int main(int argc, char **argv)
{
    int repetitions = argc > 1 ? atoi(argv[1]) : 0;
    if (repetitions < 1 || repetitions > MAX_REPETITIONS) {
        fprintf(stderr, "usage: bench_evaluate REPETITIONS OPTIONS-OF-RPSIM...\n");
        return 2;
    }
    rp_arena *arena = NULL;
    rpsim_options options;
    rpsim_study study;
    rp_mem_keep_freed();
    require(rp_arena_create(&arena));
    require(rpsim_options_parse(argc - 1, argv + 1, arena, &options, NULL));
    require(rpsim_study_prepare(&options.setup, arena, &study, NULL));
    printf("schedule,model,recompute,optimizer,microbatches,ops,all_ms,search_ms,few_ms,period_ms,"
           "period_few_ms,peak_bytes,peak_few_bytes\n");
    for (uint32_t i = 0; i < study.row_count; i++) {
        bench(&study.rows[i], repetitions);
    }
    rpsim_study_fini(&study);
    rp_arena_destroy(arena);
    return 0;
}
