/* The GPU driver's watchdog, which checks that something still moves. */
#include "exec/gpu/gpu_internal.h"

#include "common/base/log.h"

#include <time.h>

/* Notes the ops of the queues that have ended. The lock is given back while CUDA and NCCL are
 * asked, whose calls may take long, or for ever on a device that hangs: threads that enqueue must
 * be able to go on, and to end the run. Only this thread, which finishes the run, moves `ended`.
 * @param error_out an error of NCCL; 0: none */
static bool look(rpexec_driver *d, int *error_out)
{
    bool moved = false;
    for (uint32_t i = 0; d->config.watchdog_s != 0 && i < d->config.plan->program->queue_count;
         i++) {
        rpexec_gpu_queue *q = &d->queues[i];
        uint32_t before = q->ended;
        uint32_t known = q->ended;
        while (known < q->next && d->issued[known]) {
            known++;
        }
        pthread_mutex_unlock(&d->lock);
        while (q->ended < known &&
               (q->gpu == NULL || d->calls->event_query(d->end_events[q->ended]) == 0)) {
            q->ended++;
        }
        pthread_mutex_lock(&d->lock);
        moved |= q->ended != before;
    }
    pthread_mutex_unlock(&d->lock);
    *error_out = rpexec_gpu_exchange_error(d->devices);
    pthread_mutex_lock(&d->lock);
    return moved;
}

static void dump(const rpexec_driver *d)
{
    const rp_program *p = d->config.plan->program;
    rp_log_error("nothing has ended for %u s; who waits for whom:", d->config.watchdog_s);
    for (uint32_t i = 0; i < p->queue_count; i++) {
        const rpexec_gpu_queue *q = &d->queues[i];
        if (q->ended == p->queues[i].op_end) {
            continue;
        }
        bool enqueued = q->ended < q->next;
        bool submitted = q->ended < q->submitted;
        rpexec_driver_log_wait(
            d->config.plan, i, q->ended,
            submitted && !enqueued ? rpexec_driver_missing(p, d->issued, q->ended) : p->op_count,
            !submitted ? "the program to submit it"
            : enqueued ? "its GPU: it is enqueued"
                       : "nothing: it runs, or is about to be enqueued");
    }
}

static void sleep_locked(rpexec_driver *d, int64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(ns % RPEXEC_GPU_LOOK_NS);
    until.tv_sec += ns / RPEXEC_GPU_LOOK_NS + until.tv_nsec / RPEXEC_GPU_LOOK_NS;
    until.tv_nsec %= RPEXEC_GPU_LOOK_NS;
    pthread_cond_timedwait(&d->moved, &d->lock, &until);
}

void rpexec_gpu_watch(rpexec_driver *d, int64_t ns)
{
    int error = 0;
    sleep_locked(d, ns);
    if (rpexec_driver_now_ns() - d->looked_ns < RPEXEC_GPU_LOOK_NS) {
        return;
    }
    d->looked_ns = rpexec_driver_now_ns();
    bool moved = look(d, &error);
    if (error != 0 && d->status == RP_OK) {
        d->failed_call = "ncclCommGetAsyncError";
        d->failed_error = error;
        rpexec_gpu_fail_locked(d, RP_TOOL);
    }
    d->last_end_ns = moved ? rpexec_driver_now_ns() : d->last_end_ns;
    if (d->status == RP_OK && rpexec_driver_is_idle(&d->config, d->context, &d->last_end_ns)) {
        d->hung = true;
        dump(d);
        rpexec_gpu_fail_locked(d, RP_BROKEN);
    }
}
