#include "sim/engine/layer_costs.h"

#include "common/base/reason.h"
#include "common/base/units.h"
#include "common/roofline/roofline.h"

#include <math.h>

/* Times of layers of one kind, in seconds. */
typedef struct layer_scaling {
    double attention_fwd; /* attention's part of the table's time */
    double attention_bwd;
    double growth;         /* attention per token at the run's sequence length over the table's */
    double launches_fwd;   /* time to start the kernels of a layer's experts */
    double fixed_bwd;      /* part of a layer's backward that does not depend on tokens */
    bool experts_write_dw; /* every expert's backward writes a full dW, however few its tokens */
    double collective_fwd; /* time that a layer loses to collectives beside it */
    double collective_bwd;
    double host_fwd; /* time that the host needs for the layer */
    double host_bwd;
} layer_scaling;

/* Scales the times of a layer or the head to a number of tokens; times in seconds. */
typedef struct scaling {
    double factor; /* multiplies every time except that lost to collectives */
    double tokens; /* tokens of the microbatch over the table's */
    const rp_model *model;
    const double *again; /* [layers] rpsim_gpu_rates.again */
    bool again_attention;
    layer_scaling layers[RP_MODEL_KINDS]; /* by kind_of */
    double fixed_head_bwd;
    double loss;                /* time of the microbatch's loss beyond the table's */
    double collective_head_bwd; /* time lost to collectives beside embedding and head */
    double host_microbatch;     /* time of the host around a microbatch's layers */
    double tensor;              /* time of a layer's tensor collectives in a direction */
} scaling;

/* The kind of a layer. In a model without a list of kinds, even and odd layers may differ in their
 * sliding window. */
static uint32_t kind_of(const rp_model *model, uint32_t layer)
{
    return model->kinds != NULL ? model->kind_of[layer] : layer % 2;
}

static double value_bytes(const rpsim_gpu_rates *rates)
{
    return rates->value_bytes > 0 ? rates->value_bytes : 2;
}

/* Traffic per trained parameter of a backward, however few its tokens: its gradient is added up. A
 * stack's times hold nothing else that is so. */
static double accumulated_bytes(const rpsim_gpu_rates *rates)
{
    const rp_stack *stack = rates->host.stack;
    return stack != NULL ? stack->accumulation_bytes : 3 * value_bytes(rates);
}

static double seconds(int64_t ps)
{
    return (double)ps * 1e-12;
}

/* Scales a time of the table. If the rates make the fixed part or the attention longer than the
 * whole time (the table of a fast GPU, the rates of a slow GPU), the parts are cut to fit: no time
 * is ever negative, and no time falls as the sequence length or the tokens grow. */
static double scale(double time_s, double fixed_s, double attention_s, double growth, double tokens)
{
    double fixed = fmin(fixed_s, time_s);
    double attention = fmin(attention_s, time_s - fixed);
    return fixed + (time_s - fixed + attention * (growth - 1)) * tokens;
}

static double pairs_per_token(const rp_documents *documents, uint32_t window, double seq_len)
{
    return rp_packed_pairs(documents, seq_len, window) / seq_len;
}

/* Memory traffic of the loss beyond the table's head, which held the logits of all tokens at once
 * and used a fused loss. Over chunks the gradients of the head's table and of its input are added
 * up:
 *  - the table's: from the second chunk on a sum reads two tensors and writes a third;
 *  - the input's: each chunk fills the other chunks with zeros and copies all into one tensor; from
 *    the second chunk on a sum follows;
 *  - in the end both are multiplied by the gradient of the loss, which reads and writes them once
 *    more. */
static double loss_bytes(const rp_model *model, const rpsim_gpu_rates *rates, double tokens,
                         double trained)
{
    double unfused = rates->loss_bytes_per_logit * model->vocab * tokens;
    if (rates->loss_chunk_tokens == 0) {
        return unfused;
    }
    double chunks = ceil(tokens / rates->loss_chunk_tokens);
    double table = 6 * (chunks - 1) + 4;
    double zeros_and_copies = 2 * (chunks - 1) + 4 * chunks;
    double input = zeros_and_copies + 6 * (chunks - 1) + 4;
    return unfused + table * trained + input * tokens * model->hidden;
}

