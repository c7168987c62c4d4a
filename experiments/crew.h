/** @file crew.h  Crews that run points: processes of this machine, or other ranks of an MPI job.
 *
 * A worker gets a few points at a time and sends back the outcome of each. The sweep stays with a
 * single thread of a single process; nobody else knows the store.
 */
#pragma once

#include "experiments/point_run.h"

/** Default of --watchdog-s, in seconds. */
#define RPSWEEP_WATCHDOG_S 60u

/** Largest number of points that a worker has at a time. */
#define RPSWEEP_CHUNK 64u

typedef struct rpsweep_crew rpsweep_crew;

typedef struct rpsweep_crew_config {
    const rpsweep_experiment *experiment;
    const char *rpexec;  /**< path of the program that runs executed points */
    uint32_t jobs;       /**< number of worker processes, at least 1; unused with MPI */
    uint32_t patience_s; /**< with MPI: seconds of silence of a rank that end the sweep */
} rpsweep_crew_config;

/** Functions that bring points to workers and outcomes back. */
typedef struct rpsweep_crew_type {
    /** Starts the workers. @retval RP_OK, RP_TOOL (logged), RP_NO_MEMORY */
    rp_status (*open)(const rpsweep_crew_config *config, rpsweep_crew **crew_out);
    /** @return the number of workers. */
    uint32_t (*size)(const rpsweep_crew *crew);
    /** Sends points to a worker. @param count 1 to RPSWEEP_CHUNK @retval RP_OK, RP_TOOL (logged) */
    rp_status (*give)(rpsweep_crew *crew, uint32_t worker, const uint64_t *numbers, uint32_t count);
    /**
     * Waits for a message of a worker, which holds the outcome of a point.
     * @param wait_ms longest time to wait, in milliseconds
     * @param worker_out the sender; UINT32_MAX if no message came within that time
     * @param message_out emptied, then filled. It stays empty if the worker that is named has ended
     * while it ran a point: a new worker has taken its place, and `cause_out` says how the old
     * worker ended
     * @retval RP_OK, RP_TOOL (logged), RP_LOST (a rank is silent; logged), RP_NO_MEMORY
     */
    rp_status (*next)(rpsweep_crew *crew, int wait_ms, uint32_t *worker_out, rp_text *message_out,
                      const char **cause_out);
    /** Ends the workers, even in the middle of a point. NULL is allowed. */
    void (*close)(rpsweep_crew *crew);
} rpsweep_crew_type;

/** Processes of this machine. */
extern const rpsweep_crew_type rpsweep_crew_processes;

/** Ranks 1 and above of an MPI job; NULL if rpsweep was built without MPI. */
extern const rpsweep_crew_type *const rpsweep_crew_mpi;

/**
 * Call this first in main. In every rank of an MPI job except rank 0 it returns only after the
 * sweep has ended.
 * @param argv [argc] the command line, which must be the same in all ranks except for the program's
 * name
 * @param is_mpi_out true: this is rank 0 of a job that has other ranks
 * @param is_worker_out true: this is another rank, which has nothing left to do
 * @retval RP_OK, RP_TOOL (logged), RP_USAGE (the command line differs from rank 0's; logged)
 */
rp_status rpsweep_mpi_begin(int argc, char **argv, bool *is_mpi_out, bool *is_worker_out);

/** Tells the other ranks that this rank is alive, at most once a second. Long work that exchanges
 * no messages must call it often. Without MPI it does nothing. */
void rpsweep_mpi_alive(void);

/** Ends the job that rpsweep_mpi_begin has begun; the other ranks are not needed any more. It does
 * not return if a rank has been silent for too long. Calling it twice is harmless. */
void rpsweep_mpi_end(void);
