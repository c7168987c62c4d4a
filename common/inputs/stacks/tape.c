#include "common/inputs/stacks/tape.h"

#include <string.h>

#define SUM_BYTES sizeof(float) /* a norm's statistic of a token, attention's sum of a head */

typedef struct reader {
    const rp_stack *stack;
    const rp_model *layer;
    uint64_t v; /* bytes of a value */
} reader;

/* Bytes of a key that counts values of the run's type, as many as fit into its bytes at 16 bits. */
static uint64_t wide(const reader *r, double bytes)
{
    return (uint64_t)(bytes / 2 * (double)r->v);
}

static bool is_trained(const rp_model *m)
{
    return m->lora_rank == 0;
}

static bool adapts_any(const rp_model *m, const char *const *names)
{
    bool any = false;
    for (; *names != NULL; names++) {
        any |= rp_model_adapts(m, *names);
    }
    return any;
}

/* Whether the input of linear layers is kept as it is: by a trained matrix, or by an adapter that
 * has no copy of its own. */
static bool keeps_input(const reader *r, const char *const *linears)
{
    return is_trained(r->layer) ||
           (r->stack->adapter_saved_bytes <= 0 && adapts_any(r->layer, linears));
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* Bytes of norms over `width` values, each over a vector for which it keeps a statistic. */
static uint64_t norms_over(const reader *r, uint64_t width, uint64_t vectors)
{
    const rp_stack *s = r->stack;
    double scaled = is_trained(r->layer) ? s->norm_scaled_saved_bytes : 0;
    uint64_t copied = (uint64_t)(s->norm_saved_bytes * (double)width);
    return copied + wide(r, scaled) * width + vectors * SUM_BYTES;
}

static uint64_t norms_of_hidden(const reader *r, uint64_t count)
{
    uint64_t statistics = r->layer->layer_norm ? 2 : 1;
    return count * norms_over(r, rp_model_of_sequence(r->layer, r->layer->hidden), statistics);
}

static uint64_t norms_of(const reader *r)
{
    const rp_model *m = r->layer;
    uint64_t bytes = norms_of_hidden(r, rp_model_layer_norms(m));
    if (m->qk_norm) {
        uint64_t heads = (uint64_t)m->heads + m->kv_heads;
        bytes += norms_over(r, heads * m->head_dim, m->wide_qk_norm ? 2 : heads);
    }
    uint64_t latent = (uint64_t)m->kv_rank + m->q_rank;
    return bytes + norms_over(r, latent, (m->kv_rank != 0) + (m->q_rank != 0));
}

static uint64_t inputs_of(const reader *r)
{
    static const char *const of_attention[] = {"q", "k", "v", "q_a", "kv_a", NULL};
    static const char *const of_mlp[] = {"gate", "up", NULL};
    const rp_model *m = r->layer;
    uint64_t width = wide(r, r->stack->norm_output_saved_bytes);
    bool attention = keeps_input(r, of_attention);
    bool mlp = keeps_input(r, of_mlp);
    uint64_t outputs =
        m->one_norm ? (attention || mlp ? 1 : 0) : (attention ? 1 : 0) + (mlp ? 1 : 0);
    uint64_t latent = is_trained(m) ? (uint64_t)m->kv_rank + m->q_rank : 0;
    uint64_t hidden = r->stack->gathered_inputs ? m->hidden : rp_model_of_sequence(m, m->hidden);
    return width * (outputs * hidden + latent);
}

/* ---- attention ------------------------------------------------------------------------------- */

static uint64_t attention_of(const reader *r)
{
    const rp_model *m = r->layer;
    uint64_t q = (uint64_t)m->heads * m->head_dim;
    uint64_t k = (uint64_t)m->kv_heads * m->head_dim;
    uint64_t values = (uint64_t)m->kv_heads * rp_model_value_dim(m);
    uint64_t out = (uint64_t)m->heads * rp_model_value_dim(m);
    uint64_t unrotated = wide(r, r->stack->unrotated_saved_bytes) * (q + k);
    return r->v * (q + k + values + out + m->rope_dim) + unrotated + SUM_BYTES * m->heads;
}

/* ---- MLP ------------------------------------------------------------------------------------- */

/* Width of all MLPs that a token goes through, as far as a GPU computes it. */
static uint64_t mlp_width(const rp_model *m)
{
    uint64_t ranks = m->routed_ranks > 1 ? m->routed_ranks : 1;
    return (uint64_t)m->intermediate * m->active_experts / ranks + m->shared_intermediate;
}

static uint64_t activation_of(const reader *r)
{
    double bytes = r->layer->plain_mlp ? 2 : r->stack->activation_saved_bytes;
    return wide(r, bytes) * mlp_width(r->layer);
}

static uint64_t product_of(const reader *r)
{
    static const char *const down[] = {"down", NULL};
    return keeps_input(r, down) ? wide(r, r->stack->product_saved_bytes) * mlp_width(r->layer) : 0;
}

/* Gathers of a mixture: each expert's inputs, and its outputs before they are weighted. If GPUs
 * share an expert that tokens were sent to, its inputs are those of all tokens. */
static uint64_t experts_of(const reader *r)
{
    const rp_model *m = r->layer;
    uint64_t hidden = rp_model_of_sequence(m, m->hidden);
    bool all = rp_model_dispatches_parts(m) && m->routed_ranks <= 1;
    uint64_t inputs = all ? m->hidden : hidden;
    return m->experts > 1 ? r->v * (inputs + hidden) * m->active_experts : 0;
}

/* ---- adapters -------------------------------------------------------------------------------- */

/* Adds an adapter over `width` values, `count` of them with inputs of their own. */
static uint64_t adapter(const reader *r, uint64_t width, uint64_t count)
{
    uint64_t copies = (uint64_t)(r->stack->adapter_saved_bytes * (double)width);
    return count * (copies + r->v * r->layer->lora_rank);
}

static bool repeats(const rp_model *m, const char *name, bool *seen)
{
    bool joined =
        m->joined && (strcmp(name, "q") == 0 || strcmp(name, "k") == 0 || strcmp(name, "v") == 0);
    bool again = joined && *seen;
    *seen |= joined;
    return again;
}

static uint64_t adapters_of(const reader *r)
{
    const rp_model *m = r->layer;
    rp_model_linear linears[RP_MODEL_ATTENTION_LINEARS];
    uint64_t bytes = 0;
    bool seen = false;
    if (is_trained(m)) {
        return 0;
    }
    uint32_t count = rp_model_attention_linears(m, linears);
    for (uint32_t i = 0; i < count; i++) {
        if (rp_model_adapts(m, linears[i].name) && !repeats(m, linears[i].name, &seen)) {
            bytes += adapter(r, linears[i].in, 1);
        }
    }
    uint64_t up = (rp_model_adapts(m, "gate") ? 1 : 0) + (rp_model_adapts(m, "up") ? 1 : 0);
    up = m->joined && up > 1 ? 1 : up;
    uint64_t mlps = m->active_experts + (m->shared_intermediate != 0 ? 1 : 0);
    bytes += adapter(r, m->hidden, up * mlps);
    if (rp_model_adapts(m, "down")) {
        bytes += adapter(r, mlp_width(m), 1) + (mlps - 1) * adapter(r, 0, 1);
    }
    return bytes;
}

/* ---- all ------------------------------------------------------------------------------------- */

rp_tape rp_stack_tape(const rp_stack *stack, const rp_model *layer, rp_dtype dtype)
{
    const reader r = {stack, layer, rp_dtype_bytes(dtype)};
    return (rp_tape){.norms = norms_of(&r),
                     .inputs = inputs_of(&r),
                     .attention = attention_of(&r),
                     .activation = activation_of(&r),
                     .product = product_of(&r),
                     .adapters = adapters_of(&r),
                     .experts = experts_of(&r)};
}

uint64_t rp_tape_bytes(const rp_tape *tape)
{
    return tape->norms + tape->inputs + tape->attention + tape->activation + tape->product +
           tape->adapters + tape->experts;
}

uint64_t rp_stack_temporary(const rp_stack *stack, const rp_model *layer, rp_dtype dtype)
{
    const reader r = {stack, layer, rp_dtype_bytes(dtype)};
    uint64_t ranks = layer->routed_ranks > 1 ? layer->routed_ranks : 1;
    uint64_t experts = rp_model_held_experts(layer);
    uint64_t rows = (uint64_t)layer->intermediate * layer->active_experts / experts / ranks;
    rows = rows > layer->shared_intermediate ? rows : layer->shared_intermediate;
    bool copies =
        !is_trained(layer) && stack->adapter_saved_bytes > 0 && rp_model_adapts(layer, "down");
    uint64_t copied = copies ? (uint64_t)stack->adapter_temporary_bytes : 0;
    return wide(&r, stack->temporary_hidden_bytes) * layer->hidden +
           (wide(&r, stack->temporary_mlp_bytes) + copied) * rows;
}

uint64_t rp_stack_norm_tape(const rp_stack *stack, const rp_model *model, rp_dtype dtype)
{
    const reader r = {stack, model, rp_dtype_bytes(dtype)};
    return norms_of_hidden(&r, 1);
}

uint64_t rp_stack_head_tape(const rp_stack *stack, const rp_model *model, rp_dtype dtype)
{
    const reader r = {stack, model, rp_dtype_bytes(dtype)};
    uint64_t hidden =
        stack->gathered_inputs ? model->hidden : rp_model_of_sequence(model, model->hidden);
    return norms_of_hidden(&r, 1) + (is_trained(model) ? r.v * hidden : 0);
}
