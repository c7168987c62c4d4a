#include "sim/engine/dispatch.h"

#include <stdlib.h>

#define NO_GPU UINT32_MAX

/* ---- items that the workers issue ------------------------------------------------------------ */

typedef enum item_kind {
    ITEM_JOB,      /* clone a stage's modules; `index` is the job */
    ITEM_JOB_END,  /* release the clones of job `index` */
    ITEM_TRANSFER, /* `index` is the op */
    ITEM_COMPUTE,
} item_kind;

typedef struct item {
    item_kind kind;
    uint32_t index;
} item;

typedef struct job {
    uint32_t gpu;
    uint32_t first;  /* its first compute op */
    uint32_t params; /* its first upload of parameters */
    bool begins_call;
    uint32_t order; /* place of the job in the order of handing out */
} job;

typedef struct worker {
    uint32_t next; /* item */
    uint32_t end;
    uint32_t in_flight; /* launches issued and not done */
    bool waits_for_lock;
} worker;

/* Progress of an op; only compute ops have chunks. */
typedef struct op_state {
    uint32_t launches;
    uint32_t chunks;
    uint32_t issued; /* chunks; transfers: 1 when issued */
    uint32_t done;
    bool held;  /* the next chunk was not yet issued when it was due */
    bool waits; /* until everything issued before it has ended: routing */
} op_state;

struct rpsim_dispatcher {
    const rp_program *program;
    const rpsim_dispatch_counts *counts;
    int64_t module_ps;
    int64_t object_ps;
    bool *ended; /* [op] host ops and compute ops */
    item *items;
    job *jobs;
    uint32_t *job_at; /* [order] */
    uint32_t job_count;
    uint32_t next_job; /* in the order of handing out */
    worker *workers;
    op_state *ops;
    uint32_t holder; /* GPU whose worker holds the lock, or NO_GPU */
    uint32_t *line;  /* GPUs whose workers wait for the lock, a ring buffer */
    uint32_t line_begin;
    uint32_t line_count;
    rpsim_dispatch_news news;
};

static bool is_upload(const rp_queue *queue)
{
    return rp_queue_kind_carrier((rp_queue_kind)queue->kind) == RP_CARRIER_LINK_UP;
}

/* The queues of a GPU that its worker fills. */
typedef struct gpu_queues {
    uint32_t compute, params, acts; /* queue numbers + 1; 0: the GPU has no such queue */
} gpu_queues;

/* The number after the last op of `queue` that `op` waits for; `from` if it waits for none. */
static uint32_t needed(const rp_program *p, uint32_t op, const rp_queue *queue, uint32_t from)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        if (target >= queue->op_begin && target < queue->op_end && target + 1 > from) {
            from = target + 1;
        }
    }
    return from;
}

static void add_item(rpsim_dispatcher *d, uint32_t *count, item_kind kind, uint32_t index)
{
    d->items[(*count)++] = (item){kind, index};
}

/* Closes the GPU's newest job, whose items are complete. */
static void end_job(rpsim_dispatcher *d, uint32_t first_job, uint32_t *count)
{
    if (d->job_count > first_job) {
        add_item(d, count, ITEM_JOB_END, d->job_count - 1);
    }
}

/* Lists the items of a GPU's worker: for each job it clones the modules, issues the parameters,
 * issues the uploads and kernels of each microbatch, and releases the clones. An upload is issued
 * just before the first compute op that needs it. */
static void list_gpu(rpsim_dispatcher *d, uint32_t gpu, const gpu_queues *queues, uint32_t *count)
{
    static const rp_queue none = {0};
    const rp_program *p = d->program;
    const rp_queue *compute = queues->compute == 0 ? &none : &p->queues[queues->compute - 1];
    const rp_queue *params = queues->params == 0 ? &none : &p->queues[queues->params - 1];
    const rp_queue *acts = queues->acts == 0 ? &none : &p->queues[queues->acts - 1];
    uint32_t next_param = params->op_begin;
    uint32_t next_act = acts->op_begin;
    uint32_t first_job = d->job_count;
    d->workers[gpu].next = *count;
    for (uint32_t op = compute->op_begin; op < compute->op_end; op++) {
        uint32_t param_end = needed(p, op, params, next_param);
        if (param_end > next_param) {
            end_job(d, first_job, count);
            add_item(d, count, ITEM_JOB, d->job_count);
            d->jobs[d->job_count++] = (job){.gpu = gpu, .first = op, .params = next_param};
        }
        for (; next_param < param_end; next_param++) {
            add_item(d, count, ITEM_TRANSFER, next_param);
        }
        for (uint32_t end = needed(p, op, acts, next_act); next_act < end; next_act++) {
            add_item(d, count, ITEM_TRANSFER, next_act);
        }
        add_item(d, count, ITEM_COMPUTE, op);
    }
    for (; next_param < params->op_end; next_param++) {
        add_item(d, count, ITEM_TRANSFER, next_param);
    }
    for (; next_act < acts->op_end; next_act++) {
        add_item(d, count, ITEM_TRANSFER, next_act);
    }
    end_job(d, first_job, count);
    d->workers[gpu].end = *count;
}

