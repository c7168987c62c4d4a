#include "exec/measure/trial.h"

#include "common/base/log.h"
#include "common/base/mem.h"

#include <stdatomic.h>
#include <string.h>

void rpexec_trial_begin(const rpexec_site *site, rp_arena *arena, rpexec_trial *trial_out)
{
    *trial_out = (rpexec_trial){.site = site, .arena = arena};
}

/* Makes room for another element and `room` more. */
static rp_status grow(rp_arena *arena, uint32_t count, uint32_t room, size_t size, uint32_t *most,
                      void **array)
{
    void *grown = NULL;
    if (count + room < *most) {
        return RP_OK;
    }
    *most = 2 * (count + room) + 64;
    RP_TRY(rp_arena_alloc(arena, *most, size, &grown));
    if (count != 0) {
        memcpy(grown, *array, count * size);
    }
    *array = grown;
    return RP_OK;
}

rp_status rpexec_trial_add(rpexec_trial *t, const rpexec_trial_op *op, const uint32_t *waits,
                           uint32_t wait_count)
{
    void *ops = t->ops;
    void *all = t->waits;
    RP_TRY(grow(t->arena, t->op_count, 1, sizeof *t->ops, &t->op_most, &ops));
    t->ops = ops;
    RP_TRY(grow(t->arena, t->wait_count, wait_count, sizeof *t->waits, &t->wait_most, &all));
    t->waits = all;
    t->ops[t->op_count] = *op;
    t->ops[t->op_count++].wait_begin = t->wait_count;
    for (uint32_t i = 0; i < wait_count; i++) {
        t->waits[t->wait_count++] = waits[i];
    }
    return RP_OK;
}

/* ---- the program ----------------------------------------------------------------------------- */

typedef struct running {
    rpexec_trial *trial;
    rp_program *program;
    rpexec_plan plan;
    rp_timeline *timeline;
    uint32_t *op_of;     /* [number in the trial] op of the program */
    uint32_t *number_of; /* [op] number in the trial */
    rpexec_trial_perform perform;
    void *context;
    _Atomic(rpexec_driver *) driver;
} running;

static uint32_t wait_end(const rpexec_trial *t, uint32_t number)
{
    return number + 1 < t->op_count ? t->ops[number + 1].wait_begin : t->wait_count;
}

static rp_status number_ops(running *r, rp_arena *arena)
{
    const rpexec_trial *t = r->trial;
    rp_program *p = r->program;
    uint32_t queues = t->site->gpus * RP_QUEUE_KIND_COUNT;
    RP_TRY(rp_arena_alloc(arena, t->op_count, sizeof(uint32_t), &r->op_of));
    RP_TRY(rp_arena_alloc(arena, t->op_count, sizeof(uint32_t), &r->number_of));
    RP_TRY(rp_arena_alloc(p->arena, queues, sizeof *p->queues, &p->queues));
    for (uint32_t q = 0; q < queues; q++) {
        uint32_t begin = p->op_count;
        uint16_t gpu = (uint16_t)(q / RP_QUEUE_KIND_COUNT);
        uint16_t kind = (uint16_t)(q % RP_QUEUE_KIND_COUNT);
        for (uint32_t i = 0; i < t->op_count; i++) {
            if (t->ops[i].gpu == gpu && t->ops[i].queue == kind) {
                r->op_of[i] = p->op_count;
                r->number_of[p->op_count++] = i;
            }
        }
        if (p->op_count > begin) {
            p->queues[p->queue_count++] =
                (rp_queue){.op_begin = begin, .op_end = p->op_count, .gpu = gpu, .kind = kind};
        }
    }
    return RP_OK;
}

static rp_status build(running *r, rp_arena *arena)
{
    const rpexec_trial *t = r->trial;
    RP_TRY(rp_program_create(&r->program));
    rp_program *p = r->program;
    p->schedule = "trial";
    p->gpu_count = t->site->gpus;
    p->microbatch_count = p->iteration_count = p->stage_count = 1;
    p->layer_count = t->site->model->config->layers;
    RP_TRY(number_ops(r, arena));
    RP_TRY(rp_arena_alloc(p->arena, 1, sizeof *p->stages, &p->stages));
    RP_TRY(rp_arena_alloc(p->arena, 1, sizeof *p->sequences, &p->sequences));
    RP_TRY(rp_arena_alloc(p->arena, (size_t)t->op_count + 1, sizeof *p->ops, &p->ops));
    RP_TRY(rp_arena_alloc(p->arena, t->op_count, sizeof *p->op_bytes, &p->op_bytes));
    RP_TRY(rp_arena_alloc(p->arena, t->wait_count, sizeof *p->waits, &p->waits));
    p->sequences[0] = t->site->sequences;
    for (uint32_t op = 0; op < p->op_count; op++) {
        uint32_t number = r->number_of[op];
        p->ops[op] = (rp_op){.kind = t->ops[number].kind, .wait_begin = p->wait_count};
        p->op_bytes[op] = t->ops[number].bytes;
        for (uint32_t w = t->ops[number].wait_begin; w < wait_end(t, number); w++) {
            p->waits[p->wait_count++] = r->op_of[t->waits[w]];
        }
    }
    p->ops[p->op_count].wait_begin = p->wait_count;
    return RP_OK;
}

