#include "exec/cuda/green.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string.h>

#define MOST_PARTS 64u

/* X(name, parameters): functions of the driver. */
#define DRIVER_LIST(X)                                                                             \
    X(cuDeviceGetDevResource, (CUdevice, CUdevResource *, CUdevResourceType))                      \
    X(cuDevSmResourceSplitByCount, (CUdevResource *, unsigned int *, const CUdevResource *,        \
                                    CUdevResource *, unsigned int, unsigned int))                  \
    X(cuDevResourceGenerateDesc, (CUdevResourceDesc *, CUdevResource *, unsigned int))             \
    X(cuGreenCtxCreate, (CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned int))                 \
    X(cuGreenCtxDestroy, (CUgreenCtx))                                                             \
    X(cuCtxFromGreenCtx, (CUcontext *, CUgreenCtx))                                                \
    X(cuGreenCtxStreamCreate, (CUstream *, CUgreenCtx, unsigned int, int))                         \
    X(cuCtxSetCurrent, (CUcontext))                                                                \
    X(cuGetErrorName, (CUresult, const char **))

static struct {
#define FIELD(name, parameters) CUresult(*name) parameters;
    DRIVER_LIST(FIELD)
#undef FIELD
} driver;

static bool look_up(const char *name, void **function_out)
{
    enum cudaDriverEntryPointQueryResult found;
    cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, function_out, 12040, cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess && *function_out != NULL;
}

/* @return the name of a function that the driver does not have; NULL: it has all. */
static const char *load_driver(void)
{
    const struct {
        const char *name;
        void *function;
    } functions[] = {
#define ENTRY(name, parameters) {#name, &driver.name},
        DRIVER_LIST(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *function = NULL;
        if (!look_up(functions[i].name, &function)) {
            return functions[i].name;
        }
        memcpy(functions[i].function, &function, sizeof function);
    }
    return NULL;
}

static bool failed(CUresult result, const char **why_out)
{
    if (result != CUDA_SUCCESS && driver.cuGetErrorName(result, why_out) != CUDA_SUCCESS) {
        *why_out = "an error without a name";
    }
    return result != CUDA_SUCCESS;
}

/* As many groups of equally many multiprocessors as wanted; without co-scheduled ones where the
 * device's topology does not give enough of those. */
static bool cut(CUdevResource *all, uint32_t count, CUdevResource *parts, const char **why_out)
{
    static const unsigned int flags[] = {0, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING};
    for (size_t i = 0; i < 2; i++) {
        unsigned int groups = 0;
        unsigned int least = all->sm.smCount / count;
        if (failed(driver.cuDevSmResourceSplitByCount(NULL, &groups, all, NULL, flags[i], least),
                   why_out)) {
            return false;
        }
        /* The driver rounds `least` up to its granularity; as many as fit below it. */
        for (; groups < count && least > 1; least--) {
            if (failed(driver.cuDevSmResourceSplitByCount(NULL, &groups, all, NULL, flags[i],
                                                          least - 1),
                       why_out)) {
                break;
            }
        }
        if (groups >= count) {
            CUdevResource rest;
            groups = count;
            return !failed(driver.cuDevSmResourceSplitByCount(parts, &groups, all, &rest, flags[i],
                                                              least),
                           why_out) &&
                   groups == count;
        }
    }
    *why_out = "too few groups of multiprocessors";
    return false;
}

static bool make(CUdevice device, CUdevResource *resource, rpexec_cuda_part *part,
                 const char **why_out)
{
    CUdevResourceDesc description;
    CUgreenCtx green = NULL;
    CUcontext context = NULL;
    if (failed(driver.cuDevResourceGenerateDesc(&description, resource, 1), why_out) ||
        failed(driver.cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
               why_out)) {
        return false;
    }
    if (failed(driver.cuCtxFromGreenCtx(&context, green), why_out)) {
        (void)driver.cuGreenCtxDestroy(green);
        return false;
    }
    *part = (rpexec_cuda_part){.device = (int)device,
                               .sm_count = resource->sm.smCount,
                               .context = context,
                               .green = green};
    return true;
}

bool rpexec_green_split(int device, uint32_t count, rpexec_cuda_part *parts_out,
                        const char **why_out)
{
    CUdevResource all;
    CUdevResource parts[MOST_PARTS];
    rpexec_cuda_part made[MOST_PARTS];
    const char *missing = NULL;
    if (count > MOST_PARTS) {
        *why_out = "more than 64 parts";
        return false;
    }
    /* The primary context stays active: green contexts are made in it. */
    if (cudaSetDevice(device) != cudaSuccess || cudaFree(NULL) != cudaSuccess) {
        *why_out = "the device cannot be used";
        return false;
    }
    missing = load_driver();
    if (missing != NULL) {
        *why_out = missing;
        return false;
    }
    if (failed(driver.cuDeviceGetDevResource((CUdevice)device, &all, CU_DEV_RESOURCE_TYPE_SM),
               why_out) ||
        !cut(&all, count, parts, why_out)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!make((CUdevice)device, &parts[i], &made[i], why_out)) {
            rpexec_green_unsplit(i, made);
            return false;
        }
    }
    memcpy(parts_out, made, count * sizeof *made);
    return true;
}

void rpexec_green_unsplit(uint32_t count, rpexec_cuda_part *parts)
{
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].green != NULL) {
            (void)driver.cuGreenCtxDestroy(parts[i].green);
        }
    }
}

int rpexec_green_enter(void *context)
{
    return driver.cuCtxSetCurrent(context) == CUDA_SUCCESS ? 0 : (int)cudaErrorDeviceUninitialized;
}

int rpexec_green_stream(const rpexec_cuda_part *part, void **stream_out)
{
    CUstream stream = NULL;
    CUresult result =
        driver.cuGreenCtxStreamCreate(&stream, part->green, CU_STREAM_NON_BLOCKING, 0);
    *stream_out = stream;
    return result == CUDA_SUCCESS ? 0 : (int)cudaErrorInvalidResourceHandle;
}
