/** @file host.h  Host memory that weights, gradients and optimizer take throughout a run, summed
 * over all processes.
 *
 * For RoundPipe, Mobius and FSDP it is rp_sizes_host_bytes. DeepSpeed 0.17.5 takes the following
 * bytes per process, with S the process's share of the trained values and v the bytes of the run's
 * type (runtime/zero/stage3.py, partition_parameters.py, stage_1_and_2.py):
 *
 *  - zero-infinity: weights v S in a single buffer, always pinned; their first copies, tensor by
 *    tensor, which PyTorch's pool of pinned memory never gives back; averaged gradients v S in a
 *    single buffer; fp32 gradients 4 S, a buffer for each sub-group; master and moments 12 S.
 *    Frozen weights stay in their first copies.
 *  - zero-offload: master 4 S, always pinned; new weights v S and fp32 gradients 4 S, a buffer
 *    each; moments 8 S; if microbatches are accumulated, the gradients of each tensor in a buffer;
 *    a buffer for the largest tensor.
 *
 * A pinned buffer takes the next power of two (c10's CachingHostAllocator). If a schedule does not
 * pin (rp_sharding.pins), only the buffers that are always pinned do so, and the first copies of
 * trained tensors are freed.
 */
#pragma once

#include "common/inputs/sizes.h"
#include "common/program/program.h"

/** Bytes of each DeepSpeed process for Python, PyTorch and CUDA's libraries. Assumed. */
#define RPSIM_ZERO_PROCESS_BYTES UINT64_C(2000000000)

/**
 * @param sharding with host_collects
 * @param gpus processes, one per GPU
 * @param accumulates a process has several microbatches per step
 * @return bytes on all hosts that run DeepSpeed's offloading
 */
uint64_t rpsim_zero_host_bytes(const rp_sharding *sharding, const rp_model *model, rp_dtype dtype,
                               uint32_t gpus, bool accumulates);

/**
 * Computes the host bytes of a program's model, as the program's system keeps it.
 * @param arena scratch
 * @param bytes_out 0: nothing is kept on the host
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_host_bytes(const rp_program *program, const rp_model *model, uint32_t seq_len,
                           rp_arena *arena, uint64_t *bytes_out);
