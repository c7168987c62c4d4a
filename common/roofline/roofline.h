/** @file roofline.h  Times of layers without measurements: FLOP and bytes of every operator over
 * the rates of the platform.
 *
 * An operator pass takes max(FLOP / rate, traffic / memory rate) + launches * launch overhead. FLOP
 * and least bytes are those of executor.md section 5. Traffic is the sum over the kernels of an
 * unfused (eager PyTorch) implementation, counted kernel by kernel in roofline.c. Matrix products,
 * attention and the loss are fused, so their traffic is the least. Rates:
 *
 *  - matrix products, LM head: gemm_efficiency x the peak of the run's arithmetic;
 *  - attention: attention_fwd_tflops and attention_bwd_tflops; in fp32 lower by the ratio of the
 *    peaks of fp32 products and of 16-bit products with fp32 accumulation; never above the peak;
 *  - memory: memory_effective_gb_per_s;
 *  - hop: rp_link_bytes_per_s, or peer_gb_per_s if all GPUs reach each other.
 *
 * If the platform has `sms` and the model `host_launch_us`, tables without measurements are
 * computed in more detail (rp_kernel_s); a pass of a layer then takes no less time than the host
 * needs to launch its kernels. Tables that move keep the ratio of the simple roofline, in which
 * details cancel. They move to another GPU, to another arithmetic, in which only products change
 * (in fp32 attention and traffic, too), or to both.
 *
 * Not modelled: a backward of an expert that writes the gradient of all experts (gpt-oss), experts
 * with uneven loads, routing that waits for the host.
 */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/costs.h"
#include "common/inputs/load/documents.h"
#include "common/inputs/model.h"
#include "common/inputs/platform.h"
#include "common/inputs/stacks/stack.h"

/** Sequences of a microbatch of the published tables, if neither a table nor an option gives its
 * size. */
#define RP_DEFAULT_SEQUENCES 4u
#define RP_DEFAULT_SEQ_LEN 2048u

/** Unit that limits an operator. */
typedef enum rp_unit {
    RP_UNIT_GEMM,
    RP_UNIT_ATTENTION,
    RP_UNIT_VECTOR, /**< memory-bound: norms, rotations, activations, routing, loss */
} rp_unit;

/** The passes of an operator. */
typedef enum rp_pass {
    RP_PASS_FORWARD,
    RP_PASS_BACKWARD_INPUT,  /**< computes gradients of its inputs */
    RP_PASS_BACKWARD_WEIGHT, /**< computes and accumulates gradients of its trainable weights */
    RP_PASS_COUNT
} rp_pass;

/** A pass of an operator over a microbatch. */
typedef struct rp_pass_work {
    double flops;
    double bytes;    /**< least traffic: every input read once, every output written once */
    double traffic;  /**< bytes that the actual kernels move, at least `bytes` */
    double launches; /**< kernels */
    double wide;     /**< traffic in fp32 */
} rp_pass_work;

/** A matrix product y = x W^T of x [rows, in] and W [out, in], or several such products. */
typedef struct rp_gemm_shape {
    double rows; /**< rows of all products together */
    double in;
    double out;
    double copies; /**< matrices W, among which the rows are divided equally */
    bool fp8;      /**< inputs are fp8, the result has 16 bits */
} rp_gemm_shape;

/** Kind of a memory-bound operator, whose traffic a stack may give. */
typedef enum rp_vector {
    RP_VECTOR_OTHER,
    RP_VECTOR_NORM,
    RP_VECTOR_LAYER_NORM, /**< PyTorch has a kernel of its own for it, each way */
    RP_VECTOR_ROPE,
    RP_VECTOR_ACTIVATION,
    RP_VECTOR_GELU, /**< not gated; a kernel of its own, each way */
    RP_VECTOR_RESIDUAL,
    RP_VECTOR_AROUND_ATTENTION,
    RP_VECTOR_ADAPTER, /**< the input of an adapter */
    RP_VECTOR_ACCUMULATION,
    RP_VECTOR_LOSS,
    RP_VECTOR_FUSED_LOSS,   /**< of a model with rp_model.fused_loss */
    RP_VECTOR_FP8_INPUT,    /**< the input of linear layers, cast to fp8 */
    RP_VECTOR_FP8_GRADIENT, /**< the gradient of their output, likewise */
    RP_VECTOR_DEQUANTISED,  /**< quantised weights, which a pass makes 16 bits of */
    RP_VECTOR_COUNT
} rp_vector;

