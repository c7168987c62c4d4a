/** @file fake_cuda.h  What the GPU driver asks of CUDA, done with threads and host memory.
 *
 * Streams are threads with bounded in-order queues, events count their records, device memory is
 * the host's, operators are the host backend's, performed when the stream comes to them. Misuse
 * that CUDA would not notice, or would notice on some machines only, is an error here: a wait for
 * an event that has never been recorded, a stream or an event of another context than the current
 * one, a context current in two threads, host memory that operators cannot reach, a copy from a
 * device that is not reached.
 */
#pragma once

#include "exec/gpu/calls.h"
#include "exec/gpu/driver.h"

/** How the machine is. One at a time in a process. */
typedef struct rp_fake_cuda {
    int devices;       /**< 0: none */
    bool green;        /**< devices can be split */
    bool peers;        /**< devices reach each other */
    bool unpinnable;   /**< cudaHostRegister fails */
    uint64_t seed;     /**< of the delays */
    uint32_t delay_us; /**< longest delay before what a stream does, one time in 16; 0: none */
    bool often;        /**< one time in 2 */
    uint32_t fail_at;  /**< this copy fails, from 1 on; 0: none */
    uint32_t stick_at; /**< a stream never gets beyond this copy; 0: none */
} rp_fake_cuda;

/** A driver on such a machine. `attach` works on what was given last. */
const rpexec_driver_type *rp_fake_cuda_driver(const rp_fake_cuda *machine);

/** Lets the stream that is stuck go on, and waits until all streams are gone. */
void rp_fake_cuda_unstick(void);

/** @return copies that have been enqueued since rp_fake_cuda_driver. */
uint32_t rp_fake_cuda_copies(void);

/** @return streams, events and memories that have not been given back. */
uint32_t rp_fake_cuda_left(void);
