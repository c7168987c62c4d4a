/* Invariants of executor.md section 3 about memory; each test has its invariant's number.
 * tests/exec/run/invariants.c tests that no byte beyond the cap is ever planned. */
#include "exec/host/lane.h"
#include "exec/plan/plan_internal.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#define SEQ_LEN 3u

TestSuite(exec_invariants_memory, .init = rp_test_arena_begin, .fini = rp_test_arena_end,
          .timeout = 60);

/* ---- 21 -------------------------------------------------------------------------------------- */

/* The time of a tensor in memory, and the unit to which it belongs. */
typedef struct life {
    int64_t start_ps, end_ps;
    uint64_t unit;
} life;

static life life_of(const rp_test_run *run, uint32_t value, uint64_t unit)
{
    const rpexec_value *v = &run->plan.values[value];
    life l = {.start_ps = run->timeline->start_ps[v->first_op],
              .end_ps = run->timeline->end_ps[v->first_op],
              .unit = unit};
    for (uint32_t i = v->user_begin; i < v->user_end; i++) {
        int64_t end_ps = run->timeline->end_ps[run->plan.users[i]];
        l.end_ps = end_ps > l.end_ps ? end_ps : l.end_ps;
    }
    return l;
}

/* @return the largest number of units alive at the same time, counted whenever a unit begins */
static uint32_t most_at_once(const life *lives, uint32_t count)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t alive[64];
        uint32_t units = 0;
        for (uint32_t k = 0; k < count; k++) {
            bool here =
                lives[k].start_ps <= lives[i].start_ps && lives[i].start_ps < lives[k].end_ps;
            for (uint32_t u = 0; here && u < units; u++) {
                here = alive[u] != lives[k].unit;
            }
            if (here && units < 64) {
                alive[units++] = lives[k].unit;
            }
        }
        most = units > most ? units : most;
    }
    return most;
}

static uint64_t unit_of(const rp_op *o)
{
    return ((uint64_t)o->iteration << 32 | o->microbatch) << 16 | o->stage;
}

typedef struct lives {
    life *of[3]; /* weights, inputs, outputs */
    uint32_t count[3];
} lives;

static void add(lives *l, int what, life one)
{
    l->of[what][l->count[what]++] = one;
}

/* Adds the boundary tensors that an op moves on or off the GPU. */
static void add_boundary(const rp_test_run *run, uint32_t op, lives *l)
{
    const rp_op *o = &run->program->ops[op];
    const rpexec_task *task = &run->plan.tasks[op];
    bool up = o->kind == RP_OP_UPLOAD_ACT || o->kind == RP_OP_UPLOAD_GRAD;
    bool down = o->kind == RP_OP_DOWNLOAD_ACT || o->kind == RP_OP_DOWNLOAD_GRAD;
    if (up && task->output != RPEXEC_NO_TENSOR) {
        add(l, 1, life_of(run, task->output, unit_of(o)));
    } else if (down) {
        add(l, 2, life_of(run, task->input, unit_of(o)));
    }
}

static void check_residents(const rp_test_run *run, uint32_t gpu, uint32_t most[3])
{
    lives l = {0};
    for (int i = 0; i < 3; i++) {
        cr_assert(eq(int,
                     rp_arena_alloc(rp_test_arena, run->program->op_count, sizeof(life), &l.of[i]),
                     RP_OK));
    }
    for (uint32_t i = 0; i < run->plan.job_count; i++) {
        const rpexec_job *job = &run->plan.jobs[i];
        if (job->gpu == gpu && job->weights != RPEXEC_NO_TENSOR) {
            add(&l, 0, life_of(run, job->weights, i));
        }
    }
    for (uint32_t op = 0; op < run->program->op_count; op++) {
        if (run->program->queues[run->plan.order.queue_of[op]].gpu == gpu) {
            add_boundary(run, op, &l);
        }
    }
    for (int i = 0; i < 3; i++) {
        uint32_t here = most_at_once(l.of[i], l.count[i]);
        most[i] = here > most[i] ? here : most[i];
    }
}

/* 21: a GPU holds the weights of at most two stages, the inputs of two microbatches and the outputs
 * of two, also if transfers lag behind or computing does. */
Test(exec_invariants_memory, two_of_everything_at_most)
{
    rp_model config = rp_test_small_decoder(8, true, true);
    uint32_t forward[] = {1, 2, 1, 1};
    uint32_t backward[] = {3, 1, 1, 2, 1};
    const rp_partition partition = {.forward_count = 4,
                                    .forward_layers = forward,
                                    .backward_count = 5,
                                    .backward_layers = backward};
    uint32_t seen[3] = {0, 0, 0};
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t most[3] = {0, 0, 0};
        rp_test_run run;
        const rp_test_twist twist = {.observe = true,
                                     .delay_us = i < 3 ? 0 : 500,
                                     .delay_seed = i,
                                     .delay_classes = i % 3 == 0   ? 0
                                                      : i % 3 == 1 ? 1u << RP_CLASS_COMPUTE
                                                                   : 1u << RP_CLASS_TRANSFER};
        rp_resolved work = rp_test_work("roundpipe", 1 + i / 4, 4, 3);
        work.decided.asynchronous = i % 2 == 0;
        work.partition = &partition;
        work.decided.piece_bytes =
            200; /* so small that every mark has a piece, the first mark included */
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
        for (uint32_t gpu = 0; gpu < work.gpus; gpu++) {
            check_residents(&run, gpu, most);
        }
        for (int k = 0; k < 3; k++) {
            cr_expect(le(u32, most[k], 2), "run %u: %s", i,
                      k == 0 ? "weights" : (k == 1 ? "inputs" : "outputs"));
            seen[k] = most[k] > seen[k] ? most[k] : seen[k];
        }
        rp_test_forget(&run);
    }
    for (int k = 0; k < 3; k++) { /* transfers and computing do overlap */
        cr_expect(eq(u32, seen[k], 2));
    }
}

