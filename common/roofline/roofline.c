/* Operators of a decoder: FLOP, bytes, traffic of unfused kernels, launches. Traffic counts follow
 * the kernels of an eager PyTorch implementation in 16 bits: bytes per element, read and written.
 * The comment of each operator lists them. */
#include "common/roofline/roofline.h"

#include "common/inputs/types/stored.h"

#include <math.h>

#define F RP_PASS_FORWARD
#define BI RP_PASS_BACKWARD_INPUT
#define BW RP_PASS_BACKWARD_WEIGHT

/* Bytes per element and kernels of a pass of a memory-bound operator. */
typedef struct vector_pass {
    double flops;
    double bytes;
    double traffic;
    double launches;
} vector_pass;

/* RMSNorm: cast 2 + 4, square 4 + 4, mean 4, times r 4 + 4, cast 4 + 2, weight 2 + 2 = 36, less the
 * 2 of a weight that stays in cache: 34. Backward: weight 4, casts 12, r 8, gradient of r 16,
 * square 16, sum of both branches 12 = 68, and 8 for the weight's own gradient. */
static const vector_pass norm_passes[RP_PASS_COUNT] = {{4, 4, 34, 6}, {9, 6, 68, 11}, {0, 0, 8, 1}};
/* Traffic in fp32: no casts, twice as much for the weight. All other passes move twice as much. */
static const double wide_norm[RP_PASS_COUNT] = {28, 60, 16};
/* a cos 4, negate half 2, concatenate 4, times sin 4, add 6. Backward: two products 8, slices that
 * write zeros and copy 10, negate 2, two sums 10. */
static const vector_pass rope_passes[RP_PASS_COUNT] = {
    {3, 4, 20, 10}, {3, 4, 30, 20}, {0, 0, 0, 0}};
/* silu 4, product 6. Backward: two products 12, silu 6. */
static const vector_pass swiglu_passes[RP_PASS_COUNT] = {
    {6, 6, 10, 2}, {12, 10, 18, 3}, {0, 0, 0, 0}};
/* gpt-oss: biases 8, two clamps 8, scale 4, sigmoid 4, product 6, + 1 4, product 6. Backward: three
 * products 24, sigmoid 6, scale 4, sum 6, two clamps 12, interleaved slices 12. */
static const vector_pass clamped_passes[RP_PASS_COUNT] = {
    {8, 6, 40, 8}, {16, 10, 64, 14}, {0, 0, 0, 0}};
/* LayerNorm as a single kernel, forward and backward; another kernel for gradients of weight and
 * bias. */
static const vector_pass layer_norm_passes[RP_PASS_COUNT] = {
    {8, 4, 4, 1}, {12, 6, 6, 1}, {4, 4, 4, 1}};
static const vector_pass gelu_passes[RP_PASS_COUNT] = {{10, 4, 4, 1}, {20, 6, 6, 1}, {0, 0, 0, 0}};
/* A bias is added by the matrix product; its gradient is a sum over the rows. */
static const vector_pass bias_passes[RP_PASS_COUNT] = {{0, 0, 0, 0}, {0, 0, 0, 0}, {1, 2, 2, 1}};
/* Beside fused attention, per element of q. Backward: rows of output times gradient 4; an fp32 sum
 * for the gradient of q that is cleared 4, read 4 and cast 2; as q, k and v are parts of a single
 * tensor, the three gradients are joined 12. */
static const vector_pass around_passes[RP_PASS_COUNT] = {
    {0, 0, 0, 0}, {2, 16, 26, 4}, {0, 0, 0, 0}};
/* Megatron-LM's kernels on the scores of unfused attention: scale, mask and softmax in a single
 * kernel 4; a dropout with its mask 5. Backward: dropout 5, softmax 6. */
static const vector_pass scores_passes[RP_PASS_COUNT] = {{8, 4, 9, 2}, {8, 6, 11, 2}, {0, 0, 0, 0}};
/* Its fused kernel takes blocks of FUSED_MATRICES matrices of scores. Other numbers of matrices go
 * through PyTorch's kernels in fp32: cast 6, scale 8, mask 9, softmax 8, cast 6, dropout 5.
 * Backward: dropout 5, cast 6, softmax 12, mask 9, scale 8, cast 6
 * (FusedScaleMaskSoftmax.is_kernel_available). */