/* @param run_pairs pairs per token of the run */
static layer_scaling scale_layer(const rp_costs *table, const rp_model *model, uint32_t window,
                                 const rpsim_gpu_rates *rates, double run_pairs)
{
    double reference_tokens = (double)table->microbatch_size * table->seq_len;
    double flops_per_pair = 2.0 * model->heads * (model->head_dim + rp_model_value_dim(model));
    double in_table = pairs_per_token(table->documents, window, table->seq_len);
    double flops = flops_per_pair * in_table * reference_tokens;
    double layer = (double)rp_model_held_layer(model);
    bool hosted = rates->host.stack != NULL;
    return (layer_scaling){
        .attention_fwd = flops / rates->attention_fwd_flops,
        .attention_bwd = 2.5 * flops / rates->attention_bwd_flops,
        .growth = run_pairs / in_table,
        .launches_fwd = !hosted && model->experts > 1
                            ? rates->launch_s * (double)rpsim_layer_launches(model)
                            : 0,
        .fixed_bwd = accumulated_bytes(rates) * (double)rp_model_trainable_layer(model) /
                     rates->memory_bytes_per_s,
        .experts_write_dw = !hosted && model->experts > 1 && model->lora_rank == 0,
        .collective_fwd = rates->collective_fwd_s + rates->collective_fwd_parameter_s * layer,
        .collective_bwd = rates->collective_bwd_s + rates->collective_bwd_parameter_s * layer,
        .host_fwd = hosted ? rp_stack_host_s(&rates->host, model, false) : 0,
        .host_bwd = hosted ? rp_stack_host_s(&rates->host, model, true) : 0,
    };
}

static scaling make_scaling(const rp_costs *table, const rp_model *model,
                            const rpsim_gpu_rates *rates, uint32_t seq_len, uint32_t sequences)
{
    double reference_tokens = (double)table->microbatch_size * table->seq_len;
    double slices = rates->sequence_slices != 0 ? rates->sequence_slices : 1;
    double tokens = (double)sequences * seq_len / slices;
    double head_parameters = model->lora_rank != 0 ? 0 : (double)model->embedding_parameters;
    scaling s = {
        .factor = rates->time_factor > 0 ? rates->time_factor : 1,
        .tokens = tokens / reference_tokens,
        .model = model,
        .again = rates->again,
        .again_attention = rates->again_attention,
        .fixed_head_bwd = accumulated_bytes(rates) * head_parameters / rates->memory_bytes_per_s,
        .loss = loss_bytes(model, rates, tokens, head_parameters) / rates->memory_bytes_per_s,
        .collective_head_bwd = rates->collective_bwd_parameter_s * head_parameters,
        .tensor = rates->tensor_s + rates->tensor_token_s * tokens,
        .host_microbatch = rates->host.stack != NULL ? rp_stack_microbatch_s(&rates->host) : 0,
    };
    for (uint32_t k = 0; k < model->kind_count; k++) {
        const rp_model *kind = &model->kinds[k];
        double pairs = pairs_per_token(model->documents, kind->sliding_window, seq_len);
        s.layers[k] = scale_layer(table, kind, kind->sliding_window, rates, pairs);
    }
    for (uint32_t odd = 0; model->kinds == NULL && odd < 2; odd++) {
        uint32_t window = rp_model_window(model, odd);
        double pairs = pairs_per_token(model->documents, window, seq_len);
        s.layers[odd] = scale_layer(table, model, window, rates, pairs);
    }
    return s;
}

static int64_t to_ps(double time_s)
{
    return rp_ms_to_ps(time_s * 1e3);
}

static int64_t at_least(int64_t ps, double time_s)
{
    int64_t least_ps = to_ps(time_s);
    return ps > least_ps ? ps : least_ps;
}

