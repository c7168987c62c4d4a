#include "exec/cuda/nccl.h"
#include "exec/cuda/open_library.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The functions of the library that are used, with the types of its own header. */
#define FUNCTION_LIST(X)                                                                           \
    X(ncclGetVersion)                                                                              \
    X(ncclGetErrorString)                                                                          \
    X(ncclCommInitAll)                                                                             \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclAllGather)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclAllReduce)                                                                               \
    X(ncclBroadcast)                                                                               \
    X(ncclReduce)                                                                                  \
    X(ncclSend)                                                                                    \
    X(ncclRecv)

/* A process has a single library, which stays loaded, since NCCL runs its own threads. */
static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTION_LIST(MEMBER)
#undef MEMBER
} f;
static void *library;
static char version_text[32];
static char reason[1024];

/* Sums of bf16 need 2.10; messages came earlier, in 2.7. */
#define LEAST_VERSION 21000

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define SONAME "libnccl.so." TEXT(NCCL_MAJOR)

/* ---- the library ----------------------------------------------------------------------------- */

static void *open_library(void)
{
    return rpexec_open_library("RPEXEC_NCCL", SONAME, RTLD_NOW | RTLD_LOCAL);
}

static bool find_functions(void *candidate)
{
    static const char *const names[] = {
#define NAME(name) #name,
        FUNCTION_LIST(NAME)
#undef NAME
    };
    void *addresses[sizeof names / sizeof *names];
    _Static_assert(sizeof addresses == sizeof f, "a table of pointers");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        addresses[i] = dlsym(candidate, names[i]);
        if (addresses[i] == NULL) {
            snprintf(reason, sizeof reason, "NCCL has no function %s", names[i]);
            return false;
        }
    }
    memcpy(&f, addresses, sizeof addresses);
    return true;
}

static bool is_new_enough(void)
{
    int version = 0;
    if (f.ncclGetVersion(&version) != ncclSuccess) {
        snprintf(reason, sizeof reason, "NCCL does not know its version");
        return false;
    }
    /* Until 2.8 the code was major * 1000 + minor * 100 + patch. */
    int unit = version < 10000 ? 1000 : 10000;
    snprintf(version_text, sizeof version_text, "%d.%d.%d", version / unit, version % unit / 100,
             version % 100);
    if (version < LEAST_VERSION || version / unit != NCCL_MAJOR) {
        snprintf(reason, sizeof reason,
                 "NCCL %s is too old, or too new for this rpexec; valid are versions 2.10 to those "
                 "before %d.0",
                 version_text, NCCL_MAJOR + 1);
        return false;
    }
    return true;
}

static bool load(const char **version_out, const char **why_out)
{
    *version_out = version_text;
    *why_out = reason;
    if (library != NULL) {
        return true;
    }
    void *candidate = open_library();
    if (candidate == NULL) {
        const char *why = dlerror();
        snprintf(reason, sizeof reason,
                 "NCCL cannot be opened: %s. Looked for " SONAME
                 " where the system looks and in $CUDA_HOME/lib64 (/usr/local/cuda/lib64); "
                 "RPEXEC_NCCL names a file",
                 why != NULL ? why : "unknown");
        return false;
    }
    if (!find_functions(candidate) || !is_new_enough()) {
        (void)dlclose(candidate);
        return false;
    }
    library = candidate;
    return true;
}

static int error_of(ncclResult_t result)
{
    return result == ncclSuccess ? 0 : RPEXEC_NCCL_ERRORS + (int)result;
}

const char *rpexec_cuda_nccl_text(int error)
{
    return library == NULL ? "NCCL is not loaded"
                           : f.ncclGetErrorString((ncclResult_t)(error - RPEXEC_NCCL_ERRORS));
}

/* ---- communicators --------------------------------------------------------------------------- */

static int open_all(uint32_t count, const int *devices, void **communicators_out)
{
    _Static_assert(sizeof(ncclComm_t) == sizeof(void *), "handles are pointers");
    return error_of(
        f.ncclCommInitAll((ncclComm_t *)(void *)communicators_out, (int)count, devices));
}

static void close_one(void *communicator)
{
    (void)f.ncclCommDestroy(communicator);
}

static void abort_one(void *communicator)
{
    (void)f.ncclCommAbort(communicator);
}

static int async_error(void *communicator)
{
    ncclResult_t result = ncclSuccess;
    ncclResult_t asked = f.ncclCommGetAsyncError(communicator, &result);
    result = asked != ncclSuccess ? asked : result;
    return result == ncclInProgress ? 0 : error_of(result);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static ncclDataType_t type_of(rp_dtype dtype)
{
    switch (dtype) {
    case RP_DTYPE_F16:
        return ncclFloat16;
    case RP_DTYPE_BF16:
        return ncclBfloat16;
    case RP_DTYPE_F32:
    case RP_DTYPE_COUNT:
        break;
    }
    return ncclFloat32;
}

static int group_begin(void)
{
    return error_of(f.ncclGroupStart());
}

static int group_end(void)
{
    return error_of(f.ncclGroupEnd());
}

static int all_gather(const void *from, void *to, uint64_t count, rp_dtype dtype,
                      void *communicator, void *stream)
{
    return error_of(f.ncclAllGather(from, to, count, type_of(dtype), communicator, stream));
}

static int reduce_scatter(const void *from, void *to, uint64_t count, rp_dtype dtype,
                          void *communicator, void *stream)
{
    return error_of(
        f.ncclReduceScatter(from, to, count, type_of(dtype), ncclSum, communicator, stream));
}

static int all_reduce(const void *from, void *to, uint64_t count, rp_dtype dtype,
                      void *communicator, void *stream)
{
    return error_of(
        f.ncclAllReduce(from, to, count, type_of(dtype), ncclSum, communicator, stream));
}

static int broadcast(const void *from, void *to, uint64_t count, rp_dtype dtype, uint32_t root,
                     void *communicator, void *stream)
{
    return error_of(
        f.ncclBroadcast(from, to, count, type_of(dtype), (int)root, communicator, stream));
}

static int reduce(const void *from, void *to, uint64_t count, rp_dtype dtype, uint32_t root,
                  void *communicator, void *stream)
{
    return error_of(
        f.ncclReduce(from, to, count, type_of(dtype), ncclSum, (int)root, communicator, stream));
}

static int send_bytes(const void *from, uint64_t bytes, uint32_t to_rank, void *communicator,
                      void *stream)
{
    return error_of(f.ncclSend(from, bytes, ncclUint8, (int)to_rank, communicator, stream));
}

static int receive_bytes(void *to, uint64_t bytes, uint32_t from_rank, void *communicator,
                         void *stream)
{
    return error_of(f.ncclRecv(to, bytes, ncclUint8, (int)from_rank, communicator, stream));
}

const rpexec_nccl_calls *rpexec_cuda_nccl(void)
{
    static const rpexec_nccl_calls calls = {
        .load = load,
        .open = open_all,
        .close = close_one,
        .abort = abort_one,
        .async_error = async_error,
        .group_begin = group_begin,
        .group_end = group_end,
        .all_gather = all_gather,
        .reduce_scatter = reduce_scatter,
        .all_reduce = all_reduce,
        .broadcast = broadcast,
        .reduce = reduce,
        .send = send_bytes,
        .receive = receive_bytes,
    };
    return &calls;
}