static const vector_pass loose_scores_passes[RP_PASS_COUNT] = {
    {8, 4, 42, 6}, {8, 6, 46, 6}, {0, 0, 0, 0}};
#define FUSED_MATRICES 4.0
/* Beside unfused attention, per element of q: bias of the three 12, output made contiguous 4.
 * Backward: gradients of q, k and v joined 12. */
static const vector_pass around_unfused_passes[RP_PASS_COUNT] = {
    {3, 16, 16, 2}, {0, 12, 12, 1}, {0, 0, 0, 0}};
/* Bias, dropout with its mask and residual in a single kernel 7. Backward: dropout 5, sum with the
 * residual's gradient 6. */
static const vector_pass dropped_residual_passes[RP_PASS_COUNT] = {
    {3, 7, 7, 1}, {2, 11, 11, 2}, {0, 0, 0, 0}};
static const vector_pass residual_passes[RP_PASS_COUNT] = {
    {1, 6, 6, 1}, {1, 6, 6, 1}, {0, 0, 0, 0}};
/* Joins the rotated and the unrotated parts of queries and keys. */
static const vector_pass join_passes[RP_PASS_COUNT] = {{0, 4, 4, 2}, {0, 4, 4, 2}, {0, 0, 0, 0}};
/* Routing, per router logit: cast 6, softmax 8, top-k 4. */
static const vector_pass routing_passes[RP_PASS_COUNT] = {
    {5, 4, 18, 6}, {5, 4, 30, 9}, {0, 0, 0, 0}};
/* Rows gathered for an expert; kernels per expert: selection of rows, their tokens, the gather. */
static const vector_pass gather_passes[RP_PASS_COUNT] = {{0, 4, 4, 3}, {1, 4, 6, 2}, {0, 0, 0, 0}};
/* Output times routing weight 4, added to the tokens' rows 6. Backward: gather 4, products 10. */
static const vector_pass combine_passes[RP_PASS_COUNT] = {
    {2, 4, 10, 2}, {2, 4, 14, 5}, {0, 0, 0, 0}};
/* An adapter's output scaled 4 and added 6; backward: scaled 4; see add_adapter. */
static const vector_pass adapter_passes[RP_PASS_COUNT] = {
    {2, 4, 10, 2}, {1, 4, 4, 1}, {0, 0, 0, 0}};
static const vector_pass adapter_input_passes[RP_PASS_COUNT] = {
    {0, 0, 0, 0}, {1, 4, 6, 1}, {0, 0, 0, 0}};
/* Logits are read for the log-sum-exp and turned into their gradient in place, in chunks. */
static const vector_pass loss_passes[RP_PASS_COUNT] = {{3, 2, 2, 2}, {2, 4, 4, 2}, {0, 0, 0, 0}};

/* Megatron-LM's vocab_parallel_cross_entropy as kernels: cast, maximum, difference, 3 to select the
 * targets held here, 3 for their columns, 4 for their logits, exponential, sum, quotient,
 * logarithm, difference; then mask and mean over tokens 4, mean over copies 3, scales 2. Backward:
 * scales 2, sum 1, mask 1, 6 for the targets, scale 1, cast 1. The schedule decides their traffic
 * (rp_traits.unfused_loss). */
static const vector_pass unfused_loss_passes[RP_PASS_COUNT] = {
    {3, 2, 2, 27}, {2, 4, 4, 12}, {0, 0, 0, 0}};
/* A cross-entropy for a metric: cast 6, log-softmax in fp32 that reads each row three times and
 * writes it once 16; rows of a vocabulary are too long to stay in a cache. */
static const vector_pass metric_passes[RP_PASS_COUNT] = {{6, 2, 22, 3}, {0, 0, 0, 0}, {0, 0, 0, 0}};

/* A cast to fp8 as a kernel: the input, and the gradient of the output. */
static const vector_pass fp8_input_passes[RP_PASS_COUNT] = {
    {2, 3, 3, 1}, {0, 2, 2, 1}, {0, 0, 0, 0}};
static const vector_pass fp8_gradient_passes[RP_PASS_COUNT] = {
    {0, 0, 0, 0}, {2, 5, 5, 2}, {0, 0, 0, 0}};

typedef struct builder {
    const rp_model *model;
    rp_operator *operators;
    uint32_t count;
    uint32_t products; /* of linear layers so far */
    bool trained;      /* the base weights are trained */
    bool fp8;          /* linear layers multiply in fp8 */
    rp_frozen frozen;  /* as what their weights are stored */
} builder;

