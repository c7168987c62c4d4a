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

/* Rate of the stack's attention kernel, FLOP/s. FlashAttention 1 is about as fast with heads of 64
 * as with 128 (kernels.c), and its rates are the GPU's own. */
static double attention_rate(const rp_operator *op, rp_pass pass, const rp_roof *roof)
{
    const rp_platform *p = roof->platform;
    bool forward = pass == RP_PASS_FORWARD;
    double own = forward ? roof->stack->attention_fwd_share : roof->stack->attention_bwd_share;
    double share = own;
    switch (rp_stack_attention(roof->stack)) {
    case RP_ATTENTION_FLASH1:
        if (own <= 0 && (forward ? p->flash_fwd_tflops : p->flash_bwd_tflops) > 0) {
            return rp_flash_flops_per_s(roof, pass);
        }
        break;
    case RP_ATTENTION_FLASH2:
        share = own > 0 ? own : forward ? p->flash2_fwd_share : p->flash2_bwd_share;
        break;
    case RP_ATTENTION_CUDNN:
        share = own > 0 ? own : forward ? p->cudnn_fwd_share : p->cudnn_bwd_share;
        break;
    }
    double width = fmin(op->head_dim, HEAD) / HEAD;
    return share > 0 && roof->arithmetic.dtype != RP_DTYPE_F32
               ? share * rp_peak_flops_per_s(roof) * (NARROW_HEADS + (1 - NARROW_HEADS) * width)
               : rp_attention_flops_per_s(roof, pass);
}

static double attention_s(const rp_operator *op, rp_pass pass, const rp_kernel_run *run)
{
    const rp_roof *roof = &run->roof;
    return op->work[pass].flops * rp_attention_masked(run->documents, run->seq_len) /
           fmin(attention_rate(op, pass, roof), power_flops_per_s(roof));
}

/* Bytes per value of a kind of operator in a pass. */
static double bytes_per_value(const rp_stack *s, rp_vector kind, rp_pass pass)
{
    const double bytes[RP_VECTOR_COUNT][2] = {
        [RP_VECTOR_NORM] = {s->norm_fwd_bytes, s->norm_bwd_bytes},
        [RP_VECTOR_LAYER_NORM] = {s->norm_fwd_bytes, s->norm_bwd_bytes},
        [RP_VECTOR_ROPE] = {s->rope_fwd_bytes, s->rope_bwd_bytes},
        [RP_VECTOR_ACTIVATION] = {s->activation_fwd_bytes, s->activation_bwd_bytes},
        [RP_VECTOR_GELU] = {s->activation_fwd_bytes, s->activation_bwd_bytes},
        [RP_VECTOR_RESIDUAL] = {s->residual_fwd_bytes, s->residual_bwd_bytes},
        [RP_VECTOR_AROUND_ATTENTION] = {0, 0}, /* counted with attention */
        [RP_VECTOR_ADAPTER] = {s->adapter_fwd_bytes, s->adapter_bwd_bytes},
        [RP_VECTOR_LOSS] = {s->loss_bytes / 2, s->loss_bytes / 2},
        [RP_VECTOR_FUSED_LOSS] = {s->loss_bytes / 2, s->loss_bytes / 2},
        [RP_VECTOR_FP8_INPUT] = {s->fp8_input_bytes, s->fp8_transpose_bytes},
        [RP_VECTOR_FP8_GRADIENT] = {0, s->fp8_gradient_bytes},
    };
    return pass == RP_PASS_FORWARD          ? bytes[kind][0]
           : pass == RP_PASS_BACKWARD_INPUT ? bytes[kind][1]
                                            : 0;
}

/* Traffic of eager PyTorch's kernels in a pass; the input's has the weight's beside it. */
static double native_bytes(const rp_operator *op, rp_pass pass, const rp_roof *roof)
{
    double bytes = rp_pass_traffic(&op->work[pass], roof);
    return pass == RP_PASS_BACKWARD_INPUT
               ? bytes + rp_pass_traffic(&op->work[RP_PASS_BACKWARD_WEIGHT], roof)
               : bytes;
}

static double vector_bytes(const rp_operator *op, rp_pass pass, const rp_kernel_run *run)
{
    const rp_stack *stack = run->roof.stack;
    double wide = (double)rp_dtype_bytes(run->roof.arithmetic.dtype) / 2;
    double bytes = wide * bytes_per_value(stack, op->vector, pass) * op->elements;
    switch (op->vector) {
    case RP_VECTOR_OTHER:
    case RP_VECTOR_DEQUANTISED:
    case RP_VECTOR_COUNT:
        return rp_pass_traffic(&op->work[pass], &run->roof);
    case RP_VECTOR_ACCUMULATION:
        return pass == RP_PASS_BACKWARD_WEIGHT ? stack->accumulation_bytes * op->elements : 0;
    case RP_VECTOR_LAYER_NORM:
    case RP_VECTOR_GELU:
    case RP_VECTOR_FUSED_LOSS: /* already a single kernel in PyTorch */
        return fmin(bytes, native_bytes(op, pass, &run->roof));
    case RP_VECTOR_NORM:
    case RP_VECTOR_ROPE:
    case RP_VECTOR_ACTIVATION:
    case RP_VECTOR_RESIDUAL:
    case RP_VECTOR_AROUND_ATTENTION:
    case RP_VECTOR_ADAPTER:
    case RP_VECTOR_LOSS:
    case RP_VECTOR_FP8_INPUT:
    case RP_VECTOR_FP8_GRADIENT:
        break;
    }
    return bytes;
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

double rp_stack_launches(const rp_stack *stack, const rp_model *layer, bool backward)
{
    double launches = backward ? stack->launches_bwd : stack->launches_fwd;
    double adapter = backward ? stack->adapter_launches_bwd : stack->adapter_launches_fwd;
    if (launches == 0) {
        launches = rp_layer_launches(layer, backward);
    } else if (layer->experts > 1) {
        launches += rp_model_held_experts(layer) *
                    (backward ? stack->expert_launches_bwd : stack->expert_launches_fwd);
    }
    return launches + adapters_of(layer) * adapter;
}

double rp_stack_host_s(const rp_stack_host *host, const rp_model *layer, bool backward)
{
    const rp_stack *s = host->stack;
    double launches = rp_stack_launches(s, layer, backward);
    double collectives = 0;
    launches += backward && host->selective ? rp_again_launches(s, layer) : 0;
    launches += rp_dequantising_launches(layer, host->frozen);
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
