#include "exec/run/backend.h"

#include <stddef.h>
#include <string.h>

#define X(symbol) extern const rpexec_backend_type symbol;
#include "backends.inc"
#undef X

const rpexec_backend_type *const rpexec_backends[] = {
#define X(symbol) &symbol,
#include "backends.inc"
#undef X
};

const uint32_t rpexec_backend_count = sizeof(rpexec_backends) / sizeof(rpexec_backends[0]);

const rpexec_backend_type *rpexec_backend_find(const char *name)
{
    for (uint32_t i = 0; i < rpexec_backend_count; i++) {
        if (strcmp(rpexec_backends[i]->name, name) == 0) {
            return rpexec_backends[i];
        }
    }
    return NULL;
}

static void count_device(void *context, const rpexec_device *device)
{
    uint32_t *count = context;
    *count = device->index + 1;
}

/* The reason is dropped here: the attempt to take hold of the devices gives it. */
static void no_device(void *context, const char *reason)
{
    (void)context;
    (void)reason;
}

uint32_t rpexec_backend_devices(const rpexec_backend_type *backend)
{
    uint32_t count = 0;
    const rpexec_probe probe = {.context = &count, .device = count_device, .absent = no_device};
    return backend->probe(&probe) == RP_OK ? count : 0;
}

const rpexec_backend_type *rpexec_backend_default(const rpexec_backend_type *const *types,
                                                  uint32_t count)
{
    for (int own = 1; own >= 0; own--) {
        for (uint32_t i = 0; i < count; i++) {
            bool attaches = types[i]->driver()->attach != NULL;
            if (attaches == (own != 0) && rpexec_backend_devices(types[i]) > 0) {
                return types[i];
            }
        }
    }
    return NULL;
}
