/* Loss scales of a run, and what GPUs with resident weights agree on. */
#include "exec/run/execute_internal.h"

rp_status rpexec_run_open_scales(rpexec_run *r)
{
    const rp_program *p = r->program;
    RP_TRY(rp_arena_alloc(r->arena, (size_t)p->iteration_count + 1, sizeof *r->scales, &r->scales));
    RP_TRY(rp_arena_alloc(r->arena, p->iteration_count, sizeof *r->agreements, &r->agreements));
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (p->ops[i].kind == RP_OP_UPDATE) {
            r->agreements[p->ops[i].iteration].expected++;
        }
    }
    return RP_OK;
}

void rpexec_run_begin_scales(rpexec_run *r)
{
    r->scales[0] = r->e->state->scaler.next;
    for (uint32_t i = 0; i < r->program->iteration_count; i++) {
        rpexec_agreement *a = &r->agreements[i];
        *a = (rpexec_agreement){.expected = a->expected};
        r->scales[i + 1] = 1; /* where losses are scaled, known when the iteration begins */
    }
}

/* The last one to arrive decides for all. */
static void decide(rpexec_run *r, uint16_t iteration)
{
    rpexec_state *state = r->e->state;
    rpexec_agreement *a = &r->agreements[iteration];
    rpexec_scaler_step(&state->scaler, a->overflow);
    state->scaler.next = r->scales[iteration + 1] = state->scaler.scale;
    if (a->overflow) {
        state->skipped++;
    } else {
        a->step = ++state->step;
    }
    pthread_cond_broadcast(&r->submitted_one);
}

static void aside(const rpexec_run *r, uint32_t op, bool waits)
{
    if (r->e->driver_type->aside != NULL) {
        r->e->driver_type->aside(r->driver, op, waits);
    }
}

bool rpexec_run_agree(rpexec_run *r, uint32_t op, bool overflow, uint64_t *step_out)
{
    uint16_t iteration = r->program->ops[op].iteration;
    rpexec_agreement *a = &r->agreements[iteration];
    if (!rpexec_scaler_needed(r->plan->model->dtype)) {
        *step_out = r->e->state->step + iteration + 1;
        return true;
    }
    aside(r, op, true);
    pthread_mutex_lock(&r->lock);
    a->overflow |= overflow;
    if (++a->arrived == a->expected) {
        decide(r, iteration);
    }
    while (a->arrived < a->expected && !r->stopped) {
        pthread_cond_wait(&r->submitted_one, &r->lock);
    }
    bool agreed = a->arrived == a->expected;
    *step_out = a->step;
    pthread_mutex_unlock(&r->lock);
    aside(r, op, false);
    return agreed;
}
