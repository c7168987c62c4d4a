/* Counts of modules, tensors and kernel launches of a model, as the library's dispatcher sees
 * them. */
#include "sim/engine/dispatch.h"

/* Modules of a linear layer; with LoRA PEFT wraps it into 11. */
static uint32_t linear_modules(const rp_model *m)
{
    return m->lora_rank != 0 ? 11 : 1;
}

static uint32_t linear_launches(const rp_model *m)
{
    return m->lora_rank != 0 ? 5 : 1;
}

/* Three linear layers (gate, up and down), the activation and the container. */
static uint32_t mlp_modules(const rp_model *m)
{
    return 3 * linear_modules(m) + 2;
}

static uint32_t attention_linears(const rp_model *m)
{
    rp_model_linear linears[RP_MODEL_ATTENTION_LINEARS];
    return rp_model_attention_linears(m, linears);
}

/* Norms of queries and keys, or of latent vectors. */
static uint32_t inner_norms(const rp_model *m)
{
    return (m->qk_norm ? 2 : 0) + (m->kv_rank != 0 ? 1 : 0) + (m->q_rank != 0 ? 1 : 0);
}

/* Biases of single linear layers, of the MLP and of the router. Biases that all attention layers
 * have (gpt-oss) or all linear layers (plain MLPs) are not among them. */
static uint32_t biases_of(const rp_model *m)
{
    rp_model_linear linears[RP_MODEL_ATTENTION_LINEARS];
    uint32_t count = rp_model_attention_linears(m, linears);
    uint32_t biases = m->mlp_bias ? rp_model_mlp_matrices(m) : 0;
    for (uint32_t i = 0; i < count; i++) {
        biases += linears[i].bias && !m->attention_bias && !m->linear_bias ? 1 : 0;
    }
    return biases + (m->router_bias ? 1 : 0);
}

/* True if all experts share a single tensor: these experts and their router are no linear
 * layers. */
static bool has_one_tensor(const rp_model *m)
{
    return m->expert_bias;
}

static uint64_t layer_modules(const rp_model *m)
{
    uint32_t attention = attention_linears(m) * linear_modules(m) + inner_norms(m) + 1;
    uint32_t norms_and_layer = rp_model_layer_norms(m) + 1;
    uint64_t shared = m->shared_intermediate != 0 ? mlp_modules(m) + (m->shared_gate ? 1 : 0) : 0;
    uint64_t mlp = mlp_modules(m);
    if (m->experts > 1) {
        uint32_t block = 1;
        mlp = has_one_tensor(m) ? block + 2
                                : block + linear_modules(m) + 1 + (uint64_t)m->experts * mlp;
    }
    return attention + norms_and_layer + mlp + shared;
}

uint64_t rpsim_layer_launches(const rp_model *m)
{
    uint64_t mlp = 3 * linear_launches(m);
    uint64_t experts = has_one_tensor(m) ? m->active_experts : m->experts;
    uint64_t shared = m->shared_intermediate != 0 ? mlp : 0;
    return 40 + shared + (m->experts > 1 ? experts * (10 + mlp) : mlp);
}

/* Trained tensors: norms and linear layers; with LoRA two tensors for each linear layer. */
static uint64_t layer_tensors(const rp_model *m)
{
    uint64_t linear = attention_linears(m) + (uint64_t)3 * m->experts + (m->experts > 1 ? 1 : 0);
    uint64_t biases = (m->attention_bias ? 5 : 0) + biases_of(m); /* with the sinks */
    linear += m->shared_intermediate != 0 ? (m->shared_gate ? 4 : 3) : 0;
    if (has_one_tensor(m)) { /* two expert tensors and the router, each with a bias */
        linear = 4 + 2;
        biases += m->lora_rank != 0 ? 0 : 4;
    }
    return m->lora_rank != 0 ? 2 * linear
                             : linear + biases + rp_model_layer_norms(m) + inner_norms(m);
}

int64_t rpsim_dispatch_host_ps(const rpsim_dispatch_counts *counts, const rp_op *op,
                               int64_t object_ps)
{
    bool layer = rp_op_layer(op) > 0 && rp_op_layer(op) <= counts->layers;
    uint64_t tensors = counts->layer_tensors;
    bool all = rp_op_kinds[op->kind].phase == RP_PHASE_STEP;
    uint64_t objects = all ? counts->layers * tensors : layer ? counts->layer_modules + tensors : 0;
    int64_t ps = 0;
    bool endless = __builtin_mul_overflow(object_ps, objects, &ps);
    return endless ? INT64_MAX : ps;
}

/* Limits the counts of absurdly large models to UINT32_MAX. */
static uint32_t count_of(uint64_t count)
{
    return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

/* The count of a layer; if layers differ, the mean over all layers. */
static uint32_t mean_of(const rp_model *model, uint64_t (*count)(const rp_model *layer))
{
    uint64_t total = 0;
    if (model->kinds == NULL) {
        return count_of(count(model));
    }
    for (uint32_t i = 0; i < model->layers; i++) {
        total += count_of(count(rp_model_of_layer(model, i)));
    }
    return (uint32_t)(total / model->layers);
}

rp_status rpsim_dispatch_count(const rp_program *program, const rp_model *model,
                               uint32_t queue_depth, rp_arena *arena,
                               rpsim_dispatch_counts *counts_out)
{
    rpsim_dispatch_counts counts = {.queue_depth = queue_depth,
                                    .layer_launches = mean_of(model, rpsim_layer_launches),
                                    .layers = model->layers,
                                    .layer_modules = mean_of(model, layer_modules),
                                    .layer_tensors = mean_of(model, layer_tensors),
                                    .routing = model->experts > 1};
    size_t stages = program->stage_count;
    RP_TRY(rp_arena_alloc(arena, stages * RP_OP_KIND_COUNT, sizeof(uint32_t), &counts.launches));
    RP_TRY(rp_arena_alloc(arena, stages, sizeof(uint32_t), &counts.modules));
    for (uint32_t s = 0; s < stages; s++) {
        const rp_stage *stage = &program->stages[s];
        uint32_t head = (stage->roles & RP_STAGE_HEAD) != 0 ? RPSIM_HEAD_LAUNCHES : 0;
        bool runs = (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0;
        uint64_t forward = 0;
        uint64_t modules = head != 0 ? 2 : 0;
        for (uint32_t i = stage->layer_begin; i < stage->layer_end; i++) {
            forward += rpsim_layer_launches(rp_model_of_layer(model, i));
            modules += layer_modules(rp_model_of_layer(model, i));
        }
        uint32_t *of = &counts.launches[s * RP_OP_KIND_COUNT];
        of[RP_OP_FORWARD] = count_of((runs ? forward : 0) + head + 1);
        of[RP_OP_RECOMPUTE] = count_of(forward + 1);
        of[RP_OP_BACKWARD] = count_of(2 * (forward + head) + 1);
        of[RP_OP_BACKWARD_INPUT] = count_of(forward + head + 1);
        of[RP_OP_BACKWARD_WEIGHT] = count_of(forward + head + 1);
        counts.modules[s] = count_of(modules);
    }
    *counts_out = counts;
    return RP_OK;
}
