/** @file card_factors.h  Times of ops on GPUs of several cards (rp_platform.cards). */
#pragma once

#include "common/base/reason.h"
#include "sim/engine/layer_costs.h"

/** Inputs of the factors of a program's GPUs. */
typedef struct rpsim_card_run {
    const rp_platform *platform;
    const rp_traits *traits;
    const rp_costs *table; /**< times on the platform's `gpu` */
    const rp_model *model; /**< of the table's layers */
    rp_arithmetic arithmetic;
    uint32_t gpus; /**< of the program */
} rpsim_card_run;

/**
 * Compares each GPU with the table's: the time of forward and backward of all layers and the head,
 * and device memory's rate. A table that is a roofline or a stack's is computed for the card as
 * well; measured times move to it by the simple roofline. A GPU of the program that stands for
 * several GPUs is as slow as the slowest of them.
 * @param factors_out [gpus]; NULL: all are the table's GPU
 * @retval RP_OK, RP_INPUT (a rate is missing, or a card is faster than the platform's `gpu`; given
 * as the reason), RP_NO_MEMORY
 */
rp_status rpsim_card_factors(const rpsim_card_run *run, rp_arena *arena,
                             const rpsim_gpu_factor **factors_out, rp_reason *reason);

/** @return the least time of all compute ops together, whichever GPU each is on. */
int64_t rpsim_card_least_ps(const rp_program *program, const rpsim_compute_costs *costs);

/** @return the mean peak of a run's GPUs, in FLOP/s; 0: a card's is not known.
 * @param roof of the platform's `gpu` @param gpus of the layout, the first of the platform */
double rpsim_card_mean_peak(const rp_roof *roof, uint32_t gpus);
