/* Invariants of executor.md section 3 about versions of weights; each test has its invariant's
 * number. Versions are told apart by checksums of bytes: every refresh files the checksum of a
 * layer's working weights under the number of optimizer steps in them, and every op that computes
 * takes the checksum of the weights in its GPU's memory. */
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define SEQ_LEN 3u
#define STEPS 5u
#define LAYERS 8u

TestSuite(exec_invariants_versions, .init = rp_test_arena_begin, .fini = rp_test_arena_end,
          .timeout = 60);

typedef struct ledger {
    rpexec_state *state;
    pthread_mutex_t lock;
    uint64_t version_of[STEPS + 2][LAYERS + 2]; /* [optimizer steps][layer] checksums */
    uint64_t steps;                             /* optimizer steps so far */
    uint64_t master; /* checksum after the last optimizer step; 0: there was none */
    uint64_t working;
    uint32_t computed; /* ops that have been checked */
    uint32_t wrong_version, torn, master_touched, working_touched, not_cast;
} ledger;

static ledger book;

static uint64_t layer_hash(const void *weights, uint32_t begin, uint32_t layer)
{
    const uint64_t *offsets = book.state->offsets;
    const float *at = (const float *)weights + (offsets[layer] - offsets[begin]);
    return rp_test_hash(at, (offsets[layer + 1] - offsets[layer]) * sizeof(float));
}

static uint64_t whole(const void *array)
{
    return rp_test_hash(array, book.state->offsets[LAYERS + 2] * sizeof(float));
}

static void note_all(uint64_t version)
{
    for (uint32_t layer = 0; layer < LAYERS + 2; layer++) {
        book.version_of[version][layer] = layer_hash(book.state->working, 0, layer);
    }
}

static void prepare(void *context, rp_arena *in, rp_test_run *run)
{
    (void)context;
    (void)in;
    book.state = &run->state;
    note_all(0);
}

/* W_t is A_(t-1), or A_max(t-2, 0) with the asynchronous optimizer, for t from 1 on (9). */
static uint64_t version_of_iteration(const rp_program *p, uint16_t iteration)
{
    return p->asynchronous && iteration > 0 ? iteration - 1u : iteration;
}

/* An op that computes has all layers of its job at W_t, before it and after it (8). */
static void check_weights(const rp_test_watch *watch, uint32_t op)
{
    const rp_op *o = &watch->plan->program->ops[op];
    const rpexec_job *job = &watch->plan->jobs[watch->plan->tasks[op].job];
    const void *weights = rp_test_watch_at(watch, job->weights);
    uint64_t expected = watch->plan->resident
                            ? o->iteration
                            : version_of_iteration(watch->plan->program, o->iteration);
    pthread_mutex_lock(&book.lock);
    for (uint32_t layer = job->begin; layer < job->end; layer++) {
        uint64_t hash = layer_hash(weights, job->begin, layer);
        book.wrong_version += hash != book.version_of[expected][layer] ? 1 : 0;
    }
    book.computed++;
    pthread_mutex_unlock(&book.lock);
}

static void before(rp_test_watch *watch, uint32_t op)
{
    const rp_op *o = &watch->plan->program->ops[op];
    if (rp_op_kind_class((rp_op_kind)o->kind) == RP_CLASS_COMPUTE && o->kind != RP_OP_UPDATE) {
        check_weights(watch, op);
    } else if (o->kind == RP_OP_OPTIMIZER && !watch->plan->resident) {
        book.master_touched += book.master != 0 && whole(book.state->master) != book.master ? 1 : 0;
        book.working = whole(book.state->working);
    }
}

/* The working weights of a layer equal its master weights, bit for bit in fp32 (13). */
static void note_refresh(uint32_t layer)
{
    uint64_t at = book.state->offsets[layer];
    uint64_t count = book.state->offsets[layer + 1] - at;
    const float *working = (const float *)book.state->working + at;
    book.not_cast += memcmp(working, book.state->master + at, count * sizeof(float)) != 0 ? 1 : 0;
    pthread_mutex_lock(&book.lock);
    book.version_of[book.steps][layer] = layer_hash(book.state->working, 0, layer);
    pthread_mutex_unlock(&book.lock);
}

