/** @file torch_csv.h  Schedules as the CSV files of PyTorch's pipelining (compute-only dialect).
 *
 * One row per rank in rank order, no header; a cell is stage, type and microbatch: "2F0". Types: F
 * forward, B full backward, I gradient of the stage's input, W gradient of its weights. There are
 * no blank cells: the runtime that reads this dialect goes by the order of a row and ignores them.
 */
#pragma once

#include "common/program.h"

#include <stdio.h>

/**
 * Writes the order of a program's compute queues. A recompute has no cell of its own: there it is
 * part of the backward. Stages are numbered along the model. Nothing is written on refusal.
 * @param program has passed rp_program_check; one iteration
 * @param arena for tables of the stages
 * @param stream flushed by the callee
 * @retval RP_OK, RP_IO (logged), RP_NO_MEMORY
 * @retval RP_USAGE the format cannot hold it (logged): several iterations, stages with a forward or
 *         a backward only (RoundPipe), a stage that runs on several ranks (data parallelism)
 */
rp_status rp_torch_csv_write(const rp_program *program, rp_arena *arena, FILE *stream);
