/** @file meetings.h  GPUs of the host backend that do collectives together: the groups of each axis
 * of a plan (collective.h), and the pairs that have the two copies of a tied table. */
#pragma once

#include "exec/host/links.h"
#include "exec/plan/plan.h"

typedef struct rpexec_host_meetings rpexec_host_meetings;

typedef struct rpexec_host_meetings_config {
    const rpexec_plan *plan;
    rpexec_links *links; /**< links for copies of collectives; NULL: they are not limited */
    void (*fail)(void *context, rp_status status); /**< called if a copy has failed */
    void *context;
} rpexec_host_meetings_config;

/** @param meetings_out lives in `arena`; to be closed @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_host_meetings_open(const rpexec_host_meetings_config *config, rp_arena *arena,
                                    rpexec_host_meetings **meetings_out);

/** rpexec_driver_type.collective, of a GPU. */
rp_status rpexec_host_meetings_run(rpexec_host_meetings *meetings, uint32_t gpu,
                                   const rpexec_collective *collective, uint64_t *moved_out);

/** rpexec_driver_type.sum_pair, of a GPU. */
rp_status rpexec_host_meetings_sum_pair(rpexec_host_meetings *meetings, uint32_t gpu, uint32_t rank,
                                        uint64_t count, void *array);

/** Wakes everybody who waits, now and later (rpexec_host_group_abort). NULL is allowed. */
void rpexec_host_meetings_abort(rpexec_host_meetings *meetings);

/** Nobody may be in a meeting any more. NULL is allowed. */
void rpexec_host_meetings_close(rpexec_host_meetings *meetings);
