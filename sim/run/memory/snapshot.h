/** @file snapshot.h  The memory of a run as PyTorch writes it: a pickle that its memory viewer
 * (pytorch.org/memory_viz) opens.
 *
 * The dictionary is that of torch.cuda.memory._snapshot: `segments`, and `device_traces`, a list
 * per GPU of events `alloc`, `free_requested` and `free_completed`, with microseconds since the
 * run's start. The frame of an event names its buffer: kind, stage, microbatch. Every buffer has a
 * segment, which later buffers of its size use again; context and reserve are not in it.
 */
#pragma once

#include "common/timeline/timeline.h"

#include <stdio.h>

/**
 * Writes the buffers of the GPUs of a timeline's program, in pickle protocol 2.
 * @param stream its errors are found by rp_output_commit
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_snapshot_write(const rp_timeline *timeline, FILE *stream);