typedef struct rp_operator {
    const char *name;
    rp_unit unit;
    rp_pass_work work[RP_PASS_COUNT];
    rp_gemm_shape gemm; /**< shape for RP_UNIT_GEMM; otherwise zero */
    rp_vector vector;   /**< for RP_UNIT_VECTOR */
    double elements;    /**< values to which bytes per value refer; of attention: of queries */
    double head_dim;    /**< for RP_UNIT_ATTENTION */
    uint32_t again; /**< policies of selective recompute (RP_AGAIN_*) that run its forward again */
    double again_share; /**< part of the operator that they run */
    uint32_t product;   /**< number of a linear layer's product in its layer, from 1; 0: no such */
} rp_operator;

/** Most operators of a layer or of the head: quantised and with an adapter, a linear layer has six
 * operators. */
#define RP_MAX_OPERATORS 112u

/**
 * Lists the operators of a transformer block.
 * @param layers the model
 * @param layer number of the layer: layers may be of several kinds, and only every other layer may
 * have a window
 * @param sequences sequences of the microbatch, at least 1, of seq_len tokens each
 * @param operators_out [RP_MAX_OPERATORS]
 * @return their number
 */
uint32_t rp_layer_operators(const rp_model *layers, uint32_t layer, uint32_t sequences,
                            uint32_t seq_len, rp_operator *operators_out);

/**
 * Counts the kernels that eager PyTorch launches for a layer without adapters, whose weights are
 * trained; every expert has tokens.
 * @param layer the model of the layer's kind
 */
double rp_layer_launches(const rp_model *layer, bool backward);

/** As rp_layer_operators, for final norm, LM head and chunked loss. */
uint32_t rp_head_operators(const rp_model *model, uint32_t sequences, uint32_t seq_len,
                           rp_operator *operators_out);

/**
 * Query-key pairs of causal attention, each of which takes 4 H h FLOP, or 2 H (h + h') if values
 * have h'.
 * @param window most earlier tokens that a query sees; 0: all
 * @return pairs of a sequence: s^2 / 2, or s w - w^2 / 2 with a window w < s
 */
double rp_attention_pairs(double seq_len, double window);

/** @return pairs of a sequence that is packed of documents, each of which attends to itself alone;
 * NULL: the sequence is a document */
double rp_packed_pairs(const rp_documents *documents, double seq_len, double window);

/** Bytes of the tensor between two layers, for a microbatch: 2 T d. */
double rp_boundary_bytes(const rp_model *model, uint32_t sequences, uint32_t seq_len);

/** A platform, the arithmetic used on it, and the software. */
typedef struct rp_roof {
    const rp_platform *platform;
    rp_arithmetic arithmetic; /**< when times are computed, USUAL is fp32, as in PyTorch */
    const rp_stack *stack;    /**< NULL: eager PyTorch's kernels, of which the host launches each in
                                 time */
} rp_roof;

/** @return peak of matrix products, FLOP/s; 0: the platform does not give it (fp32_tflops) */
double rp_peak_flops_per_s(const rp_roof *roof);

/** @return peak of a product, which may be that of fp8, FLOP/s */
double rp_product_peak(const rp_gemm_shape *gemm, const rp_roof *roof);

/** @return kernels of a layer that dequantise weights in a pass: about three for each linear layer
 * with NF4 (scales, their offset, values), otherwise one. @param layer the model of its kind */
double rp_dequantising_launches(const rp_model *layer, rp_frozen frozen);

/** @return rate of attention, FLOP/s; 0: the platform does not give it */
double rp_attention_flops_per_s(const rp_roof *roof, rp_pass pass);

/** As rp_attention_flops_per_s, for long sequences on a platform with `sms` (flash_fwd_tflops,
 * flash_bwd_tflops). */
double rp_flash_flops_per_s(const rp_roof *roof, rp_pass pass);

/** @return bytes that a pass moves: `traffic`, or `wide` in fp32 */
double rp_pass_traffic(const rp_pass_work *work, const rp_roof *roof);

/**
 * Gives the FLOP of matrix products and attention, to which peaks refer.
 * @param layer number of the layer; model->layers means final norm, head and loss
 * @param flop_out FLOP of each rp_pass
 */
