/* Preloaded into a program: allocation number FAIL_AT finds no memory; with FAIL_ALL no later
 * allocation does either. glibc only. FAIL_AT=0 prints the number of allocations. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);

static atomic_long made;
static long fails_at;
static int fails_on;

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAIL_AT");
    fails_on = getenv("FAIL_ALL") != NULL;
    made = 0;
    fails_at = at != NULL ? strtol(at, NULL, 10) : 0;
}

__attribute__((destructor)) static void end(void)
{
    if (fails_at == 0) {
        fprintf(stderr, "%ld allocations\n", atomic_load(&made));
    }
}

static int fails(void)
{
    long number = atomic_fetch_add(&made, 1) + 1;
    if (fails_at == 0 || number < fails_at || (number > fails_at && !fails_on)) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    return fails() ? NULL : __libc_realloc(block, size);
}
