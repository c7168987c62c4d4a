#include "common/inputs/detect/gpus.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Declarations as in nvml.h of the driver's toolkit; result 0 means success. */

/* Finds a function of a library by name. POSIX allows its data pointer to become a function
 * pointer. */
static bool find(void *library, const char *name, void *function_out)
{
    void *found = dlsym(library, name);
    memcpy(function_out, &found, sizeof found);
    return found != NULL;
}

typedef struct nvml_pci {
    char old_bus[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} nvml_pci;

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

#define CLOCK_SM 1u
#define CLOCK_MEMORY 2u
#define LINKS 18u

typedef void *nvml_device;

typedef struct nvml {
    int (*begin)(void);
    int (*end)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, nvml_device *);
    int (*name)(nvml_device, char *, unsigned);
    int (*memory)(nvml_device, nvml_memory *);
    int (*pci)(nvml_device, nvml_pci *);
    int (*generation)(nvml_device, unsigned *);
    int (*width)(nvml_device, unsigned *);
    int (*clock)(nvml_device, unsigned, unsigned *);
    int (*capability)(nvml_device, int *, int *);
    /* Functions that not every driver has; NULL if it has not: */
    int (*memory_bits)(nvml_device, unsigned *);
    int (*cores)(nvml_device, unsigned *);
    int (*link)(nvml_device, unsigned, unsigned *);
} nvml;

static bool load_nvml(void *library, nvml *n)
{
    (void)find(library, "nvmlDeviceGetMemoryBusWidth", &n->memory_bits);
    (void)find(library, "nvmlDeviceGetNumGpuCores", &n->cores);
    (void)find(library, "nvmlDeviceGetNvLinkState", &n->link);
    return find(library, "nvmlInit_v2", &n->begin) && find(library, "nvmlShutdown", &n->end) &&
           find(library, "nvmlDeviceGetCount_v2", &n->count) &&
           find(library, "nvmlDeviceGetHandleByIndex_v2", &n->handle) &&
           find(library, "nvmlDeviceGetName", &n->name) &&
           find(library, "nvmlDeviceGetMemoryInfo", &n->memory) &&
           find(library, "nvmlDeviceGetPciInfo_v3", &n->pci) &&
           find(library, "nvmlDeviceGetMaxPcieLinkGeneration", &n->generation) &&
           find(library, "nvmlDeviceGetMaxPcieLinkWidth", &n->width) &&
           find(library, "nvmlDeviceGetMaxClockInfo", &n->clock) &&
           find(library, "nvmlDeviceGetCudaComputeCapability", &n->capability);
}

static void read_gpu(const nvml *n, nvml_device device, rp_gpu_facts *gpu)
{
    nvml_memory memory = {0};
    nvml_pci pci = {0};
    unsigned bits = 0, mhz = 0, up = 0;
    int major = 0, minor = 0;
    *gpu = (rp_gpu_facts){.name = "GPU"};
    (void)n->name(device, gpu->name, sizeof gpu->name);
    if (n->memory(device, &memory) == 0) {
        gpu->memory_bytes = (double)memory.total;
    }
    if (n->pci(device, &pci) == 0) {
        snprintf(gpu->bus, sizeof gpu->bus, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
    }
    (void)n->generation(device, &gpu->pcie_gen);
    (void)n->width(device, &gpu->pcie_lanes);
    (void)n->clock(device, CLOCK_SM, &gpu->clock_mhz);
    if (n->memory_bits != NULL && n->memory_bits(device, &bits) == 0 &&
        n->clock(device, CLOCK_MEMORY, &mhz) == 0) {
        gpu->memory_gb_per_s = 2e-3 * mhz * bits / 8; /* two transfers a clock */
    }
    if (n->capability(device, &major, &minor) == 0) {
        gpu->major = (uint32_t)major;
        gpu->minor = (uint32_t)minor;
    }
    if (n->cores != NULL) {
        (void)n->cores(device, &gpu->cores);
    }
    for (unsigned link = 0; n->link != NULL && link < LINKS; link++) {
        gpu->nvlinks += n->link(device, link, &up) == 0 && up == 1 ? 1 : 0;
    }
}

uint32_t rp_gpus_read(rp_gpu_facts *gpus, const char **why_out)
{
    nvml n = {0};
    unsigned count = 0;
    uint32_t found = 0;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    *why_out = library == NULL ? dlerror() : "NVML has no GPU";
    if (library == NULL) {
        return 0;
    }
    if (!load_nvml(library, &n)) {
        *why_out = "libnvidia-ml.so.1 is too old";
    } else if (n.begin() != 0) {
        *why_out = "NVML does not start: no driver runs";
    } else {
        (void)n.count(&count);
        for (unsigned i = 0; i < count && found < RP_GPUS_MOST; i++) {
            nvml_device device = NULL;
            if (n.handle(i, &device) == 0) {
                read_gpu(&n, device, &gpus[found++]);
            }
        }
        (void)n.end();
    }
    (void)dlclose(library);
    return found;
}
