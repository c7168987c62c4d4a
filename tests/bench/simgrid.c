/* Benchmark: rpsim's engine at hardware fidelity against SimGrid, which simulates the same ops and
 * the same transfers.
 *
 * Usage: bench_simgrid [REPETITIONS [OPS_SIMGRID [OPS_RPSIM [SECONDS [execs]]]]] > simgrid.csv
 *
 * GPU ops are timers in SimGrid, because timers are faster than executions on a host (`execs`).
 * Both cases are interleaved 1F1B on 8 GPUs with four stages each, whose boundary tensors go
 * through the host: each GPU has a port of 20.97 GB/s per direction, and all ports share a root of
 * 80 GB/s. `plain` has boundaries of 32 MiB, `link_bound` of 128 MiB. Both simulators read the same
 * lowered program of each size. SimGrid runs the sizes of up to OPS_SIMGRID ops, rpsim those of up
 * to OPS_RPSIM ops.
 *
 * Times are CPU seconds of a single thread and a single run, as the machine may be busy. Times and
 * ratios are medians of the repetitions. In each repetition the two simulators take turns: a run
 * warms up caches and memory and does not count, then further runs take at least SECONDS. Each
 * ratio compares times of the same repetition. rpsim's time is the whole of rpsim_hardware_run,
 * including its preparations. SimGrid's time leaves out making its platform and preparing the
 * dependents of each op. `relative_error` compares the makespans.
 * Exit status 1 if the makespans of `plain` differ by more than 1e-6. */
#include "sim/run/hardware_case.h"
#include "tests/bench/simgrid_run.h"
#include "tests/support/hand_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GPUS 8u
#define LAYERS 32u /* a layer per stage, four stages per GPU */
#define HIDDEN 2048u
#define MAX_REPETITIONS 51

static void require(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench: %s failed\n", what);
        exit(1);
    }
}

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A program and all that is made for it. */
typedef struct subject {
    rp_arena *arena;
    rp_program *program;
    rpsim_compute_costs costs;
    rp_machine machine;
    simgrid_case simgrid;
    uint32_t *pending; /* never used up here: each run of SimGrid has its own process, and so its
                        * own copy */
} subject;

static void *array(rp_arena *arena, size_t count, size_t size)
{
    void *items = NULL;
    require(rp_arena_alloc(arena, count, size, &items) == RP_OK, "memory");
    return items;
}

static void make_program(subject *s, uint32_t microbatches, uint32_t boundary_mib)
{
    int64_t *fwd_ps = array(s->arena, LAYERS, sizeof *fwd_ps);
    int64_t *bwd_ps = array(s->arena, LAYERS, sizeof *bwd_ps);
    uint32_t *layers = array(s->arena, LAYERS, sizeof *layers);
    for (uint32_t i = 0; i < LAYERS; i++) {
        fwd_ps[i] = INT64_C(7429000000) + 1000003 * i; /* no two stages take equally long */
        bwd_ps[i] = INT64_C(15831000000) + 1700009 * i;
        layers[i] = 1;
    }
    rp_costs costs = {.name = "bench",
                      .layers = LAYERS,
                      .fwd_ps = fwd_ps,
                      .bwd_ps = bwd_ps,
                      .bwd_input_ps = fwd_ps,
                      .head_fwd_ps = INT64_C(2206550000),
                      .head_bwd_ps = INT64_C(4370700000),
                      .microbatch_size = 1,
                      .seq_len = 2048};
    rp_partition partition = {.forward_count = LAYERS, .forward_layers = layers};
    rp_model model = {.name = "bench",
                      .layers = LAYERS,
                      .hidden = HIDDEN,
                      .heads = 16,
                      .kv_heads = 8,
                      .head_dim = 128,
                      .intermediate = 6144,
                      .experts = 1,
                      .active_experts = 1,
                      .vocab = 32768,
                      .layer_parameters = 50000000,
                      .embedding_parameters = 32768ull * HIDDEN};
    rp_resolved run =
        rp_test_hand_run("interleaved-1f1b", &model, &costs, &partition, GPUS, microbatches);
    run.seq_len = boundary_mib * (1u << 20) / (2 * HIDDEN);
    const rp_platform no_peers = {.gpus = GPUS, .nodes = 1};
    require(rpsim_hardware_lower(&run, &no_peers, &s->program, NULL) == RP_OK, "lowering");
    rp_stage_times times;
    require(rp_stage_times_compute(s->program, &costs, s->arena, &times, NULL) == RP_OK, "costs");
    s->costs = (rpsim_compute_costs){.ps = times.ps, .stage_count = s->program->stage_count};
    s->costs.class_of = array(s->arena, microbatches, sizeof(uint32_t));
    s->machine = (rp_machine){
        .upload_Bps = 20.97e9, .download_Bps = 20.97e9, .host_Bps = 95e9, .dram_Bps = 80e9};
}

