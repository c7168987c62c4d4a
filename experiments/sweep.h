/** @file sweep.h  Runs an experiment's points and stores their outcomes. */
#pragma once

#include "experiments/crew.h"

typedef struct rpsweep_config {
    const rpsweep_experiment *experiment;
    const rpsweep_crew_type *crew_type;
    rpsweep_crew_config crew;
    const char *db;
    bool resume;        /**< goes on with an experiment of which the store has points */
    bool retry;         /**< with `resume`: points that have failed run again */
    uint32_t shard;     /**< runs only combinations with number % shards == shard */
    uint32_t shards;    /**< number of shards, at least 1 */
    bool show_progress; /**< shows progress on stderr */
} rpsweep_config;

typedef struct rpsweep_summary {
    uint64_t points;         /**< number of points of the experiment and shard */
    uint64_t present;        /**< points that the store had */
    uint64_t present_failed; /**< number of these that have failed */
    uint64_t run;
    uint64_t failed;
    double seconds;
    bool stopped; /**< a signal has stopped the sweep */
} rpsweep_summary;

/**
 * Runs all points that the store does not have. Outcomes are committed as they come, several at a
 * time; a sweep that is killed loses at most the last second's outcomes, and --resume runs those
 * points again. Failed points are listed on stderr, the first of them with their cause.
 * @param summary_out filled as far as the sweep came, also after a failure
 * @retval RP_OK also if points have failed or a signal has stopped the sweep
 * @retval RP_USAGE the store has points of the experiment and `resume` is false; bad options in a
 *         point (logged with the file's line)
 * @retval RP_INPUT, RP_DATABASE, RP_TOOL, RP_NO_MEMORY
 */
rp_status rpsweep_run(const rpsweep_config *config, rpsweep_summary *summary_out);
