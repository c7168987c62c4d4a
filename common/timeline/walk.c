/* Finds causes of waits and walks over them. The rules are in walk.h.
 *
 * The walk ends: each step leads to an op that an engine must have finished before; at the copy
 * engine only ops that take time count, so that time decreases.
 */
#include "common/timeline/walk.h"

#define NO_OP UINT32_MAX

typedef struct cause {
    uint32_t op;
    rp_delay reason;
    /* Time at which it lets the op start, less the offset within a joined group. */
    int64_t release_ps;
    int64_t hop_ps;
    bool memory_limit;
} cause;

/* Causes of an op's start: with all limits, and without memory limits. */
typedef struct causes {
    cause last;
    cause unlimited;
    cause engine; /* transfer of another queue that held the copy engine */
} causes;

static void consider(causes *c, const cause *new, bool wins_ties)
{
    cause *const slots[] = {&c->last, &c->unlimited};
    for (size_t i = 0; i < 2; i++) {
        bool later = slots[i]->op == NO_OP || new->release_ps > slots[i]->release_ps ||
                     (wins_ties && new->release_ps == slots[i]->release_ps);
        if (later && !(i == 1 && new->memory_limit)) {
            *slots[i] = *new;
        }
    }
}

/* True if the wait orders a transfer after an earlier compute op of the same GPU, which keeps to a
 * memory limit. RoundPipe's head forward is never the last op of a unit: an op that waits for it
 * waits for the loss (lower.h). A collective whose GPU stands for several waits for the
 * others as well, which is no limit of its own. */
static bool is_memory_limit(const rp_walk *w, uint32_t op, uint32_t target)
{
    const rp_program *p = w->program;
    const rp_queue *from = &p->queues[w->queue_of[op]];
    const rp_queue *to = &p->queues[w->queue_of[target]];
    bool loss = rp_program_gives_loss(p, &p->ops[target]);
    bool meets = rp_program_ranks(p) > p->gpu_count && from->kind == RP_QUEUE_PEER &&
                 rp_op_kind_class((rp_op_kind)p->ops[op].kind) == RP_CLASS_COLLECTIVE;
    return !meets && to->kind == RP_QUEUE_COMPUTE && from->kind != RP_QUEUE_COMPUTE &&
           rp_queue_kind_on_gpu((rp_queue_kind)from->kind) && from->gpu == to->gpu && !loss;
}

/* Considers the waits of `member`, which begins `offset_ps` after `op`. */
static void consider_waits(const rp_walk *w, uint32_t op, uint32_t member, bool wins_ties,
                           causes *c)
{
    const rp_program *p = w->program;
    bool overlaps = (p->ops[op].flags & RP_OP_OVERLAP) != 0 && member != op;
    int64_t begin_ps = w->timeline->start_ps[overlaps ? op + 1 : op]; /* a pair begins together */
    int64_t offset_ps = w->timeline->start_ps[member] - begin_ps;
    for (uint32_t i = p->ops[member].wait_begin; i < p->ops[member + 1].wait_begin; i++) {
        bool control = rp_wait_is_control(p->waits[i]);
        uint32_t target = rp_wait_op(p->waits[i]);
        cause new = {.op = target,
                     .reason = member != op ? RP_DELAY_JOINED
                               : control    ? RP_DELAY_CONTROL
                                            : RP_DELAY_DATA,
                     .hop_ps = control ? 0 : w->hop_ps,
                     .memory_limit = control && is_memory_limit(w, op, target)};
        new.release_ps = rp_timeline_result_ps(w->timeline, target) + new.hop_ps - offset_ps;
        consider(c, &new, wins_ties && i == p->ops[member].wait_begin);
    }
}

static bool is_joined(const rp_walk *w, uint32_t op)
{
    return w->joins && (w->program->ops[op].flags & (RP_OP_JOIN | RP_OP_OVERLAP)) != 0;
}

static void find_causes(const rp_walk *w, uint32_t op, causes *c)
{
    const cause none = {.op = NO_OP};
    *c = (causes){none, none, none};
    const rp_queue *queue = &w->program->queues[w->queue_of[op]];
    const int64_t *end_ps = w->timeline->end_ps;
    bool inside = op > queue->op_begin && is_joined(w, op - 1);
    if (op > queue->op_begin) {
        cause before = {.op = op - 1, .reason = RP_DELAY_QUEUE, .release_ps = end_ps[op - 1]};
        consider(c, &before, false);
    }
    consider_waits(w, op, op, inside, c);
    for (uint32_t i = op; !inside && is_joined(w, i) && i + 1 < queue->op_end; i++) {
        consider_waits(w, op, i + 1, false, c);
    }
    uint32_t engine = w->engine_before[op];
    if (engine != NO_OP) {
        c->engine = (cause){.op = engine, .reason = RP_DELAY_ENGINE, .release_ps = end_ps[engine]};
    }
}

