/** @file processes.h  The processes of one training run, one per server, and messages between them.
 *
 * Every two processes have a TCP connection. Messages from one to the other arrive in the order in
 * which they were sent. A thread per connection reads and calls the handler, another one writes, so
 * that a handler may send. A process that is gone is noticed by all others, which say so and fail.
 * So is one that is stopped, or without a network: processes give each other signs of life, and one
 * that is silent for too long is named, as is one that all others wait for while it waits itself.
 *
 * All of a process's bytes leave it one after the other, at a rate that may be limited: a
 * connection's bytes then arrive no earlier than a network card of that rate would have sent them.
 * Bytes that arrive are not limited, which is the same for two processes, and for rings of more.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "common/program/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define RPEXEC_MAX_PROCESSES 64u

typedef struct rpexec_processes rpexec_processes;

/** A message; all but `bytes` is between sender and handler. */
typedef struct rpexec_message {
    uint32_t kind; /**< below RPEXEC_MESSAGE_OWN */
    uint32_t number;
    uint64_t bytes; /**< of what follows it; 0 of messages to the handler */
    uint64_t values[2];
} rpexec_message;

/** Kinds from here on are processes.c's own. */
#define RPEXEC_MESSAGE_OWN 256u

/** Receiver of messages, called by the connection's thread. */
typedef struct rpexec_processes_handler {
    void *context;
    /** A message has come. */
    void (*arrived)(void *context, uint32_t from, const rpexec_message *message);
    /** A process is gone, or has failed: nobody answers any more. Once at most. */
    void (*lost)(void *context);
} rpexec_processes_handler;

/** Way of the processes to each other; how they were started. */
typedef struct rpexec_launch {
    uint32_t rank;
    uint32_t count;
    /** Every process gets what each of them gives. @param all_out [count] x bytes
     * @retval RP_OK, RP_TOOL (logged) */
    rp_status (*exchange)(const void *own, size_t bytes, void *all_out);
    /** Nothing is exchanged any more. */
    void (*end)(void);
} rpexec_launch;

/** @return processes that mpirun has started for this run, as its environment says; 1: it has not.
 */
uint32_t rpexec_launch_started(void);

/**
 * Finds out whether several processes were started for this run (mpirun). Then this one ends when
 * mpirun does, and a call of the launch that lasts longer than `patience_s` ends it (guard.h).
 * @param launch_out count 1: none were, and there is nothing else in it
 * @retval RP_OK, RP_USAGE (they were, and this program was built without MPI; logged)
 */
rp_status rpexec_launch_find(uint32_t patience_s, rpexec_launch *launch_out);

typedef struct rpexec_processes_config {
    const char *build;   /**< the same in all processes: what they run, for people */
    double bits_per_s;   /**< that leave a process; 0: as fast as it goes */
    uint32_t patience_s; /**< a process that is silent for so long ends the run; 0: never */
} rpexec_processes_config;

/**
 * Connects all processes within 30 s, or patience_s if that is less, and ends the launch. Listens
 * on the loopback interface where all run on one machine. What connects and does not know the run's
 * token, which the launch brings to all, is sent away and delays nobody.
 * @param processes_out to be closed
 * @retval RP_OK, RP_USAGE (another build in another process; logged), RP_TOOL (logged),
 *         RP_NO_MEMORY
 */
rp_status rpexec_processes_open(const rpexec_launch *launch, const rpexec_processes_config *config,
                                rpexec_processes **processes_out);

/** Tells the others that all went well, waits until they say the same, and disconnects. Where it
 * did not they are told at once. NULL is nothing. @retval RP_OK, RP_LOST (it did not, or a process
 * has failed; its failure is logged) */
rp_status rpexec_processes_close(rpexec_processes *processes, bool well);

/** @return which of the processes this is. */
uint32_t rpexec_processes_rank(const rpexec_processes *processes);

/** @return how many there are. */
uint32_t rpexec_processes_count(const rpexec_processes *processes);

/** @return true of a process that runs on this machine, as this one does. */
bool rpexec_processes_is_beside(const rpexec_processes *processes, uint32_t process);

/** Limits what leaves this process from now on. Nothing may be on its way. @param bits_per_s 0: as
 * fast as it goes. @return what it was before */
double rpexec_processes_limit(rpexec_processes *processes, double bits_per_s);

/** @return true once a process is gone, or has failed. */
bool rpexec_processes_failed(rpexec_processes *processes);

/** @return bytes of arrays that this process has sent to sum them, so far. */
uint64_t rpexec_processes_sent_bytes(rpexec_processes *processes);

/** Notes which step this process is in, from 1 on: for messages about who has not come to it. */
void rpexec_processes_note_step(rpexec_processes *processes, uint64_t step);

/** Notes that a part of the work has been done; from any thread, often. */
void rpexec_processes_note_work(rpexec_processes *processes);

/** A thread begins to wait for a process outside of exec/processes, and ends that. */
void rpexec_processes_begin_wait(rpexec_processes *processes, uint32_t process);
void rpexec_processes_end_wait(rpexec_processes *processes);

/** @return true where a thread of this process waits for another process. */
bool rpexec_processes_waits(const rpexec_processes *processes);

/** All processes know why the run ends here: that others go is said no more. */
void rpexec_processes_part(rpexec_processes *processes);

/** From now on messages go to `handler`; NULL: they wait. Nobody is in a handler afterwards that
 * was there before. */
void rpexec_processes_handle(rpexec_processes *processes, const rpexec_processes_handler *handler);

/** Sends a message to all others, from any thread. @retval RP_OK, RP_LOST (a process is gone, or
 * has failed), RP_NO_MEMORY */
rp_status rpexec_processes_tell(rpexec_processes *processes, const rpexec_message *message);

/**
 * Sums an array over all processes, in fp32 by ascending rank and rounded once: the same bits
 * everywhere. As with a ring, 2 (n - 1) / n of its bytes leave each process.
 * @param tag the same in all processes, of no other call under way; calls of one tag are made in
 *        the same order everywhere
 * @retval RP_OK, RP_LOST, RP_NO_MEMORY
 */
rp_status rpexec_processes_all_reduce(rpexec_processes *processes, uint64_t tag, rp_dtype dtype,
                                      uint64_t count, void *array);

/** Gets a number of each process, [count]; tags as above. @retval as above */
rp_status rpexec_processes_gather(rpexec_processes *processes, uint64_t tag, double own,
                                  double *all_out);

/** This process has failed: the others are told, and whoever waits here waits no more. */
void rpexec_processes_abort(rpexec_processes *processes);

/** The next two are called by one thread, the same calls in the same order in all processes. */

/** Returns when all processes have come. @retval RP_OK, RP_LOST */
rp_status rpexec_processes_meet(rpexec_processes *processes);

/** All get an array of one process. @retval RP_OK, RP_LOST */
rp_status rpexec_processes_share(rpexec_processes *processes, uint32_t root, void *array,
                                 uint64_t bytes);
