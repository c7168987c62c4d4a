/** @file machine_internal.h  Shared by the parts of the machine. */
#pragma once

#include "exec/cuda/emulator/machine/machine.h"

typedef struct emulated_stream emulated_stream;

/** Raises the count to `number` if it is less. */
void emulator_count_most(emulated_count what, uint32_t number);

/** Enqueues the work in the stream. @retval ERROR_CAPTURE this thread captures */
int emulator_enqueue(emulated_stream *stream, void (*run)(const void *arguments),
                     const void *arguments, size_t bytes);

/** Adds work to this thread's capture. @retval 0, ERROR_CAPTURE: the thread captures another
 * stream */
int emulator_capture(emulated_stream *stream, const emulated_work *work);

/** Sleeps at random, as the stream does before all its work. */
void emulator_delay(emulated_stream *stream);

/** @return the meaning of NCCL's error. */
const char *emulator_nccl_text(int error);
