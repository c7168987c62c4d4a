/** @file roofline.h  Times of layers that nobody has measured: FLOP and bytes of every operator
 * over the rates of the platform.
 *
 * An operator pass takes max(FLOP / rate, traffic / memory rate) + launches * launch overhead. FLOP
 * and least bytes are those of executor.md section 5. Traffic is what the kernels of
 * an unfused (eager PyTorch) implementation move, counted kernel by kernel in roofline.c; matrix
 * products, attention and the loss are fused: there, traffic is the least. Rates:
 *
 *  - matrix products, LM head: gemm_efficiency x the peak of the run's arithmetic;
 *  - attention: attention_fwd_tflops and attention_bwd_tflops, in fp32 as much less as products
 *    are slower than those of 16 bits with fp32 accumulation; never above the peak;
 *  - memory: memory_effective_gb_per_s;
 *  - hop: rp_link_bytes_per_s, or peer_gb_per_s where all GPUs reach each other.
 *
 * Where the platform has `sms` and the model `host_launch_us`, tables that nobody has measured are
 * computed in more detail (rp_kernel_s); a pass of a layer then takes no less than the host needs
 * to launch its kernels. Tables that move keep the ratio of the simple roofline, in which details
 * cancel: to another GPU, to another arithmetic, where products alone change (in fp32 attention
 * and traffic, too), or both.
 *
 * Not modelled: one expert's backward that writes the gradient of all experts (gpt-oss), experts
 * with uneven loads, routing that waits for the host.
 */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/costs.h"
#include "common/inputs/model.h"
#include "common/inputs/platform.h"

/** A microbatch of the published tables, where neither a table nor an option says its size. */
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
    RP_PASS_BACKWARD_INPUT,  /**< gradients of its inputs */
    RP_PASS_BACKWARD_WEIGHT, /**< gradients of its trainable weights, accumulated */
    RP_PASS_COUNT
} rp_pass;

/** One pass of an operator over a microbatch. */
typedef struct rp_pass_work {
    double flops;
    double bytes;    /**< least traffic: every input read once, every output written once */
    double traffic;  /**< of the kernels as they are, at least `bytes` */
    double launches; /**< kernels */
    double wide;     /**< traffic in fp32 */
} rp_pass_work;

/** A matrix product y = x W^T of x [rows, in] and W [out, in], or of several of them. */
typedef struct rp_gemm_shape {
    double rows; /**< of all of them together */
    double in;
    double out;
    double copies; /**< matrices W, each with as many rows */
} rp_gemm_shape;

typedef struct rp_operator {
    const char *name;
    rp_unit unit;
    rp_pass_work work[RP_PASS_COUNT];
    rp_gemm_shape gemm; /**< RP_UNIT_GEMM; otherwise zero */
} rp_operator;

/** Most operators of a layer or of the head: adapters make five of each linear layer. */
#define RP_MAX_OPERATORS 96u

/**
 * The operators of one transformer block.
 * @param layers the model
 * @param layer its number: layers may be of several kinds, and windows of every other one
 * @param sequences of the microbatch, of seq_len tokens each; at least 1
 * @param operators_out [RP_MAX_OPERATORS]
 * @return their number
 */
uint32_t rp_layer_operators(const rp_model *layers, uint32_t layer, uint32_t sequences,
                            uint32_t seq_len, rp_operator *operators_out);

/** As rp_layer_operators, for final norm, LM head and chunked loss. */
uint32_t rp_head_operators(const rp_model *model, uint32_t sequences, uint32_t seq_len,
                           rp_operator *operators_out);

/**
 * FLOP of causal attention over a query-key pair count: 4 H h per pair, 2 H (h + h') where values
 * have h'.
 * @param window 0: every earlier token; otherwise at most so many
 * @return pairs of one sequence: s^2 / 2, with a window w < s it is s w - w^2 / 2
 */
double rp_attention_pairs(double seq_len, double window);

/** Bytes of the tensor between two layers, for a microbatch: 2 T d. */
double rp_boundary_bytes(const rp_model *model, uint32_t sequences, uint32_t seq_len);

/** A platform, and what is computed in there. */
typedef struct rp_roof {
    const rp_platform *platform;
    rp_arithmetic arithmetic; /**< where times are computed USUAL is fp32, as PyTorch has it */
} rp_roof;

