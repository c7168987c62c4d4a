/** @file green.h  Cuts a device into green contexts through the driver API. Its functions are
 * looked up when they are needed, so that rpexec starts without a driver. Needs a driver for
 * CUDA 12.5. */
#pragma once

#include "exec/gpu/calls.h"

/** rpexec_cuda_calls.split: a single split for all parts, since separate splits may overlap. */
bool rpexec_green_split(int device, uint32_t cuts, uint32_t count, rpexec_cuda_part *parts_out,
                        const char **why_out);

/** rpexec_cuda_calls.unsplit. */
void rpexec_green_unsplit(uint32_t count, rpexec_cuda_part *parts);

/** Makes a part's context current in the calling thread. @return 0, or an error of the runtime
 */
int rpexec_green_enter(void *context);

/** Makes a non-blocking stream of a part. @return 0, or an error of the runtime */
int rpexec_green_stream(const rpexec_cuda_part *part, void **stream_out);
