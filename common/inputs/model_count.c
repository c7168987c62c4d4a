/* Parameters of models: executor.md section 4.2 and the comments on the fields of rp_model. */
#include "common/base/reason.h"
#include "common/inputs/model.h"

#include <string.h>

static rp_model_linear linear(const char *name, uint64_t in, uint64_t out, bool bias)
{
    return (rp_model_linear){name, in, out, bias};
}

/* Keys and values are made of a vector of length kv_rank; beside it is the rotated part of keys,
 * which all heads share (DeepSeek-V2, arXiv 2405.04434, section 2.1). */
static uint32_t latent_linears(const rp_model *m, rp_model_linear *out)
{
    uint32_t count = 0;
    uint64_t q = (uint64_t)m->heads * m->head_dim;
    uint64_t values = (uint64_t)m->heads * m->value_dim;
    uint64_t kept = (uint64_t)m->heads * (m->head_dim - m->rope_dim);
    if (m->q_rank != 0) {
        out[count++] = linear("q_a", m->hidden, m->q_rank, m->qkv_bias);
        out[count++] = linear("q_b", m->q_rank, q, false);
    } else {
        out[count++] = linear("q", m->hidden, q, false);
    }
    out[count++] = linear("kv_a", m->hidden, (uint64_t)m->kv_rank + m->rope_dim, m->qkv_bias);
    out[count++] = linear("kv_b", m->kv_rank, kept + values, false);
    out[count++] = linear("o", values, m->hidden, m->output_bias);
    return count;
}

uint32_t rp_model_attention_linears(const rp_model *model, rp_model_linear *linears_out)
{
    uint64_t q = (uint64_t)model->heads * model->head_dim;
    uint64_t kv = (uint64_t)model->kv_heads * model->head_dim;
    bool all = model->attention_bias || model->linear_bias;
    bool qkv = all || model->qkv_bias;
    if (model->kv_rank != 0) {
        return latent_linears(model, linears_out);
    }
    linears_out[0] = linear("q", model->hidden, q, qkv);
    linears_out[1] = linear("k", model->hidden, kv, qkv);
    linears_out[2] = linear("v", model->hidden, kv, qkv);
    linears_out[3] = linear("o", q, model->hidden, all || model->output_bias);
    return 4;
}

static uint64_t count_attention(const rp_model *model)
{
    rp_model_linear linears[RP_MODEL_ATTENTION_LINEARS];
    uint32_t count = rp_model_attention_linears(model, linears);
    uint64_t total = model->attention_bias ? model->heads : 0; /* sinks */
    for (uint32_t i = 0; i < count; i++) {
        total += linears[i].in * linears[i].out + (linears[i].bias ? linears[i].out : 0);
    }
    return total;
}

/* Only mixtures have a router; its bias comes with the biases of the experts. */
static uint64_t count_mlp(const rp_model *model, uint64_t experts)
{
    uint64_t d = model->hidden;
    uint64_t f = model->intermediate;
    uint64_t shared = model->shared_intermediate;
    uint64_t matrices = rp_model_mlp_matrices(model);
    uint64_t total = experts * matrices * d * f;
    total += model->linear_bias ? (matrices - 1) * f + d : 0;
    if (model->experts > 1) {
        total += model->experts * d;
    }
    if (model->expert_bias) {
        total += model->experts + experts * (2 * f + d);
    }
    if (model->router_bias && model->experts > 1) {
        total += model->experts;
    }
    if (model->mlp_bias) {
        total += model->experts == 1 ? (matrices - 1) * f + d : shared != 0 ? 2 * shared + d : 0;
    }
    return total + 3 * d * shared + (model->shared_gate ? d : 0);
}

static uint64_t count_norms(const rp_model *m)
{
    uint64_t total = rp_model_layer_norms(m) * rp_model_final_norm(m);
    uint64_t heads = m->wide_qk_norm ? (uint64_t)m->heads + m->kv_heads : 2;
    total += m->qk_norm ? heads * m->head_dim : 0;
    return total + m->kv_rank + m->q_rank;
}

bool rp_model_adapts(const rp_model *model, const char *linear)
{
    static const char *const names[] = {RP_LORA_LINEARS};
    bool adapts = model->lora_linears == 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool has = (model->lora_linears >> i & 1) != 0;
        adapts |= has && strcmp(names[i], linear) == 0;
    }
    return adapts;
}

uint32_t rp_model_adapted_mlp(const rp_model *model)
{
    return (rp_model_adapts(model, "gate") ? 1 : 0) + (rp_model_adapts(model, "up") ? 1 : 0) +
           (rp_model_adapts(model, "down") ? 1 : 0);
}

/* Low-rank pairs [rank, in] and [out, rank]: on the linear layers of attention, on gate, up and
 * down of every expert, and on those of the shared experts. The router is frozen. */
