/* Benchmark: rpsim on interleaved programs of growing size, including generation, validation,
 * simulation, metrics and bound. Each sample is a run of rpsim as a user would start it.
 *
 * Usage: bench_stage_engine RPSIM [REPETITIONS] > stage_engine.csv
 * Columns: ops, repetitions, median and minimum wall seconds of the whole process, median of the
 * seconds inside (sim_wall_s), nanoseconds and peak resident bytes per op, and the time per op
 * divided by the time per op at the smallest size, a ratio that compares across machines. The first
 * run of each size is a warm-up. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_REPETITIONS 101
#define LAYERS "512"

typedef struct sample {
    double wall_s;
    double inside_s;
    uint64_t ops;
    uint64_t peak_bytes;
} sample;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double number_after(const char *json, const char *key)
{
    const char *at = strstr(json, key);
    if (at == NULL) {
        fprintf(stderr, "bench: no %s in rpsim's output: %s\n", key, json);
        exit(1);
    }
    return strtod(at + strlen(key), NULL);
}

static void exec_rpsim(const char *rpsim, const char *costs, const char *microbatches, int output)
{
    dup2(output, STDOUT_FILENO);
    execl(rpsim, rpsim, "--fidelity", "stage", "--schedule", "interleaved-1f1b", "--costs", costs,
          "--gpus", "64", "--partition", "even", "--stages", "512", "--microbatches", microbatches,
          "--timings", "--format", "json", (char *)NULL);
    fail(rpsim);
}

static sample run_once(const char *rpsim, const char *costs, const char *microbatches)
{
    int ends[2];
    if (pipe(ends) != 0) {
        fail("pipe");
    }
    double begin_s = now_s();
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        exec_rpsim(rpsim, costs, microbatches, ends[1]);
    }
    close(ends[1]);
    char json[8192];
    size_t length = 0;
    ssize_t got = 0;
    while ((got = read(ends[0], json + length, sizeof json - 1 - length)) > 0) {
        length += (size_t)got;
    }
    json[length] = '\0';
    close(ends[0]);
    int status = 0;
    struct rusage usage;
    if (wait4(child, &status, 0, &usage) != child || status != 0) {
        fprintf(stderr, "bench: rpsim failed\n");
        exit(1);
    }
    return (sample){now_s() - begin_s, number_after(json, "\"sim_wall_s\":"),
                    (uint64_t)number_after(json, "\"ops\":"), (uint64_t)usage.ru_maxrss * 1024};
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static void write_costs(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fail(path);
    }
    fprintf(file,
            "name: bench\nlayers: " LAYERS "\nfwd_ms: 7.429\nbwd_ms: 15.831\nhead_fwd_ms: 22.0655\n"
            "head_bwd_ms: 43.707\nhop_ms: 1.6\nmicrobatch_size: 4\nseq_len: 2048\n");
    fclose(file);
}

static void bench_size(const char *rpsim, const char *costs, int microbatches, int repetitions,
                       double *first_per_op)
{
    char text[16];
    snprintf(text, sizeof text, "%d", microbatches);
    double walls[MAX_REPETITIONS];
    double insides[MAX_REPETITIONS];
    sample last = run_once(rpsim, costs, text); /* warm-up */
    for (int i = 0; i < repetitions; i++) {
        last = run_once(rpsim, costs, text);
        walls[i] = last.wall_s;
        insides[i] = last.inside_s;
    }
    qsort(walls, (size_t)repetitions, sizeof walls[0], compare_doubles);
    qsort(insides, (size_t)repetitions, sizeof insides[0], compare_doubles);
    double median = walls[repetitions / 2];
    double per_op = median / (double)last.ops;
    if (*first_per_op == 0) {
        *first_per_op = per_op;
    }
    printf("%" PRIu64 ",%d,%.4f,%.4f,%.4f,%.1f,%.1f,%.3f\n", last.ops, repetitions, median,
           walls[0], insides[repetitions / 2], 1e9 * per_op,
           (double)last.peak_bytes / (double)last.ops, per_op / *first_per_op);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s RPSIM [REPETITIONS]\n", argv[0]);
        return 2;
    }
    int repetitions = argc > 2 ? atoi(argv[2]) : 5;
    if (repetitions < 1 || repetitions > MAX_REPETITIONS) {
        fprintf(stderr, "bench: valid repetitions are 1 to %d\n", MAX_REPETITIONS);
        return 2;
    }
    char costs[] = "/tmp/rp-bench-XXXXXX.yaml";
    int file = mkstemps(costs, 5);
    if (file < 0) {
        fail(costs);
    }
    close(file);
    write_costs(costs);
    puts("ops,repetitions,median_s,min_s,inside_median_s,ns_per_op,peak_bytes_per_op,"
         "per_op_vs_smallest");
    /* Multiples of the number of GPUs, as the interleaved rule requires; the last program has just
     * over 10^7 ops. */
    static const int microbatches[] = {640, 1280, 2560, 5120, 7872};
    double first_per_op = 0;
    for (size_t i = 0; i < sizeof microbatches / sizeof microbatches[0]; i++) {
        bench_size(argv[1], costs, microbatches[i], repetitions, &first_per_op);
    }
    unlink(costs);
    return 0;
}
