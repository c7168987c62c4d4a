/* Emulated GPUs, whose ops share a host's cores (machine.h): closed forms, and a slow simulation of
 * processor sharing without the engine's code. */
#include "sim/run/run_bounds.h"
#include "tests/support/assertions.h"
#include "tests/support/lowered_bench.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

TestSuite(cores, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 200);

/* Core picoseconds of an op, from the bench's bytes and rates. */
static double work_of(const rp_test_bench *b, uint32_t queue, uint32_t op)
{
    const rp_program *p = b->program;
    const rp_machine *m = &b->machine;
    double bytes = (double)p->op_bytes[op];
    switch ((rp_op_class)rp_op_kind_class((rp_op_kind)p->ops[op].kind)) {
    case RP_CLASS_COMPUTE:
        return (double)rpsim_op_ps(&b->costs, p, op);
    case RP_CLASS_TRANSFER:
        cr_assert(ne(int, p->queues[queue].kind, RP_QUEUE_RECEIVE));
        return 1e12 * bytes / m->upload_Bps; /* downloads are as fast in the bench */
    case RP_CLASS_HOST:
        return 1e12 * bytes / m->host_Bps * (m->host_threads > 0 ? m->host_threads : 1);
    case RP_CLASS_COLLECTIVE:
        break;
    }
    cr_assert_fail("no such ops in the bench");
    return 0; /* not reached */
}

static double threads_of(const rp_test_bench *b, uint32_t op)
{
    bool host = rp_op_kind_class((rp_op_kind)b->program->ops[op].kind) == RP_CLASS_HOST;
    return host && b->machine.host_threads > 0 ? b->machine.host_threads : 1;
}

static double all_work(const rp_test_bench *b)
{
    double sum = 0;
    for (uint32_t q = 0; q < b->program->queue_count; q++) {
        for (uint32_t i = b->program->queues[q].op_begin; i < b->program->queues[q].op_end; i++) {
            sum += work_of(b, q, i);
        }
    }
    return sum;
}

static int64_t last_end(const rp_timeline *t)
{
    int64_t last = 0;
    for (uint32_t i = 0; i < t->program->op_count; i++) {
        last = t->end_ps[i] > last ? t->end_ps[i] : last;
    }
    return last;
}

static const char *const schedules[] = {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "roundpipe"};
#define SCHEDULES (sizeof schedules / sizeof schedules[0])

static void make(rp_test_bench *b, const char *schedule, double cores, uint32_t host_threads)
{
    rp_test_bench_make(b, schedule, 6, 2, false);
    rp_test_bench_sizes(b, 5000000, 20000000);
    rp_test_bench_lower(b);
    b->machine.cores = cores;
    b->machine.copies_on_cores = true;
    b->machine.host_threads = host_threads;
}

/* A single core never idles before the end, whatever the schedule. */
Test(cores, one_core_takes_the_sum_of_all_work)
{
    for (size_t i = 0; i < SCHEDULES; i++) {
        rp_test_bench b;
        make(&b, schedules[i], 1, 1);
        rp_test_bench_run(&b);
        cr_expect(le(dbl, fabs((double)last_end(b.timeline) / all_work(&b) - 1), 1e-9), "%s",
                  schedules[i]);
        rp_test_bench_fini(&b);
    }
}

/* GPUs bound to one core of many take the sum of their work; the host may work beside them. */
Test(cores, gpus_bound_to_one_core_take_the_sum_of_their_work)
{
    for (size_t i = 0; i < SCHEDULES; i++) {
        rp_test_bench b;
        double sum = 0;
        make(&b, schedules[i], 8, 1);
        b.machine.bound_cores = 1;
        rp_test_bench_run(&b);
        for (uint32_t q = 0; q < b.program->queue_count; q++) {
            const rp_queue *queue = &b.program->queues[q];
            bool on_gpu = rp_queue_kind_on_gpu((rp_queue_kind)queue->kind);
            for (uint32_t op = queue->op_begin; on_gpu && op < queue->op_end; op++) {
                sum += work_of(&b, q, op);
            }
        }
        cr_expect(ge(dbl, (double)last_end(b.timeline), (1 - 1e-9) * sum), "%s", schedules[i]);
        cr_expect(le(dbl, (double)last_end(b.timeline), (1 + 1e-9) * all_work(&b)), "%s",
                  schedules[i]);
        rp_test_bench_fini(&b);
    }
}