/* What a layer's backward runs again of its forward. */
static double again_s(const rp_costs *table, uint32_t layer, const scaling *s)
{
    const layer_scaling *of = &s->layers[kind_of(s->model, layer)];
    double fwd = seconds(table->fwd_ps[layer]);
    double attention = s->again_attention ? fmin(of->attention_fwd, fwd) : 0;
    return s->again != NULL ? (s->again[layer] * fwd + attention * (of->growth - 1)) * s->tokens
                            : 0;
}

/* Adds the times of a stage's layers. The weight part of a backward contains the fixed time, the
 * input part the attention. */
static void add_layers(const rp_costs *table, const rp_stage *stage, const scaling *s,
                       double *fwd_out, double *bwd_out, double *weight_out)
{
    for (uint32_t i = stage->layer_begin; i < stage->layer_end; i++) {
        const layer_scaling *layer = &s->layers[kind_of(s->model, i)];
        /* If experts write dW, the backward's time beyond twice the forward's does not grow with
         * tokens. */
        double beyond = seconds(table->bwd_ps[i]) - 2 * seconds(table->fwd_ps[i]);
        double fixed = layer->experts_write_dw ? fmax(layer->fixed_bwd, beyond) : layer->fixed_bwd;
        fixed += 2 * layer->launches_fwd;
        *fwd_out += s->factor * scale(seconds(table->fwd_ps[i]), layer->launches_fwd,
                                      layer->attention_fwd, layer->growth, s->tokens);
        double bwd =
            scale(seconds(table->bwd_ps[i]), fixed, layer->attention_bwd, layer->growth, s->tokens);
        double weight = seconds(table->bwd_ps[i] - table->bwd_input_ps[i]);
        *bwd_out += s->factor * (bwd + again_s(table, i, s));
        *weight_out += s->factor * fmin(scale(weight, fixed, 0, 1, s->tokens), bwd);
    }
}

/* Adds the time lost to collectives beside a forward and a backward; a recompute loses none. */
static void add_collectives(const rp_stage *stage, const scaling *s, double *fwd, double *bwd)
{
    if (s->model->kinds == NULL) { /* a single product: a sum would round differently */
        double layers = stage->layer_end - stage->layer_begin;
        *fwd += layers * s->layers[0].collective_fwd;
        *bwd += layers * s->layers[0].collective_bwd;
        return;
    }
    for (uint32_t i = stage->layer_begin; i < stage->layer_end; i++) {
        *fwd += s->layers[kind_of(s->model, i)].collective_fwd;
        *bwd += s->layers[kind_of(s->model, i)].collective_bwd;
    }
}

/* The host launches the kernels of a pass while the GPU works on them and on collectives, and the
 * later of the two ends the pass. Half of what surrounds the layers belongs to each direction. */
