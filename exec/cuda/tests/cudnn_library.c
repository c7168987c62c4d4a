/* Makes plans with NVIDIA's own cuDNN on a machine without a GPU: for devices that are only
 * described, cuDNN analyses our graphs, finds attention in them, and builds plans for kernels
 * (no_driver.c). Nothing runs. Exit status 77: cuDNN is not installed, or cannot do that. */
#include "exec/cuda/cudnn.h"
#include "exec/cuda/lane.h"

#include <stdio.h>
#include <string.h>

/* A device in cuDNN's own notation; `deviceVer` and the multiprocessors are filled in. */
static const char device_text[] =
    "{\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"maxGridSize\":[2147483647,65535,"
    "65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":%d,"
    "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":16,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":1536,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1700000,\"memClockRateKHz\":2600000,"
    "\"totalGlobalMem\":24000000000,\"l2CacheSize\":50000000,\"deviceName\":\"described\"}";

static const struct {
    int capability, multiprocessors, shared;
} devices[] = {{800, 108, 166912}, {900, 132, 232448}, {1200, 170, 101376}};

static const struct {
    rpexec_attention_sizes sizes;
    rp_dtype dtype;
    const char *why; /* NULL: there is a plan */
} shapes[] = {
    {{4, 2048, 32, 8, 128, 0, 0, 0}, RP_DTYPE_BF16, NULL},
    {{3, 37, 4, 2, 64, 0, 0, 0}, RP_DTYPE_F16, NULL},
    {{1, 100, 6, 2, 37, 0, 0, 0}, RP_DTYPE_BF16, "no engine"},
    {{1, 100, 6, 2, 64, 16, 0, 0}, RP_DTYPE_BF16, "a sliding window"},
    {{1, 100, 6, 2, 64, 0, 0, 50}, RP_DTYPE_BF16, "a soft cap of scores"},
    {{1, 100, 6, 2, 64, 0, 0, 0}, RP_DTYPE_F32, "fp32"},
};

static rpexec_cudnn_object describe(const rpexec_cudnn_functions *f, int capability,
                                    int multiprocessors, int shared)
{
    char text[2048];
    rpexec_cudnn_object device = NULL;
    int length = snprintf(text, sizeof text, device_text, capability, multiprocessors, shared);
    if (f->BackendCreateDescriptor(RPEXEC_CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device) != 0 ||
        f->BackendSetAttribute(device, RPEXEC_CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                               RPEXEC_CUDNN_TYPE_CHAR, length, text) != 0 ||
        f->BackendFinalize(device) != 0) {
        return NULL;
    }
    return device;
}

/* True if the plan's text shows that the library has found attention in the graph, or if there is
 * no such text. */
static bool is_attention(const rpexec_cudnn_functions *f, rpexec_cudnn_object plan)
{
    static char text[4 << 20];
    int64_t length = 0;
    if (f->BackendGetAttribute(plan, RPEXEC_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                               RPEXEC_CUDNN_TYPE_CHAR, sizeof text - 1, &length, text) != 0) {
        return true;
    }
    text[length] = '\0';
    return strstr(text, "\"finalizeMode\"") == NULL ||
           strstr(text, "\"finalizeMode\":\"SDPA_FWD\"") != NULL;
}

static int try_one(const rpexec_cudnn_target *target, uint32_t shape, int capability)
{
    static const char memory[RPEXEC_CUDNN_SCALE][16] __attribute__((aligned(16)));
    const void *addresses[RPEXEC_CUDNN_SCALE];
    const rpexec_attention_sizes *s = &shapes[shape].sizes;
    rpexec_cudnn_plan plan;
    rpexec_cudnn_object pack = NULL;
    char workspace[16];
    for (int i = 0; i < RPEXEC_CUDNN_SCALE; i++) {
        addresses[i] = memory[i];
    }
    rp_status status = rpexec_cudnn_plan_make(target, shapes[shape].dtype, s,
                                              (int64_t)RPEXEC_CUDA_WORKSPACE, &plan);
    bool right = shapes[shape].why == NULL
                     ? status == RP_OK && is_attention(target->f, plan.plan) &&
                           rpexec_cudnn_pack_make(&plan, addresses, workspace, &pack) == RP_OK
                     : status == RP_TOOL && strstr(plan.why, shapes[shape].why) != NULL;
    printf("%d: %u x %u tokens, %u of %u heads of %u, %s: %s%s (%u engines, %lld bytes)%s\n",
           capability, s->sequences, s->seq_len, s->kv_heads, s->heads, s->head_dim,
           rp_dtype_text(shapes[shape].dtype), status == RP_OK ? "a plan" : "no plan: ", plan.why,
           plan.engines, (long long)plan.workspace_bytes, right ? "" : " NOT EXPECTED");
    if (pack != NULL) {
        (void)target->f->BackendDestroyDescriptor(pack);
    }
    bool cannot = strstr(plan.why, "PREREQUISITE") != NULL; /* for compiling kernels on this
                                                               machine */
    rpexec_cudnn_plan_forget(&plan);
    return right ? 0 : cannot ? 77 : 1;
}

int main(void)
{
    rpexec_cudnn_target target = {.f = NULL};
    const char *why = NULL;
    size_t version = 0;
    if (!rpexec_cudnn_load(&target.f, &version, &why)) {
        printf("skipped: %s\n", why);
        return 77;
    }
    printf("cuDNN %zu\n", version);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        target.device = describe(target.f, devices[i].capability, devices[i].multiprocessors,
                                 devices[i].shared);
        if (target.device == NULL) {
            printf("skipped: this version takes no descriptions of devices\n");
            return 77;
        }
        for (uint32_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            int status = try_one(&target, k, devices[i].capability);
            if (status != 0) {
                return status;
            }
        }
        (void)target.f->BackendDestroyDescriptor(target.device);
    }
    return 0;
}