/* Half a core takes twice as long; an op alone never beats its work. */
Test(cores, time_is_inverse_to_less_than_a_core)
{
    for (size_t i = 0; i < SCHEDULES; i++) {
        rp_test_bench b;
        make(&b, schedules[i], 0.5, 1);
        rp_test_bench_run(&b);
        cr_expect(le(dbl, fabs((double)last_end(b.timeline) / all_work(&b) - 2), 1e-9), "%s",
                  schedules[i]);
        rp_test_bench_fini(&b);
    }
}

/* With a core per thread, ops take their own time, as in the engine without cores if nothing is
 * transferred. */
Test(cores, enough_cores_change_nothing)
{
    for (size_t i = 0; i < SCHEDULES; i++) {
        rp_test_bench b;
        rp_test_bench_make(&b, schedules[i], 6, 2, false);
        rp_test_bench_sizes(&b, 0, 0);
        rp_test_bench_lower(&b);
        rp_test_bench_run(&b);
        int64_t alone_ps = last_end(b.timeline);
        b.machine.cores = 64;
        b.machine.copies_on_cores = i % 2 == 0;
        rp_test_bench_run(&b);
        cr_expect(eq(i64, last_end(b.timeline), alone_ps), "%s", schedules[i]);
        rp_test_bench_fini(&b);
    }
}

/* ---- the slow simulation --------------------------------------------------------------------- */

typedef struct slow {
    const rp_test_bench *b;
    uint32_t *next;   /* [queue] */
    double *left;     /* [queue] remaining work of its op per thread; < 0: not begun */
    double *begin_ps; /* [op] */
    double *end_ps;
} slow;

static bool can_begin(const slow *s, uint32_t op)
{
    const rp_program *p = s->b->program;
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        if (s->end_ps[rp_wait_op(p->waits[w])] < 0) {
            return false;
        }
    }
    return true;
}

/* Begins ops until all running ops have work left. */
static void begin_all(slow *s, double now_ps)
{
    const rp_program *p = s->b->program;
    for (bool any = true; any;) {
        any = false;
        for (uint32_t q = 0; q < p->queue_count; q++) {
            uint32_t op = s->next[q];
            if (op == p->queues[q].op_end) {
                continue;
            }
            if (s->left[q] < 0 && can_begin(s, op)) {
                s->left[q] = work_of(s->b, q, op) / threads_of(s->b, op);
                s->begin_ps[op] = now_ps;
                any = true;
            }
            if (s->left[q] >= 0 && s->left[q] < 1e-3) { /* of a picosecond */
                s->end_ps[op] = now_ps;
                s->left[q] = -1;
                s->next[q]++;
                any = true;
            }
        }
    }
}

/* The core to which a queue's thread is bound; UINT32_MAX: none. */
static uint32_t bound_to(const slow *s, uint32_t q)
{
    const rp_queue *queue = &s->b->program->queues[q];
    bool bound = s->b->machine.bound_cores > 0 && rp_queue_kind_on_gpu((rp_queue_kind)queue->kind);
    return bound ? queue->gpu % s->b->machine.bound_cores : UINT32_MAX;
}

/* A core's share for each thread of a working queue. All rise together until a thread has a core,
 * its core is full, or all cores are. `rate` < 0: still rising. */
static uint32_t share_out(const slow *s, double *rate)
{
    uint32_t queues = s->b->program->queue_count;
    uint32_t rising = 0;
    for (uint32_t q = 0; q < queues; q++) {
        rate[q] = s->left[q] >= 0 ? -1 : 0;
        rising += s->left[q] >= 0;
    }
    uint32_t working = rising;
    while (rising > 0) {
        double level = 1;
        for (uint32_t core = 0; core <= s->b->machine.bound_cores; core++) {
            bool all = core == s->b->machine.bound_cores;
            double left = all ? s->b->machine.cores : 1;
            double threads = 0;
            for (uint32_t q = 0; q < queues; q++) {
                double of_q = s->left[q] >= 0 && (all || bound_to(s, q) == core)
                                  ? threads_of(s->b, s->next[q])
                                  : 0;
                left -= rate[q] >= 0 ? of_q * rate[q] : 0;
                threads += rate[q] < 0 ? of_q : 0;
            }
            level = threads > 0 ? fmin(level, left / threads) : level;
        }
        for (uint32_t q = 0; q < queues; q++) { /* no room above the level */
            double left[2] = {s->b->machine.cores, 1};
            for (uint32_t k = 0; k < queues; k++) {
                double used = s->left[k] < 0
                                  ? 0
                                  : threads_of(s->b, s->next[k]) *
                                        (rate[k] < 0 || rate[k] > level ? level : rate[k]);
                left[0] -= used;
                left[1] -= bound_to(s, k) == bound_to(s, q) ? used : 0;
            }
            bool full = left[0] < 1e-9 || level > 1 - 1e-12 ||
                        (bound_to(s, q) != UINT32_MAX && left[1] < 1e-9);
            if (rate[q] < 0 && full) {
                rate[q] = level;
                rising--;
            }
        }
    }
    return working;
}

