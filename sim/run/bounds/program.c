/* Bounds of the class PLACED at hardware fidelity: they follow from a lowered program's data edges,
 * the load of each engine, queue and link, and the bytes that each GPU has to hold.
 *
 * The edges are the data waits, the producers of compute ops on the same GPU (for which the program
 * relies on queue order), the layers of a unit, the pre-work joined to a backward and the pieces of
 * a job's weights. Control waits and queue order are the schedule's choice, so they are no
 * edges. */
#include "common/program/producers.h"
#include "sim/run/bounds/bounds.h"

#include <math.h>

/* A resource that ops share, in turn or as flows of bytes. */
typedef struct shared {
    int64_t busy_ps; /* sum of the ops' times if they use the resource in turn */
    int64_t last_ps; /* time of the ops that follow all others in any order: updates */
    double bytes;
    uint64_t count;
    int64_t head_ps; /* least head of its ops */
    int64_t tail_ps;
} shared;

typedef struct edge {
    uint32_t from;
    uint32_t to;
} edge;

typedef struct graph {
    const rp_program *program;
    const rpsim_compute_costs *costs;
    const rp_machine *machine;
    rp_routes routes;
    rp_network *network;
    uint32_t *queue_of;
    int64_t *ps;   /* [op] duration */
    int64_t *head; /* [op] earliest start */
    int64_t *tail; /* [op] time that must follow its end */
    edge *edges;
    size_t edge_count;
    uint32_t *begin; /* [op + 1] into `next` */
    uint32_t *next;
    uint32_t *order; /* the ops in topological order */
} graph;

static int64_t max_ps(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min_ps(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- durations ------------------------------------------------------------------------------- */

static double narrowest_Bps(const graph *g, uint32_t route)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < rp_network_route_length(g->network, route); i++) {
        uint32_t link = rp_network_route_link(g->network, route, i);
        least = fmin(least, rp_network_capacity(g->network, link));
    }
    return least;
}

/* The end of a flow is rounded to the nearest picosecond; a whole picosecond is taken off for
 * that. */
static int64_t flow_ps(double bytes, double Bps)
{
    return max_ps(0, (int64_t)(bytes / Bps * RP_PICOSECONDS) - 1);
}

static uint32_t route_of(const graph *g, uint32_t op)
{
    return rp_route_of(&g->routes, g->queue_of[op], op, (rp_op_kind)g->program->ops[op].kind);
}

static double bytes_of(const graph *g, uint32_t op)
{
    return rp_flow_bytes(&g->routes, g->program->op_bytes[op],
                         (rp_op_kind)g->program->ops[op].kind);
}

static void measure_ops(graph *g)
{
    const rp_program *p = g->program;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        int64_t latency = 0;
        if (rp_copy_engine(g->machine, &p->queues[q]) != RP_NO_ENGINE) {
            latency = g->machine->copy_latency_ps;
        }
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            g->queue_of[i] = q;
            if (p->queues[q].kind == RP_QUEUE_COMPUTE) {
                g->ps[i] = rpsim_op_ps(g->costs, p, i);
                continue;
            }
            double Bps = narrowest_Bps(g, route_of(g, i));
            g->ps[i] = latency + flow_ps(bytes_of(g, i), Bps);
        }
    }
}

/* ---- edges ----------------------------------------------------------------------------------- */

static void add_edge(graph *g, uint32_t from, uint32_t to)
{
    if (from != RP_NO_OP) {
        g->edges[g->edge_count++] = (edge){from, to};
    }
}

/* True unless the op is pre-work, which may run early: its dependencies are data waits. */
static bool has_producers(const rp_producers *producers, const rp_op *op)
{
    bool forward =
        rp_op_kind_is_forward(op->kind) && producers->forward_position[op->stage] != RP_NO_OP;
    return forward || rp_op_kind_is_backward((rp_op_kind)op->kind);
}

