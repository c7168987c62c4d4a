#include "exec/model/layout.h"

#include "common/base/log.h"

#include <string.h>

#define ALIGNMENT 16u /* values */
#define MOST_TENSORS 65535u

/* Names of a mixture's tensors in checkpoints; the first row is for all families without a row, and
 * the row with biases also for models with biases but without a family. */
typedef struct mixture_names {
    const char *family;
    const char *mixture;
    const char *router;
    const char *gate, *up, *down; /* names of an expert's matrices */
    bool biased;
    bool joined; /* a single tensor holds all experts' matrices, gate and up of each together */
} mixture_names;

static const mixture_names *names_of(const rp_model *c)
{
    static const mixture_names names[] = {
        {"qwen3_moe", "mlp", "gate", "gate_proj", "up_proj", "down_proj", false, false},
        {"mixtral", "block_sparse_moe", "gate", "w1", "w3", "w2", false, false},
        {"gpt_oss", "mlp", "router", "gate_proj", "up_proj", "down_proj", true, true},
    };
    for (size_t i = 1; i < sizeof names / sizeof names[0]; i++) {
        bool same = c->family == NULL ? c->expert_bias && names[i].biased
                                      : strcmp(c->family, names[i].family) == 0;
        if (same) {
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
                        .vector = rows == 1 && (bias || strstr(name, "norm") != NULL)};
    layer->floats += padded(rows * columns);
}

/* ---- parts of joined tensors ----------------------------------------------------------------- */

typedef enum joined_kind { JOINED_WEIGHT, JOINED_BIAS, JOINED_A, JOINED_B } joined_kind;

/* Layout of gpt-oss: `gate_up_proj` [E, d, 2 f], columns of gate and up in turn, `down_proj` [E, f,
 * d], their biases [E, 2 f] and [E, d]. Adapters have the layout of PEFT's ParamWrapper, where
 * down_proj's wrapper is around that of gate_up_proj: A [E R, in], the expert being the first
 * index, and B [out, R E], the expert being the last. R of gate_up_proj is twice the rank: gate has
 * the first half of the rows of an expert's A, up the second.
 */
static rpexec_joined joined_part(const rpexec_model *model, rpexec_block_tensor which,
                                 joined_kind kind, uint64_t expert)
{
    const rpexec_linear *l = &model->linears[which];
    const bool down = which == RPEXEC_DOWN;
    const uint64_t width = down ? l->out : 2 * (uint64_t)l->out;
    const uint64_t experts = l->experts;
    const uint64_t rank = (down ? 1 : 2) * (uint64_t)model->rank;
    const uint64_t step = down ? 1 : 2; /* between an expert's outputs */
    const uint64_t up = which == RPEXEC_UP ? 1 : 0;
    switch (kind) {
    case JOINED_WEIGHT:
        break;
    case JOINED_BIAS:
        return (rpexec_joined){.name = down ? "mlp.experts.down_proj_bias"
                                            : "mlp.experts.gate_up_proj_bias",
                               .rank = 2,
                               .shape = {experts, width},
                               .first = up,
                               .row_stride = width,
                               .column_stride = step};
    case JOINED_A:
        return (rpexec_joined){.name = down ? "mlp.experts.lora_A.weight"
                                            : "mlp.experts.base_layer.lora_A.weight",
                               .rank = 2,
                               .shape = {experts * rank, l->in},
                               .first = (expert * rank + up * model->rank) * l->in,
                               .row_stride = l->in,
                               .column_stride = 1};
    case JOINED_B:
        return (rpexec_joined){.name = down ? "mlp.experts.lora_B.weight"
                                            : "mlp.experts.base_layer.lora_B.weight",
                               .rank = 2,
                               .shape = {width, rank * experts},
                               .first = up * (rank + model->rank) * experts + expert,
                               .row_stride = step * rank * experts,
                               .column_stride = experts};
    }
    return (rpexec_joined){.name = down ? "mlp.experts.down_proj" : "mlp.experts.gate_up_proj",
                           .rank = 3,
                           .shape = {experts, l->in, width},
                           .first = expert * l->in * width + up,
                           .row_stride = step,
                           .column_stride = width};
}

/* Sets the part of the tensor that was added last. */
static rp_status join(rpexec_model *model, rpexec_block_tensor which, joined_kind kind,
                      uint64_t expert, rp_arena *arena)
{
    rpexec_joined *part = NULL;
    if (model->linears[which].experts == 1 || !names_of(model->config)->joined) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *part, &part));
    *part = joined_part(model, which, kind, expert);
    model->block.tensors[model->block.tensor_count - 1].part = part;
    return RP_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void add_block(rpexec_model *model, rpexec_block_tensor which, const char *name,
                      uint64_t rows, uint64_t columns, rpexec_initial initial)
{
    model->block_tensors[which] = model->block.tensor_count;
    add_tensor(&model->block, name, rows, columns, initial);
}

