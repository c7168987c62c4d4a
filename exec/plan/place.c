/* Offsets of tensors: first fit, in the order of first use, with or without a GPU's jobs first. */
#include "exec/plan/plan_internal.h"

#include "common/base/reason.h"

#include <inttypes.h>
#include <stdlib.h>

#define NO_OP UINT32_MAX

/* A memory while it is filled. */
typedef struct memory {
    uint32_t *live; /* tensors that a later tensor may meet, by offset */
    uint32_t live_count;
    uint32_t *frontier; /* [queue] the latest first op of a tensor there, NO_OP if none */
    bool *begins;       /* [queue] whether tensors of this memory begin there at all */
    uint32_t *fixed; /* weights, gradients and sums of jobs, placed before all others, by offset */
    uint32_t fixed_count;
    bool *of_job; /* [value] */
    uint64_t top;
} memory;

static bool is_dead(const rpexec_plan *plan, uint32_t value, uint32_t op)
{
    const rpexec_value *v = &plan->values[value];
    for (uint32_t i = v->user_begin; i < v->user_end; i++) {
        if (!rpexec_order_before(&plan->order, plan->users[i], op)) {
            return false;
        }
    }
    return v->first_op != NO_OP && rpexec_order_before(&plan->order, v->first_op, op);
}

/* True if no tensor that begins from now on can meet `value`: it is dead for the last op of every
 * queue in which tensors begin. */
static bool is_buried(const rpexec_plan *plan, const memory *m, uint32_t value)
{
    for (uint32_t q = 0; q < plan->program->queue_count; q++) {
        if (m->begins[q] && (m->frontier[q] == NO_OP || !is_dead(plan, value, m->frontier[q]))) {
            return false;
        }
    }
    return true;
}

static void bury(const rpexec_plan *plan, memory *m)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->live_count; i++) {
        if (!is_buried(plan, m, m->live[i])) {
            m->live[kept++] = m->live[i];
        }
    }
    m->live_count = kept;
}

/* True if two tensors may share bytes. A tensor without a first op exists all the time. */
static bool are_apart(const rpexec_plan *plan, uint32_t earlier, uint32_t later)
{
    uint32_t op = plan->values[later].first_op;
    return op != NO_OP && is_dead(plan, earlier, op);
}

/* The lowest gap among those that are in use when `value` begins, or will be before it ends. */
static uint64_t find_gap(const rpexec_plan *plan, const memory *m, uint32_t value)
{
    const rpexec_value *v = &plan->values[value];
    uint64_t at = 0;
    uint32_t f = 0;
    for (uint32_t i = 0; i < m->live_count || f < m->fixed_count;) {
        bool fixed = f < m->fixed_count &&
                     (i == m->live_count ||
                      plan->values[m->fixed[f]].offset < plan->values[m->live[i]].offset);
        uint32_t number = fixed ? m->fixed[f++] : m->live[i++];
        const rpexec_value *other = &plan->values[number];
        if (are_apart(plan, number, value) || (fixed && are_apart(plan, value, number))) {
            continue;
        }
        if (other->offset >= at + v->bytes) {
            break;
        }
        uint64_t end = other->offset + other->bytes;
        at = end > at ? end : at;
    }
    return at;
}

static void insert(const rpexec_plan *plan, uint32_t *list, uint32_t *count, uint32_t value)
{
    uint32_t at = (*count)++;
    while (at > 0 && plan->values[list[at - 1]].offset > plan->values[value].offset) {
        list[at] = list[at - 1];
        at--;
    }
    list[at] = value;
}

static rp_status does_not_fit(const rpexec_plan *plan, uint32_t place, uint32_t value,
                              uint64_t cap_bytes, rp_reason *reason)
{
    const rpexec_value *v = &plan->values[value];
    char name[RP_OP_NAME_SIZE] = "the resident weights";
    if (v->first_op != NO_OP) {
        rp_op_name(&plan->program->ops[v->first_op], name);
    }
    return rp_refuse(reason, RP_USAGE,
                     "GPU %u: the tensor of %s (%" PRIu64 " bytes) ends at %" PRIu64
                     " bytes of the GPU's memory, which is %" PRIu64
                     " bytes beyond its end; valid are "
                     "at least as many bytes, smaller microbatches or more stages",
                     place, name, v->bytes, v->offset + v->bytes, v->offset + v->bytes - cap_bytes);
}

static void put(rpexec_plan *plan, uint32_t value, bool fixed, memory *m)
{
    rpexec_value *v = &plan->values[value];
    v->offset = find_gap(plan, m, value);
    if (fixed) {
        insert(plan, m->fixed, &m->fixed_count, value);
    } else {
        insert(plan, m->live, &m->live_count, value);
    }
    m->top = v->offset + v->bytes > m->top ? v->offset + v->bytes : m->top;
}

