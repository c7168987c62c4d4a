/* Green contexts on a CPU, by the rules of CUDA 13.0's cuda.h: calls that it forbids are
 * refused. */
#include "exec/cuda/emulator/green.h"

#include "exec/cuda/emulator/machine/machine.h"

#include <cuda.h>
#include <stdatomic.h>
#include <string.h>

/* Odd numbers, so that neither kind of group can be cut into eight as easily as on real GPUs. */
emulated_device emulator_device = {27, 4, 2, 13000, 0};

enum { CONTEXTS = 64, DESCRIPTIONS = 64 };

struct emulated_context {
    bool used;
    unsigned int first, count; /* multiprocessors */
    atomic_uint streams;
};

static struct emulated_context contexts[CONTEXTS];
static struct CUdevResource descriptions[DESCRIPTIONS];
static unsigned int described;

void emulator_green_stream_goes(void *context)
{
    struct emulated_context *c = context;
    if (c != NULL) {
        atomic_fetch_sub(&c->streams, 1);
    }
}

unsigned int emulator_green_contexts(void)
{
    unsigned int count = 0;
    for (unsigned int i = 0; i < CONTEXTS; i++) {
        count += contexts[i].used;
    }
    return count;
}

/* The versions of cudaTypedefs.h: a symbol is found for its version and later versions. */
#define FUNCTION_LIST(X)                                                                           \
    X(cuDeviceGetDevResource, 12040)                                                               \
    X(cuDevSmResourceSplitByCount, 12040)                                                          \
    X(cuDevResourceGenerateDesc, 12040)                                                            \
    X(cuGreenCtxCreate, 12040)                                                                     \
    X(cuGreenCtxDestroy, 12040)                                                                    \
    X(cuCtxFromGreenCtx, 12040)                                                                    \
    X(cuGreenCtxStreamCreate, 12050)                                                               \
    X(cuCtxSetCurrent, 4000)                                                                       \
    X(cuGetErrorName, 6000)

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
                                             unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    (void)flags;
    *function = NULL;
    *found = cudaDriverEntryPointSymbolNotFound;
#define LOOK(symbol, since)                                                                        \
    if (strcmp(name, #symbol) == 0 && since <= emulator_device.driver_version) {                   \
        void (*address)(void) = (void (*)(void))symbol;                                            \
        memcpy(function, &address, version >= since ? sizeof address : 0);                         \
        *found = version >= since ? cudaDriverEntryPointSuccess                                    \
                                  : cudaDriverEntryPointVersionNotSufficent;                       \
    }
    FUNCTION_LIST(LOOK)
#undef LOOK
    return cudaSuccess;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    *resource = (CUdevResource){.type = type, .sm = {emulator_device.sm_count}};
    return device != 0                       ? CUDA_ERROR_INVALID_VALUE
           : type != CU_DEV_RESOURCE_TYPE_SM ? CUDA_ERROR_INVALID_RESOURCE_TYPE
                                             : CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups,
                                     const CUdevResource *input, CUdevResource *remaining,
                                     unsigned int flags, unsigned int least)
{
    unsigned int step = flags != 0 ? emulator_device.alone : emulator_device.together;
    unsigned int size = (least + step - 1) / step * step;
    unsigned int most = 0;
    size = size == 0 ? step : size;
    if (input->type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    if (groups == NULL || least > input->sm.smCount) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    most = input->sm.smCount / size;
    if (flags == 0 && size > step && emulator_device.most != 0 && most > emulator_device.most) {
        most = emulator_device.most;
    }
    *groups = result == NULL || *groups > most ? most : *groups;
    for (unsigned int i = 0; result != NULL && i < *groups; i++) {
        result[i] = (CUdevResource){
            .type = CU_DEV_RESOURCE_TYPE_SM, .first = input->first + i * size, .sm = {size}};
    }
    if (remaining != NULL) {
        *remaining = (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_SM,
                                     .first = input->first + *groups * size,
                                     .sm = {input->sm.smCount - *groups * size}};
    }
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources,
                                   unsigned int count)
{
    if (count != 1 || resources->type != CU_DEV_RESOURCE_TYPE_SM || resources->sm.smCount == 0) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    *description = &descriptions[described++ % DESCRIPTIONS];
    **description = *resources;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice device,
                          unsigned int flags)
{
    struct emulated_context *room = NULL;
    unsigned int end = description->first + description->sm.smCount;
    if (device != 0 || flags != CU_GREEN_CTX_DEFAULT_STREAM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned int i = 0; i < CONTEXTS; i++) {
        struct emulated_context *c = &contexts[i];
        if (!c->used) {
            room = c;
        } else if (c->first < end && description->first < c->first + c->count) {
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION; /* CUDA would let contexts share
                                                                 multiprocessors */
        }
    }
    if (room == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    room->used = true;
    room->first = description->first;
    room->count = description->sm.smCount;
    *green = room;
    return CUDA_SUCCESS;
}

/* Refuses contexts with streams; CUDA would leak the streams. */
CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    if (!green->used || atomic_load(&green->streams) != 0 || emulator_is_current(green)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    green->used = false;
    return CUDA_SUCCESS;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    *context = green;
    return green->used ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags,
                                int priority)
{
    const rpexec_cuda_part part = {.context = green, .green = green};
    if (!green->used || flags != CU_STREAM_NON_BLOCKING || priority != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (emulator_stream_create(&part, stream) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    atomic_fetch_add(&green->streams, 1);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    const rpexec_cuda_part part = {.context = context, .green = context};
    return context != NULL && context->used && emulator_enter(&part) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGetErrorName(CUresult result, const char **name)
{
    *name = result == CUDA_ERROR_INVALID_VALUE     ? "CUDA_ERROR_INVALID_VALUE"
            : result == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
                                                   : "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION";
    return CUDA_SUCCESS;
}
