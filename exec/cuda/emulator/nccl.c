/* NCCL on a CPU, a library that exec/cuda/nccl.c opens (RPEXEC_NCCL): its functions call the
 * machine's table, which the program contains. EMULATED_NCCL_VERSION sets the version that it
 * reports. */
#include "exec/cuda/emulator/machine/machine.h"

#include <nccl.h>
#include <stdlib.h>

ncclResult_t ncclGetVersion(int *version)
{
    const char *given = getenv("EMULATED_NCCL_VERSION");
    *version = given != NULL ? (int)strtol(given, NULL, 10) : 22809;
    return ncclSuccess;
}

static ncclResult_t result_of(int error)
{
    return error == 0                    ? ncclSuccess
           : error >= RPEXEC_NCCL_ERRORS ? (ncclResult_t)(error - RPEXEC_NCCL_ERRORS)
                                         : ncclUnhandledCudaError;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return emulator_text(RPEXEC_NCCL_ERRORS + (int)result);
}

ncclResult_t ncclCommInitAll(ncclComm_t *communicators, int count, const int *devices)
{
    return result_of(emulator_nccl.open((uint32_t)count, devices, communicators));
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator)
{
    emulator_nccl.close(communicator);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator)
{
    emulator_nccl.abort(communicator);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *error)
{
    *error = result_of(emulator_nccl.async_error(communicator));
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    return result_of(emulator_nccl.group_begin());
}

ncclResult_t ncclGroupEnd(void)
{
    return result_of(emulator_nccl.group_end());
}

static rp_dtype dtype_of(ncclDataType_t type)
{
    return type == ncclFloat32    ? RP_DTYPE_F32
           : type == ncclFloat16  ? RP_DTYPE_F16
           : type == ncclBfloat16 ? RP_DTYPE_BF16
                                  : RP_DTYPE_COUNT;
}

/* Makes a collective, if the type exists and `can` is true, as for sums. */
#define COLLECT(call, can, ...)                                                                    \
    ((can) && dtype_of(type) != RP_DTYPE_COUNT                                                     \
         ? result_of(emulator_nccl.call(from, to, count, dtype_of(type), __VA_ARGS__))             \
         : ncclInvalidUsage)

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream)
{
    return COLLECT(all_gather, true, communicator, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream)
{
    return COLLECT(reduce_scatter, op == ncclSum, communicator, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream)
{
    return COLLECT(all_reduce, op == ncclSum, communicator, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream)
{
    return COLLECT(broadcast, root >= 0, (uint32_t)root, communicator, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t communicator, cudaStream_t stream)
{
    return COLLECT(reduce, op == ncclSum && root >= 0, (uint32_t)root, communicator, stream);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream)
{
    return type != ncclUint8 || peer < 0
               ? ncclInvalidUsage
               : result_of(emulator_nccl.send(from, count, (uint32_t)peer, communicator, stream));
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream)
{
    return type != ncclUint8 || peer < 0
               ? ncclInvalidUsage
               : result_of(emulator_nccl.receive(to, count, (uint32_t)peer, communicator, stream));
}
