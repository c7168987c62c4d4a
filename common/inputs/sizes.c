/* Bytes of a model's tensors: in transfers and in memory. */
#include "common/inputs/sizes.h"

#include "common/inputs/types/stored.h"

/* If GPUs of a tensor group share tokens, tensors as wide as the hidden vector are divided: inputs
 * and outputs of norms, whose gathered form is gathered again in the backward (Korthikanti et al.,
 * 2022, section 4.2.2). Temporaries hold the gathered form, so they are whole. */

/* Tape of a GPT block: inputs of both norms, their outputs, q, k and v, the output of attention; up
 * before and after GELU. A norm is a single kernel and keeps two floats, attention a float per
 * head. */
static uint64_t plain_tape_per_token(const rp_model *m, uint64_t v)
{
    uint64_t q = (uint64_t)m->heads * m->head_dim;
    uint64_t kv = (uint64_t)m->kv_heads * m->head_dim;
    uint64_t norms = v * 4 * (uint64_t)m->hidden + sizeof(float) * 4;
    return rp_model_of_sequence(m, norms) + v * (2 * q + 2 * kv + 2 * (uint64_t)m->intermediate) +
           sizeof(float) * (uint64_t)m->heads;
}

static uint64_t routed_ranks(const rp_model *m)
{
    return m->routed_ranks > 1 ? m->routed_ranks : 1;
}

/* Bytes that a layer keeps per token for its backward: sim/model.md section 4, "saved". Values of
 * the run's type have `v` bytes; a norm also keeps an fp32 copy of its input. */
static uint64_t tape_per_token(const rp_model *m, uint64_t v)
{
    if (m->plain_mlp) {
        return plain_tape_per_token(m, v);
    }
    uint64_t h = rp_model_of_sequence(m, m->hidden);
    uint64_t q = (uint64_t)m->heads * m->head_dim;
    uint64_t k = (uint64_t)m->kv_heads * m->head_dim;
    uint64_t values = (uint64_t)m->kv_heads * rp_model_value_dim(m);
    uint64_t out = (uint64_t)m->heads * rp_model_value_dim(m);
    uint64_t active = 4 * v * m->intermediate * m->active_experts / routed_ranks(m) +
                      4 * v * m->shared_intermediate;
    uint64_t norms = rp_model_layer_norms(m); /* with their inputs */
    uint64_t bytes = active + norms * (4 + 3 * v) * h + v * (q + k + values) + v * out;
    bytes += m->qk_norm ? (4 + 2 * v) * (q + k) : 0;
    /* Latent vectors before and behind their norms, and the part of keys that is rotated. */
    bytes += (4 + 3 * v) * ((uint64_t)m->kv_rank + m->q_rank) + v * m->rope_dim;
    /* Gathers of a mixture: each expert's inputs, and its outputs before they are weighted. If GPUs
     * share an expert that tokens were sent to, its inputs are those of all tokens. */
    uint64_t inputs = rp_model_dispatches_parts(m) && routed_ranks(m) == 1 ? m->hidden : h;
    return bytes + (m->experts > 1 ? v * (inputs + h) * m->active_experts : 0);
}

/* Most bytes per token that a layer's backward holds beyond its tape. The 12 h are those of
 * sim/model.md. The MLP: when the product of silu(g) and p is differentiated, its saved value (2 I)
 * has been freed, and three of the gradients of s, silu(g), p and then g live at a time (6 I): 4 I
 * more than the tape, at 16 bits. Experts run in turn, each with its share of the tokens. */
static uint64_t temporary_per_token(const rp_model *m, uint64_t v)
{
    uint64_t active = (uint64_t)m->intermediate * m->active_experts;
    uint64_t rows = 2 * v * active / rp_model_held_experts(m) / routed_ranks(m);
    uint64_t shared = 2 * v * m->shared_intermediate;
    return 6 * v * (uint64_t)m->hidden + (shared > rows ? shared : rows);
}

/* Tape of the final norm: the fp32 copy, the normalised value, the output. In the 20 h of a layer
 * the two norms take 16 h, and their inputs 2 h each. */
static uint64_t head_tape_per_token(const rp_model *m, uint64_t v)
{
    return rp_model_of_sequence(m, (4 + 3 * v) * (uint64_t)m->hidden);
}

/* ---- types ----------------------------------------------------------------------------------- */

