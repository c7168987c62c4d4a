/* Invariants of executor.md section 3 about order, transfers and the GPUs of jobs; each test has
 * its invariant's number. All are checked on the events of a run: op by op and from the timeline.
 */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SEQ_LEN 3u
#define STEPS 3u

TestSuite(exec_invariants_order, .init = rp_test_arena_begin, .fini = rp_test_arena_end,
          .timeout = 60);

static void observe(const rp_model *config, const rp_resolved *work, rp_test_twist twist,
                    rp_test_run *run)
{
    twist.observe = true;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, &twist, run), RP_OK),
              "%s", work->schedule->name);
}

/* ---- 15 -------------------------------------------------------------------------------------- */

/* The time from the first to the last op of some kinds, for a microbatch in a stage. With grain
 * layer there are several ops. */
typedef struct span {
    uint32_t count;
    uint32_t gpu;
    int64_t start_ps, end_ps;
    int64_t first_end_ps;
} span;

static span span_of(const rp_test_run *run, uint32_t kinds, uint32_t stage, uint32_t microbatch,
                    uint32_t iteration)
{
    span s = {.start_ps = INT64_MAX, .first_end_ps = INT64_MAX};
    const rp_program *p = run->program;
    for (uint32_t i = 0; i < p->op_count; i++) {
        const rp_op *o = &p->ops[i];
        if ((kinds >> o->kind & 1) != 0 && o->stage == stage && o->microbatch == microbatch &&
            o->iteration == iteration) {
            s.count++;
            s.gpu = p->queues[run->plan.order.queue_of[i]].gpu;
            int64_t start_ps = run->timeline->start_ps[i];
            int64_t end_ps = run->timeline->end_ps[i];
            s.start_ps = start_ps < s.start_ps ? start_ps : s.start_ps;
            s.end_ps = end_ps > s.end_ps ? end_ps : s.end_ps;
            s.first_end_ps = end_ps < s.first_end_ps ? end_ps : s.first_end_ps;
        }
    }
    return s;
}

/* A stage hands a value to the next stage of a chain: it is computed, downloaded and uploaded
 * before the next stage computes. Resident weights need no transfer between stages of the same GPU.
 * @return the number of transfers */
static uint32_t check_handover(const rp_test_run *run, uint32_t kinds, rp_op_kind down,
                               rp_op_kind up, const uint16_t *stages, uint32_t microbatch,
                               uint32_t iteration)
{
    span from = span_of(run, kinds, stages[0], microbatch, iteration);
    span to = span_of(run, kinds, stages[1], microbatch, iteration);
    span downloaded = span_of(run, 1u << down, stages[0], microbatch, iteration);
    span uploaded = span_of(run, 1u << up, stages[1], microbatch, iteration);
    cr_assert(from.count > 0 && to.count > 0);
    cr_expect(to.start_ps >= from.end_ps, "%s: stage %u before %u, microbatch %u",
              run->program->schedule, stages[1], stages[0], microbatch);
    if (from.gpu == to.gpu && run->plan.resident) {
        return 0;
    }
    cr_assert(downloaded.count > 0 && uploaded.count > 0, "%s: no transfer from stage %u to %u",
              run->program->schedule, stages[0], stages[1]);
    /* A backward stage may get its saved input, which a forward made long ago, before its gradient;
     * those are ops of other kinds. */
    cr_expect(downloaded.end_ps >= from.end_ps && uploaded.start_ps >= downloaded.end_ps,
              "%s: stage %u to %u, microbatch %u, is not on the host in between",
              run->program->schedule, stages[0], stages[1], microbatch);
    cr_expect(to.start_ps >= uploaded.first_end_ps); /* labels come later */
    return 1;
}

static void check_queues(const rp_test_run *run)
{
    for (uint32_t q = 0; q < run->program->queue_count; q++) {
        const rp_queue *queue = &run->program->queues[q];
        for (uint32_t i = queue->op_begin; i + 1 < queue->op_end; i++) {
            cr_expect(run->timeline->end_ps[i] <= run->timeline->start_ps[i + 1]);
        }
    }
}

