#include "exec/model/model.h"

#include "common/log.h"
#include "exec/model/layers.h"
#include "exec/random.h"

#include <math.h>
#include <string.h>

#define ALIGNMENT 16u /* floats */

static uint64_t padded(uint64_t floats)
{
    return (floats + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void add(rpexec_layer *layer, const char *name, uint64_t rows, uint64_t columns,
                rpexec_initial initial)
{
    layer->tensors[layer->tensor_count++] = (rpexec_tensor){.name = name,
                                                            .rows = rows,
                                                            .columns = columns,
                                                            .offset = layer->floats,
                                                            .initial = initial};
    layer->floats += padded(rows * columns);
}

static rp_status lay_out(const rp_model *c, rp_arena *arena, rpexec_model *model)
{
    uint64_t q = (uint64_t)c->heads * c->head_dim;
    uint64_t kv = (uint64_t)c->kv_heads * c->head_dim;
    uint64_t d = c->hidden;
    rpexec_layer *block = &model->block;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof(rpexec_tensor), &model->embedding.tensors));
    RP_TRY(rp_arena_alloc(arena, RPEXEC_K_NORM + 1, sizeof(rpexec_tensor), &block->tensors));
    RP_TRY(rp_arena_alloc(arena, 2, sizeof(rpexec_tensor), &model->head.tensors));
    add(&model->embedding, "model.embed_tokens.weight", c->vocab, d, RPEXEC_INITIAL_NORMAL);
    add(block, "input_layernorm.weight", 1, d, RPEXEC_INITIAL_ONES);
    add(block, "self_attn.q_proj.weight", q, d, RPEXEC_INITIAL_NORMAL);
    add(block, "self_attn.k_proj.weight", kv, d, RPEXEC_INITIAL_NORMAL);
    add(block, "self_attn.v_proj.weight", kv, d, RPEXEC_INITIAL_NORMAL);
    add(block, "self_attn.o_proj.weight", d, q, RPEXEC_INITIAL_RESIDUAL);
    add(block, "post_attention_layernorm.weight", 1, d, RPEXEC_INITIAL_ONES);
    add(block, "mlp.gate_proj.weight", c->intermediate, d, RPEXEC_INITIAL_NORMAL);
    add(block, "mlp.up_proj.weight", c->intermediate, d, RPEXEC_INITIAL_NORMAL);
    add(block, "mlp.down_proj.weight", d, c->intermediate, RPEXEC_INITIAL_RESIDUAL);
    if (c->qk_norm) {
        add(block, "self_attn.q_norm.weight", 1, c->head_dim, RPEXEC_INITIAL_ONES);
        add(block, "self_attn.k_norm.weight", 1, c->head_dim, RPEXEC_INITIAL_ONES);
    }
    add(&model->head, "model.norm.weight", 1, d, RPEXEC_INITIAL_ONES);
    add(&model->head, "lm_head.weight", c->vocab, d, RPEXEC_INITIAL_NORMAL);
    return RP_OK;
}

/* Llama-3.1: factor 8, low 1, high 4, original length 8192 (executor.md 4.1). */
static double scaled_frequency(double frequency)
{
    const double factor = 8;
    const double low = 1;
    const double high = 4;
    const double original = 8192;
    double wavelength = 2 * acos(-1.0) / frequency;
    if (wavelength > original / low) {
        return frequency / factor;
    }
    if (wavelength < original / high) {
        return frequency;
    }
    double share = (original / wavelength - low) / (high - low);
    return (1 - share) * frequency / factor + share * frequency;
}

static rp_status fill_rotary(const rp_model *c, rp_arena *arena, rpexec_model *model)
{
    uint32_t half = c->head_dim / 2;
    size_t count = (size_t)model->seq_len * half;
    bool scaled = strcmp(c->rope_scaling, "llama3") == 0;
    RP_TRY(rp_arena_alloc(arena, count, sizeof(float), &model->cosines));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(float), &model->sines));
    for (uint32_t i = 0; i < half; i++) {
        double frequency = pow(c->rope_theta, -2.0 * i / c->head_dim);
        frequency = scaled ? scaled_frequency(frequency) : frequency;
        for (uint32_t t = 0; t < model->seq_len; t++) {
            model->cosines[(size_t)t * half + i] = (float)cos(t * frequency);
            model->sines[(size_t)t * half + i] = (float)sin(t * frequency);
        }
    }
    return RP_OK;
}