/* ---- the order of jobs ----------------------------------------------------------------------- */

/* A job and its sort key: iteration, then call (by its first microbatch), then place in the chain
 * of stages. */
typedef struct rank {
    uint64_t key;
    uint32_t job;
} rank;

static int by_key(const void *a, const void *b)
{
    const rank *left = a;
    const rank *right = b;
    if (left->key != right->key) {
        return left->key < right->key ? -1 : 1;
    }
    return left->job < right->job ? -1 : left->job > right->job;
}

static uint64_t key_of(const rp_program *p, const uint32_t *place, const job *j)
{
    const rp_op *op = &p->ops[j->first];
    return ((uint64_t)op->iteration << 48) | ((uint64_t)op->microbatch << 20) | place[op->stage];
}

static rp_status order_jobs(rpsim_dispatcher *d, rp_arena *arena)
{
    const rp_program *p = d->program;
    uint32_t *place = NULL;
    rank *ranks = NULL;
    RP_TRY(rp_arena_alloc(arena, p->stage_count, sizeof *place, &place));
    RP_TRY(rp_arena_alloc(arena, d->job_count, sizeof *ranks, &ranks));
    RP_TRY(rp_arena_alloc(arena, d->job_count, sizeof(uint32_t), &d->job_at));
    for (uint32_t i = 0; i < p->backward_count; i++) {
        place[p->backward_chain[i]] = p->forward_count + i;
    }
    for (uint32_t i = 0; i < p->forward_count; i++) {
        place[p->forward_chain[i]] = i;
    }
    for (uint32_t i = 0; i < d->job_count; i++) {
        ranks[i] = (rank){key_of(p, place, &d->jobs[i]), i};
    }
    qsort(ranks, d->job_count, sizeof *ranks, by_key);
    for (uint32_t i = 0; i < d->job_count; i++) {
        d->jobs[ranks[i].job].order = i;
        d->job_at[i] = ranks[i].job;
        const rp_op *op = &p->ops[d->jobs[ranks[i].job].first];
        const rp_op *before = i > 0 ? &p->ops[d->jobs[ranks[i - 1].job].first] : NULL;
        d->jobs[ranks[i].job].begins_call = before == NULL || before->iteration != op->iteration ||
                                            before->microbatch != op->microbatch;
    }
    /* A GPU whose queue holds jobs in another order could never be served, so there is no order
     * then. */
    for (uint32_t i = 1; i < d->job_count; i++) {
        if (d->jobs[i].gpu == d->jobs[i - 1].gpu && d->jobs[i].order < d->jobs[i - 1].order) {
            d->next_job = UINT32_MAX;
        }
    }
    return RP_OK;
}

/* ---- issuing --------------------------------------------------------------------------------- */

static uint32_t chunk_launches(const op_state *op, uint32_t chunk)
{
    uint64_t launches = op->launches;
    return (uint32_t)(launches * (chunk + 1) / op->chunks - launches * chunk / op->chunks);
}

static void stand_in_line(rpsim_dispatcher *d, uint32_t gpu)
{
    worker *w = &d->workers[gpu];
    if (!w->waits_for_lock) {
        w->waits_for_lock = true;
        d->line[(d->line_begin + d->line_count++) % d->program->gpu_count] = gpu;
    }
}

/* Releasing the clones takes 1 / END_OF_CLONING of a job's time for modules. Measured with the
 * library's own code, sim/model.md section 10. */
#define END_OF_CLONING 4

/* Works on a job's modules. If that takes time, the worker holds the lock meanwhile. */
static void hold_lock(rpsim_dispatcher *d, uint32_t gpu, const job *j, bool end)
{
    int64_t walks = !end && j->begins_call ? 2 * (int64_t)d->counts->layers : 0;
    int64_t call_ps = 0;
    int64_t all = d->counts->modules[d->program->ops[j->first].stage];
    int64_t modules = end ? all / END_OF_CLONING : all - all / END_OF_CLONING;
    int64_t ps = 0;
    d->workers[gpu].next++;
    bool endless = __builtin_mul_overflow(d->module_ps, modules, &ps);
    endless |= __builtin_mul_overflow(d->object_ps, walks * d->counts->layer_modules, &call_ps);
    endless |= __builtin_add_overflow(ps, call_ps, &ps);
    if (ps > 0 || endless) {
        d->holder = gpu;
        d->news.holds = true;
        d->news.hold_ps = endless ? INT64_MAX : ps;
    }
}

