/* Simulations in several threads at once have the results of a single thread. This is a program of
 * its own, because Criterion cannot start under ThreadSanitizer ("Could not initialize inheritable
 * arena": its fixed mapping collides with the sanitizer's), and under ThreadSanitizer this test
 * matters most. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "exec/state/pass.h"
#include "sim/library/rpsim.h"
#include "sim/study/replicas.h"
#include "sim/tune/tune.h"
#include "tests/support/exec_case.h"
#include "tests/support/fake/cuda.h"
#include "tests/support/hash_runs.h"
#include "tests/support/random_case.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define OUTPUT_BYTES (1 << 16)

typedef struct worker {
    pthread_t thread;
    char output[OUTPUT_BYTES];
    char messages[256];
    rp_status status;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    rp_log_capture_begin(w->messages, sizeof w->messages);
    FILE *stream = fmemopen(w->output, sizeof w->output, "w");
    w->status = rp_test_hash_runs(stream);
    fclose(stream);
    rp_log_error("thread %p", argument); /* each thread captures its own messages */
    rp_log_capture_end();
    return NULL;
}

static int check(const worker *workers)
{
    for (int i = 0; i < THREADS; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "thread %p\n", (const void *)&workers[i]);
        if (workers[i].status != RP_OK || strcmp(workers[i].output, workers[0].output) != 0 ||
            strcmp(workers[i].messages, expected) != 0 || strlen(workers[i].output) < 1000) {
            fprintf(stderr, "threads: thread %d differs: %s\n", i, workers[i].messages);
            return 1;
        }
    }
    if (rp_mem_live_bytes() != 0) {
        fprintf(stderr, "threads: %zu bytes are still alive\n", rp_mem_live_bytes());
        return 1;
    }
    return 0;
}

/* Replicas of rpsim --jitter have the same times on any number of threads. RP_LONG: 20 cases. */
static int check_replicas(void)
{
    enum { REPLICAS = 40 };
    static const uint32_t counts[] = {1, 2, 7};
    static rp_random_case c;
    double ps[3][REPLICAS];
    rp_random random = {5};
    int rounds = getenv("RP_LONG") != NULL ? 20 : 2;
    for (int round = 0; round < rounds; round++) {
        rp_random_case_draw(&random, 500, &c);
        c.config.iterations = 1;
        for (int i = 0; i < 3; i++) {
            rpsim_noise noise = {.cv = 0.2, .replicas = REPLICAS, .seed = 3, .threads = counts[i]};
            if (rpsim_case_replicate(c.schedule, &c.config, &noise, ps[i]) != RP_OK ||
                memcmp(ps[i], ps[0], sizeof ps[i]) != 0) {
                fprintf(stderr, "threads: replicas of case %d differ\n", round);
                return 1;
            }
        }
    }
    return 0;
}

static rp_status makespan(const void *context, const rp_schedule_config *config, double *ps_out)
{
    rpsim_result result;
    RP_TRY(rpsim_case_run(context, config, &result, NULL));
    *ps_out = (double)result.metrics.makespan_ps;
    rpsim_result_fini(&result);
    return RP_OK;
}

/* The search for a partition has the same result on 1, 2 and 7 threads. RP_LONG: more points. */
static int check_tuned(void)
{
    static const uint32_t counts[] = {1, 2, 7};
    static const rp_round_start start = RP_ROUND_START_FREE_FIRST;
    static rp_random_case c;
    rp_random random = {6};
    do {
        rp_random_case_draw(&random, 300, &c);
    } while (strcmp(c.schedule->name, "roundpipe") != 0 || c.config.layers < 4);
    c.config.iterations = 1;
    rpsim_tune_point reference = {c.partition, c.config.round, start};
    rpsim_tune_input input = {.config = &c.config,
                              .separate_backward = true,
                              .references = &reference,
                              .reference_count = 1,
                              .max_forward = 3,
                              .max_backward = 3,
                              .rounds = &c.config.round,
                              .round_count = 1,
                              .starts = &start,
                              .start_count = 1,
                              .objective = makespan,
                              .context = c.schedule,
                              .budget = getenv("RP_LONG") != NULL ? 300 : 90,
                              .seed = 2};
    double ps[3];
    for (int i = 0; i < 3; i++) {
        rp_arena *arena = NULL;
        rpsim_tune_result result = {0};
        input.threads = counts[i];
        rp_status status = rp_arena_create(&arena);
        status = status == RP_OK ? rpsim_tune(&input, arena, &result) : status;
        rp_arena_destroy(arena);
        ps[i] = result.objective_ps;
        if (status != RP_OK || ps[i] != ps[0] || ps[i] <= 0) {
            fprintf(stderr, "threads: searches differ\n");
            return 1;
        }
    }
    return 0;
}