static bool same_unit(const graph *g, uint32_t a, uint32_t b)
{
    const rp_op *ops = g->program->ops;
    return g->queue_of[a] == g->queue_of[b] && ops[a].stage == ops[b].stage &&
           ops[a].microbatch == ops[b].microbatch && ops[a].iteration == ops[b].iteration;
}

/* In a unit that goes layer by layer, the op of the same kind for the next layer, which needs the
 * result of `op`, or the unit's next collective of the same kind; RP_NO_OP: none. */
static uint32_t next_layer(const graph *g, uint32_t op)
{
    const rp_op *ops = g->program->ops;
    bool has_result = ops[op].part != 0 && !rp_op_kind_is_recompute(ops[op].kind);
    for (uint32_t i = op + 1; has_result && i <= op + 2 && i < g->program->op_count; i++) {
        if (ops[i].part != 0 && ops[i].kind == ops[op].kind && same_unit(g, op, i)) {
            return i;
        }
    }
    return RP_NO_OP;
}

/* True if this op and the next upload pieces of the same job's weights. All pieces come before the
 * job's first op, which waits for the last piece. Their order makes no difference to their sum. */
static bool same_weights(const graph *g, uint32_t op)
{
    const rp_op *ops = g->program->ops;
    return op + 1 < g->program->op_count && rp_op_kind_uploads_weights(ops[op].kind) &&
           rp_op_kind_uploads_weights(ops[op + 1].kind) && same_unit(g, op, op + 1);
}

/* The upload of weights that `op` has a data wait for. */
static uint32_t awaited_weights(const rp_program *p, uint32_t op)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t from = rp_wait_op(p->waits[w]);
        if (!rp_wait_is_control(p->waits[w]) && rp_op_kind_uploads_weights(p->ops[from].kind)) {
            return from;
        }
    }
    return RP_NO_OP;
}

static bool same_job(const rp_program *p, uint32_t a, uint32_t b)
{
    return p->ops[a].stage == p->ops[b].stage && p->ops[a].iteration == p->ops[b].iteration;
}

/* A job's first op waits for its weights, and its gradients wait for its last op. The ops between
 * stay there by queue order, but they too need the weights and add to the gradients. */
static void add_job_edges(graph *g, const rp_queue *queue)
{
    const rp_program *p = g->program;
    uint32_t weights = RP_NO_OP;
    for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
        uint32_t own = awaited_weights(p, i);
        bool inside = own == RP_NO_OP && i > queue->op_begin && same_job(p, i - 1, i);
        weights = inside ? weights : own;
        if (inside) {
            add_edge(g, weights, i);
        }
    }
}

static void add_gradient_edges(graph *g, uint32_t download)
{
    const rp_program *p = g->program;
    for (uint32_t w = p->ops[download].wait_begin; w < p->ops[download + 1].wait_begin; w++) {
        uint32_t last = rp_wait_op(p->waits[w]);
        const rp_queue *queue = &p->queues[g->queue_of[last]];
        uint32_t first = last;
        bool computed = !rp_wait_is_control(p->waits[w]) && queue->kind == RP_QUEUE_COMPUTE;
        while (computed && awaited_weights(p, first) == RP_NO_OP && first > queue->op_begin &&
               same_job(p, first - 1, last)) {
            first--;
        }
        bool job = computed && awaited_weights(p, first) != RP_NO_OP;
        for (uint32_t i = first; job && i < last; i++) {
            add_edge(g, i, download);
        }
    }
}

static void find_job_edges(graph *g)
{
    const rp_program *p = g->program;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        if (p->queues[q].kind == RP_QUEUE_COMPUTE) {
            add_job_edges(g, &p->queues[q]);
        }
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            if (rp_op_kind_downloads_sums(p->ops[i].kind)) {
                add_gradient_edges(g, i);
            }
        }
    }
}