void rp_layer_flop(const rp_model *model, uint32_t layer, uint32_t sequences, uint32_t seq_len,
                   double flop_out[RP_PASS_COUNT]);

/** A run whose kernels are timed. */
typedef struct rp_kernel_run {
    rp_roof roof; /**< rp_roofline_check accepts it, and its platform has `sms` */
    double seq_len;
    double host_launch_us;         /**< rp_model.host_launch_us */
    const rp_documents *documents; /**< rp_model.documents */
} rp_kernel_run;

/**
 * Time of a pass of an operator on a GPU whose multiprocessors the platform describes (`sms`):
 * tiles and waves of matrix products, attention by sequence length (kernels.c).
 * @return seconds on the GPU, launches included
 */
double rp_kernel_s(const rp_operator *op, rp_pass pass, const rp_kernel_run *run);

/**
 * Time of a matrix product by tiles and waves, on a GPU with `sms`.
 * @param share of the peak that it reaches within a tile
 * @return seconds
 */
double rp_gemm_s(const rp_gemm_shape *gemm, rp_pass pass, const rp_roof *roof, double share);

/** @return FLOP/s of products in 16 bits that the energy of a FLOP allows; INFINITY if nobody knows
 * it, or in fp32. */
double rp_power_flops_per_s(const rp_roof *roof, double power_limit_w);

/**
 * Rate of a matrix product in a stack's software. In 16 bits a GPU with measured products
 * (rp_products) takes the measured share of the peak for their very shapes, and for others that of
 * the nearest; otherwise the share follows from tiles, waves, product_share and power (products.c).
 * @param flops of all copies of the product, above 0
 * @return FLOP/s
 */
double rp_product_flops_per_s(const rp_gemm_shape *gemm, rp_pass pass, const rp_roof *roof,
                              double flops);

/** @return attention's pairs that are computed over those that are not masked.
 * @param documents NULL: the sequence is a document */
double rp_attention_masked(const rp_documents *documents, double seq_len);

/**
 * Time of a pass of an operator in a stack's software: products at `product_share` of the peak
 * within tiles, and no faster than the GPU's power allows; attention of the stack's kernel; passes
 * over activations by the stack's bytes per value (stack.c).
 * @param run its roof has a stack
 * @return seconds on the GPU, without the time between kernels
 */
double rp_stack_s(const rp_operator *op, rp_pass pass, const rp_kernel_run *run);

/**
 * Counts the kernels of a layer, experts' and adapters' included: the stack's numbers, or where
 * it has none those of eager PyTorch for the layer's shape (rp_layer_launches).
 * @param layer the model of the layer's kind
 */
double rp_stack_launches(const rp_stack *stack, const rp_model *layer, bool backward);

/**
 * Part of a layer's forward that a selective recompute runs again in the backward: by the stack's
 * times, or without a stack by those of the simple roofline.
 * @param layer number of the layer @param again RP_AGAIN_* @return share of the forward's time
 */
double rp_again_share(const rp_model *model, uint32_t layer, uint32_t sequences,
                      const rp_kernel_run *run, uint32_t again);

/** @return FLOP of products and attention that a selective recompute of a layer runs again. */
double rp_again_flop(const rp_model *model, uint32_t layer, uint32_t sequences, uint32_t seq_len,
                     uint32_t again);

/**
 * Bytes of a layer's tape that a selective recompute does not keep, and makes again in the backward
 * of this layer; per sequence.
 * @param stack whose policy it is; NULL: as rp_stack_again has it
 * @param tape_bytes the layer's whole tape (rp_sizes.tape_bytes), the most that is returned
 */
uint64_t rp_again_rebuilt_bytes(const rp_model *layers, uint32_t layer, uint32_t seq_len,
                                rp_dtype dtype, const rp_stack *stack, uint64_t tape_bytes);

/** @return kernels of a layer that a selective recompute launches again: the stack's number, or the
 * part of those of its forward that eager PyTorch would launch. @param layer as rp_stack_launches
 */
double rp_again_launches(const rp_stack *stack, const rp_model *layer);

