/** @file awake.h  Keeps processors from idling while a run is measured.
 *
 * A processor that idles is slow to come back: clocks and caches sleep, and a hypervisor may put
 * the two processors of a virtual machine on the same core when one of them wakes, until it parts
 * them again. Seen on Linux 6.18 under Firecracker: threads that wait now and then spent 2 to 25 %
 * of half a minute on a shared core, in stretches of up to 1.5 s, in which both together do 1.07
 * times the work of a single thread. Threads that never wait spent 0.3 to 0.6 %; with keepers,
 * neither kind spent any. The kernel does not count this time as stolen.
 *
 * On each processor of rpexec_host_cores a keeper thread does nothing at the kernel's idle
 * priority: any other thread that is ready takes the processor at once.
 */
#pragma once

#include "common/base/mem.h"

typedef struct rpexec_host_awake rpexec_host_awake;

/**
 * Starts the keepers. If this process's control group has a limit of processor time, which keepers
 * would use up, it starts none and logs a warning. If the kernel refuses idle priority, the warning
 * comes from rpexec_host_awake_end, since threads of idle priority may take a while to find out.
 * @param arena owns the result
 * @param awake_out to be ended even if no keeper was started
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_host_awake_begin(rp_arena *arena, rpexec_host_awake **awake_out);

/** Ends the threads. @param awake may be NULL */
void rpexec_host_awake_end(rpexec_host_awake *awake);
