#include "sim/engine/hardware_engine.h"

#include "common/base/heap.h"
#include "common/base/log.h"
#include "common/base/reason.h"
#include "sim/engine/dispatch.h"
#include "sim/engine/stage_engine.h"

#include <math.h>

/* Large programs wait for memory: dozens of queues are walked at once, more than a processor's own
 * prefetching follows, and dependents lie anywhere. So each queue is prefetched AHEAD ops ahead,
 * and an op's dependents when the op begins. The prefetches stand in place, not in functions,
 * because GCC drops calls of functions that do nothing but prefetch. */
#define AHEAD 16u

typedef enum event_kind {
    EVENT_END,     /* a compute op, or a chunk of it, has ended */
    EVENT_START,   /* the delay before an op has passed */
    EVENT_FLOW,    /* a transfer's latency is over, or a host op's objects have been gone through */
    EVENT_RELEASE, /* the host's lock is free */
} event_kind;

typedef struct queue_state {
    uint32_t next; /* op at the head */
    uint32_t end;
    bool running;
    bool computes;
    uint32_t flows; /* flows of the running op that have not ended */
    uint32_t step;  /* step of the running op if it is a group's collective */
    uint32_t engine;
    int64_t free_ps;               /* the next op begins no earlier */
    const rp_machine_group *group; /* GPUs of its collectives; NULL: all, or no collectives */
    int64_t held_from_ps; /* since when the running op waits for the launch of its next chunk; -1:
                             it does not wait */
} queue_state;

/* State of an op, packed together: ops are visited in no order, and each visit costs a cache
 * line. */
typedef struct op_state {
    uint32_t pending;         /* waits that are still open */
    uint32_t dependent_begin; /* into dependents, up to the next op's */
    uint32_t queue;
    uint32_t kind; /* rp_op_kind */
} op_state;

/* Ops that wait for a copy engine, first come, first served: at most one per queue. */
typedef struct copy_engine {
    uint32_t waiting[4]; /* queues */
    uint32_t waiting_count;
    bool busy;
} copy_engine;

typedef struct engine {
    const rp_program *program;
    const rpsim_compute_costs *costs;
    const double *factors; /* [op], or NULL */
    const rp_machine *machine;
    rp_network *network;
    rpsim_dispatcher *dispatcher; /* NULL: dispatch is not modelled */
    rp_routes routes;
    op_state *ops; /* [op + 1] */
    uint32_t *dependents;
    queue_state *queues;
    copy_engine *engines;
    rp_heap events; /* by time; tag: kind and op */
    uint64_t sequence;
    int64_t *start_ps;
    int64_t *end_ps;
    int64_t *held_ps;  /* [op], or NULL */
    int64_t *ready_ps; /* [op] when the end of the op's waits is noticed; NULL: at once */
    uint32_t ended;
    rp_status status;
    rp_reason *reason; /* given by the caller */
} engine;

/* ---- events ---------------------------------------------------------------------------------- */

static void stop_too_long(engine *e)
{
    e->status = rp_refuse(e->reason, RP_INPUT,
                          "the run takes longer than 106 days, where its clock ends; valid are "
                          "shorter runs and faster GPUs, links and hosts");
}

static void push_event(engine *e, int64_t now_ps, int64_t after_ps, uint32_t op, event_kind kind)
{
    if (after_ps >= RP_NEVER - now_ps) {
        stop_too_long(e);
        return;
    }
    rp_heap_push(&e->events, (rp_heap_entry){.key = (uint64_t)(now_ps + after_ps),
                                             .sequence = e->sequence++,
                                             .tag = (uint64_t)kind << 32 | op});
}

/* ---- ops ------------------------------------------------------------------------------------- */

static void start_flow(engine *e, uint32_t op, uint32_t route, double bytes, int64_t now_ps)
{
    rp_status status = rp_network_start(e->network, route, bytes, now_ps, op);
    e->status = status != RP_OK ? status : e->status;
}

static void start_flows(engine *e, uint32_t op, uint32_t route, double each, uint32_t count,
                        int64_t now_ps)
{
    e->queues[e->ops[op].queue].flows = count;
    for (uint32_t i = 0; i < count && e->status == RP_OK; i++) {
        start_flow(e, op, route, each, now_ps);
    }
}

