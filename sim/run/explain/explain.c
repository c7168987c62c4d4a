/* Attribution and critical path, both found by walking backwards over causes
 * (common/timeline/walk.h). */
#include "sim/run/explain/explain.h"

#include "common/base/log.h"
#include "common/base/reason.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- resources ------------------------------------------------------------------------------- */

static rpsim_resource_kind resource_kind_of(const rp_walk *walk, uint32_t op, rp_walk_step step)
{
    if (step == RP_WALK_STEP_HOP) {
        return RPSIM_RESOURCE_PEER;
    }
    if (step == RP_WALK_STEP_MEMORY) {
        return RPSIM_RESOURCE_MEMORY;
    }
    if (step == RP_WALK_STEP_IDLE && walk->timeline->held_ps != NULL) {
        return RPSIM_RESOURCE_DISPATCH;
    }
    static const rpsim_resource_kind of_carrier[] = {[RP_CARRIER_COMPUTE] = RPSIM_RESOURCE_COMPUTE,
                                                     [RP_CARRIER_LINK_UP] = RPSIM_RESOURCE_LINK_UP,
                                                     [RP_CARRIER_LINK_DOWN] =
                                                         RPSIM_RESOURCE_LINK_DOWN,
                                                     [RP_CARRIER_PEER] = RPSIM_RESOURCE_PEER,
                                                     [RP_CARRIER_HOST] = RPSIM_RESOURCE_HOST};
    const rp_queue *queue = &walk->program->queues[walk->queue_of[op]];
    if (queue->kind == RP_QUEUE_NETWORK) {
        return RPSIM_RESOURCE_PEER;
    }
    return of_carrier[rp_queue_kind_carrier((rp_queue_kind)queue->kind)];
}

static uint32_t resource_of(const rp_walk *walk, uint32_t op, rp_walk_step step)
{
    return rpsim_resource(resource_kind_of(walk, op, step),
                          walk->program->queues[walk->queue_of[op]].gpu, walk->program->gpu_count);
}

/* ---- attribution ----------------------------------------------------------------------------- */

/* Charges the waiting time of a GPU to its causes. */
typedef struct charge {
    rpsim_explanation *explanation;
    const rp_walk *walk;
    uint32_t gpu; /* the GPU that waits */
} charge;

static rp_share share_of_wait(const rp_walk *w, uint32_t op, rp_walk_step step)
{
    if (step == RP_WALK_STEP_MEMORY) {
        return RPSIM_SHARE_MEMORY;
    }
    if (resource_kind_of(w, op, step) == RPSIM_RESOURCE_DISPATCH) {
        return RPSIM_SHARE_DISPATCH;
    }
    rp_op_kind kind = (rp_op_kind)w->program->ops[op].kind;
    if (rp_op_kind_moves_parameters(kind) && rp_op_kinds[kind].way == RP_WAY_UP) {
        return RPSIM_SHARE_UPLOAD_PARAMS;
    }
    switch ((int)resource_kind_of(w, op, step)) {
    case RPSIM_RESOURCE_COMPUTE:
        return RPSIM_SHARE_DEPENDENCY;
    case RPSIM_RESOURCE_LINK_UP:
        return RPSIM_SHARE_UPLOAD_ACT;
    case RPSIM_RESOURCE_LINK_DOWN:
        return RPSIM_SHARE_DOWNLOAD;
    case RPSIM_RESOURCE_HOST:
        return RPSIM_SHARE_HOST;
    default: /* the walk has no other steps */
        break;
    }
    return RPSIM_SHARE_PEER;
}

static rp_share share_of_work(rp_op_kind kind)
{
    static const rp_share of_phase[RP_PHASE_COUNT] = {[RP_PHASE_FORWARD] = RPSIM_SHARE_FORWARD,
                                                      [RP_PHASE_RECOMPUTE] = RPSIM_SHARE_RECOMPUTE,
                                                      [RP_PHASE_BACKWARD] = RPSIM_SHARE_BACKWARD,
                                                      [RP_PHASE_STEP] = RPSIM_SHARE_UPDATE};
    return of_phase[rp_op_kinds[kind].phase];
}