static uint64_t count_adapters(const rp_model *model)
{
    rp_model_linear linears[RP_MODEL_ATTENTION_LINEARS];
    uint32_t count = rp_model_attention_linears(model, linears);
    uint64_t d = model->hidden;
    uint64_t shared = model->shared_intermediate;
    uint64_t mlp = rp_model_adapted_mlp(model);
    uint64_t widths = mlp * (d + model->intermediate) * rp_model_held_experts(model);
    widths += shared != 0 ? mlp * (d + shared) : 0;
    for (uint32_t i = 0; i < count; i++) {
        bool adapts = rp_model_adapts(model, linears[i].name);
        widths += adapts ? linears[i].in + linears[i].out : 0;
    }
    return model->lora_rank * widths;
}

/* Lists `matrices` matrices of d x f for each MLP, and its pairs on gate, up and down, as
 * count_adapters counts them. */
static uint32_t list_mlp(const rp_model *m, uint64_t f, uint32_t matrices, uint32_t mlps,
                         rp_model_tensor *out)
{
    uint64_t d = m->hidden;
    out[0] = (rp_model_tensor){d * f, matrices * mlps, false};
    if (m->lora_rank == 0) {
        return 1;
    }
    out[1] = (rp_model_tensor){m->lora_rank * d, 3 * mlps, true};
    out[2] = (rp_model_tensor){m->lora_rank * f, 3 * mlps, true};
    return 3;
}

uint32_t rp_model_layer_tensors(const rp_model *m, rp_model_tensor *out)
{
    rp_model_linear linears[RP_MODEL_ATTENTION_LINEARS];
    uint32_t matrices = rp_model_attention_linears(m, linears);
    uint32_t experts = rp_model_held_experts(m);
    uint64_t listed = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < matrices; i++) {
        out[count++] = (rp_model_tensor){linears[i].in * linears[i].out, 1, false};
        if (m->lora_rank != 0) {
            out[count++] = (rp_model_tensor){m->lora_rank * linears[i].in, 1, true};
            out[count++] = (rp_model_tensor){m->lora_rank * linears[i].out, 1, true};
        }
    }
    if (m->experts > 1) {
        out[count++] = (rp_model_tensor){(uint64_t)m->experts * m->hidden, 1, false}; /* router */
    }
    uint32_t mlp = count;
    count += list_mlp(m, m->intermediate, rp_model_mlp_matrices(m), experts, &out[count]);
    if (m->expert_bias) { /* a tensor holds gate and up of all experts, a second holds down */
        out[mlp] = (rp_model_tensor){2 * out[mlp].elements * experts, 1, false};
        out[count++] = (rp_model_tensor){out[mlp].elements / 2, 1, false};
    }
    if (m->shared_intermediate != 0) {
        count += list_mlp(m, m->shared_intermediate, 3, 1, &out[count]);
    }
    for (uint32_t i = 0; i < count; i++) {
        listed += out[i].elements * out[i].count;
    }
    out[count++] = (rp_model_tensor){rp_model_held_layer(m) - listed, 1, false};
    return count;
}

static void count_layer(rp_model *model)
{
    model->attention_parameters = count_attention(model);
    model->mlp_parameters = count_mlp(model, rp_model_held_experts(model));
    model->norm_parameters = count_norms(model);
    model->layer_parameters =
        model->attention_parameters + model->mlp_parameters + model->norm_parameters;
    model->adapter_parameters = count_adapters(model);
    model->embedding_parameters = (uint64_t)model->vocab * model->hidden;
}

/* Parameters outside of the layers. */
static uint64_t count_rest(const rp_model *model)
{
    return model->embedding_parameters * (model->tied_head ? 1 : 2) +
           rp_model_positions(model, model->max_positions) + rp_model_final_norm(model);
}

void rp_model_count(rp_model *model)
{
    count_layer(model);
    for (uint32_t k = 0; k < model->kind_count; k++) {
        count_layer(&model->kinds[k]);
    }
    model->total_parameters = count_rest(model);
    uint64_t idle = 0;
    for (uint32_t i = 0; i < model->layers; i++) {
        const rp_model *layer = rp_model_of_layer(model, i);
        model->total_parameters += layer->layer_parameters;
        uint32_t held = rp_model_held_experts(layer);
        uint32_t active = layer->active_experts < held ? layer->active_experts : held;
        idle += layer->mlp_parameters - count_mlp(layer, active);
    }
    model->active_parameters = model->total_parameters - idle;
}

void rp_model_set_seq_len(rp_model *model, uint32_t seq_len)
{
    if (model->learned_positions) {
        model->max_positions = seq_len;
        rp_model_count(model);
    }
}

/* ---- parts of tensor groups ------------------------------------------------------------------ */

static rp_status divide(const rp_model *model, const char *what, uint32_t ranks, uint32_t *value,
                        rp_reason *reason)
{
    if (*value % ranks != 0) {
        return rp_refuse(reason, RP_USAGE,
                         "{tensor_parallel}: %s has %s of %u, which %u GPUs cannot share equally; "
                         "valid are divisors of %u",
                         model->name, what, *value, ranks, *value);
    }
    *value /= ranks;
    return RP_OK;
}

