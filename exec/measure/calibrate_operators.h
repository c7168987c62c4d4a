/** @file calibrate_operators.h  Times of each operator of a layer, with a run's own shapes.
 *
 * A layer of each kind runs on the first GPU's compute queue, operator by operator, several times
 * over, the first time not counting. The operators run in the layer's order, so that caches hold
 * the same data as in a run. Data are random, and gradients add up as in a run.
 */
#pragma once

#include "common/inputs/costs.h"
#include "exec/measure/trial.h"
#include "exec/operators/calls.h"

#include <stdio.h>

/** X(enumerator, layer, phase), as in operators.csv. */
#define RPEXEC_PHASE_LIST(X)                                                                       \
    X(EMBEDDING_FORWARD, "embedding", "forward")                                                   \
    X(EMBEDDING_BACKWARD, "embedding", "backward")                                                 \
    X(BLOCK_FORWARD, "block", "forward")                                                           \
    X(BLOCK_BACKWARD, "block", "backward")                                                         \
    X(HEAD, "head", "forward and backward")                                                        \
    X(BLOCK_UPDATE, "block", "update")

typedef enum rpexec_phase {
#define RPEXEC_PHASE_ENUM(name, layer, phase) RPEXEC_PHASE_##name,
    RPEXEC_PHASE_LIST(RPEXEC_PHASE_ENUM)
#undef RPEXEC_PHASE_ENUM
        RPEXEC_PHASE_COUNT
} rpexec_phase;

/** An operator with a given shape in a given phase. */
typedef struct rpexec_operator_row {
    rpexec_phase phase;
    bool of_weights; /**< the call belongs to a backward's weight part, which zero-bubble schedules
                          delay */
    const rpexec_call_description *call;
    uint32_t count;  /**< calls in the layer */
    double median_s; /**< seconds of a call */
    double total_s;  /**< seconds of all calls: the sum of their medians */
} rpexec_operator_row;

typedef struct rpexec_operator_costs {
    rpexec_operator_row *rows;
    uint32_t row_count;                 /**< 0: there was not enough memory */
    double total_s[RPEXEC_PHASE_COUNT]; /**< seconds of all calls of a phase; 0: not measured */
    uint32_t repetitions;               /**< number of repetitions that count */
} rpexec_operator_costs;

/**
 * Measures operators. A model whose layers do not fit into the site's memory is skipped with a
 * warning.
 * @param updates whether GPUs perform Adam
 * @param costs_out in `arena`
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL, RP_BROKEN (an operator has failed; logged)
 */
rp_status rpexec_calibrate_operators(const rpexec_site *site, bool updates, rp_arena *arena,
                                     rpexec_operator_costs *costs_out);

/** @return the share of a block's backward that its input part takes, between 0 and 1; 0: not
 * measured. */
double rpexec_operators_input_share(const rpexec_operator_costs *costs);

/** @return FLOP/s of a block's attention by itself, as counted for masked pairs; 0: not measured.
 */
double rpexec_operators_attention(const rpexec_operator_costs *costs, bool backward);

/**
 * Writes operators.csv: layer, phase, operator, shape, count, median_us, total_us, gflop, gb,
 * tflop_per_s and gb_per_s of a call; and for each phase of the cost table the sum of the
 * operators' times, the time that the run measured, and the former over the latter as `coverage`.
 * @param measured medians of the run
 */
void rpexec_operators_write(const rpexec_operator_costs *costs, const rp_costs *measured,
                            FILE *stream);