static rp_operator *add_operator(builder *b, const char *name, rp_unit unit)
{
    rp_operator *op = &b->operators[b->count++];
    *op = (rp_operator){.name = name, .unit = unit, .again_share = 1};
    return op;
}

static rp_vector kind_of(const vector_pass *passes)
{
    const struct {
        const vector_pass *passes;
        rp_vector kind;
    } kinds[] = {{norm_passes, RP_VECTOR_NORM},
                 {layer_norm_passes, RP_VECTOR_LAYER_NORM},
                 {rope_passes, RP_VECTOR_ROPE},
                 {swiglu_passes, RP_VECTOR_ACTIVATION},
                 {gelu_passes, RP_VECTOR_GELU},
                 {residual_passes, RP_VECTOR_RESIDUAL},
                 {around_passes, RP_VECTOR_AROUND_ATTENTION},
                 {adapter_input_passes, RP_VECTOR_ADAPTER},
                 {loss_passes, RP_VECTOR_LOSS},
                 {fp8_input_passes, RP_VECTOR_FP8_INPUT},
                 {fp8_gradient_passes, RP_VECTOR_FP8_GRADIENT}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].passes == passes) {
            return kinds[i].kind;
        }
    }
    return RP_VECTOR_OTHER;
}

/* Policies of selective recompute that run an operator's forward again. */
static uint32_t again_of(const vector_pass *passes)
{
    bool norm = passes == norm_passes || passes == layer_norm_passes;
    bool activation = passes == swiglu_passes || passes == clamped_passes || passes == gelu_passes;
    bool scores = passes == scores_passes || passes == loose_scores_passes;
    return RP_AGAIN_SECOND_PRODUCTS | (norm ? RP_AGAIN_NORMS : 0) |
           (activation ? RP_AGAIN_ACTIVATION : 0) | (scores ? RP_AGAIN_ATTENTION : 0);
}

/* Adds a vector operator; its weight gradients (of norms) are left out if the weights are
 * frozen. */
static void add_vector(builder *b, const char *name, const vector_pass *passes, double elements,
                       double copies)
{
    rp_operator *op = add_operator(b, name, RP_UNIT_VECTOR);
    op->vector = kind_of(passes);
    op->elements = elements;
    op->again = again_of(passes);
    for (int p = 0; p < RP_PASS_COUNT; p++) {
        bool runs = p != BW || b->trained;
        const vector_pass *v = &passes[p];
        double wide = passes == norm_passes ? wide_norm[p] : 2 * v->traffic;
        op->work[p] =
            runs ? (rp_pass_work){v->flops * elements, v->bytes * elements, v->traffic * elements,
                                  v->launches * copies, wide * elements}
                 : (rp_pass_work){0};
    }
}

/* y = x W^T over `rows` rows, spread over `copies` matrices. Backward: dx = dy W; dW = dy^T x. */
static void add_gemm(builder *b, const char *name, double rows, double in, double out,
                     double copies, bool trained)
{
    rp_operator *op = add_operator(b, name, RP_UNIT_GEMM);
    double bytes = 2 * (rows * in + copies * in * out + rows * out);
    rp_pass_work work = {2 * rows * in * out, bytes, bytes, copies, 2 * bytes};
    op->gemm = (rp_gemm_shape){rows, in, out, copies, false};
    op->work[F] = op->work[BI] = work;
    if (trained) {
        op->work[BW] = work;
    }
    op->product = ++b->products;
    op->again = op->product % 2 == 0 ? RP_AGAIN_SECOND_PRODUCTS : 0;
}

/* Adds the accumulation of the new gradient onto the sum of earlier microbatches: 6 bytes per
 * parameter (sim/model.md section 2, term 1). */
static void add_accumulation(builder *b, double parameters, double kernels)
{
    rp_operator *op = add_operator(b, "gradient accumulation", RP_UNIT_VECTOR);
    op->vector = RP_VECTOR_ACCUMULATION;
    op->elements = parameters;
    op->work[BW] =
        (rp_pass_work){parameters, 2 * parameters, 6 * parameters, kernels, 12 * parameters};
}

