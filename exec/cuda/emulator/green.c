/* Green contexts on a CPU, by the rules of CUDA 13.0's cuda.h: what that refuses is refused. */
#include "exec/cuda/emulator/green.h"

#include "common/base/mem.h"

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Odd numbers: neither sort of group cuts it into eight as easily as any GPU. */
emulated_device emulator_device = {27, 4, 2, 13000, 0};

enum { CONTEXTS = 64, DESCRIPTIONS = 64, DEVICES = 8 };

struct emulated_context {
    bool used;
    unsigned int first, count; /* multiprocessors */
    unsigned int streams;      /* its home */
};

static struct emulated_context contexts[CONTEXTS];
static struct CUdevResource descriptions[DESCRIPTIONS];
static unsigned int described;
static pthread_mutex_t emulator = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local unsigned int *current; /* green; NULL: the device's own */
static unsigned int homes[DEVICES];
static _Thread_local int device_now;

int emulator_devices(void)
{
    const char *given = getenv("EMULATED_DEVICES");
    long count = given != NULL ? strtol(given, NULL, 10) : 1;
    return count < 1 ? 1 : count > DEVICES ? DEVICES : (int)count;
}

static void enter(unsigned int *home)
{
    if (current == NULL && home != NULL) {
        pthread_mutex_lock(&emulator);
    } else if (current != NULL && home == NULL) {
        pthread_mutex_unlock(&emulator);
    }
    current = home;
}

bool emulator_use_device(int device)
{
    enter(NULL);
    if (device < 0 || device >= emulator_devices()) {
        return false;
    }
    device_now = device;
    return true;
}

unsigned int *emulator_device_home(void)
{
    return &homes[device_now];
}

unsigned int *emulator_home(void)
{
    return current != NULL ? current : emulator_device_home();
}

unsigned int emulator_green_contexts(void)
{
    unsigned int count = 0;
    for (unsigned int i = 0; i < CONTEXTS; i++) {
        count += contexts[i].used;
    }
    return count;
}

/* The versions of cudaTypedefs.h: a symbol is found for that version and later ones. */
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
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION; /* CUDA would let them share */
        }
    }
    if (room == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *room = (struct emulated_context){
        .used = true, .first = description->first, .count = description->sm.smCount};
    *green = room;
    return CUDA_SUCCESS;
}

/* CUDA would not destroy the streams, but leak them. */
CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    if (!green->used || green->streams != 0 || current == &green->streams) {
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
    CUstream made = NULL;
    if (!green->used || flags != CU_STREAM_NON_BLOCKING || priority != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (rp_mem_resize(&made, sizeof *made) != RP_OK) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = (struct emulated_stream){.home = &green->streams};
    green->streams++;
    *stream = made;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    if (context == NULL || !context->used) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    enter(&context->streams);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult result, const char **name)
{
    *name = result == CUDA_ERROR_INVALID_VALUE     ? "CUDA_ERROR_INVALID_VALUE"
            : result == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
                                                   : "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION";
    return CUDA_SUCCESS;
}