static void make_dependents(subject *s)
{
    const rp_program *p = s->program;
    uint32_t *begin = array(s->arena, (size_t)p->op_count + 2, sizeof *begin);
    uint32_t *dependents = array(s->arena, p->wait_count, sizeof *dependents);
    s->pending = array(s->arena, p->op_count, sizeof *s->pending);
    for (uint32_t w = 0; w < p->wait_count; w++) {
        begin[rp_wait_op(p->waits[w]) + 2]++;
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        begin[i + 2] += begin[i + 1];
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        s->pending[i] = p->ops[i + 1].wait_begin - p->ops[i].wait_begin;
        for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
            dependents[begin[rp_wait_op(p->waits[w]) + 1]++] = i;
        }
    }
    s->simgrid.dependent_begin = begin;
    s->simgrid.dependents = dependents;
    s->simgrid.pending = s->pending;
}

static void make_simgrid(subject *s)
{
    const rp_program *p = s->program;
    uint32_t *begin = array(s->arena, p->queue_count, sizeof *begin);
    uint32_t *end = array(s->arena, p->queue_count, sizeof *end);
    uint32_t *engine = array(s->arena, p->queue_count, sizeof *engine);
    uint32_t *queue_of = array(s->arena, p->op_count, sizeof *queue_of);
    double *seconds = array(s->arena, p->op_count, sizeof *seconds);
    double *bytes = array(s->arena, p->op_count, sizeof *bytes);
    for (uint32_t q = 0; q < p->queue_count; q++) {
        rp_queue_kind kind = (rp_queue_kind)p->queues[q].kind;
        bool up = kind == RP_QUEUE_PARAM_UPLOAD || kind == RP_QUEUE_ACT_UPLOAD;
        bool copies = up || kind == RP_QUEUE_DOWNLOAD;
        begin[q] = p->queues[q].op_begin;
        end[q] = p->queues[q].op_end;
        engine[q] = copies ? 2u * p->queues[q].gpu + (up ? 0u : 1u) : SIMGRID_NO_ENGINE;
        for (uint32_t i = begin[q]; i < end[q]; i++) {
            queue_of[i] = q;
            bool compute = kind == RP_QUEUE_COMPUTE;
            bytes[i] = compute ? 0 : (double)p->op_bytes[i];
            require(copies || bytes[i] == 0, "a host op without work");
            seconds[i] = compute ? (double)rpsim_op_ps(&s->costs, p, i) * 1e-12 : 0;
        }
    }
    s->simgrid = (simgrid_case){.gpus = GPUS,
                                .op_count = p->op_count,
                                .queue_count = p->queue_count,
                                .queue_begin = begin,
                                .queue_end = end,
                                .queue_engine = engine,
                                .queue_of = queue_of,
                                .seconds = seconds,
                                .bytes = bytes,
                                .link_Bps = s->machine.upload_Bps,
                                .root_Bps = s->machine.dram_Bps,
                                .timers = 1}; /* the caller may change it */
    make_dependents(s);
}

/* The process that starts SimGrid's processes, because SimGrid's engine can be made only once per
 * process. It is forked before anything is measured: after a fork each page that the parent writes
 * costs a fault, which would double the time of rpsim's runs. */
typedef struct keeper {
    pid_t process;
    int requests;
    int results;
} keeper;

static void keep(const subject *s, double least_s, int requests, int results)
{
    char request;
    while (read(requests, &request, 1) == 1) {
        pid_t child = fork();
        require(child >= 0, "fork");
        if (child == 0) {
            simgrid_result result;
            bench_run_simgrid(&s->simgrid, least_s, &result);
            _exit(write(results, &result, sizeof result) == (ssize_t)sizeof result ? 0 : 1);
        }
        int status = 0;
        require(waitpid(child, &status, 0) == child && status == 0, "SimGrid");
    }
    _exit(0);
}

static keeper make_keeper(const subject *s, double least_s)
{
    int requests[2], results[2];
    require(pipe(requests) == 0 && pipe(results) == 0, "pipe");
    fflush(stdout);
    keeper k = {.process = fork(), .requests = requests[1], .results = results[0]};
    require(k.process >= 0, "fork");
    if (k.process == 0) {
        close(requests[1]);
        keep(s, least_s, requests[0], results[1]);
    }
    close(requests[0]);
    close(results[1]);
    return k;
}

static void end_keeper(const keeper *k)
{
    close(k->requests);
    close(k->results);
    require(waitpid(k->process, NULL, 0) == k->process, "waiting");
}

static simgrid_result run_simgrid(const subject *s, const keeper *k)
{
    simgrid_result result = {0};
    require(write(k->requests, "", 1) == 1 &&
                read(k->results, &result, sizeof result) == (ssize_t)sizeof result,
            "SimGrid");
    require(result.ended == s->program->op_count, "SimGrid (deadlock)");
    return result;
}

