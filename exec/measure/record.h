/** @file record.h  --record DIR: a run's timeline, and its measurements as files of rpsim.
 *
 *  - timeline.csv, program.txt: the last program that ran, and the times of its ops (events).
 *  - costs.yaml: times of layers, head and hop, a cost table of rpsim: medians of the run's ops
 *    (measure.h). If the run does not split its backwards, the input part gets the share of its
 *    operators' times (operators.csv), or of FLOP if operators are not measured.
 *  - platform.yaml: rates, latencies and times of starting, a platform of rpsim; see below.
 *  - links.csv: each direction of each GPU by piece size, alone and together (calibrate.h).
 *  - starts.csv: from an op's end to the start of the next op, measured separately and in the run
 *    (calibrate.h).
 *  - operators.csv: each operator of each kind of layer, and the part of the layers' measured time
 *    that they explain (calibrate_operators.h).
 *
 * These measurements give the values with which rpsim predicts (sim/model.md 1, 2).
 * upload_gb_per_s, download_gb_per_s (link_effective_gb_per_s is their mean) and copy_latency_us
 * come from the lines through the medians of pieces that a single GPU copies alone. memory_gb_per_s
 * is the rate of UPDATE on all GPUs at once (calibrate.h). Attention has the rate of its operators.
 * op_gap_us and op_wake_us are the medians of ops that compute and move nothing. Adam's rate on the
 * host is that of the run's own REFRESH, COLLECT and OPTIMIZER ops with their number of threads,
 * or, without such ops, of all threads together (host/rates.h). On the host backend without limited
 * links copies are work of threads: they have the rates of the run's own copies, or of a thread,
 * and no latency.
 *
 * A key is not listed as measured if the measurement of another quantity stands in for it: such a
 * value is assumed, and its note names the other quantity.
 *
 * Processes of a run measure at the same time, each with the others at work, as the machine will be
 * used. Process 0 writes its own measurements, except the times of layers, which are those of the
 * slowest process, for which the others wait, and network_gb_per_s and network_hop_us, which come
 * from sums over all processes (calibrate.h). If processes share processors (load.h), host_cores is
 * the part of a single process.
 *
 * A record of a busy machine (load.h) is marked: by recorded_busy_pct in platform.yaml, which makes
 * every program that reads it warn, and in the source of costs.yaml.
 */
#pragma once

#include "common/base/text.h"
#include "exec/measure/calibrate.h"
#include "exec/measure/load.h"
#include "exec/measure/measure.h"
#include "exec/run/link_machine.h"

/** Open files, which appear under their names when they are complete. Zeroes: none. */
typedef struct rpexec_record {
    rp_output timeline;  /**< timeline.csv (common/timeline/timeline_csv.h) */
    rp_output program;   /**< program.txt, the program of the timeline */
    rp_output costs;     /**< costs.yaml, a cost table of rpsim */
    rp_output platform;  /**< platform.yaml, a platform of rpsim with the measured rates */
    rp_output links;     /**< links.csv */
    rp_output starts;    /**< starts.csv */
    rp_output operators; /**< operators.csv */
    const char *made;    /**< the folder, if rpexec_record_open has made it; otherwise NULL */
} rpexec_record;

/** Names, conditions and machine of a recorded run. */
typedef struct rpexec_recorded {
    const char *model;
    const char *backend;
    const char *conditions;        /**< conditions of the times, without sizes
                                        (rpexec_predict_conditions) */
    rp_arithmetic arithmetic;      /**< types of the run; its accumulation is not USUAL */
    const rpexec_machine *machine; /**< gives the platform file's topology */
    const rpexec_site *site; /**< devices to measure; gpu_bytes 0: GPUs are the host's threads */
    uint32_t sharing_gpus;   /**< GPUs that are parts of a single device and share its link; 0:
                                  none */
    const rpexec_load *load; /**< load when the run began; NULL: the record is not marked */
    rpexec_processes *processes; /**< processes of the run, all of which measure; NULL: there is a
                                    single process */
} rpexec_recorded;

/**
 * Makes the folder if it is missing, and opens the files.
 * @param record_out release with rpexec_record_fini, also after a failure
 * @retval RP_OK, RP_INPUT (it cannot be written; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_record_open(const char *folder, rp_arena *arena, rpexec_record *record_out);

/**
 * Measures the run (exec/measure/measure.h), and its backend when nothing else runs, and writes the
 * files, which rpexec_record_commit lets appear. Takes a few seconds. No program may be open on the
 * site's devices.
 * @param flops rpexec_work_costs of the model
 * @param skip iterations that do not count
 * @param record its files; those that are not open, as in processes other than 0, are not written
 * @retval RP_OK, RP_USAGE (rpexec_measure; logged), RP_IO, RP_TOOL, RP_BROKEN (a copy or an
 * operator has failed; logged), RP_NO_MEMORY
 */
rp_status rpexec_record_write(const rpexec_plan *plan, const rp_timeline *timeline,
                              const rp_costs *flops, uint32_t skip, const rpexec_recorded *recorded,
                              rp_arena *arena, rpexec_record *record);

/** Lets the files appear in place of an earlier run's files. @retval RP_OK, RP_IO (logged) */
rp_status rpexec_record_commit(rpexec_record *record);

/** Closes the record; files that were not committed do not appear. */
void rpexec_record_fini(rpexec_record *record);