/* Adds a layer's bias after its matrix. */
static rp_status add_bias(rpexec_model *model, rpexec_block_tensor which, const char *name,
                          rp_arena *arena)
{
    rpexec_linear *l = &model->linears[which];
    const char *full = NULL;
    l->biased = true;
    l->bias = model->block.floats;
    if (l->experts > 1) {
        RP_TRY(rp_arena_print(arena, &full, "%s.experts.%s_bias", names_of(model->config)->mixture,
                              name));
        add_tensor(&model->block, full, l->experts, l->out, RPEXEC_INITIAL_ZEROS);
        return join(model, which, JOINED_BIAS, 0, arena);
    }
    RP_TRY(rp_arena_print(arena, &full, "%s.bias", name));
    add_tensor(&model->block, full, 1, l->out, RPEXEC_INITIAL_ZEROS);
    return RP_OK;
}

static bool is_biased(const rp_model *c, rpexec_block_tensor which)
{
    if (which >= RPEXEC_GATE) {
        return c->experts > 1 ? c->expert_bias : c->mlp_bias;
    }
    return c->attention_bias || (which == RPEXEC_O ? c->output_bias : c->qkv_bias);
}

/* The joint matrix of checkpoints that has a layer's rows from `first` on. Adapters are named after
 * the joint matrix. */
typedef struct joint {
    const char *name; /* NULL: checkpoints have the layer's matrix by itself */
    uint64_t first;
    uint64_t rows;
} joint;

static joint joint_of(const rp_model *c, rpexec_block_tensor which)
{
    uint64_t q = (uint64_t)c->heads * c->head_dim;
    uint64_t kv = (uint64_t)c->kv_heads * c->head_dim;
    bool attends = which == RPEXEC_Q || which == RPEXEC_K || which == RPEXEC_V;
    if (!c->joined || which == RPEXEC_O || which == RPEXEC_DOWN) {
        return (joint){0};
    }
    return attends ? (joint){"self_attn.qkv_proj",
                             which == RPEXEC_Q   ? 0
                             : which == RPEXEC_K ? q
                                                 : q + kv,
                             q + 2 * kv}
                   : (joint){"mlp.gate_up_proj", which == RPEXEC_GATE ? 0 : c->intermediate,
                             UINT64_C(2) * c->intermediate};
}

/* Makes the last added tensor, which belongs to layer `which`, a part of NAME + end. */
static rp_status join_dense(rpexec_model *model, rpexec_block_tensor which, const char *end,
                            rp_arena *arena)
{
    rpexec_tensor *t = &model->block.tensors[model->block.tensor_count - 1];
    const joint in = joint_of(model->config, which);
    rpexec_joined *part = NULL;
    if (in.name == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *part, &part));
    *part = (rpexec_joined){.rank = 2,
                            .shape = {in.rows, t->columns},
                            .first = in.first * t->columns,
                            .row_stride = t->columns,
                            .column_stride = 1};
    t->part = part;
    return rp_arena_print(arena, &part->name, "%s%s", in.name, end);
}

/* Adds a linear layer: a single matrix, or a matrix of every expert with the expert's number in its
 * name.
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
        RP_TRY(join(model, which, JOINED_WEIGHT, e, arena));
        RP_TRY(join_dense(model, which, ".weight", arena));
    }
    return is_biased(model->config, which) ? add_bias(model, which, name, arena) : RP_OK;
}

static rpexec_initial norms_begin(const rp_model *c)
{
    return c->shifted_norms ? RPEXEC_INITIAL_ZEROS : RPEXEC_INITIAL_ONES;
}

/* Adds the norm between attention and MLP, and with four norms also the norms after both. */
static void add_norms(const rp_model *c, rpexec_model *model)
{
    rpexec_initial ones = norms_begin(c);
    add_block(model, c->four_norms ? RPEXEC_ATTENTION_NORM : RPEXEC_NORM_2,
              "post_attention_layernorm.weight", 1, c->hidden, ones);
    if (c->four_norms) {
        add_block(model, RPEXEC_NORM_2, "pre_feedforward_layernorm.weight", 1, c->hidden, ones);
        add_block(model, RPEXEC_MLP_NORM, "post_feedforward_layernorm.weight", 1, c->hidden, ones);
    }
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
    RP_TRY(rp_arena_print(arena, &router, "%s.%s.weight", names->mixture, names->router));
    add_block(model, RPEXEC_ROUTER, router, e, c->hidden, RPEXEC_INITIAL_NORMAL);
    if (c->expert_bias) {
        RP_TRY(rp_arena_print(arena, &router, "%s.%s.bias", names->mixture, names->router));
        add_block(model, RPEXEC_ROUTER_BIAS, router, 1, e, RPEXEC_INITIAL_ZEROS);
    }
    RP_TRY(add_linear(model, RPEXEC_GATE, names->gate, e, f, c->hidden, arena));
    RP_TRY(add_linear(model, RPEXEC_UP, names->up, e, f, c->hidden, arena));
    return add_linear(model, RPEXEC_DOWN, names->down, e, c->hidden, f, arena);
}

/* Adds A or B of a layer's adapter, for all experts, under PEFT's names. Layers of the same joint
 * matrix share an A, that of the first layer. */