/* x A^T, times B^T, scaled and added to the frozen matrix's output. */
static void add_adapter(builder *b, double rows, double in, double out, double copies)
{
    double rank = b->model->lora_rank;
    add_gemm(b, "adapter A", rows, in, rank, copies, true);
    add_gemm(b, "adapter B", rows, rank, out, copies, true);
    add_vector(b, "adapter sum", adapter_passes, rows * out, copies);
    add_vector(b, "adapter input gradient", adapter_input_passes, rows * in, copies);
}

/* Bytes per weight of making 16 bits of a quantised weight: its values and scales are read, the
 * result is written. NF4 first makes fp32 of its scales, adds their offset and reads them (with a
 * float of 4 bytes per block: 8 + 4 written and read, and 8 bits read). */
static double dequantised_bytes(rp_frozen frozen)
{
    double nf4 = frozen == RP_FROZEN_NF4 ? 1 + 4 + 8 : 0;
    const uint64_t side = 4096; /* of a matrix so large that its tables do not matter */
    rp_stored stored = rp_stored_matrix(frozen, side, side, 2);
    return 2 + (double)(stored.values + stored.scales) / ((double)side * (double)side) +
           nf4 / RP_NF4_BLOCK;
}

static double dequantising_kernels(rp_frozen frozen)
{
    return frozen == RP_FROZEN_NF4 ? 3 : rp_frozen_is_quantised(frozen) ? 1 : 0;
}

/* A linear layer whose weights are stored in other values than they multiply in makes these in each
 * forward, and again for the gradient of its input. */
static void add_dequantising(builder *b, double in, double out, double copies)
{
    if (!rp_frozen_is_quantised(b->frozen) || (b->frozen == RP_FROZEN_FP8 && b->fp8)) {
        return;
    }
    rp_operator *op = add_operator(b, "dequantising", RP_UNIT_VECTOR);
    double weights = in * out * copies;
    double bytes = dequantised_bytes(b->frozen) * weights;
    op->vector = RP_VECTOR_DEQUANTISED;
    op->elements = weights;
    op->work[F] = op->work[BI] =
        (rp_pass_work){weights, bytes, bytes, copies * dequantising_kernels(b->frozen), bytes};
}

/* A GPU's part of tokens that the GPUs of a tensor group may share. */
static double shared_tokens(const rp_model *m, double tokens)
{
    return m->sequence_ranks > 1 ? tokens / m->sequence_ranks : tokens;
}

static void add_bias(builder *b, double elements, double copies)
{
    add_vector(b, "bias", bias_passes, elements, copies);
}

static void add_linear(builder *b, const char *name, double rows, double in, double out,
                       double copies)
{
    add_dequantising(b, in, out, copies);
    add_gemm(b, name, rows, in, out, copies, b->trained);
    if (b->fp8) {
        rp_operator *op = &b->operators[b->count - 1];
        double bytes = rows * in + copies * in * out + 2 * rows * out;
        op->gemm.fp8 = true;
        for (int p = 0; p < RP_PASS_COUNT; p++) {
            op->work[p].bytes = op->work[p].traffic = op->work[p].flops > 0 ? bytes : 0;
        }
    }
    if (b->model->linear_bias) {
        add_bias(b, rows * out, copies);
    }
    if (b->model->lora_rank != 0 && rp_model_adapts(b->model, name)) {
        add_adapter(b, rows, in, out, copies);
    }
}

double rp_attention_pairs(double seq_len, double window)
{
    bool limited = window > 0 && window < seq_len;
    return limited ? seq_len * window - window * window / 2 : seq_len * seq_len / 2;
}

/* Each of the two products has two inputs, whose gradients are products of the same size. */
static void add_unfused_attention(builder *b, double sequences, double seq_len)
{
    const rp_model *m = b->model;
    double matrices = sequences * m->heads;
    double rows = matrices * seq_len;
    add_gemm(b, "scores", rows, m->head_dim, seq_len, matrices, true);
    bool fused = fmod(matrices, FUSED_MATRICES) == 0;
    add_vector(b, "softmax", fused ? scores_passes : loose_scores_passes, rows * seq_len, 1);
    add_gemm(b, "values", rows, seq_len, m->head_dim, matrices, true);
    for (int i = 1; i <= 3; i += 2) { /* a single kernel for all matrices */
        rp_operator *op = &b->operators[b->count - (uint32_t)i];
        for (int p = 0; p < RP_PASS_COUNT; p++) {
            op->work[p].launches = 1;
        }
        op->again = RP_AGAIN_ATTENTION | RP_AGAIN_SECOND_PRODUCTS;
        op->product = 0;
    }
    b->products -= 2;
}