/* The executor's queues and workers, with random delays, train as plain loops do. */
static int check_training(void)
{
    static const char *const names[] = {"roundpipe", "1f1b", "zbv", "roundpipe-overlap"};
    for (uint32_t i = 0; i < 8; i++) {
        bool half = i % 2 == 1; /* resident weights would round a tied table's sum once more */
        rp_model config = rp_test_decoder(6, !half, true);
        const rp_schedule_type *schedule = rp_schedule_find(names[i / 2]);
        rp_arena *arena = NULL;
        rp_test_run trained;
        rp_test_run plain;
        rp_resolved w = {.schedule = schedule,
                         .gpus = 3,
                         .decided.accumulate = 1 + i / 6,
                         .decided.microbatches = 6,
                         .decided.microbatch_size = 1,
                         .decided.iterations = 3,
                         .decided.round = RP_ROUND_ALL,
                         .decided.asynchronous = i == 0,
                         .recompute = schedule->default_recompute,
                         .decided.layer_grain = i % 2 != 0,
                         .decided.piece_bytes = 20000,
                         .peer_gpus = i % 3 == 2 ? UINT32_MAX : 0};
        static const rp_machine machine = {.upload_Bps = 2e8,
                                           .download_Bps = 2e8,
                                           .host_Bps = 1e9,
                                           .gpus_per_switch = 2,
                                           .switch_Bps = 2e8};
        rp_test_twist twist = {.dtype = half ? RP_DTYPE_F16 : RP_DTYPE_F32,
                               .delay_seed = i,
                               .delay_us = i % 2 == 0 ? 0 : 200,
                               .machine = i % 3 == 0 ? &machine : NULL};
        rp_status status = rp_arena_create(&arena);
        status =
            status == RP_OK ? rp_test_execute(arena, &config, 5, &w, &twist, &trained) : status;
        status =
            status == RP_OK ? rp_test_single_from(arena, &config, 5, &w, &twist, &plain) : status;
        bool same = status == RP_OK && rp_test_same(&trained, &plain, w.decided.iterations);
        rp_arena_destroy(arena);
        if (!same) {
            fprintf(stderr, "threads: %s trains differently\n", schedule->name);
            return 1;
        }
    }
    return 0;
}

/* Collectives with random delays: ranks come in any order, and the results are the same. After a
 * failure all ranks end. */
static int check_collectives(void)
{
    static const char *const names[] = {"zero2",        "fsdp",        "zero-infinity",
                                        "zero-offload", "megatron-tp", "zero2"};
    rp_model config = rp_test_decoder(4, true, true);
    for (uint32_t i = 0; i < 6; i++) {
        const rp_schedule_type *schedule = rp_schedule_find(names[i]);
        bool cut = rp_cuts_layers(&schedule->traits);
        rp_arena *arena = NULL;
        rp_test_run runs[2];
        rp_resolved w = {.schedule = schedule,
                         .gpus = cut ? 4 : 3,
                         .decided.accumulate = 1,
                         .decided.microbatches = cut ? 8 : 6,
                         .decided.microbatch_size = 1,
                         .decided.iterations = 2,
                         .recompute = schedule->default_recompute};
        rp_dtype dtype = i < 2 ? RP_DTYPE_F16 : RP_DTYPE_F32;
        rp_test_twist plain = {.dtype = dtype};
        rp_test_twist twist = {.dtype = dtype, .delay_seed = i, .delay_us = 300};
        rp_test_twist broken = {.fails = true, .fail_kind = RP_OP_ALL_REDUCE};
        rp_status status = rp_arena_create(&arena);
        status =
            status == RP_OK ? rp_test_execute(arena, &config, 5, &w, &plain, &runs[0]) : status;
        rp_test_twist *second = i == 5 ? &broken : &twist;
        status =
            status == RP_OK ? rp_test_execute(arena, &config, 5, &w, second, &runs[1]) : status;
        bool right =
            i == 5 ? status == RP_TOOL : status == RP_OK && rp_test_same(&runs[0], &runs[1], 2);
        rp_arena_destroy(arena);
        if (!right) {
            fprintf(stderr, "threads: %s does not train alike, or does not end\n", names[i]);
            return 1;
        }
    }
    return 0;
}

