/** @file loss_log.h  The file of --loss-out: a line per step, written as soon as the step is made.
 *
 * CSV with the columns step (from 1 on), loss, iteration_ms (since the previous step, by the host's
 * clock), grad_norm (before clipping), learning_rate and eval_loss (empty if the step was not
 * evaluated). A run that goes on from a checkpoint keeps the lines up to the checkpoint's step and
 * drops the lines that a killed run wrote after it, so that every step has a single line.
 */
#pragma once

#include "common/base/text.h"

#include <stdint.h>

/** An open file of losses. Zeroes: no file. */
typedef struct rpexec_loss_log {
    rp_output beginning; /**< header and kept lines, until rpexec_loss_log_begin */
    char *path;
    FILE *stream;     /**< stream to which lines are added; NULL before */
    rp_status status; /**< RP_OK, or the first error of writing (logged) */
} rpexec_loss_log;

/** A line of the file: a step's results. */
typedef struct rpexec_loss_line {
    uint64_t step;
    double loss;
    double ms;
    double norm;
    double rate;
    double eval_loss; /**< NaN: none */
} rpexec_loss_line;

/**
 * Reads the lines that are kept of an earlier file and checks that the new file can be written.
 * Nothing changes until rpexec_loss_log_begin.
 * @param path argument of --loss-out; "-" and devices are written directly
 * @param first_step number of steps whose lines are kept: the checkpoint's; 0: none
 * @retval RP_OK, RP_INPUT (it cannot be written, or holds other data than losses; logged),
 *         RP_NO_MEMORY
 */
rp_status rpexec_loss_log_open(const char *path, uint64_t first_step, rpexec_loss_log *log_out);

/** Puts the file with the kept lines in its place. @retval RP_OK, RP_IO (logged), RP_NO_MEMORY */
rp_status rpexec_loss_log_begin(rpexec_loss_log *log);

/** Adds a line and hands it to the system. Failures are kept in `status`. */
void rpexec_loss_log_add(rpexec_loss_log *log, const rpexec_loss_line *line);

/** Closes the file; zeroes are allowed. */
void rpexec_loss_log_close(rpexec_loss_log *log);
