/** @file seqlen.h  Predicted against published longest sequences.
 *
 * Covers every cell of max_seqlen_4090.csv except those that were not run (N/A), with the
 * configurations of traces/configs/paper_seqlen.csv. Its column `sets` names the cell that sets a
 * constant; only a group that ends in "-set" holds that cell.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdint.h>
#include <stdio.h>

typedef struct rpsim_seqlen_cell {
    const char *group;     /**< the framework, with "-set" if the cell sets a constant */
    const char *framework; /**< as published */
    const char *model;
    uint32_t measured_tokens; /**< 0: out of memory at any length */
    uint32_t predicted_tokens;
    /** predicted / measured - 1; 0 if both are out of memory, 100 or -100 if only one is
     * (sim/model.md section 5). */
    double error_pct;
} rpsim_seqlen_cell;

typedef struct rpsim_seqlens {
    rpsim_seqlen_cell *cells;
    uint32_t count;
} rpsim_seqlens;

/**
 * Searches the longest sequence of each cell on rtx4090x8 (seqlen.h, run.h), on all cores.
 * @param folder the folder that has max_seqlen_4090.csv
 * @param seqlens_out lives in `arena`
 * @retval RP_OK, RP_INPUT (a file is malformed), RP_IO, RP_NO_MEMORY, and the statuses of runs
 */
rp_status rpsim_predict_seqlens(const char *folder, rp_arena *arena, rpsim_seqlens *seqlens_out);

/**
 * @param group group of cells; "lengths": all cells that were measured with a length and set no
 * constant; "all": all cells that set no constant
 * @param cells_out NULL, or receives the number of these cells
 * @return mean absolute error in percent; NaN if there are none
 */
double rpsim_seqlens_mape(const rpsim_seqlens *seqlens, const char *group, uint32_t *cells_out);

/** Prints the cells as a Markdown table. */
void rpsim_seqlens_write(const rpsim_seqlens *seqlens, FILE *stream);