/* Within a job, the microbatches of each kind of op ascend in each call. */
static void check_jobs(const rp_test_run *run)
{
    const rp_program *p = run->program;
    for (uint32_t i = 0; i < p->op_count; i++) {
        for (uint32_t k = i + 1; k < p->op_count && k < i + 8; k++) {
            bool same_kind = run->plan.tasks[i].job == run->plan.tasks[k].job &&
                             p->ops[i].kind == p->ops[k].kind &&
                             rp_op_kind_class((rp_op_kind)p->ops[i].kind) == RP_CLASS_COMPUTE &&
                             run->plan.order.queue_of[i] == run->plan.order.queue_of[k];
            cr_expect(same_kind == false || p->ops[i].microbatch <= p->ops[k].microbatch ||
                          p->ops[i].iteration < p->ops[k].iteration,
                      "ops %u and %u", i, k);
        }
    }
}

/* 15: a stage starts after the output of the previous stage is on the host; a GPU computes one op
 * at a time; the microbatches of a job run in order. */
Test(exec_invariants_order, boundaries_go_through_the_host)
{
    static const char *const names[] = {"roundpipe", "roundpipe", "1f1b", "zbv", "mobius"};
    rp_model config = rp_test_small_decoder(6, true, true);
    const uint32_t backward = 1u << RP_OP_BACKWARD | 1u << RP_OP_BACKWARD_INPUT;
    for (uint32_t i = 0; i < 10; i++) {
        rp_test_run run;
        uint32_t transfers = 0;
        rp_resolved work = rp_test_work(names[i % 5], 2 + i / 5, 6, 2);
        work.decided.layer_grain = i % 5 == 1;
        work.decided.asynchronous = i % 2 == 0;
        observe(&config, &work, (rp_test_twist){.delay_seed = i, .delay_us = 100}, &run);
        const rp_program *p = run.program;
        for (uint32_t unit = 0; unit < p->iteration_count * p->microbatch_count; unit++) {
            uint32_t m = unit % p->microbatch_count;
            uint32_t t = unit / p->microbatch_count;
            for (uint32_t k = 0; k + 1 < p->forward_count; k++) {
                transfers += check_handover(&run, 1u << RP_OP_FORWARD, RP_OP_DOWNLOAD_ACT,
                                            RP_OP_UPLOAD_ACT, &p->forward_chain[k], m, t);
            }
            for (uint32_t k = 0; k + 1 < p->backward_count; k++) {
                transfers += check_handover(&run, backward, RP_OP_DOWNLOAD_GRAD, RP_OP_UPLOAD_GRAD,
                                            &p->backward_chain[k], m, t);
            }
        }
        cr_expect(gt(u32, transfers, 0));
        check_queues(&run);
        if (i % 5 < 2) {
            check_jobs(&run);
        }
        rp_test_forget(&run);
    }
}

/* ---- 16 and 17 ------------------------------------------------------------------------------- */

static bool is_in(const uint16_t *chain, uint32_t count, uint16_t stage)
{
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        found |= chain[i] == stage;
    }
    return found;
}

/* 16: job k runs on GPU (k0 + k) mod N, over calls and iterations. */
Test(exec_invariants_order, jobs_rotate_over_the_gpus)
{
    enum { CALLS = 2, M = 3 };
    rp_model config = rp_test_small_decoder(7, true, true);
    for (uint32_t i = 0; i < 8; i++) {
        rp_test_run run;
        rp_resolved work = rp_test_work("roundpipe", 1 + i / 2, M, STEPS);
        work.decided.accumulate = CALLS;
        work.decided.asynchronous = i % 2 == 0;
        observe(&config, &work, (rp_test_twist){.delay_us = 0}, &run);
        const rp_program *p = run.program;
        uint32_t k = 0;
        uint32_t first = 0;
        for (uint32_t call = 0; call < STEPS * CALLS; call++) {
            for (uint32_t s = 0; s < p->forward_count + p->backward_count; s++) {
                bool forward = s < p->forward_count;
                uint16_t stage =
                    forward ? p->forward_chain[s] : p->backward_chain[s - p->forward_count];
                if (!forward && is_in(p->forward_chain, p->forward_count, stage)) {
                    continue; /* fused: one job */
                }
                for (uint32_t m = 0; m < M; m++) {
                    uint32_t kind = forward ? RP_OP_FORWARD : RP_OP_BACKWARD;
                    span unit =
                        span_of(&run, 1u << kind, stage, call % CALLS * M + m, call / CALLS);
                    cr_assert(eq(u32, unit.count, 1));
                    first = k == 0 ? unit.gpu : first;
                    cr_expect(eq(u32, unit.gpu, (first + k) % work.gpus), "job %u, N %u", k,
                              work.gpus);
                }
                k++;
            }
        }
        cr_expect(eq(u32, k, run.plan.job_count));
        rp_test_forget(&run);
    }
}

