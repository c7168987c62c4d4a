/* Collectives of the GPU driver: the ranks' logic of exec/run/rank_collective.c, with streams that
 * wait for each other instead of threads, or with NCCL after all ranks have come. */
#include "exec/gpu/gpu_internal.h"
#include "exec/state/shard.h"

#include <string.h>

static rpexec_gpu_queue *queue_of(void *context, uint32_t rank)
{
    const rpexec_gpu_meeting *m = context;
    return m->queues[rank];
}

/* Copies from another rank's memory, in the stream of the rank that takes them. */
static void fetch(void *context, uint32_t to_rank, void *to, uint32_t from_rank, const void *from,
                  uint64_t bytes)
{
    rpexec_gpu_queue *q = queue_of(context, to_rank);
    rpexec_gpu_copy_between(q, q->index, to, queue_of(context, from_rank)->index, from, bytes);
}

static void copy_bytes(void *context, uint32_t rank, void *to, const void *from, uint64_t bytes)
{
    rpexec_gpu_queue *q = queue_of(context, rank);
    (void)rpexec_gpu_tried(q->driver, q->driver->calls->copy(to, from, bytes, q->stream),
                           "cudaMemcpyAsync");
}

static void add_arrays(void *context, uint32_t rank, rp_dtype dtype, uint64_t count,
                       const void *values, bool add_to, float *sum)
{
    rpexec_gpu_queue *q = queue_of(context, rank);
    (void)rpexec_gpu_tried(
        q->driver,
        q->driver->calls->add(&q->gpu->part, dtype, count, values, add_to, sum, q->stream),
        "adding arrays");
}

static void narrow(void *context, uint32_t rank, rp_dtype dtype, uint64_t count, const float *sum,
                   void *to)
{
    rpexec_gpu_queue *q = queue_of(context, rank);
    (void)rpexec_gpu_tried(
        q->driver, q->driver->calls->narrow(&q->gpu->part, dtype, count, sum, to, q->stream),
        "rounding sums");
}

/* A rank has two events and takes them in turn. It records an event again two meetings later: by
 * then all ranks have come to the meeting in between, so that their streams wait already. */
static void **event_of(const rpexec_gpu_meeting *m, uint32_t rank, uint32_t round)
{
    return &m->events[2 * rank + round % 2];
}

/* While a thread waits in a meeting, other threads have the GPU's turn. */
static void arrive(void *context, uint32_t rank)
{
    const rpexec_gpu_meeting *m = context;
    rpexec_gpu_queue *q = queue_of(context, rank);
    (void)rpexec_gpu_tried(
        q->driver, q->driver->calls->event_record(*event_of(m, rank, m->rounds[rank]), q->stream),
        "cudaEventRecord");
    rpexec_gpu_release(q);
}

static void depart(void *context, uint32_t rank)
{
    const rpexec_gpu_meeting *m = context;
    rpexec_gpu_queue *q = queue_of(context, rank);
    uint32_t round = m->rounds[rank]++;
    rpexec_gpu_hold(q);
    for (uint32_t other = 0; other < m->ranks; other++) {
        if (other != rank) {
            (void)rpexec_gpu_tried(
                q->driver, q->driver->calls->stream_wait(q->stream, *event_of(m, other, round)),
                "cudaStreamWaitEvent");
        }
    }
}

/* NCCL's kernels wait for each other by themselves. */
static void arrive_only(void *context, uint32_t rank)
{
    rpexec_gpu_release(queue_of(context, rank));
}

static void depart_only(void *context, uint32_t rank)
{
    rpexec_gpu_hold(queue_of(context, rank));
}

static void together(void *context, uint32_t rank)
{
    rpexec_gpu_collect_by_nccl(queue_of(context, rank), context);
}