/* ---- walking --------------------------------------------------------------------------------- */

typedef struct walker {
    const rp_walk *walk;
    int64_t from_ps;
    int64_t to_ps; /* end of the time still to be explained */
    rp_walk_sink sink;
    void *context;
    rp_walk_piece piece; /* not given to the sink yet: its reason is not known yet */
} walker;

static void flush(walker *w)
{
    if (w->piece.end_ps > w->piece.start_ps) {
        w->sink(w->context, &w->piece);
    }
    w->piece = (rp_walk_piece){0};
}

/* Charges the time still to be explained, from `begin_ps` on, to `op` in `step`. */
static void take(walker *w, uint32_t op, rp_walk_step step, int64_t begin_ps)
{
    begin_ps = begin_ps > w->from_ps ? begin_ps : w->from_ps;
    if (begin_ps >= w->to_ps) {
        return;
    }
    flush(w);
    w->piece = (rp_walk_piece){.op = op, .step = step, .start_ps = begin_ps, .end_ps = w->to_ps};
    w->piece.reason = step == RP_WALK_STEP_HOP ? RP_DELAY_DATA : RP_DELAY_START;
    w->to_ps = begin_ps;
}

static int64_t release_of(const cause *c)
{
    return c->op == NO_OP ? 0 : c->release_ps;
}

static bool engine_was_last(const causes *c, const cause *other)
{
    return c->engine.op != NO_OP && c->engine.release_ps > release_of(other);
}

/* Charges the op's run. If it began before the time to be explained but would have begun even
 * earlier without a memory limit, as much of its run as this delay is charged to the limit. */
static void take_run(walker *w, uint32_t op, const causes *c, rp_walk_mode mode)
{
    int64_t start_ps = w->walk->timeline->start_ps[op];
    bool limited = mode == RP_WALK_WAITS && start_ps <= w->from_ps && c->last.memory_limit &&
                   !engine_was_last(c, &c->last);
    if (!limited) {
        take(w, op, RP_WALK_STEP_RUN, start_ps);
        return;
    }
    int64_t could_ps =
        engine_was_last(c, &c->unlimited) ? c->engine.release_ps : release_of(&c->unlimited);
    int64_t held_ps = start_ps - could_ps;
    take(w, op, RP_WALK_STEP_RUN,
         held_ps < w->to_ps - w->from_ps ? w->from_ps + held_ps : w->to_ps);
    take(w, op, RP_WALK_STEP_MEMORY, w->from_ps);
}

/* Gives the cause of the op's start; charges the op's own waiting and leaves the rest to the
 * cause. */
static cause next_cause(walker *w, uint32_t op, const causes *c, rp_walk_mode mode)
{
    cause next = c->last;
    bool engine = engine_was_last(c, &next);
    if (mode == RP_WALK_PATH) {
        return engine ? c->engine : next;
    }
    if (engine) {
        take(w, op, RP_WALK_STEP_ENGINE, release_of(&next));
    }
    if (next.op != NO_OP && next.memory_limit) {
        next = c->unlimited;
        engine = engine_was_last(c, &next);
        take(w, op, RP_WALK_STEP_MEMORY, engine ? c->engine.release_ps : release_of(&next));
        if (engine) {
            take(w, op, RP_WALK_STEP_ENGINE, release_of(&next));
        }
    }
    return next;
}

/* True if the host had not issued the op between the end of its cause and its own start. */
static bool was_unissued(const rp_walk *walk, const cause *next, int64_t start_ps)
{
    int64_t cause_ps = next->op == NO_OP ? 0 : rp_timeline_result_ps(walk->timeline, next->op);
    return walk->timeline->held_ps != NULL && cause_ps < start_ps;
}

rp_delay rp_walk_cause(const rp_walk *walk, uint32_t op, uint32_t *op_out)
{
    causes c;
    find_causes(walk, op, &c);
    cause next = engine_was_last(&c, &c.last) ? c.engine : c.last;
    *op_out = next.op;
    bool unissued = was_unissued(walk, &next, walk->timeline->start_ps[op]);
    return unissued ? RP_DELAY_DISPATCH : next.reason;
}