static void simulate(slow *s)
{
    const rp_program *p = s->b->program;
    double rate[64];
    double now_ps = 0;
    cr_assert(le(u32, p->queue_count, 64));
    for (;;) {
        begin_all(s, now_ps);
        double least_ps = INFINITY;
        if (share_out(s, rate) == 0) {
            return;
        }
        for (uint32_t q = 0; q < p->queue_count; q++) {
            least_ps = s->left[q] >= 0 ? fmin(least_ps, s->left[q] / rate[q]) : least_ps;
        }
        for (uint32_t q = 0; q < p->queue_count; q++) {
            s->left[q] = s->left[q] < 0 ? -1 : fmax(0, s->left[q] - least_ps * rate[q]);
        }
        now_ps += least_ps;
    }
}

Test(cores, as_a_slow_simulation_has_it)
{
    static const double counts[] = {1, 1.7, 2, 3.25, 6};
    uint32_t compared = 0;
    for (size_t i = 0; i < SCHEDULES * 15; i++) {
        rp_test_bench b;
        make(&b, schedules[i / 15], counts[i % 5], i % 7 == 0 ? 2 : 1);
        b.machine.bound_cores = i / 5 % 3 == 0 ? 0 : (uint32_t)(i / 5 % 3 + i % 2);
        rp_test_bench_run(&b);
        const rp_program *p = b.program;
        slow s = {.b = &b,
                  .next = calloc(p->queue_count, sizeof(uint32_t)),
                  .left = calloc(p->queue_count, sizeof(double)),
                  .begin_ps = calloc(p->op_count, sizeof(double)),
                  .end_ps = calloc(p->op_count, sizeof(double))};
        for (uint32_t q = 0; q < p->queue_count; q++) {
            s.next[q] = p->queues[q].op_begin;
            s.left[q] = -1;
        }
        for (uint32_t op = 0; op < p->op_count; op++) {
            s.end_ps[op] = -1;
        }
        simulate(&s);
        for (uint32_t op = 0; op < p->op_count; op++) {
            double slack = 1e-9 * s.end_ps[op] + 1000;
            cr_assert(le(dbl, fabs((double)b.timeline->end_ps[op] - s.end_ps[op]), slack),
                      "%s, %g cores, bound to %u: op %u ends at %.0f, not %.0f", schedules[i / 15],
                      counts[i % 5], b.machine.bound_cores, op, (double)b.timeline->end_ps[op],
                      s.end_ps[op]);
            compared++;
        }
        free(s.next);
        free(s.left);
        free(s.begin_ps);
        free(s.end_ps);
        rp_test_bench_fini(&b);
    }
    cr_expect(gt(u32, compared, 5000));
}

Test(cores, bounds_are_below)
{
    for (size_t i = 0; i < SCHEDULES; i++) {
        rp_test_bench b;
        rpsim_bounds bounds = {0};
        make(&b, schedules[i], 2, 2);
        rp_test_bench_run(&b);
        cr_assert(eq(int,
                     rpsim_bounds_of_program(b.program, &b.costs, &b.machine, NULL, &bounds, NULL),
                     RP_OK));
        for (int k = 0; k < RPSIM_BOUND_COUNT; k++) {
            cr_expect(le(i64, bounds.ps[k], last_end(b.timeline)), "%s, bound %d", schedules[i], k);
        }
        rp_test_bench_fini(&b);
    }
}
