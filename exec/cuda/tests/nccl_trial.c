/* Every call of exec/cuda/nccl.c, in place if the driver calls it in place, against sums of small
 * whole numbers, which are exact in every type and order. On GPUs all devices take part, even if
 * there is only a single device; "emulated": three ranks, and libraries that are refused. usage:
 * nccl_trial [emulated] exit status 77: no device, or no NCCL */
#include "exec/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, SHARE = 48, VALUES = MOST * SHARE };

static const rpexec_nccl_calls *nccl;
static uint32_t ranks;
static void *communicators[MOST];
static cudaStream_t streams[MOST];
static int devices[MOST];
static void *at[MOST];    /* [rank] an array on its device */
static void *other[MOST]; /* a second array */
static int failed;

static bool fine(int error, const char *call)
{
    if (error != 0) {
        printf("%s: %s\n", call,
               error >= RPEXEC_NCCL_ERRORS ? rpexec_cuda_nccl_text(error)
                                           : cudaGetErrorString((cudaError_t)error));
        failed = 1;
    }
    return error == 0;
}

/* Value of element i of a rank's array before a call. */
static float value_of(uint32_t rank, uint64_t i)
{
    return (float)((int)(i % 13) - 6 + (int)rank);
}

static float sum_of(uint64_t i)
{
    float sum = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        sum += value_of(rank, i);
    }
    return sum;
}

static bool set(rp_dtype dtype)
{
    float wide[VALUES];
    unsigned char narrow[VALUES * sizeof(float)];
    bool well = true;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        size_t bytes = (size_t)ranks * SHARE * rp_dtype_bytes(dtype);
        for (uint64_t i = 0; i < VALUES; i++) {
            wide[i] = value_of(rank, i);
        }
        rpexec_narrow(dtype, VALUES, wide, narrow);
        well = well && fine(cudaSetDevice(devices[rank]), "cudaSetDevice") &&
               fine(cudaMemcpy(at[rank], narrow, bytes, cudaMemcpyHostToDevice), "cudaMemcpy") &&
               fine(cudaMemcpy(other[rank], narrow, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    return well && fine(nccl->group_begin(), "ncclGroupStart");
}

/* Elements [begin, begin + count) of a rank's array against `right`. */
static void expect(const char *what, rp_dtype dtype, uint32_t rank, const void *array,
                   uint64_t begin, uint64_t count, float (*right)(uint32_t rank, uint64_t i))
{
    float wide[VALUES];
    unsigned char narrow[VALUES * sizeof(float)];
    size_t bytes = (size_t)ranks * SHARE * rp_dtype_bytes(dtype);
    if (!fine(cudaSetDevice(devices[rank]), "cudaSetDevice") ||
        !fine(cudaStreamSynchronize(streams[rank]), "cudaStreamSynchronize") ||
        !fine(cudaMemcpy(narrow, array, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy")) {
        return;
    }
    rpexec_widen(dtype, (uint64_t)ranks * SHARE, narrow, wide);
    for (uint64_t i = begin; i < begin + count; i++) {
        if (wide[i] != right(rank, i)) {
            printf("%s, %s, rank %u: element %u is %g, not %g\n", what, rp_dtype_text(dtype), rank,
                   (unsigned)i, (double)wide[i], (double)right(rank, i));
            failed = 1;
            return;
        }
    }
}

static float gathered(uint32_t rank, uint64_t i)
{
    (void)rank;
    return value_of((uint32_t)(i / SHARE), i);
}

static float added(uint32_t rank, uint64_t i)
{
    (void)rank;
    return sum_of(i);
}

static float of_last(uint32_t rank, uint64_t i)
{
    (void)rank;
    return value_of(ranks - 1, i);
}

static float of_neighbour(uint32_t rank, uint64_t i)
{
    return value_of((rank + ranks - 1) % ranks, i);
}

static void end(void)
{
    (void)fine(nccl->group_end(), "ncclGroupEnd");
}

static void try_shares(rp_dtype dtype)
{
    if (!set(dtype)) {
        return;
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const void *own = rpexec_element(dtype, at[rank], (uint64_t)rank * SHARE);
        (void)fine(
            nccl->all_gather(own, at[rank], SHARE, dtype, communicators[rank], streams[rank]),
            "ncclAllGather");
    }
    end();
    for (uint32_t rank = 0; rank < ranks; rank++) {
        expect("all-gather", dtype, rank, at[rank], 0, (uint64_t)ranks * SHARE, gathered);
    }
    if (!set(dtype)) {
        return;
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        void *own = rpexec_element(dtype, at[rank], (uint64_t)rank * SHARE);
        (void)fine(
            nccl->reduce_scatter(at[rank], own, SHARE, dtype, communicators[rank], streams[rank]),
            "ncclReduceScatter");
    }
    end();
    for (uint32_t rank = 0; rank < ranks; rank++) {
        expect("reduce-scatter", dtype, rank, at[rank], (uint64_t)rank * SHARE, SHARE, added);
    }
}

/* Two calls in a group, since the driver's groups have several arrays. */
static void try_wholes(rp_dtype dtype)
{
    uint64_t count = (uint64_t)ranks * SHARE;
    uint32_t root = ranks - 1;
    if (!set(dtype)) {
        return;
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        (void)fine(nccl->all_reduce(at[rank], other[rank], count, dtype, communicators[rank],
                                    streams[rank]),
                   "ncclAllReduce");
    }
    end();
    for (uint32_t rank = 0; rank < ranks; rank++) {
        expect("all-reduce", dtype, rank, other[rank], 0, count, added);
    }
    if (!set(dtype)) {
        return;
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        (void)fine(nccl->broadcast(at[rank], at[rank], count, dtype, root, communicators[rank],
                                   streams[rank]),
                   "ncclBroadcast");
        (void)fine(nccl->reduce(other[rank], rank == root ? other[rank] : NULL, count, dtype, root,
                                communicators[rank], streams[rank]),
                   "ncclReduce");
    }
    end();
    for (uint32_t rank = 0; rank < ranks; rank++) {
        expect("broadcast", dtype, rank, at[rank], 0, count, of_last);
    }
    expect("reduce", dtype, root, other[root], 0, count, added);
}

/* Messages from each rank to the next; a single rank sends to itself. */
static void try_messages(rp_dtype dtype)
{
    uint64_t bytes = (uint64_t)ranks * SHARE * rp_dtype_bytes(dtype);
    if (!set(dtype)) {
        return;
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        (void)fine(
            nccl->send(at[rank], bytes, (rank + 1) % ranks, communicators[rank], streams[rank]),
            "ncclSend");
        (void)fine(nccl->receive(other[rank], bytes, (rank + ranks - 1) % ranks,
                                 communicators[rank], streams[rank]),
                   "ncclRecv");
    }
    end();
    for (uint32_t rank = 0; rank < ranks; rank++) {
        expect("send", dtype, rank, other[rank], 0, (uint64_t)ranks * SHARE, of_neighbour);
    }
}

/* A library that cannot be loaded is refused with the reason; afterwards the right library can be
 * loaded. */
static void try_refusals(bool emulated)
{
    const char *given = getenv("RPEXEC_NCCL");
    char kept[4096] = "";
    const char *version = NULL;
    const char *why = "";
    snprintf(kept, sizeof kept, "%s", given != NULL ? given : "");
    setenv("RPEXEC_NCCL", "/nowhere/libnccl.so", 1);
    if (nccl->load(&version, &why) || strstr(why, "/nowhere/libnccl.so") == NULL) {
        printf("a library that is not there: '%s'\n", why);
        failed = 1;
    }
    if (given == NULL) {
        unsetenv("RPEXEC_NCCL");
        return;
    }
    setenv("RPEXEC_NCCL", kept, 1);
    static const struct {
        const char *code, *text;
    } refused[] = {{"2708", "NCCL 2.7.8 is too old"},
                   {"20907", "NCCL 2.9.7 is too old"},
                   {"30000", "valid are versions 2.10 to those before 3.0"}};
    for (size_t i = 0; emulated && i < sizeof refused / sizeof *refused; i++) {
        setenv("EMULATED_NCCL_VERSION", refused[i].code, 1);
        if (nccl->load(&version, &why) || strstr(why, refused[i].text) == NULL) {
            printf("version %s: '%s'\n", refused[i].code, why);
            failed = 1;
        }
    }
    unsetenv("EMULATED_NCCL_VERSION");
}

static bool open_all(void)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!fine(cudaSetDevice(devices[rank]), "cudaSetDevice") ||
            !fine(cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking),
                  "cudaStreamCreateWithFlags") ||
            !fine(cudaMalloc(&at[rank], VALUES * sizeof(float)), "cudaMalloc") ||
            !fine(cudaMalloc(&other[rank], VALUES * sizeof(float)), "cudaMalloc")) {
            return false;
        }
    }
    return fine(nccl->open(ranks, devices, communicators), "ncclCommInitAll");
}

