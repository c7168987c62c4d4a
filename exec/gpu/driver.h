/** @file driver.h  A driver for GPUs: every queue of the program is a stream.
 *
 * Each queue has a thread that submits: it waits until everything that an op waits for has been
 * submitted (ops of the host: until they are done), lets the stream wait for the events of those
 * ops, calls `perform`, which only enqueues, and records the op's own event. So an event is never
 * waited for before it is recorded, enqueued work ends without any thread's help, and a thread that
 * must wait for the host or for other GPUs holds up only its own queue, which could not go on
 * anyway. A compute queue has at most two ops under way: the op that the GPU does, and the next.
 * Ops of the host run in their queue's thread, after the events that they wait for.
 *
 * If a GPU is a part of a device, its context may be current in only one thread at a time (cuda.h,
 * cuGreenCtxCreate): its queues' threads take turns (turn.h), in the order in which they ask.
 */
#pragma once

#include "exec/gpu/calls.h"
#include "exec/run/driver.h"

/** Asks CUDA for hardware queues, unless the environment has their number (after the first call it
 * does): as many as CUDA allows, or 8 with virtual GPUs. To be called before CUDA, which reads the
 * number only once; options, `attach` and the probe of the backend do so. */
void rpexec_gpu_set_connections(bool is_virtual);

/** `attach` of a driver that works through `calls`. */
rp_status rpexec_gpu_attach(const rpexec_cuda_calls *calls, const rpexec_devices_config *config,
                            rpexec_devices **devices_out, uint64_t *gpu_bytes_out);

/** @return `transport` of rpexec_driver_type. */
const char *rpexec_gpu_transport(const rpexec_devices *devices);

/** Gives everything back, unless a thread hangs in a call; NULL is allowed. */
void rpexec_gpu_detach(rpexec_devices *devices);

/** rpexec_driver_type.graphs. */
void rpexec_gpu_count_graphs(const rpexec_devices *devices, rpexec_graph_counts *counts_out);

/** The rest of the driver: `operators` and `attach` are to be set. */
extern const rpexec_driver_type rpexec_gpu_driver;
