/* Throttled copies in real time. The least time of a copy is exact, since shares are the closed
 * form of max-min fairness. The longest time depends on the other load of this machine: the best of
 * a few tries counts, with room. */
#include "exec/host/links.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <time.h>

#define GPUS 4u
#define BYTES UINT64_C(8000000)
#define TRIES 200

/* A copy and the time at which it happened. */
typedef struct copy {
    rpexec_links *links;
    uint32_t op;
    unsigned char *to, *from;
    pthread_barrier_t *barrier;
    rp_status status;
    double begin_s, end_s;
} copy;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *run_copy(void *context)
{
    copy *c = context;
    int64_t begin_ns = 0;
    pthread_barrier_wait(c->barrier);
    c->status = rpexec_links_copy(c->links, c->op, c->to, c->from, BYTES, &begin_ns);
    c->end_s = seconds();
    c->begin_s = 1e-9 * (double)begin_ns;
    return NULL;
}

static rp_arena *arena;
static rp_program *program;

static void set_up(void)
{
    rp_model config = rp_test_decoder(4, false, false);
    rpexec_model model;
    rp_costs costs;
    rp_resolved work = rp_test_work("roundpipe", GPUS, GPUS, 1);
    work.decided.piece_bytes = UINT64_C(1) << 30;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rpexec_model_create(&config, 4, RP_DTYPE_F32, arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_work_costs(&model, 1, arena, &costs), RP_OK));
    cr_assert(eq(int, rpexec_work_program(&work, &model, &costs, &program, NULL), RP_OK));
}

static void tear_down(void)
{
    rp_program_destroy(program);
    rp_test_end(arena);
}

TestSuite(exec_links, .init = set_up, .fini = tear_down);

static uint32_t op_of(uint32_t gpu, rp_queue_kind kind)
{
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        if (queue->gpu == gpu && queue->kind == kind && queue->op_begin < queue->op_end) {
            return queue->op_begin;
        }
    }
    cr_assert_fail("GPU %u has no such queue", gpu);
    return 0; /* not reached */
}

/* Runs copies at the same time, over links made for this call. */
static void run_copies(const rp_machine *machine, copy *copies, uint32_t count)
{
    rp_arena *own = NULL;
    rpexec_links *links = NULL;
    pthread_barrier_t barrier;
    pthread_t threads[4];
    cr_assert(eq(int, rp_arena_create(&own), RP_OK));
    cr_assert(eq(int, rpexec_links_open(program, machine, own, &links), RP_OK));
    pthread_barrier_init(&barrier, NULL, count);
    for (uint32_t i = 0; i < count; i++) {
        copies[i].links = links;
        copies[i].barrier = &barrier;
        cr_assert(eq(int, rp_arena_alloc(own, BYTES, 1, &copies[i].to), RP_OK));
        cr_assert(eq(int, rp_arena_alloc(own, BYTES, 1, &copies[i].from), RP_OK));
        for (uint64_t k = 0; k < BYTES; k++) {
            copies[i].from[k] = (unsigned char)(k * 7 + i);
        }
        cr_assert(eq(int, pthread_create(&threads[i], NULL, run_copy, &copies[i]), 0));
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        cr_assert(eq(int, copies[i].status, RP_OK));
        for (uint64_t k = 0; k < BYTES; k++) {
            cr_assert(copies[i].to[k] == (unsigned char)(k * 7 + i), "byte %zu differs", (size_t)k);
        }
    }
    pthread_barrier_destroy(&barrier);
    rpexec_links_close(links);
    rp_arena_destroy(own);
}

/* Two copies take at least as long as their shares of the capacity allow (they may overlap only in
 * part), and at most 1.7 times the time of two copies that begin together. */
static void check_two(const rp_machine *machine, copy *copies, double capacity, bool shared)
{
    double alone_s = (double)BYTES / capacity;
    double wanted_s = shared ? 2 * alone_s : alone_s;
    double best_s = 1e9;
    for (int i = 0; i < TRIES && best_s > 1.7 * wanted_s; i++) {
        run_copies(machine, copies, 2);
        double apart_s = copies[0].begin_s - copies[1].begin_s;
        apart_s = apart_s < 0 ? -apart_s : apart_s;
        double slower_s = 0;
        for (int k = 0; k < 2; k++) {
            double took_s = copies[k].end_s - copies[k].begin_s;
            cr_expect(ge(dbl, took_s, alone_s - 1e-6));
            cr_expect(ge(dbl, took_s, wanted_s - apart_s - 1e-6));
            slower_s = took_s > slower_s ? took_s : slower_s;
        }
        best_s = slower_s < best_s ? slower_s : best_s;
    }
    cr_expect(le(dbl, best_s, 1.7 * wanted_s));
}

static const rp_machine behind_switches = {.upload_Bps = 4e8,
                                           .download_Bps = 4e8,
                                           .host_Bps = 1e9,
                                           .gpus_per_switch = 2,
                                           .switch_Bps = 2e8};

Test(exec_links, one_alone_gets_the_switch)
{
    copy c = {.op = op_of(1, RP_QUEUE_PARAM_UPLOAD)};
    double best_s = 1e9;
    for (int i = 0; i < TRIES && best_s > 1.7 * (double)BYTES / 2e8; i++) {
        run_copies(&behind_switches, &c, 1);
        double took_s = c.end_s - c.begin_s;
        cr_expect(ge(dbl, took_s, (double)BYTES / 2e8 - 1e-6));
        best_s = took_s < best_s ? took_s : best_s;
    }
    cr_expect(le(dbl, best_s, 1.7 * (double)BYTES / 2e8));
}