/* A step of a group's collective: through the GPU, its node's port and its leaf switch at once. */
static void begin_group_flows(engine *e, uint32_t op, const rp_collective_step *step,
                              int64_t now_ps)
{
    uint32_t queue = e->ops[op].queue;
    double bytes = (double)e->program->op_bytes[op];
    bool network = step->network > 0;
    bool leaf = step->leaf > 0;
    e->queues[queue].flows = 1 + network + leaf;
    start_flow(e, op, e->routes.of_queue[queue], bytes * step->bus, now_ps);
    if (network) {
        start_flow(e, op, e->routes.network[queue], bytes * step->network, now_ps);
    }
    if (leaf) {
        start_flow(e, op, e->routes.leaf[queue], bytes * step->leaf, now_ps);
    }
}

static void begin_flow(engine *e, uint32_t op, int64_t now_ps)
{
    const op_state *o = &e->ops[op];
    rp_op_kind kind = (rp_op_kind)o->kind;
    __builtin_prefetch(&e->dependents[o->dependent_begin]);
    if (e->queues[o->queue].group != NULL) {
        rp_collective_step steps[RP_COLLECTIVE_STEPS];
        rp_machine_group_steps(e->machine, e->queues[o->queue].group, kind, steps);
        begin_group_flows(e, op, &steps[e->queues[o->queue].step], now_ps);
        return;
    }
    uint32_t route = rp_route_of(&e->routes, o->queue, op, kind);
    double bytes = rp_flow_bytes(&e->routes, e->program->op_bytes[op], kind);
    start_flows(e, op, route, bytes, rp_flow_count(&e->routes, kind), now_ps);
}

static void begin_transfer(engine *e, uint32_t op, int64_t now_ps)
{
    e->start_ps[op] = now_ps;
    if (e->machine->copy_latency_ps > 0) {
        push_event(e, now_ps, e->machine->copy_latency_ps, op, EVENT_FLOW);
    } else {
        begin_flow(e, op, now_ps);
    }
}

static void request_engine(engine *e, uint32_t queue, int64_t now_ps)
{
    copy_engine *copies = &e->engines[e->queues[queue].engine];
    if (copies->busy) {
        copies->waiting[copies->waiting_count++] = queue;
        return;
    }
    copies->busy = true;
    begin_transfer(e, e->queues[queue].next, now_ps);
}

static void release_engine(engine *e, uint32_t index, int64_t now_ps)
{
    copy_engine *copies = &e->engines[index];
    copies->busy = copies->waiting_count > 0;
    if (copies->busy) {
        uint32_t queue = copies->waiting[0];
        copies->waiting_count--;
        for (uint32_t i = 0; i < copies->waiting_count; i++) {
            copies->waiting[i] = copies->waiting[i + 1];
        }
        begin_transfer(e, e->queues[queue].next, now_ps);
    }
}

/* Begins a compute op, or with dispatch its next chunk. */
static void begin_compute(engine *e, uint32_t op, int64_t now_ps)
{
    int64_t ps = rpsim_op_ps(e->costs, e->program, op);
    __builtin_prefetch(&e->dependents[e->ops[op].dependent_begin]);
    ps = e->factors == NULL ? ps : rpsim_scaled_ps(ps, e->factors[op]);
    ps = e->dispatcher == NULL ? ps : rpsim_dispatcher_chunk_ps(e->dispatcher, op, ps);
    if (e->routes.cores == NULL) {
        push_event(e, now_ps, ps, op, EVENT_END);
    } else { /* the op is a thread that shares cores with others */
        start_flows(e, op, e->routes.cores[e->ops[op].queue], (double)ps, 1, now_ps);
    }
}

/* The time that the process spends on an op's modules and tensors before it works on their
 * bytes. */
static int64_t objects_ps(const engine *e, uint32_t op)
{
    bool host = rp_op_kind_class((rp_op_kind)e->ops[op].kind) == RP_CLASS_HOST;
    return e->dispatcher != NULL && host
               ? rpsim_dispatch_host_ps(&e->costs->dispatch, &e->program->ops[op],
                                        e->machine->object_ps)
               : 0;
}

/* The latency before the bytes of a collective flow; if an op stands for several collectives in a
 * row, their sum. */
static int64_t collective_ps(const engine *e, uint32_t queue, uint32_t op)
{
    const queue_state *q = &e->queues[queue];
    rp_op_kind kind = (rp_op_kind)e->ops[op].kind;
    rp_collective_step steps[RP_COLLECTIVE_STEPS];
    int64_t count = rp_program_op_reduces(e->program, op);
    if (q->group == NULL) {
        return count * rp_machine_collective_ps(e->machine, rp_program_ranks(e->program), kind);
    }
    rp_machine_group_steps(e->machine, q->group, kind, steps);
    return count * steps[q->step].latency_ps;
}