static rp_status make_plan(running *r, rp_arena *arena)
{
    const rpexec_trial *t = r->trial;
    uint32_t gpus = t->site->gpus;
    r->plan = (rpexec_plan){.program = r->program, .model = t->site->model, .tensor = 1, .data = 1};
    RP_TRY(rpexec_order_create(r->program, arena, &r->plan.order));
    RP_TRY(rp_arena_alloc(arena, gpus + 1, sizeof(uint64_t), &r->plan.arena_bytes));
    for (uint32_t i = 0; i < gpus; i++) {
        r->plan.arena_bytes[i] = t->gpu_bytes;
    }
    r->plan.arena_bytes[gpus] = t->host_bytes;
    return RP_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static rp_status perform(void *context, uint32_t op, rpexec_lane *lane)
{
    running *r = context;
    uint32_t number = r->number_of[op];
    r->trial->perform_ns[number] = rpexec_driver_now_ns();
    return r->perform(r->context, number, op, atomic_load(&r->driver), lane);
}

static rp_status run_opened(running *r, rpexec_trial_prepare prepare)
{
    const rpexec_driver_type *type = r->trial->site->driver_type;
    rpexec_driver *driver = atomic_load(&r->driver);
    rp_status status = prepare != NULL ? prepare(r->context, driver) : RP_OK;
    for (uint32_t i = 0; status == RP_OK && i < r->program->op_count; i++) {
        status = type->submit(driver, r->plan.order.ops[i]);
    }
    if (status != RP_OK) {
        type->fail(driver, status);
    }
    rp_status finished = type->finish(driver, r->timeline);
    return status != RP_OK ? status : finished;
}

static rp_status open_and_run(running *r, rpexec_trial_prepare prepare)
{
    const rpexec_site *site = r->trial->site;
    rpexec_driver *driver = NULL;
    const rpexec_driver_config config = {.plan = &r->plan,
                                         .devices = site->devices,
                                         .machine = site->machine,
                                         .bound = site->bound,
                                         .unbounded = true, /* the time of a start without the
                                                               host */
                                         .watchdog_s = site->watchdog_s};
    RP_TRY(site->driver_type->open(&config, perform, r, &driver));
    atomic_store(&r->driver, driver);
    rp_status status = run_opened(r, prepare);
    site->driver_type->close(driver);
    return status;
}

static void take_times(const running *r)
{
    const rp_timeline *timeline = r->timeline;
    for (uint32_t op = 0; op < r->program->op_count; op++) {
        uint32_t number = r->number_of[op];
        int64_t ps = timeline->end_ps[op] - timeline->start_ps[op];
        r->trial->start_ps[number] = timeline->start_ps[op];
        r->trial->end_ps[number] = timeline->end_ps[op];
        r->trial->work_ps[number] = timeline->work_ps != NULL ? timeline->work_ps[op] : ps;
    }
}

static rp_status run_built(running *r, rpexec_trial_prepare prepare, rp_arena *arena)
{
    RP_TRY(build(r, arena));
    RP_TRY(make_plan(r, arena));
    RP_TRY(rp_timeline_create(r->program, &r->timeline));
    RP_TRY(open_and_run(r, prepare));
    take_times(r);
    return RP_OK;
}

rp_status rpexec_trial_run(rpexec_trial *t, rpexec_trial_prepare prepare, rpexec_trial_perform what,
                           void *context)
{
    running r = {.trial = t, .perform = what, .context = context};
    rp_arena *arena = NULL;
    int64_t begin_ns = rpexec_driver_now_ns();
    int64_t **const arrays[] = {&t->start_ps, &t->end_ps, &t->work_ps, &t->perform_ns};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        RP_TRY(rp_arena_alloc(t->arena, t->op_count, sizeof(int64_t), arrays[i]));
    }
    RP_TRY(rp_arena_create(&arena));
    rp_status status = run_built(&r, prepare, arena);
    rp_timeline_destroy(r.timeline);
    rp_program_destroy(r.program);
    rp_arena_destroy(arena);
    t->wall_s = 1e-9 * (double)(rpexec_driver_now_ns() - begin_ns);
    return status;
}
