/** @file decided.h  Where the intervals of two runs overlap: is it decided which one is faster, and
 * what would decide it?
 *
 * Draw k of both has the same inputs. A is ahead of B in a share of the draws; from
 * RPSIM_DECIDED on, or from the other side, the pair is decided.
 *
 * What would decide it is estimated to first order. The logarithm of A's speed over B's has a mean
 * and a variance over the draws. Of that variance an input has the part that its own range makes,
 * from the runs with it alone at both ends. Where its range were narrower, that part would shrink
 * with the square, and mean and everything else would stay. The input that has to be known better
 * by the least factor is named.
 */
#pragma once

#include "sim/study/study.h"

#include <stdio.h>

#define RPSIM_DECIDED 0.9

typedef struct rpsim_decision {
    double ahead; /**< share of the draws in which a is faster than b; ties count half */
    bool decided;
    /** Undecided: the input whose better knowledge decides it soonest, or, where `needed` is 0, the
     * one with the largest part; RPSIM_INPUT_COUNT: none matters for the pair. */
    rpsim_input_id input;
    double today;  /**< half of its range, relative to the value */
    double needed; /**< the same that would decide the pair; 0: no single input does */
} rpsim_decision;

/** @param a,b with the same number of draws of the same seed @param scale_a,scale_b tokens per
 * second of the runs */
rpsim_decision rpsim_decide(const rpsim_intervals *a, double scale_a, const rpsim_intervals *b,
                            double scale_b);

/** Room for rpsim_decision_text. */
#define RPSIM_DECISION_TEXT 160u

/** Says in half a sentence, from its semicolon on, what would decide an undecided pair; nothing
 * where no input matters. @param size RPSIM_DECISION_TEXT */
void rpsim_decision_text(const rpsim_decision *d, char *text, size_t size);

/** Prints what a table needs beside its intervals: what the rows [begin, end) of a group rest on,
 * and which of them are not decided. @param best index of the best row; `end`: none may fit */
void rpsim_intervals_write(const rpsim_study *study, uint32_t begin, uint32_t end, uint32_t best,
                           FILE *stream);
