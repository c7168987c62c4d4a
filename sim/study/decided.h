/** @file decided.h  Two runs with overlapping intervals: is it decided which run is faster, and if
 * not, which input would decide it?
 *
 * Draw k of both runs has the same inputs. The pair is decided if either run is ahead in a share of
 * at least RPSIM_DECIDED of the draws.
 *
 * The deciding input is estimated to first order. The logarithm of A's speed over B's has a mean
 * and a variance over the draws. Each input contributes the part of the variance that its own range
 * makes, known from the runs with only that input at both ends. If its range were narrower, that
 * part would shrink with the square of the width, and the mean and all other parts would stay. The
 * input that has to be known better by the least factor is named.
 */
#pragma once

#include "sim/study/study.h"

#include <stdio.h>

#define RPSIM_DECIDED 0.9

typedef struct rpsim_decision {
    double ahead; /**< share of the draws in which a is faster than b; ties count half */
    bool decided;
    /** For an undecided pair: the input that decides it if known better by the least factor, or, if
     * `needed` is 0, the input with the largest part; RPSIM_INPUT_COUNT: no input matters for the
     * pair. */
    rpsim_input_id input;
    double today;  /**< half of the input's range, relative to its value */
    double needed; /**< half of the range that would decide the pair; 0: no single input does */
} rpsim_decision;

/** @param a,b intervals with the same number of draws of the same seed @param scale_a,scale_b
 * tokens per second of the runs */
rpsim_decision rpsim_decide(const rpsim_intervals *a, double scale_a, const rpsim_intervals *b,
                            double scale_b);

/** Room for rpsim_decision_text. */
#define RPSIM_DECISION_TEXT 160u

/** Writes half a sentence, which begins with a semicolon, about the input that would decide an
 * undecided pair; empty if no input matters. @param size RPSIM_DECISION_TEXT */
void rpsim_decision_text(const rpsim_decision *d, char *text, size_t size);

/** Prints the notes below a table with intervals: the inputs that the rows [begin, end) of a group
 * rest on, and the pairs that are not decided. @param best index of the best row; `end`: no row may
 * fit */
void rpsim_intervals_write(const rpsim_study *study, uint32_t begin, uint32_t end, uint32_t best,
                           FILE *stream);