static rp_status open_meeting(rpexec_driver *d, uint32_t kind, uint32_t ranks,
                              rpexec_gpu_meeting *m)
{
    static const rpexec_host_group_moves moves = {.copy = copy_bytes,
                                                  .add = add_arrays,
                                                  .narrow = narrow,
                                                  .arrive = arrive,
                                                  .depart = depart};
    static const rpexec_host_group_moves by_nccl = {
        .arrive = arrive_only, .depart = depart_only, .together = together};
    /* A pair's sum is done by copies, which may be NCCL's. */
    bool whole = kind != RPEXEC_GPU_PAIRS && d->devices->by_nccl[RPEXEC_GPU_COLLECTIVES];
    uint32_t most_arrays = kind == RPEXEC_GPU_PAIRS ? 1 : rpexec_plan_most_arrays(d->config.plan);
    m->axis = (rpexec_axis)kind;
    m->ranks = ranks;
    RP_TRY(rp_arena_alloc(d->arena, ranks, sizeof *m->queues, &m->queues));
    RP_TRY(rp_arena_alloc(d->arena, ranks, sizeof *m->rounds, &m->rounds));
    RP_TRY(rp_arena_alloc(d->arena, (size_t)2 * ranks, sizeof *m->events, &m->events));
    RP_TRY(rpexec_host_group_open(ranks, most_arrays, fetch, m, d->arena, &m->group));
    rpexec_host_group_set_moves(m->group, whole ? &by_nccl : &moves);
    return RP_OK;
}

/* Makes events on the GPU that records them. */
static rp_status make_events(rpexec_driver *d, rpexec_gpu_meeting *m, uint32_t rank, uint32_t gpu)
{
    rpexec_gpu_visit(d->devices, &d->devices->gpus[gpu]);
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < 2; i++) {
        error = d->calls->event_create(event_of(m, rank, i));
    }
    rpexec_gpu_leave(d->devices, &d->devices->gpus[gpu]);
    return rpexec_gpu_check(d->devices, error, "cudaEventCreateWithFlags");
}

/* Finds the GPUs of the first and of the last layer in the copy and rank `number`.
 * @return true if they are two GPUs with weights */
static bool find_pair(const rpexec_plan *plan, uint32_t number, uint32_t *gpus)
{
    uint32_t head = plan->model->layer_count - 1;
    for (uint32_t i = 0; plan->resident && i < plan->job_count; i++) {
        const rpexec_job *job = &plan->jobs[i];
        bool is_in = job->gpu % rpexec_plan_copies(plan) == number;
        gpus[0] = is_in && job->begin == 0 ? job->gpu : gpus[0];
        gpus[1] = is_in && job->end == head + 1 ? job->gpu : gpus[1];
    }
    return plan->resident && gpus[0] != gpus[1];
}

uint64_t rpexec_gpu_pair_scratch(const rpexec_plan *plan, uint32_t gpu)
{
    uint32_t pair[2] = {0, 0};
    bool is_in =
        find_pair(plan, gpu % rpexec_plan_copies(plan), pair) && (gpu == pair[0] || gpu == pair[1]);
    return is_in ? rpexec_collective_scratch(rpexec_plan_model(plan, gpu)->embedding.floats,
                                             RPEXEC_GPU_CHUNK, plan->model->dtype)
                 : 0;
}

static rp_status open_axis(rpexec_driver *d, rpexec_axis axis)
{
    const rpexec_plan *plan = d->config.plan;
    const rpexec_plan_axis of = rpexec_plan_axis_of(plan, axis);
    RP_TRY(rp_arena_alloc(d->arena, of.groups, sizeof *d->meetings[axis], &d->meetings[axis]));
    d->meeting_counts[axis] = of.groups;
    for (uint32_t i = 0; i < of.groups; i++) {
        rpexec_gpu_meeting *m = &d->meetings[axis][i];
        RP_TRY(open_meeting(d, axis, of.ranks, m));
        for (uint32_t rank = 0; rank < of.ranks; rank++) {
            RP_TRY(make_events(d, m, rank, rpexec_plan_gpu(plan, axis, i, rank)));
        }
    }
    return RP_OK;
}