/* 21: with equal stages a GPU needs no more memory than in executor.md 1.9: the weights and
 * gradients of two stages, two inputs, two outputs and their gradients, the tape of one stage, and
 * the scratch. */
Test(exec_invariants_memory, high_water_mark_is_as_predicted)
{
    uint32_t forward[] = {2, 2, 2};
    uint32_t backward[] = {2, 2, 2, 2};
    const rp_partition partition = {.forward_count = 3,
                                    .forward_layers = forward,
                                    .backward_count = 4,
                                    .backward_layers = backward};
    rp_model config = rp_test_small_decoder(8, false, true);
    for (uint32_t gpus = 1; gpus <= 4; gpus++) {
        rp_test_run run;
        rp_resolved work = rp_test_work("roundpipe", gpus, 6, 2);
        work.partition = &partition;
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run), RP_OK));
        const rpexec_model *m = &run.model;
        uint64_t stage =
            2 * m->block.floats +
            (m->embedding.floats > m->head.floats ? m->embedding.floats : m->head.floats);
        uint64_t boundary = (uint64_t)SEQ_LEN * config.hidden;
        uint64_t tape = rpexec_stage_tape_bytes(m, 7, 10, SEQ_LEN, true);
        uint64_t embedded = rpexec_stage_tape_bytes(m, 0, 3, SEQ_LEN, true);
        uint64_t scratch = rpexec_stage_scratch_bytes(m, 7, 10, SEQ_LEN);
        /* Two inputs, two outputs and two gradients of each, the head's gradient and its stage's
         * output. */
        uint64_t bytes = sizeof(float) * (2 * 2 * stage + 8 * (boundary + 15)) +
                         (tape > embedded ? tape : embedded) + scratch;
        cr_expect(le(u64, run.most_bytes, bytes), "%u GPUs", gpus);
        cr_expect(ge(u64, run.most_bytes, sizeof(float) * 2 * stage), "%u GPUs", gpus);
    }
}

/* ---- 22 -------------------------------------------------------------------------------------- */

#define GUARD 64u /* bytes at both ends that no op may touch */

static const unsigned char guard_byte = 0xa5;
static atomic_uint broken;
static atomic_uint looked_at;

/* Makes the same plan with gaps between the tensors. */
static void make_room(void *context, rp_arena *in, rpexec_plan *plan)
{
    (void)context;
    for (uint32_t v = 0; v < plan->value_count; v++) {
        plan->values[v].bytes += 2 * (uint64_t)GUARD;
    }
    cr_assert(eq(int, rpexec_plan_place(plan, 0, in, NULL), RP_OK));
    for (uint32_t v = 0; v < plan->value_count; v++) {
        plan->values[v].bytes -= 2 * (uint64_t)GUARD;
        plan->values[v].offset += GUARD;
    }
}

/* Begins a tensor: fills its earlier contents with NaN, and sets its guards. */
static void begin_tensor(const rp_test_watch *watch, uint32_t value)
{
    unsigned char *at = rp_test_watch_at(watch, value);
    uint64_t bytes = watch->plan->values[value].bytes;
    memset(at - GUARD, guard_byte, GUARD);
    memset(at, 0xff, bytes);
    memset(at + bytes, guard_byte, GUARD);
}

static void begin_residents(rp_test_watch *watch)
{
    for (uint32_t v = 0; v < watch->plan->value_count; v++) {
        if (watch->plan->values[v].first_op >= watch->plan->program->op_count) {
            begin_tensor(watch, v);
        }
    }
}

static void begin_tensors(rp_test_watch *watch, uint32_t op)
{
    for (uint32_t v = 0; v < watch->plan->value_count; v++) {
        if (watch->plan->values[v].first_op == op) {
            begin_tensor(watch, v);
        }
    }
}

static bool uses(const rpexec_plan *plan, uint32_t value, uint32_t op)
{
    bool used = plan->values[value].first_op == op;
    for (uint32_t i = plan->values[value].user_begin; i < plan->values[value].user_end; i++) {
        used |= plan->users[i] == op;
    }
    return used;
}

