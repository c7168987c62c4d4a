/** @file executed.h  FLOP that a program executes: of matrix products and attention, whatever is
 * computed again included, as operators have them (common/roofline/roofline.h). */
#pragma once

#include "common/inputs/model.h"
#include "common/program/program.h"

/**
 * FLOP of all passes of a program.
 * @param model what a GPU of the program computes with: the model, or a rank's part of it
 * @param seq_len tokens per sequence of the run
 * @param slices that a sequence is cut into, of which a program's sequence is one; at least 1
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_executed_flop(const rp_program *program, const rp_model *model, uint32_t seq_len,
                              uint32_t slices, double *flop_out);
