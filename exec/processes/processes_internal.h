/** @file processes_internal.h  Inside of exec/processes. Not for other modules. */
#pragma once

#include "exec/processes/processes.h"

#include <pthread.h>
#include <stdatomic.h>

/** Bytes that are summed at a time, and written at most: few threads are woken up for them. */
#define RPEXEC_PIECE_BYTES (UINT64_C(256) << 10)

/** A message on its way out. */
typedef struct rpexec_letter {
    struct rpexec_letter *next;
    rpexec_message message;
    const void *payload;
    int64_t given_ns; /**< when the card could have begun with it */
    bool *left;       /**< set when the payload has left; NULL: nobody waits */
} rpexec_letter;

/** Values that have come, before somebody takes them. */
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
    bool beside; /**< on this machine */
    int socket;  /**< -1: none */
    pthread_t reader;
    pthread_t writer;
    bool reads; /**< its threads have been started */
    bool writes;
    pthread_cond_t given; /**< the writer sleeps on it: others' news do not wake it */
    rpexec_letter *first; /**< to be written */
    rpexec_letter *last;
    bool writing;           /**< a letter is being written */
    bool held;              /**< its reader waits for this process to come to where it takes it */
    bool ended;             /**< the other one has said that all went well */
    atomic_llong heard_ns;  /**< when anything has come */
    atomic_llong active_ns; /**< when something has come but that it waits for others */
    atomic_ullong step;     /**< that the other one is in; 0: it has not begun */
} rpexec_link;

struct rpexec_processes {
    rp_arena *arena;
    uint32_t rank;
    uint32_t count;
    double bits_per_s;
    int64_t patience_ns; /**< 0: for ever */
    rpexec_link *links;  /**< [count] */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    pthread_cond_t tick; /**< the watch sleeps on it */
    pthread_t watch;     /**< sends and expects signs of life */
    bool watches;        /**< it has been started */
    rpexec_processes_handler handler;
    bool handled;        /**< there is a handler */
    uint32_t inside;     /**< threads in it */
    atomic_uint waiting; /**< threads that wait for other processes, */
    atomic_uint awaited; /**< the last one of them for this one */
    atomic_ullong works; /**< parts of work that have been done */
    atomic_ullong step;  /**< that this process is in; 0: it has not begun */
    bool parting;        /**< all know that the run ends: nobody who goes is missed */
    bool leaving;        /**< this one has said that it ends */
    bool closing;        /**< writers end when they have written all */
    bool failing;        /**< somebody is told that a process is gone, or this one has failed */
    bool failed;
    int64_t failed_ns;   /**< when that was noticed; 0: not yet */
    uint64_t sent_bytes; /**< of arrays that are summed */
    int64_t free_ns;     /**< when the card has sent what it was given */
    uint64_t *met;       /**< [count] meetings that each process has come to */
    void *target;        /**< of the array that is shared now; NULL: nobody waits for one */
    uint64_t target_bytes;
    uint32_t target_root;   /**< whose array it is */
    bool filling;           /**< it comes */
    bool taken;             /**< it has come */
    rpexec_parcel *parcels; /**< that nobody has taken yet, the oldest first */
    rpexec_parcel **parcels_end;
};

/** Kinds of messages that the handler does not see. */
enum {
    RPEXEC_MESSAGE_MEET = RPEXEC_MESSAGE_OWN,
    RPEXEC_MESSAGE_SHARE,
    RPEXEC_MESSAGE_PARCEL, /**< values[0]: its tag */
    RPEXEC_MESSAGE_ALIVE,  /**< number: whether it waits for others. values[0]: its step */
    RPEXEC_MESSAGE_END,    /**< all went well */
    RPEXEC_MESSAGE_ABORT,  /**< it did not. number: because of which process */
};

/** Variables that say how many processes were started, of Open MPI and MPICH; NULL-terminated. */
extern const char *const rpexec_launch_variables[];

/** @return CLOCK_MONOTONIC. */
int64_t rpexec_processes_now_ns(void);

/** Waits for `moved`, with the lock, because of another process. */
static inline void rpexec_processes_wait(rpexec_processes *processes, uint32_t other)
{
    rpexec_processes_begin_wait(processes, other);
    pthread_cond_wait(&processes->moved, &processes->lock);
    rpexec_processes_end_wait(processes);
}

/** Ends the run because of a process: the first cause is logged, and told to whoever handles
 * messages before threads that wait for a process return. @param cause behind "process I of N " */
void rpexec_processes_fail(rpexec_processes *processes, uint32_t other, const char *cause);

/**
 * Gives a message to a connection's writer.
 * @param left set when it has left, for rpexec_processes_await, which must be called then; NULL:
 * nobody waits
 * @retval RP_OK, RP_LOST (not for RPEXEC_MESSAGE_ABORT), RP_NO_MEMORY
 */
rp_status rpexec_processes_put(rpexec_processes *processes, uint32_t to,
                               const rpexec_message *message, const void *payload, bool *left);

/** A connection's threads. @param context the rpexec_link @return NULL */
void *rpexec_processes_write_letters(void *context);
void *rpexec_processes_read_letters(void *context);

/** The thread that sends signs of life and expects the others'. @param context the rpexec_processes
 * @return NULL */
void *rpexec_processes_watch(void *context);

/**
 * Sends values that the other process takes by their tag.
 * @param left set when they, and all that was given to this process before, have left; for
 *        rpexec_processes_await, which must be called then. NULL: nobody waits
 * @retval RP_OK, RP_LOST, RP_NO_MEMORY
 */
rp_status rpexec_processes_give(rpexec_processes *processes, uint32_t to, uint64_t tag,
                                const void *values, uint64_t bytes, bool *left);

/** Waits for values to leave to a process, after a failure, too. @retval RP_OK, RP_LOST */
rp_status rpexec_processes_await(rpexec_processes *processes, uint32_t to, const bool *left);

/** After a failure: waits until no payload is being written, and none will be. */
void rpexec_processes_settle(rpexec_processes *processes);

/**
 * Takes the oldest values of a tag from another process, and waits for them.
 * @param parcel_out given back with rp_mem_release
 * @retval RP_OK, RP_LOST (or they have other sizes, logged)
 */
rp_status rpexec_processes_take(rpexec_processes *processes, uint32_t from, uint64_t tag,
                                uint64_t bytes, rpexec_parcel **parcel_out);

/** Connects all links. @param build rpexec_processes_config's @retval RP_OK, RP_TOOL, RP_USAGE
 * (another build; logged), RP_NO_MEMORY */
rp_status rpexec_processes_connect(rpexec_processes *processes, const rpexec_launch *launch,
                                   const char *build);