/* Closes all communicators, the last in the way used after a failure. */
static void close_all(void)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        (void)fine(nccl->async_error(communicators[rank]), "ncclCommGetAsyncError");
        (void)(rank + 1 < ranks ? nccl->close : nccl->abort)(communicators[rank]);
        (void)cudaSetDevice(devices[rank]);
        (void)cudaFree(at[rank]);
        (void)cudaFree(other[rank]);
        (void)cudaStreamDestroy(streams[rank]);
    }
}

int main(int argc, char **argv)
{
    bool emulated = argc > 1 && strcmp(argv[1], "emulated") == 0;
    const char *version = "";
    const char *why = "this was built without nccl.h";
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    nccl = rpexec_cuda_nccl();
    if (error != cudaSuccess || count == 0) {
        printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(error));
        return 77;
    }
    if (nccl != NULL) {
        try_refusals(emulated);
    }
    if (nccl == NULL || !nccl->load(&version, &why)) {
        printf("skipped: %s\n", why);
        return emulated || failed ? 1 : 77;
    }
    ranks = emulated ? 3 : (uint32_t)count < MOST ? (uint32_t)count : MOST;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        devices[rank] = (int)rank % count;
    }
    if (open_all()) {
        for (uint32_t dtype = 0; dtype < RP_DTYPE_COUNT; dtype++) {
            try_shares((rp_dtype)dtype);
            try_wholes((rp_dtype)dtype);
            try_messages((rp_dtype)dtype);
        }
        close_all();
    }
    printf("NCCL %s, %u ranks: %s\n", version, ranks, failed ? "FAILED" : "right");
    return failed;
}