/* Begins the next step of an op that neither computes nor uses a copy engine. */
static void begin_step(engine *e, uint32_t queue, uint32_t op, int64_t now_ps)
{
    rp_op_kind kind = (rp_op_kind)e->ops[op].kind;
    bool collective = rp_op_kind_class(kind) == RP_CLASS_COLLECTIVE;
    int64_t before_ps = collective                   ? collective_ps(e, queue, op)
                        : rp_op_kind_uses_port(kind) ? rp_machine_exchange_ps(e->machine)
                                                     : objects_ps(e, op);
    if (before_ps > 0) {
        push_event(e, now_ps, before_ps, op, EVENT_FLOW);
    } else {
        begin_flow(e, op, now_ps);
    }
}

static void begin_op(engine *e, uint32_t queue, int64_t now_ps)
{
    queue_state *q = &e->queues[queue];
    if (q->engine != RP_NO_ENGINE) {
        request_engine(e, queue, now_ps);
        return;
    }
    e->start_ps[q->next] = now_ps;
    if (q->computes) {
        begin_compute(e, q->next, now_ps);
        return;
    }
    q->step = 0;
    begin_step(e, queue, q->next, now_ps);
}

/* Starts the op at the head of a queue, whose waits have ended, unless the host holds it. */
static void start_head(engine *e, uint32_t queue, int64_t now_ps)
{
    queue_state *q = &e->queues[queue];
    if (e->dispatcher != NULL && !rpsim_dispatcher_issued(e->dispatcher, q->next)) {
        return;
    }
    q->running = true;
    int64_t ready_ps = e->ready_ps != NULL ? e->ready_ps[q->next] : 0;
    int64_t begin_ps = ready_ps > q->free_ps ? ready_ps : q->free_ps;
    if (begin_ps > now_ps) {
        push_event(e, now_ps, begin_ps - now_ps, q->next, EVENT_START);
    } else {
        begin_op(e, queue, now_ps);
    }
}

/* Starts the op at the head of a queue if nothing holds it. */
static inline void try_start(engine *e, uint32_t queue, int64_t now_ps)
{
    const queue_state *q = &e->queues[queue];
    if (!q->running && q->next != q->end && e->ops[q->next].pending == 0) {
        start_head(e, queue, now_ps);
    }
}

/* The time after_ps later, at most the end of the clock. */
static int64_t later(int64_t now_ps, int64_t after_ps)
{
    return after_ps < RP_NEVER - now_ps ? now_ps + after_ps : RP_NEVER;
}

static void finish(engine *e, uint32_t op, int64_t now_ps)
{
    uint32_t queue = e->ops[op].queue;
    queue_state *q = &e->queues[queue];
    for (uint32_t d = e->ops[op].dependent_begin; d < e->ops[op + 1].dependent_begin; d++) {
        __builtin_prefetch(&e->ops[e->dependents[d]], 1);
    }
    e->end_ps[op] = now_ps;
    e->ended++;
    q->running = false;
    q->next++;
    q->free_ps = later(now_ps, e->machine->op_gap_ps);
    uint32_t ahead = q->end - q->next > AHEAD ? q->next + AHEAD : q->next;
    __builtin_prefetch(&e->ops[ahead], 1);
    __builtin_prefetch(&e->start_ps[ahead], 1);
    __builtin_prefetch(&e->end_ps[ahead], 1);
    __builtin_prefetch(&e->program->op_bytes[ahead]);
    if (q->engine != RP_NO_ENGINE) {
        release_engine(e, q->engine, now_ps);
    }
    try_start(e, queue, now_ps);
    for (uint32_t d = e->ops[op].dependent_begin; d < e->ops[op + 1].dependent_begin; d++) {
        uint32_t index = e->dependents[d];
        op_state *dependent = &e->ops[index];
        if (e->ready_ps != NULL) {
            e->ready_ps[index] = later(now_ps, e->machine->op_wake_ps);
        }
        if (--dependent->pending == 0 && e->queues[dependent->queue].next == index) {
            try_start(e, dependent->queue, now_ps);
        }
    }
}

