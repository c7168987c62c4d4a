/** @file cores.h  Which processors threads of emulated GPUs are bound to.
 *
 * A thread that may run anywhere is moved about: three threads on two processors share one of them
 * two and two by turns, and how evenly is the kernel's affair. Bound threads share their processor
 * with those of the same processor alone, evenly, so that a simulation can know what they get
 * (rp_machine.bound_cores).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** Most processors that are told apart. */
#define RPEXEC_MAX_CORES 1024u

/** @return processors that threads can be bound to: those that this process may use, of
 * hyperthreads the first of each core; 1 where the kernel does not say. */
uint32_t rpexec_host_cores(void);

/** Binds the calling thread to processor `number` modulo rpexec_host_cores().
 * @return true where the kernel has done it */
bool rpexec_host_bind(uint32_t number);
