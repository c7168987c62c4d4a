/* Times of a layer's operators in the software of a stack. */
#include "common/roofline/roofline.h"

#include <math.h>

/* Attention with heads of 64 has about 0.8 of the rate with heads of 128: from memory of published
 * curves of FlashAttention 2 on H100, not checked against them. */
#define HEAD 128.0
#define NARROW_HEADS 0.6

/* FLOP/s that the card's power allows. */
static double power_flops_per_s(const rp_roof *roof)
{
    return rp_power_flops_per_s(roof, roof->platform->power_limit_w);
}

static double product_s(const rp_operator *op, rp_pass pass, const rp_roof *roof)
{
    double flops = op->work[pass].flops;
    return flops > 0 ? flops / rp_product_flops_per_s(&op->gemm, pass, roof, flops) : 0;
}

static double attention_s(const rp_operator *op, rp_pass pass, const rp_kernel_run *run)
{
    const rp_roof *roof = &run->roof;
    const rp_platform *p = roof->platform;
    bool forward = pass == RP_PASS_FORWARD;
    bool cudnn = rp_stack_has_cudnn(roof->stack);
    double share = cudnn     ? forward ? p->cudnn_fwd_share : p->cudnn_bwd_share
                   : forward ? p->flash2_fwd_share
                             : p->flash2_bwd_share;
    double own = forward ? roof->stack->attention_fwd_share : roof->stack->attention_bwd_share;
    share = own > 0 ? own : share;
    double width = fmin(op->head_dim, HEAD) / HEAD;
    double rate =
        share > 0 && roof->arithmetic.dtype != RP_DTYPE_F32
            ? share * rp_peak_flops_per_s(roof) * (NARROW_HEADS + (1 - NARROW_HEADS) * width)
            : rp_attention_flops_per_s(roof, pass);
    return op->work[pass].flops * rp_attention_masked(run->seq_len) /
           fmin(rate, power_flops_per_s(roof));
}

/* Bytes per value of a kind of operator in a pass. */
static double bytes_per_value(const rp_stack *s, rp_vector kind, rp_pass pass)
{
    const double bytes[RP_VECTOR_COUNT][2] = {
        [RP_VECTOR_NORM] = {s->norm_fwd_bytes, s->norm_bwd_bytes},
        [RP_VECTOR_ROPE] = {s->rope_fwd_bytes, s->rope_bwd_bytes},
        [RP_VECTOR_ACTIVATION] = {s->activation_fwd_bytes, s->activation_bwd_bytes},
        [RP_VECTOR_RESIDUAL] = {s->residual_fwd_bytes, s->residual_bwd_bytes},
        [RP_VECTOR_AROUND_ATTENTION] = {0, 0}, /* counted with attention */
        [RP_VECTOR_ADAPTER] = {s->adapter_fwd_bytes, s->adapter_bwd_bytes},
        [RP_VECTOR_LOSS] = {s->loss_bytes / 2, s->loss_bytes / 2},
    };
    return pass == RP_PASS_FORWARD          ? bytes[kind][0]
           : pass == RP_PASS_BACKWARD_INPUT ? bytes[kind][1]
                                            : 0;
}

static double vector_bytes(const rp_operator *op, rp_pass pass, const rp_kernel_run *run)
{
    const rp_stack *stack = run->roof.stack;
    double wide = (double)rp_dtype_bytes(run->roof.arithmetic.dtype) / 2;
    switch (op->vector) {
    case RP_VECTOR_OTHER:
    case RP_VECTOR_COUNT:
        return rp_pass_traffic(&op->work[pass], &run->roof);
    case RP_VECTOR_ACCUMULATION:
        return pass == RP_PASS_BACKWARD_WEIGHT ? stack->accumulation_bytes * op->elements : 0;
    case RP_VECTOR_NORM:
    case RP_VECTOR_ROPE:
    case RP_VECTOR_ACTIVATION:
    case RP_VECTOR_RESIDUAL:
    case RP_VECTOR_AROUND_ATTENTION:
    case RP_VECTOR_ADAPTER:
    case RP_VECTOR_LOSS:
        break;
    }
    return wide * bytes_per_value(stack, op->vector, pass) * op->elements;
}

/* Memory's rate in passes over activations: the stack's share, and no more than the GPU's kernels
 * reach. */
static double bytes_per_s(const rp_roof *roof)
{
    const rp_platform *p = roof->platform;
    double share = p->memory_gb_per_s * roof->stack->memory_share;
    double most = p->memory_effective_gb_per_s;
    return 1e9 * (most > 0 ? fmin(share, most) : share);
}

double rp_stack_s(const rp_operator *op, rp_pass pass, const rp_kernel_run *run)
{
    const rp_stack *stack = run->roof.stack;
    double byte_s = 1 / bytes_per_s(&run->roof);
    double least_s = byte_s * rp_pass_traffic(&op->work[pass], &run->roof);
    switch (op->unit) {
    case RP_UNIT_GEMM:
        return fmax(product_s(op, pass, &run->roof), least_s);
    case RP_UNIT_ATTENTION: {
        double around = pass == RP_PASS_BACKWARD_INPUT ? stack->attention_bwd_bytes : 0;
        return fmax(attention_s(op, pass, run), least_s) + byte_s * around * op->elements;
    }
    case RP_UNIT_VECTOR:
        break;
    }
    return byte_s * vector_bytes(op, pass, run);
}

/* ---- the host -------------------------------------------------------------------------------- */

/* Adapters that a layer's modules have: a dense layer's, or those of its attention and of each
 * expert. */
static double adapters_of(const rp_model *m)
{
    if (m->lora_rank == 0) {
        return 0;
    }
    double experts = rp_model_held_experts(m);
    if (m->lora_linears != 0) {
        double of_mlp = rp_model_adapted_mlp(m);
        return (uint32_t)__builtin_popcount(m->lora_linears) - of_mlp + of_mlp * experts;
    }
    return 4 + 3 * experts;
}

double rp_stack_host_s(const rp_stack_host *host, const rp_model *layer, bool backward)
{
    const rp_stack *s = host->stack;
    double experts = layer->experts > 1 ? rp_model_held_experts(layer) : 0;
    double launches = backward ? s->launches_bwd : s->launches_fwd;
    double collectives = 0;
    launches += experts * (backward ? s->expert_launches_bwd : s->expert_launches_fwd);
    launches += layer->qk_norm ? backward ? s->qk_norm_launches_bwd : s->qk_norm_launches_fwd : 0;
    launches += adapters_of(layer) * (backward ? s->adapter_launches_bwd : s->adapter_launches_fwd);
    if (host->tensor) {
        launches += backward ? s->tensor_launches_bwd : s->tensor_launches_fwd;
        collectives += backward ? s->tensor_collectives_bwd : s->tensor_collectives_fwd;
    }
    if (host->sharded) {
        collectives += backward ? s->sharded_collectives_bwd : s->sharded_collectives_fwd;
    }
    return 1e-6 * (launches * s->host_us_per_launch + collectives * s->host_us_per_collective) /
           host->host_speed;
}

double rp_stack_microbatch_s(const rp_stack_host *host)
{
    return 1e-6 * host->stack->host_us_per_microbatch / host->host_speed;
}