static void charge_wait(void *context, const rp_walk_piece *piece)
{
    charge *c = context;
    int64_t ps = piece->end_ps - piece->start_ps;
    rp_share share = share_of_wait(c->walk, piece->op, piece->step);
    c->explanation->gpu_share_ps[c->gpu][share] += ps;
    c->explanation->blame_ps[resource_of(c->walk, piece->op, piece->step)] += ps;
}

static void attribute_queue(const rp_timeline *t, const rp_queue *queue, const rp_walk *w,
                            rpsim_explanation *e)
{
    charge c = {e, w, queue->gpu};
    int64_t *share_ps = e->gpu_share_ps[queue->gpu];
    int64_t idle_from = 0;
    bool first = true;
    for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
        if (t->end_ps[i] == t->start_ps[i]) {
            continue;
        }
        if (first) {
            share_ps[RPSIM_SHARE_FILL] += t->start_ps[i];
        } else if (t->start_ps[i] > idle_from) {
            rp_walk_back(w, i, idle_from, t->start_ps[i], RP_WALK_WAITS, charge_wait, &c);
        }
        first = false;
        idle_from = t->end_ps[i];
        int64_t held_ps = t->held_ps != NULL ? t->held_ps[i] : 0;
        share_ps[share_of_work((rp_op_kind)t->program->ops[i].kind)] +=
            idle_from - t->start_ps[i] - held_ps;
        share_ps[RPSIM_SHARE_DISPATCH] += held_ps;
        e->blame_ps[rpsim_resource(RPSIM_RESOURCE_DISPATCH, 0, e->gpus)] += held_ps;
    }
    share_ps[first ? RPSIM_SHARE_FILL : RPSIM_SHARE_DRAIN] += e->makespan_ps - idle_from;
}

static rp_status attribute(const rp_timeline *t, const rp_walk *w, rp_arena *scratch,
                           rpsim_explanation *e)
{
    bool *seen = NULL;
    RP_TRY(rp_arena_alloc(scratch, e->gpus, sizeof *seen, &seen));
    for (uint32_t q = 0; q < t->program->queue_count; q++) {
        const rp_queue *queue = &t->program->queues[q];
        if (queue->kind == RP_QUEUE_COMPUTE) {
            seen[queue->gpu] = true;
            attribute_queue(t, queue, w, e);
        }
    }
    for (uint32_t gpu = 0; gpu < e->gpus; gpu++) {
        int64_t sum = 0;
        if (!seen[gpu]) {
            e->gpu_share_ps[gpu][RPSIM_SHARE_FILL] = e->makespan_ps;
        }
        for (uint32_t s = 0; s < RPSIM_SHARE_COUNT; s++) {
            sum += e->gpu_share_ps[gpu][s];
            e->share_ps[s] += e->gpu_share_ps[gpu][s];
        }
        if (sum != e->makespan_ps) {
            rp_log_error("the time of GPU %u is explained for %" PRId64 " of %" PRId64 " ps", gpu,
                         sum, e->makespan_ps);
            return rp_broken();
        }
    }
    return RP_OK;
}

/* ---- after the last op ----------------------------------------------------------------------- */

typedef struct interval {
    int64_t start_ps;
    int64_t end_ps;
} interval;

static int compare_starts(const void *one, const void *other)
{
    int64_t a = ((const interval *)one)->start_ps;
    int64_t b = ((const interval *)other)->start_ps;
    return a < b ? -1 : a > b ? 1 : 0;
}

/* Lists the intervals of a queue's sums (its last ops) that end after `from_ps`. @param room NULL:
 * only counts them */
static uint32_t list_sums(const rp_timeline *t, const rp_queue *queue, int64_t from_ps,
                          interval *room)
{
    uint32_t count = 0;
    for (uint32_t i = queue->op_end; i > queue->op_begin && t->end_ps[i - 1] > from_ps; i--) {
        if (rp_op_kind_is_joint(t->program->ops[i - 1].kind)) {
            if (room != NULL) {
                int64_t start_ps = t->start_ps[i - 1];
                room[count] = (interval){start_ps > from_ps ? start_ps : from_ps, t->end_ps[i - 1]};
            }
            count++;
        }
    }
    return count;
}

