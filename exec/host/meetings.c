#include "exec/host/meetings.h"

#include "exec/run/rank_collective.h"

#include <string.h>

/* GPUs that do collectives together. */
typedef struct meeting {
    rpexec_host_meetings *of;
    rpexec_axis axis;
    uint32_t number; /* of the group among the groups of its axis, or among pairs */
    rpexec_host_group *group;
} meeting;

/* Kinds of meetings: an axis each, and pairs. */
enum {
    PAIRS = RPEXEC_AXIS_COUNT, /* meetings of the two GPUs that have the copies of a tied table */
    KINDS,
};

struct rpexec_host_meetings {
    rpexec_host_meetings_config config;
    meeting *all[KINDS];
    uint32_t counts[KINDS];
    unsigned char *scratch; /* scratch of a pair, half for each GPU */
};

/* ---- copies ---------------------------------------------------------------------------------- */

/* Copies from another GPU's memory. */
static void fetch(void *context, uint32_t to_rank, void *to, uint32_t from_rank, const void *from,
                  uint64_t bytes)
{
    const meeting *m = context;
    const rpexec_host_meetings_config *config = &m->of->config;
    if (config->links == NULL) {
        memcpy(to, from, bytes);
        return;
    }
    uint32_t to_gpu = rpexec_plan_gpu(config->plan, m->axis, m->number, to_rank);
    uint32_t from_gpu = rpexec_plan_gpu(config->plan, m->axis, m->number, from_rank);
    rp_status status = rpexec_links_copy_peer(config->links, to_gpu, to, from_gpu, from, bytes);
    if (status != RP_OK) {
        config->fail(config->context, status);
    }
}

/* Copies from a tied table's other copy: not throttled, since no op of the program moves it. */
static void fetch_table(void *context, uint32_t to_rank, void *to, uint32_t from_rank,
                        const void *from, uint64_t bytes)
{
    (void)context;
    (void)to_rank;
    (void)from_rank;
    memcpy(to, from, bytes);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static uint64_t pair_scratch(const rpexec_plan *plan)
{
    const rpexec_model *model = plan->model;
    uint64_t bytes =
        rpexec_collective_scratch(model->embedding.floats, RPEXEC_HOST_CHUNK, model->dtype);
    return (bytes + 63) / 64 * 64;
}

static rp_status open_kind(rpexec_host_meetings *m, uint32_t kind, rpexec_plan_axis axis,
                           rp_arena *arena)
{
    uint32_t most = kind == PAIRS ? 1 : rpexec_plan_most_arrays(m->config.plan);
    RP_TRY(rp_arena_alloc(arena, axis.groups, sizeof(meeting), &m->all[kind]));
    for (uint32_t i = 0; i < axis.groups; i++) {
        meeting *one = &m->all[kind][i];
        *one = (meeting){.of = m, .axis = (rpexec_axis)kind, .number = i};
        RP_TRY(rpexec_host_group_open(axis.ranks, most, kind == PAIRS ? fetch_table : fetch, one,
                                      arena, &one->group));
        m->counts[kind]++;
    }
    return RP_OK;
}

static rp_status open_all(rpexec_host_meetings *m, rp_arena *arena)
{
    const rpexec_plan *plan = m->config.plan;
    const rpexec_plan_axis pairs = {.groups = rpexec_plan_copies(plan), .ranks = 2};
    RP_TRY(rp_arena_alloc(arena, 2 * (size_t)pairs.groups, pair_scratch(plan), &m->scratch));
    RP_TRY(open_kind(m, PAIRS, pairs, arena));
    for (uint32_t axis = 0; axis < RPEXEC_AXIS_COUNT; axis++) {
        RP_TRY(open_kind(m, axis, rpexec_plan_axis_of(plan, (rpexec_axis)axis), arena));
    }
    return RP_OK;
}

rp_status rpexec_host_meetings_open(const rpexec_host_meetings_config *config, rp_arena *arena,
                                    rpexec_host_meetings **meetings_out)
{
    rpexec_host_meetings *m = NULL;
    *meetings_out = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *m, &m));
    m->config = *config;
    rp_status status = open_all(m, arena);
    if (status != RP_OK) {
        rpexec_host_meetings_close(m);
        return status;
    }
    *meetings_out = m;
    return RP_OK;
}

static void for_each(rpexec_host_meetings *m, void (*f)(rpexec_host_group *group))
{
    for (uint32_t kind = 0; m != NULL && kind < KINDS; kind++) {
        for (uint32_t i = 0; i < m->counts[kind]; i++) {
            f(m->all[kind][i].group);
        }
    }
}

void rpexec_host_meetings_abort(rpexec_host_meetings *m)
{
    for_each(m, rpexec_host_group_abort);
}

void rpexec_host_meetings_close(rpexec_host_meetings *m)
{
    for_each(m, rpexec_host_group_close);
}

/* ---- collectives ----------------------------------------------------------------------------- */

rp_status rpexec_host_meetings_run(rpexec_host_meetings *m, uint32_t gpu,
                                   const rpexec_collective *c, uint64_t *moved_out)
{
    uint32_t group = 0;
    uint32_t rank = rpexec_plan_rank(m->config.plan, c->axis, gpu, &group);
    return rpexec_host_group_run(m->all[c->axis][group].group, rank, c, moved_out);
}

rp_status rpexec_host_meetings_sum_pair(rpexec_host_meetings *m, uint32_t gpu, uint32_t rank,
                                        uint64_t count, void *array)
{
    const rpexec_plan *plan = m->config.plan;
    uint32_t pair = gpu % rpexec_plan_copies(plan); /* copy and rank */
    const rpexec_collective_array all = {.from = array, .to = array, .count = count};
    const rpexec_collective sum = {.kind = RPEXEC_ALL_REDUCE,
                                   .dtype = plan->model->dtype,
                                   .arrays = &all,
                                   .array_count = 1,
                                   .scratch =
                                       m->scratch + (2 * (size_t)pair + rank) * pair_scratch(plan),
                                   .scratch_bytes = pair_scratch(plan)};
    uint64_t moved = 0;
    return rpexec_host_group_run(m->all[PAIRS][pair].group, rank, &sum, &moved);
}
