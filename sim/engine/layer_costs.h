/** @file layer_costs.h  Times of compute ops on hardware: measured layer times moved to other
 * numbers of tokens and other sequence lengths.
 *
 * t(tok, s) = a + (T - a - att(s_ref) + att(s)) * tok / tok_ref (sim/model.md section 2, term 1)
 * with T the table's time for tok_ref tokens in sequences of s_ref; att(s) is the causal
 * attention's time for tok_ref tokens: 2 s H h FLOP per token in a forward (fewer in layers with a
 * sliding window) and 2.5 times as many in a backward. a is the part that does not depend on
 * tokens: in a backward, 3 values per trained parameter (accumulating dW) at memory bandwidth. MoE
 * layers add the least time of a kernel for each launch, in both passes, because experts' kernels
 * are short.
 *
 * a is at most T, and att(s_ref) at most T - a; if att(s_ref) is cut, att(s) shrinks by the same
 * ratio. So times of short sequences stay positive, and they grow with s and with tok at any rates.
 * In MoE layers whose experts are trained, the backward's a is bwd - 2 fwd, since each expert's
 * backward writes a full dW for any number of tokens (the same source, for gpt-oss).
 *
 * A platform's layer_time_factor multiplies all of this, head and loss included.
 *
 * A selective recompute adds to a layer's backward the share of its forward that it runs again.
 *
 * A pass takes no less time than the host needs to launch its kernels, if the host's work is known.
 *
 * The table's head held the logits of all tokens at once. A fused loss works on chunks of tokens,
 * which adds memory traffic to the head's backward; an unfused loss adds traffic of its own.
 */
#pragma once

#include "common/base/reason.h"
#include "common/base/units.h"
#include "common/inputs/costs.h"
#include "common/program/program.h"
#include "common/roofline/roofline.h"
#include "sim/engine/dispatch.h"

/** Effective rates of a GPU that the table does not contain; they come from the platform file. */
typedef struct rpsim_gpu_rates {
    double attention_fwd_flops; /**< FLOP/s of the attention kernel, forward */
    double attention_bwd_flops;
    double memory_bytes_per_s;   /**< effective */
    double value_bytes;          /**< bytes of a weight; 0: 2 */
    double loss_bytes_per_logit; /**< memory traffic of an unfused loss; 0: fused */
    uint32_t loss_chunk_tokens;  /**< tokens in a chunk of a fused loss; 0: all tokens at once */
    double launch_s;             /**< least time of a kernel */
    double time_factor;          /**< multiplies all times of layers and head; 0: 1 */
    /** Time that a layer's forward and backward lose to FSDP's collectives beside them and to the
     * kernels that prepare these (sim/model.md section 13): seconds, and seconds per parameter. */
    double collective_fwd_s;
    double collective_bwd_s;
    double collective_fwd_parameter_s;
    double collective_bwd_parameter_s;
    double update_s;      /**< time of the host during which an optimizer step on the GPU waits */
    double update_passes; /**< memory traffic of an optimizer step over RP_GPU_ADAM_BYTES; 0: 1 */
    rp_stack_host host; /**< the host's work, beside which passes take no less; stack NULL: none */
    /** Time of a layer's tensor collectives in a direction, during which the host goes on: seconds,
     * and seconds per token. */
    double tensor_s;
    double tensor_token_s;
    /** [layers] selective recompute: share of a layer's forward at the table's sizes that its
     * backward runs again; NULL: none. */
    const double *again;
    bool again_attention;     /**< attention is in this share */
    uint32_t sequence_slices; /**< slices into which a sequence is cut, a program holding a single
                                 slice; 0 or 1: whole sequences */
} rpsim_gpu_rates;

/** Times of a GPU's ops over those of the table's GPU, where cards differ. */
typedef struct rpsim_gpu_factor {
    double pass;   /**< of passes of layers and head, at least 1 */
    double update; /**< of an update's memory traffic */
} rpsim_gpu_factor;