static int64_t length_of_union(interval *intervals, uint32_t count)
{
    int64_t length = 0;
    int64_t until = 0;
    qsort(intervals, count, sizeof *intervals, compare_starts);
    for (uint32_t i = 0; i < count; i++) {
        int64_t from = intervals[i].start_ps > until ? intervals[i].start_ps : until;
        length += intervals[i].end_ps > from ? intervals[i].end_ps - from : 0;
        until = intervals[i].end_ps > until ? intervals[i].end_ps : until;
    }
    return length;
}

/* Counts or lists a queue's sums for the GPUs they belong to; sums over servers belong to every
 * GPU. */
static void deal_sums(const rp_timeline *t, const rp_queue *queue, const rpsim_explanation *e,
                      uint32_t *next, interval *intervals)
{
    bool own = rp_queue_kind_on_gpu((rp_queue_kind)queue->kind);
    uint32_t begin = own ? queue->gpu : 0;
    uint32_t end = own ? begin + 1 : queue->kind == RP_QUEUE_NETWORK ? e->gpus : 0;
    for (uint32_t gpu = begin; gpu < end; gpu++) {
        int64_t from_ps = e->makespan_ps - e->gpu_share_ps[gpu][RPSIM_SHARE_DRAIN];
        next[gpu] += list_sums(t, queue, from_ps, intervals != NULL ? &intervals[next[gpu]] : NULL);
    }
}

/* Adds up drain_sums_ps. The next step begins when gradients have been added up and shares of
 * weights gathered, so these collectives are exposed while a GPU has nothing else to do. */
static rp_status find_drain_sums(const rp_timeline *t, rp_arena *scratch, rpsim_explanation *e)
{
    const rp_program *p = t->program;
    uint32_t *next = NULL; /* [gpu] number of its sums, then the index for the next sum */
    interval *intervals = NULL;
    uint32_t count = 0;
    if (p->asynchronous) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(scratch, e->gpus, sizeof *next, &next));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        deal_sums(t, &p->queues[q], e, next, NULL);
    }
    for (uint32_t gpu = 0; gpu < e->gpus; gpu++) {
        uint32_t own = next[gpu];
        next[gpu] = count;
        count += own;
    }
    RP_TRY(rp_arena_alloc(scratch, count + 1u, sizeof *intervals, &intervals));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        deal_sums(t, &p->queues[q], e, next, intervals);
    }
    for (uint32_t gpu = 0, begin = 0; gpu < e->gpus; begin = next[gpu++]) {
        e->drain_sums_ps += length_of_union(&intervals[begin], next[gpu] - begin);
    }
    return RP_OK;
}

/* ---- critical path --------------------------------------------------------------------------- */

typedef struct path_writer {
    rpsim_explanation *explanation;
    const rp_walk *walk;
    uint32_t left; /* segments still to be written; they are found from the last to the first */
} path_writer;

static void count_segment(void *context, const rp_walk_piece *piece)
{
    path_writer *w = context;
    (void)piece;
    w->explanation->segment_count++;
}

static void add_segment(void *context, const rp_walk_piece *piece)
{
    path_writer *w = context;
    rpsim_explanation *e = w->explanation;
    int64_t ps = piece->end_ps - piece->start_ps;
    uint32_t resource = resource_of(w->walk, piece->op, piece->step);
    e->segments[--w->left] = (rpsim_segment){.op = piece->op,
                                             .resource = resource,
                                             .start_ps = piece->start_ps,
                                             .end_ps = piece->end_ps,
                                             .reason = piece->reason};
    /* If a whole op is on the path, the time it was held is charged to the host's dispatch. */
    const rp_timeline *t = w->walk->timeline;
    bool whole = piece->step == RP_WALK_STEP_RUN && piece->start_ps == t->start_ps[piece->op] &&
                 piece->end_ps == t->end_ps[piece->op];
    int64_t held_ps = whole && t->held_ps != NULL ? t->held_ps[piece->op] : 0;
    e->path_ps[resource] += ps - held_ps;
    e->path_ps[rpsim_resource(RPSIM_RESOURCE_DISPATCH, 0, e->gpus)] += held_ps;
    if (piece->step == RP_WALK_STEP_HOP) {
        e->path_hop_ps += ps;
    } else {
        e->path_kind_ps[w->walk->program->ops[piece->op].kind] += ps;
    }
}

