#include "exec/cuda/green.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string.h>

#define MOST_PARTS 64u

/* The first driver version that has all of these functions: cuGreenCtxStreamCreate came last. */
#define DRIVER_VERSION 12050u

/* Functions of the driver. */
#define DRIVER_LIST(X)                                                                             \
    X(cuDeviceGetDevResource)                                                                      \
    X(cuDevSmResourceSplitByCount)                                                                 \
    X(cuDevResourceGenerateDesc)                                                                   \
    X(cuGreenCtxCreate)                                                                            \
    X(cuGreenCtxDestroy)                                                                           \
    X(cuCtxFromGreenCtx)                                                                           \
    X(cuGreenCtxStreamCreate)                                                                      \
    X(cuCtxSetCurrent)                                                                             \
    X(cuGetErrorName)

static struct {
#define FIELD(name) __typeof__(name) *name;
    DRIVER_LIST(FIELD)
#undef FIELD
} driver;

static bool look_up(const char *name, void **function_out)
{
    enum cudaDriverEntryPointQueryResult found;
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, function_out, DRIVER_VERSION,
                                                         cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess && *function_out != NULL;
}

/* @return the name of a function that the driver lacks; NULL: it has all. */
static const char *load_driver(void)
{
    const struct {
        const char *name;
        void *function;
    } functions[] = {
#define ENTRY(name) {#name, &driver.name},
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

/* The most multiprocessors that each of `count` groups can be asked to have; 0: that many groups
 * are not possible, or the driver refuses. The driver rounds the requested number up to its
 * granularity. */
static unsigned int most_of(const CUdevResource *all, uint32_t count, unsigned int flags,
                            const char **why_out)
{
    for (unsigned int least = all->sm.smCount / count; least > 0; least--) {
        unsigned int groups = 0;
        if (failed(driver.cuDevSmResourceSplitByCount(NULL, &groups, all, NULL, flags, least),
                   why_out)) {
            return 0;
        }
        if (groups >= count) {
            return least;
        }
    }
    *why_out = "too few groups of multiprocessors";
    return 0;
}

/* Cuts a device into `count` groups of equally many multiprocessors. The groups are co-scheduled,
 * which large clusters of blocks need, unless the device's topology leaves co-scheduled groups less
 * than three quarters. */
static bool cut(const CUdevResource *all, uint32_t count, CUdevResource *parts,
                const char **why_out)
{
    CUdevResource rest;
    unsigned int groups = count;
    unsigned int flags = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
    unsigned int together = most_of(all, count, 0, why_out);
    unsigned int least = most_of(all, count, flags, why_out);
    if (4 * together >= 3 * least) {
        least = together;
        flags = 0;
    }
    return least > 0 &&
           !failed(driver.cuDevSmResourceSplitByCount(parts, &groups, all, &rest, flags, least),
                   why_out) &&
           groups == count;
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

bool rpexec_green_split(int device, uint32_t cuts, uint32_t count, rpexec_cuda_part *parts_out,
                        const char **why_out)
{
    CUdevResource all;
    CUdevResource parts[MOST_PARTS];
    rpexec_cuda_part made[MOST_PARTS];
    const char *missing = NULL;
    if (cuts > MOST_PARTS) {
        *why_out = "more than 64 parts";
        return false;
    }
    /* The primary context must stay active, since green contexts are made in it. */
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
        !cut(&all, cuts, parts, why_out)) {
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