static rp_status check(const rp_model *c, uint32_t seq_len)
{
    const char *what = NULL;
    if (c->experts > 1) {
        what = "experts";
    } else if (c->lora_rank != 0) {
        what = "LoRA adapters";
    } else if (c->attention_bias || c->expert_bias) {
        what = "biases or attention sinks";
    } else if (strcmp(c->rope_scaling, "none") != 0 && strcmp(c->rope_scaling, "llama3") != 0) {
        what = c->rope_scaling;
    } else if (c->sliding_window != 0) {
        what = "sliding windows";
    }
    if (what != NULL) {
        rp_log_error("--model: %s has %s, which the executor does not compute; valid are dense "
                     "models of the Llama and Qwen3 families",
                     c->name, what);
        return RP_INPUT;
    }
    if (c->head_dim % 2 != 0) {
        rp_log_error("--model: %s has heads of %u, which the rotary embedding cannot halve; valid "
                     "are even head dimensions",
                     c->name, c->head_dim);
        return RP_INPUT;
    }
    if (seq_len == 0 || seq_len > c->max_positions) {
        rp_log_error("--seq-len: %u; valid for %s are 1 to %u", seq_len, c->name, c->max_positions);
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rpexec_model_create(const rp_model *config, uint32_t seq_len, rpexec_dtype dtype,
                              rp_arena *arena, rpexec_model *model_out)
{
    RP_TRY(check(config, seq_len));
    *model_out = (rpexec_model){
        .config = config, .dtype = dtype, .layer_count = config->layers + 2, .seq_len = seq_len};
    RP_TRY(lay_out(config, arena, model_out));
    return fill_rotary(config, arena, model_out);
}

const rpexec_layer *rpexec_model_layer(const rpexec_model *model, uint32_t layer)
{
    return layer == 0                        ? &model->embedding
           : layer + 1 == model->layer_count ? &model->head
                                             : &model->block;
}

void rpexec_model_initialise(const rpexec_model *model, uint32_t layer, uint64_t seed, float *array)
{
    const rpexec_layer *l = rpexec_model_layer(model, layer);
    memset(array, 0, l->floats * sizeof *array);
    for (uint32_t i = 0; i < l->tensor_count; i++) {
        const rpexec_tensor *t = &l->tensors[i];
        float *to = array + t->offset;
        uint64_t count = t->rows * t->columns;
        if (t->initial == RPEXEC_INITIAL_ONES) {
            for (uint64_t k = 0; k < count; k++) {
                to[k] = 1.0f;
            }
            continue;
        }
        bool copy = l == &model->head && model->config->tied_head; /* the embedding's table */
        double deviation = 0.02;
        if (t->initial == RPEXEC_INITIAL_RESIDUAL) {
            deviation /= sqrt(2.0 * model->config->layers);
        }
        uint64_t stream = copy ? 0 : (uint64_t)layer << 16 | i;
        rpexec_random_normal(seed, stream, deviation, count, to);
    }
}

rp_status rpexec_model_sizes(const rpexec_model *model, rp_arena *arena, rp_sizes *sizes_out)
{
    uint32_t count = model->layer_count;
    uint64_t seq = model->seq_len;
    uint64_t value = rpexec_dtype_bytes(model->dtype);
    rp_sizes sizes = {.layers = model->config->layers,
                      .boundary_bytes = value * seq * model->config->hidden,
                      .input_bytes = sizeof(int32_t) * seq,
                      .tied_head = model->config->tied_head};
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.weight_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.gradient_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.parameters));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.tape_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.temporary_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.optimizer_bytes));
    for (uint32_t i = 0; i < count; i++) {
        uint64_t floats = rpexec_model_layer(model, i)->floats;
        bool tied = i + 1 == count && sizes.tied_head;
        sizes.weight_bytes[i] = sizes.gradient_bytes[i] = value * floats;
        sizes.parameters[i] = tied ? model->config->hidden : floats;
        sizes.tape_bytes[i] = rpexec_tape_bytes(model, i, seq);
        sizes.temporary_bytes[i] = rpexec_scratch_bytes(model, i, seq);
        sizes.optimizer_bytes[i] = 3 * sizeof(float) * sizes.parameters[i];
    }
    *sizes_out = sizes;
    return RP_OK;
}