/* Runs rpsim once and adds its CPU seconds to `took_s`. @return the makespan in seconds */
static double run_rpsim(const subject *s, double *took_s)
{
    double begin_s = cpu_s();
    rp_timeline *timeline = NULL;
    require(rpsim_hardware_run(s->program, &s->costs, &s->machine, &timeline, NULL) == RP_OK,
            "rpsim");
    *took_s += cpu_s() - begin_s;
    int64_t last = 0;
    for (uint32_t i = 0; i < s->program->op_count; i++) {
        last = timeline->end_ps[i] > last ? timeline->end_ps[i] : last;
    }
    rp_timeline_destroy(timeline);
    return (double)last * 1e-12;
}

/* @return the CPU seconds of a run: the mean of the runs that together take at least `least_s` */
static double time_rpsim(const subject *s, double least_s, double *makespan_s_out)
{
    uint32_t runs = 0;
    double took_s = 0;
    *makespan_s_out = run_rpsim(s, &took_s);
    took_s = 0; /* drops the warm-up */
    do {
        require(run_rpsim(s, &took_s) == *makespan_s_out, "the same run again");
        runs++;
    } while (took_s < least_s);
    return took_s / runs;
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

/* Measures and prints a row. @return whether the makespans agree as they must */
static bool bench(uint32_t microbatches, uint32_t boundary_mib, bool timers, int repetitions,
                  double least_s, double most_simgrid)
{
    subject s = {0};
    require(rp_arena_create(&s.arena) == RP_OK, "memory");
    make_program(&s, microbatches, boundary_mib);
    make_simgrid(&s);
    s.simgrid.timers = timers;
    bool both = s.program->op_count <= most_simgrid;
    double simgrid_s[MAX_REPETITIONS];
    double rpsim_s[MAX_REPETITIONS];
    double ratios[MAX_REPETITIONS];
    double rpsim_makespan_s = 0;
    double simgrid_makespan_s = NAN;
    keeper k = make_keeper(&s, least_s);
    for (int i = 0; i < repetitions; i++) {
        simgrid_result result = both ? run_simgrid(&s, &k) : (simgrid_result){0};
        simgrid_s[i] = result.cpu_s;
        simgrid_makespan_s = result.makespan_s;
        rpsim_s[i] = time_rpsim(&s, least_s, &rpsim_makespan_s);
        ratios[i] = simgrid_s[i] / rpsim_s[i];
    }
    end_keeper(&k);
    double error = fabs(simgrid_makespan_s - rpsim_makespan_s) / rpsim_makespan_s;
    double ours = median(rpsim_s, repetitions);
    double theirs = median(simgrid_s, repetitions);
    printf("%s,%" PRIu32 ",%d,", boundary_mib == 32 ? "plain" : "link_bound", s.program->op_count,
           repetitions);
    if (both) {
        printf("%.4f,%.4f,%.2f,%.1f,%.9f,%.9f,%.2e\n", theirs, ours, median(ratios, repetitions),
               1e9 * ours / s.program->op_count, simgrid_makespan_s, rpsim_makespan_s, error);
    } else {
        printf(",%.4f,,%.1f,,%.9f,\n", ours, 1e9 * ours / s.program->op_count, rpsim_makespan_s);
    }
    fflush(stdout);
    rp_program_destroy(s.program);
    rp_arena_destroy(s.arena);
    return !both || boundary_mib != 32 || error <= 1e-6;
}

int main(int argc, char **argv)
{
    int repetitions = argc > 1 ? atoi(argv[1]) : 15;
    double most_simgrid = argc > 2 ? atof(argv[2]) : 1.1e5;
    double most_rpsim = argc > 3 ? atof(argv[3]) : 1.1e7;
    double least_s = argc > 4 ? atof(argv[4]) : 0.5;
    bool timers = argc <= 5 || strcmp(argv[5], "execs") != 0;
    if (repetitions < 1 || repetitions > MAX_REPETITIONS) {
        fprintf(stderr, "bench: valid repetitions are 1 to %d\n", MAX_REPETITIONS);
        return 2;
    }
    puts("case,ops_and_transfers,repetitions,simgrid_s,rpsim_s,ratio,rpsim_ns_per_op,"
         "simgrid_makespan_s,rpsim_makespan_s,relative_error");
    /* About 190 ops and transfers per microbatch; the last size has 10^7. */
    static const uint32_t microbatches[] = {56, 176, 528, 1768, 5280, 17664, 52800};
    bool good = true;
    for (int link_bound = 0; link_bound < 2; link_bound++) {
        for (size_t i = 0; i < sizeof microbatches / sizeof microbatches[0]; i++) {
            if (192.0 * microbatches[i] <= most_rpsim) {
                good = bench(microbatches[i], link_bound ? 128 : 32, timers, repetitions, least_s,
                             most_simgrid) &&
                       good;
            }
        }
    }
    return good ? 0 : 1;
}
