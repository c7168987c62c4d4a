/* Reads the bytes that come to a process, and hands them to their receivers. */
#include "common/base/log.h"
#include "exec/processes/processes_internal.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

static void note_arrival(rpexec_link *link)
{
    int64_t now = rpexec_processes_now_ns();
    atomic_store(&link->heard_ns, now);
    atomic_store(&link->active_ns, now);
}

static bool read_all(rpexec_link *link, void *to, uint64_t count)
{
    unsigned char *at = to;
    while (count != 0) {
        ssize_t got = recv(link->socket, at, count, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        at += got > 0 ? got : 0;
        count -= got > 0 ? (uint64_t)got : 0;
        note_arrival(link);
    }
    return true;
}

static bool read_away(rpexec_link *link, uint64_t count)
{
    unsigned char bytes[4096];
    bool well = true;
    while (well && count != 0) {
        uint64_t piece = count < sizeof bytes ? count : sizeof bytes;
        well = read_all(link, bytes, piece);
        count -= piece;
    }
    return well;
}

static bool read_payload(rpexec_link *link, void *to, uint64_t count)
{
    return to != NULL ? read_all(link, to, count) : read_away(link, count);
}

/* Waits until this process takes the message that has arrived; nothing is read from the link in the
 * meantime. Called with the lock held. */
static void hold(rpexec_link *link)
{
    link->held = true;
    pthread_cond_wait(&link->processes->moved, &link->processes->lock);
    link->held = false;
    note_arrival(link);
}

/* Reads a shared array. It waits until a thread asks for the array, and so do all messages after
 * it. */
static bool read_shared(rpexec_link *link, const rpexec_message *m)
{
    rpexec_processes *n = link->processes;
    pthread_mutex_lock(&n->lock);
    while ((n->target == NULL || n->target_root != link->other) && !n->failed) {
        hold(link);
    }
    bool fits = n->target_bytes == m->bytes;
    void *to = fits && !n->failed ? n->target : NULL;
    n->filling = to != NULL;
    pthread_mutex_unlock(&n->lock);
    bool well = read_payload(link, to, m->bytes);
    pthread_mutex_lock(&n->lock);
    bool refused = !n->failed && !fits;
    n->filling = false;
    n->target = NULL; /* the next array goes to another thread */
    n->taken = n->taken || (well && to != NULL);
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
    if (refused) {
        rp_log_error("process %u has come with %llu bytes to share, which process %u does not "
                     "expect; valid is the same command on all processes",
                     link->other, (unsigned long long)m->bytes, n->rank);
        rpexec_processes_abort(n);
    }
    return well;
}

static bool read_parcel(rpexec_link *link, const rpexec_message *m)
{
    rpexec_processes *n = link->processes;
    rpexec_parcel *parcel = NULL;
    if (rp_mem_resize(&parcel, sizeof *parcel + m->bytes) != RP_OK) {
        return false;
    }
    *parcel = (rpexec_parcel){.from = link->other, .tag = m->values[0], .bytes = m->bytes};
    if (!read_all(link, parcel->values, m->bytes)) {
        rp_mem_release(&parcel);
        return false;
    }
    pthread_mutex_lock(&n->lock);
    *n->parcels_end = parcel;
    n->parcels_end = &parcel->next;
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
    return true;
}

/* Gives a message to the handler. It waits until there is a handler, and so do all messages after
 * it. */
static void hand_over(rpexec_link *link, const rpexec_message *m)
{
    rpexec_processes *n = link->processes;
    pthread_mutex_lock(&n->lock);
    while (!n->handled && !n->failed && !n->closing) {
        hold(link);
    }
    bool handled = n->handled;
    const rpexec_processes_handler handler = n->handler;
    n->inside += handled ? 1 : 0;
    pthread_mutex_unlock(&n->lock);
    if (handled) {
        handler.arrived(handler.context, link->other, m);
    }
    pthread_mutex_lock(&n->lock);
    n->inside -= handled ? 1 : 0;
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
}

static void note_meeting(rpexec_link *link, bool ends)
{
    rpexec_processes *n = link->processes;
    pthread_mutex_lock(&n->lock);
    n->met[link->other] += ends ? 0 : 1;
    link->ended = link->ended || ends;
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
}

static void fail(rpexec_link *link, const rpexec_message *abort)
{
    rpexec_processes *n = link->processes;
    char cause[64] = "";
    if (abort == NULL) {
        rpexec_processes_fail(n, link->other, "is gone");
    } else if (abort->number == link->other) {
        rpexec_processes_fail(n, link->other, "has failed");
    } else if (abort->number == n->rank) { /* this process was stopped, or had no network */
        rpexec_processes_fail(n, link->other, "has given this one up");
    } else {
        (void)snprintf(cause, sizeof cause, "is given up by process %u", link->other);
        rpexec_processes_fail(n, abort->number, cause);
    }
}

/* Reads a message. @return false if no more will come */
static bool read_one(rpexec_link *link)
{
    rpexec_message m;
    int64_t active_ns = atomic_load(&link->active_ns);
    bool well = read_all(link, &m, sizeof m);
    if (!well || m.kind == RPEXEC_MESSAGE_ABORT) {
        fail(link, well ? &m : NULL);
        return false;
    }
    switch (m.kind) {
    case RPEXEC_MESSAGE_ALIVE:
        atomic_store(&link->step, m.values[0]);
        if (m.number != 0) {
            atomic_store(&link->active_ns, active_ns);
        }
        return true;
    case RPEXEC_MESSAGE_END:
        note_meeting(link, true);
        return false;
    case RPEXEC_MESSAGE_MEET:
        note_meeting(link, false);
        return true;
    case RPEXEC_MESSAGE_SHARE:
        well = read_shared(link, &m);
        break;
    case RPEXEC_MESSAGE_PARCEL:
        well = read_parcel(link, &m);
        break;
    default:
        hand_over(link, &m);
        break;
    }
    if (!well) {
        fail(link, NULL);
    }
    return well;
}

void *rpexec_processes_read_letters(void *context)
{
    rpexec_link *link = context;
    while (read_one(link)) {
    }
    return NULL;
}