static void find_edges(graph *g, const rp_producers *producers)
{
    const rp_program *p = g->program;
    for (uint32_t i = 0; i < p->op_count; i++) {
        for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
            if (!rp_wait_is_control(p->waits[w])) {
                add_edge(g, rp_wait_op(p->waits[w]), i);
            }
        }
        uint32_t of[RP_MAX_PRODUCERS];
        bool known = has_producers(producers, &p->ops[i]);
        uint32_t count = known ? rp_producers_of(producers, &p->ops[i], of) : 0;
        for (uint32_t k = 0; k < count; k++) {
            add_edge(g, of[k], i);
        }
        if ((p->ops[i].flags & RP_OP_JOIN) != 0 || same_weights(g, i)) {
            add_edge(g, i, i + 1);
        }
        uint32_t layer = next_layer(g, i);
        if (layer != RP_NO_OP) {
            add_edge(g, i, layer);
        }
    }
}

/* Sorts the edges by the op they begin at, then the ops so that every edge leads forwards. */
static rp_status sort_ops(graph *g, rp_arena *arena)
{
    uint32_t ops = g->program->op_count;
    uint32_t *open = NULL;
    RP_TRY(rp_arena_alloc(arena, (size_t)ops + 2, sizeof(uint32_t), &g->begin));
    RP_TRY(rp_arena_alloc(arena, g->edge_count, sizeof(uint32_t), &g->next));
    RP_TRY(rp_arena_alloc(arena, ops, sizeof(uint32_t), &g->order));
    RP_TRY(rp_arena_alloc(arena, ops, sizeof(uint32_t), &open));
    uint32_t *fill = g->begin + 1; /* shifted: filling moves the begins to their places */
    for (size_t i = 0; i < g->edge_count; i++) {
        fill[g->edges[i].from + 1]++;
        open[g->edges[i].to]++;
    }
    for (uint32_t i = 0; i < ops; i++) {
        fill[i + 1] += fill[i];
    }
    for (size_t i = 0; i < g->edge_count; i++) {
        g->next[fill[g->edges[i].from]++] = g->edges[i].to;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < ops; i++) {
        if (open[i] == 0) {
            g->order[count++] = i;
        }
    }
    for (uint32_t at = 0; at < count; at++) {
        uint32_t op = g->order[at];
        for (uint32_t k = g->begin[op]; k < g->begin[op + 1]; k++) {
            if (--open[g->next[k]] == 0) {
                g->order[count++] = g->next[k];
            }
        }
    }
    return RP_OK; /* count is ops, because a program that has run has no cycles */
}

static void measure_paths(graph *g)
{
    uint32_t ops = g->program->op_count;
    for (uint32_t at = 0; at < ops; at++) {
        uint32_t op = g->order[at];
        for (uint32_t k = g->begin[op]; k < g->begin[op + 1]; k++) {
            int64_t *head = &g->head[g->next[k]];
            *head = max_ps(*head, g->head[op] + g->ps[op]);
        }
    }
    for (uint32_t at = ops; at-- > 0;) {
        uint32_t op = g->order[at];
        for (uint32_t k = g->begin[op]; k < g->begin[op + 1]; k++) {
            g->tail[op] = max_ps(g->tail[op], g->ps[g->next[k]] + g->tail[g->next[k]]);
        }
    }
}

/* ---- terms ----------------------------------------------------------------------------------- */

static rp_status create_shared(rp_arena *arena, uint32_t count, shared **out)
{
    RP_TRY(rp_arena_alloc(arena, count, sizeof(shared), out));
    for (uint32_t i = 0; i < count; i++) {
        (*out)[i].head_ps = (*out)[i].tail_ps = INT64_MAX;
    }
    return RP_OK;
}

static void use(shared *s, int64_t busy_ps, double bytes, int64_t head_ps, int64_t tail_ps)
{
    s->busy_ps += busy_ps;
    s->bytes += bytes;
    s->count++;
    s->head_ps = min_ps(s->head_ps, head_ps);
    s->tail_ps = min_ps(s->tail_ps, tail_ps);
}

/* Bounds by copy engines and queues. A copy engine serves two queues; each other queue is a
 * resource of its own. */
