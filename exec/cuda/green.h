/** @file green.h  A device cut into green contexts, through the driver API, which is looked up when
 * it is needed: rpexec starts without a driver. Needs a driver for CUDA 12.5. */
#pragma once

#include "exec/gpu/calls.h"

/** rpexec_cuda_calls.split: one split for all parts, since separate ones may overlap. */
bool rpexec_green_split(int device, uint32_t cuts, uint32_t count, rpexec_cuda_part *parts_out,
                        const char **why_out);

/** rpexec_cuda_calls.unsplit. */
void rpexec_green_unsplit(uint32_t count, rpexec_cuda_part *parts);

/** Makes a part's context the calling thread's. @return 0, or an error of the runtime
 */
int rpexec_green_enter(void *context);

/** A non-blocking stream of a part. @return 0, or an error of the runtime */
int rpexec_green_stream(const rpexec_cuda_part *part, void **stream_out);