static rp_status add_adapter(rpexec_model *model, rpexec_block_tensor which, bool b,
                             rp_arena *arena)
{
    rpexec_linear *l = &model->linears[which];
    const joint in = joint_of(model->config, which);
    if (!b && in.first != 0) {
        l->a = model->linears[which < RPEXEC_GATE ? RPEXEC_Q : RPEXEC_GATE].a;
        return RP_OK;
    }
    uint64_t rows = b ? l->out : model->rank;
    uint64_t columns = b ? model->rank : l->in;
    *(b ? &l->b : &l->a) = model->block.floats;
    *(b ? &l->b_stride : &l->a_stride) = padded(rows * columns);
    for (uint32_t e = 0; e < l->experts; e++) {
        const char *full = NULL;
        const char *base = model->block.tensors[model->block_tensors[which] + e].name;
        int length = (int)(strlen(base) - strlen(".weight"));
        if (!b && in.name != NULL) {
            base = in.name;
            length = (int)strlen(base);
        }
        RP_TRY(rp_arena_print(arena, &full, "%.*s.lora_%c.weight", length, base, b ? 'B' : 'A'));
        add_tensor(&model->block, full, rows, columns,
                   b ? RPEXEC_INITIAL_ZEROS : RPEXEC_INITIAL_UNIFORM);
        RP_TRY(join(model, which, b ? JOINED_B : JOINED_A, e, arena));
        RP_TRY(b ? join_dense(model, which, ".lora_B.weight", arena) : RP_OK);
    }
    return RP_OK;
}

/* True if a layer has adapters. All layers of a joint matrix or parameter have them, or none. */
static bool is_adapted(const rp_model *c, rpexec_block_tensor which)
{
    static const char *const names[] = {
        [RPEXEC_Q] = "q",       [RPEXEC_K] = "k",   [RPEXEC_V] = "v",      [RPEXEC_O] = "o",
        [RPEXEC_GATE] = "gate", [RPEXEC_UP] = "up", [RPEXEC_DOWN] = "down"};
    bool experts = c->experts > 1 && names_of(c)->joined && which >= RPEXEC_GATE;
    const joint in = joint_of(c, which);
    bool adapted = rp_model_adapts(c, names[which]);
    for (uint32_t other = RPEXEC_Q; other <= RPEXEC_DOWN; other++) {
        const joint its = names[other] != NULL ? joint_of(c, other) : (joint){0};
        bool together = (experts && other >= RPEXEC_GATE) ||
                        (in.name != NULL && its.name != NULL && strcmp(in.name, its.name) == 0);
        adapted |= together && rp_model_adapts(c, names[other]);
    }
    return adapted;
}

/* Tensors that LoRA trains: adapters of the blocks' linear layers, except the router. */
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
        if (is_adapted(c, linears[i])) {
            model->linears[linears[i]].rank = model->rank;
            RP_TRY(add_adapter(model, linears[i], false, arena));
            RP_TRY(add_adapter(model, linears[i], true, arena));
        }
    }
    return RP_OK;
}

static rp_status allocate_tensors(const rp_model *c, rp_arena *arena, rpexec_model *model)
{
    uint64_t pairs = c->lora_rank != 0 ? 2 : 0;
    /* Tensors beside linear layers: norms and tables, biases, the router with its bias, sinks. */
    uint64_t tensors = 9 + 2 + 7 + 3 + (4 + 3 * (uint64_t)c->experts) * (1 + pairs);
    if (tensors > MOST_TENSORS) {
        rp_log_error("{model}: the layers of %s have %llu tensors; valid are up to %u", c->name,
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
    rpexec_initial ones = norms_begin(c);
    RP_TRY(allocate_tensors(c, arena, model));
    add_tensor(&model->embedding, "model.embed_tokens.weight", c->vocab, d, RPEXEC_INITIAL_NORMAL);
    add_block(model, RPEXEC_NORM_1, "input_layernorm.weight", 1, d, ones);
    RP_TRY(add_linear(model, RPEXEC_Q, "self_attn.q_proj", 1, q, d, arena));
    RP_TRY(add_linear(model, RPEXEC_K, "self_attn.k_proj", 1, kv, d, arena));
    RP_TRY(add_linear(model, RPEXEC_V, "self_attn.v_proj", 1, kv, d, arena));
    RP_TRY(add_linear(model, RPEXEC_O, "self_attn.o_proj", 1, d, q, arena));
    if (c->attention_bias) {
        add_block(model, RPEXEC_SINKS, "self_attn.sinks", 1, c->heads, RPEXEC_INITIAL_NORMAL);
        model->block.tensors[model->block.tensor_count - 1].vector = true;
    }
    add_norms(c, model);
    RP_TRY(add_linears(c, arena, model));
    if (c->qk_norm) {
        add_block(model, RPEXEC_Q_NORM, "self_attn.q_norm.weight", 1, c->head_dim, ones);
        add_block(model, RPEXEC_K_NORM, "self_attn.k_norm.weight", 1, c->head_dim, ones);
    }
    add_tensor(&model->head, "model.norm.weight", 1, d, ones);
    add_tensor(&model->head, "lm_head.weight", c->vocab, d, RPEXEC_INITIAL_NORMAL);
    return add_adapters(c, arena, model);
}
