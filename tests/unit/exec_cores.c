/* Threads that stay on one processor (exec/host/cores.h), as the kernel reports them. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "exec/host/cores.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <sched.h>

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

/* What one thread is bound to is no matter of others. */
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