/* True if the job still waits: before the process hands out a job, the host ops and losses that the
 * job waits for must have ended. */
static bool is_held(const rpsim_dispatcher *d, const job *j)
{
    const rp_program *p = d->program;
    for (uint32_t w = p->ops[j->params].wait_begin; w < p->ops[j->params + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        const rp_op *op = &p->ops[target];
        bool waits =
            rp_op_kind_class((rp_op_kind)op->kind) == RP_CLASS_HOST || rp_program_gives_loss(p, op);
        if (waits && !d->ended[target]) {
            return true;
        }
    }
    return false;
}

/* Begins the job if it is its turn. Returns true if the job has begun. */
static bool begin_job(rpsim_dispatcher *d, uint32_t gpu, uint32_t index)
{
    const job *j = &d->jobs[index];
    if ((d->next_job != UINT32_MAX && j->order != d->next_job) || is_held(d, j)) {
        return false;
    }
    d->next_job += d->next_job != UINT32_MAX ? 1 : 0;
    hold_lock(d, gpu, j, false);
    return true;
}

/* Issues the next chunk of a compute op if it fits. Returns true if the chunk has been issued. */
static bool issue_chunk(rpsim_dispatcher *d, uint32_t gpu, uint32_t index)
{
    worker *w = &d->workers[gpu];
    op_state *op = &d->ops[index];
    uint32_t launches = chunk_launches(op, op->issued);
    bool full = w->in_flight > 0 && w->in_flight + launches > d->counts->queue_depth;
    bool synchronises = op->waits && w->in_flight > 0;
    if (full || synchronises) {
        return false;
    }
    w->in_flight += launches;
    op->issued++;
    w->next += op->issued == op->chunks ? 1 : 0;
    if (op->issued == 1 || op->held) {
        d->news.ops[d->news.op_count++] = index;
    }
    op->held = false;
    return true;
}

/* Lets the worker issue items until something holds it up. */
static void advance(rpsim_dispatcher *d, uint32_t gpu)
{
    worker *w = &d->workers[gpu];
    while (w->next < w->end) {
        if (d->holder != NO_GPU) {
            if (d->holder != gpu) {
                stand_in_line(d, gpu);
            }
            return;
        }
        const item *next = &d->items[w->next];
        bool done = true;
        switch (next->kind) {
        case ITEM_JOB:
            done = begin_job(d, gpu, next->index);
            break;
        case ITEM_JOB_END:
            hold_lock(d, gpu, &d->jobs[next->index], true);
            break;
        case ITEM_TRANSFER:
            d->ops[next->index].issued = 1;
            d->news.ops[d->news.op_count++] = next->index;
            w->next++;
            break;
        case ITEM_COMPUTE:
            done = issue_chunk(d, gpu, next->index);
            break;
        }
        if (!done) {
            return;
        }
    }
}

/* Advances the workers in line for the lock, and the worker whose job is next to be handed out. If
 * jobs have no order, any worker may go on. */
static void advance_others(rpsim_dispatcher *d)
{
    for (uint32_t gpu = 0; d->next_job == UINT32_MAX && gpu < d->program->gpu_count; gpu++) {
        advance(d, gpu);
    }
    for (;;) {
        uint32_t before = d->next_job;
        while (d->holder == NO_GPU && d->line_count > 0) {
            uint32_t gpu = d->line[d->line_begin];
            d->line_begin = (d->line_begin + 1) % d->program->gpu_count;
            d->line_count--;
            d->workers[gpu].waits_for_lock = false;
            advance(d, gpu);
        }
        if (d->next_job < d->job_count) {
            advance(d, d->jobs[d->job_at[d->next_job]].gpu);
        }
        if (d->next_job == before) {
            return;
        }
    }
}

static void clear_news(rpsim_dispatcher *d)
{
    d->news.op_count = 0;
    d->news.holds = false;
}

/* ---- the engine's side ----------------------------------------------------------------------- */

static uint32_t launches_of(const rpsim_dispatcher *d, const rp_op *op)
{
    if (!rp_op_kind_is_pass((rp_op_kind)op->kind)) {
        return 1;
    }
    uint32_t layer = rp_op_layer(op);
    if (layer == 0) {
        return d->counts->launches[(size_t)op->stage * RP_OP_KIND_COUNT + op->kind];
    }
    bool head = layer == d->program->layer_count + 1;
    uint32_t forward = head ? RPSIM_HEAD_LAUNCHES : d->counts->layer_launches;
    return rp_op_kind_is_full_backward(op->kind) ? 2 * forward : forward;
}

static void set_up_ops(rpsim_dispatcher *d, uint32_t queue)
{
    const rp_program *p = d->program;
    const rp_queue *q = &p->queues[queue];
    uint32_t most = d->counts->queue_depth / 2 > 0 ? d->counts->queue_depth / 2 : 1;
    for (uint32_t i = q->op_begin; i < q->op_end; i++) {
        const rp_op *op = &p->ops[i];
        if (q->kind != RP_QUEUE_COMPUTE) {
            d->ops[i].issued = is_upload(q) ? 0 : 1;
            continue;
        }
        uint32_t launches = launches_of(d, op);
        d->ops[i] = (op_state){.launches = launches,
                               .chunks = (launches - 1) / most + 1,
                               .waits = rp_op_kind_is_forward(op->kind) && d->counts->routing};
    }
}

rp_status rpsim_dispatcher_create(const rp_program *p, const rpsim_dispatch_counts *counts,
                                  int64_t module_ps, int64_t object_ps, rp_arena *arena,
                                  rpsim_dispatcher **dispatcher_out)
{
    rpsim_dispatcher *d = NULL;
    gpu_queues *queues = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *d, &d));
    *d = (rpsim_dispatcher){.program = p,
                            .counts = counts,
                            .module_ps = module_ps,
                            .object_ps = object_ps,
                            .holder = NO_GPU};
    RP_TRY(rp_arena_alloc(arena, p->gpu_count, sizeof *queues, &queues));
    RP_TRY(rp_arena_alloc(arena, p->gpu_count, sizeof(worker), &d->workers));
    RP_TRY(rp_arena_alloc(arena, p->gpu_count, sizeof(uint32_t), &d->line));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(op_state), &d->ops));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), &d->news.ops));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(bool), &d->ended));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(job), &d->jobs));
    RP_TRY(rp_arena_alloc(arena, 3 * (size_t)p->op_count, sizeof(item), &d->items));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        gpu_queues *of = &queues[p->queues[q].gpu];
        of->compute = p->queues[q].kind == RP_QUEUE_COMPUTE ? q + 1 : of->compute;
        of->params = p->queues[q].kind == RP_QUEUE_PARAM_UPLOAD ? q + 1 : of->params;
        of->acts = p->queues[q].kind == RP_QUEUE_ACT_UPLOAD ? q + 1 : of->acts;
        set_up_ops(d, q);
    }
    uint32_t count = 0;
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        list_gpu(d, gpu, &queues[gpu], &count);
    }
    RP_TRY(order_jobs(d, arena));
    *dispatcher_out = d;
    return RP_OK;
}