/** Compute times of a lowered program. */
typedef struct rpsim_compute_costs {
    int64_t *ps;        /**< [class][stage][RP_OP_KIND_COUNT] */
    int64_t *gpu_ps;    /**< as ps, without waits for the host; NULL: there are none */
    uint32_t *class_of; /**< [microbatch] microbatches of as many sequences share a class */
    uint32_t stage_count;
    int64_t *layer_ps; /**< [class][layers + 1][RP_OP_KIND_COUNT] times of each layer, then of the
                          head, as stages of their own: those of ops that name a layer */
    int64_t *alone_ps; /**< as layer_ps, without waits for the host */
    uint32_t layer_count;      /**< layers + 1, the head included */
    double memory_ps_per_byte; /**< time per byte of an update; 0: the bytes take no time */
    int64_t update_ps;         /**< time of an update beside its traffic */
    const rpsim_gpu_factor *gpu_factor; /**< [GPU of the program] NULL: all are the table's GPU */
    rpsim_dispatch_counts dispatch;     /**< queue_depth is 0 unless the caller sets it */
} rpsim_compute_costs;

/** @return the time in ps of a pass of the program, on the table's GPU. @param waits for the host,
 * too */
static inline int64_t rpsim_pass_ps(const rpsim_compute_costs *costs, const rp_op *op, bool waits)
{
    bool alone = !waits && costs->gpu_ps != NULL;
    size_t of_class = costs->class_of[op->microbatch];
    uint32_t layer = rp_op_layer(op);
    if (layer != 0) {
        size_t row = of_class * costs->layer_count + layer - 1u;
        return (alone ? costs->alone_ps : costs->layer_ps)[row * RP_OP_KIND_COUNT + op->kind];
    }
    size_t row = of_class * costs->stage_count + op->stage;
    return (alone ? costs->gpu_ps : costs->ps)[row * RP_OP_KIND_COUNT + op->kind];
}

/** @return the time in ps of a pass of the program, on the table's GPU. */
static inline int64_t rpsim_compute_ps(const rpsim_compute_costs *costs, const rp_op *op)
{
    return rpsim_pass_ps(costs, op, true);
}

/** @return the time in ps of any compute op, by its number, on a GPU with this factor. Ops other
 * than passes (UPDATE) stream their bytes through memory. */
static inline int64_t rpsim_op_ps_by(const rpsim_compute_costs *costs, const rp_program *program,
                                     uint32_t op, const rpsim_gpu_factor *factor)
{
    if (!rp_op_kind_is_pass((rp_op_kind)program->ops[op].kind)) {
        double ps = (double)program->op_bytes[op] * costs->memory_ps_per_byte;
        return rp_round_ps(factor != NULL ? ps * factor->update : ps) + costs->update_ps;
    }
    int64_t ps = rpsim_compute_ps(costs, &program->ops[op]);
    if (factor == NULL) {
        return ps;
    }
    int64_t gpu_ps = rpsim_pass_ps(costs, &program->ops[op], false); /* the host is no slower */
    int64_t on_card_ps = rp_round_ps((double)gpu_ps * factor->pass);
    return on_card_ps > ps ? on_card_ps : ps;
}

/** @return the time in ps of any compute op on its GPU. */
static inline int64_t rpsim_op_ps(const rpsim_compute_costs *costs, const rp_program *program,
                                  uint32_t op)
{
    const rpsim_gpu_factor *factors = costs->gpu_factor;
    return rpsim_op_ps_by(
        costs, program, op,
        factors != NULL ? &factors[program->queues[rp_program_queue_of(program, op)].gpu] : NULL);
}

/**
 * Computes the times of all stages for all microbatch sizes of `program`.
 * @param table measured for model on the platform's GPU
 * @param seq_len tokens per sequence of the run
 * @retval RP_OK, RP_INPUT (layers differ, or a stage takes hours; given as the reason),
 * RP_NO_MEMORY
 */
rp_status rpsim_compute_costs_create(const rp_program *program, const rp_costs *table,
                                     const rp_model *model, const rpsim_gpu_rates *rates,
                                     uint32_t seq_len, rp_arena *arena,
                                     rpsim_compute_costs *costs_out, rp_reason *reason);

/**
 * Gives the times of a class layer by layer.
 * @param waits with waits for a host that is late for a layer; a stage of several layers may wait
 * less, since the host is early for others
 * @param table_out its layers and times are set, the arrays live in `arena`; the rest stays
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_layer_table(const rpsim_compute_costs *costs, uint32_t of_class, bool waits,
                            rp_arena *arena, rp_costs *table_out);
