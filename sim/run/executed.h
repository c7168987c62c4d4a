/** @file executed.h  FLOP of matrix products and attention that a program executes, recompute
 * included, as operators count them (common/roofline/roofline.h). */
#pragma once

#include "common/inputs/model.h"
#include "common/program/program.h"

/**
 * Computes the FLOP of all passes of a program.
 * @param model the model, or the part of it that a GPU (rank) of the program computes
 * @param seq_len tokens per sequence of the run
 * @param slices slices into which a sequence is cut, a program's sequence being a single slice; at
 * least 1
 * @param again what a program with selective recompute runs again (RP_AGAIN_*)
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_executed_flop(const rp_program *program, const rp_model *model, uint32_t seq_len,
                              uint32_t slices, uint32_t again, double *flop_out);
