/** @file train.h  A training run: programs of some steps each, data, checkpoints, progress. */
#pragma once

#include "exec/rpexec/options_internal.h"
#include "exec/run/execute.h"

/** Results of a run; arrays live in the arena of rpexec_train. */
typedef struct rpexec_outcome {
    uint32_t gpus;
    uint32_t steps;             /**< that this run has made */
    uint64_t first_step;        /**< 0, or where it was resumed */
    double *losses;             /**< [steps] */
    double *norms;              /**< [steps] of the gradients, before clipping */
    double *rates;              /**< [steps] learning rates */
    uint32_t evaluations;       /**< that this run has made */
    double *eval_steps;         /**< [evaluations] after which step, from 1 on */
    double *eval_losses;        /**< [evaluations] mean over --eval-data */
    double *iteration_ms;       /**< [steps] */
    double tokens_per_s;        /**< of the steps after the first, by the timeline; of one, that */
    double wall_tokens_per_s;   /**< of all steps by the host's clock, with planning and transfers
                                     of state between programs */
    double executed_flop;       /**< of a step of the last program (rpexec_executed_flop) */
    double executed_flop_per_s; /**< over the same time as tokens_per_s */
    uint64_t *peak_gpu_bytes;   /**< [gpus] */
    uint64_t uploaded_bytes;    /**< of all steps */
    uint64_t downloaded_bytes;
    uint64_t exchanged_bytes;          /**< received by GPUs from GPUs */
    uint64_t network_bytes;            /**< sent from process to process */
    rpexec_graph_counts graphs;        /**< all 0 without --graphs */
    rpexec_attention_report attention; /**< `by` is NULL where the backend has no devices */
    rpexec_pinning pinning;            /**< of what copies start from; all 0 on the host */
    const char *transport;             /**< way of exchange: rpexec_driver_type; NULL: no devices */
    double loss_scale;                 /**< after the last step; 1 without loss scaling */
    uint64_t skipped_steps;            /**< of all steps so far, because of an overflow */
    double predicted_iteration_ms; /**< median of the last program's iterations, without its first
                                        where there are several; NaN without --predict */
    double prediction_error_pct;   /**< against the same of the measured ones */
    double busy_pct;       /**< of the processors that others used during the run (load.h) */
    double costs_busy_pct; /**< the same while the costs that predict were recorded, where
                                they are marked; 0 without --predict */
    bool checked;
    double
        max_grad_rel_err; /**< of the first step's elements, against one device: of rms + value */
    double max_grad_rms_err; /**< the same of whole tensors: rms of the difference over the rms */
    double max_loss_rel_err; /**< of all steps */
    uint32_t loss_apart; /**< the first step, from 1 on, whose loss is further apart than --check
                              allows; 0: none */
    uint32_t norm_apart; /**< the first step whose gradients' norm is, after the same bits */
    double norm_rel_err; /**< there */
    bool same_bits;      /**< losses and the first step's gradients are equal */
} rpexec_outcome;

/**
 * Trains as the options say; with --program-in they say afterwards what the program does. Progress
 * goes to stderr where that is a terminal.
 * With --save a SIGINT or SIGTERM ends the run after the step that it is in (an asynchronous one
 * may have begun two) and a checkpoint; without it a signal exits at once.
 * @param processes processes that train together with the same options, of which process 0 alone
 *        writes files; NULL: there is one
 * @retval RP_OK, RP_INTERRUPTED (saved; logged), RP_USAGE, RP_INPUT (before anything runs; logged),
 * RP_INVALID_PROGRAM, RP_TOOL, RP_BROKEN, RP_LOST (another process has failed), RP_IO,
 * RP_NO_MEMORY; RP_TOOL also where --check finds a difference (logged)
 */
rp_status rpexec_train(rpexec_options *options, rp_arena *arena, rpexec_processes *processes,
                       rpexec_outcome *outcome_out);

/** @return seconds that other processes of a run are waited for: they have given up themselves by
 * then, where they can (--watchdog-s). */
static inline uint32_t rpexec_patience_s(const rpexec_options *options)
{
    return 2 * options->watchdog_s;
}

/**
 * Trains as one of the processes of a launch, or alone. Several compare program, options and what
 * they have read before anything is written.
 * @retval as rpexec_train; RP_USAGE (in all processes) where these differ, logged by process 0
 */
rp_status rpexec_train_together(rpexec_options *options, const rpexec_launch *launch,
                                rp_arena *arena, rpexec_outcome *outcome_out);
