#include "exec/measure/calibrate_operators.h"

#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "common/base/median.h"
#include "exec/model/cutter.h"
#include "exec/model/layers.h"
#include "exec/operators/random.h"

#include <inttypes.h>
#include <string.h>

/* Repetitions after the first: as many as the time allows, which the first measures. */
#define LEAST_REPETITIONS 2u
#define MOST_REPETITIONS 9u
#define BUDGET_S 2.0

/* Period after which random values repeat. */
#define PATTERN 65536u

/* A base from which a layer computes addresses when its calls are only listed. */
#define NOWHERE ((unsigned char *)(uintptr_t)4096)

static const char *const layer_texts[] = {
#define LAYER_TEXT(name, layer, phase) layer,
    RPEXEC_PHASE_LIST(LAYER_TEXT)
#undef LAYER_TEXT
};

static const char *const phase_texts[] = {
#define PHASE_TEXT(name, layer, phase) phase,
    RPEXEC_PHASE_LIST(PHASE_TEXT)
#undef PHASE_TEXT
};

/* Arrays on which a layer of each kind works; the layers take turns. */
typedef struct memory {
    void *weights, *gradients;
    void *input, *output, *d_input, *d_output, *head_gradient;
    void *tape, *scratch;
    int32_t *ids, *labels;
    double *loss;
    float *master, *m, *v;
} memory;

typedef struct noted_call {
    uint64_t words[RPEXEC_CALL_WORDS];
    rpexec_phase phase;
    bool of_weights;
} noted_call;

/* Calls of all phases, one after the other. */
typedef struct notes {
    rpexec_call_taker taker; /* must be the first member: operators get it as their lane */
    rpexec_phase phase;      /* of the calls that are being noted */
    noted_call *calls;       /* [most] the calls that fit are noted */
    uint32_t count;
    uint32_t most;
} notes;

typedef struct measuring {
    const rpexec_site *site;
    bool updates;
    uint64_t tokens;
    rp_arena *arena;
    notes notes;
    rpexec_call_description *described; /* [call] */
    rpexec_trial trial;
} measuring;

static uint64_t largest(const rpexec_model *m, bool trained)
{
    const rpexec_layer *const layers[] = {&m->embedding, &m->block, &m->head};
    uint64_t most = 0;
    for (size_t i = 0; i < 3; i++) {
        uint64_t values = trained ? rpexec_layer_trained(layers[i]) : layers[i]->floats;
        most = values > most ? values : most;
    }
    return most;
}

static memory cut(const measuring *m, unsigned char *base, uint64_t *bytes_out)
{
    const rpexec_model *model = m->site->model;
    rpexec_cutter c = {.base = base, .dtype = model->dtype};
    uint64_t rows = m->tokens * model->config->hidden;
    uint32_t end = model->layer_count;
    uint64_t trained = m->updates ? rpexec_layer_trained(&model->block) : 0;
    bool wide = model->dtype == RP_DTYPE_F32; /* Adam works on the weights themselves */
    memory at = {.weights = rpexec_cut(&c, largest(model, false)),
                 .gradients = rpexec_cut(&c, largest(model, true))};
    void **const boundaries[] = {&at.input, &at.output, &at.d_input, &at.d_output,
                                 &at.head_gradient};
    for (size_t i = 0; i < sizeof boundaries / sizeof boundaries[0]; i++) {
        *boundaries[i] = rpexec_cut(&c, rows);
    }
    at.tape = rpexec_cut_bytes(&c, rpexec_stage_tape_bytes(model, 0, 2, m->tokens, true));
    at.scratch = rpexec_cut_bytes(&c, rpexec_stage_scratch_bytes(model, 0, end, m->tokens));
    at.ids = rpexec_cut_bytes(&c, m->tokens * sizeof *at.ids);
    at.labels = rpexec_cut_bytes(&c, m->tokens * sizeof *at.labels);
    at.loss = rpexec_cut_bytes(&c, sizeof *at.loss);
    at.master = wide ? at.weights : rpexec_cut_floats(&c, trained);
    at.m = rpexec_cut_floats(&c, trained);
    at.v = rpexec_cut_floats(&c, trained);
    *bytes_out = c.used;
    return at;
}