const rpsim_dispatch_news *rpsim_dispatcher_begin(rpsim_dispatcher *d)
{
    clear_news(d);
    for (uint32_t gpu = 0; gpu < d->program->gpu_count; gpu++) {
        advance(d, gpu);
    }
    advance_others(d);
    return &d->news;
}

bool rpsim_dispatcher_issued(const rpsim_dispatcher *d, uint32_t op)
{
    return d->ops[op].issued > 0;
}

int64_t rpsim_dispatcher_chunk_ps(const rpsim_dispatcher *d, uint32_t op, int64_t op_ps)
{
    const op_state *o = &d->ops[op];
    int64_t whole = op_ps / o->chunks;
    int64_t rest = op_ps % o->chunks;
    return whole + (o->done < rest ? 1 : 0);
}

rpsim_chunk_state rpsim_dispatcher_chunk_end(rpsim_dispatcher *d, uint32_t op,
                                             const rpsim_dispatch_news **news_out)
{
    op_state *o = &d->ops[op];
    uint32_t gpu = d->program->queues[rp_program_queue_of(d->program, op)].gpu;
    clear_news(d);
    d->workers[gpu].in_flight -= chunk_launches(o, o->done);
    o->done++;
    bool last = o->done == o->chunks;
    d->ended[op] = last;
    o->held = !last && o->issued == o->done;
    bool held = o->held;
    advance(d, gpu);
    advance_others(d);
    *news_out = &d->news;
    return last ? RPSIM_CHUNK_LAST : held ? RPSIM_CHUNK_HELD : RPSIM_CHUNK_NEXT;
}

const rpsim_dispatch_news *rpsim_dispatcher_host_end(rpsim_dispatcher *d, uint32_t op)
{
    clear_news(d);
    d->ended[op] = true;
    advance_others(d);
    return &d->news;
}

const rpsim_dispatch_news *rpsim_dispatcher_release(rpsim_dispatcher *d)
{
    uint32_t gpu = d->holder;
    clear_news(d);
    d->holder = NO_GPU;
    advance(d, gpu);
    advance_others(d);
    return &d->news;
}
