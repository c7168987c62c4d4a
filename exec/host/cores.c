#define _GNU_SOURCE /* sched_getaffinity, cpu_set_t */
#include "exec/host/cores.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

typedef struct cores {
    bool known;
    uint32_t count;
    uint32_t of[RPEXEC_MAX_CORES];
} cores;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cores found;

/* The kernel lists the hyperthreads of a core together; if it has no list, there are none. */
static bool is_first_thread(uint32_t cpu, const cpu_set_t *allowed)
{
    char path[96];
    uint32_t first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    FILE *stream = fopen(path, "r");
    if (stream == NULL) {
        return true;
    }
    bool read = fscanf(stream, "%u", &first) == 1;
    (void)fclose(stream);
    /* A first hyperthread that this process may not use does not count. */
    return !read || first == cpu || first >= RPEXEC_MAX_CORES || !CPU_ISSET(first, allowed);
}

/* Called only once, early: a thread that is bound already may use only its own processor. */
static void find(void)
{
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    bool asked = sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0;
    for (uint32_t cpu = 0; asked && cpu < RPEXEC_MAX_CORES && cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && is_first_thread(cpu, &allowed)) {
            found.of[found.count++] = cpu;
        }
    }
    found.known = found.count > 0;
    found.count = found.known ? found.count : 1;
}

uint32_t rpexec_host_cores(void)
{
    (void)pthread_once(&once, find);
    return found.count;
}

bool rpexec_host_bind(uint32_t number)
{
    cpu_set_t one;
    uint32_t count = rpexec_host_cores();
    if (!found.known) {
        return false;
    }
    CPU_ZERO(&one);
    CPU_SET(found.of[number % count], &one);
    return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
}
