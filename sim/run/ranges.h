/** @file ranges.h  The accuracy to which each input of a prediction is known: traces/ranges.csv.
 *
 * A range is two factors on an input's value, at its 10th and 90th percentile; the value itself is
 * the median. On either side of the median the factor's logarithm is linear in the probability, so
 * that a factor is never beyond low^1.25 or high^1.25. So no rate exceeds the hardware's limits by
 * much, and a draw is a plain function of a uniform number.
 */
#pragma once

#include "common/inputs/provenance.h"

/** X(enumerator, name in ranges.csv and JSON). */
#define RPSIM_INPUTS(X)                                                                            \
    X(LAYERS, "layer_times")                                                                       \
    X(HEAD, "head_times")                                                                          \
    X(ATTENTION, "attention_tflops")                                                               \
    X(MEMORY, "memory_effective_gb_per_s")                                                         \
    X(LINK, "link_gb_per_s")                                                                       \
    X(PEER, "peer_gb_per_s")                                                                       \
    X(COLLECTIVE, "collective_gb_per_s")                                                           \
    X(NETWORK, "network_gb_per_s")                                                                 \
    X(HOST, "host_optimizer_gb_per_s")                                                             \
    X(ZERO_GRADIENT, "zero_gradient_gb_per_s")                                                     \
    X(DISPATCH, "dispatch_us_per_module")                                                          \
    X(LAUNCH, "launch_overhead_us")                                                                \
    X(RUN, "run")                                                                                  \
    X(STACK, "stack_times")                                                                        \
    X(HOST_SPEED, "host_speed")

typedef enum rpsim_input_id {
#define RPSIM_INPUT_ENUM(name, text) RPSIM_INPUT_##name,
    RPSIM_INPUTS(RPSIM_INPUT_ENUM)
#undef RPSIM_INPUT_ENUM
        RPSIM_INPUT_COUNT
} rpsim_input_id;

extern const char *const rpsim_input_names[RPSIM_INPUT_COUNT];

/** A range as two factors; low <= 1 <= high. */
typedef struct rpsim_range {
    double low;  /**< 10th percentile; 0: the file has no such row */
    double high; /**< 90th percentile */
} rpsim_range;

typedef struct rpsim_ranges {
    rpsim_range of[RPSIM_INPUT_COUNT][RP_SET + 1]; /**< [input][rp_provenance] */
} rpsim_ranges;

/** Reads ranges.csv (rp_data_file). @retval RP_OK, RP_INPUT, RP_IO (logged), RP_NO_MEMORY */
rp_status rpsim_ranges_load(rpsim_ranges *ranges_out);

/** Same as rpsim_ranges_load, from bytes. @param name file name for messages */
rp_status rpsim_ranges_parse(const char *name, const char *bytes, size_t length,
                             rpsim_ranges *ranges_out);

/** @return the factor at a probability in (0, 1). */
double rpsim_range_factor(const rpsim_range *range, double probability);