uint64_t rp_model_expert_trained(const rp_model *m)
{
    uint64_t d = m->hidden;
    uint64_t f = m->intermediate;
    uint64_t matrices = rp_model_mlp_matrices(m) * d * f + (m->expert_bias ? 2 * f + d : 0);
    uint64_t adapters = m->lora_rank * rp_model_adapted_mlp(m) * (d + f);
    uint64_t each = m->lora_rank != 0 ? adapters : matrices;
    return m->experts > 1 ? rp_model_held_experts(m) * each : 0;
}

uint64_t rp_model_expert_held(const rp_model *m)
{
    rp_model whole = *m;
    whole.lora_rank = 0;
    return rp_model_expert_trained(&whole) + (m->lora_rank != 0 ? rp_model_expert_trained(m) : 0);
}

static rp_status cut_layer(rp_model *m, const rp_layout *layout, rp_reason *reason)
{
    uint32_t ranks = rp_layout_tensor(layout);
    uint32_t shares = m->experts > 1 ? rp_layout_expert(layout) : 1;
    if (m->experts % shares != 0) {
        return rp_refuse(
            reason, RP_USAGE,
            "{expert_parallel}: %s has %u experts, which %u GPUs cannot share equally; "
            "valid are divisors of %u",
            m->name, m->experts, shares, m->experts);
    }
    m->expert_ranks = shares;
    if (ranks == 1) {
        return RP_OK;
    }
    m->sequence_ranks = rp_layout_sequence(layout);
    bool whole = shares > 1 && rp_layout_expert_tensor(layout) == 1;
    m->routed_ranks = whole ? ranks : 1;
    RP_TRY(divide(m, "a number of attention heads", ranks, &m->heads, reason));
    RP_TRY(whole ? RP_OK : divide(m, "an MLP width", ranks, &m->intermediate, reason));
    RP_TRY(divide(m, "a width of shared experts", ranks, &m->shared_intermediate, reason));
    m->kv_heads = ranks < m->kv_heads ? m->kv_heads : ranks;
    RP_TRY(divide(m, "a number of key-value heads", ranks, &m->kv_heads, reason));
    uint32_t multiple = ranks * RP_VOCAB_MULTIPLE;
    m->vocab = (m->vocab + multiple - 1) / multiple * RP_VOCAB_MULTIPLE;
    return RP_OK;
}

rp_status rp_model_cut(const rp_model *model, const rp_layout *layout, rp_arena *arena,
                       rp_model *rank_out, rp_reason *reason)
{
    *rank_out = *model;
    if (rp_layout_tensor(layout) == 1 && rp_layout_expert(layout) == 1) {
        return RP_OK;
    }
    RP_TRY(cut_layer(rank_out, layout, reason));
    if (model->kinds != NULL) {
        RP_TRY(rp_arena_alloc(arena, model->kind_count, sizeof *model->kinds, &rank_out->kinds));
    }
    for (uint32_t k = 0; k < model->kind_count; k++) {
        rank_out->kinds[k] = model->kinds[k];
        RP_TRY(cut_layer(&rank_out->kinds[k], layout, reason));
    }
    rp_model_count(rank_out);
    return RP_OK;
}

void rp_model_set_lora(rp_model *model, uint32_t rank, uint32_t linears)
{
    model->lora_rank = rank;
    model->lora_linears = linears;
    model->adapter_parameters = count_adapters(model);
    for (uint32_t k = 0; k < model->kind_count; k++) {
        rp_model_set_lora(&model->kinds[k], rank, linears);
    }
}

void rp_model_set_lora_rank(rp_model *model, uint32_t rank)
{
    rp_model_set_lora(model, rank, 0);
}

static double estimate_layer(const rp_model *m)
{
    double d = m->hidden;
    double q = (double)m->heads * m->head_dim;
    double attention = 2 * d * ((double)m->heads + m->kv_heads) * m->head_dim;
    if (m->kv_rank != 0) {
        double ranks = (double)m->q_rank + m->kv_rank + m->rope_dim;
        double values = (double)m->heads * m->value_dim;
        attention = d * (q + values + ranks) + ranks * (2 * q + values);
    }
    double mlp = (3 * d * m->intermediate + d) * m->experts + 3 * d * m->shared_intermediate;
    double widths = 4 * (d + q) + 3 * (d + m->intermediate) * m->experts;
    return attention + mlp + m->lora_rank * widths;
}

double rp_model_estimate(const rp_model *model)
{
    double layer = estimate_layer(model);
    for (uint32_t k = 0; k < model->kind_count; k++) {
        double other = estimate_layer(&model->kinds[k]);
        layer = other > layer ? other : layer;
    }
    double tables =
        2.0 * model->vocab + (model->learned_positions ? (double)model->max_positions : 0);
    return model->layers * layer + model->hidden * tables;
}
