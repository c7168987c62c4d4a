/* NCCL on a CPU, a library of its own that exec/cuda/nccl.c opens (RPEXEC_NCCL): a group's calls
 * are all there when it ends, and are done then. EMULATED_NCCL_VERSION is what it says it is. */
#include "common/base/mem.h"
#include "exec/operators/dtype.h"

#include <nccl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, CALLS = 4096, CHUNK = 1024 };

typedef enum kind { GATHER, SCATTER, ALL, BROADCAST, REDUCE, SEND, RECEIVE } kind;

typedef struct call {
    kind kind;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    int root;
    ncclComm_t with;
} call;

struct ncclComm {
    int rank;
    int ranks; /* 0: closed */
};

static struct ncclComm members[RANKS];
static call calls[CALLS];
static int noted;
static int depth;
static void *results[CALLS];

ncclResult_t ncclGetVersion(int *version)
{
    const char *given = getenv("EMULATED_NCCL_VERSION");
    *version = given != NULL ? (int)strtol(given, NULL, 10) : 22809;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "invalid usage (emulated)";
}

ncclResult_t ncclCommInitAll(ncclComm_t *communicators, int count, const int *devices)
{
    if (count > RANKS || devices == NULL) {
        return ncclInvalidUsage;
    }
    for (int i = 0; i < count; i++) {
        members[i] = (struct ncclComm){.rank = i, .ranks = count};
        communicators[i] = &members[i];
    }
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator)
{
    int ranks = communicator->ranks;
    communicator->ranks = 0;
    return ranks != 0 ? ncclSuccess : ncclInvalidUsage;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator)
{
    return ncclCommDestroy(communicator);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *error)
{
    *error = communicator->ranks != 0 ? ncclSuccess : ncclInvalidUsage;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

static rpexec_dtype dtype_of(const call *c)
{
    return c->type == ncclFloat32   ? RPEXEC_DTYPE_F32
           : c->type == ncclFloat16 ? RPEXEC_DTYPE_F16
                                    : RPEXEC_DTYPE_BF16;
}

static size_t bytes_of(const call *c)
{
    return c->kind == SEND || c->kind == RECEIVE ? c->count
                                                 : c->count * rpexec_dtype_bytes(dtype_of(c));
}

/* The call of `rank` that goes with `c`; NULL: it lacks. */
static const call *partner(const call *c, int rank)
{
    kind wanted = c->kind == RECEIVE ? SEND : c->kind;
    int number = 0; /* equal calls of c's own, before it */
    for (const call *other = calls; other < c; other++) {
        number += other->with == c->with && other->kind == c->kind && other->root == c->root &&
                  other->count == c->count && other->type == c->type;
    }
    for (int i = 0; i < noted; i++) {
        const call *other = &calls[i];
        bool meant = c->kind == RECEIVE ? other->root == c->with->rank : other->root == c->root;
        if (other->kind == wanted && other->with->rank == rank && meant &&
            other->count == c->count && other->type == c->type && number-- == 0) {
            return other;
        }
    }
    return NULL;
}

/* Elements [at, at + count) of all ranks, in their order. */
static bool add_up(const call *c, size_t at, void *to)
{
    rpexec_dtype dtype = dtype_of(c);
    const void *from[RANKS];
    for (int rank = 0; rank < c->with->ranks; rank++) {
        const call *theirs = partner(c, rank);
        if (theirs == NULL) {
            return false;
        }
        from[rank] = theirs->from;
    }
    for (size_t begin = 0; begin < c->count; begin += CHUNK) {
        size_t count = c->count - begin < CHUNK ? c->count - begin : CHUNK;
        float sum[CHUNK] = {0};
        float values[CHUNK];
        for (int rank = 0; rank < c->with->ranks; rank++) {
            rpexec_widen(dtype, count, rpexec_element_const(dtype, from[rank], at + begin), values);
            for (size_t i = 0; i < count; i++) {
                sum[i] += values[i];
            }
        }
        rpexec_narrow(dtype, count, sum, rpexec_element(dtype, to, begin));
    }
    return true;
}

static bool compute(const call *c, unsigned char *to)
{
    size_t bytes = bytes_of(c);
    const call *source = NULL;
    switch (c->kind) {
    case GATHER:
        for (int rank = 0; rank < c->with->ranks; rank++) {
            source = partner(c, rank);
            if (source == NULL) {
                return false;
            }
            memcpy(to + (size_t)rank * bytes, source->from, bytes);
        }
        return true;
    case BROADCAST:
    case RECEIVE:
        source = partner(c, c->root);
        if (source != NULL) {
            memcpy(to, source->from, bytes);
        }
        return source != NULL;
    case SCATTER:
        return add_up(c, (size_t)c->with->rank * c->count, to);
    case ALL:
        return add_up(c, 0, to);
    case REDUCE:
        return c->with->rank != c->root || add_up(c, 0, to);
    case SEND:
        break;
    }
    return true;
}

ncclResult_t ncclGroupEnd(void)
{
    bool well = --depth == 0;
    for (int i = 0; well && i < noted; i++) {
        size_t copies = calls[i].kind == GATHER ? (size_t)calls[i].with->ranks : 1;
        well = rp_mem_resize(&results[i], copies * bytes_of(&calls[i])) == RP_OK &&
               compute(&calls[i], results[i]);
    }
    for (int i = 0; well && i < noted; i++) {
        const call *c = &calls[i];
        size_t copies = c->kind == GATHER ? (size_t)c->with->ranks : 1;
        if (c->kind != SEND && (c->kind != REDUCE || c->with->rank == c->root)) {
            memcpy(c->to, results[i], copies * bytes_of(c));
        }
    }
    while (noted > 0) {
        rp_mem_release(&results[--noted]);
    }
    return well ? ncclSuccess : ncclInvalidUsage;
}

static ncclResult_t note(call c)
{
    if (depth != 1 || noted == CALLS || c.with->ranks == 0 || c.root < 0 ||
        c.root >= c.with->ranks) {
        return ncclInvalidUsage;
    }
    calls[noted++] = c;
    return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream)
{
    (void)stream;
    return note((call){GATHER, from, to, count, type, 0, communicator});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream)
{
    (void)stream;
    return op != ncclSum ? ncclInvalidUsage
                         : note((call){SCATTER, from, to, count, type, 0, communicator});
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream)
{
    (void)stream;
    return op != ncclSum ? ncclInvalidUsage
                         : note((call){ALL, from, to, count, type, 0, communicator});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream)
{
    (void)stream;
    return note((call){BROADCAST, from, to, count, type, root, communicator});
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t communicator, cudaStream_t stream)
{
    (void)stream;
    return op != ncclSum ? ncclInvalidUsage
                         : note((call){REDUCE, from, to, count, type, root, communicator});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream)
{
    (void)stream;
    return type != ncclUint8 ? ncclInvalidUsage
                             : note((call){SEND, from, NULL, count, type, peer, communicator});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream)
{
    (void)stream;
    return type != ncclUint8 ? ncclInvalidUsage
                             : note((call){RECEIVE, NULL, to, count, type, peer, communicator});
}
