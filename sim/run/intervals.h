/** @file intervals.h  The range of a prediction, found by repeating the run with drawn inputs.
 *
 * Every input that the run uses is multiplied by a factor from its range (ranges.h). The range
 * depends on the origin of the value: the platform's lists, the cost table's kind. The draws are a
 * Latin hypercube: each of the N strata of an input is drawn once, in an order that depends only on
 * seed and input. Draw k of two runs has the same factors, so that schedules are compared under
 * equal inputs. Program, placement and partition stay those of the run: only its times and rates
 * change.
 *
 * The effect of each input is found separately by two more simulations, with the input at its 10th
 * and 90th percentile and all others at their values.
 */
#pragma once

#include "sim/run/hardware_case.h"
#include "sim/run/noise.h"
#include "sim/run/ranges.h"

#define RPSIM_DEFAULT_DRAWS 32u
#define RPSIM_MAX_DRAWS 10000u

/** A run of hardware fidelity. */
typedef struct rpsim_interval_run {
    const rp_program *program;
    const rp_platform *platform;
    const rp_resolved *resolved; /**< only its model, costs, seq_len and sequence_slices are read */
    double period_ps;            /**< period of the run itself, ps */
} rpsim_interval_run;

/** An input that the run uses. */
typedef struct rpsim_input {
    rpsim_input_id id;
    rp_provenance kind;
    rpsim_range range;
    double at_low; /**< speed at the range's low end, over the run's; NaN if not asked for */
    double at_high;
    double matters_pct; /**< difference between at_low and at_high, in percent of the run's speed;
                           never negative */
} rpsim_input;

/** The results of all draws. Speeds are steps per time, over the run's. */
typedef struct rpsim_intervals {
    uint32_t draws;
    double *speeds;       /**< [draws] */
    rpsim_interval speed; /**< percentiles of speeds */
    rpsim_input inputs[RPSIM_INPUT_COUNT];
    uint32_t input_count;
} rpsim_intervals;

/**
 * Draws the inputs and simulates every draw.
 * @param draws 1 to RPSIM_MAX_DRAWS; 1: the run itself
 * @param threads 0: as many as there are cores; results do not depend on it
 * @param alone whether to also simulate each input by itself
 * @param intervals_out its arrays live in `arena`
 * @retval RP_OK, RP_INPUT (a range is missing, or a run takes too long; logged), RP_IO,
 * RP_NO_MEMORY, or the status of a simulation that failed
 */
rp_status rpsim_intervals_make(const rpsim_interval_run *run, uint32_t draws, uint64_t seed,
                               uint32_t threads, bool alone, rp_arena *arena,
                               rpsim_intervals *intervals_out);

/** @return the share of draws in which a has more speed than b; ties count half.
 * @param scale_a,scale_b value of a speed of 1, for example in tokens per second */
double rpsim_intervals_beats(const rpsim_intervals *a, double scale_a, const rpsim_intervals *b,
                             double scale_b);