/* The GPU driver's threads and streams, in the last five cases with NCCL's, have the bits of the
 * host backend. RP_LONG: all cases, otherwise every other case. */
static int check_gpu_driver(void)
{
    static const char *const names[] = {"roundpipe", "1f1b", "fsdp", "zero2", "megatron-tp"};
    rp_model config = rp_test_decoder(4, true, true);
    for (uint32_t i = 0; i < 15; i += getenv("RP_LONG") != NULL ? 1 : 2) {
        const rp_schedule_type *schedule = rp_schedule_find(names[i % 5]);
        rp_arena *arena = NULL;
        rp_test_run plain;
        rp_test_run run;
        bool graphs = i % 3 != 0;
        rp_resolved w = {.schedule = schedule,
                         .gpus = 2,
                         .decided.accumulate = 1,
                         .decided.microbatches = 4,
                         .decided.microbatch_size = 1,
                         .decided.iterations = graphs ? 4 : 2,
                         .decided.round = RP_ROUND_ALL,
                         .recompute = schedule->default_recompute,
                         .decided.piece_bytes = 20000,
                         .peer_gpus = i % 5 == 1 ? UINT32_MAX : 0};
        const emulated_machine machine = {.devices = 2,
                                          .green = i == 1 || i == 6,
                                          .peers = i >= 5,
                                          .seed = i,
                                          .delay_us = 300,
                                          .nccl = i >= 10};
        rp_dtype dtype = i < 5 ? RP_DTYPE_F16 : RP_DTYPE_F32;
        rp_test_twist host = {.dtype = dtype};
        rp_test_twist gpu = {
            .dtype = dtype,
            .driver_type = rp_fake_cuda_driver(&machine),
            .devices = {.is_virtual = machine.green,
                        .graphs = graphs,
                        .transport = machine.nccl ? RPEXEC_TRANSPORT_NCCL : RPEXEC_TRANSPORT_AUTO}};
        rp_status status = rp_arena_create(&arena);
        status = status == RP_OK ? rp_test_execute(arena, &config, 5, &w, &host, &plain) : status;
        status = status == RP_OK ? rp_test_execute(arena, &config, 5, &w, &gpu, &run) : status;
        bool same = status == RP_OK && rp_test_same(&run, &plain, w.decided.iterations) &&
                    (emulator_counted(EMULATED_GRAPHS) > 0) == graphs;
        rp_arena_destroy(arena);
        if (!same || emulator_counted(EMULATED_LEFT) != 0) {
            fprintf(stderr, "threads: %s trains differently on streams\n", names[i % 5]);
            return 1;
        }
    }
    return 0;
}

/* Caller of a pool whose threads two callers share. */
typedef struct pool_user {
    pthread_t thread;
    rpexec_pool *pool;
    uint64_t count;
    uint16_t *slot, *working;
    float *p, *m, *v, *g;
} pool_user;

static void *use_pool(void *argument)
{
    pool_user *u = argument;
    const rpexec_adam adam = rpexec_adam_defaults();
    for (uint64_t step = 1; step <= 3; step++) {
        const rpexec_adam_factors factors = rpexec_adam_factors_of(&adam, step);
        rpexec_pass_step pass = {.dtype = RP_DTYPE_F16,
                                 .gradients = u->slot,
                                 .scale = 2,
                                 .slice = {u->p, NULL, u->m, u->v, u->count},
                                 .working = u->working};
        (void)rpexec_pass_collect(u->pool, pass.dtype, u->count, u->slot, 2, step > 1, u->g);
        rpexec_pass_run_step(u->pool, &factors, &pass);
        rpexec_pass_refresh(u->pool, pass.dtype, u->count, u->p, u->slot);
    }
    return NULL;
}

static rp_status take_user(rp_arena *arena, rpexec_pool *pool, pool_user *u)
{
    *u = (pool_user){.pool = pool, .count = 3 * RPEXEC_POOL_PIECE + 17};
    void *arrays[] = {&u->slot, &u->working, &u->p, &u->m, &u->v, &u->g};
    for (uint32_t i = 0; i < 6; i++) {
        void *array = NULL;
        RP_TRY(rpexec_pass_array(arena, i, u->count, sizeof(float), &array));
        rpexec_pass_zero(pool, u->count, sizeof(float), array);
        memcpy(arrays[i], &array, sizeof array);
    }
    for (uint64_t i = 0; i < u->count; i++) {
        u->slot[i] = (uint16_t)(i % 0x3c00);
    }
    return RP_OK;
}

/* Two callers share a pool of three threads, and a third caller has no pool: the bits are the same.
 */
