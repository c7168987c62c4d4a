/** @file loss_log.h  The file of --loss-out: a line per step, there as soon as the step is made.
 *
 * CSV with the columns step (from 1 on), loss, iteration_ms (since the step before, by the host's
 * clock), grad_norm (before clipping), learning_rate and eval_loss (empty where the step was not
 * evaluated). A run that goes on from a checkpoint keeps the lines up to the checkpoint's step
 * and drops what a killed run wrote after it, so that every step stands there once.
 */
#pragma once

#include "common/base/text.h"

#include <stdint.h>

/** Zeroes: no file. */
typedef struct rpexec_loss_log {
    rp_output beginning; /**< header and what is kept, until rpexec_loss_log_begin */
    char *path;
    FILE *stream;     /**< lines are added to it; NULL before */
    rp_status status; /**< RP_OK, or what writing has met first (logged) */
} rpexec_loss_log;

/** A line. */
typedef struct rpexec_loss_line {
    uint64_t step;
    double loss;
    double ms;
    double norm;
    double rate;
    double eval_loss; /**< NaN: none */
} rpexec_loss_line;

/**
 * Reads what is kept of an earlier file and sees that the new one can be written. Nothing changes
 * until rpexec_loss_log_begin.
 * @param path what --loss-out says; "-" and devices are written directly
 * @param first_step steps that are kept: those of the checkpoint; 0: none
 * @retval RP_OK, RP_INPUT (it cannot be written, or holds something else than losses; logged),
 *         RP_NO_MEMORY
 */
rp_status rpexec_loss_log_open(const char *path, uint64_t first_step, rpexec_loss_log *log_out);

/** Puts the file with what is kept in its place. @retval RP_OK, RP_IO (logged), RP_NO_MEMORY */
rp_status rpexec_loss_log_begin(rpexec_loss_log *log);

/** Adds a line and hands it to the system. Failures are kept in `status`. */
void rpexec_loss_log_add(rpexec_loss_log *log, const rpexec_loss_line *line);

/** Harmless on zeroes. */
void rpexec_loss_log_close(rpexec_loss_log *log);
