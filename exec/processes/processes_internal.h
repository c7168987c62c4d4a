/** @file processes_internal.h  Used only in exec/processes. */
#pragma once

#include "exec/processes/processes.h"

#include <pthread.h>
#include <stdatomic.h>

/** Bytes that are summed at a time, and most bytes that are written at a time: so large that
 * threads are rarely woken up for them. */
#define RPEXEC_PIECE_BYTES (UINT64_C(256) << 10)

/** A message on its way out. */
typedef struct rpexec_letter {
    struct rpexec_letter *next;
    rpexec_message message;
    const void *payload;
    int64_t given_ns; /**< time from which the card could send it */
    bool *left;       /**< set when the payload has left; NULL: no thread waits */
} rpexec_letter;

/** Values that have arrived, before a thread takes them. */
typedef struct rpexec_parcel {
    struct rpexec_parcel *next;
    uint32_t from;
    uint64_t tag;
    uint64_t bytes;
    _Alignas(float) unsigned char values[];
} rpexec_parcel;

/** A connection. */
typedef struct rpexec_link {
    rpexec_processes *processes;
    uint32_t other;
    bool beside; /**< the other process runs on this machine */
    int socket;  /**< -1: none */
    pthread_t reader;
    pthread_t writer;
    bool reads; /**< the reader has been started */
    bool writes;
    pthread_cond_t given; /**< wakes only the writer of this link */
    rpexec_letter *first; /**< letters to be written */
    rpexec_letter *last;
    bool writing;           /**< a letter is being written */
    bool held;              /**< its reader waits until this process takes the message that has
                                 arrived */
    bool ended;             /**< the other process has said that all went well */
    atomic_llong heard_ns;  /**< time of the last arrival */
    atomic_llong active_ns; /**< time of the last arrival other than a sign that it waits for
                                 others */
    atomic_ullong step;     /**< step of the other process; 0: it has not begun */
} rpexec_link;

struct rpexec_processes {
    rp_arena *arena;
    uint32_t rank;
    uint32_t count;
    double bits_per_s;
    int64_t patience_ns; /**< 0: without limit */
    rpexec_link *links;  /**< [count] */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    pthread_cond_t tick; /**< wakes the watch */
    pthread_t watch;     /**< sends and expects signs of life */
    bool watches;        /**< the watch has been started */
    rpexec_processes_handler handler;
    bool handled;        /**< there is a handler */
    uint32_t inside;     /**< threads in the handler */
    atomic_uint waiting; /**< threads that wait for other processes */
    atomic_uint awaited; /**< process for which the last of these threads waits */
    atomic_ullong works; /**< parts of work that have been done */
    atomic_ullong step;  /**< step of this process; 0: it has not begun */
    bool parting;        /**< all processes know that the run ends: leaving is no failure */
    bool leaving;        /**< this process has said that it ends */
    bool closing;        /**< writers end when they have written all letters */
    bool failing;        /**< a failure is being reported: a process is gone, or this process has
                              failed */
    bool failed;
    int64_t failed_ns;   /**< time at which the failure was noticed; 0: not yet */
    uint64_t sent_bytes; /**< bytes of arrays sent for sums */
    int64_t free_ns;     /**< time at which the card has sent all bytes that it was given */
    uint64_t *met;       /**< [count] meetings that each process has come to */
    void *target;        /**< memory for the array that is shared now; NULL: no thread waits for an
                              array */
    uint64_t target_bytes;
    uint32_t target_root;   /**< process that sends the array */
    bool filling;           /**< the array is being read */
    bool taken;             /**< the array has arrived */
    rpexec_parcel *parcels; /**< parcels that no thread has taken yet, the oldest first */
    rpexec_parcel **parcels_end;
};

/** Kinds of messages that the handler does not see. */
enum {
    RPEXEC_MESSAGE_MEET = RPEXEC_MESSAGE_OWN,
    RPEXEC_MESSAGE_SHARE,
    RPEXEC_MESSAGE_PARCEL, /**< values[0]: its tag */
    RPEXEC_MESSAGE_ALIVE,  /**< number: whether the sender waits for others. values[0]: its step */
    RPEXEC_MESSAGE_END,    /**< all went well */
    RPEXEC_MESSAGE_ABORT,  /**< the sender has failed or gives up a process. number: that process */
};

/** Variables of Open MPI and MPICH with the number of started processes; NULL-terminated. */
extern const char *const rpexec_launch_variables[];

/** @return CLOCK_MONOTONIC. */
int64_t rpexec_processes_now_ns(void);

/** Waits for `moved` because of another process. Called with the lock held. */
static inline void rpexec_processes_wait(rpexec_processes *processes, uint32_t other)
{
    rpexec_processes_begin_wait(processes, other);
    pthread_cond_wait(&processes->moved, &processes->lock);
    rpexec_processes_end_wait(processes);
}

/** Ends the run because of a process: the first cause is logged, and the handler is told before
 * threads that wait for a process return. @param cause text after "process I of N " */
void rpexec_processes_fail(rpexec_processes *processes, uint32_t other, const char *cause);

/**
 * Gives a message to a connection's writer.
 * @param left set when the message has left; rpexec_processes_await must be called for it. NULL: no
 * thread waits
 * @retval RP_OK, RP_LOST (not for RPEXEC_MESSAGE_ABORT), RP_NO_MEMORY
 */
rp_status rpexec_processes_put(rpexec_processes *processes, uint32_t to,
                               const rpexec_message *message, const void *payload, bool *left);

/** Run a connection's threads. @param context the rpexec_link @return NULL */
void *rpexec_processes_write_letters(void *context);
void *rpexec_processes_read_letters(void *context);

/** Runs the thread that sends signs of life and expects those of the others. @param context the
 * rpexec_processes
 * @return NULL */
void *rpexec_processes_watch(void *context);

/**
 * Sends values that the other process takes by their tag.
 * @param left set when the values and all messages given to this process before have left;
 *        rpexec_processes_await must be called for it. NULL: no thread waits
 * @retval RP_OK, RP_LOST, RP_NO_MEMORY
 */
rp_status rpexec_processes_give(rpexec_processes *processes, uint32_t to, uint64_t tag,
                                const void *values, uint64_t bytes, bool *left);

/** Waits until values have left for a process, also after a failure. @retval RP_OK, RP_LOST */
rp_status rpexec_processes_await(rpexec_processes *processes, uint32_t to, const bool *left);

/** After a failure: waits until no payload is being written or will be. */
void rpexec_processes_settle(rpexec_processes *processes);

/**
 * Waits for values of a tag from another process, and takes the oldest.
 * @param parcel_out release with rp_mem_release
 * @retval RP_OK, RP_LOST (also if the values have another size; logged)
 */
rp_status rpexec_processes_take(rpexec_processes *processes, uint32_t from, uint64_t tag,
                                uint64_t bytes, rpexec_parcel **parcel_out);

/** Connects all links. @param build rpexec_processes_config's @retval RP_OK, RP_TOOL, RP_USAGE
 * (another build; logged), RP_NO_MEMORY */
rp_status rpexec_processes_connect(rpexec_processes *processes, const rpexec_launch *launch,
                                   const char *build);
