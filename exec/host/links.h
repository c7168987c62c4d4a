/** @file links.h  Links between the memories of the host backend: they carry bytes no faster than a
 * machine's links, and share the same resources.
 *
 * A copy is a flow over the links of its op's route (common/machine/machine.h): switches, root
 * complexes, sockets and DRAM are shared by max-min fairness (common/machine/network/network.h), in
 * real time. The calling thread copies the bytes, then sleeps until the flow would have ended. So
 * no copy ends before its fair share allows, and a copy for which the processors are too slow ends
 * later. Each GPU has a copy engine per direction, which takes one copy at a time, first come,
 * first served; the machine's copy latency occupies the engine before each copy.
 */
#pragma once

#include "common/machine/machine.h"
#include "common/program/program.h"

typedef struct rpexec_links rpexec_links;

/**
 * @param program lowered; must outlive the links
 * @param machine read only in this call
 * @param links_out lives in `arena`; to be closed
 * @retval RP_OK, RP_INPUT (a rate out of range; logged), RP_NO_MEMORY
 */
rp_status rpexec_links_open(const rp_program *program, const rp_machine *machine, rp_arena *arena,
                            rpexec_links **links_out);

/**
 * Copies in the queue of `op`, on its copy engine if it has one.
 * @param begin_ns_out CLOCK_MONOTONIC when the engine was free and the copy began
 * @retval RP_OK, RP_BROKEN (rpexec_links_stop was called), RP_NO_MEMORY
 */
rp_status rpexec_links_copy(rpexec_links *links, uint32_t op, void *to, const void *from,
                            uint64_t bytes, int64_t *begin_ns_out);

/** Copies from a GPU's memory into another GPU's, without copy engines. @retval as above */
rp_status rpexec_links_copy_peer(rpexec_links *links, uint32_t to_gpu, void *to, uint32_t from_gpu,
                                 const void *from, uint64_t bytes);

/** Everybody who waits here, now or later, gets RP_BROKEN. NULL is allowed. */
void rpexec_links_stop(rpexec_links *links);

/** NULL is allowed. Nobody may be in it any more. */
void rpexec_links_close(rpexec_links *links);
