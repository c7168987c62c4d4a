/** @file library_run.h  The memory of a run as RoundPipe's library takes it
 * (memory/library_memory.h). */
#pragma once

#include "common/base/reason.h"

#include "sim/run/run_plan.h"

/**
 * Replaces the GPUs' part of a run's memory, for schedules with `library_memory` that recompute in
 * 16 bits, of models whose layers were recorded; other runs keep their program's buffers. Peaks are
 * bytes of tensors that live together, fixed bytes included. PyTorch's allocator says what fits, so
 * that a run may not fit whose peak is below what is usable. The host's part stays.
 * @param run where planned, its first step has rpsim_first_plan
 * @param memory of the run by its program's buffers; unknown stays unknown
 * @retval RP_OK, RP_INPUT, RP_IO (as rpsim_layer_tensors_load and rpsim_first_plan; logged),
 * RP_NO_MEMORY
 */
rp_status rpsim_library_measure(const rp_resolved *run, const rp_platform *platform,
                                rpsim_memory *memory, rp_reason *reason);