static void wait_for_host(const rp_stage *stage, const scaling *s, double around_s, int64_t *ps)
{
    double fwd = 0;
    double bwd = 0;
    for (uint32_t i = stage->layer_begin; i < stage->layer_end; i++) {
        fwd += s->layers[kind_of(s->model, i)].host_fwd - s->tensor;
        bwd += s->layers[kind_of(s->model, i)].host_bwd - s->tensor;
    }
    bool runs_forward = (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0;
    double of_forward = (runs_forward ? fwd : 0) + around_s / 2;
    ps[RP_OP_FORWARD] = at_least(ps[RP_OP_FORWARD], of_forward);
    ps[RP_OP_RECOMPUTE] = at_least(ps[RP_OP_RECOMPUTE], fwd);
    double bwd_ps = (double)ps[RP_OP_BACKWARD];
    ps[RP_OP_BACKWARD] = at_least(ps[RP_OP_BACKWARD], bwd + around_s / 2);
    double slower = bwd_ps > 0 ? (double)ps[RP_OP_BACKWARD] / bwd_ps : 1;
    ps[RP_OP_BACKWARD_WEIGHT] = rp_round_ps(slower * (double)ps[RP_OP_BACKWARD_WEIGHT]);
}

static rp_status fill_stage(const rp_costs *table, const rp_stage *stage, const scaling *s,
                            int64_t *ps, rp_reason *reason)
{
    double fwd = 0;
    double bwd = 0;
    double weight = 0;
    add_layers(table, stage, s, &fwd, &bwd, &weight);
    bool head = (stage->roles & RP_STAGE_HEAD) != 0;
    double of_head = head ? s->factor : 0;
    double head_fwd = of_head * scale(seconds(table->head_fwd_ps), 0, 0, 1, s->tokens);
    double head_bwd =
        of_head *
        (scale(seconds(table->head_bwd_ps), s->fixed_head_bwd, 0, 1, s->tokens) + s->loss);
    double head_collective = head ? s->collective_head_bwd : 0;
    double collective_bwd = 0;
    add_collectives(stage, s, &head_fwd, &collective_bwd);
    head_bwd += collective_bwd + head_collective;
    double most_s = seconds(RP_MAX_MICROBATCH_PS);
    if (fwd + head_fwd + bwd + head_bwd > most_s) {
        return rp_refuse(
            reason, RP_INPUT,
            "{seq_len}: one microbatch takes %.3g s in one stage by cost table %s; valid "
            "are sizes that take at most %.0f s",
            fwd + head_fwd + bwd + head_bwd, table->name, most_s);
    }
    bool runs_forward = (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0;
    ps[RP_OP_FORWARD] = to_ps((runs_forward ? fwd : 0) + head_fwd);
    ps[RP_OP_RECOMPUTE] = to_ps(fwd);
    ps[RP_OP_BACKWARD] = to_ps(bwd + head_bwd);
    ps[RP_OP_BACKWARD_WEIGHT] = to_ps(weight);
    wait_for_host(stage, s, head ? s->host_microbatch : 0, ps);
    ps[RP_OP_BACKWARD_INPUT] = ps[RP_OP_BACKWARD] - ps[RP_OP_BACKWARD_WEIGHT];
    return RP_OK;
}

/* Fills the times of each layer and of the head, each as a stage of its own. */
static rp_status fill_layers(const rp_costs *table, const scaling *s, int64_t *ps,
                             rp_reason *reason)
{
    uint32_t roles = RP_STAGE_FORWARD_LAYERS | RP_STAGE_BACKWARD_LAYERS;
    for (uint32_t i = 0; i < table->layers; i++) {
        const rp_stage layer = {i, i + 1, roles};
        RP_TRY(fill_stage(table, &layer, s, &ps[(size_t)i * RP_OP_KIND_COUNT], reason));
    }
    const rp_stage head = {table->layers, table->layers, roles | RP_STAGE_HEAD};
    return fill_stage(table, &head, s, &ps[(size_t)table->layers * RP_OP_KIND_COUNT], reason);
}

static rp_status fill_stages(const rp_costs *table, const rp_program *program, const scaling *s,
                             int64_t *ps, rp_reason *reason)
{
    for (uint32_t i = 0; i < program->stage_count; i++) {
        RP_TRY(
            fill_stage(table, &program->stages[i], s, &ps[(size_t)i * RP_OP_KIND_COUNT], reason));
    }
    return RP_OK;
}

static void forget_host(scaling *s)
{
    s->host_microbatch = 0;
    for (uint32_t k = 0; k < RP_MODEL_KINDS; k++) {
        s->layers[k].host_fwd = s->layers[k].host_bwd = 0;
    }
}

/* Numbers the classes in the order of their first microbatch. */
static uint32_t classify(const rp_program *program, uint32_t *class_of, uint32_t *first_of)
{
    uint32_t count = 0;
    for (uint32_t m = 0; m < program->microbatch_count; m++) {
        uint32_t k = 0;
        while (k < count && program->sequences[first_of[k]] != program->sequences[m]) {
            k++;
        }
        if (k == count) {
            first_of[count++] = m;
        }
        class_of[m] = k;
    }
    return count;
}

rp_status rpsim_compute_costs_create(const rp_program *program, const rp_costs *table,
                                     const rp_model *model, const rpsim_gpu_rates *rates,
                                     uint32_t seq_len, rp_arena *arena,
                                     rpsim_compute_costs *costs_out, rp_reason *reason)
{
    if (program->layer_count != table->layers || model->layers != table->layers) {
        return rp_refuse(
            reason, RP_INPUT,
            "cost table %s has %u layers, the program %u, the model %u; valid is a table of "
            "the same model",
            table->name, table->layers, program->layer_count, model->layers);
    }
    double passes = rates->update_passes > 0 ? rates->update_passes : 1;
    rpsim_compute_costs costs = {.stage_count = program->stage_count,
                                 .layer_count = table->layers + 1,
                                 .memory_ps_per_byte = 1e12 * passes / rates->memory_bytes_per_s,
                                 .update_ps = to_ps(rates->update_s)};
    uint32_t *first_of = NULL;
    RP_TRY(rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t), &costs.class_of));
    RP_TRY(rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t), &first_of));
    uint32_t classes = classify(program, costs.class_of, first_of);
    size_t rows = (size_t)classes * program->stage_count;
    RP_TRY(rp_arena_alloc(arena, rows * RP_OP_KIND_COUNT, sizeof(int64_t), &costs.ps));
    size_t per_class = (size_t)costs.layer_count * RP_OP_KIND_COUNT;
    RP_TRY(rp_arena_alloc(arena, classes * per_class, sizeof(int64_t), &costs.layer_ps));
    costs.alone_ps = costs.layer_ps;
    if (rates->host.stack != NULL) {
        RP_TRY(rp_arena_alloc(arena, rows * RP_OP_KIND_COUNT, sizeof(int64_t), &costs.gpu_ps));
        RP_TRY(rp_arena_alloc(arena, classes * per_class, sizeof(int64_t), &costs.alone_ps));
    }
    for (uint32_t k = 0; k < classes; k++) {
        scaling s = make_scaling(table, model, rates, seq_len, program->sequences[first_of[k]]);
        int64_t *of_class = &costs.ps[(size_t)k * program->stage_count * RP_OP_KIND_COUNT];
        RP_TRY(fill_stages(table, program, &s, of_class, reason));
        RP_TRY(fill_layers(table, &s, &costs.layer_ps[k * per_class], reason));
        if (costs.gpu_ps != NULL) {
            forget_host(&s);
            of_class = &costs.gpu_ps[(size_t)k * program->stage_count * RP_OP_KIND_COUNT];
            RP_TRY(fill_stages(table, program, &s, of_class, reason));
            RP_TRY(fill_layers(table, &s, &costs.alone_ps[k * per_class], reason));
        }
    }
    *costs_out = costs;
    return RP_OK;
}

rp_status rpsim_layer_table(const rpsim_compute_costs *costs, uint32_t of_class, bool waits,
                            rp_arena *arena, rp_costs *table_out)
{
    uint32_t layers = costs->layer_count - 1;
    const int64_t *ps =
        &(waits ? costs->layer_ps
                : costs->alone_ps)[(size_t)of_class * costs->layer_count * RP_OP_KIND_COUNT];
    table_out->layers = layers;
    RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &table_out->fwd_ps));
    RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &table_out->bwd_ps));
    RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &table_out->bwd_input_ps));
    for (uint32_t i = 0; i < layers; i++, ps += RP_OP_KIND_COUNT) {
        table_out->fwd_ps[i] = ps[RP_OP_FORWARD];
        table_out->bwd_ps[i] = ps[RP_OP_BACKWARD];
        table_out->bwd_input_ps[i] = ps[RP_OP_BACKWARD_INPUT];
    }
    table_out->head_fwd_ps = ps[RP_OP_FORWARD];
    table_out->head_bwd_ps = ps[RP_OP_BACKWARD];
    return RP_OK;
}