#define MOST_OPS 8192u
static atomic_uint performed[MOST_OPS];

static void count_op(rp_test_watch *watch, uint32_t op)
{
    (void)watch;
    atomic_fetch_add(&performed[op], 1);
}

/* @return how often the work of some kinds was done for a microbatch in a stage, summed over its
 * ops */
static uint32_t times(const rp_test_run *run, uint32_t kinds, uint32_t stage, uint32_t microbatch,
                      uint32_t iteration)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->program->op_count; i++) {
        const rp_op *o = &run->program->ops[i];
        bool is = (kinds >> o->kind & 1) != 0 && o->stage == stage && o->microbatch == microbatch &&
                  o->iteration == iteration;
        count += is ? atomic_load(&performed[i]) : 0;
    }
    return count;
}

/* 17: each op runs once, and each microbatch has in each stage a forward and a backward, whole or
 * in two parts. */
Test(exec_invariants_order, every_unit_runs_once)
{
    rp_model config = rp_test_small_decoder(6, true, true);
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        const rp_schedule_type *schedule = rp_schedules[s];
        if (rpexec_work_obstacle(&schedule->traits, false) != NULL) {
            continue;
        }
        rp_test_run run;
        rp_test_watch watch = {.after = count_op};
        rp_resolved work = rp_test_work(schedule->name, 3, 6, 2);
        config.heads = rp_cuts_layers(&schedule->traits) ? 3 : 2; /* a head for each rank */
        memset(performed, 0, sizeof performed);
        observe(&config, &work, (rp_test_twist){.driver_type = rp_test_watched(&watch)}, &run);
        const rp_program *p = run.program;
        cr_assert(le(u32, p->op_count, MOST_OPS));
        for (uint32_t i = 0; i < p->op_count; i++) {
            cr_expect(eq(u32, atomic_load(&performed[i]), 1));
        }
        for (uint32_t unit = 0; unit < p->iteration_count * p->microbatch_count; unit++) {
            uint32_t m = unit % p->microbatch_count;
            uint32_t t = unit / p->microbatch_count;
            for (uint32_t k = 0; k < p->forward_count; k++) {
                uint32_t count = times(&run, 1u << RP_OP_FORWARD, p->forward_chain[k], m, t);
                cr_expect(eq(u32, count, 1), "%s", schedule->name);
            }
            for (uint32_t k = 0; k < p->backward_count; k++) {
                uint16_t stage = p->backward_chain[k];
                uint32_t both = times(&run, 1u << RP_OP_BACKWARD, stage, m, t);
                uint32_t input = times(&run, 1u << RP_OP_BACKWARD_INPUT, stage, m, t);
                uint32_t weight = times(&run, 1u << RP_OP_BACKWARD_WEIGHT, stage, m, t);
                cr_expect(both + input == 1 && input == weight, "%s, stage %u: %u, %u, %u",
                          schedule->name, stage, both, input, weight);
            }
        }
        rp_test_forget(&run);
    }
}

/* 17: a plan that does not cover the layers is refused before anything is launched. */
Test(exec_invariants_order, bad_plans_are_not_launched)
{
    uint32_t forward[] = {2, 2};
    uint32_t wrong[][2] = {{2, 3}, {2, 5}, {3, 4}};
    rp_model config = rp_test_small_decoder(6, true, true);
    for (size_t i = 0; i < 3; i++) {
        char message[512] = "";
        rp_test_run run;
        rp_test_watch watch = {.after = count_op};
        const rp_test_twist twist = {.driver_type = rp_test_watched(&watch)};
        const rp_partition partition = {.forward_count = 2,
                                        .forward_layers = forward,
                                        .backward_count = 2,
                                        .backward_layers = wrong[i]};
        rp_resolved work = rp_test_work("roundpipe", 2, 4, 1);
        work.partition = &partition;
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_USAGE));
        cr_expect(strstr(message, "--partition") != NULL, "%s", message);
    }
    for (uint32_t i = 0; i < MOST_OPS; i++) {
        cr_expect(eq(u32, atomic_load(&performed[i]), 0));
    }
}

