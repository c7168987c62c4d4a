/** @file cores.h  Processors to which threads of emulated GPUs are bound.
 *
 * The kernel moves a thread that may run anywhere: of three threads on two processors, changing
 * pairs share a processor, and the kernel decides how evenly. Bound threads share only their own
 * processor, and evenly, so that a simulation can know their share of it (rp_machine.bound_cores).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** Most processors that are distinguished. */
#define RPEXEC_MAX_CORES 1024u

/** @return number of processors to which threads can be bound: those that this process may use,
 * only the first hyperthread of each core; 1 if the kernel does not say. */
uint32_t rpexec_host_cores(void);

/** Binds the calling thread to processor `number` modulo rpexec_host_cores().
 * @return true if the kernel has done it */
bool rpexec_host_bind(uint32_t number);
