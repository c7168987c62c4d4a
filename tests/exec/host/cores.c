/* Threads that stay on a single processor (exec/host/cores.h), as reported by the kernel. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "exec/host/cores.h"
#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "exec/host/awake.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct bound {
    uint32_t number;
    bool done;
    cpu_set_t may_use;
} bound;

static void *run(void *context)
{
    bound *b = context;
    b->done = rpexec_host_bind(b->number);
    (void)sched_getaffinity(0, sizeof b->may_use, &b->may_use);
    return NULL;
}

static bound bind_thread(uint32_t number)
{
    bound b = {.number = number};
    pthread_t thread;
    cr_assert(eq(int, pthread_create(&thread, NULL, run, &b), 0));
    pthread_join(thread, NULL);
    return b;
}

Test(exec_cores, threads_stay_on_one_processor_each)
{
    cpu_set_t before;
    CPU_ZERO(&before);
    cr_assert(eq(int, sched_getaffinity(0, sizeof before, &before), 0));
    uint32_t cores = rpexec_host_cores();
    cr_assert(ge(u32, cores, 1));
    cr_assert(le(int, (int)cores, CPU_COUNT(&before)));
    for (uint32_t i = 0; i < cores; i++) {
        bound b = bind_thread(i);
        bound same = bind_thread(i + 3 * cores);
        cr_assert(b.done && same.done);
        cr_expect(eq(int, CPU_COUNT(&b.may_use), 1));
        cr_expect(ne(int, CPU_EQUAL(&b.may_use, &same.may_use), 0), "GPU %u and %u", i,
                  i + 3 * cores);
        CPU_AND(&b.may_use, &b.may_use, &before);
        cr_expect(eq(int, CPU_COUNT(&b.may_use), 1), "processor %u is none of this process", i);
        for (uint32_t k = 0; k < i; k++) {
            bound other = bind_thread(k);
            CPU_AND(&other.may_use, &other.may_use, &b.may_use);
            cr_expect(eq(int, CPU_COUNT(&other.may_use), 0), "%u and %u share one", i, k);
        }
    }
}

/* Binding a thread leaves the other threads as they are. */
Test(exec_cores, other_threads_stay_free)
{
    cpu_set_t before;
    cpu_set_t after;
    CPU_ZERO(&before);
    CPU_ZERO(&after);
    cr_assert(eq(int, sched_getaffinity(0, sizeof before, &before), 0));
    (void)bind_thread(0);
    cr_assert(eq(int, sched_getaffinity(0, sizeof after, &after), 0));
    cr_expect(ne(int, CPU_EQUAL(&before, &after), 0));
}

/* sched_setscheduler takes the place of libc's, so that the kernel can seem to refuse. */
static atomic_bool refusing;

int sched_setscheduler(pid_t thread, int policy, const struct sched_param *param)
{
    if (atomic_load(&refusing)) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_sched_setscheduler, thread, policy, param);
}

/* This process's threads of idle priority: their number, the processors that they may use, and the
 * processor time that they have used. */
typedef struct idle_threads {
    uint32_t count;
    uint32_t bound; /* threads bound to a single processor */
    cpu_set_t on;
    uint64_t ticks;
} idle_threads;

static uint64_t ticks_of(const char *thread)
{
    char path[64];
    unsigned long user = 0;
    (void)snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", thread);
    FILE *file = fopen(path, "r");
    cr_assert(file != NULL);
    cr_assert(
        eq(int, fscanf(file, "%*[^)]) %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu", &user), 1));
    (void)fclose(file);
    return user;
}

static idle_threads find_idle(void)
{
    idle_threads found = {0};
    CPU_ZERO(&found.on);
    DIR *threads = opendir("/proc/self/task");
    cr_assert(threads != NULL);
    for (const struct dirent *e = readdir(threads); e != NULL; e = readdir(threads)) {
        pid_t thread = (pid_t)strtol(e->d_name, NULL, 10);
        cpu_set_t on;
        CPU_ZERO(&on);
        if (thread > 0 && sched_getscheduler(thread) == SCHED_IDLE) {
            cr_assert(eq(int, sched_getaffinity(thread, sizeof on, &on), 0));
            CPU_OR(&found.on, &found.on, &on);
            found.count++;
            found.bound += CPU_COUNT(&on) == 1;
            found.ticks += ticks_of(e->d_name);
        }
    }
    (void)closedir(threads);
    return found;
}

static void *become_idle(void *done)
{
    const struct sched_param none = {0};
    *(bool *)done = sched_setscheduler(0, SCHED_IDLE, &none) == 0;
    return NULL;
}

/* True if processors shall and can be kept awake. */
static bool can_keep_awake(void)
{
    bool done = false;
    pthread_t thread;
    cr_assert(eq(int, pthread_create(&thread, NULL, become_idle, &done), 0));
    pthread_join(thread, NULL);
    return done && !rp_host_processors_limited("");
}

/* Each processor has a thread, and all threads work until they are ended; if the process is
 * limited, there are no threads. */
Test(exec_cores, processors_are_kept_awake)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    rp_arena *arena = NULL;
    rpexec_host_awake *awake = NULL;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_expect(eq(u32, find_idle().count, 0));
    cr_assert(eq(int, rpexec_host_awake_begin(arena, &awake), RP_OK));
    uint32_t wanted = can_keep_awake() ? rpexec_host_cores() : 0;
    idle_threads first = find_idle();
    for (int tries = 0; tries < 500 && first.bound != wanted; tries++) {
        (void)nanosleep(&pause, NULL);
        first = find_idle();
    }
    cr_expect(first.count == wanted && first.bound == wanted, "%u, %u", first.count, first.bound);
    cr_expect(eq(int, CPU_COUNT(&first.on), (int)wanted));
    for (int tries = 0; tries < 500 && wanted > 0 && find_idle().ticks == first.ticks; tries++) {
        (void)nanosleep(&pause, NULL); /* other processes may keep all processors busy for long */
    }
    cr_expect(eq(int, find_idle().ticks > first.ticks, wanted > 0));
    rpexec_host_awake_end(awake);
    cr_expect(eq(u32, find_idle().count, 0));
    rpexec_host_awake_end(NULL);
    rp_arena_destroy(arena);
}

/* Without idle priority no thread takes part of the processors, and a message says so. */
Test(exec_cores, a_kernel_that_refuses)
{
    char messages[1024] = "";
    rp_arena *arena = NULL;
    rpexec_host_awake *awake = NULL;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    atomic_store(&refusing, true);
    rp_log_capture_begin(messages, sizeof messages);
    cr_assert(eq(int, rpexec_host_awake_begin(arena, &awake), RP_OK));
    rpexec_host_awake_end(awake);
    rp_log_capture_end();
    atomic_store(&refusing, false);
    cr_expect(ne(ptr, (void *)strstr(messages, "processors are not kept awake"), NULL), "%s",
              messages);
    cr_expect(eq(u32, find_idle().count, 0));
    rp_arena_destroy(arena);
}
