#include "exec/cuda/cudnn.h"

#include "common/base/log.h"
#include "exec/cuda/open_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SONAME "libcudnn.so.9"

/* A run has a shape for each number of sequences in a microbatch. PACKS is more than the attentions
 * of a step with different addresses. If there are more, the oldest pack is replaced.
 */
enum { PLANS = 16, PACKS = 2048, SLOTS = 2 * PACKS };

/* Addresses with which a plan has been called. */
typedef struct pack {
    const rpexec_cudnn_plan *plan;
    const void *memory[RPEXEC_CUDNN_SCALE];
    rpexec_cudnn_object object;
} pack;

struct rpexec_cudnn {
    const rpexec_cudnn_functions *f;
    rpexec_cudnn_handle handle;
    rp_dtype dtype;
    void *workspace;
    size_t workspace_bytes;
    rpexec_cudnn_plan plans[PLANS];
    uint32_t plan_count;
    rpexec_cudnn_plan refused;
    pack packs[PACKS];
    uint32_t pack_count;
    uint32_t next;         /* index of the pack that is replaced next */
    uint16_t slots[SLOTS]; /* by hash: the pack's number + 1; 0: free */
};

/* ---- the library ----------------------------------------------------------------------------- */

/* A process has a single library, which stays loaded: unloading would also unload its kernels from
 * the GPUs. */
static struct {
    pthread_mutex_t lock;
    void *library;
    rpexec_cudnn_functions f;
    size_t version;
    char why[1024];
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *open_library(void)
{
    return rpexec_open_library("RPEXEC_CUDNN", SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static bool find_functions(void *candidate)
{
    static const char *const names[] = {
#define NAME(result, name, parameters) "cudnn" #name,
        RPEXEC_CUDNN_FUNCTIONS(NAME)
#undef NAME
    };
    void *addresses[sizeof names / sizeof *names];
    _Static_assert(sizeof addresses == sizeof loaded.f, "a table of pointers");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        addresses[i] = dlsym(candidate, names[i]);
        if (addresses[i] == NULL) {
            snprintf(loaded.why, sizeof loaded.why, "cuDNN has no function %s", names[i]);
            return false;
        }
    }
    memcpy(&loaded.f, addresses, sizeof addresses);
    return true;
}

static bool is_known(void)
{
    loaded.version = loaded.f.GetVersion();
    if (loaded.version >= RPEXEC_CUDNN_LEAST_VERSION && loaded.version / 10000 == 9) {
        return true;
    }
    snprintf(loaded.why, sizeof loaded.why,
             "cuDNN %zu.%zu is too old, or too new for this rpexec; valid are versions %u.%u to "
             "those before 10.0",
             loaded.version / 10000, loaded.version / 100 % 100, RPEXEC_CUDNN_LEAST_VERSION / 10000,
             RPEXEC_CUDNN_LEAST_VERSION / 100 % 100);
    return false;
}

static void *load(void)
{
    void *candidate = open_library();
    if (candidate == NULL) {
        const char *why = dlerror();
        snprintf(loaded.why, sizeof loaded.why,
                 "cuDNN cannot be opened: %s. Looked for " SONAME
                 " where the system looks and in $CUDA_HOME/lib64 (/usr/local/cuda/lib64); "
                 "RPEXEC_CUDNN names a file",
                 why != NULL ? why : "unknown");
        return NULL;
    }
    if (!find_functions(candidate) || !is_known()) {
        (void)dlclose(candidate);
        return NULL;
    }
    return candidate;
}

bool rpexec_cudnn_load(const rpexec_cudnn_functions **functions_out, size_t *version_out,
                       const char **why_out)
{
    pthread_mutex_lock(&loaded.lock);
    loaded.library = loaded.library != NULL ? loaded.library : load();
    bool is_there = loaded.library != NULL;
    pthread_mutex_unlock(&loaded.lock);
    *functions_out = &loaded.f;
    *version_out = loaded.version;
    *why_out = loaded.why;
    return is_there;
}

rp_status rpexec_cudnn_open(rp_dtype dtype, cudaStream_t stream, void *workspace,
                            size_t workspace_bytes, rp_arena *arena, rpexec_cudnn **cudnn_out,
                            const char **why_out)
{
    static _Thread_local char why[256];
    rpexec_cudnn *c = NULL;
    size_t version = 0;
    const rpexec_cudnn_functions *f = NULL;
    *cudnn_out = NULL;
    if (!rpexec_cudnn_load(&f, &version, why_out)) {
        return RP_TOOL;
    }
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *c, &c));
    *c = (rpexec_cudnn){
        .f = f, .dtype = dtype, .workspace = workspace, .workspace_bytes = workspace_bytes};
    unsigned status = f->Create(&c->handle);
    if (status == RPEXEC_CUDNN_STATUS_SUCCESS) {
        status = f->SetStream(c->handle, stream);
    }
    if (status != RPEXEC_CUDNN_STATUS_SUCCESS) {
        snprintf(why, sizeof why, "cudnnCreate: %s", f->GetErrorString(status));
        *why_out = why;
        rpexec_cudnn_close(c);
        return RP_TOOL;
    }
    *cudnn_out = c;
    return RP_OK;
}