/* `last` ends at the makespan. */
static rp_status find_path(const rp_walk *w, uint32_t last, rp_arena *arena, rpsim_explanation *e)
{
    if (e->makespan_ps == 0) {
        return RP_OK;
    }
    path_writer writer = {.explanation = e, .walk = w};
    rp_walk_back(w, last, 0, e->makespan_ps, RP_WALK_PATH, count_segment, &writer);
    RP_TRY(rp_arena_alloc(arena, e->segment_count, sizeof(rpsim_segment), &e->segments));
    writer.left = e->segment_count;
    rp_walk_back(w, last, 0, e->makespan_ps, RP_WALK_PATH, add_segment, &writer);
    return RP_OK;
}

static rp_status explain(const rpsim_explain_case *c, rp_arena *arena, rp_arena *scratch,
                         rpsim_explanation *e, rp_reason *reason)
{
    const rp_timeline *t = c->timeline;
    if (t->program->op_count == 0) {
        return RP_OK;
    }
    uint32_t last = rp_walk_last(t);
    bool empty = t->end_ps[last] == t->start_ps[last];
    e->makespan_ps = empty ? 0 : t->end_ps[last];
    int64_t gpu_time = 0;
    if (__builtin_mul_overflow((int64_t)e->gpus, e->makespan_ps, &gpu_time)) {
        return rp_refuse(reason, RP_INPUT,
                         "GPU time of the run exceeds 106 days; valid are shorter runs");
    }
    rp_walk walk;
    RP_TRY(rp_walk_prepare(t, c->times != NULL ? c->times->hop_ps : 0, scratch, &walk));
    RP_TRY(attribute(t, &walk, scratch, e));
    RP_TRY(find_drain_sums(t, scratch, e));
    return find_path(&walk, last, arena, e);
}

rp_status rpsim_explain(const rpsim_explain_case *c, rp_arena *arena,
                        rpsim_explanation *explanation_out, rp_reason *reason)
{
    uint32_t gpus = c->timeline->program->gpu_count;
    uint32_t resources = rpsim_resource_count(gpus);
    rpsim_explanation e = {.gpus = gpus};
    RP_TRY(rp_arena_alloc(arena, gpus, sizeof *e.gpu_share_ps, &e.gpu_share_ps));
    RP_TRY(rp_arena_alloc(arena, resources, sizeof(int64_t), &e.blame_ps));
    RP_TRY(rp_arena_alloc(arena, resources, sizeof(int64_t), &e.path_ps));
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = explain(c, arena, scratch, &e, reason);
    rp_arena_destroy(scratch);
    if (status == RP_OK) {
        *explanation_out = e;
    }
    return status;
}

uint32_t rpsim_explain_most_blamed(const rpsim_explanation *explanation)
{
    uint32_t best = UINT32_MAX;
    int64_t most = 0;
    for (uint32_t r = 0; r < rpsim_resource_count(explanation->gpus); r++) {
        if (explanation->blame_ps[r] > most) {
            most = explanation->blame_ps[r];
            best = r;
        }
    }
    return best;
}

/* Time of a GPU's resource on the path; for links both directions. */
static int64_t path_of(const rpsim_explanation *e, rpsim_resource_kind kind, uint32_t gpu)
{
    int64_t ps = e->path_ps[rpsim_resource(kind, gpu, e->gpus)];
    bool link = kind == RPSIM_RESOURCE_LINK_UP;
    return ps + (link ? e->path_ps[rpsim_resource(RPSIM_RESOURCE_LINK_DOWN, gpu, e->gpus)] : 0);
}

/* Picks the GPU or link of the first cause. `e` is NULL if no time is charged to single resources
 * of the kind. */
