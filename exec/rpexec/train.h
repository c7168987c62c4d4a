/** @file train.h  A training run: programs of some steps each, data, checkpoints, progress. */
#pragma once

#include "exec/run/execute.h"
#include "exec/setup/setup.h"

/** Results of a run; arrays live in the arena of rpexec_train. */
typedef struct rpexec_outcome {
    uint32_t gpus;
    uint32_t steps;             /**< steps that this run has made */
    uint64_t first_step;        /**< 0, or the step from which it was resumed */
    double *losses;             /**< [steps] */
    double *norms;              /**< [steps] norms of the gradients, before clipping */
    double *rates;              /**< [steps] learning rates */
    uint32_t evaluations;       /**< evaluations that this run has made */
    double *eval_steps;         /**< [evaluations] step after which it was made, from 1 on */
    double *eval_losses;        /**< [evaluations] mean over --eval-data */
    double *iteration_ms;       /**< [steps] */
    double tokens_per_s;        /**< rate of the steps after the first, by the timeline; a single
                                     step's own rate */
    double wall_tokens_per_s;   /**< rate of all steps, by the host's clock, with planning and
                                     transfers of state between programs */
    double executed_flop;       /**< FLOP of a step of the last program (rpexec_executed_flop) */
    double executed_flop_per_s; /**< FLOP/s over the same time as tokens_per_s */
    uint64_t *peak_gpu_bytes;   /**< [gpus] */
    uint64_t uploaded_bytes;    /**< bytes of all steps */
    uint64_t downloaded_bytes;
    uint64_t exchanged_bytes;          /**< bytes received by GPUs from GPUs */
    uint64_t network_bytes;            /**< bytes sent between processes */
    rpexec_graph_counts graphs;        /**< all 0 without --graphs */
    rpexec_attention_report attention; /**< `by` NULL: the backend has no devices */
    rpexec_pinning pinning;            /**< of the arrays of copies; all 0 on the host */
    const char *transport;             /**< way of exchange: rpexec_driver_type; NULL: no devices */
    double loss_scale;                 /**< scale after the last step; 1 without loss scaling */
    uint64_t skipped_steps;            /**< steps skipped so far because of an overflow, also before
                                            this run */
    double predicted_iteration_ms; /**< median of the last program's simulated iterations, without
                                        the first if there are several; NaN without --predict */
    double prediction_error_pct;   /**< against the same median of the measured iterations */
    double busy_pct;       /**< share of the processors that other programs used during the run
                                (load.h) */
    double costs_busy_pct; /**< the same while the costs of the prediction were recorded, if these
                                are marked; 0 without --predict */
    bool checked;
    double max_grad_rel_err; /**< largest error of the first step's elements against a single
                                device, relative to rms + value */
    double max_grad_rms_err; /**< the same for whole tensors: rms of the difference over the rms */
    double max_loss_rel_err; /**< largest relative error of all steps' losses */
    uint32_t loss_apart;     /**< the first step, from 1 on, whose loss differs more than --check
                                  allows; 0: none */
    uint32_t norm_apart; /**< the first step, after steps with the same bits, whose gradients' norm
                              differs more; 0: none */
    double norm_rel_err; /**< relative error of the norm in step norm_apart */
    bool same_bits;      /**< losses and the first step's gradients are equal */
} rpexec_outcome;

/**
 * Trains as the options say; with --program-in they are set to the program's values. Progress goes
 * to stderr if that is a terminal. With --save a SIGINT or SIGTERM ends the run after the step that
 * it is in (an asynchronous one may have begun two) and a checkpoint; without it a signal exits at
 * once.
 * @param processes processes that train together with the same options; only process 0 writes
 *        files. NULL: there is a single process
 * @retval RP_OK, RP_INTERRUPTED (saved; logged), RP_USAGE, RP_INPUT (before anything runs; logged),
 * RP_INVALID_PROGRAM, RP_TOOL, RP_BROKEN, RP_LOST (another process has failed), RP_IO,
 * RP_NO_MEMORY; RP_TOOL also if --check finds a difference (logged)
 */
rp_status rpexec_train(rpexec_options *options, rp_arena *arena, rpexec_processes *processes,
                       rpexec_outcome *outcome_out);

/** @return seconds to wait for other processes of a run: by then their own watchdogs have given up,
 * if they can (--watchdog-s). */
static inline uint32_t rpexec_patience_s(const rpexec_options *options)
{
    return 2 * options->watchdog_s;
}

/**
 * Trains as a process of a launch, or alone. Several processes compare program, options and the
 * inputs that they have read before anything is written.
 * @retval as rpexec_train; RP_USAGE (in all processes) if these differ, logged by process 0
 */
rp_status rpexec_train_together(rpexec_options *options, const rpexec_launch *launch,
                                rp_arena *arena, rpexec_outcome *outcome_out);
