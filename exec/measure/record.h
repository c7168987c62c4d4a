/** @file record.h  --record DIR: a run's timeline, and what it measured as files of rpsim.
 *
 *  - timeline.csv, program.txt: the last program that ran, and when each op did (events).
 *  - costs.yaml: times of layers, head and hop, a cost table of rpsim: medians of the run's ops
 *    (measure.h). Of backwards that the run does not split, the input part is as much as its
 *    operators take by themselves (operators.csv); by FLOP where these are not measured.
 *  - platform.yaml: rates, latencies and what starting takes, a platform of rpsim; see below.
 *  - links.csv: each way of each GPU by piece size, alone and together (calibrate.h).
 *  - starts.csv: from an op's end to the start of the next one, beside the run and in it
 *    (calibrate.h).
 *  - operators.csv: each operator of each kind of layer, and how much of the layers' measured time
 *    they explain (calibrate_operators.h).
 *
 * Values that rpsim predicts with (sim/model.md 1, 2) come from these: upload_gb_per_s,
 * download_gb_per_s (link_effective_gb_per_s is their mean) and copy_latency_us are the lines
 * through the medians of pieces that one GPU copies alone; memory_gb_per_s is what UPDATE does on
 * all GPUs at once (calibrate.h); attention has the rate of its operators; op_gap_us and op_wake_us
 * are the medians of ops that compute and move nothing; Adam's rate on the host is what the run's
 * own REFRESH, COLLECT and OPTIMIZER ops did, with as many threads as they had, or without such ops
 * what all threads do together (host/rates.h). On the host backend without limited links copies are
 * work of threads: their rates are those of the run's own ones, or of one thread, and there is no
 * latency.
 *
 * No key is listed as measured that another quantity's measurement has stood in for: that is
 * assumed, and its note says of what.
 *
 * Processes of a run measure at the same time, what each of them does beside the others: that is
 * how the machine will be used. Process 0 writes its own measurements, times of layers
 * of the slowest process, for which the others wait, and network_gb_per_s and network_hop_us from
 * sums over all of them (calibrate.h). Where processes share processors
 * (load.h), host_cores is one's part.
 *
 * A record of a busy machine (load.h) is marked: recorded_busy_pct in platform.yaml, of which every
 * program warns that reads it, and the source of costs.yaml.
 */
#pragma once

#include "common/base/text.h"
#include "exec/measure/calibrate.h"
#include "exec/measure/load.h"
#include "exec/measure/measure.h"
#include "exec/run/link_machine.h"

/** Files that are open, and appear when they are complete. Zeroes: none. */
typedef struct rpexec_record {
    rp_output timeline;  /**< timeline.csv (common/timeline/timeline_csv.h) */
    rp_output program;   /**< program.txt, which the timeline belongs to */
    rp_output costs;     /**< costs.yaml, a cost table of rpsim */
    rp_output platform;  /**< platform.yaml, a platform of rpsim with the measured rates */
    rp_output links;     /**< links.csv */
    rp_output starts;    /**< starts.csv */
    rp_output operators; /**< operators.csv */
    const char *made;    /**< the folder, where rpexec_record_open has made it; or NULL */
} rpexec_record;

/** Names, conditions and machine of a recorded run. */
typedef struct rpexec_recorded {
    const char *model;
    const char *backend;
    const char *conditions;        /**< of the times, without sizes (rpexec_predict_conditions) */
    rp_arithmetic arithmetic;      /**< of the run; its accumulation is not USUAL */
    const rpexec_machine *machine; /**< whose topology the platform file keeps */
    const rpexec_site *site; /**< where to measure; gpu_bytes 0: GPUs are the host's threads */
    uint32_t sharing_gpus;   /**< that are parts of one device, and share its link; 0: none */
    const rpexec_load *load; /**< when the run began; NULL: the record is not marked */
    rpexec_processes
        *processes; /**< processes of the run, all of which measure; NULL: there is one */
} rpexec_recorded;

/**
 * Makes the folder where it is missing, and opens the files.
 * @param record_out rpexec_record_fini, also after a failure
 * @retval RP_OK, RP_INPUT (it cannot be written; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_record_open(const char *folder, rp_arena *arena, rpexec_record *record_out);

/**
 * Measures the run (exec/measure/measure.h), and what its backend does when nothing else runs, and
 * writes it for rpexec_record_commit. Takes a few seconds. No program may be open on the site's
 * devices.
 * @param flops rpexec_work_costs of the model
 * @param skip iterations that do not count
 * @param record files that are not open are not written: of other processes than 0
 * @retval RP_OK, RP_USAGE (rpexec_measure; logged), RP_IO, RP_TOOL, RP_BROKEN (a copy or an
 * operator has failed; logged), RP_NO_MEMORY
 */
rp_status rpexec_record_write(const rpexec_plan *plan, const rp_timeline *timeline,
                              const rp_costs *flops, uint32_t skip, const rpexec_recorded *recorded,
                              rp_arena *arena, rpexec_record *record);

/** Lets the files appear, in place of those of an earlier run. @retval RP_OK, RP_IO (logged) */
rp_status rpexec_record_commit(rpexec_record *record);

/** Files that were not written do not appear. */
void rpexec_record_fini(rpexec_record *record);