static void check_guards(rp_test_watch *watch, uint32_t op)
{
    for (uint32_t v = 0; v < watch->plan->value_count; v++) {
        if (!uses(watch->plan, v, op)) {
            continue;
        }
        const unsigned char *at = rp_test_watch_at(watch, v);
        bool whole = true;
        for (uint32_t i = 0; i < GUARD; i++) {
            whole &= at[-(int)GUARD + (int)i] == guard_byte &&
                     at[watch->plan->values[v].bytes + i] == guard_byte;
        }
        atomic_fetch_add(&broken, whole ? 0 : 1);
        atomic_fetch_add(&looked_at, 1);
    }
}

/* 22: guards at both ends of every tensor survive every op that uses it. A tensor's memory is NaN
 * when it begins, so that no op can read its earlier contents. */
Test(exec_invariants_memory, guards_survive_and_freed_memory_is_nan)
{
    static const char *const names[] = {"roundpipe", "roundpipe", "1f1b",         "zbv",  "mobius",
                                        "fsdp",      "zero2",     "zero-offload", "zb-h2"};
    rp_model config = rp_test_small_decoder(5, true, true);
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rp_test_run guarded;
        rp_test_run plain;
        rp_test_watch watch = {
            .before = begin_tensors, .after = check_guards, .opened = begin_residents};
        const rp_test_twist twist = {.driver_type = rp_test_watched(&watch), .replan = make_room};
        rp_resolved work = rp_test_work(names[i], 2, 4, 2);
        work.decided.layer_grain = i == 1;
        atomic_store(&broken, 0);
        atomic_store(&looked_at, 0);
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &plain), RP_OK));
        cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &guarded),
                     RP_OK));
        cr_expect(rp_test_same(&guarded, &plain, 2), "%s: somebody reads what is not his",
                  names[i]);
        cr_expect(eq(u32, atomic_load(&broken), 0), "%s: written beyond a tensor", names[i]);
        cr_expect(gt(u32, atomic_load(&looked_at), 200));
    }
}

static const rpexec_operators *host_operators;

/* Clears more than the gradients after a step; the ops of the next step find the damage. */
static void zero_too_much(rpexec_lane *lane, uint64_t count, void *x)
{
    host_operators->zero(lane, count + GUARD / sizeof(float), x);
}

/* The guards notice such an operator. */
Test(exec_invariants_memory, guards_notice_an_operator_that_writes_too_far)
{
    rp_test_run run;
    host_operators = rpexec_host_operators[RP_DTYPE_F32];
    rpexec_operators operators = *host_operators;
    operators.zero = zero_too_much;
    rp_model config = rp_test_small_decoder(3, false, true);
    rp_test_watch watch = {.before = begin_tensors,
                           .after = check_guards,
                           .opened = begin_residents,
                           .operators = &operators};
    const rp_test_twist twist = {.driver_type = rp_test_watched(&watch), .replan = make_room};
    rp_resolved work = rp_test_work("1f1b", 1, 2, 2);
    cr_assert(
        eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
    cr_expect(gt(u32, atomic_load(&broken), 0));
}

/* ---- 23 -------------------------------------------------------------------------------------- */

static size_t least_bytes, most_bytes;

static void note_live_bytes(rp_test_watch *watch, uint32_t op)
{
    if (watch->plan->program->ops[op].kind == RP_OP_OPTIMIZER) {
        size_t bytes = rp_mem_live_bytes();
        least_bytes = least_bytes == 0 || bytes < least_bytes ? bytes : least_bytes;
        most_bytes = bytes > most_bytes ? bytes : most_bytes;
    }
}

/* 23: host memory for transfers holds only inputs kept for backward stages and tensors that are
 * handed over, and 50 iterations need no more memory than 5. */
Test(exec_invariants_memory, pinned_memory_does_not_grow)
{
    enum { M = 3 };
    rp_model config = rp_test_small_decoder(6, true, true);
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        uint64_t pinned[2];
        for (int more = 0; more < 2; more++) {
            rp_test_run run;
            rp_test_watch watch = {.after = note_live_bytes};
            const rp_test_twist twist = {.observe = true, .driver_type = rp_test_watched(&watch)};
            rp_resolved work = rp_test_work("roundpipe", 2, M, more != 0 ? 50 : 5);
            work.decided.asynchronous = asynchronous != 0;
            least_bytes = most_bytes = 0;
            cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run),
                         RP_OK));
            pinned[more] = run.plan.arena_bytes[work.gpus];
            /* These are outputs of forwards, of which some are kept as inputs of backwards, and
             * gradients: for each of a stage's microbatches once per iteration. Two asynchronous
             * iterations may overlap. */
            uint64_t boundary = ((uint64_t)SEQ_LEN * config.hidden * sizeof(float) + 63) / 64 * 64;
            uint64_t kept = run.program->backward_count - 1;
            uint64_t handed = run.program->forward_count - 1 + run.program->backward_count - 1;
            uint64_t at_once = asynchronous != 0 ? 2 : 1;
            cr_expect(le(u64, pinned[more], at_once * M * (kept + handed) * boundary));
            cr_expect(eq(sz, least_bytes, most_bytes)); /* nothing is allocated in between */
            cr_expect(gt(sz, least_bytes, 0));
            rp_test_forget(&run);
        }
        cr_expect(eq(u64, pinned[0], pinned[1]));
    }
}