/* ---- a phase --------------------------------------------------------------------------------- */

static void update(const measuring *m, const rpexec_compute *c, const memory *at)
{
    const rpexec_adam adam = rpexec_adam_defaults();
    const rpexec_adam_factors factors = rpexec_adam_factors_of(&adam, 1);
    bool wide = m->site->model->dtype == RP_DTYPE_F32;
    const rpexec_update what = {.master = at->master,
                                .weights = wide ? NULL : at->weights,
                                .gradients = at->gradients,
                                .m = at->m,
                                .v = at->v,
                                .scale = 1,
                                .count = rpexec_layer_trained(&m->site->model->block)};
    c->operators->adam(c->lane, &factors, &what);
}

/* @param part of a backward */
static void run_phase(const measuring *m, const rpexec_compute *c, const memory *at,
                      rpexec_phase phase, rpexec_backward_part part)
{
    uint32_t head = m->site->model->layer_count - 1;
    bool embeds =
        phase == RPEXEC_PHASE_EMBEDDING_FORWARD || phase == RPEXEC_PHASE_EMBEDDING_BACKWARD;
    uint32_t layer = embeds ? 0 : phase == RPEXEC_PHASE_HEAD ? head : 1;
    const rpexec_stage_data data = {.begin = layer,
                                    .end = layer + 1,
                                    .sequences = m->site->sequences,
                                    .weights = at->weights,
                                    .gradients = at->gradients,
                                    .input = embeds ? NULL : at->input,
                                    .ids = at->ids,
                                    .labels = at->labels,
                                    .loss_scale = 1 / (float)m->tokens,
                                    .loss = at->loss,
                                    .output = at->output,
                                    .tape = at->tape,
                                    .scratch = at->scratch,
                                    .head_gradient = at->head_gradient,
                                    .d_output = at->d_output,
                                    .d_input = embeds ? NULL : at->d_input};
    switch (phase) {
    case RPEXEC_PHASE_EMBEDDING_FORWARD:
    case RPEXEC_PHASE_BLOCK_FORWARD:
        rpexec_stage_forward(c, &data, true);
        break;
    case RPEXEC_PHASE_EMBEDDING_BACKWARD:
    case RPEXEC_PHASE_BLOCK_BACKWARD:
        rpexec_stage_backward(c, &data, part);
        break;
    case RPEXEC_PHASE_HEAD:
        rpexec_stage_head(c, &data);
        break;
    case RPEXEC_PHASE_BLOCK_UPDATE:
        if (m->updates) {
            update(m, c, at);
        }
        break;
    case RPEXEC_PHASE_COUNT:
        break;
    }
}

static void note_call(rpexec_call_taker *taker, const uint64_t *call)
{
    notes *n = (notes *)(void *)taker;
    if (n->count < n->most) {
        noted_call *kept = &n->calls[n->count];
        memcpy(kept->words, call, rpexec_call_length(call) * sizeof *call);
        kept->phase = n->phase;
        kept->of_weights = false;
    }
    n->count++;
}

/* A block's backward ends with its weight part: as many calls as the weight part makes by
 * itself. */
static void mark_weights(measuring *m, const rpexec_compute *c, const memory *at)
{
    notes *n = &m->notes;
    uint32_t end = n->count;
    uint32_t most = n->most;
    n->most = 0; /* only count */
    n->count = 0;
    run_phase(m, c, at, RPEXEC_PHASE_BLOCK_BACKWARD, RPEXEC_BACKWARD_WEIGHT);
    uint32_t begin = end - n->count;
    n->count = end;
    n->most = most;
    for (uint32_t i = begin; i < end && i < most; i++) {
        n->calls[i].of_weights = true;
    }
}

