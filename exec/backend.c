#include "exec/backend.h"

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