Test(exec_links, two_behind_a_switch_get_half_each)
{
    copy c[2] = {{.op = op_of(0, RP_QUEUE_PARAM_UPLOAD)}, {.op = op_of(1, RP_QUEUE_PARAM_UPLOAD)}};
    check_two(&behind_switches, c, 2e8, true);
}

Test(exec_links, switches_of_their_own_do_not_disturb)
{
    copy c[2] = {{.op = op_of(1, RP_QUEUE_DOWNLOAD)}, {.op = op_of(2, RP_QUEUE_DOWNLOAD)}};
    check_two(&behind_switches, c, 2e8, false);
}

Test(exec_links, directions_do_not_disturb_each_other)
{
    copy c[2] = {{.op = op_of(0, RP_QUEUE_PARAM_UPLOAD)}, {.op = op_of(0, RP_QUEUE_DOWNLOAD)}};
    check_two(&behind_switches, c, 2e8, false);
}

Test(exec_links, directions_share_memory)
{
    rp_machine m = {.upload_Bps = 4e8, .download_Bps = 4e8, .host_Bps = 1e9, .dram_Bps = 2e8};
    copy c[2] = {{.op = op_of(0, RP_QUEUE_PARAM_UPLOAD)}, {.op = op_of(3, RP_QUEUE_DOWNLOAD)}};
    check_two(&m, c, 2e8, true);
}

/* The two upload queues of a GPU take turns on its copy engine: the first copy is done in half of
 * the time. */
Test(exec_links, a_copy_engine_takes_turns)
{
    copy c[2] = {{.op = op_of(0, RP_QUEUE_PARAM_UPLOAD)}, {.op = op_of(0, RP_QUEUE_ACT_UPLOAD)}};
    run_copies(&behind_switches, c, 2);
    const copy *first = c[0].begin_s < c[1].begin_s ? &c[0] : &c[1];
    const copy *second = first == &c[0] ? &c[1] : &c[0];
    double alone_s = (double)BYTES / 2e8;
    cr_expect(ge(dbl, first->end_s - first->begin_s, alone_s - 1e-6));
    cr_expect(ge(dbl, second->begin_s - first->begin_s, alone_s - 1e-6));
    cr_expect(ge(dbl, second->end_s - second->begin_s, alone_s - 1e-6));
}

static void *stop_soon(void *context)
{
    struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, NULL);
    rpexec_links_stop(context);
    return NULL;
}

/* A copy that would take an hour ends at once when the run has failed. */
Test(exec_links, stopping_wakes_who_waits)
{
    rp_machine m = {.upload_Bps = 2000, .download_Bps = 2000, .host_Bps = 2000};
    rpexec_links *links = NULL;
    unsigned char *bytes = NULL;
    pthread_t thread;
    int64_t begin_ns = 0;
    cr_assert(eq(int, rp_arena_alloc(arena, 2 * BYTES, 1, &bytes), RP_OK));
    cr_assert(eq(int, rpexec_links_open(program, &m, arena, &links), RP_OK));
    cr_assert(eq(int, pthread_create(&thread, NULL, stop_soon, links), 0));
    uint32_t op = op_of(0, RP_QUEUE_DOWNLOAD);
    cr_expect(
        eq(int, rpexec_links_copy(links, op, bytes, bytes + BYTES, BYTES, &begin_ns), RP_BROKEN));
    pthread_join(thread, NULL);
    cr_expect(eq(int, rpexec_links_copy_peer(links, 0, bytes, 1, bytes + BYTES, BYTES), RP_BROKEN));
    rpexec_links_close(links);
}

/* From GPU 0 to GPU 2 without peers: down through the first switch, up through the second, at the
 * slower link's rate. */
Test(exec_links, peers_go_over_both_links)
{
    rp_machine m = behind_switches;
    const double scale[GPUS] = {1, 1, 0.25, 1};
    rpexec_links *links = NULL;
    unsigned char *bytes = NULL;
    m.link_scale = scale;
    cr_assert(eq(int, rp_arena_alloc(arena, 2 * BYTES, 1, &bytes), RP_OK));
    cr_assert(eq(int, rpexec_links_open(program, &m, arena, &links), RP_OK));
    double begin_s = seconds();
    cr_expect(eq(int, rpexec_links_copy_peer(links, 2, bytes, 0, bytes + BYTES, BYTES), RP_OK));
    cr_expect(ge(dbl, seconds() - begin_s, (double)BYTES / 1e8));
    rpexec_links_close(links);
}

/* Training over shared links has the same bits, and takes at least as long as a GPU's bytes need.
 */
Test(exec_links, training_takes_as_long_as_its_bytes)
{
    rp_machine m = behind_switches;
    rp_model config = rp_test_decoder(4, false, false);
    rp_test_run fast, slow;
    m.switch_Bps = 2e7;
    rp_resolved work = rp_test_work("roundpipe", 2, 2, 2);
    work.recompute = RP_RECOMPUTE_EARLY;
    work.decided.piece_bytes = UINT64_C(1) << 20;
    cr_assert(eq(int, rp_test_execute(arena, &config, 16, &work, NULL, &fast), RP_OK));
    rp_test_twist twist = {.machine = &m};
    double begin_s = seconds();
    cr_assert(eq(int, rp_test_execute(arena, &config, 16, &work, &twist, &slow), RP_OK));
    double took_s = seconds() - begin_s;
    cr_expect(rp_test_same(&fast, &slow, work.decided.iterations));
    cr_expect(ge(dbl, took_s, (double)slow.uploaded_bytes / m.switch_Bps));
    cr_expect(ge(dbl, took_s, (double)slow.downloaded_bytes / m.switch_Bps));
}