static void add_attention(builder *b, const rp_model *layers, uint32_t layer, double sequences,
                          double seq_len)
{
    const rp_model *m = b->model;
    if (m->megatron_kernels) {
        add_unfused_attention(b, sequences, seq_len);
        return;
    }
    rp_operator *op = add_operator(b, "attention", RP_UNIT_ATTENTION);
    double pairs =
        sequences * rp_packed_pairs(layers->documents, seq_len, rp_model_window(layers, layer));
    double widths = (double)m->head_dim + rp_model_value_dim(m);
    double flops = 2 * pairs * m->heads * widths;
    double bytes = 2 * sequences * seq_len * ((double)m->heads + m->kv_heads) * widths;
    op->elements = sequences * seq_len * m->heads * m->head_dim;
    op->head_dim = m->head_dim;
    op->again = RP_AGAIN_ATTENTION;
    op->work[F] = (rp_pass_work){flops, bytes, bytes, 1, 2 * bytes};
    op->work[BI] = (rp_pass_work){2.5 * flops, 2 * bytes, 2 * bytes, 3, 4 * bytes};
}

/* Adds the experts that every token goes through, as a single gated MLP whose output is weighted
 * and added. */
static void add_shared(builder *b, double tokens)
{
    const rp_model *m = b->model;
    double f = m->shared_intermediate;
    if (m->shared_intermediate == 0) {
        return;
    }
    add_linear(b, "shared gate", tokens, m->hidden, f, 1);
    add_linear(b, "shared up", tokens, m->hidden, f, 1);
    add_vector(b, "shared SwiGLU", swiglu_passes, tokens * f, 1);
    add_linear(b, "shared down", tokens, f, m->hidden, 1);
    if (m->mlp_bias) {
        add_bias(b, tokens * (2 * f + m->hidden), 3);
    }
    if (m->shared_gate) {
        add_gemm(b, "weight of shared experts", tokens, m->hidden, 1, 1, b->trained);
        add_vector(b, "weighting", combine_passes, tokens * m->hidden, 1);
    } else {
        add_vector(b, "shared sum", residual_passes, tokens * m->hidden, 1);
    }
}

/* Experts share the rows evenly; with few rows not every expert has a row. If tokens are sent to
 * experts, each GPU of a tensor group routes and weights its part of the tokens; experts that the
 * group shares compute all of its tokens. */
static void add_mlp(builder *b, double tokens)
{
    const rp_model *m = b->model;
    if (m->plain_mlp) {
        add_linear(b, "up", tokens, m->hidden, m->intermediate, 1);
        add_vector(b, "GELU", gelu_passes, tokens * m->intermediate, 1);
        add_linear(b, "down", tokens, m->intermediate, m->hidden, 1);
        if (m->mlp_bias) {
            add_bias(b, tokens * ((double)m->intermediate + m->hidden), 2);
        }
        return;
    }
    double own = rp_model_dispatches_parts(m) ? shared_tokens(m, tokens) : tokens;
    double rows = (m->routed_ranks > 1 ? own : tokens) * m->active_experts;
    double copies = fmin(rp_model_held_experts(m), rows);
    bool sparse = m->experts > 1;
    if (sparse) {
        add_gemm(b, "router", own, m->hidden, m->experts, 1, b->trained);
        add_vector(b, "routing", routing_passes, own * m->experts, 1);
        add_vector(b, "gather", gather_passes, rows * m->hidden, copies);
    }
    add_linear(b, "gate", rows, m->hidden, m->intermediate, copies);
    add_linear(b, "up", rows, m->hidden, m->intermediate, copies);
    add_vector(b, m->expert_bias ? "clamped SwiGLU" : "SwiGLU",
               m->expert_bias ? clamped_passes : swiglu_passes, rows * m->intermediate, copies);
    add_linear(b, "down", rows, m->intermediate, m->hidden, copies);
    if (sparse) {
        add_vector(b, "combine", combine_passes, own * m->active_experts * m->hidden, copies);
    } else if (m->mlp_bias) {
        add_bias(b, tokens * (2.0 * m->intermediate + m->hidden), 3);
    }
    add_shared(b, tokens);
}

