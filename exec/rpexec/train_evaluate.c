/* --eval-data: the mean loss over a second data set, by the forwards of the program that trains. */
#include "exec/rpexec/train_internal.h"

#include <math.h>

/* The next sequences of an epoch; missing sequences of the last batch have no labels. */
static rp_status read_batch(const rpexec_trainer *t, uint64_t place, rp_arena *arena,
                            rpexec_batch *batch_out)
{
    uint64_t tokens = (uint64_t)t->batch * t->o->run.seq_len;
    uint64_t left = t->evaluated.sequences - place;
    uint32_t count = left < t->batch ? (uint32_t)left : t->batch;
    int32_t *ids = NULL;
    int32_t *labels = NULL;
    RP_TRY(rp_arena_alloc(arena, tokens, sizeof *ids, &ids));
    RP_TRY(rp_arena_alloc(arena, tokens, sizeof *labels, &labels));
    uint64_t valid = rpexec_tokens_read(&t->evaluated, place, count, ids, labels);
    for (uint64_t i = (uint64_t)count * t->o->run.seq_len; i < tokens; i++) {
        labels[i] = RPEXEC_IGNORED;
    }
    *batch_out = (rpexec_batch){.ids = ids, .labels = labels, .valid_tokens = valid};
    rpexec_trainer_take_part(t, batch_out);
    return RP_OK;
}

/* Adds the losses of as many batches as the program has iterations, from `place` on. */
static rp_status add_losses(rpexec_trainer *t, uint64_t *place_inout, double *sum, double *tokens)
{
    rpexec_execution *e = &t->session.execution;
    uint32_t most = e->plan->program->iteration_count;
    rpexec_batch *batches = NULL;
    double *losses = NULL;
    uint32_t count = 0;
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, most, sizeof *batches, &batches);
    status = status == RP_OK ? rp_arena_alloc(arena, most, sizeof *losses, &losses) : status;
    while (status == RP_OK && count < most && *place_inout < t->evaluated.sequences) {
        status = read_batch(t, *place_inout, arena, &batches[count++]);
        *place_inout += t->batch;
    }
    if (status == RP_OK) {
        e->batches = batches;
        e->losses = losses;
        e->evaluates = count;
        status = rpexec_execution_run(t->session.run);
    }
    for (uint32_t i = 0; status == RP_OK && i < count; i++) {
        double valid = (double)batches[i].valid_tokens;
        *sum += valid > 0 ? losses[i] * valid : 0;
        *tokens += valid;
    }
    rp_arena_destroy(arena);
    return status;
}

static rp_status run_forwards(rpexec_trainer *t, double *loss_out)
{
    rpexec_execution *e = &t->session.execution;
    const rpexec_execution training = *e;
    uint64_t place = 0;
    double sum = 0;
    double tokens = 0;
    rp_status status = RP_OK;
    e->follower = (rpexec_follower){0};
    e->norms = NULL;
    e->timeline = NULL;
    while (status == RP_OK && place < t->evaluated.sequences) {
        status = add_losses(t, &place, &sum, &tokens);
    }
    *e = training;
    *loss_out = sum / tokens;
    return status;
}

/* With the asynchronous optimizer working weights in host memory are a step old: the masters, which
 * a checkpoint of this step has, are evaluated. */
static rp_status run_refreshed(rpexec_trainer *t, double *loss_out)
{
    rpexec_state *s = &t->state;
    const rpexec_scaler scaler = s->scaler;
    uint64_t values = s->trained[t->model.layer_count];
    void *working = NULL;
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc_raw(arena, values, rp_dtype_bytes(t->model.dtype), &working);
    if (status == RP_OK) {
        rpexec_state_copy_working(s, working, false);
        for (uint32_t i = 0; i < t->model.layer_count; i++) {
            rpexec_state_refresh(s, i);
        }
        status = run_forwards(t, loss_out);
        rpexec_state_copy_working(s, working, true);
        s->scaler = scaler;
    }
    rp_arena_destroy(arena);
    return status;
}

bool rpexec_trainer_evaluates(const rpexec_trainer *t, uint32_t done, uint32_t steps)
{
    uint64_t ended = t->outcome->first_step + done + steps;
    bool due = t->o->eval_every != 0 && ended % t->o->eval_every < steps; /* within these */
    return t->o->eval_data != NULL && (due || done + steps == t->outcome->steps);
}

rp_status rpexec_trainer_evaluate(rpexec_trainer *t, uint32_t done, uint32_t steps)
{
    rpexec_outcome *out = t->outcome;
    const rpexec_plan *plan = t->session.execution.plan;
    bool late = plan->program->asynchronous && !plan->resident && plan->sharded == NULL;
    double loss = NAN;
    RP_TRY(late ? run_refreshed(t, &loss) : run_forwards(t, &loss));
    out->eval_steps[out->evaluations] = (double)(out->first_step + done + steps);
    out->eval_losses[out->evaluations++] = loss;
    return RP_OK;
}
