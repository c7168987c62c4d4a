/* Signs of life. A process sends one to each other process every second, unless other bytes are on
 * their way there. A step has no time limit, since a process that loads, saves or computes says
 * that it works. The run ends when a process has been silent for too long, because it is stopped or
 * has no network, or when all processes have waited for each other for that time. */
#include "exec/processes/processes_internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#define SECOND INT64_C(1000000000)
#define LEAST_PERIOD (SECOND / 50)
#define GONE_PROBES 3
#define GONE_MS 7000    /* without an answer of a machine to sent bytes */
#define LINGER (SECOND) /* time in which others hear of a failure before connections are cut */

typedef struct watch {
    int64_t period;
    int64_t looked_ns; /* time of the last look */
    int64_t idle_ns;   /* time since which this process only waits for others; 0: it works */
    uint64_t works;    /* count of works at the last look */
    bool cut;
} watch;

/* A process that stops the run, and the cause. */
typedef struct finding {
    uint32_t culprit;
    bool is_gone;
    bool is_silent;
} finding;

static void sleep_locked(rpexec_processes *n, int64_t ns)
{
    int64_t until = rpexec_processes_now_ns() + ns;
    const struct timespec t = {.tv_sec = until / SECOND, .tv_nsec = until % SECOND};
    (void)pthread_cond_timedwait(&n->tick, &n->lock, &t);
}

/* True if sent bytes are not acknowledged, or probes for waiting bytes are not answered. The
 * machine of a stopped process does both. */
static bool is_gone(const rpexec_link *link)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    return getsockopt(link->socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           (info.tcpi_unacked > 0 || info.tcpi_probes >= GONE_PROBES) &&
           info.tcpi_last_ack_recv > GONE_MS;
}

static bool is_watched(const rpexec_processes *n, const rpexec_link *link)
{
    return link->other != n->rank && !link->ended;
}

/* True if all processes wait, including this process. Called with the lock held. */
static bool all_wait(const rpexec_processes *n, const watch *w, int64_t now)
{
    bool all = w->idle_ns != 0 && now - w->idle_ns > n->patience_ns;
    for (uint32_t i = 0; i < n->count; i++) {
        rpexec_link *link = &n->links[i];
        all &= !is_watched(n, link) ||
               (!link->held && now - atomic_load(&link->active_ns) > n->patience_ns);
    }
    return all;
}

/* Called with the lock held. @return whether a process stops the run */
static bool find_culprit(const rpexec_processes *n, const watch *w, int64_t now, finding *found_out)
{
    for (uint32_t i = 0; i < n->count; i++) {
        rpexec_link *link = &n->links[i];
        if (!is_watched(n, link)) {
            continue;
        }
        *found_out = (finding){.culprit = i, .is_gone = is_gone(link)};
        found_out->is_silent = n->patience_ns != 0 && !link->held &&
                               now - atomic_load(&link->heard_ns) > n->patience_ns;
        if (found_out->is_gone || found_out->is_silent) {
            return true;
        }
    }
    *found_out = (finding){.culprit = n->awaited};
    return n->patience_ns != 0 && n->awaited < n->count && all_wait(n, w, now);
}

/* Notes the time of a look. If this process itself was stopped or had no processor, the silence of
 * the others does not count. Called with the lock held. */
static void note_time(rpexec_processes *n, watch *w, int64_t now)
{
    bool late = now - w->looked_ns > 4 * w->period;
    uint64_t works = atomic_load(&n->works);
    bool waits = n->waiting != 0 && works == w->works;
    w->looked_ns = now;
    w->works = works;
    w->idle_ns = !waits ? 0 : w->idle_ns == 0 || late ? now : w->idle_ns;
    for (uint32_t i = 0; late && i < n->count; i++) {
        atomic_store(&n->links[i].heard_ns, now);
    }
}

static void cut_connections(const rpexec_processes *n)
{
    for (uint32_t i = 0; i < n->count; i++) {
        if (n->links[i].socket >= 0) {
            (void)shutdown(n->links[i].socket, SHUT_RDWR);
        }
    }
}

/* Sends signs of life to all processes, also to those that have ended, since they wait for this
 * process. */
static void give_signs(rpexec_processes *n, bool waits)
{
    const rpexec_message sign = {
        .kind = RPEXEC_MESSAGE_ALIVE, .number = waits ? 1 : 0, .values = {atomic_load(&n->step)}};
    for (uint32_t i = 0; i < n->count; i++) {
        const rpexec_link *link = &n->links[i];
        pthread_mutex_lock(&n->lock);
        bool due = i != n->rank && !n->leaving && link->first == NULL && !link->writing;
        pthread_mutex_unlock(&n->lock);
        if (due) {
            (void)rpexec_processes_put(n, i, &sign, NULL, NULL);
        }
    }
}

static void give_up(rpexec_processes *n, const finding *found)
{
    char cause[128];
    char step[64] = "the first step";
    unsigned long long number = atomic_load(&n->step);
    unsigned seconds = (unsigned)(n->patience_ns / SECOND);
    if (number != 0) {
        (void)snprintf(step, sizeof step, "the end of step %llu", number);
    }
    if (found->is_gone) {
        (void)snprintf(cause, sizeof cause, "is gone");
    } else if (found->is_silent) {
        (void)snprintf(cause, sizeof cause, "has been silent for %u s and has not come to %s",
                       seconds, step);
    } else {
        (void)snprintf(cause, sizeof cause, "has not come to %s for %u s", step, seconds);
    }
    rpexec_processes_fail(n, found->culprit, cause);
}

void *rpexec_processes_watch(void *context)
{
    rpexec_processes *n = context;
    watch w = {.period = SECOND, .looked_ns = rpexec_processes_now_ns()};
    if (n->patience_ns != 0 && n->patience_ns / 8 < w.period) {
        w.period = n->patience_ns / 8 > LEAST_PERIOD ? n->patience_ns / 8 : LEAST_PERIOD;
    }
    pthread_mutex_lock(&n->lock);
    while (!n->closing) {
        finding found;
        sleep_locked(n, w.period);
        int64_t now = rpexec_processes_now_ns();
        note_time(n, &w, now);
        bool fails = !n->failed && !n->closing && find_culprit(n, &w, now, &found);
        bool cuts = n->failed_ns != 0 && now - n->failed_ns > LINGER && !w.cut;
        bool waits = w.idle_ns != 0;
        pthread_mutex_unlock(&n->lock);
        if (fails) {
            give_up(n, &found);
        } else {
            give_signs(n, waits);
        }
        if (cuts) {
            cut_connections(n);
            w.cut = true;
        }
        pthread_mutex_lock(&n->lock);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}
