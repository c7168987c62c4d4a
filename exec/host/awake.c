#define _GNU_SOURCE /* SCHED_IDLE */
#include "exec/host/awake.h"

#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "exec/host/cores.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

typedef struct keeper {
    rpexec_host_awake *of;
    uint32_t number;
    pthread_t thread;
} keeper;

struct rpexec_host_awake {
    keeper *keepers;
    uint32_t count; /* keepers that have been started */
    atomic_bool refused;
    atomic_bool end;
};

/* Leaves the core to its other hyperthread. */
static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void *keep_awake(void *context)
{
    const keeper *k = context;
    rpexec_host_awake *a = k->of;
    const struct sched_param none = {0};
    /* The priority comes first: bound at the usual priority the thread would take part of the
     * processor. 0 is this thread. */
    bool done = sched_setscheduler(0, SCHED_IDLE, &none) == 0 && rpexec_host_bind(k->number);
    if (!done) {
        atomic_store(&a->refused, true);
    }
    while (done && !atomic_load_explicit(&a->end, memory_order_relaxed)) {
        pause_briefly();
    }
    return NULL;
}

/* Keepers block all signals, which are for the program's other threads. */
static bool start(keeper *k)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&k->thread, NULL, keep_awake, k) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

rp_status rpexec_host_awake_begin(rp_arena *arena, rpexec_host_awake **awake_out)
{
    uint32_t cores = rpexec_host_cores();
    rpexec_host_awake *a = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *a, &a));
    RP_TRY(rp_arena_alloc(arena, cores, sizeof *a->keepers, &a->keepers));
    *awake_out = a;
    if (rp_host_processors_limited("")) {
        rp_log_warning("{bind}: this control group may use so much processor time only, so that "
                       "processors are not kept awake; times vary more");
        return RP_OK;
    }
    while (a->count < cores) {
        keeper *k = &a->keepers[a->count];
        *k = (keeper){.of = a, .number = a->count};
        if (!start(k)) {
            atomic_store(&a->refused, true);
            break;
        }
        a->count++;
    }
    return RP_OK;
}

void rpexec_host_awake_end(rpexec_host_awake *awake)
{
    if (awake == NULL) {
        return;
    }
    const struct sched_param none = {0};
    atomic_store(&awake->end, true);
    for (uint32_t i = 0; i < awake->count; i++) {
        /* At idle priority a keeper on a busy processor would notice the end late. */
        (void)pthread_setschedparam(awake->keepers[i].thread, SCHED_OTHER, &none);
        pthread_join(awake->keepers[i].thread, NULL);
    }
    if (atomic_load(&awake->refused)) {
        rp_log_warning("{bind}: the kernel does not run threads at idle priority here, so that "
                       "processors are not kept awake; times vary more");
    }
}
