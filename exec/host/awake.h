/** @file awake.h  Keeps processors from idling while a run is measured.
 *
 * A processor that idles is slow to come back: clocks and caches sleep, and a hypervisor may put
 * the two processors of a virtual machine on one core when one of them wakes, until it parts them
 * again. Seen on Linux 6.18 under Firecracker: threads that wait now and then spent 2 to 25 % of
 * half a minute so, in stretches of up to 1.5 s, in which both together do 1.07 times what one
 * does; threads that never wait 0.3 to 0.6 %; with this, none of either. The kernel does not count
 * such time as stolen.
 *
 * One thread per processor of rpexec_host_cores does nothing at the kernel's idle priority: any
 * other thread that is ready takes the processor at once.
 */
#pragma once

#include "common/base/mem.h"

typedef struct rpexec_host_awake rpexec_host_awake;

/**
 * Does nothing, and says so in a warning, where this process's control group has a limit of
 * processor time, from which the threads would take, or where the kernel refuses (then at the end:
 * a thread of idle priority that has to say something may take a while).
 * @param arena owns the result
 * @param awake_out to be ended also where nothing is done
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_host_awake_begin(rp_arena *arena, rpexec_host_awake **awake_out);

/** Ends the threads. @param awake may be NULL */
void rpexec_host_awake_end(rpexec_host_awake *awake);