static rp_status open_pairs(rpexec_driver *d)
{
    const rpexec_plan *plan = d->config.plan;
    uint32_t pair[2] = {0, 0};
    uint32_t count = find_pair(plan, 0, pair) ? rpexec_plan_copies(plan) : 0;
    rpexec_gpu_meeting **pairs = &d->meetings[RPEXEC_GPU_PAIRS];
    RP_TRY(rp_arena_alloc(d->arena, count, sizeof **pairs, pairs));
    d->meeting_counts[RPEXEC_GPU_PAIRS] = count;
    for (uint32_t i = 0; i < count; i++) {
        (void)find_pair(plan, i, pair);
        RP_TRY(open_meeting(d, RPEXEC_GPU_PAIRS, 2, &(*pairs)[i]));
        RP_TRY(make_events(d, &(*pairs)[i], 0, pair[0]));
        RP_TRY(make_events(d, &(*pairs)[i], 1, pair[1]));
    }
    return RP_OK;
}

rp_status rpexec_gpu_open_meetings(rpexec_driver *d)
{
    const rpexec_plan *plan = d->config.plan;
    RP_TRY(plan->sharded != NULL ? open_axis(d, RPEXEC_AXIS_ALL) : RP_OK);
    RP_TRY(plan->slices != NULL ? open_axis(d, RPEXEC_AXIS_TENSOR) : RP_OK);
    RP_TRY(plan->data > 1 ? open_axis(d, RPEXEC_AXIS_DATA) : RP_OK);
    return open_pairs(d);
}

static void for_each(rpexec_driver *d, void (*f)(rpexec_driver *d, rpexec_gpu_meeting *m))
{
    for (uint32_t kind = 0; kind < RPEXEC_GPU_MEETINGS; kind++) {
        for (uint32_t i = 0; i < d->meeting_counts[kind]; i++) {
            f(d, &d->meetings[kind][i]);
        }
    }
}

static void close_meeting(rpexec_driver *d, rpexec_gpu_meeting *m)
{
    for (uint32_t k = 0; m->events != NULL && k < 2 * m->ranks; k++) {
        if (m->events[k] != NULL) {
            (void)d->calls->event_destroy(m->events[k]);
        }
    }
    rpexec_host_group_close(m->group);
}

void rpexec_gpu_close_meetings(rpexec_driver *d)
{
    for_each(d, close_meeting);
}

static void abort_meeting(rpexec_driver *d, rpexec_gpu_meeting *m)
{
    (void)d;
    if (m->group != NULL) { /* after a failure to open there may be none */
        rpexec_host_group_abort(m->group);
    }
}

void rpexec_gpu_abort_meetings(rpexec_driver *d)
{
    for_each(d, abort_meeting);
}

static rp_status run_meeting(rpexec_driver *d, rpexec_gpu_meeting *m, uint32_t op, uint32_t rank,
                             const rpexec_collective *collective, uint64_t *moved_out)
{
    m->queues[rank] = &d->queues[d->config.plan->order.queue_of[op]];
    rpexec_gpu_graphs_flush(m->queues[rank]->graphs);
    return rpexec_host_group_run(m->group, rank, collective, moved_out);
}

rp_status rpexec_gpu_collective(rpexec_driver *d, uint32_t op, const rpexec_collective *collective,
                                uint64_t *moved_out)
{
    uint32_t gpu = d->queues[d->config.plan->order.queue_of[op]].index;
    uint32_t group = 0;
    uint32_t rank = rpexec_plan_rank(d->config.plan, collective->axis, gpu, &group);
    rpexec_gpu_meeting *m = &d->meetings[collective->axis][group];
    return run_meeting(d, m, op, rank, collective, moved_out);
}

rp_status rpexec_gpu_sum_pair(rpexec_driver *d, uint32_t op, uint32_t rank, uint64_t count,
                              void *array)
{
    const rpexec_gpu_queue *q = &d->queues[d->config.plan->order.queue_of[op]];
    const rpexec_gpu *gpu = q->gpu;
    uint32_t pair = q->index % rpexec_plan_copies(d->config.plan);
    const rpexec_collective_array all = {.from = array, .to = array, .count = count};
    const rpexec_collective sum = {.kind = RPEXEC_ALL_REDUCE,
                                   .dtype = d->config.plan->model->dtype,
                                   .arrays = &all,
                                   .array_count = 1,
                                   .scratch = gpu->scratch,
                                   .scratch_bytes = gpu->scratch_bytes};
    uint64_t moved = 0;
    return run_meeting(d, &d->meetings[RPEXEC_GPU_PAIRS][pair], op, rank, &sum, &moved);
}