void rp_walk_back(const rp_walk *walk, uint32_t op, int64_t from_ps, int64_t to_ps,
                  rp_walk_mode mode, rp_walk_sink sink, void *context)
{
    walker w = {walk, from_ps, to_ps, sink, context, {0}};
    uint32_t at = op;
    /* At most once per op: times from a file may lead in circles. */
    uint32_t left = walk->program->op_count;
    for (; w.to_ps > from_ps && left > 0; left--) {
        causes c;
        find_causes(walk, at, &c);
        take_run(&w, at, &c, mode);
        cause next = next_cause(&w, at, &c, mode);
        int64_t cause_ps = next.op == NO_OP ? 0 : rp_timeline_result_ps(walk->timeline, next.op);
        rp_delay reason = was_unissued(walk, &next, w.to_ps) ? RP_DELAY_DISPATCH : next.reason;
        w.piece.reason = w.piece.reason != RP_DELAY_START ? w.piece.reason : reason;
        if (next.op == NO_OP) {
            take(&w, at, RP_WALK_STEP_IDLE, from_ps);
            break;
        }
        rp_walk_step between = next.hop_ps > 0 ? RP_WALK_STEP_HOP : RP_WALK_STEP_IDLE;
        take(&w, next.hop_ps > 0 ? next.op : at, between, cause_ps);
        bool late = w.piece.step == RP_WALK_STEP_IDLE && w.piece.reason == RP_DELAY_START;
        w.piece.reason = late ? next.reason : w.piece.reason;
        at = next.op;
    }
    take(&w, at, RP_WALK_STEP_IDLE, from_ps);
    flush(&w);
}

/* ---- setting up ------------------------------------------------------------------------------ */

/* Finds the last op of `other` before each op of `queue`; both queues are in order of time. */
static void find_engine_before(rp_walk *w, const rp_queue *queue, const rp_queue *other)
{
    const rp_timeline *t = w->timeline;
    uint32_t next = other->op_begin;
    uint32_t last = NO_OP;
    for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
        for (; next < other->op_end && t->end_ps[next] <= t->start_ps[i]; next++) {
            last = t->end_ps[next] > t->start_ps[next] ? next : last;
        }
        uint32_t *before = &w->engine_before[i];
        if (last != NO_OP && (*before == NO_OP || t->end_ps[last] > t->end_ps[*before])) {
            *before = last;
        }
    }
}

/* Finds the ops that share a copy engine: uploads of parameters and activations of a GPU. */
static rp_status find_engines(rp_walk *w, rp_arena *arena)
{
    const rp_program *p = w->program;
    uint32_t(*uploads)[2] = NULL; /* [gpu] queue numbers + 1 */
    RP_TRY(rp_arena_alloc(arena, p->gpu_count, sizeof *uploads, &uploads));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        if (p->queues[q].kind == RP_QUEUE_PARAM_UPLOAD) {
            uploads[p->queues[q].gpu][0] = q + 1;
        } else if (p->queues[q].kind == RP_QUEUE_ACT_UPLOAD) {
            uploads[p->queues[q].gpu][1] = q + 1;
        }
    }
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        if (uploads[gpu][0] != 0 && uploads[gpu][1] != 0) {
            const rp_queue *params = &p->queues[uploads[gpu][0] - 1];
            const rp_queue *acts = &p->queues[uploads[gpu][1] - 1];
            find_engine_before(w, params, acts);
            find_engine_before(w, acts, params);
        }
    }
    return RP_OK;
}

rp_status rp_walk_prepare(const rp_timeline *timeline, int64_t hop_ps, rp_arena *arena,
                          rp_walk *walk_out)
{
    const rp_program *p = timeline->program;
    rp_walk w = {
        .program = p, .timeline = timeline, .hop_ps = hop_ps, .joins = p->op_bytes == NULL};
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), &w.queue_of));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), &w.engine_before));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            w.queue_of[i] = q;
            w.engine_before[i] = NO_OP;
        }
    }
    RP_TRY(find_engines(&w, arena));
    *walk_out = w;
    return RP_OK;
}

uint32_t rp_walk_last(const rp_timeline *t)
{
    uint32_t last = 0;
    int64_t makespan = 0;
    for (uint32_t i = 0; i < t->program->op_count; i++) {
        if (t->end_ps[i] > t->start_ps[i] && t->end_ps[i] > makespan) {
            makespan = t->end_ps[i];
            last = i;
        }
    }
    return last;
}
