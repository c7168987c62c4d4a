/** @file record.h  --record DIR: a run's timeline, and what it measured as files of rpsim. */
#pragma once

#include "common/text.h"
#include "exec/machine.h"
#include "exec/measure.h"

/** Files that are open, and appear when they are complete. Zeroes: none. */
typedef struct rpexec_record {
    rp_output timeline; /**< timeline.csv (common/timeline_csv.h) */
    rp_output program;  /**< program.txt, which the timeline belongs to */
    rp_output costs;    /**< costs.yaml, a cost table of rpsim */
    rp_output platform; /**< platform.yaml, a platform of rpsim with the measured rates */
} rpexec_record;

/** What a record says besides. */
typedef struct rpexec_recorded {
    const char *model;
    const char *backend;
    const rpexec_machine *machine; /**< whose topology the platform file keeps */
    uint64_t gpu_bytes;            /**< of a device's memory; 0: GPUs are the host's threads */
    uint32_t sharing_gpus;         /**< that are parts of one device, and share its link; 0: none */
} rpexec_recorded;

/**
 * Makes the folder where it is missing, and opens the files.
 * @param record_out rpexec_record_fini, also after a failure
 * @retval RP_OK, RP_INPUT (it cannot be written; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_record_open(const char *folder, rp_arena *arena, rpexec_record *record_out);

/**
 * Measures (exec/measure.h) and writes.
 * @param flops rpexec_work_costs of the model
 * @param skip iterations that do not count
 * @retval RP_OK, RP_USAGE (rpexec_measure; logged), RP_IO (logged), RP_NO_MEMORY
 */
rp_status rpexec_record_write(const rpexec_plan *plan, const rp_timeline *timeline,
                              const rp_costs *flops, uint32_t skip, const rpexec_recorded *recorded,
                              rp_arena *arena, rpexec_record *record);

/** Files that were not written do not appear. */
void rpexec_record_fini(rpexec_record *record);
