/** @file measure.h  From a timeline to the costs and rates that the simulator needs.
 *
 * An op's time is what it would take alone: where emulated GPUs share cores, the time in which it
 * had one (rp_timeline.work_ps). Times of stages are medians over microbatches and iterations, the
 * first iteration dropped, split over their layers in proportion to FLOP (planner.md 1). The
 * loss and its gradient are one pass (exec/model/layers.h), so the head's whole time is counted
 * where that pass runs: in forwards, or in backwards whose forward was another job.
 */
#pragma once

#include "common/inputs/costs.h"
#include "common/timeline/timeline.h"
#include "exec/plan/plan.h"

/** Rates that a timeline shows; 0: it shows none. */
typedef struct rpexec_rates {
    double upload_Bps; /**< median over the longest transfers, alone on all links where there are
                            such */
    double download_Bps;
    double peer_Bps;       /**< the same of SENDs */
    double collective_Bps; /**< of collectives, waiting for the last rank included */
    double host_Bps;       /**< bytes of host ops over their time */
    double forward_flops;  /**< FLOP/s of a layer's forward, and backward */
    double backward_flops;
    double most_flops; /**< FLOP/s of the fastest of forward, backward and head */
} rpexec_rates;

/**
 * Measures a run.
 * @param plan of the timeline's program
 * @param flops rpexec_work_costs of the model: proportions; its bwd_input may be better known
 * (record.c), and counts where backwards are not split
 * @param skip iterations at the beginning that do not count; at least one must remain
 * @param costs_out in `arena`; name and source are "", hop_ps the way of a boundary tensor down and
 *        up again, 0 where there is none
 * @retval RP_OK, RP_USAGE (an iteration less is needed; logged), RP_NO_MEMORY
 */
rp_status rpexec_measure(const rpexec_plan *plan, const rp_timeline *timeline,
                         const rp_costs *flops, uint32_t skip, rp_arena *arena, rp_costs *costs_out,
                         rpexec_rates *rates_out);

/**
 * Counts what a program executes: floating-point operations of matrix products and attention
 * (rpexec_work_costs) in all ops of all iterations. Layers that are computed again count again;
 * norms, rotary embeddings, activations and the optimizer do not count. The attention's backward
 * counts 2.5 of its forward, five products instead of two, whatever a kernel does.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_executed_flop(const rpexec_plan *plan, double *flop_out);