/** @return peak of matrix products, FLOP/s; 0: the platform does not say it (fp32_tflops) */
double rp_peak_flops_per_s(const rp_roof *roof);

/** @return rate of attention, FLOP/s; 0: the platform does not say it */
double rp_attention_flops_per_s(const rp_roof *roof, rp_pass pass);

/** The same of a platform with `sms`, of long sequences (flash_fwd_tflops, flash_bwd_tflops). */
double rp_flash_flops_per_s(const rp_roof *roof, rp_pass pass);

/** @return bytes that a pass moves: `traffic`, in fp32 `wide` */
double rp_pass_traffic(const rp_pass_work *work, const rp_roof *roof);

/**
 * FLOP of matrix products and attention, which is what peaks are about.
 * @param layer its number, or model->layers: final norm, head and loss
 * @param flop_out by rp_pass
 */
void rp_layer_flop(const rp_model *model, uint32_t layer, uint32_t sequences, uint32_t seq_len,
                   double flop_out[RP_PASS_COUNT]);

/** A run, for times of its kernels. */
typedef struct rp_kernel_run {
    rp_roof roof; /**< rp_roofline_check accepts it, and its platform has `sms` */
    double seq_len;
    double host_launch_us; /**< rp_model.host_launch_us */
} rp_kernel_run;

/**
 * One pass of an operator on a GPU whose multiprocessors the platform describes (`sms`): tiles and
 * waves of matrix products, attention by sequence length (kernels.c).
 * @return seconds on the GPU, launches included
 */
double rp_kernel_s(const rp_operator *op, rp_pass pass, const rp_kernel_run *run);

/** @return seconds of one pass under a roof that rp_roofline_check accepts. */
double rp_pass_s(const rp_operator *op, rp_pass pass, const rp_roof *roof);

/**
 * Checks that a platform says all that the roofline needs.
 * @retval RP_OK, RP_INPUT (logged with the key that is missing)
 */
rp_status rp_roofline_check(const rp_roof *roof, rp_reason *reason);

/**
 * A cost table from nothing but the roofline.
 * @param sequences of a microbatch; seq_len tokens each
 * @param costs_out named MODEL@GPU (roofline), with the arithmetic it is for; lives in `arena`
 * @retval RP_OK, RP_INPUT (a rate is missing, or the microbatch takes too long; logged),
 * RP_NO_MEMORY
 */
rp_status rp_roofline_costs(const rp_model *model, const rp_roof *roof, uint32_t sequences,
                            uint32_t seq_len, rp_arena *arena, rp_costs *costs_out,
                            rp_reason *reason);

/**
 * Moves a measured table to another GPU or arithmetic: each time x roofline there / roofline here,
 * for the table's own microbatch. None falls below its FLOP at the peak.
 * @param costs_out named MODEL@GPU (moved from GPU), or TABLE (bf16) on the same one; equals
 * `measured` where both roofs are the same; lives in `arena`
 * @retval as rp_roofline_costs; RP_INPUT also where the layers differ
 */
rp_status rp_moved_costs(const rp_costs *measured, const rp_model *model, const rp_roof *from,
                         const rp_roof *to, rp_arena *arena, rp_costs *costs_out,
                         rp_reason *reason);

/**
 * A measured table as a run on the table's GPU has it: as it is where their arithmetic is the same
 * or equally fast, or the table's is not known; otherwise moved.
 * @param run what is asked for. USUAL accumulation of fp16 is the table's, or fp16 where that does
 * not say it, and fp32 where the table is of another type
 * @param costs_out has the run's arithmetic, never USUAL; lives in `arena`
 * @retval as rp_moved_costs
 */
rp_status rp_costs_for_run(const rp_costs *measured, const rp_model *model, const rp_roof *run,
                           rp_arena *arena, rp_costs *costs_out, rp_reason *reason);

/**
 * The table of a model on a platform, by the first rule that applies, where MODEL is
 * rp_model.recorded: MODEL@GPU as measured; a
 * table of the same model on another GPU, moved; the roofline. rp_costs.source says which.
 * @param run its platform, and the arithmetic that is asked for, as rp_costs_for_run has it
 * @param sequences,seq_len of the run, for the roofline only: tables are scaled where they are used
 * @param costs_out has the run's arithmetic, never USUAL
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_find_costs(const rp_model *model, const rp_roof *run, uint32_t sequences,
                        uint32_t seq_len, rp_arena *arena, rp_costs *costs_out, rp_reason *reason);