/* Notes the weights of a GPU after its own update. */
static void note_update(const rp_test_watch *watch, uint32_t op)
{
    const rpexec_plan *plan = watch->plan;
    uint32_t gpu = plan->program->queues[plan->order.queue_of[op]].gpu;
    pthread_mutex_lock(&book.lock);
    for (uint32_t i = 0; i < plan->job_count; i++) {
        const rpexec_job *job = &plan->jobs[i];
        for (uint32_t layer = job->begin; job->gpu == gpu && layer < job->end; layer++) {
            uint64_t hash = layer_hash(rp_test_watch_at(watch, job->weights), job->begin, layer);
            book.version_of[plan->program->ops[op].iteration + 1u][layer] = hash;
        }
    }
    pthread_mutex_unlock(&book.lock);
}

static void after(rp_test_watch *watch, uint32_t op)
{
    const rp_op *o = &watch->plan->program->ops[op];
    if (rp_op_kind_class((rp_op_kind)o->kind) == RP_CLASS_COMPUTE && o->kind != RP_OP_UPDATE) {
        check_weights(watch, op);
    } else if (o->kind == RP_OP_OPTIMIZER && !watch->plan->resident) {
        book.working_touched += whole(book.state->working) != book.working ? 1 : 0;
        book.master = whole(book.state->master);
        book.steps++;
    } else if (o->kind == RP_OP_REFRESH) {
        note_refresh(o->microbatch);
    } else if (o->kind == RP_OP_UPDATE) {
        note_update(watch, op);
    }
}

static void check(const rp_resolved *work, const rp_test_twist *delays)
{
    rp_test_watch watch = {.before = before, .after = after};
    rp_test_twist twist = *delays;
    rp_model config = rp_test_small_decoder(LAYERS, false, true);
    rp_test_run run;
    const char *name = work->schedule->name;
    memset(&book, 0, sizeof book);
    pthread_mutex_init(&book.lock, NULL);
    twist.driver_type = rp_test_watched(&watch);
    twist.prepare = prepare;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, work, &twist, &run), RP_OK));
    cr_expect(eq(u32, book.wrong_version, 0), "%s: layers of another version", name);
    cr_expect(eq(u32, book.master_touched, 0), "%s: masters changed between steps", name);
    cr_expect(eq(u32, book.working_touched, 0), "%s: Adam changed working weights", name);
    cr_expect(eq(u32, book.not_cast, 0), "%s: a refresh is no cast of the masters", name);
    cr_expect(ge(u32, book.computed, 2 * STEPS * work->decided.microbatches), "%s: nothing seen",
              name);
    for (uint64_t v = 1; v < STEPS; v++) { /* the checksums can tell versions apart */
        for (uint32_t layer = 0; layer < LAYERS + 2; layer++) {
            cr_expect(ne(u64, book.version_of[v][layer], book.version_of[v - 1][layer]));
        }
    }
    /* 13: at the end the working weights are the newest masters, or with a stale optimizer become
     * them. */
    for (uint32_t layer = 0; layer < LAYERS + 2; layer++) {
        rpexec_state_refresh(&run.state, layer);
    }
    uint64_t bytes = run.state.offsets[LAYERS + 2] * sizeof(float);
    cr_expect(memcmp(run.state.working, run.state.master, bytes) == 0, "%s", name);
    pthread_mutex_destroy(&book.lock);
}

/* 8, 9 and 13 with weights in host memory: synchronous, and stale by exactly one step. */
Test(exec_invariants_versions, offloaded_weights_are_of_one_version)
{
    static const char *const names[] = {"roundpipe", "roundpipe-overlap", "mobius"};
    for (uint32_t i = 0; i < 18; i++) {
        rp_resolved work = rp_test_work(names[i % 3], 1 + i / 6, 4, STEPS);
        work.decided.microbatches = 2 * work.gpus;
        work.decided.asynchronous = i / 3 % 2 == 0;
        work.decided.layer_grain = i % 3 == 0 && i / 6 == 1;
        const rp_test_twist delays = {.delay_seed = i, .delay_us = i % 2 == 0 ? 200 : 0};
        check(&work, &delays);
    }
}

/* 8: resident weights change in the GPU's own update, and nowhere else. */
Test(exec_invariants_versions, resident_weights_are_of_one_version)
{
    static const char *const names[] = {"1f1b", "gpipe", "zbv", "zb-auto-2p", "interleaved-1f1b"};
    for (uint32_t i = 0; i < 10; i++) {
        rp_resolved work = rp_test_work(names[i % 5], 2, 4, STEPS);
        work.decided.asynchronous = i >= 5;
        const rp_test_twist delays = {.delay_seed = i, .delay_us = 200};
        check(&work, &delays);
    }
}

/* ---- 10 and 11 ------------------------------------------------------------------------------- */

static void sleep_ms(uint32_t ms)
{
    const struct timespec time = {.tv_nsec = (long)ms * 1000000};
    nanosleep(&time, NULL);
}