static rp_status bound_queues(const graph *g, rp_arena *arena, rpsim_bounds *bounds)
{
    const rp_program *p = g->program;
    shared *engines = NULL;
    uint32_t engine_count = p->gpu_count * RP_ENGINES_PER_GPU;
    RP_TRY(create_shared(arena, engine_count + p->queue_count, &engines));
    for (uint32_t i = 0; i < p->op_count; i++) {
        uint32_t queue = g->queue_of[i];
        uint32_t engine = rp_copy_engine(g->machine, &p->queues[queue]);
        engine = engine == RP_NO_ENGINE ? engine_count + queue : engine;
        bool compute = p->queues[queue].kind == RP_QUEUE_COMPUTE;
        if (compute && !rp_op_kind_is_pass((rp_op_kind)p->ops[i].kind)) {
            engines[engine].last_ps += g->ps[i];
        } else if (g->ps[i] > 0) {
            use(&engines[engine], g->ps[i], 0, g->head[i], g->tail[i]);
            int64_t *path = &bounds->ps[RPSIM_BOUND_OPS];
            *path = max_ps(*path, g->head[i] + g->ps[i] + g->tail[i]);
        }
    }
    for (uint32_t k = 0; k < engine_count + p->queue_count; k++) {
        const shared *s = &engines[k];
        bool compute = k >= engine_count && p->queues[k - engine_count].kind == RP_QUEUE_COMPUTE;
        int64_t *term = &bounds->ps[compute ? RPSIM_BOUND_OPS : RPSIM_BOUND_TRANSFERS];
        int64_t after_ps = max_ps(s->tail_ps, s->last_ps);
        *term = s->count == 0 ? *term : max_ps(*term, s->head_ps + s->busy_ps + after_ps);
    }
    return RP_OK;
}

static rp_status bound_links(const graph *g, rp_arena *arena, int64_t *ps)
{
    const rp_program *p = g->program;
    shared *links = NULL;
    uint32_t count = rp_network_link_count(g->network);
    RP_TRY(create_shared(arena, count, &links));
    for (uint32_t i = 0; i < p->op_count; i++) {
        uint32_t queue = g->queue_of[i];
        bool moves = p->queues[queue].kind != RP_QUEUE_COMPUTE && g->ps[i] > 0;
        uint32_t route = moves ? route_of(g, i) : 0;
        uint32_t length = moves ? rp_network_route_length(g->network, route) : 0;
        for (uint32_t k = 0; k < length; k++) {
            use(&links[rp_network_route_link(g->network, route, k)], 0, bytes_of(g, i), g->head[i],
                g->tail[i]);
        }
    }
    for (uint32_t k = 0; k < count; k++) {
        const shared *s = &links[k];
        if (s->count > 0) {
            int64_t whole = flow_ps(s->bytes, rp_network_capacity(g->network, k));
            /* Each flow may end half a picosecond early. */
            whole = max_ps(0, whole - (int64_t)s->count);
            *ps = max_ps(*ps, s->head_ps + whole + s->tail_ps);
        }
    }
    return RP_OK;
}

/* The least time from the begin of a buffer's first op to the end of its last op. Between a forward
 * and its backward lies everything the microbatch does in between; between a queue's first and last
 * op lies all its work; for other pairs only the two ops count. */