/* Adds the projections to queries, keys and values; latent vectors have norms. Returns the number
 * of matrices. */
static double add_projections(builder *b, double tokens)
{
    const rp_model *m = b->model;
    rp_model_linear linears[RP_MODEL_ATTENTION_LINEARS];
    uint32_t count = rp_model_attention_linears(m, linears) - 1; /* the last matrix is o */
    for (uint32_t i = 0; i < count; i++) {
        add_linear(b, linears[i].name, tokens, (double)linears[i].in, (double)linears[i].out, 1);
        if (m->qkv_bias && linears[i].bias) {
            add_bias(b, tokens * (double)linears[i].out, 1);
        }
    }
    if (m->kv_rank != 0) {
        add_vector(b, "latent norms", norm_passes, tokens * ((double)m->kv_rank + m->q_rank),
                   m->q_rank != 0 ? 2 : 1);
        add_vector(b, "joins", join_passes, 2 * tokens * m->heads * m->head_dim, 1);
    }
    return count;
}

/* A recompute ends where it has made the last value that a backward needs: the input of a dense
 * MLP's last product. It runs the first of the two residual sums. */
static void end_recompute(builder *b)
{
    bool sparse = b->model->experts > 1;
    b->operators[b->count - 1].again_share = 0.5;
    for (uint32_t i = 0; i < b->count && !sparse; i++) {
        rp_operator *op = &b->operators[i];
        op->again = op->product == b->products ? 0 : op->again;
    }
}

/* Rotated elements of queries and keys. */
static double rotated_of(const rp_model *m)
{
    return m->kv_rank != 0 ? (m->heads + 1.0) * m->rope_dim
                           : (double)m->heads * m->head_dim + (double)m->kv_heads * m->head_dim;
}

/* Number of matrices of a layer whose gradients a kernel adds up; adapters have two matrices each
 * and may be on some of the linear layers only.
 */
static double accumulations(const rp_model *m, double of_attention)
{
    if (m->lora_linears != 0) {
        uint32_t linears = (uint32_t)__builtin_popcount(m->lora_linears);
        uint32_t of_mlp = rp_model_adapted_mlp(m);
        return 2.0 * (linears - of_mlp + of_mlp * rp_model_held_experts(m));
    }
    double matrices = of_attention + (double)rp_model_mlp_matrices(m) * rp_model_held_experts(m);
    matrices += m->shared_intermediate != 0 ? 3 : 0;
    return matrices * (m->lora_rank != 0 ? 2 : 1);
}

/* Casts around the linear layers of a block, if they multiply in fp8: q, k and v have one input,
 * and so have gate and up. */
static void add_casts(builder *b, double tokens)
{
    const rp_model *m = b->model;
    double q = (double)m->heads * m->head_dim;
    double kv = 2.0 * m->kv_heads * m->head_dim;
    double active = (double)m->active_experts * m->intermediate + m->shared_intermediate;
    double inputs = m->experts > 1 ? m->active_experts : 1;
    if (b->fp8) {
        double in = (1 + inputs) * m->hidden + q + active;
        double out = q + kv + (1 + inputs) * m->hidden + (rp_model_mlp_matrices(m) - 1) * active;
        add_vector(b, "fp8 inputs", fp8_input_passes, tokens * in, 4);
        add_vector(b, "fp8 gradients", fp8_gradient_passes, tokens * out, 4);
    }
}

