#include "exec/run/single.h"

#include <string.h>

/* Memory of a microbatch. */
typedef struct memory {
    void *output;
    void *tape;
    void *scratch;
    void *head_gradient;
    void **slots; /* [slot_count] gradients; the first is the state's */
    uint32_t slot_count;
    float *sums; /* 16-bit types: fp32 sums over the microbatches of a job */
} memory;

static uint32_t slot_of(const rpexec_single *s, uint32_t microbatch)
{
    return s->slot_microbatches == 0 ? 0 : microbatch / s->slot_microbatches;
}

static rp_status allocate_slots(const rpexec_single *s, rp_arena *arena, memory *m)
{
    uint64_t values = s->state->trained[s->model->layer_count];
    m->slot_count = slot_of(s, s->microbatches - 1) + 1;
    RP_TRY(rp_arena_alloc(arena, m->slot_count, sizeof(void *), &m->slots));
    m->slots[0] = s->state->slots;
    for (uint32_t i = 1; i < m->slot_count; i++) {
        RP_TRY(rp_arena_alloc(arena, values, rp_dtype_bytes(s->model->dtype), &m->slots[i]));
    }
    return RP_OK;
}

static rp_status allocate(const rpexec_single *s, rp_arena *arena, memory *m)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->microbatches; i++) {
        most = s->sequences[i] > most ? s->sequences[i] : most;
    }
    uint64_t tokens = (uint64_t)most * s->model->seq_len;
    uint64_t boundary = tokens * s->model->config->hidden;
    uint32_t end = s->model->layer_count;
    size_t bytes = rp_dtype_bytes(s->model->dtype);
    RP_TRY(allocate_slots(s, arena, m));
    if (s->model->dtype != RP_DTYPE_F32) {
        RP_TRY(rp_arena_alloc(arena, s->state->trained[end], sizeof(float), &m->sums));
    }
    RP_TRY(rp_arena_alloc(arena, boundary, bytes, &m->output));
    RP_TRY(rp_arena_alloc(arena, boundary, bytes, &m->head_gradient));
    RP_TRY(rp_arena_alloc(arena, rpexec_stage_tape_bytes(s->model, 0, end, tokens, true), 1,
                          &m->tape));
    return rp_arena_alloc(arena, rpexec_stage_scratch_bytes(s->model, 0, end, tokens), 1,
                          &m->scratch);
}

static double run_microbatch(const rpexec_single *s, const memory *m, const rpexec_batch *batch,
                             uint32_t microbatch, uint64_t first_token)
{
    double loss = 0;
    double scale = (double)s->state->scaler.next;
    const rpexec_compute c = {
        .model = s->model, .operators = s->operators, .lane = s->lane, .wide = m->sums != NULL};
    const rpexec_stage_data data = {.begin = 0,
                                    .end = s->model->layer_count,
                                    .sequences = s->sequences[microbatch],
                                    .weights = s->state->working,
                                    .gradients =
                                        c.wide ? m->sums : m->slots[slot_of(s, microbatch)],
                                    .ids = batch->ids + first_token,
                                    .labels = batch->labels + first_token,
                                    .loss_scale = (float)(scale / (double)batch->valid_tokens),
                                    .loss = &loss,
                                    .output = m->output,
                                    .tape = m->tape,
                                    .scratch = m->scratch,
                                    .head_gradient = m->head_gradient};
    rpexec_stage_forward(&c, &data, true);
    rpexec_stage_head(&c, &data);
    rpexec_stage_backward(&c, &data, RPEXEC_BACKWARD_BOTH);
    return loss;
}

/* If microbatch `k` is the last microbatch of a job, rounds the job's sums. */
static void round_sums(const rpexec_single *s, const memory *m, uint32_t k)
{
    uint64_t values = s->state->trained[s->model->layer_count];
    bool last = k + 1 == s->microbatches || slot_of(s, k + 1) != slot_of(s, k) ||
                (s->job_microbatches != 0 && (k + 1) % s->job_microbatches == 0);
    if (m->sums != NULL && last) {
        s->operators->add_sums(s->lane, values, m->sums, m->slots[slot_of(s, k)]);
        memset(m->sums, 0, values * sizeof *m->sums);
    }
}

static void refresh(const rpexec_single *s)
{
    for (uint32_t layer = 0; layer < s->model->layer_count; layer++) {
        rpexec_state_refresh(s->state, layer);
    }
}

/* If asynchronous, the next iteration's weights are taken before Adam's step.
 * @param gradients gets the step's; NULL: not wanted */
static void step(const rpexec_single *s, const memory *m, float *gradients)
{
    float scale = s->state->scaler.next;
    if (s->asynchronous) {
        refresh(s);
    }
    for (uint32_t layer = s->model->layer_count; layer-- > 0;) {
        rpexec_state_collect(s->state, layer, scale);
        for (uint32_t i = 1; i < m->slot_count; i++) {
            rpexec_state_add(s->state, layer,
                             rpexec_element(s->model->dtype, m->slots[i], s->state->trained[layer]),
                             scale);
        }
        rpexec_state_measure(s->state, layer);
    }
    if (gradients != NULL) {
        memcpy(gradients, s->state->gradients,
               s->state->trained[s->model->layer_count] * sizeof *gradients);
    }
    rpexec_state_optimise(s->state, &s->adam);
    if (!s->asynchronous) {
        refresh(s);
    }
}

rp_status rpexec_single_run(rpexec_single *s)
{
    memory m;
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    m.sums = NULL;
    rp_status status = allocate(s, arena, &m);
    uint64_t floats = s->state->trained[s->model->layer_count];
    for (uint32_t i = 0; status == RP_OK && i < s->iterations; i++) {
        double sum = 0;
        uint64_t sequence = 0;
        for (uint32_t k = 0; k < m.slot_count; k++) {
            s->operators->zero(s->lane, floats, m.slots[k]);
        }
        for (uint32_t k = 0; k < s->microbatches; k++) {
            sum += run_microbatch(s, &m, &s->batches[i], k, sequence * s->model->seq_len);
            sequence += s->sequences[k];
            round_sums(s, &m, k);
        }
        s->losses[i] = sum / (double)s->batches[i].valid_tokens;
        step(s, &m, i == 0 ? s->first_gradients : NULL);
        if (s->norms != NULL) {
            s->norms[i] = s->state->norm;
        }
    }
    rp_arena_destroy(arena);
    return status;
}
