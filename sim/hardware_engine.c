#include "sim/hardware_engine.h"

#include "common/log.h"
#include "sim/network.h"

#include <math.h>

/* Copy engines per GPU. */
enum { ENGINE_UPLOAD, ENGINE_DOWNLOAD, ENGINES_PER_GPU };

#define NO_ENGINE UINT32_MAX
#define NO_ROUTE UINT32_MAX

typedef struct event {
    int64_t time_ps;
    uint64_t sequence;
    uint32_t op;
    bool begins_flow; /* the latency is over; otherwise the op ends */
} event;

typedef struct queue_state {
    uint32_t next; /* op at the head */
    uint32_t end;
    bool running;
    uint32_t engine;
    uint32_t route;
} queue_state;

/* Ops that wait for a copy engine, first come, first served: at most one per queue. */
typedef struct copy_engine {
    uint32_t waiting[4]; /* queues */
    uint32_t waiting_count;
    bool busy;
} copy_engine;

typedef struct engine {
    const rp_program *program;
    const rpsim_compute_costs *costs;
    const rpsim_machine *machine;
    rpsim_network *network;
    uint32_t *pending;         /* [op] waits that are still open */
    uint32_t *dependent_begin; /* [op + 1] into dependents */
    uint32_t *dependents;
    uint32_t *queue_of; /* [op] */
    queue_state *queues;
    copy_engine *engines;
    event *heap;
    uint32_t heap_count;
    uint64_t sequence;
    int64_t *start_ps;
    int64_t *end_ps;
    uint32_t ended;
    rp_status status;
} engine;

/* ---- event heap: by time, then by sequence ----------------------------------------------------
 */

static bool earlier(const event *a, const event *b)
{
    return a->time_ps != b->time_ps ? a->time_ps < b->time_ps : a->sequence < b->sequence;
}

static void push_event(engine *e, int64_t time_ps, uint32_t op, bool begins_flow)
{
    event new = {time_ps, e->sequence++, op, begins_flow};
    uint32_t at = e->heap_count++;
    while (at > 0 && earlier(&new, &e->heap[(at - 1) / 2])) {
        e->heap[at] = e->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    e->heap[at] = new;
}

static event pop_event(engine *e)
{
    event top = e->heap[0];
    event last = e->heap[--e->heap_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= e->heap_count) {
            break;
        }
        if (child + 1 < e->heap_count && earlier(&e->heap[child + 1], &e->heap[child])) {
            child++;
        }
        if (!earlier(&e->heap[child], &last)) {
            break;
        }
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = last;
    return top;
}

/* ---- ops --------------------------------------------------------------------------------------
 */

static void begin_flow(engine *e, uint32_t op, int64_t now_ps)
{
    uint32_t route = e->queues[e->queue_of[op]].route;
    rp_status status =
        rpsim_network_start(e->network, route, (double)e->program->op_bytes[op], now_ps, op);
    if (status != RP_OK) {
        e->status = status;
    }
}

static void begin_transfer(engine *e, uint32_t op, int64_t now_ps)
{
    e->start_ps[op] = now_ps;
    if (e->machine->copy_latency_ps > 0) {
        push_event(e, now_ps + e->machine->copy_latency_ps, op, true);
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

/* Starts the op at the head of a queue if nothing holds it. */
static void try_start(engine *e, uint32_t queue, int64_t now_ps)
{
    queue_state *q = &e->queues[queue];
    if (q->running || q->next == q->end || e->pending[q->next] != 0) {
        return;
    }
    q->running = true;
    const rp_op *op = &e->program->ops[q->next];
    if (q->engine != NO_ENGINE) {
        request_engine(e, queue, now_ps);
        return;
    }
    e->start_ps[q->next] = now_ps;
    if (rp_op_kind_class((rp_op_kind)op->kind) == RP_CLASS_COMPUTE) {
        push_event(e, now_ps + rpsim_compute_ps(e->costs, op), q->next, false);
    } else {
        begin_flow(e, q->next, now_ps);
    }
}

static void finish(engine *e, uint32_t op, int64_t now_ps)
{
    uint32_t queue = e->queue_of[op];
    queue_state *q = &e->queues[queue];
    e->end_ps[op] = now_ps;
    e->ended++;
    q->running = false;
    q->next++;
    if (q->engine != NO_ENGINE) {
        release_engine(e, q->engine, now_ps);
    }
    try_start(e, queue, now_ps);
    for (uint32_t d = e->dependent_begin[op]; d < e->dependent_begin[op + 1]; d++) {
        uint32_t dependent = e->dependents[d];
        if (--e->pending[dependent] == 0) {
            uint32_t waiter = e->queue_of[dependent];
            if (e->queues[waiter].next == dependent) {
                try_start(e, waiter, now_ps);
            }
        }
    }
}

/* Timed events and completions of the network in the order of time; timed ones first on ties. */
static void run_events(engine *e)
{
    while (e->status == RP_OK) {
        int64_t network_ps = rpsim_network_next(e->network);
        bool timed = e->heap_count > 0 && e->heap[0].time_ps <= network_ps;
        if (timed) {
            event next = pop_event(e);
            if (next.begins_flow) {
                begin_flow(e, next.op, next.time_ps);
            } else {
                finish(e, next.op, next.time_ps);
            }
            continue;
        }
        rpsim_completion done;
        if (network_ps == RPSIM_NEVER || !rpsim_network_pop(e->network, network_ps, &done)) {
            return;
        }
        finish(e, (uint32_t)done.tag, done.time_ticks);
    }
}

/* ---- setting up -------------------------------------------------------------------------------
 */

static rp_status index_dependents(engine *e, rp_arena *arena)
{
    const rp_program *p = e->program;
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), &e->pending));
    RP_TRY(rp_arena_alloc(arena, (size_t)p->op_count + 2, sizeof(uint32_t), &e->dependent_begin));
    RP_TRY(rp_arena_alloc(arena, p->wait_count, sizeof(uint32_t), &e->dependents));
    uint32_t *begin = e->dependent_begin + 1; /* shifted: filling moves it to its place */
    for (uint32_t w = 0; w < p->wait_count; w++) {
        begin[rp_wait_op(p->waits[w]) + 1]++;
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        begin[i + 1] += begin[i];
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        e->pending[i] = p->ops[i + 1].wait_begin - p->ops[i].wait_begin;
        for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
            e->dependents[begin[rp_wait_op(p->waits[w])]++] = i;
        }
    }
    return RP_OK;
}

