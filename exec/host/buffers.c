#include "common/base/mem.h"
#include "exec/host/lane.h"

#include <stddef.h>
#include <sys/resource.h>

/* Bytes of a buffer of OpenBLAS on x86-64; on all other processors it is smaller. */
#define BUFFER_BYTES ((UINT64_C(128) << 20) + 8192)

/* OpenBLAS exports these functions, but no header declares them: NULL in a library without them. */
void *blas_memory_alloc(int) __attribute__((weak));
void blas_memory_free(void *) __attribute__((weak));

rp_status rpexec_host_reserve_buffers(uint32_t threads)
{
    static uint32_t made; /* only one thread opens devices */
    struct rlimit limit;
    rp_arena *arena = NULL;
    void **buffers = NULL;
    void *room = NULL;
    if (threads <= made || getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return RP_OK;
    }
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc_raw(arena, threads - made, BUFFER_BYTES, &room);
    rp_arena_destroy(arena); /* there is room for the buffers, which now take it */
    RP_TRY(status);
    RP_TRY(rp_arena_create(&arena));
    status = rp_arena_alloc(arena, threads, sizeof *buffers, &buffers);
    bool known = blas_memory_alloc != NULL && blas_memory_free != NULL;
    for (uint32_t i = 0; status == RP_OK && known && i < threads; i++) {
        buffers[i] = blas_memory_alloc(0);
    }
    for (uint32_t i = 0; status == RP_OK && known && i < threads; i++) {
        blas_memory_free(buffers[i]);
    }
    rp_arena_destroy(arena);
    made = status == RP_OK ? threads : made;
    return status;
}
