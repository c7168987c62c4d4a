/** @file host.h  Memory of the host that weights, gradients and optimizer take all the time of a
 * run, of all processes together.
 *
 * RoundPipe, Mobius and FSDP: rp_sizes_host_bytes. DeepSpeed 0.17.5, per process, of its share S of
 * what is trained, in bytes of the run's type v (runtime/zero/stage3.py, partition_parameters.py,
 * stage_1_and_2.py):
 *
 *  - zero-infinity: weights v S in one buffer, always pinned; their first copies, a tensor each,
 *    which PyTorch's pool of pinned memory never gives back; averaged gradients v S in one buffer;
 *    fp32 gradients 4 S, a buffer for each sub-group; master and moments 12 S. Frozen weights stay
 * in their first copies.
 *  - zero-offload: master 4 S, always pinned; new weights v S and fp32 gradients 4 S, a buffer
 * each; moments 8 S; where microbatches are accumulated, gradients of each tensor in a buffer; a
 * buffer for the largest tensor.
 *
 * A pinned buffer takes the next power of two (c10's CachingHostAllocator). Where a schedule does
 * not pin (rp_sharding.pins) only those that always are do so, and first copies of what is trained
 * go.
 */
#pragma once

#include "common/inputs/sizes.h"
#include "common/program/program.h"

/** Of each of DeepSpeed's processes besides: Python, PyTorch and CUDA's libraries. Assumed. */
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
 * Bytes of the model of a program, as its system keeps them.
 * @param arena scratch
 * @param bytes_out 0: it keeps nothing there
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_host_bytes(const rp_program *program, const rp_model *model, uint32_t seq_len,
                           rp_arena *arena, uint64_t *bytes_out);
