/** @file processes.h  The processes of a training run, one per server, and messages between them.
 *
 * Every two processes have a TCP connection. Its messages arrive in the order in which they were
 * sent. A thread per connection reads and calls the handler, and another thread writes, so that a
 * handler may send. A process that is gone is noticed by all others, which report it and fail. The
 * same holds for a process that is stopped or has lost its network: processes send each other signs
 * of life, and a process that is silent for too long is named in the message, as is a process for
 * which all others wait while it waits itself.
 *
 * All of a process's bytes leave it one after the other, at a rate that may be limited: a
 * connection's bytes then arrive no earlier than a network card of that rate would have sent them.
 * Arriving bytes are not limited, which makes no difference for two processes, and for rings of
 * more.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "common/program/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define RPEXEC_MAX_PROCESSES 64u

typedef struct rpexec_processes rpexec_processes;

/** A message. Only sender and handler know the meaning of its members, except `bytes`. */
typedef struct rpexec_message {
    uint32_t kind; /**< below RPEXEC_MESSAGE_OWN */
    uint32_t number;
    uint64_t bytes; /**< size of the payload that follows; 0 for messages to the handler */
    uint64_t values[2];
} rpexec_message;

/** Kinds from here on are used only inside exec/processes. */
#define RPEXEC_MESSAGE_OWN 256u

/** Receiver of messages, called by the connection's thread. */
typedef struct rpexec_processes_handler {
    void *context;
    /** A message has come. */
    void (*arrived)(void *context, uint32_t from, const rpexec_message *message);
    /** A process is gone, or has failed: no process answers any more. Called at most once. */
    void (*lost)(void *context);
} rpexec_processes_handler;

/** The way in which processes were started, and in which they exchange their addresses. */
typedef struct rpexec_launch {
    uint32_t rank;
    uint32_t count;
    /** Gives every process the bytes of all processes. @param all_out [count] x bytes
     * @retval RP_OK, RP_TOOL (logged) */
    rp_status (*exchange)(const void *own, size_t bytes, void *all_out);
    /** Ends the exchange. */
    void (*end)(void);
} rpexec_launch;

/** @return processes that mpirun has started for this run, from the environment; 1: it has started
 *         none.
 */
uint32_t rpexec_launch_started(void);

/**
 * Finds out whether several processes were started for this run (mpirun). If so, this process ends
 * when mpirun ends, or when a call of the launch lasts longer than `patience_s` (guard.h).
 * @param launch_out count 1: only this process was started; the other members are not set
 * @retval RP_OK, RP_USAGE (several were started, and this program was built without MPI; logged)
 */
rp_status rpexec_launch_find(uint32_t patience_s, rpexec_launch *launch_out);

typedef struct rpexec_processes_config {
    const char *build;   /**< text that names the program, the same in all processes */
    double bits_per_s;   /**< rate at which bits leave a process; 0: not limited */
    uint32_t patience_s; /**< seconds of silence of a process that end the run; 0: never */
} rpexec_processes_config;

/**
 * Connects all processes within 30 s, or patience_s if that is less, and ends the launch. Listens
 * on the loopback interface if all processes run on the same machine. A caller without the run's
 * token, which the launch gives to all processes, is rejected and delays nobody.
 * @param processes_out release with rpexec_processes_close
 * @retval RP_OK, RP_USAGE (another process has another build; logged), RP_TOOL (logged),
 *         RP_NO_MEMORY
 */
rp_status rpexec_processes_open(const rpexec_launch *launch, const rpexec_processes_config *config,
                                rpexec_processes **processes_out);

/** Tells the others that all went well, waits until they say the same, and disconnects. If not, the
 * others are told at once. Does nothing for NULL. @retval RP_OK, RP_LOST (not all went well, or a
 * process has failed; its failure is logged) */
rp_status rpexec_processes_close(rpexec_processes *processes, bool well);

/** @return the rank of this process. */
uint32_t rpexec_processes_rank(const rpexec_processes *processes);

/** @return the number of processes. */
uint32_t rpexec_processes_count(const rpexec_processes *processes);

/** @return whether the process runs on the machine of this process. */
bool rpexec_processes_is_beside(const rpexec_processes *processes, uint32_t process);

/** Limits the rate at which bytes leave this process from now on. No message may be on its way.
 * @param bits_per_s 0: no limit. @return the limit before */
double rpexec_processes_limit(rpexec_processes *processes, double bits_per_s);

/** @return whether a process is gone or has failed. */
bool rpexec_processes_failed(rpexec_processes *processes);

/** @return bytes of arrays that this process has sent so far for sums. */
uint64_t rpexec_processes_sent_bytes(rpexec_processes *processes);

/** Notes the current step of this process, from 1 on. Messages about processes that have not come
 * name it. */
void rpexec_processes_note_step(rpexec_processes *processes, uint64_t step);

/** Notes that a part of the work has been done; from any thread, often. */
void rpexec_processes_note_work(rpexec_processes *processes);

/** Note the beginning and end of a wait for a process outside of exec/processes. */
void rpexec_processes_begin_wait(rpexec_processes *processes, uint32_t process);
void rpexec_processes_end_wait(rpexec_processes *processes);

/** @return whether a thread of this process waits for another process. */
bool rpexec_processes_waits(const rpexec_processes *processes);

/** Notes that all processes know why the run ends here: processes that leave are not reported any
 * more. */
void rpexec_processes_part(rpexec_processes *processes);

/** Sends messages to `handler` from now on; NULL: they wait. When it returns, no thread is in the
 * handler set before. */
void rpexec_processes_handle(rpexec_processes *processes, const rpexec_processes_handler *handler);

/** Sends a message to all others, from any thread. @retval RP_OK, RP_LOST (a process is gone, or
 * has failed), RP_NO_MEMORY */
rp_status rpexec_processes_tell(rpexec_processes *processes, const rpexec_message *message);

/**
 * Sums an array over all processes, in fp32 by ascending rank and rounded once: the same bits
 * everywhere. As with a ring, 2 (n - 1) / n of its bytes leave each process.
 * @param tag the same in all processes, and different from the tags of other calls under way; calls
 *        with the same tag are made in the same order everywhere
 * @retval RP_OK, RP_LOST, RP_NO_MEMORY
 */
rp_status rpexec_processes_all_reduce(rpexec_processes *processes, uint64_t tag, rp_dtype dtype,
                                      uint64_t count, void *array);

/** Gets a number from each process, [count]; `tag` as above. @retval as above */
rp_status rpexec_processes_gather(rpexec_processes *processes, uint64_t tag, double own,
                                  double *all_out);

/** Reports that this process has failed: the others are told, and all waiting in this process
 * ends. */
void rpexec_processes_abort(rpexec_processes *processes);

/** The next two functions are called by a single thread, with the same calls in the same order in
 * all processes. */

/** Returns when all processes have come. @retval RP_OK, RP_LOST */
rp_status rpexec_processes_meet(rpexec_processes *processes);

/** Gives all processes the array of process `root`. @retval RP_OK, RP_LOST */
rp_status rpexec_processes_share(rpexec_processes *processes, uint32_t root, void *array,
                                 uint64_t bytes);