/* Notes the calls of all phases for memory that begins at `base`. No layer calls `finite`. */
static void note_calls(measuring *m, unsigned char *base, const float *rotary)
{
    uint64_t bytes = 0;
    const memory at = cut(m, base, &bytes);
    const rpexec_compute c = {.model = m->site->model,
                              .operators = &rpexec_noting_operators,
                              .lane = (rpexec_lane *)(void *)&m->notes.taker,
                              .rotary = rotary};
    m->notes.taker.take = note_call;
    m->notes.count = 0;
    for (int phase = 0; phase < RPEXEC_PHASE_COUNT; phase++) {
        m->notes.phase = (rpexec_phase)phase;
        run_phase(m, &c, &at, m->notes.phase, RPEXEC_BACKWARD_BOTH);
        if (phase == RPEXEC_PHASE_BLOCK_BACKWARD) {
            mark_weights(m, &c, &at);
        }
    }
}

/* Counts the calls first, then notes them. */
static rp_status list_calls(measuring *m)
{
    notes *n = &m->notes;
    note_calls(m, NOWHERE, NULL);
    n->most = n->count;
    RP_TRY(rp_arena_alloc(m->arena, n->most, sizeof *n->calls, &n->calls));
    RP_TRY(rp_arena_alloc(m->arena, n->most, sizeof *m->described, &m->described));
    note_calls(m, NOWHERE, NULL);
    for (uint32_t i = 0; i < n->count; i++) {
        rpexec_call_describe(n->calls[i].words, m->site->model->dtype, &m->described[i]);
    }
    return RP_OK;
}

/* ---- the trial ------------------------------------------------------------------------------- */

static rp_status fill_with_pattern(const measuring *m, rpexec_driver *driver, void *to,
                                   uint64_t values, const void *pattern)
{
    rp_dtype dtype = m->site->model->dtype;
    for (uint64_t at = 0; at < values; at += PATTERN) {
        uint64_t now = values - at < PATTERN ? values - at : PATTERN;
        RP_TRY(m->site->driver_type->transfer(driver, rpexec_element(dtype, to, at), pattern,
                                              now * rp_dtype_bytes(dtype)));
    }
    return RP_OK;
}

static rp_status prepare_memory(void *context, rpexec_driver *driver)
{
    measuring *m = context;
    const rpexec_driver_type *type = m->site->driver_type;
    const rpexec_model *model = m->site->model;
    uint64_t bytes = 0;
    const memory at = cut(m, type->memory(driver, 0), &bytes);
    float *wide = NULL;
    void *narrow = NULL;
    int32_t *ids = NULL;
    RP_TRY(rp_arena_alloc(m->arena, PATTERN, sizeof *wide, &wide));
    RP_TRY(rp_arena_alloc(m->arena, PATTERN, sizeof *wide, &narrow));
    RP_TRY(rp_arena_alloc(m->arena, m->tokens, sizeof *ids, &ids));
    rpexec_random_normal(1, 0, 0.02, PATTERN, wide);
    rpexec_narrow(model->dtype, PATTERN, wide, narrow);
    for (uint64_t i = 0; i < m->tokens; i++) {
        ids[i] = (int32_t)(rpexec_random_bits(1, 1, i) % model->config->vocab);
    }
    uint64_t rows = m->tokens * model->config->hidden;
    RP_TRY(type->transfer(driver, type->memory(driver, 0), NULL, bytes));
    RP_TRY(fill_with_pattern(m, driver, at.weights, largest(model, false), narrow));
    RP_TRY(fill_with_pattern(m, driver, at.input, rows, narrow));
    RP_TRY(fill_with_pattern(m, driver, at.d_output, rows, narrow));
    RP_TRY(type->transfer(driver, at.ids, ids, m->tokens * sizeof *ids));
    return type->transfer(driver, at.labels, ids, m->tokens * sizeof *ids);
}

/* Performs a call. Addresses are known when the first call begins. */
static rp_status perform(void *context, uint32_t number, uint32_t op, rpexec_driver *driver,
                         rpexec_lane *lane)
{
    measuring *m = context;
    const rpexec_driver_type *type = m->site->driver_type;
    if (number >= m->trial.op_count - (m->site->gpus - 1)) {
        return RP_OK; /* of another GPU */
    }
    if (number == 0) {
        note_calls(m, type->memory(driver, 0), type->rotary(driver, op));
    }
    rpexec_call_make(rpexec_driver_operators(type, driver, m->site->model->dtype), lane,
                     m->notes.calls[number % m->notes.count].words);
    return RP_OK;
}

