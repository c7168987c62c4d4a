/** @file roofline.h  Times of layers that nobody has measured: FLOP and bytes of every operator
 * over the rates of the platform.
 *
 * An operator pass takes max(FLOP / rate, traffic / memory rate) + launches * launch overhead. FLOP
 * and least bytes are those of executor.md section 5. Traffic is what the kernels of
 * an unfused (eager PyTorch) implementation move, counted kernel by kernel in roofline.c; matrix
 * products, attention and the loss are fused: there, traffic is the least. Rates:
 *
 *  - matrix products, LM head: gemm_efficiency x the peak with fp16 accumulation;
 *  - attention: attention_fwd_tflops and attention_bwd_tflops;
 *  - memory: memory_effective_gb_per_s;
 *  - hop: rp_link_bytes_per_s, or peer_gb_per_s where all GPUs reach each other.
 *
 * Where the platform has `sms` and the model `host_launch_us`, tables that nobody has measured are
 * computed in more detail (rp_kernel_s), with the peak of fp32 accumulation; a pass of a layer then
 * takes no less than the host needs to launch its kernels. Tables that move keep the ratio of the
 * simple roofline, in which details cancel.
 *
 * Not modelled: one expert's backward that writes the gradient of all experts (gpt-oss), experts
 * with uneven loads, routing that waits for the host.
 */
#pragma once

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

/** A run, for times of its kernels. */
typedef struct rp_kernel_run {
    const rp_platform *platform; /**< rp_roofline_check accepts it, and it has `sms` */
    double seq_len;
    double host_launch_us; /**< rp_model.host_launch_us */
} rp_kernel_run;

/**
 * One pass of an operator on a GPU whose multiprocessors the platform describes (`sms`): tiles and
 * waves of matrix products, attention by sequence length (kernels.c).
 * @return seconds on the GPU, launches included
 */
double rp_kernel_s(const rp_operator *op, rp_pass pass, const rp_kernel_run *run);

/** @return seconds of one pass on a platform that rp_roofline_check accepts. */
double rp_pass_s(const rp_operator *op, rp_pass pass, const rp_platform *platform);

/**
 * Checks that a platform says all that the roofline needs.
 * @retval RP_OK, RP_INPUT (logged with the key that is missing)
 */
rp_status rp_roofline_check(const rp_platform *platform);

/**
 * A cost table from nothing but the roofline.
 * @param sequences of a microbatch; seq_len tokens each
 * @param costs_out named MODEL@GPU (roofline); lives in `arena`
 * @retval RP_OK, RP_INPUT (a rate is missing, or the microbatch takes too long; logged),
 * RP_NO_MEMORY
 */
rp_status rp_roofline_costs(const rp_model *model, const rp_platform *platform, uint32_t sequences,
                            uint32_t seq_len, rp_arena *arena, rp_costs *costs_out);

/**
 * Moves a measured table to another GPU: each time x roofline there / roofline here, for the
 * table's own microbatch.
 * @param costs_out named MODEL@GPU (moved from GPU); equals `measured` where both platforms are
 * the same; lives in `arena`
 * @retval as rp_roofline_costs; RP_INPUT also where the layers differ
 */
rp_status rp_moved_costs(const rp_costs *measured, const rp_model *model, const rp_platform *from,
                         const rp_platform *to, rp_arena *arena, rp_costs *costs_out);

/**
 * The table of a model on a platform, by the first rule that applies, where MODEL is
 * rp_model.recorded: MODEL@GPU as measured; a
 * table of the same model on another GPU, moved; the roofline. rp_costs.source says which.
 * @param sequences,seq_len of the run, for the roofline only: tables are scaled where they are used
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_find_costs(const rp_model *model, const rp_platform *platform, uint32_t sequences,
                        uint32_t seq_len, rp_arena *arena, rp_costs *costs_out);
