/* What a selective recompute computes again of a layer, and the bytes that it keeps. */
#include "common/inputs/stacks/tape.h"
#include "common/roofline/roofline.h"

#include <math.h>

/* Share of an operator's forward that a backward runs again. */
static double share_of(const rp_operator *op, uint32_t again)
{
    return (op->again & again) != 0 ? op->again_share : 0;
}

double rp_again_share(const rp_model *model, uint32_t layer, uint32_t sequences,
                      const rp_kernel_run *run, uint32_t again)
{
    const rp_stack *stack = run->roof.stack;
    rp_operator operators[RP_MAX_OPERATORS];
    uint32_t count = rp_layer_operators(model, layer, sequences, (uint32_t)run->seq_len, operators);
    double whole_s = 0;
    double again_s = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rp_operator *op = &operators[i];
        double time_s = stack != NULL ? rp_stack_s(op, RP_PASS_FORWARD, run)
                                      : rp_pass_s(op, RP_PASS_FORWARD, &run->roof);
        whole_s += time_s;
        again_s += share_of(op, again) * time_s;
    }
    if (stack != NULL) {
        const rp_model *m = rp_model_of_layer(model, layer);
        whole_s += 1e-6 * stack->kernel_us * rp_stack_launches(stack, m, false);
        again_s += 1e-6 * stack->kernel_us * rp_again_launches(stack, m);
    }
    return whole_s > 0 ? again_s / whole_s : 0;
}

double rp_again_flop(const rp_model *model, uint32_t layer, uint32_t sequences, uint32_t seq_len,
                     uint32_t again)
{
    rp_operator operators[RP_MAX_OPERATORS];
    uint32_t count = rp_layer_operators(model, layer, sequences, seq_len, operators);
    double flop = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rp_operator *op = &operators[i];
        bool counts = op->unit != RP_UNIT_VECTOR;
        flop += counts ? share_of(op, again) * op->work[RP_PASS_FORWARD].flops : 0;
    }
    return flop;
}

double rp_again_launches(const rp_stack *stack, const rp_model *layer)
{
    rp_operator operators[RP_MAX_OPERATORS];
    rp_model dense = *layer;
    dense.lora_rank = dense.lora_linears = 0;
    dense.kinds = NULL;
    if (stack->selective_launches > 0) {
        return stack->selective_launches;
    }
    uint32_t count = rp_layer_operators(&dense, 0, 1, layer->experts, operators);
    double again = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rp_operator *op = &operators[i];
        again += share_of(op, rp_stack_again(stack)) * op->work[RP_PASS_FORWARD].launches;
    }
    return again * rp_stack_launches(stack, layer, false) / rp_layer_launches(layer, false);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* torch's policy on single operators keeps the layer's input, every other product from the first
 * on, and attention's output with a float per row of scores. */
static double kept_of_operators(const rp_model *m, const rp_operator *operators, uint32_t count,
                                double tokens, double v)
{
    double heads = m->heads;
    double kept = tokens * (v * heads * rp_model_value_dim(m) + sizeof(float) * heads);
    kept += v * tokens * m->hidden / (m->sequence_ranks > 1 ? m->sequence_ranks : 1);
    for (uint32_t i = 0; i < count; i++) {
        const rp_operator *op = &operators[i];
        kept += op->product % 2 == 1 ? v * op->gemm.rows * op->gemm.out : 0;
    }
    return kept;
}

/* Without a stack, whose tape has no sum of attention's heads but in a GPT (rp_sizes_of_model). A
 * recompute of sub-blocks makes the sub-block's inner values again, and its output if a product
 * alone has it: of a norm the fp32 copy (none in a LayerNorm's single kernel), the normalised value
 * and the output; of the MLP's activation what lies behind gate and up. Attention's output stays,
 * since the product behind it has it. */
static double rebuilt_of_blocks(const rp_model *m, double tokens, double v)
{
    double h = (double)m->hidden / (m->sequence_ranks > 1 ? m->sequence_ranks : 1);
    double q = (double)m->heads * m->head_dim;
    double kv = (double)m->kv_heads * m->head_dim;
    if (m->plain_mlp) {
        return tokens * (v * 2 * h + v * m->intermediate + sizeof(float) * m->heads);
    }
    double values = rp_model_layer_norms(m) * h + (m->qk_norm ? q + kv : 0);
    values += (double)m->kv_rank + m->q_rank;
    double ranks = m->routed_ranks > 1 ? m->routed_ranks : 1;
    double rows = (double)m->intermediate * m->active_experts / ranks + m->shared_intermediate;
    return tokens * ((4 + 2 * v) * values + 2 * v * rows);
}

/* As rebuilt_of_blocks, by what the software of a stack keeps: all of a sub-block's values but the
 * inputs of its norms, gate and up. */
static double rebuilt_of_stack(const rp_stack *stack, const rp_model *m, double tokens,
                               rp_dtype dtype)
{
    uint32_t again = rp_stack_again(stack);
    const rp_tape tape = rp_stack_tape(stack, m, dtype);
    double v = (double)rp_dtype_bytes(dtype);
    double bytes = (again & RP_AGAIN_ATTENTION) != 0 ? sizeof(float) * (double)m->heads : 0;
    if ((again & RP_AGAIN_NORMS) != 0) {
        double inputs = rp_model_layer_norms(m) * v * (double)rp_model_of_sequence(m, m->hidden);
        bytes += fmax(0, (double)(tape.norms + tape.inputs) - inputs);
    }
    if ((again & RP_AGAIN_ACTIVATION) != 0) {
        double ranks = m->routed_ranks > 1 ? m->routed_ranks : 1;
        double rows = (double)m->intermediate * m->active_experts / ranks + m->shared_intermediate;
        double inputs = (m->plain_mlp ? 1 : 2) * v * rows;
        bytes += fmax(0, (double)(tape.activation + tape.product) - inputs);
    }
    return tokens * bytes;
}

uint64_t rp_again_rebuilt_bytes(const rp_model *layers, uint32_t layer, uint32_t seq_len,
                                rp_dtype dtype, const rp_stack *stack, uint64_t tape_bytes)
{
    const rp_model *m = rp_model_of_layer(layers, layer);
    uint32_t again = rp_stack_again(stack);
    double v = (double)rp_dtype_bytes(dtype);
    double tape = (double)tape_bytes;
    double rebuilt = stack != NULL ? rebuilt_of_stack(stack, m, seq_len, dtype)
                                   : rebuilt_of_blocks(m, seq_len, v);
    if ((again & RP_AGAIN_SECOND_PRODUCTS) != 0) {
        rp_operator operators[RP_MAX_OPERATORS];
        uint32_t count = rp_layer_operators(layers, layer, 1, seq_len, operators);
        rebuilt = tape - kept_of_operators(m, operators, count, seq_len, v);
    }
    rebuilt = rebuilt < tape ? rebuilt : tape;
    return rebuilt > 0 ? (uint64_t)rebuilt : 0;
}
