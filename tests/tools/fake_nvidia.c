/* Libraries of NVIDIA's driver for a machine without one (checks.describe): four GPUs whose name,
 * memory and links come from the environment, and copies that take as long as on a link of
 * RP_FAKE_LINK GB/s. RP_FAKE_LAST_GPU, RP_FAKE_LAST_GIB and RP_FAKE_LAST_LANES make the last GPU
 * differ. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GPUS 4u

static double number(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtod(text, NULL) : otherwise;
}

typedef struct pci {
    char old_bus[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} pci;

typedef struct memory {
    unsigned long long total, free, used;
} memory;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetName(void *device, char *name, unsigned size);
int nvmlDeviceGetMemoryInfo(void *device, memory *out);
int nvmlDeviceGetPciInfo_v3(void *device, pci *out);
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *out);
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *out);
int nvmlDeviceGetMaxClockInfo(void *device, unsigned which, unsigned *out);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetMemoryBusWidth(void *device, unsigned *out);
int nvmlDeviceGetNumGpuCores(void *device, unsigned *out);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out);
int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void *context);
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags);
int cuMemFreeHost(void *memory);
int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags);
int cuMemHostUnregister(void *memory);
int cuMemAlloc_v2(unsigned long long *memory, size_t bytes);
int cuMemFree_v2(unsigned long long memory);
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes);

int nvmlInit_v2(void)
{
    return getenv("RP_FAKE_NO_DRIVER") != NULL ? 9 : 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = GPUS;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(uintptr_t)(index + 1); /* a handle */
    return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    const char *last = (uintptr_t)device == GPUS ? getenv("RP_FAKE_LAST_GPU") : NULL;
    const char *text = last != NULL ? last : getenv("RP_FAKE_GPU");
    snprintf(name, size, "%s", text != NULL ? text : "NVIDIA GeForce RTX 4090");
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *out)
{
    double gib = number("RP_FAKE_GIB", 24);
    gib = (uintptr_t)device == GPUS ? number("RP_FAKE_LAST_GIB", gib) : gib;
    out->total = (unsigned long long)(gib * 1073741824.0);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, pci *out)
{
    *out = (pci){.bus = (unsigned)(uintptr_t)device};
    return 0;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *out)
{
    (void)device;
    *out = (unsigned)number("RP_FAKE_PCIE", 4);
    return 0;
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *out)
{
    *out = (uintptr_t)device == GPUS ? (unsigned)number("RP_FAKE_LAST_LANES", 16) : 16;
    return 0;
}

int nvmlDeviceGetMaxClockInfo(void *device, unsigned which, unsigned *out)
{
    (void)device;
    *out = which == 2 ? 10501 : 2520;
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    (void)device;
    *major = 8;
    *minor = 9;
    return 0;
}

int nvmlDeviceGetMemoryBusWidth(void *device, unsigned *out)
{
    (void)device;
    *out = 384;
    return 0;
}

int nvmlDeviceGetNumGpuCores(void *device, unsigned *out)
{
    (void)device;
    *out = 16384;
    return 0;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out)
{
    (void)device;
    *out = link < (unsigned)number("RP_FAKE_NVLINKS", 0);
    return 0;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return getenv("RP_FAKE_NO_DRIVER") != NULL ? 100 : 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = NULL;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return 0;
}

int cuCtxSetCurrent(void *context)
{
    (void)context;
    return 0;
}

int cuMemHostAlloc(void **memory_out, size_t bytes, unsigned flags)
{
    (void)flags;
    *memory_out = malloc(bytes);
    return *memory_out != NULL ? 0 : 2;
}

int cuMemFreeHost(void *memory_in)
{
    free(memory_in);
    return 0;
}

int cuMemHostRegister_v2(void *memory_in, size_t bytes, unsigned flags)
{
    (void)memory_in;
    (void)bytes;
    (void)flags;
    return 0;
}

int cuMemHostUnregister(void *memory_in)
{
    (void)memory_in;
    return 0;
}

int cuMemAlloc_v2(unsigned long long *memory_out, size_t bytes)
{
    *memory_out = bytes;
    return 0;
}

int cuMemFree_v2(unsigned long long memory_in)
{
    (void)memory_in;
    return 0;
}

static int take(size_t bytes)
{
    double seconds = (double)bytes / (1e9 * number("RP_FAKE_LINK", 8));
    struct timespec pause = {.tv_sec = (time_t)seconds};
    pause.tv_nsec = (long)(1e9 * (seconds - (double)pause.tv_sec));
    return nanosleep(&pause, NULL);
}

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes)
{
    (void)to;
    (void)from;
    return take(bytes);
}

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
    (void)to;
    (void)from;
    return take(bytes);
}