/* Slows the op down within its own time. */
static void slow_down(rp_test_watch *watch, uint32_t op)
{
    uint32_t kind = watch->plan->program->ops[op].kind;
    if (kind == *(const uint32_t *)watch->context) {
        sleep_ms(2);
    }
}

static bool apart(const rp_timeline *t, uint32_t a, uint32_t b)
{
    return t->end_ps[a] <= t->start_ps[b] || t->end_ps[b] <= t->start_ps[a];
}

static bool moves_layer(const rp_test_run *run, uint32_t op, uint32_t layer)
{
    const rpexec_task *task = &run->plan.tasks[op];
    const rpexec_job *job = &run->plan.jobs[task->job];
    if (layer < job->begin || layer >= job->end) {
        return false;
    }
    const uint64_t *offsets = run->state.offsets;
    uint64_t first = (offsets[layer] - offsets[job->begin]) * sizeof(float);
    uint64_t last = (offsets[layer + 1] - offsets[job->begin]) * sizeof(float);
    bool weights = run->program->ops[op].kind == RP_OP_UPLOAD_PARAMS;
    return !weights || (task->from_byte < last && first < task->to_byte);
}

/* No op of `kind` that moves a layer's weights or gradients runs while the host works on the layer.
 * @return the number of pairs checked */
static uint32_t check_apart(const rp_test_run *run, rp_op_kind host, rp_op_kind kind)
{
    uint32_t pairs = 0;
    for (uint32_t a = 0; a < run->program->op_count; a++) {
        for (uint32_t b = 0; run->program->ops[a].kind == host && b < run->program->op_count; b++) {
            uint32_t layer = run->program->ops[a].microbatch;
            if (run->program->ops[b].kind == kind && moves_layer(run, b, layer)) {
                pairs++;
                cr_expect(apart(run->timeline, a, b), "layer %u: ops %u and %u", layer, a, b);
            }
        }
    }
    return pairs;
}

/* The next step's download into a slot comes after this step's collect, and the collect comes after
 * this step's download. */
static void check_slots(const rp_test_run *run)
{
    const rp_op *ops = run->program->ops;
    for (uint32_t a = 0; a < run->program->op_count; a++) {
        for (uint32_t b = 0; ops[a].kind == RP_OP_COLLECT && b < run->program->op_count; b++) {
            if (ops[b].kind != RP_OP_DOWNLOAD_PARAM_GRAD ||
                !moves_layer(run, b, ops[a].microbatch)) {
                continue;
            }
            bool right = ops[b].iteration <= ops[a].iteration
                             ? run->timeline->end_ps[b] <= run->timeline->start_ps[a]
                             : run->timeline->end_ps[a] <= run->timeline->start_ps[b];
            cr_expect(right, "collect of layer %u in step %u, download of step %u",
                      ops[a].microbatch, ops[a].iteration, ops[b].iteration);
        }
    }
}

/* 10: no refresh of a layer overlaps with its upload. 11: no download into a slot before it has
 * been read, and no collect of a slot that is being written. Each kind of op is slowed down in
 * turn. */
Test(exec_invariants_versions, host_and_copies_stay_apart)
{
    static const rp_op_kind kinds[] = {RP_OP_REFRESH, RP_OP_UPLOAD_PARAMS, RP_OP_COLLECT,
                                       RP_OP_DOWNLOAD_PARAM_GRAD, RP_OP_OPTIMIZER};
    rp_model config = rp_test_small_decoder(LAYERS, true, true);
    for (uint32_t i = 0; i < 10; i++) {
        uint32_t slow = kinds[i % 5];
        rp_test_run run;
        rp_test_watch watch = {.before = slow_down, .context = &slow};
        const rp_test_twist twist = {.observe = true, .driver_type = rp_test_watched(&watch)};
        rp_resolved work = rp_test_work("roundpipe", 2, 3, 3);
        work.decided.asynchronous = i < 5 || i == 5;
        work.decided.accumulate = i == 9 ? 2 : 1;
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
        cr_expect(gt(u32, check_apart(&run, RP_OP_REFRESH, RP_OP_UPLOAD_PARAMS), 0));
        cr_expect(gt(u32, check_apart(&run, RP_OP_COLLECT, RP_OP_DOWNLOAD_PARAM_GRAD), 0));
        (void)check_apart(&run, RP_OP_COLLECT, RP_OP_UPLOAD_PARAM_GRAD);
        check_slots(&run);
        rp_test_forget(&run);
    }
}
