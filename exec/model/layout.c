#include "exec/model/layout.h"

#include "common/base/log.h"

#include <string.h>

#define ALIGNMENT 16u /* values */
#define MOST_TENSORS 65535u

/* Names of a mixture's tensors in checkpoints; the first row is that of all families without one of
 * their own. */
typedef struct mixture_names {
    const char *family;
    const char *mixture;
    const char *gate, *up, *down; /* of an expert */
} mixture_names;

static const mixture_names *names_of(const rp_model *c)
{
    static const mixture_names names[] = {
        {"qwen3_moe", "mlp", "gate_proj", "up_proj", "down_proj"},
        {"mixtral", "block_sparse_moe", "w1", "w3", "w2"},
    };
    for (size_t i = 1; c->family != NULL && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(c->family, names[i].family) == 0) {
            return &names[i];
        }
    }
    return &names[0];
}

static uint64_t padded(uint64_t values)
{
    return (values + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void add_tensor(rpexec_layer *layer, const char *name, uint64_t rows, uint64_t columns,
                       rpexec_initial initial)
{
    const char *end = strrchr(name, '.');
    bool bias = end != NULL && strcmp(end, ".bias") == 0;
    layer->tensors[layer->tensor_count++] =
        (rpexec_tensor){.name = name,
                        .rows = rows,
                        .columns = columns,
                        .offset = layer->floats,
                        .initial = initial,
                        .vector = bias || initial == RPEXEC_INITIAL_ONES};
    layer->floats += padded(rows * columns);
}

static void add_block(rpexec_model *model, rpexec_block_tensor which, const char *name,
                      uint64_t rows, uint64_t columns, rpexec_initial initial)
{
    model->block_tensors[which] = model->block.tensor_count;
    add_tensor(&model->block, name, rows, columns, initial);
}

/* Behind its matrix. */
static rp_status add_bias(rpexec_model *model, rpexec_block_tensor which, const char *name,
                          rp_arena *arena)
{
    rpexec_linear *l = &model->linears[which];
    const char *full = NULL;
    l->biased = true;
    l->bias = model->block.floats;
    RP_TRY(rp_arena_print(arena, &full, "%s.bias", name));
    add_tensor(&model->block, full, 1, l->out, RPEXEC_INITIAL_ZEROS);
    return RP_OK;
}

static bool is_biased(const rp_model *c, rpexec_block_tensor which)
{
    return which == RPEXEC_O ? c->output_bias : which >= RPEXEC_GATE ? c->mlp_bias : c->qkv_bias;
}

/* A linear layer: one matrix, or one of every expert, whose name then has a place for its number.
 */
static rp_status add_linear(rpexec_model *model, rpexec_block_tensor which, const char *name,
                            uint32_t experts, uint32_t out, uint32_t in, rp_arena *arena)
{
    bool residual = which == RPEXEC_O || which == RPEXEC_DOWN;
    model->block_tensors[which] = model->block.tensor_count;
    model->linears[which] = (rpexec_linear){.in = in,
                                            .out = out,
                                            .experts = experts,
                                            .weight = model->block.floats,
                                            .weight_stride = padded((uint64_t)in * out)};
    for (uint32_t e = 0; e < experts; e++) {
        const char *full = NULL;
        RP_TRY(experts == 1 ? rp_arena_print(arena, &full, "%s.weight", name)
                            : rp_arena_print(arena, &full, "%s.experts.%u.%s.weight",
                                             names_of(model->config)->mixture, e, name));
        add_tensor(&model->block, full, out, in,
                   residual ? RPEXEC_INITIAL_RESIDUAL : RPEXEC_INITIAL_NORMAL);
    }
    return is_biased(model->config, which) ? add_bias(model, which, name, arena) : RP_OK;
}

static rp_status add_linears(const rp_model *c, rp_arena *arena, rpexec_model *model)
{
    const uint32_t e = c->experts;
    const uint32_t f = c->intermediate;
    const char *router = NULL;
    if (e == 1) {
        RP_TRY(add_linear(model, RPEXEC_GATE, "mlp.gate_proj", e, f, c->hidden, arena));
        RP_TRY(add_linear(model, RPEXEC_UP, "mlp.up_proj", e, f, c->hidden, arena));
        return add_linear(model, RPEXEC_DOWN, "mlp.down_proj", e, c->hidden, f, arena);
    }
    const mixture_names *names = names_of(c);
    RP_TRY(rp_arena_print(arena, &router, "%s.gate.weight", names->mixture));
    add_block(model, RPEXEC_ROUTER, router, e, c->hidden, RPEXEC_INITIAL_NORMAL);
    RP_TRY(add_linear(model, RPEXEC_GATE, names->gate, e, f, c->hidden, arena));
    RP_TRY(add_linear(model, RPEXEC_UP, names->up, e, f, c->hidden, arena));
    return add_linear(model, RPEXEC_DOWN, names->down, e, c->hidden, f, arena);
}

/* One of a layer's two adapters, of all experts: named as PEFT names them. */
static rp_status add_adapter(rpexec_model *model, rpexec_block_tensor which, bool b,
                             rp_arena *arena)
{
    rpexec_linear *l = &model->linears[which];
    uint64_t rows = b ? l->out : model->rank;
    uint64_t columns = b ? model->rank : l->in;
    *(b ? &l->b : &l->a) = model->block.floats;
    *(b ? &l->b_stride : &l->a_stride) = padded(rows * columns);
    for (uint32_t e = 0; e < l->experts; e++) {
        const char *full = NULL;
        const char *base = model->block.tensors[model->block_tensors[which] + e].name;
        int length = (int)(strlen(base) - strlen(".weight"));
        RP_TRY(rp_arena_print(arena, &full, "%.*s.lora_%c.weight", length, base, b ? 'B' : 'A'));
        add_tensor(&model->block, full, rows, columns,
                   b ? RPEXEC_INITIAL_ZEROS : RPEXEC_INITIAL_UNIFORM);
    }
    return RP_OK;
}

/* Tensors that LoRA trains: adapters of the blocks' linear layers, but for the router. */
static rp_status add_adapters(const rp_model *c, rp_arena *arena, rpexec_model *model)
{
    static const rpexec_block_tensor linears[] = {RPEXEC_Q,    RPEXEC_K,  RPEXEC_V,   RPEXEC_O,
                                                  RPEXEC_GATE, RPEXEC_UP, RPEXEC_DOWN};
    if (c->lora_rank == 0) {
        return RP_OK;
    }
    double alpha = c->lora_alpha != 0 ? c->lora_alpha : c->lora_rank;
    model->rank = c->lora_rank;
    model->adapter_scale = (float)(alpha / c->lora_rank);
    model->embedding.frozen = model->embedding.floats;
    model->head.frozen = model->head.floats;
    model->block.frozen = model->block.floats;
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
        RP_TRY(add_adapter(model, linears[i], false, arena));
        RP_TRY(add_adapter(model, linears[i], true, arena));
    }
    return RP_OK;
}

static rp_status allocate_tensors(const rp_model *c, rp_arena *arena, rpexec_model *model)
{
    uint64_t pairs = c->lora_rank != 0 ? 2 : 0;
    uint64_t tensors = 9 + 7 + (4 + 3 * (uint64_t)c->experts) * (1 + pairs); /* biases: 7 */
    if (tensors > MOST_TENSORS) {
        rp_log_error("--model: the layers of %s have %llu tensors; valid are up to %u", c->name,
                     (unsigned long long)tensors, MOST_TENSORS);
        return RP_INPUT;
    }
    RP_TRY(rp_arena_alloc(arena, 1, sizeof(rpexec_tensor), &model->embedding.tensors));
    RP_TRY(rp_arena_alloc(arena, tensors, sizeof(rpexec_tensor), &model->block.tensors));
    return rp_arena_alloc(arena, 2, sizeof(rpexec_tensor), &model->head.tensors);
}

rp_status rpexec_model_lay_out(const rp_model *c, rp_arena *arena, rpexec_model *model)
{
    uint32_t q = c->heads * c->head_dim;
    uint32_t kv = c->kv_heads * c->head_dim;
    uint32_t d = c->hidden;
    RP_TRY(allocate_tensors(c, arena, model));
    add_tensor(&model->embedding, "model.embed_tokens.weight", c->vocab, d, RPEXEC_INITIAL_NORMAL);
    add_block(model, RPEXEC_NORM_1, "input_layernorm.weight", 1, d, RPEXEC_INITIAL_ONES);
    RP_TRY(add_linear(model, RPEXEC_Q, "self_attn.q_proj", 1, q, d, arena));
    RP_TRY(add_linear(model, RPEXEC_K, "self_attn.k_proj", 1, kv, d, arena));
    RP_TRY(add_linear(model, RPEXEC_V, "self_attn.v_proj", 1, kv, d, arena));
    RP_TRY(add_linear(model, RPEXEC_O, "self_attn.o_proj", 1, d, q, arena));
    add_block(model, RPEXEC_NORM_2, "post_attention_layernorm.weight", 1, d, RPEXEC_INITIAL_ONES);
    RP_TRY(add_linears(c, arena, model));
    if (c->qk_norm) {
        add_block(model, RPEXEC_Q_NORM, "self_attn.q_norm.weight", 1, c->head_dim,
                  RPEXEC_INITIAL_ONES);
        add_block(model, RPEXEC_K_NORM, "self_attn.k_norm.weight", 1, c->head_dim,
                  RPEXEC_INITIAL_ONES);
    }
    add_tensor(&model->head, "model.norm.weight", 1, d, RPEXEC_INITIAL_ONES);
    add_tensor(&model->head, "lm_head.weight", c->vocab, d, RPEXEC_INITIAL_NORMAL);
    return add_adapters(c, arena, model);
}