/* ---- 24, 25 and 26 --------------------------------------------------------------------------- */

/* 24: the cases that tests/exec/run/invariants.c leaves out, a backward stage that begins inside of
 * a forward stage, and gradients that are uploaded again in the second call. */
Test(exec_invariants_order, bytes_of_saves_and_of_accumulation)
{
    enum { M = 3, CALLS = 2 };
    uint32_t forward[] = {4};
    uint32_t backward[] = {3, 2, 2}; /* 3 and the head; the second stage begins after layer 2 */
    const rp_partition partition = {.forward_count = 1,
                                    .forward_layers = forward,
                                    .backward_count = 3,
                                    .backward_layers = backward};
    rp_model config = rp_test_small_decoder(7, false, true);
    rp_resolved work = rp_test_work("roundpipe", 2, M, STEPS);
    rp_test_run run;
    work.decided.accumulate = CALLS;
    work.partition = &partition;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run), RP_OK));
    uint64_t embedding = run.model.embedding.floats * sizeof(float);
    uint64_t block = run.model.block.floats * sizeof(float);
    uint64_t all = embedding + 7 * block + run.model.head.floats * sizeof(float);
    uint64_t boundary = (uint64_t)SEQ_LEN * config.hidden * sizeof(float);
    uint64_t ids = SEQ_LEN * sizeof(int32_t);
    /* Forward: ids. Fused: input and labels. Backwards: saved input and gradient; ids and gradient.
     */
    uint64_t up_once = all + embedding + 4 * block +
                       M * (ids + (boundary + ids) + 2 * boundary + (ids + boundary));
    uint64_t down_once = all + M * (2 * boundary + 2 * boundary);
    cr_expect(eq(u64, run.uploaded_bytes, STEPS * (CALLS * up_once + (CALLS - 1) * all)));
    cr_expect(eq(u64, run.downloaded_bytes, STEPS * CALLS * down_once));
}

/* The mark of a piece: the activation upload for which it waits. @return RP_MAX_OPS if it waits for
 * none */
static uint32_t mark_of(const rp_test_run *run, uint32_t piece)
{
    const rp_program *p = run->program;
    uint32_t mark = RP_MAX_OPS;
    for (uint32_t w = p->ops[piece].wait_begin; w < p->ops[piece + 1].wait_begin; w++) {
        uint32_t op = rp_wait_op(p->waits[w]);
        mark = p->queues[run->plan.order.queue_of[op]].kind == RP_QUEUE_ACT_UPLOAD ? op : mark;
    }
    return mark;
}

/* Checks the pieces of a job's weights, in the order of their queue. @return the number of bins */
static uint32_t check_bins(const rp_test_run *run, uint32_t begin_op, uint32_t end_op,
                           uint64_t piece_bytes)
{
    const rp_program *p = run->program;
    uint64_t sums[256] = {0};
    uint64_t largest = 0;
    uint32_t bins = 0;
    uint32_t mark = RP_MAX_OPS;
    for (uint32_t op = begin_op; op < end_op; op++) {
        uint32_t own = mark_of(run, op);
        if (own != RP_MAX_OPS && own != mark) {
            cr_expect(mark == RP_MAX_OPS || own > mark, "marks in the order of their uploads");
            mark = own;
            bins++;
            cr_assert(lt(u32, bins, 256));
        }
        cr_expect(le(u64, p->op_bytes[op], piece_bytes));
        largest = p->op_bytes[op] > largest ? p->op_bytes[op] : largest;
        sums[bins] += p->op_bytes[op];
        cr_expect(mark == RP_MAX_OPS || run->timeline->start_ps[op] >= run->timeline->end_ps[mark],
                  "a piece of bin %u before its mark", bins);
    }
    for (uint32_t i = 2; i <= bins; i++) { /* the first bin may have more than its share */
        cr_expect(sums[i] >= sums[i - 1] && sums[i] - sums[i - 1] <= largest, "bins %u and %u", i,
                  i - 1);
    }
    cr_expect(bins < 2 || sums[bins] - sums[1] <= largest, "bins of %llu and %llu bytes",
              (unsigned long long)sums[bins], (unsigned long long)sums[1]);
    return bins;
}