static int check_pool(void)
{
    rp_arena *arena = NULL;
    rpexec_pool *pool = NULL;
    pool_user users[3];
    rp_status status = rp_arena_create(&arena);
    status = status == RP_OK ? rpexec_pool_create(3, arena, &pool) : status;
    for (int i = 0; status == RP_OK && i < 3; i++) {
        status = take_user(arena, i < 2 ? pool : NULL, &users[i]);
    }
    bool same = status == RP_OK;
    for (int i = 0; same && i < 3; i++) {
        same = pthread_create(&users[i].thread, NULL, use_pool, &users[i]) == 0;
    }
    for (int i = 0; same && i < 3; i++) {
        pthread_join(users[i].thread, NULL);
    }
    for (int i = 0; same && i < 2; i++) {
        same = memcmp(users[i].p, users[2].p, users[2].count * sizeof(float)) == 0 &&
               memcmp(users[i].g, users[2].g, users[2].count * sizeof(float)) == 0 &&
               memcmp(users[i].slot, users[2].slot, users[2].count * sizeof(uint16_t)) == 0 &&
               memcmp(users[i].working, users[2].working, users[2].count * sizeof(uint16_t)) == 0;
    }
    rp_arena_destroy(arena);
    if (!same) {
        fprintf(stderr, "threads: a pool's passes differ\n");
        return 1;
    }
    return 0;
}

/* ---- the library ----------------------------------------------------------------------------- */

typedef struct caller {
    pthread_t thread;
    const char *schedule;
    const rp_input *model; /* shared by all threads */
    double tokens_per_s;
    bool told; /* it got its own error, not another thread's */
} caller;

static void *call_library(void *argument)
{
    caller *c = argument;
    char name[64];
    rp_settings settings = RP_SETTINGS_INIT;
    rp_simulation *simulation = NULL;
    settings.model = c->model;
    settings.schedule = name;
    settings.iterations = 2;
    settings.intervals = 4;
    snprintf(name, sizeof name, "%s-x", c->schedule);
    rp_code refused = rp_simulation_prepare(&settings, &simulation);
    c->told = refused == RP_CODE_BAD_INPUT && strstr(rp_last_error(), name) != NULL;
    settings.schedule = c->schedule;
    if (rp_simulation_prepare(&settings, &simulation) == RP_CODE_OK &&
        rp_simulation_run(simulation) == RP_CODE_OK) {
        (void)rp_simulation_number(simulation, 0, "tokens_per_s_p10", &c->tokens_per_s);
    }
    rp_simulation_free(simulation);
    return NULL;
}

/* Two threads for each schedule. */
static int check_library(void)
{
    caller callers[] = {{.schedule = "gpipe"},     {.schedule = "gpipe"}, {.schedule = "roundpipe"},
                        {.schedule = "roundpipe"}, {.schedule = "fsdp"},  {.schedule = "fsdp"}};
    enum { CALLERS = sizeof callers / sizeof callers[0] };
    rp_input *model = NULL;
    if (rp_input_load(RP_KIND_MODEL, "qwen3-1.7b", &model) != RP_CODE_OK) {
        fprintf(stderr, "threads: %s\n", rp_last_error());
        return 1;
    }
    for (int i = 0; i < CALLERS; i++) {
        callers[i].model = model;
        if (pthread_create(&callers[i].thread, NULL, call_library, &callers[i]) != 0) {
            return 1;
        }
    }
    int status = 0;
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        const caller *c = &callers[i];
        if (!c->told || !(c->tokens_per_s > 0) ||
            (i % 2 == 1 && c->tokens_per_s != callers[i - 1].tokens_per_s)) {
            fprintf(stderr, "threads: library, %s: %.17g tokens/s\n", c->schedule, c->tokens_per_s);
            status = 1;
        }
    }
    rp_input_free(model);
    return status;
}

int main(void)
{
    worker *workers = calloc(THREADS, sizeof *workers);
    for (int i = 0; workers != NULL && i < THREADS; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            return 1;
        }
    }
    for (int i = 0; workers != NULL && i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    int status = workers != NULL ? check(workers) : 1;
    free(workers);
    status = status != 0 ? status : check_replicas();
    status = status != 0 ? status : check_tuned();
    status = status != 0 ? status : check_training();
    status = status != 0 ? status : check_collectives();
    status = status != 0 ? status : check_gpu_driver();
    status = status != 0 ? status : check_pool();
    status = status != 0 ? status : check_library();
    if (status == 0) {
        puts("threads: all agree");
    }
    return status;
}
