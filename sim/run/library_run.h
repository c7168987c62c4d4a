/** @file library_run.h  The memory that RoundPipe's library takes for a run
 * (memory/library_memory.h). */
#pragma once

#include "common/base/reason.h"

#include "sim/run/run_plan.h"

/**
 * Replaces the GPUs' part of a run's memory, for schedules with `library_memory` that recompute, in
 * 16 bits, for models whose layers were recorded; other runs keep the numbers of their program's
 * buffers. Peaks are bytes of tensors that live together, fixed bytes included. PyTorch's allocator
 * decides whether a run fits, so a run may fail to fit although its peak is below the usable
 * memory. The host's part stays.
 * @param run if planned, its first step uses rpsim_first_plan
 * @param memory the run's memory by its program's buffers; if it is unknown it stays unknown
 * @retval RP_OK, RP_INPUT, RP_IO (as rpsim_layer_tensors_load and rpsim_first_plan), RP_NO_MEMORY
 */
rp_status rpsim_library_measure(const rp_resolved *run, const rp_platform *platform,
                                rpsim_memory *memory, rp_reason *reason);
