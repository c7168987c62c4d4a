/** @file nodes_internal.h  Inside of exec/nodes. Not for other modules. */
#pragma once

#include "exec/nodes/nodes.h"

#include <pthread.h>

/** Bytes that are summed at a time, and written at most: few threads are woken up for them. */
#define RPEXEC_PIECE_BYTES (UINT64_C(256) << 10)

/** A message on its way out. */
typedef struct rpexec_letter {
    struct rpexec_letter *next;
    rpexec_message message;
    const void *payload;
    int64_t given_ns; /**< when the card could have begun with it */
    bool *left; /**< set when the payload has left; NULL: nobody waits */
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
    rpexec_nodes *nodes;
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
    bool ended; /**< the other one has said that all went well */
} rpexec_link;

struct rpexec_nodes {
    rp_arena *arena;
    uint32_t rank;
    uint32_t count;
    double bits_per_s;
    rpexec_link *links; /**< [count] */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    rpexec_nodes_handler handler;
    bool handled;    /**< there is a handler */
    uint32_t inside; /**< threads in it */
    bool closing;    /**< writers end when they have written all */
    bool failing;    /**< somebody is told that a process is gone */
    bool failed;
    uint64_t sent_bytes; /**< of arrays that are summed */
    int64_t free_ns;     /**< when the card has sent what it was given */
    uint64_t *met;       /**< [count] meetings that each process has come to */
    void *target;        /**< of the array that is shared now; NULL: nobody waits for one */
    uint64_t target_bytes;
    bool taken;             /**< it has come */
    rpexec_parcel *parcels; /**< that nobody has taken yet, the oldest first */
    rpexec_parcel **parcels_end;
};

/** Kinds of messages that the handler does not see. */
enum {
    RPEXEC_MESSAGE_MEET = RPEXEC_MESSAGE_OWN,
    RPEXEC_MESSAGE_SHARE,
    RPEXEC_MESSAGE_PARCEL, /**< values[0]: its tag */
    RPEXEC_MESSAGE_END,    /**< all went well */
    RPEXEC_MESSAGE_ABORT,  /**< it did not */
};

/**
 * Sends values that the other process takes by their tag.
 * @param left set when they, and all that was given to this process before, have left; for
 *        rpexec_nodes_await, which must be called then. NULL: nobody waits
 * @retval RP_OK, RP_BROKEN (a process is gone), RP_NO_MEMORY
 */
rp_status rpexec_nodes_give(rpexec_nodes *nodes, uint32_t to, uint64_t tag, const void *values,
                            uint64_t bytes, bool *left);

/** Waits for values to leave, after a failure, too. @retval RP_OK, RP_BROKEN (a process is gone) */
rp_status rpexec_nodes_await(rpexec_nodes *nodes, const bool *left);

/**
 * Takes the oldest values of a tag from another process, and waits for them.
 * @param parcel_out given back with rp_mem_release
 * @retval RP_OK, RP_BROKEN (a process is gone; or they have other sizes, logged)
 */
rp_status rpexec_nodes_take(rpexec_nodes *nodes, uint32_t from, uint64_t tag, uint64_t bytes,
                            rpexec_parcel **parcel_out);

/** Connects all links. @retval RP_OK, RP_TOOL (logged), RP_NO_MEMORY */
rp_status rpexec_nodes_connect(rpexec_nodes *nodes, const rpexec_launch *launch);