/* Lets the ops that the host has issued begin. */
static void take_news(engine *e, const rpsim_dispatch_news *news, int64_t now_ps)
{
    if (news->holds) {
        push_event(e, now_ps, news->hold_ps, 0, EVENT_RELEASE);
    }
    for (uint32_t i = 0; i < news->op_count; i++) {
        uint32_t op = news->ops[i];
        queue_state *q = &e->queues[e->ops[op].queue];
        if (q->held_from_ps >= 0 && q->next == op) {
            e->held_ps[op] += now_ps - q->held_from_ps;
            q->held_from_ps = -1;
            begin_compute(e, op, now_ps);
        } else if (q->next == op) {
            try_start(e, e->ops[op].queue, now_ps);
        }
    }
}

static void end_compute(engine *e, uint32_t op, int64_t now_ps)
{
    if (e->dispatcher == NULL) {
        finish(e, op, now_ps);
        return;
    }
    const rpsim_dispatch_news *news = NULL;
    switch (rpsim_dispatcher_chunk_end(e->dispatcher, op, &news)) {
    case RPSIM_CHUNK_LAST:
        finish(e, op, now_ps);
        break;
    case RPSIM_CHUNK_NEXT:
        begin_compute(e, op, now_ps);
        break;
    case RPSIM_CHUNK_HELD:
        e->queues[e->ops[op].queue].held_from_ps = now_ps;
        break;
    }
    take_news(e, news, now_ps);
}

static bool another_step(const engine *e, queue_state *q, uint32_t op)
{
    rp_collective_step steps[RP_COLLECTIVE_STEPS];
    return ++q->step <
           rp_machine_group_steps(e->machine, q->group, (rp_op_kind)e->ops[op].kind, steps);
}

static void end_flow(engine *e, uint32_t op, int64_t now_ps)
{
    queue_state *q = &e->queues[e->ops[op].queue];
    if (--q->flows > 0) {
        return;
    }
    if (q->computes) {
        end_compute(e, op, now_ps);
        return;
    }
    if (q->group != NULL && another_step(e, q, op)) {
        begin_step(e, e->ops[op].queue, op, now_ps);
        return;
    }
    finish(e, op, now_ps);
    if (e->dispatcher != NULL && rp_op_kind_class((rp_op_kind)e->ops[op].kind) == RP_CLASS_HOST) {
        take_news(e, rpsim_dispatcher_host_end(e->dispatcher, op), now_ps);
    }
}

static void take_event(engine *e, rp_heap_entry event)
{
    uint32_t op = (uint32_t)event.tag;
    int64_t time_ps = (int64_t)event.key;
    switch ((event_kind)(event.tag >> 32)) {
    case EVENT_END:
        end_compute(e, op, time_ps);
        break;
    case EVENT_START:
        begin_op(e, e->ops[op].queue, time_ps);
        break;
    case EVENT_FLOW:
        begin_flow(e, op, time_ps);
        break;
    case EVENT_RELEASE:
        take_news(e, rpsim_dispatcher_release(e->dispatcher), time_ps);
        break;
    }
}

/* Takes timed events and the network's completions in the order of time; on a tie the timed event
 * comes first. */
static void run_events(engine *e)
{
    while (e->status == RP_OK) {
        int64_t network_ps = rp_network_next(e->network);
        bool timed = e->events.count > 0 && (int64_t)e->events.entries[0].key <= network_ps;
        if (timed) {
            take_event(e, rp_heap_pop(&e->events));
            continue;
        }
        rp_completion done;
        if (network_ps == RP_NEVER && rp_network_flows(e->network) > 0) {
            stop_too_long(e);
        }
        if (network_ps == RP_NEVER || !rp_network_pop(e->network, network_ps, &done)) {
            return;
        }
        end_flow(e, (uint32_t)done.tag, done.time_ticks);
    }
}

/* ---- setting up ------------------------------------------------------------------------------ */

static rp_status index_dependents(engine *e, rp_arena *arena)
{
    const rp_program *p = e->program;
    RP_TRY(rp_arena_alloc(arena, (size_t)p->op_count + 2, sizeof(op_state), &e->ops));
    RP_TRY(rp_arena_alloc(arena, p->wait_count, sizeof(uint32_t), &e->dependents));
    op_state *next = e->ops + 1; /* shifted: filling moves the begins to their places */
    for (uint32_t w = 0; w < p->wait_count; w++) {
        next[rp_wait_op(p->waits[w]) + 1].dependent_begin++;
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        next[i + 1].dependent_begin += next[i].dependent_begin;
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        e->ops[i].pending = p->ops[i + 1].wait_begin - p->ops[i].wait_begin;
        e->ops[i].kind = p->ops[i].kind;
        for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
            e->dependents[next[rp_wait_op(p->waits[w])].dependent_begin++] = i;
        }
    }
    return RP_OK;
}