static rp_status run_trial(measuring *m, uint32_t repetitions, uint64_t bytes)
{
    rpexec_trial_begin(m->site, m->arena, &m->trial);
    for (uint32_t i = 0; i < repetitions * m->notes.count; i++) {
        RP_TRY(rpexec_trial_append(&m->trial, 0, RP_QUEUE_COMPUTE, RP_OP_FORWARD, 0, NULL, 0));
    }
    for (uint32_t gpu = 1; gpu < m->site->gpus; gpu++) {
        RP_TRY(rpexec_trial_append(&m->trial, gpu, RP_QUEUE_COMPUTE, RP_OP_FORWARD, 0, NULL, 0));
    }
    m->trial.gpu_bytes = bytes;
    return rpexec_trial_run(&m->trial, prepare_memory, perform, m);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Median of a call over the repetitions after the first. */
static double median_s(const measuring *m, uint32_t call, uint32_t repetitions)
{
    double values[MOST_REPETITIONS];
    for (uint32_t i = 1; i < repetitions; i++) {
        values[i - 1] = 1e-12 * (double)m->trial.work_ps[i * m->notes.count + call];
    }
    return rp_median(values, repetitions - 1);
}

static rpexec_operator_row *row_of(rpexec_operator_costs *costs, const noted_call *noted,
                                   const rpexec_call_description *call)
{
    for (uint32_t i = 0; i < costs->row_count; i++) {
        rpexec_operator_row *row = &costs->rows[i];
        if (row->phase == noted->phase && row->of_weights == noted->of_weights &&
            strcmp(row->call->name, call->name) == 0 &&
            strcmp(row->call->shape, call->shape) == 0 && row->call->bytes == call->bytes) {
            return row;
        }
    }
    rpexec_operator_row *row = &costs->rows[costs->row_count++];
    *row =
        (rpexec_operator_row){.phase = noted->phase, .of_weights = noted->of_weights, .call = call};
    return row;
}

static rp_status collect_rows(const measuring *m, uint32_t repetitions,
                              rpexec_operator_costs *costs)
{
    const notes *n = &m->notes;
    double *medians = NULL;
    RP_TRY(rp_arena_alloc(m->arena, n->count, sizeof *medians, &medians));
    RP_TRY(rp_arena_alloc(m->arena, n->count, sizeof *costs->rows, &costs->rows));
    for (uint32_t i = 0; i < n->count; i++) {
        double seconds = median_s(m, i, repetitions);
        rpexec_operator_row *row = row_of(costs, &n->calls[i], &m->described[i]);
        row->count++;
        row->total_s += seconds;
        costs->total_s[row->phase] += seconds;
    }
    for (uint32_t r = 0; r < costs->row_count; r++) {
        rpexec_operator_row *row = &costs->rows[r];
        uint32_t count = 0;
        for (uint32_t i = 0; i < n->count; i++) {
            if (row_of(costs, &n->calls[i], &m->described[i]) == row) {
                medians[count++] = median_s(m, i, repetitions);
            }
        }
        row->median_s = rp_median(medians, count);
    }
    costs->repetitions = repetitions - 1;
    return RP_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool has_memory(const rpexec_site *site, uint64_t bytes)
{
    /* Every GPU's arena has this size; half of the host's memory is left to other processes. */
    uint64_t room =
        site->gpu_bytes != 0 ? site->gpu_bytes : rp_host_memory_available("") / 2 / site->gpus;
    if (bytes > room) {
        rp_log_warning("{record}: operators are not measured: one layer of each kind needs %" PRIu64
                       " MB, there are %" PRIu64,
                       bytes / 1000000, room / 1000000);
    }
    return bytes <= room;
}

static rp_status measure_operators(measuring *m, uint64_t bytes, rpexec_operator_costs *costs)
{
    uint32_t repetitions = 1 + LEAST_REPETITIONS;
    RP_TRY(run_trial(m, repetitions, bytes));
    double once_s = m->trial.wall_s / repetitions;
    if ((1 + MOST_REPETITIONS) * once_s <= BUDGET_S) {
        repetitions = 1 + MOST_REPETITIONS;
        RP_TRY(run_trial(m, repetitions, bytes));
    }
    return collect_rows(m, repetitions, costs);
}

rp_status rpexec_calibrate_operators(const rpexec_site *site, bool updates, rp_arena *arena,
                                     rpexec_operator_costs *costs)
{
    measuring m = {.site = site,
                   .updates = updates,
                   .tokens = (uint64_t)site->sequences * site->model->seq_len,
                   .arena = arena};
    uint64_t bytes = 0;
    *costs = (rpexec_operator_costs){0};
    (void)cut(&m, NOWHERE, &bytes);
    if (!has_memory(site, bytes)) {
        return RP_OK;
    }
    RP_TRY(list_calls(&m));
    return measure_operators(&m, bytes, costs);
}

double rpexec_operators_input_share(const rpexec_operator_costs *costs)
{
    double all_s = costs->total_s[RPEXEC_PHASE_BLOCK_BACKWARD];
    double weights_s = 0;
    for (uint32_t i = 0; i < costs->row_count; i++) {
        weights_s += costs->rows[i].of_weights ? costs->rows[i].total_s : 0;
    }
    return all_s > 0 ? 1 - weights_s / all_s : 0;
}

double rpexec_operators_attention(const rpexec_operator_costs *costs, bool backward)
{
    const char *name = backward ? "attention_backward" : "attention";
    double flop = 0;
    double seconds = 0;
    for (uint32_t i = 0; i < costs->row_count; i++) {
        const rpexec_operator_row *row = &costs->rows[i];
        bool is_one = strcmp(row->call->name, name) == 0;
        flop += is_one ? row->call->flop * row->count : 0;
        seconds += is_one ? row->total_s : 0;
    }
    return seconds > 0 ? flop / seconds : 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

static double mean_s(const int64_t *ps, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += 1e-12 * (double)ps[i];
    }
    return count > 0 ? sum / count : 0;
}

static void write_phase(const rpexec_operator_costs *costs, rpexec_phase phase, double measured_s,
                        FILE *stream)
{
    const char *layer = layer_texts[phase];
    for (uint32_t i = 0; i < costs->row_count; i++) {
        const rpexec_operator_row *r = &costs->rows[i];
        double per_s = r->median_s > 0 ? 1 / r->median_s : 0;
        if (r->phase == phase) {
            fprintf(stream, "%s,%s,%s,%s,%" PRIu32 ",%.3f,%.3f,%.6g,%.6g,%.6g,%.6g,\n", layer,
                    phase_texts[phase], r->call->name, r->call->shape, r->count, 1e6 * r->median_s,
                    1e6 * r->total_s, 1e-9 * r->call->flop, 1e-9 * r->call->bytes,
                    1e-12 * r->call->flop * per_s, 1e-9 * r->call->bytes * per_s);
        }
    }
    if (costs->total_s[phase] > 0 && measured_s > 0) {
        fprintf(stream, "%s,%s,sum,,,,%.3f,,,,,\n%s,%s,measured,,,,%.3f,,,,,%.4f\n", layer,
                phase_texts[phase], 1e6 * costs->total_s[phase], layer, phase_texts[phase],
                1e6 * measured_s, costs->total_s[phase] / measured_s);
    }
}

void rpexec_operators_write(const rpexec_operator_costs *costs, const rp_costs *measured,
                            FILE *stream)
{
    const double measured_s[RPEXEC_PHASE_COUNT] = {
        [RPEXEC_PHASE_BLOCK_FORWARD] = mean_s(measured->fwd_ps, measured->layers),
        [RPEXEC_PHASE_BLOCK_BACKWARD] = mean_s(measured->bwd_ps, measured->layers),
        [RPEXEC_PHASE_HEAD] = 1e-12 * (double)(measured->head_fwd_ps + measured->head_bwd_ps)};
    fputs("layer,phase,operator,shape,count,median_us,total_us,gflop,gb,tflop_per_s,gb_per_s,"
          "coverage\n",
          stream);
    for (int phase = 0; phase < RPEXEC_PHASE_COUNT; phase++) {
        write_phase(costs, (rpexec_phase)phase, measured_s[phase], stream);
    }
}
