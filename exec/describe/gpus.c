#include "exec/describe/gpus.h"

#include "common/base/median.h"
#include "common/base/mem.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define COPY_BYTES ((size_t)256 << 20)
#define COPIES 5u

/* Functions of a library by name: data pointers become pointers to functions, as POSIX has it. */
static bool find(void *library, const char *name, void *function_out)
{
    void *found = dlsym(library, name);
    memcpy(function_out, &found, sizeof found);
    return found != NULL;
}

/* ---- NVML (nvml.h of the driver's toolkit; results 0: success) ---------------------------------
 */

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
    /* Not in every driver: */
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

static void read_gpu(const nvml *n, nvml_device device, rpexec_gpu_facts *gpu)
{
    nvml_memory memory = {0};
    nvml_pci pci = {0};
    unsigned bits = 0, mhz = 0, up = 0;
    int major = 0, minor = 0;
    *gpu = (rpexec_gpu_facts){.name = "GPU"};
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

uint32_t rpexec_gpus_read(rpexec_gpu_facts *gpus, const char **why_out)
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
        for (unsigned i = 0; i < count && found < RPEXEC_GPUS_MOST; i++) {
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

/* ---- the driver (cuda.h; results 0: success) ---------------------------------------------------
 */

struct rpexec_pins {
    void *library;
    int device;
    int (*release)(int);
    int (*take)(void **, size_t, unsigned);
    int (*give)(void *);
    int (*pin)(void *, size_t, unsigned);
    int (*unpin)(void *);
    int (*device_take)(unsigned long long *, size_t);
    int (*device_give)(unsigned long long);
    int (*up)(unsigned long long, const void *, size_t);
    int (*down)(void *, unsigned long long, size_t);
};

static bool open_context(rpexec_pins *p)
{
    int (*begin)(unsigned) = NULL;
    int (*get)(int *, int) = NULL;
    int (*retain)(void **, int) = NULL;
    int (*set)(void *) = NULL;
    void *context = NULL;
    void *l = p->library;
    return find(l, "cuInit", &begin) && find(l, "cuDeviceGet", &get) &&
           find(l, "cuDevicePrimaryCtxRetain", &retain) && find(l, "cuCtxSetCurrent", &set) &&
           find(l, "cuDevicePrimaryCtxRelease_v2", &p->release) &&
           find(l, "cuMemHostAlloc", &p->take) && find(l, "cuMemFreeHost", &p->give) &&
           find(l, "cuMemHostRegister_v2", &p->pin) && find(l, "cuMemHostUnregister", &p->unpin) &&
           find(l, "cuMemAlloc_v2", &p->device_take) && find(l, "cuMemFree_v2", &p->device_give) &&
           find(l, "cuMemcpyHtoD_v2", &p->up) && find(l, "cuMemcpyDtoH_v2", &p->down) &&
           begin(0) == 0 && get(&p->device, 0) == 0 && retain(&context, p->device) == 0 &&
           set(context) == 0;
}

rpexec_pins *rpexec_pins_open(void)
{
    rpexec_pins *p = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL || rp_mem_resize(&p, sizeof *p) != RP_OK) {
        if (library != NULL) {
            (void)dlclose(library);
        }
        return NULL;
    }
    *p = (rpexec_pins){.library = library};
    if (!open_context(p)) {
        (void)dlclose(library);
        rp_mem_release(&p);
    }
    return p;
}

void rpexec_pins_close(rpexec_pins *p)
{
    if (p != NULL) {
        (void)p->release(p->device);
        (void)dlclose(p->library);
        rp_mem_release(&p);
    }
}

bool rpexec_pins_add(rpexec_pins *p, void *memory, size_t bytes)
{
    return p->pin(memory, bytes, 0) == 0;
}

void rpexec_pins_remove(rpexec_pins *p, void *memory)
{
    if (p != NULL) {
        (void)p->unpin(memory);
    }
}

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

rpexec_gpu_copies rpexec_pins_copies(rpexec_pins *p)
{
    double up_s[COPIES], down_s[COPIES];
    rpexec_gpu_copies copies = {0};
    unsigned long long gpu = 0;
    void *host = NULL;
    bool done = p->take(&host, COPY_BYTES, 0) == 0;
    if (!done) {
        return copies;
    }
    memset(host, 1, COPY_BYTES);
    done = p->device_take(&gpu, COPY_BYTES) == 0;
    for (uint32_t i = 0; done && i <= COPIES; i++) { /* the first one does not count */
        uint32_t at = i == 0 ? 0 : i - 1;
        double begin_s = now_s();
        done = p->up(gpu, host, COPY_BYTES) == 0;
        up_s[at] = now_s() - begin_s;
        begin_s = now_s();
        done = done && p->down(host, gpu, COPY_BYTES) == 0;
        down_s[at] = now_s() - begin_s;
    }
    if (done) {
        copies.up_Bps = (double)COPY_BYTES / rp_median(up_s, COPIES);
        copies.down_Bps = (double)COPY_BYTES / rp_median(down_s, COPIES);
    }
    if (gpu != 0) {
        (void)p->device_give(gpu);
    }
    (void)p->give(host);
    return copies;
}