/** Decides the host's work for a layer, beside its model. */
typedef struct rp_stack_host {
    const rp_stack *stack;
    double host_speed; /**< rp_platform.host_speed */
    bool tensor;       /**< several GPUs share the layer */
    bool sharded;      /**< its weights are gathered before each use */
    bool selective;    /**< backwards run parts of forwards again */
    rp_frozen frozen;  /**< rp_model.frozen */
} rp_stack_host;

/** @return seconds that the host needs for a layer's forward, or its backward.
 * @param layer the model of the layer's kind */
double rp_stack_host_s(const rp_stack_host *host, const rp_model *layer, bool backward);

/** @return seconds that the host needs around the layers of a microbatch. */
double rp_stack_microbatch_s(const rp_stack_host *host);

/** @return seconds of a pass under a roof that rp_roofline_check accepts. */
double rp_pass_s(const rp_operator *op, rp_pass pass, const rp_roof *roof);

/**
 * Checks that a platform has all values that the roofline needs.
 * @retval RP_OK, RP_INPUT (given as the reason, with the missing key)
 */
rp_status rp_roofline_check(const rp_roof *roof, rp_reason *reason);

/**
 * Makes a cost table from the roofline alone.
 * @param sequences sequences of a microbatch, of seq_len tokens each
 * @param costs_out named MODEL@GPU (roofline), with the arithmetic it is for; lives in `arena`
 * @retval RP_OK, RP_INPUT (a rate is missing, or the microbatch takes too long; given as the
 * reason), RP_NO_MEMORY
 */
rp_status rp_roofline_costs(const rp_model *model, const rp_roof *roof, uint32_t sequences,
                            uint32_t seq_len, rp_arena *arena, rp_costs *costs_out,
                            rp_reason *reason);

/**
 * Moves a measured table to another GPU or arithmetic: each time is multiplied by roofline there /
 * roofline here, for the table's own microbatch. No time falls below that of its FLOP at the peak.
 * @param costs_out named MODEL@GPU (moved from GPU), or TABLE (bf16) on the same GPU; equals
 * `measured` if both roofs are the same; lives in `arena`
 * @retval as rp_roofline_costs; RP_INPUT also if the numbers of layers differ
 */
rp_status rp_moved_costs(const rp_costs *measured, const rp_model *model, const rp_roof *from,
                         const rp_roof *to, rp_arena *arena, rp_costs *costs_out,
                         rp_reason *reason);

/**
 * Gives the table that a run on the measured table's GPU uses: the same table if the arithmetic of
 * run and table is the same or equally fast, or the table's is not known; otherwise the moved
 * table.
 * @param run platform and requested arithmetic. USUAL accumulation of fp16 means the table's
 * accumulation; fp16 if the table does not give it, and fp32 if the table is of another type
 * @param costs_out has the run's arithmetic, never USUAL; lives in `arena`
 * @retval as rp_moved_costs
 */
rp_status rp_costs_for_run(const rp_costs *measured, const rp_model *model, const rp_roof *run,
                           rp_arena *arena, rp_costs *costs_out, rp_reason *reason);

/**
 * Finds the table of a model on a platform by the first rule that applies: the measured table
 * MODEL@GPU (MODEL is rp_model.recorded); a table of the same model on another GPU, moved; the
 * roofline. rp_costs.source names the rule.
 * @param run platform and requested arithmetic, as for rp_costs_for_run
 * @param sequences,seq_len sizes of the run, for the roofline only: users of a table scale it
 * themselves
 * @param costs_out has the run's arithmetic, never USUAL
 * @retval RP_OK, RP_INPUT (given as the reason), RP_IO, RP_NO_MEMORY
 */
rp_status rp_find_costs(const rp_model *model, const rp_roof *run, uint32_t sequences,
                        uint32_t seq_len, rp_arena *arena, rp_costs *costs_out, rp_reason *reason);

/**
 * Time of a microbatch on one GPU that does nothing but products and attention, at their rates: the
 * forward and backward of all layers and the head in the stack `ideal`.
 * @param model whole layers: no GPU's part of them
 * @param run platform and arithmetic; its stack is not read
 * @param arena for the table, which the caller may drop
 * @retval as rp_roofline_costs; RP_INPUT also without traces/stacks/ideal.yaml (logged)
 */
rp_status rp_ideal_s(const rp_model *model, const rp_roof *run, uint32_t sequences,
                     uint32_t seq_len, rp_arena *arena, double *time_s_out, rp_reason *reason);