uint32_t rp_layer_operators(const rp_model *layers, uint32_t layer, uint32_t sequences,
                            uint32_t seq_len, rp_operator *operators_out)
{
    const rp_model *model = rp_model_of_layer(layers, layer);
    builder b = {.model = model,
                 .operators = operators_out,
                 .trained = model->lora_rank == 0,
                 .fp8 = layers->fp8_products,
                 .frozen = model->lora_rank != 0 ? layers->frozen : RP_FROZEN_DTYPE};
    double tokens = (double)sequences * seq_len;
    double d = model->hidden;
    double q = (double)model->heads * model->head_dim;
    double kv = (double)model->kv_heads * model->head_dim;
    double norms = rp_model_layer_norms(model);
    double projections = 1;
    add_vector(&b, "norms", model->layer_norm ? layer_norm_passes : norm_passes,
               norms * shared_tokens(model, tokens) * d, norms);
    if (model->learned_positions) { /* GPT: a single matrix for q, k and v */
        add_linear(&b, "qkv", tokens, d, q + 2 * kv, 1);
        add_vector(&b, "around attention",
                   model->megatron_kernels ? around_unfused_passes : around_passes, tokens * q, 1);
    } else {
        projections = add_projections(&b, tokens);
    }
    if (model->qk_norm) {
        add_vector(&b, "QK-norm", norm_passes, tokens * (q + kv), 2);
    }
    if (!model->learned_positions) {
        add_vector(&b, "RoPE", rope_passes, tokens * rotated_of(model), 1);
    }
    add_attention(&b, layers, layer, sequences, seq_len);
    add_linear(&b, "o", tokens, (double)model->heads * rp_model_value_dim(model), d, 1);
    if (model->output_bias) {
        add_bias(&b, tokens * d, 1);
    }
    add_mlp(&b, tokens);
    add_vector(&b, "residuals", model->megatron_kernels ? dropped_residual_passes : residual_passes,
               2 * shared_tokens(model, tokens) * d, 2);
    end_recompute(&b);
    add_accumulation(&b, (double)rp_model_trainable_layer(model),
                     accumulations(model, projections + 1));
    add_casts(&b, tokens);
    return b.count;
}

double rp_layer_launches(const rp_model *layer, bool backward)
{
    rp_operator operators[RP_MAX_OPERATORS];
    rp_model dense = *layer;
    dense.lora_rank = dense.lora_linears = 0;
    dense.kinds = NULL;
    uint32_t count = rp_layer_operators(&dense, 0, 1, layer->experts, operators);
    double launches = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rp_pass_work *work = operators[i].work;
        launches += backward ? work[BI].launches + work[BW].launches : work[F].launches;
    }
    return launches;
}

uint32_t rp_head_operators(const rp_model *model, uint32_t sequences, uint32_t seq_len,
                           rp_operator *operators_out)
{
    builder b = {.model = model, .operators = operators_out, .trained = model->lora_rank == 0};
    double tokens = (double)sequences * seq_len;
    add_vector(&b, "final norm", model->layer_norm ? layer_norm_passes : norm_passes,
               shared_tokens(model, tokens) * model->hidden, 1);
    add_gemm(&b, "LM head", tokens, model->hidden, model->vocab, 1, b.trained);
    if (model->megatron_kernels) {
        add_vector(&b, "loss", unfused_loss_passes, tokens * model->vocab, 1);
    } else {
        add_vector(&b, "loss", loss_passes, tokens * model->vocab, ceil(tokens / 4096));
        if (model->fused_loss) {
            b.operators[b.count - 1].vector = RP_VECTOR_FUSED_LOSS;
        }
    }
    if (model->loss_metrics != 0) {
        add_vector(&b, "metrics", metric_passes, tokens * model->vocab * model->loss_metrics,
                   model->loss_metrics);
    }
    if (b.trained) {
        add_accumulation(&b, (double)model->embedding_parameters, 1);
    }
    return b.count;
}

double rp_boundary_bytes(const rp_model *model, uint32_t sequences, uint32_t seq_len)
{
    return 2.0 * sequences * seq_len * model->hidden;
}

void rp_layer_flop(const rp_model *model, uint32_t layer, uint32_t sequences, uint32_t seq_len,
                   double flop_out[RP_PASS_COUNT])
{
    rp_operator operators[RP_MAX_OPERATORS];
    uint32_t count = layer < model->layers
                         ? rp_layer_operators(model, layer, sequences, seq_len, operators)
                         : rp_head_operators(model, sequences, seq_len, operators);
    for (int p = 0; p < RP_PASS_COUNT; p++) {
        flop_out[p] = 0;
        for (uint32_t i = 0; i < count; i++) {
            bool counts = operators[i].unit != RP_UNIT_VECTOR;
            flop_out[p] += counts ? operators[i].work[p].flops : 0;
        }
    }
}

double rp_dequantising_launches(const rp_model *layer, rp_frozen frozen)
{
    rp_model_linear linears[RP_MODEL_ATTENTION_LINEARS];
    double count = rp_model_attention_linears(layer, linears);
    count += (double)rp_model_mlp_matrices(layer) * rp_model_held_experts(layer);
    count += layer->shared_intermediate != 0 ? 3 : 0;
    return layer->lora_rank != 0 ? count * dequantising_kernels(frozen) : 0;
}