static int64_t least_life(const graph *g, const rp_producers *producers, const rp_buffer *b,
                          const int64_t *busy_ps)
{
    const rp_program *p = g->program;
    const rp_op *from = &p->ops[b->alloc_op];
    const rp_op *to = &p->ops[b->free_op];
    const rp_queue *queue = &p->queues[g->queue_of[b->alloc_op]];
    if (b->alloc_op == b->free_op) {
        return g->ps[b->alloc_op];
    }
    if (b->alloc_op == queue->op_begin && b->free_op + 1 == queue->op_end) {
        return busy_ps[g->queue_of[b->alloc_op]];
    }
    int64_t life = g->ps[b->alloc_op] + g->ps[b->free_op];
    uint32_t first = producers->forward_position[from->stage];
    bool chain = rp_op_kind_is_forward(from->kind) && first != RP_NO_OP &&
                 rp_op_kind_goes_back((rp_op_kind)to->kind) && from->microbatch == to->microbatch &&
                 from->iteration == to->iteration;
    if (!chain) {
        return life;
    }
    for (uint32_t s = first + 1; s < p->forward_count; s++) {
        life += g->ps[producers->forward_at[rp_producers_forward_index(producers, from->iteration,
                                                                       s, from->microbatch)]];
    }
    for (uint32_t j = 0; j < producers->backward_position[to->stage]; j++) {
        life += g->ps[producers->backward_at[rp_producers_backward_index(producers, from->iteration,
                                                                         j, from->microbatch)]];
    }
    return life;
}

static rp_status bound_memory(const graph *g, const rp_producers *producers,
                              const rpsim_memory_limits *limits, rp_arena *arena, int64_t *ps)
{
    const rp_program *p = g->program;
    int64_t *busy_ps = NULL;
    double *held = NULL; /* [gpu] byte picoseconds */
    RP_TRY(rp_arena_alloc(arena, p->queue_count, sizeof *busy_ps, &busy_ps));
    RP_TRY(rp_arena_alloc(arena, p->gpu_count, sizeof *held, &held));
    for (uint32_t i = 0; i < p->op_count; i++) {
        busy_ps[g->queue_of[i]] += g->ps[i];
    }
    for (uint32_t k = 0; k < p->buffer_count; k++) {
        const rp_buffer *b = &p->buffers[k];
        if (b->place != RP_PLACE_HOST) {
            held[b->place] += (double)b->bytes * (double)least_life(g, producers, b, busy_ps);
        }
    }
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        double limit = (double)rpsim_memory_limit(limits, gpu, p->gpu_count);
        double room = limit - (double)limits->gpu_fixed_bytes;
        double least = room > 0 ? held[gpu] * (1 + limits->gpu_overhead) / room : 0;
        *ps = max_ps(*ps, (int64_t)(least * (1 - 1e-9)));
    }
    return RP_OK;
}

static rp_status bound_all(graph *g, const rpsim_memory_limits *limits, rp_arena *arena,
                           rpsim_bounds *bounds, rp_reason *reason)
{
    const rp_program *p = g->program;
    rp_producers producers;
    RP_TRY(rp_machine_network(p, g->machine, arena, &g->routes, &g->network, reason));
    RP_TRY(rp_producers_create(p, arena, &producers));
    size_t most = (size_t)p->wait_count + (RP_MAX_PRODUCERS + 4) * (size_t)p->op_count;
    RP_TRY(rp_arena_alloc_raw(arena, most, sizeof(edge), &g->edges));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), &g->queue_of));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(int64_t), &g->ps));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(int64_t), &g->head));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(int64_t), &g->tail));
    measure_ops(g);
    find_edges(g, &producers);
    find_job_edges(g);
    RP_TRY(sort_ops(g, arena));
    measure_paths(g);
    RP_TRY(bound_queues(g, arena, bounds));
    RP_TRY(bound_links(g, arena, &bounds->ps[RPSIM_BOUND_TRANSFERS]));
    if (limits != NULL) {
        RP_TRY(bound_memory(g, &producers, limits, arena, &bounds->ps[RPSIM_BOUND_MEMORY]));
    }
    return RP_OK;
}

rp_status rpsim_bounds_of_program(const rp_program *program, const rpsim_compute_costs *costs,
                                  const rp_machine *machine, const rpsim_memory_limits *limits,
                                  rpsim_bounds *bounds_out, rp_reason *reason)
{
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    graph g = {.program = program, .costs = costs, .machine = machine};
    rp_status status = bound_all(&g, limits, arena, bounds_out, reason);
    rp_network_destroy(g.network);
    rp_arena_destroy(arena);
    return status;
}