void rpexec_cudnn_close(rpexec_cudnn *c)
{
    if (c == NULL) {
        return;
    }
    for (uint32_t i = 0; i < c->pack_count; i++) {
        (void)c->f->BackendDestroyDescriptor(c->packs[i].object);
    }
    for (uint32_t i = 0; i < c->plan_count; i++) {
        rpexec_cudnn_plan_forget(&c->plans[i]);
    }
    rpexec_cudnn_plan_forget(&c->refused);
    if (c->handle != NULL) {
        (void)c->f->Destroy(c->handle);
    }
    memset(c, 0, sizeof *c);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static rpexec_cudnn_plan *find_plan(rpexec_cudnn *c, const rpexec_attention_sizes *sizes)
{
    for (uint32_t i = 0; i < c->plan_count; i++) {
        if (memcmp(&c->plans[i].sizes, sizes, sizeof *sizes) == 0) {
            return &c->plans[i];
        }
    }
    return NULL;
}

bool rpexec_cudnn_has(const rpexec_cudnn *c, const rpexec_attention_sizes *sizes)
{
    for (uint32_t i = 0; i < c->plan_count; i++) {
        if (memcmp(&c->plans[i].sizes, sizes, sizeof *sizes) == 0) {
            return true;
        }
    }
    return false;
}

rp_status rpexec_cudnn_plan_for(rpexec_cudnn *c, const rpexec_attention_sizes *sizes,
                                const char **why_out)
{
    const rpexec_cudnn_target target = {.f = c->f, .handle = c->handle};
    *why_out = c->refused.why;
    if (find_plan(c, sizes) != NULL) {
        return RP_OK;
    }
    rpexec_cudnn_plan_forget(&c->refused);
    if (c->plan_count == PLANS) {
        snprintf(c->refused.why, sizeof c->refused.why, "more than %d shapes", PLANS);
        return RP_TOOL;
    }
    rpexec_cudnn_plan *plan = &c->plans[c->plan_count];
    rp_status status =
        rpexec_cudnn_plan_make(&target, c->dtype, sizes, (int64_t)c->workspace_bytes, plan);
    if (status != RP_OK) {
        c->refused = *plan;
        memset(plan, 0, sizeof *plan);
        return status;
    }
    c->plan_count++;
    return RP_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static uint32_t hash_of(const rpexec_cudnn_plan *plan, const void *const *memory)
{
    uint64_t hash = (uint64_t)(uintptr_t)plan;
    for (int i = 0; i < RPEXEC_CUDNN_SCALE; i++) {
        hash = (hash ^ (uint64_t)(uintptr_t)memory[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return (uint32_t)hash;
}

/* The slot of a pack, or the free slot for it. */
static uint16_t *slot_of(rpexec_cudnn *c, const rpexec_cudnn_plan *plan, const void *const *memory)
{
    for (uint32_t i = hash_of(plan, memory);; i++) {
        uint16_t *slot = &c->slots[i % SLOTS];
        const pack *k = &c->packs[*slot != 0 ? *slot - 1 : 0];
        if (*slot == 0 || (k->plan == plan && memcmp(k->memory, memory, sizeof k->memory) == 0)) {
            return slot;
        }
    }
}

/* Gives up the oldest pack. All slots are filled anew, since a search ends at a free slot. */
static pack *replaced(rpexec_cudnn *c)
{
    pack *k = &c->packs[c->next++ % PACKS];
    (void)c->f->BackendDestroyDescriptor(k->object);
    *k = (pack){0};
    memset(c->slots, 0, sizeof c->slots);
    for (uint32_t i = 0; i < PACKS; i++) {
        if (c->packs[i].plan != NULL) {
            *slot_of(c, c->packs[i].plan, c->packs[i].memory) = (uint16_t)(i + 1);
        }
    }
    return k;
}

/* Finds or makes a pack; NULL if it cannot be made (plan->why). */
static rpexec_cudnn_object pack_of(rpexec_cudnn *c, rpexec_cudnn_plan *plan,
                                   const void *const memory[RPEXEC_CUDNN_SCALE])
{
    rpexec_cudnn_object object = NULL;
    const uint16_t *known = slot_of(c, plan, memory);
    if (*known != 0) {
        return c->packs[*known - 1].object;
    }
    if (rpexec_cudnn_pack_make(plan, memory, c->workspace, &object) != RP_OK) {
        return NULL;
    }
    pack *k = c->pack_count < PACKS ? &c->packs[c->pack_count++] : replaced(c);
    k->plan = plan;
    memcpy(k->memory, memory, sizeof k->memory);
    k->object = object;
    *slot_of(c, plan, memory) = (uint16_t)(k - c->packs + 1);
    return object;
}

rp_status rpexec_cudnn_attention(rpexec_cudnn *c, const rpexec_attention_sizes *sizes,
                                 const void *q, const void *k, const void *v, void *o,
                                 float *logsumexp)
{
    const void *memory[RPEXEC_CUDNN_SCALE] = {[RPEXEC_CUDNN_Q] = q,
                                              [RPEXEC_CUDNN_K] = k,
                                              [RPEXEC_CUDNN_V] = v,
                                              [RPEXEC_CUDNN_O] = o,
                                              [RPEXEC_CUDNN_LOGSUMEXP] = logsumexp};
    rpexec_cudnn_plan *plan = find_plan(c, sizes);
    uintptr_t all = 0;
    for (int i = 0; i < RPEXEC_CUDNN_SCALE; i++) {
        all |= (uintptr_t)memory[i];
    }
    if (plan == NULL || all % 16 != 0) {
        rp_log_error("attention by cuDNN: %s", plan == NULL
                                                   ? "no plan for these sizes"
                                                   : "tensors that are not aligned to 16 bytes");
        return rp_broken();
    }
    rpexec_cudnn_object addresses = pack_of(c, plan, memory);
    if (addresses == NULL) {
        rp_log_error("attention by cuDNN: %s", plan->why);
        return RP_TOOL;
    }
    unsigned status = c->f->BackendExecute(c->handle, plan->plan, addresses);
    if (status != RPEXEC_CUDNN_STATUS_SUCCESS) {
        rp_log_error("cudnnBackendExecute: %s", c->f->GetErrorString(status));
        return RP_TOOL;
    }
    return RP_OK;
}