/* Most entries that list_linears lists: attention's, and three each of experts and of the experts
 * that every token goes through. */
#define LINEARS (RP_MODEL_ATTENTION_LINEARS + 6u)

typedef struct linears {
    uint64_t rows;
    uint64_t columns;
    uint64_t count;
    bool expert;
} linears;

/* Linear layers of a block, without the router and adapters. */
static uint32_t list_linears(const rp_model *m, linears out[LINEARS])
{
    rp_model_linear attention[RP_MODEL_ATTENTION_LINEARS];
    uint32_t count = rp_model_attention_linears(m, attention);
    bool sparse = m->experts > 1;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (linears){attention[i].out, attention[i].in, 1, false};
    }
    uint64_t experts = rp_model_held_experts(m);
    uint64_t inputs = rp_model_mlp_matrices(m) - 1;
    out[count++] = (linears){m->intermediate, m->hidden, inputs * experts, sparse};
    out[count++] = (linears){m->hidden, m->intermediate, experts, sparse};
    if (m->shared_intermediate != 0) {
        out[count++] = (linears){m->shared_intermediate, m->hidden, 2, false};
        out[count++] = (linears){m->hidden, m->shared_intermediate, 1, false};
    }
    return count;
}

/* Weights of a block as they are stored: of its experts alone, or all. */
static rp_stored store_block(const rp_model *m, rp_frozen frozen, uint64_t v, bool experts)
{
    linears list[LINEARS];
    uint32_t count = list_linears(m, list);
    uint64_t held = experts ? rp_model_expert_held(m) : rp_model_held_layer(m);
    rp_stored sum = {v * held, 0};
    for (uint32_t i = 0; i < count; i++) {
        const linears *l = &list[i];
        bool stays = frozen == RP_FROZEN_MXFP4 && m->experts > 1 && !l->expert;
        if ((experts && !l->expert) || stays) {
            continue;
        }
        rp_stored one = rp_stored_matrix(frozen, l->rows, l->columns, v);
        sum.values += l->count * one.values - v * l->count * l->rows * l->columns;
        sum.scales += l->count * one.scales;
    }
    return sum;
}

static uint64_t dequantised(const rp_model *m, rp_frozen frozen)
{
    linears list[LINEARS];
    uint32_t count = list_linears(m, list);
    uint64_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t values = list[i].rows * list[i].columns;
        bool stays = frozen == RP_FROZEN_MXFP4 && m->experts > 1 && !list[i].expert;
        bool nf4 = frozen == RP_FROZEN_NF4;
        uint64_t bytes = 2 * values + (nf4 ? sizeof(float) * (values / RP_NF4_BLOCK) : 0);
        most = !stays && bytes > most ? bytes : most;
    }
    return most;
}

/* Moments of a block's trained tensors, of its experts alone, or of all; `trained` are their
 * elements. 8 bits: norms have a tensor each, biases are small. */
static uint64_t states_of_block(const rp_model *m, rp_states states, bool experts, uint64_t trained)
{
    rp_model_tensor tensors[RP_MODEL_TENSORS];
    if (states != RP_STATES_8BIT) {
        return rp_states_bytes(states, trained);
    }
    uint64_t d = m->hidden;
    uint64_t f = m->intermediate;
    if (experts) {
        uint64_t held = rp_model_held_experts(m);
        uint64_t each = rp_model_mlp_matrices(m) * rp_states_bytes(states, d * f);
        if (m->lora_rank != 0) {
            each = rp_model_adapted_mlp(m) * (rp_states_bytes(states, m->lora_rank * d) +
                                              rp_states_bytes(states, m->lora_rank * f));
        } else if (m->expert_bias) {
            each += rp_states_bytes(states, 2 * f) + rp_states_bytes(states, d);
        }
        return held * each;
    }
    uint64_t bytes = 0;
    uint32_t count = rp_model_layer_tensors(m, tensors);
    for (uint32_t i = 0; i < count; i++) {
        const rp_model_tensor *t = &tensors[i];
        bool steps = m->lora_rank == 0 || t->adapter;
        bool small = i + 1 == count;
        uint64_t norms = small ? (m->layer_norm ? 2 : 1) * (uint64_t)rp_model_layer_norms(m) : 0;
        uint64_t rest = small ? t->elements - norms * d : 0;
        uint64_t one = small
                           ? norms * rp_states_bytes(states, d) + rest * rp_states_bytes(states, 1)
                           : t->count * rp_states_bytes(states, t->elements);
        bytes += steps ? one : 0;
    }
    return bytes;
}