/* 25 */
Test(exec_invariants_order, pieces_fill_bins_evenly_and_wait_for_their_marks)
{
    static const uint64_t sizes[] = {400, 1500, 1u << 20};
    rp_model config = rp_test_small_decoder(8, true, true);
    for (uint32_t i = 0; i < 6; i++) {
        rp_test_run run;
        uint32_t most_bins = 0;
        rp_resolved work = rp_test_work("roundpipe", 2, 4, 2);
        work.decided.piece_bytes = sizes[i % 3];
        work.decided.layer_grain = i >= 3;
        observe(&config, &work, (rp_test_twist){.delay_seed = i, .delay_us = 200}, &run);
        const rp_program *p = run.program;
        for (uint32_t op = 0; op < p->op_count;) {
            uint32_t next = op + 1;
            if (p->ops[op].kind == RP_OP_UPLOAD_PARAMS) {
                while (p->ops[next].kind == RP_OP_UPLOAD_PARAMS && next < p->op_count &&
                       run.plan.tasks[next].job == run.plan.tasks[op].job) {
                    next++;
                }
                uint32_t bins = check_bins(&run, op, next, work.decided.piece_bytes);
                most_bins = bins > most_bins ? bins : most_bins;
            }
            op = next;
        }
        cr_expect(most_bins >= 4, "%u bins at most: nothing to see", most_bins);
        rp_test_forget(&run);
    }
}

static int by_value(const void *a, const void *b)
{
    const int64_t *left = a;
    const int64_t *right = b;
    return *left < *right ? -1 : *left > *right;
}

/* 26: an activation's upload waits for one piece at most, not for a stage's weights. The median
 * over all uploads of a boundary counts, since other processes may take time. */
Test(exec_invariants_order, activations_wait_for_one_piece_at_most)
{
    enum { RATE = 4000000, PIECE = 10000, MOST = 512 };
    const rp_machine machine = {.upload_Bps = RATE, .download_Bps = RATE, .host_Bps = 1e9};
    rp_model config = rp_test_decoder(7, false, true);
    rp_test_run run;
    int64_t took_ps[MOST];
    uint32_t count = 0;
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 1);
    work.decided.piece_bytes = PIECE;
    observe(&config, &work, (rp_test_twist){.machine = &machine}, &run);
    int64_t whole_stage_ps = 0;
    uint64_t own = (uint64_t)SEQ_LEN * config.hidden * sizeof(float);
    for (uint32_t op = 0; op < run.program->op_count; op++) {
        if (run.program->ops[op].kind == RP_OP_UPLOAD_GRAD && count < MOST) {
            took_ps[count++] = run.timeline->end_ps[op] - run.timeline->start_ps[op];
        }
    }
    for (uint32_t i = 0; i < run.plan.job_count; i++) {
        const rpexec_job *job = &run.plan.jobs[i];
        uint64_t bytes =
            (run.state.offsets[job->end] - run.state.offsets[job->begin]) * sizeof(float);
        int64_t ps = (int64_t)(1e12 * (double)bytes / RATE);
        whole_stage_ps = ps > whole_stage_ps ? ps : whole_stage_ps;
    }
    cr_assert(ge(u32, count, 4));
    qsort(took_ps, count, sizeof took_ps[0], by_value);
    int64_t allowed_ps = (int64_t)(1e12 * (double)(own + PIECE) / RATE) + 2000000000;
    cr_assert(allowed_ps < whole_stage_ps / 2, "the sizes cannot tell them apart");
    cr_expect(took_ps[count / 2] <= allowed_ps, "%.3f ms, %.3f ms are right",
              1e-9 * (double)took_ps[count / 2], 1e-9 * (double)allowed_ps);
    rp_test_forget(&run);
}
