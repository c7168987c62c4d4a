/** @file measure.h  Costs and rates for the simulator, computed from a timeline.
 *
 * An op's time is the time that it would take alone: if emulated GPUs share cores, the time in
 * which it had a core (rp_timeline.work_ps). Times of stages are medians over microbatches and
 * iterations, the first iteration dropped, split over their layers in proportion to FLOP
 * (planner.md 1). The loss and its gradient are computed in a single pass (exec/model/layers.h), so
 * the head's whole time is counted in the op that runs this pass: in forwards, or in backwards
 * whose forward was another job.
 */
#pragma once

#include "common/inputs/costs.h"
#include "common/timeline/timeline.h"
#include "exec/plan/plan.h"

/** Rates that a timeline shows; 0: it shows none. */
typedef struct rpexec_rates {
    double upload_Bps; /**< median over the longest transfers; only transfers without others at the
                            same time, if there are any */
    double download_Bps;
    double peer_Bps;       /**< the same for SENDs */
    double collective_Bps; /**< rate of collectives, whose time includes waiting for the last
                                rank */
    double host_Bps;       /**< bytes of host ops over their time */
    double forward_flops;  /**< FLOP/s of a layer's forward, and backward */
    double backward_flops;
    double most_flops; /**< FLOP/s of the fastest of forward, backward and head */
} rpexec_rates;

/**
 * Measures a run.
 * @param plan plan of the timeline's program
 * @param flops rpexec_work_costs of the model, used as proportions; record.c may have a better
 * bwd_input, which counts if backwards are not split
 * @param skip iterations at the beginning that do not count; at least 1 must remain
 * @param costs_out in `arena`; name and source are "", hop_ps is the time of a boundary tensor's
 *        way down and up again, 0 if there is none
 * @retval RP_OK, RP_USAGE (`skip` is too large by an iteration; logged), RP_NO_MEMORY
 */
rp_status rpexec_measure(const rpexec_plan *plan, const rp_timeline *timeline,
                         const rp_costs *flops, uint32_t skip, rp_arena *arena, rp_costs *costs_out,
                         rpexec_rates *rates_out);

/**
 * Counts the work that a program executes: floating-point operations of matrix products and
 * attention (rpexec_work_costs) in all ops of all iterations. Layers that are recomputed count
 * again; norms, rotary embeddings, activations and the optimizer do not count. The attention's
 * backward counts 2.5 times its forward, five products instead of two, whatever a kernel computes.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_executed_flop(const rpexec_plan *plan, double *flop_out);