/* Moments of a table, with a norm or learned positions. */
static uint64_t states_of_table(const rp_model *m, rp_states states, bool embeds, uint64_t trained)
{
    uint64_t table = m->embedding_parameters;
    bool wide = embeds && states == RP_STATES_8BIT;
    if (trained < table) {
        return rp_states_bytes(states, trained);
    }
    return rp_states_bytes(wide ? RP_STATES_F32 : states, table) +
           rp_states_bytes(states, trained - table);
}

rp_step_bytes rp_step_bytes_of(const rp_types *types, double states)
{
    bool none = types->master == RP_MASTER_NONE;
    double master = (double)rp_master_bytes((rp_master)types->master);
    double stepped = none ? 2 : master;
    return (rp_step_bytes){
        .update = 4 + 2 * (states + master) + (none ? 2 : 0),
        .adam = 2 * stepped + 2 * (states + stepped),
        .refresh = none ? 0 : master + 4,
        .collect = 2 + 2 * stepped,
    };
}

static void set_step(rp_sizes *sizes)
{
    double parameters = 0;
    double states = 0;
    for (uint32_t i = 0; i < sizes->layers + 2; i++) {
        parameters += (double)sizes->parameters[i];
        states += (double)sizes->state_bytes[i];
    }
    sizes->step = rp_step_bytes_of(&sizes->types, parameters > 0 ? states / parameters : 0);
}

static rp_status fill_types(const rp_model *model, uint64_t v, rp_arena *arena, rp_sizes *sizes)
{
    uint32_t count = model->layers + 2;
    rp_frozen frozen = (rp_frozen)sizes->types.frozen;
    rp_states states = (rp_states)sizes->types.states;
    uint64_t master = rp_master_bytes((rp_master)sizes->types.master);
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes->scale_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes->optimizer_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes->expert_optimizer_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes->state_bytes));
    for (uint32_t i = 0; i < count; i++) {
        bool block = i > 0 && i + 1 < count;
        const rp_model *layer = block ? rp_model_of_layer(model, i - 1) : model;
        uint64_t trained = sizes->gradient_bytes[i] / v;
        uint64_t all = block ? states_of_block(layer, states, false, trained)
                             : states_of_table(model, states, i == 0 || model->tied_head, trained);
        bool tied = sizes->parameters[i] != trained;
        sizes->state_bytes[i] = tied ? rp_states_bytes(states, sizes->parameters[i]) : all;
        sizes->optimizer_bytes[i] = master * trained + all;
        if (block && layer->experts > 1) {
            uint64_t of_experts = sizes->expert_gradient_bytes[i] / v;
            sizes->expert_optimizer_bytes[i] =
                master * of_experts + states_of_block(layer, states, true, of_experts);
        }
        if (block && frozen != RP_FROZEN_DTYPE && layer->lora_rank != 0) {
            rp_stored stored = store_block(layer, frozen, v, false);
            rp_stored experts = store_block(layer, frozen, v, true);
            sizes->weight_bytes[i] = stored.values + stored.scales;
            sizes->scale_bytes[i] = stored.scales;
            sizes->expert_weight_bytes[i] = experts.values + experts.scales;
            uint64_t matrix = rp_frozen_is_quantised(frozen) ? dequantised(layer, frozen) : 0;
            sizes->dequantised_bytes =
                matrix > sizes->dequantised_bytes ? matrix : sizes->dequantised_bytes;
        }
    }
    set_step(sizes);
    return RP_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static rp_status fill_memory(const rp_model *model, uint64_t seq_len, uint64_t v, rp_arena *arena,
                             rp_sizes *sizes)
{
    uint32_t count = model->layers + 2;
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes->tape_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes->temporary_bytes));
    for (uint32_t i = 0; i < count; i++) {
        bool block = i > 0 && i + 1 < count;
        const rp_model *layer = block ? rp_model_of_layer(model, i - 1) : model;
        uint64_t head = i == 0 ? 0 : head_tape_per_token(model, v);
        sizes->tape_bytes[i] = seq_len * (block ? tape_per_token(layer, v) : head);
        sizes->temporary_bytes[i] = seq_len * (block    ? temporary_per_token(layer, v)
                                               : i == 0 ? 0
                                                        : 6 * v * model->hidden);
    }
    uint64_t per_token = (v + sizeof(float)) * model->vocab;
    sizes->logits_bytes = seq_len * per_token;
    sizes->logits_chunk_bytes = RP_LOSS_CHUNK_TOKENS * per_token;
    sizes->tied_head = model->tied_head;
    return RP_OK;
}