static rp_status prepare_engine(engine *e, rp_arena *arena, rp_reason *reason)
{
    const rp_program *p = e->program;
    RP_TRY(index_dependents(e, arena));
    RP_TRY(rp_arena_alloc(arena, p->queue_count, sizeof(queue_state), &e->queues));
    /* An event per queue, and an event for the host's lock. */
    RP_TRY(rp_arena_alloc(arena, (size_t)p->queue_count + 1, sizeof(rp_heap_entry),
                          &e->events.entries));
    RP_TRY(rp_arena_alloc(arena, (size_t)p->gpu_count * RP_ENGINES_PER_GPU, sizeof(copy_engine),
                          &e->engines));
    if (e->machine->op_wake_ps > 0) {
        RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(int64_t), &e->ready_ps));
    }
    RP_TRY(rp_machine_check(p, e->machine, reason));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        e->queues[q] =
            (queue_state){.next = queue->op_begin,
                          .end = queue->op_end,
                          .computes = queue->kind == RP_QUEUE_COMPUTE,
                          .engine = rp_copy_engine(e->machine, queue),
                          .group = rp_machine_group_of(e->machine, (rp_queue_kind)queue->kind),
                          .held_from_ps = -1};
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            e->ops[i].queue = q;
            e->end_ps[i] = -1;
        }
    }
    if (e->costs->dispatch.queue_depth != 0) {
        RP_TRY(rpsim_dispatcher_create(p, &e->costs->dispatch, e->machine->module_ps,
                                       e->machine->object_ps, arena, &e->dispatcher));
    }
    return rp_machine_network(p, e->machine, arena, &e->routes, &e->network, reason);
}

static rp_status check_finished(const engine *e)
{
    if (e->ended == e->program->op_count) {
        return RP_OK;
    }
    for (uint32_t q = 0; q < e->program->queue_count; q++) {
        if (e->queues[q].next < e->queues[q].end) {
            char name[RP_OP_NAME_SIZE];
            rp_op_name(&e->program->ops[e->queues[q].next], name);
            rp_log_error("deadlock: op %u (%s) of queue %u never starts", e->queues[q].next, name,
                         q);
            break;
        }
    }
    return RP_INVALID_PROGRAM;
}

static rp_status simulate_program(engine *e, rp_reason *reason)
{
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = prepare_engine(e, arena, reason);
    if (status == RP_OK) {
        for (uint32_t q = 0; q < e->program->queue_count; q++) {
            try_start(e, q, 0);
        }
        if (e->dispatcher != NULL) {
            take_news(e, rpsim_dispatcher_begin(e->dispatcher), 0);
        }
        run_events(e);
        status = e->status;
    }
    if (status == RP_OK) {
        status = check_finished(e);
    }
    rp_network_destroy(e->network);
    rp_arena_destroy(arena);
    return status;
}

rp_status rpsim_hardware_run(const rp_program *program, const rpsim_compute_costs *costs,
                             const rp_machine *machine, rp_timeline **timeline_out,
                             rp_reason *reason)
{
    return rpsim_hardware_run_scaled(program, costs, machine, NULL, timeline_out, reason);
}

rp_status rpsim_hardware_run_scaled(const rp_program *program, const rpsim_compute_costs *costs,
                                    const rp_machine *machine, const double *factors,
                                    rp_timeline **timeline_out, rp_reason *reason)
{
    *timeline_out = NULL;
    rp_timeline *timeline = NULL;
    RP_TRY(rp_timeline_create(program, &timeline));
    engine e = {.program = program,
                .costs = costs,
                .factors = factors,
                .machine = machine,
                .start_ps = timeline->start_ps,
                .end_ps = timeline->end_ps,
                .reason = reason};
    rp_status status = RP_OK;
    if (costs->dispatch.queue_depth != 0) {
        status =
            rp_arena_alloc(timeline->arena, program->op_count, sizeof(int64_t), &timeline->held_ps);
        e.held_ps = timeline->held_ps;
    }
    if (status == RP_OK) {
        status = simulate_program(&e, reason);
    }
    if (status != RP_OK) {
        rp_timeline_destroy(timeline);
        return status;
    }
    *timeline_out = timeline;
    return RP_OK;
}