static void fill(rpexec_plan *plan, uint32_t place, const uint32_t *sorted, uint32_t count,
                 bool jobs_first, memory *m)
{
    m->live_count = m->fixed_count = 0;
    m->top = 0;
    for (uint32_t q = 0; q < plan->program->queue_count; q++) {
        m->frontier[q] = NO_OP;
        m->begins[q] = false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const rpexec_value *v = &plan->values[sorted[i]];
        if (v->place == place && jobs_first && m->of_job[sorted[i]]) {
            put(plan, sorted[i], true, m);
        } else if (v->place == place && v->first_op != NO_OP) {
            m->begins[plan->order.queue_of[v->first_op]] = true;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const rpexec_value *v = &plan->values[sorted[i]];
        if (v->place != place || (jobs_first && m->of_job[sorted[i]])) {
            continue;
        }
        put(plan, sorted[i], false, m);
        if (v->first_op != NO_OP) {
            m->frontier[plan->order.queue_of[v->first_op]] = v->first_op;
            bury(plan, m);
        }
    }
    plan->arena_bytes[place] = m->top;
}

/* Takes the smaller of both fillings, since neither order is always better. */
static rp_status fill_better(rpexec_plan *plan, uint32_t place, const uint32_t *sorted,
                             uint32_t count, uint64_t cap_bytes, memory *m, rp_reason *reason)
{
    fill(plan, place, sorted, count, true, m);
    uint64_t jobs_first = m->top;
    fill(plan, place, sorted, count, false, m);
    if (jobs_first < m->top) {
        fill(plan, place, sorted, count, true, m);
    }
    bool capped = cap_bytes != 0 && place < plan->program->gpu_count;
    for (uint32_t i = 0; capped && m->top > cap_bytes && i < count; i++) {
        const rpexec_value *v = &plan->values[sorted[i]];
        if (v->place == place && v->offset + v->bytes > cap_bytes) {
            return does_not_fit(plan, place, sorted[i], cap_bytes, reason);
        }
    }
    return RP_OK;
}

/* Marks weights, gradients and their sums, which come and go with jobs. They are few and large:
 * tensors in between must not keep them from following each other. */
static void mark_jobs(const rpexec_plan *plan, bool *of_job)
{
    for (uint32_t i = 0; plan->sharded == NULL && i < plan->job_count; i++) {
        const rpexec_job *job = &plan->jobs[i];
        const uint32_t values[] = {job->weights, job->gradients};
        for (size_t k = 0; k < 2; k++) {
            if (values[k] != RPEXEC_NO_TENSOR) {
                of_job[values[k]] = true;
            }
        }
    }
    for (uint32_t op = 0; plan->sharded == NULL && op < plan->program->op_count; op++) {
        if (plan->tasks[op].sums != RPEXEC_NO_TENSOR) {
            of_job[plan->tasks[op].sums] = true;
        }
    }
}

rp_status rpexec_plan_place(rpexec_plan *plan, uint64_t cap_bytes, rp_arena *scratch,
                            rp_reason *reason)
{
    const rp_program *p = plan->program;
    memory m = {0};
    uint32_t *begin = NULL; /* [op + 2] values by the place of their first op in the order */
    uint32_t *sorted = NULL;
    uint32_t *place_of = NULL; /* [op] place in the order */
    RP_TRY(rp_arena_alloc(scratch, plan->value_count, sizeof(uint32_t), &m.live));
    RP_TRY(rp_arena_alloc(scratch, plan->value_count, sizeof(uint32_t), &m.fixed));
    RP_TRY(rp_arena_alloc(scratch, plan->value_count, sizeof(bool), &m.of_job));
    mark_jobs(plan, m.of_job);
    RP_TRY(rp_arena_alloc(scratch, p->queue_count, sizeof(uint32_t), &m.frontier));
    RP_TRY(rp_arena_alloc(scratch, p->queue_count, sizeof(bool), &m.begins));
    RP_TRY(rp_arena_alloc(scratch, (size_t)p->op_count + 2, sizeof(uint32_t), &begin));
    RP_TRY(rp_arena_alloc(scratch, p->op_count, sizeof(uint32_t), &place_of));
    RP_TRY(rp_arena_alloc(scratch, plan->value_count, sizeof(uint32_t), &sorted));
    for (uint32_t i = 0; i < p->op_count; i++) {
        place_of[plan->order.ops[i]] = i + 1; /* 0: resident */
    }
    for (uint32_t v = 0; v < plan->value_count; v++) {
        uint32_t op = plan->values[v].first_op;
        begin[(op == NO_OP ? 0 : place_of[op]) + 1]++;
    }
    for (uint32_t i = 0; i <= p->op_count; i++) {
        begin[i + 1] += begin[i];
    }
    for (uint32_t v = 0; v < plan->value_count; v++) {
        uint32_t op = plan->values[v].first_op;
        sorted[begin[op == NO_OP ? 0 : place_of[op]]++] = v;
    }
    for (uint32_t place = 0; place <= p->gpu_count; place++) {
        RP_TRY(fill_better(plan, place, sorted, plan->value_count, cap_bytes, &m, reason));
    }
    return RP_OK;
}
