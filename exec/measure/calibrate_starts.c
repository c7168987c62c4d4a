/* Measures the times of starting an op. */
#include "common/base/median.h"
#include "exec/measure/calibrate.h"

#include <string.h>

/* Ops of a series; the first WARM_UP ops do not count. */
#define OPS 120u
#define WARM_UP 20u

/* On the host each op takes a while: the thread that waits for its end must have gone to sleep, as
 * in a run, and be waked up. */
#define SPIN_NS 600000

/* On GPUs no op begins before all are enqueued: the first op copies until then. */
#define HOLD_BYTES (UINT64_C(8) << 20)
#define HOLD_COPIES 128u /* 1 GiB: some 20 ms */

typedef struct measuring {
    const rpexec_site *site;
    rpexec_trial trial;
} measuring;

static rp_status prepare_memory(void *context, rpexec_driver *driver)
{
    measuring *m = context;
    unsigned char *host = m->site->driver_type->memory(driver, m->site->gpus);
    memset(host, 1, m->trial.host_bytes);
    return RP_OK;
}

static rp_status take_time(void *context, uint32_t number, uint32_t op, rpexec_driver *driver,
                           rpexec_lane *lane)
{
    measuring *m = context;
    const rpexec_driver_type *type = m->site->driver_type;
    int64_t begin_ns = rpexec_driver_now_ns();
    (void)lane;
    while (m->site->devices == NULL && rpexec_driver_now_ns() - begin_ns < SPIN_NS) {
    }
    for (uint32_t i = 0; number == 0 && m->site->devices != NULL && i < HOLD_COPIES; i++) {
        type->copy(driver, op, type->memory(driver, 0), type->memory(driver, m->site->gpus),
                   HOLD_BYTES);
    }
    return RP_OK;
}

static rp_status append_op(measuring *m, uint32_t gpu, rp_queue_kind queue, rp_op_kind kind,
                           bool waits)
{
    uint32_t before = m->trial.op_count - 1;
    return rpexec_trial_append(&m->trial, gpu, queue, kind, 0, &before, waits ? 1 : 0);
}

/* Adds ops that go there and back between GPU 0's compute queue and another queue. */
static rp_status add_chain(measuring *m, uint32_t gpu, rp_queue_kind queue, rp_op_kind kind)
{
    for (uint32_t i = 0; i < OPS; i += 2) {
        RP_TRY(append_op(m, gpu, queue, kind, true));
        RP_TRY(append_op(m, 0, RP_QUEUE_COMPUTE, RP_OP_FORWARD, true));
    }
    return RP_OK;
}

/* Median time to start an op in the chain from `first` on. Both directions are averaged, since
 * clocks of two GPUs differ a little. */
static double chain_s(const measuring *m, uint32_t first)
{
    const rpexec_trial *t = &m->trial;
    double values[OPS];
    uint32_t count = 0;
    for (uint32_t i = first + WARM_UP; i < first + OPS; i += 2) {
        int64_t there_ps = t->start_ps[i] - t->end_ps[i - 1];
        int64_t back_ps = t->start_ps[i + 1] - t->end_ps[i];
        values[count++] = 1e-12 * (double)(there_ps + back_ps) / 2;
    }
    double median = rp_median(values, count);
    return median > 0 ? median : 0;
}