/* Links: upload and download of each GPU, then the host's memory and, where it is limited, DRAM. */
static rp_status create_network(engine *e, rp_arena *arena)
{
    uint32_t gpus = e->program->gpu_count;
    uint32_t host_link = 2 * gpus;
    bool dram = e->machine->dram_Bps > 0;
    double *capacities = NULL;
    RP_TRY(rp_arena_alloc(arena, host_link + 2, sizeof(double), &capacities));
    for (uint32_t gpu = 0; gpu < gpus; gpu++) {
        capacities[2 * gpu] = e->machine->upload_Bps;
        capacities[2 * gpu + 1] = e->machine->download_Bps;
    }
    capacities[host_link] = e->machine->host_Bps;
    capacities[host_link + 1] = dram ? e->machine->dram_Bps : e->machine->host_Bps;
    RP_TRY(rpsim_network_create(capacities, host_link + 2, RPSIM_PICOSECONDS, &e->network));
    for (uint32_t q = 0; q < e->program->queue_count; q++) {
        queue_state *state = &e->queues[q];
        const rp_queue *queue = &e->program->queues[q];
        uint32_t links[2] = {host_link, host_link + 1};
        if (state->engine != NO_ENGINE) {
            links[0] = state->engine;
        } else if (queue->kind == RP_QUEUE_COMPUTE) {
            continue;
        }
        RP_TRY(rpsim_network_route(e->network, links, dram ? 2 : 1, &state->route));
    }
    return RP_OK;
}

static uint32_t engine_of(const rp_queue *queue)
{
    uint32_t first = queue->gpu * (uint32_t)ENGINES_PER_GPU;
    switch ((rp_queue_kind)queue->kind) {
    case RP_QUEUE_PARAM_UPLOAD:
    case RP_QUEUE_ACT_UPLOAD:
        return first + ENGINE_UPLOAD;
    case RP_QUEUE_DOWNLOAD:
        return first + ENGINE_DOWNLOAD;
    case RP_QUEUE_COMPUTE:
    case RP_QUEUE_PEER:
    case RP_QUEUE_DISPATCH:
    case RP_QUEUE_OPTIMIZER:
    case RP_QUEUE_KIND_COUNT:
        break;
    }
    return NO_ENGINE;
}

static rp_status prepare(engine *e, rp_arena *arena)
{
    const rp_program *p = e->program;
    RP_TRY(index_dependents(e, arena));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), &e->queue_of));
    RP_TRY(rp_arena_alloc(arena, p->queue_count, sizeof(queue_state), &e->queues));
    RP_TRY(rp_arena_alloc(arena, p->queue_count, sizeof(event), &e->heap)); /* one per queue */
    RP_TRY(rp_arena_alloc(arena, (size_t)p->gpu_count * ENGINES_PER_GPU, sizeof(copy_engine),
                          &e->engines));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        if (queue->kind == RP_QUEUE_PEER && queue->op_end > queue->op_begin) {
            rp_log_error("hardware fidelity: queue %u has peer transfers; valid are programs whose "
                         "boundaries go through the host",
                         q);
            return RP_INPUT;
        }
        e->queues[q] =
            (queue_state){queue->op_begin, queue->op_end, false, engine_of(queue), NO_ROUTE};
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            e->queue_of[i] = q;
            e->end_ps[i] = -1;
        }
    }
    return create_network(e, arena);
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

static rp_status run(engine *e)
{
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = prepare(e, arena);
    if (status == RP_OK) {
        for (uint32_t q = 0; q < e->program->queue_count; q++) {
            try_start(e, q, 0);
        }
        run_events(e);
        status = e->status;
    }
    if (status == RP_OK) {
        status = check_finished(e);
    }
    rpsim_network_destroy(e->network);
    rp_arena_destroy(arena);
    return status;
}

rp_status rpsim_hardware_run(const rp_program *program, const rpsim_compute_costs *costs,
                             const rpsim_machine *machine, rp_timeline **timeline_out)
{
    *timeline_out = NULL;
    rp_timeline *timeline = NULL;
    RP_TRY(rp_timeline_create(program, &timeline));
    engine e = {.program = program,
                .costs = costs,
                .machine = machine,
                .start_ps = timeline->start_ps,
                .end_ps = timeline->end_ps};
    rp_status status = run(&e);
    if (status != RP_OK) {
        rp_timeline_destroy(timeline);
        return status;
    }
    *timeline_out = timeline;
    return RP_OK;
}