rp_status rp_sizes_of_model(const rp_model *model, uint32_t seq_len, rp_dtype dtype,
                            rp_arena *arena, rp_sizes *sizes_out)
{
    const rp_types usual = {0};
    return rp_sizes_of_types(model, seq_len, dtype, &usual, arena, sizes_out);
}

rp_status rp_sizes_of_types(const rp_model *model, uint32_t seq_len, rp_dtype dtype,
                            const rp_types *types, rp_arena *arena, rp_sizes *sizes_out)
{
    uint64_t v = rp_dtype_bytes(dtype);
    uint32_t count = model->layers + 2;
    rp_sizes sizes = {.layers = model->layers,
                      .dtype = dtype,
                      .types = *types,
                      .boundary_bytes = rp_model_of_sequence(model, v * seq_len * model->hidden),
                      .tape_input_bytes = rp_model_of_sequence(model, v * seq_len * model->hidden),
                      .input_bytes = 4 * (uint64_t)seq_len};
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.weight_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.gradient_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.parameters));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.expert_weight_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.expert_gradient_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &sizes.dispatch_bytes));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(bool), &sizes.shared_experts));
    for (uint32_t i = 0; i < count; i++) {
        bool head = i + 1 == count;
        uint64_t norm = head ? rp_model_final_norm(model) : 0;
        /* If the table is tied, the head's entry holds all parameters outside of blocks. */
        bool positions = i == (model->tied_head ? count - 1 : 0);
        norm += positions ? rp_model_positions(model, seq_len) : 0;
        uint64_t table = model->embedding_parameters;
        bool block = i != 0 && !head;
        const rp_model *layer = block ? rp_model_of_layer(model, i - 1) : model;
        uint64_t held = block ? rp_model_held_layer(layer) : table + norm;
        uint64_t trained = model->lora_rank != 0 ? 0 : held; /* LoRA freezes tables and norms */
        trained = block ? rp_model_trainable_layer(layer) : trained;
        sizes.weight_bytes[i] = v * held;
        sizes.gradient_bytes[i] = v * trained;
        if (block && layer->experts > 1) {
            sizes.expert_weight_bytes[i] = v * rp_model_expert_held(layer);
            sizes.expert_gradient_bytes[i] = v * rp_model_expert_trained(layer);
            sizes.dispatch_bytes[i] =
                rp_model_of_sequence(layer, v * seq_len * model->hidden * layer->active_experts);
            sizes.shared_experts[i] = layer->shared_intermediate != 0;
        }
        sizes.parameters[i] = head && model->tied_head && trained != 0 ? norm : trained;
    }
    RP_TRY(fill_types(model, v, arena, &sizes));
    RP_TRY(fill_memory(model, seq_len, v, arena, &sizes));
    *sizes_out = sizes;
    return RP_OK;
}

uint64_t rp_sizes_host_bytes(const rp_sizes *sizes, uint32_t slots)
{
    uint64_t bytes = 0;
    uint64_t master = rp_master_bytes((rp_master)sizes->types.master);
    uint64_t pageable = master + (master != 0 ? master : rp_dtype_bytes(sizes->dtype));
    for (uint32_t i = 0; i < sizes->layers + 2; i++) {
        bool twice = sizes->tied_head && i == sizes->layers + 1; /* the table is layer 0's */
        uint64_t frozen = twice ? 0 : sizes->weight_bytes[i] - sizes->gradient_bytes[i];
        uint64_t working = rp_dtype_bytes(sizes->dtype) * sizes->parameters[i] + frozen;
        uint64_t states = sizes->state_bytes != NULL
                              ? sizes->state_bytes[i]
                              : rp_states_bytes(RP_STATES_F32, sizes->parameters[i]);
        bytes +=
            working + slots * sizes->gradient_bytes[i] + pageable * sizes->parameters[i] + states;
    }
    return bytes;
}