static rp_status measure_starts(measuring *m, rpexec_starts *starts)
{
    bool several = m->site->gpus > 1;
    const rpexec_trial *t = &m->trial;
    double gaps[OPS];
    double submits[OPS];
    uint32_t count = 0;
    RP_TRY(rpexec_trial_append(&m->trial, 0, RP_QUEUE_COMPUTE, RP_OP_FORWARD, 0, NULL, 0));
    for (uint32_t i = 1; i < OPS; i++) {
        RP_TRY(append_op(m, 0, RP_QUEUE_COMPUTE, RP_OP_FORWARD, false));
    }
    RP_TRY(add_chain(m, 0, RP_QUEUE_DOWNLOAD, RP_OP_DOWNLOAD_ACT));
    if (several) {
        RP_TRY(add_chain(m, 1, RP_QUEUE_COMPUTE, RP_OP_FORWARD));
    }
    for (uint32_t gpu = 2; gpu < m->site->gpus; gpu++) { /* GPUs 0 and 1 have ops already */
        RP_TRY(rpexec_trial_append(&m->trial, gpu, RP_QUEUE_COMPUTE, RP_OP_FORWARD, 0, NULL, 0));
    }
    m->trial.gpu_bytes = m->trial.host_bytes = HOLD_BYTES;
    RP_TRY(rpexec_trial_run(&m->trial, prepare_memory, take_time, m));
    for (uint32_t i = WARM_UP; i < OPS; i++) {
        gaps[count] = 1e-12 * (double)(t->start_ps[i] - t->end_ps[i - 1]);
        submits[count++] = 1e-9 * (double)(t->perform_ns[i] - t->perform_ns[i - 1]);
    }
    *starts = (rpexec_starts){.gap_count = count,
                              .gap_s = rp_median(gaps, count),
                              .submit_s = m->site->devices != NULL ? rp_median(submits, count) : 0,
                              .wake_count = OPS - WARM_UP,
                              .wake_s = chain_s(m, OPS)};
    if (several) {
        starts->far_count = OPS - WARM_UP;
        starts->far_s = chain_s(m, 2 * OPS);
    }
    return RP_OK;
}

rp_status rpexec_calibrate_starts(const rpexec_site *site, rp_arena *arena,
                                  rpexec_starts *starts_out)
{
    measuring m = {.site = site};
    rpexec_trial_begin(site, arena, &m.trial);
    return measure_starts(&m, starts_out);
}

/* ---- of a run -------------------------------------------------------------------------------- */

rp_status rpexec_starts_of_run(const rpexec_plan *plan, const rp_timeline *t, uint32_t skip,
                               rp_arena *arena, rpexec_starts *starts)
{
    const rp_program *p = plan->program;
    double *values[3] = {NULL};
    uint32_t counts[3] = {0};
    for (size_t i = 0; i < 3; i++) {
        RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(double), &values[i]));
    }
    for (uint32_t op = 0; op < p->op_count; op++) {
        const rp_queue *queue = &p->queues[plan->order.queue_of[op]];
        if (queue->kind != RP_QUEUE_COMPUTE || p->ops[op].iteration < skip ||
            op == queue->op_begin) {
            continue;
        }
        uint32_t last = op - 1;
        for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
            uint32_t other = rp_wait_op(p->waits[w]);
            last = t->end_ps[other] > t->end_ps[last] ? other : last;
        }
        const rp_queue *from = &p->queues[plan->order.queue_of[last]];
        size_t kind = from == queue ? 0 : from->gpu == queue->gpu ? 1 : 2;
        values[kind][counts[kind]++] = 1e-12 * (double)(t->start_ps[op] - t->end_ps[last]);
    }
    *starts = (rpexec_starts){.gap_count = counts[0],
                              .gap_s = rp_median(values[0], counts[0]),
                              .wake_count = counts[1],
                              .wake_s = rp_median(values[1], counts[1]),
                              .far_count = counts[2],
                              .far_s = rp_median(values[2], counts[2])};
    return RP_OK;
}

void rpexec_starts_write(const rpexec_starts *idle, const rpexec_starts *run, FILE *stream)
{
    const struct {
        const char *what;
        uint32_t idle_count, run_count;
        double idle_s, run_s;
    } rows[] = {{"same queue", idle->gap_count, run->gap_count, idle->gap_s, run->gap_s},
                {"other queue", idle->wake_count, run->wake_count, idle->wake_s, run->wake_s},
                {"other GPU", idle->far_count, run->far_count, idle->far_s, run->far_s},
                {"submission", idle->submit_s > 0 ? idle->gap_count : 0, 0, idle->submit_s, 0}};
    fputs("what,where,samples,median_us\n", stream);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].idle_count > 0) {
            fprintf(stream, "%s,idle,%u,%.3f\n", rows[i].what, rows[i].idle_count,
                    1e6 * rows[i].idle_s);
        }
        if (rows[i].run_count > 0) {
            fprintf(stream, "%s,run,%u,%.3f\n", rows[i].what, rows[i].run_count,
                    1e6 * rows[i].run_s);
        }
    }
}