static void set_single(const rpsim_explanation *e, uint32_t count, const double *elasticity_of,
                       rpsim_first_cause *cause)
{
    double sum = 0;
    cause->group_count = count;
    for (uint32_t i = 0; i < count && (elasticity_of != NULL || e != NULL); i++) {
        bool better = elasticity_of != NULL
                          ? elasticity_of[i] > elasticity_of[cause->gpu]
                          : path_of(e, cause->kind, i) > path_of(e, cause->kind, cause->gpu);
        cause->gpu = better ? i : cause->gpu;
        sum += elasticity_of != NULL ? elasticity_of[i] : 0;
    }
    if (elasticity_of != NULL) {
        cause->elasticity = elasticity_of[cause->gpu];
        cause->stands_out = count > 1 && cause->elasticity * count > RPSIM_STANDS_OUT * sum;
    }
}

void rpsim_explain_communication(const rp_timeline *timeline, const rpsim_explanation *e,
                                 int64_t *total_ps_out, int64_t *exposed_ps_out)
{
    const rp_program *p = timeline->program;
    int64_t equal = rp_program_ranks(p) / p->gpu_count;
    *total_ps_out = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        rp_op_kind kind = (rp_op_kind)p->ops[i].kind;
        if (rp_op_kind_class(kind) == RP_CLASS_TRANSFER || rp_op_kind_is_joint(kind)) {
            *total_ps_out += equal * (timeline->end_ps[i] - timeline->start_ps[i]);
        }
    }
    *exposed_ps_out = e->share_ps[RPSIM_SHARE_UPLOAD_PARAMS] + e->share_ps[RPSIM_SHARE_UPLOAD_ACT] +
                      e->share_ps[RPSIM_SHARE_DOWNLOAD] + e->share_ps[RPSIM_SHARE_PEER] +
                      e->drain_sums_ps;
    *exposed_ps_out *= equal;
}

rpsim_first_cause rpsim_explain_first_cause(const rpsim_explanation *e, const rpsim_sensitivity *s)
{
    struct {
        rpsim_resource_kind kind;
        double elasticity; /* NaN never compares larger */
    } groups[5 + RP_SHARED_COUNT] = {{RPSIM_RESOURCE_COMPUTE, s->compute},
                                     {RPSIM_RESOURCE_LINK_UP, s->links},
                                     {RPSIM_RESOURCE_HOST, s->host},
                                     {RPSIM_RESOURCE_DISPATCH, s->dispatch},
                                     {RPSIM_RESOURCE_PEER, s->peer}};
    for (int k = 0; k < RP_SHARED_COUNT; k++) {
        groups[5 + k].kind = rpsim_resource_of_shared((rp_shared)k);
        groups[5 + k].elasticity = s->shared[k];
    }
    rpsim_first_cause cause = {.kind = RPSIM_RESOURCE_KIND_COUNT, .group_count = 1};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if (groups[i].elasticity > cause.group_elasticity) {
            cause.kind = groups[i].kind;
            cause.elasticity = cause.group_elasticity = groups[i].elasticity;
        }
    }
    if (cause.kind == RPSIM_RESOURCE_COMPUTE) {
        set_single(e, e->gpus, s->compute_of, &cause);
    } else if (cause.kind == RPSIM_RESOURCE_LINK_UP) {
        set_single(e, e->gpus, s->link_of, &cause);
        int64_t up_ps = e->path_ps[rpsim_resource(RPSIM_RESOURCE_LINK_UP, cause.gpu, e->gpus)];
        int64_t down_ps = e->path_ps[rpsim_resource(RPSIM_RESOURCE_LINK_DOWN, cause.gpu, e->gpus)];
        cause.kind = up_ps >= down_ps ? RPSIM_RESOURCE_LINK_UP : RPSIM_RESOURCE_LINK_DOWN;
    } else if (rpsim_resource_is_shared(cause.kind)) {
        int kind = (int)cause.kind - RPSIM_RESOURCE_TIMED_COUNT;
        set_single(NULL, s->shared_count[kind], s->shared_of[kind], &cause);
    }
    return cause;
}
