/** @file crew.h  Crews that run points: processes of this machine, or other ranks of an MPI job.
 *
 * A worker gets a few points at a time and sends back what has become of each. The sweep stays
 * with one thread of one process, which alone knows the store.
 */
#pragma once

#include "experiments/point_run.h"

/** Seconds of --watchdog-s without it. */
#define RPSWEEP_WATCHDOG_S 60u

/** Most points that a worker has at a time. */
#define RPSWEEP_CHUNK 64u

typedef struct rpsweep_crew rpsweep_crew;

typedef struct rpsweep_crew_config {
    const rpsweep_experiment *experiment;
    const char *rpexec;  /**< the program for executed points */
    uint32_t jobs;       /**< worker processes, at least 1; not with MPI */
    uint32_t patience_s; /**< MPI: a rank that is silent for so long ends the sweep */
} rpsweep_crew_config;

/** Functions that bring points to workers and outcomes back. */
typedef struct rpsweep_crew_type {
    /** Starts the workers. @retval RP_OK, RP_TOOL (logged), RP_NO_MEMORY */
    rp_status (*open)(const rpsweep_crew_config *config, rpsweep_crew **crew_out);
    /** @return workers. */
    uint32_t (*size)(const rpsweep_crew *crew);
    /** Sends points to a worker. @param count 1 to RPSWEEP_CHUNK @retval RP_OK, RP_TOOL (logged) */
    rp_status (*give)(rpsweep_crew *crew, uint32_t worker, const uint64_t *numbers, uint32_t count);
    /**
     * Waits for a message of a worker: one outcome.
     * @param wait_ms at most so long
     * @param worker_out its sender; UINT32_MAX: there was none within that time
     * @param message_out emptied, then filled. Empty though a worker is named: it has ended while
     * it ran a point, a new one has taken its place, and `cause_out` says how it ended
     * @retval RP_OK, RP_TOOL (logged), RP_LOST (a rank is silent; logged), RP_NO_MEMORY
     */
    rp_status (*next)(rpsweep_crew *crew, int wait_ms, uint32_t *worker_out, rp_text *message_out,
                      const char **cause_out);
    /** Ends the workers, also in the middle of a point. NULL is allowed. */
    void (*close)(rpsweep_crew *crew);
} rpsweep_crew_type;

/** Processes of this machine. */
extern const rpsweep_crew_type rpsweep_crew_processes;

/** Ranks 1 and above of an MPI job; NULL where rpsweep was built without MPI. */
extern const rpsweep_crew_type *const rpsweep_crew_mpi;

/**
 * To be called first in main. In a rank other than 0 of an MPI job it does not return before the
 * sweep has ended.
 * @param argv [argc] the command line, which all ranks must have alike, the program's name aside
 * @param is_mpi_out whether this is rank 0 of a job with others
 * @param is_worker_out this was another rank: there is nothing left to do
 * @retval RP_OK, RP_TOOL (logged), RP_USAGE (another command line than rank 0's; logged)
 */
rp_status rpsweep_mpi_begin(int argc, char **argv, bool *is_mpi_out, bool *is_worker_out);

/** Tells the other ranks that this one works, once a second at most: to be called often where work
 * without messages takes long. Without MPI: nothing. */
void rpsweep_mpi_alive(void);

/** Ends what rpsweep_mpi_begin has begun; others are not needed any more. Does not return where a
 * rank has been silent for too long. Harmless when it has been called. */
void rpsweep_mpi_end(void);
