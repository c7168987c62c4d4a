/* Loss scales of a run, the agreement of GPUs with resident weights, their steps and tied
 * tables. */
#include "exec/run/execute_internal.h"

rp_status rpexec_run_open_scales(rpexec_run *r)
{
    const rp_program *p = r->program;
    RP_TRY(rp_arena_alloc(r->arena, (size_t)p->iteration_count + 1, sizeof *r->scales, &r->scales));
    RP_TRY(rp_arena_alloc(r->arena, p->iteration_count, sizeof *r->norms, &r->norms));
    RP_TRY(rp_arena_alloc(r->arena, p->iteration_count, sizeof *r->agreements, &r->agreements));
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (rp_op_kind_is_update(p->ops[i].kind)) {
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
        r->scales[i + 1] = 1; /* a loss's scale is known when the iteration begins */
    }
}

/* The last UPDATE to arrive decides for all. */
static void decide(rpexec_run *r, uint16_t iteration)
{
    rpexec_state *state = r->e->state;
    rpexec_agreement *a = &r->agreements[iteration];
    double norm = rpexec_squares_root(&a->squares) / (double)r->scales[iteration];
    r->norms[iteration] = norm;
    a->clip = rpexec_adam_clip(&r->e->adam, norm);
    a->step = state->step + iteration + 1;
    if (rpexec_scaler_needed(r->plan->model->dtype)) {
        bool overflow = a->squares.not_finite != 0;
        rpexec_scaler_step(&state->scaler, overflow);
        state->scaler.next = r->scales[iteration + 1] = state->scaler.scale;
        a->step = overflow ? 0 : ++state->step;
        if (overflow) {
            rpexec_state_skip(state, r->scales[iteration]);
            r->exhausted = state->exhausted != 0;
        }
    }
    pthread_cond_broadcast(&r->submitted_one);
}

void rpexec_run_note_norm(rpexec_run *r, uint32_t op, double norm)
{
    pthread_mutex_lock(&r->lock);
    r->norms[r->program->ops[op].iteration] = norm;
    pthread_mutex_unlock(&r->lock);
}

static void aside(const rpexec_run *r, uint32_t op, bool waits)
{
    if (r->e->driver_type->aside != NULL) {
        r->e->driver_type->aside(r->driver, op, waits);
    }
}

bool rpexec_run_agree(rpexec_run *r, uint32_t op, const rpexec_squares *squares,
                      rpexec_run_step *step_out)
{
    uint16_t iteration = r->program->ops[op].iteration;
    rpexec_agreement *a = &r->agreements[iteration];
    bool agrees = rpexec_run_agrees(r);
    *step_out = (rpexec_run_step){.adam = r->e->adam};
    if (agrees) {
        aside(r, op, true);
    }
    pthread_mutex_lock(&r->lock);
    rpexec_squares_merge(squares, &a->squares);
    if (++a->arrived == a->expected) {
        decide(r, iteration);
    }
    while (agrees && a->arrived < a->expected && !r->stopped) {
        pthread_cond_wait(&r->submitted_one, &r->lock);
    }
    bool agreed = !agrees || a->arrived == a->expected;
    step_out->number = agrees ? a->step : r->e->state->step + iteration + 1;
    step_out->adam.clip = a->clip;
    pthread_mutex_unlock(&r->lock);
    if (agrees) {
        aside(r, op, false);
    }
    return agreed;
}

void rpexec_run_adam(const rpexec_run *r, rpexec_lane *lane, const rpexec_run_step *step,
                     const rpexec_layer *layer, uint64_t first, const rpexec_update *update)
{
    rp_dtype dtype = r->plan->model->dtype;
    bool apart = step->adam.decays_matrices && step->adam.weight_decay != 0;
    for (uint64_t at = 0; at < update->count;) {
        bool vectors = false;
        uint64_t to = rpexec_layer_run(layer, first + at, &vectors) - first;
        to = apart && to < update->count ? to : update->count;
        rpexec_adam adam = step->adam;
        adam.weight_decay = apart && vectors ? 0 : adam.weight_decay;
        const rpexec_update part = {.master = update->master + at,
                                    .weights = rpexec_element(dtype, update->weights, at),
                                    .gradients = rpexec_element_const(dtype, update->gradients, at),
                                    .m = update->m + at,
                                    .v = update->v + at,
                                    .scale = update->scale,
                                    .count = to - at};
        const rpexec_adam_factors factors = rpexec_adam_factors_of(&adam, step->number);
        r->operators->adam(lane, &factors, &part);
        at = to;
    }
}

/* ---- tied tables ----------------------------------------------------------------------------- */

/* Gradients of a copy of a tied table: the head's, or the embedding's. */
static void *table_of(const rpexec_run *r, const rpexec_job *job, bool head)
{
    const rpexec_model *model = rpexec_plan_model(r->plan, job->gpu);
    uint32_t layer = head ? model->layer_count - 1 : 0;
    uint64_t first = rpexec_model_trained(model, job->begin, layer);
    uint64_t inside = head ? model->head.tensors[RPEXEC_HEAD_TABLE].offset : 0;
    return rpexec_element(model->dtype, rpexec_run_at(r, job->gradients), first + inside);
}

static bool has_layer(const rpexec_job *job, uint32_t layer)
{
    return job->begin <= layer && layer < job->end;
}

/* The order in which the two GPUs come does not matter. */
rp_status rpexec_run_reduce_table(rpexec_run *r, uint32_t op, uint32_t gpu, rpexec_lane *lane)
{
    const rpexec_job *first = NULL;
    const rpexec_job *last = NULL;
    uint32_t head = r->plan->model->layer_count - 1;
    uint32_t copies = rpexec_plan_copies(r->plan);
    for (uint32_t i = 0; i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        bool same = job->gpu % copies == gpu % copies; /* copy and rank */
        first = same && has_layer(job, 0) ? job : first;
        last = same && has_layer(job, head) ? job : last;
    }
    void *embedding = table_of(r, first, false);
    void *other = table_of(r, last, true);
    uint64_t values = rpexec_plan_model(r->plan, gpu)->embedding.floats;
    if (first->gpu == last->gpu) {
        if (first->gpu == gpu) {
            r->operators->add(lane, values, other, embedding, embedding);
            if (first != last || r->plan->slices != NULL || rpexec_run_wants_gradients(r->e)) {
                r->operators->copy(lane, values, embedding, other);
            }
        }
        return RP_OK;
    }
    if (first->gpu != gpu && last->gpu != gpu) {
        return RP_OK;
    }
    return r->e->driver_type->sum_pair(r->driver, op, first->gpu == gpu ? 0 : 1, values,
                                       first->gpu == gpu ? embedding : other);
}

uint64_t rpexec_run_follow_table(const rpexec_run *r, const rpexec_job *job, uint32_t layer,
                                 rpexec_lane *lane)
{
    const rpexec_model *model = r->plan->model;
    if (job->begin != 0 || layer + 1 != model->layer_count) {
        return 0;
    }
    void *weights = rpexec_run_at(r, job->weights);
    uint64_t at = r->e->state->offsets[layer] + model->head.tensors[RPEXEC_HEAD_TABLE].offset;
    uint64_t values = model->embedding.floats;
    r->operators->copy(lane, values, weights, rpexec_element(model->dtype, weights, at));
    return values;
}
