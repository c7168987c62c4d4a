#include "exec/describe/pins.h"

#include "common/base/median.h"
#include "common/base/mem.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

#define COPY_BYTES ((size_t)256 << 20)
#define COPIES 5u

/* Functions of a library by name: data pointers become pointers to functions, as POSIX allows. */
static bool find(void *library, const char *name, void *function_out)
{
    void *found = dlsym(library, name);
    memcpy(function_out, &found, sizeof found);
    return found != NULL;
}

/* Functions of the driver, as declared in cuda.h; a result of 0 is success. */

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
    for (uint32_t i = 0; done && i <= COPIES; i++) { /* the first copy does not count */
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
