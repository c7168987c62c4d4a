/** @file sweep.h  Runs an experiment's points and stores what has become of them. */
#pragma once

#include "experiments/crew.h"

typedef struct rpsweep_config {
    const rpsweep_experiment *experiment;
    const rpsweep_crew_type *crew_type;
    rpsweep_crew_config crew;
    const char *db;
    bool resume;        /**< goes on with what the store has of the experiment */
    bool retry;         /**< with resume: points that have failed run again */
    uint32_t shard;     /**< runs combinations number % shards == shard only */
    uint32_t shards;    /**< at least 1 */
    bool show_progress; /**< on stderr */
} rpsweep_config;

typedef struct rpsweep_summary {
    uint64_t points;         /**< of the experiment and shard */
    uint64_t present;        /**< that the store had */
    uint64_t present_failed; /**< of these, have failed */
    uint64_t run;
    uint64_t failed;
    double seconds;
    bool stopped; /**< by a signal */
} rpsweep_summary;

/**
 * Runs all points that the store does not have. Outcomes are committed as they come, several at a
 * time; a sweep that is killed loses at most those of the last second, which --resume runs again.
 * Failed points are listed on stderr, the first ones with their cause.
 * @param summary_out filled as far as the sweep came, also after a failure
 * @retval RP_OK also with failed points, and when a signal has stopped it
 * @retval RP_USAGE the store has points of the experiment and `resume` is false; bad options in a
 *         point (logged with the file's line)
 * @retval RP_INPUT, RP_DATABASE, RP_TOOL, RP_NO_MEMORY
 */
rp_status rpsweep_run(const rpsweep_config *config, rpsweep_summary *summary_out);
