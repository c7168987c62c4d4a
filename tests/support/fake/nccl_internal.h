/** @file nccl_internal.h  Between the parts of the fake's NCCL: what calls, kernels and
 * communicators are. */
#pragma once

#include "tests/support/fake/cuda_internal.h"

#include <pthread.h>
#include <stdatomic.h>

#define RP_NCCL_MOST_RANKS 8u

enum {
    RP_NCCL_ERROR_SYSTEM = RPEXEC_NCCL_ERRORS + 2,
    RP_NCCL_ERROR_INTERNAL = RPEXEC_NCCL_ERRORS + 3,
    RP_NCCL_ERROR_ARGUMENT = RPEXEC_NCCL_ERRORS + 4,
    RP_NCCL_ERROR_USAGE = RPEXEC_NCCL_ERRORS + 5,
    RP_NCCL_ERROR_REMOTE = RPEXEC_NCCL_ERRORS + 6,
};

typedef enum rp_nccl_kind {
    RP_NCCL_ALL_GATHER,
    RP_NCCL_REDUCE_SCATTER,
    RP_NCCL_ALL_REDUCE,
    RP_NCCL_BROADCAST,
    RP_NCCL_REDUCE,
    RP_NCCL_SEND,
    RP_NCCL_RECEIVE,
} rp_nccl_kind;

/** One rank of a clique. */
typedef struct rp_nccl_member rp_nccl_member;

typedef struct rp_nccl_call {
    rp_nccl_kind kind;
    rpexec_dtype dtype;
    const void *from;
    void *to;
    uint64_t count; /* of messages: bytes */
    uint32_t root;  /* of messages: the other rank */
    rp_nccl_member *with;
    void *stream;
    bool done;
    unsigned char *result; /* what has to land in `to`; of a message that goes: what was read */
    uint64_t result_bytes;
} rp_nccl_call;

/** A rank's calls of one group. */
typedef struct rp_nccl_kernel {
    rp_nccl_member *with;
    uint64_t number;
    bool lost; /* it never begins */
    uint32_t count;
    rp_nccl_call *calls;
} rp_nccl_kernel;

/** All ranks of one ncclCommInitAll. */
typedef struct rp_nccl_clique rp_nccl_clique;

struct rp_nccl_member {
    rp_nccl_clique *clique;
    uint32_t rank;
    int device;
    atomic_uintptr_t user; /* the thread whose group it is in; 0: none */
    uint64_t enqueued;     /* kernels */
    uint64_t performed;
    rp_nccl_kernel *running;
    bool aborted;
};

struct rp_nccl_clique {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint32_t ranks;
    uint32_t open;
    uint32_t kernels; /* that have been enqueued and not ended */
    int error;
    rp_nccl_member members[RP_NCCL_MOST_RANKS];
};

/** @return bytes of `count` elements, or of a message. */
uint64_t rp_nccl_bytes(const rp_nccl_call *c, uint64_t count);

/** A sender reads when its kernel begins, whether or not somebody receives. */
void rp_nccl_read_messages(rp_nccl_kernel *k);

/** Does what can be done of the kernels that run, and wakes those who wait; under the lock. */
void rp_nccl_go_on(rp_nccl_clique *q);
