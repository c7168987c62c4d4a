/** @file nccl_internal.h  Calls, kernels and communicators, shared by the parts of NCCL. */
#pragma once

#include "exec/cuda/emulator/machine/machine_internal.h"

#include <pthread.h>
#include <stdatomic.h>

#define EMULATED_NCCL_MOST_RANKS 8u

enum {
    EMULATED_NCCL_ERROR_SYSTEM = RPEXEC_NCCL_ERRORS + 2,
    EMULATED_NCCL_ERROR_INTERNAL = RPEXEC_NCCL_ERRORS + 3,
    EMULATED_NCCL_ERROR_ARGUMENT = RPEXEC_NCCL_ERRORS + 4,
    EMULATED_NCCL_ERROR_USAGE = RPEXEC_NCCL_ERRORS + 5,
    EMULATED_NCCL_ERROR_REMOTE = RPEXEC_NCCL_ERRORS + 6,
};

typedef enum emulated_nccl_kind {
    EMULATED_NCCL_ALL_GATHER,
    EMULATED_NCCL_REDUCE_SCATTER,
    EMULATED_NCCL_ALL_REDUCE,
    EMULATED_NCCL_BROADCAST,
    EMULATED_NCCL_REDUCE,
    EMULATED_NCCL_SEND,
    EMULATED_NCCL_RECEIVE,
} emulated_nccl_kind;

/** A rank of a clique. */
typedef struct emulated_nccl_member emulated_nccl_member;

typedef struct emulated_nccl_call {
    emulated_nccl_kind kind;
    rp_dtype dtype;
    const void *from;
    void *to;
    uint64_t count; /* number of elements; of messages: bytes */
    uint32_t root;  /* root of a collective; of messages: the other rank */
    emulated_nccl_member *with;
    void *stream;
    bool done;
    unsigned char *result; /* the bytes to write to `to`; for a sent message the bytes that were
                              read */
    uint64_t result_bytes;
} emulated_nccl_call;

/** A rank's calls in a group. */
typedef struct emulated_nccl_kernel {
    emulated_nccl_member *with;
    uint64_t number;
    bool lost; /* it never begins */
    uint32_t count;
    emulated_nccl_call *calls;
} emulated_nccl_kernel;

/** All ranks made by a ncclCommInitAll. */
typedef struct emulated_nccl_clique emulated_nccl_clique;

struct emulated_nccl_member {
    emulated_nccl_clique *clique;
    uint32_t rank;
    int device;
    atomic_uintptr_t user; /* the thread that has calls of it in a group; 0: none */
    uint64_t enqueued;     /* kernels */
    uint64_t performed;
    emulated_nccl_kernel *running;
    bool aborted;
};

struct emulated_nccl_clique {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint32_t ranks;
    uint32_t open;
    uint32_t kernels; /* kernels that have been enqueued and have not ended */
    int error;
    emulated_nccl_member members[EMULATED_NCCL_MOST_RANKS];
};

/** @return bytes of `count` elements, or of a message. */
uint64_t emulated_nccl_bytes(const emulated_nccl_call *c, uint64_t count);

/** Lets senders read their data: a sender reads when its kernel begins, even if no rank receives
 * yet. */
void emulated_nccl_read_messages(emulated_nccl_kernel *k);

/** Performs all calls of running kernels that are ready, and wakes waiting threads. Called with the
 * lock held. */
void emulated_nccl_go_on(emulated_nccl_clique *q);
