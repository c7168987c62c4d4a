#define _GNU_SOURCE /* sched_getaffinity */
#include "common/base/crew.h"

#include "common/base/log.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct crew {
    uint32_t jobs;
    rp_crew_job run;
    void *context;
    void *messages;        /* destination of the caller's messages */
    _Atomic uint32_t next; /* next job that no thread has taken */
    _Atomic int status;    /* of the first failure */
} crew;

static void *work(void *argument)
{
    crew *c = argument;
    while (atomic_load(&c->status) == RP_OK) {
        uint32_t job = atomic_fetch_add(&c->next, 1);
        if (job >= c->jobs) {
            break;
        }
        int none = RP_OK;
        rp_status status = c->run(c->context, job);
        if (status != RP_OK) {
            atomic_compare_exchange_strong(&c->status, &none, (int)status);
        }
    }
    return NULL;
}

static void *work_beside(void *argument)
{
    crew *c = argument;
    rp_log_follow(c->messages);
    return work(c);
}

uint32_t rp_crew_threads(uint32_t wanted, uint32_t jobs)
{
    uint32_t count = wanted;
    if (count == 0) {
        cpu_set_t cores;
        bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
        count = known ? (uint32_t)CPU_COUNT(&cores) : 1;
    }
    count = count > RP_CREW_MAX_THREADS ? RP_CREW_MAX_THREADS : count;
    return count > jobs ? jobs : count;
}

rp_status rp_crew_run(uint32_t threads, uint32_t jobs, rp_crew_job run, void *context)
{
    crew c = {.jobs = jobs, .run = run, .context = context, .messages = rp_log_destination()};
    pthread_t started[RP_CREW_MAX_THREADS];
    uint32_t wanted = rp_crew_threads(threads, jobs);
    uint32_t count = 0;
    /* A thread that cannot be started costs time only: the caller's thread does the remaining
     * jobs. */
    while (count + 1 < wanted && pthread_create(&started[count], NULL, work_beside, &c) == 0) {
        count++;
    }
    work(&c);
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(started[i], NULL);
    }
    return (rp_status)atomic_load(&c.status);
}
