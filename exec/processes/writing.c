/* Writes the bytes that leave a process, at the pace of a network card with a limited rate. */
#include "exec/processes/processes_internal.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#define HEADER_BYTES sizeof(rpexec_message)
/* Bytes of a limited card are written in slices of this time, so that the last bytes reach a
 * waiting process soon after the card has sent them. */
#define SLICE_S 5e-4
#define LEAST_SLICE (UINT64_C(16) << 10)

/* Sleeps until the card has sent another `bytes`, which it has had since `given_ns`. If this thread
 * sleeps or writes too long, no time of the card is lost: the next bytes leave the earlier. */
static void pace(rpexec_processes *n, int64_t given_ns, uint64_t bytes)
{
    pthread_mutex_lock(&n->lock);
    int64_t begin = n->free_ns > given_ns ? n->free_ns : given_ns;
    bool limited = n->bits_per_s > 0;
    n->free_ns = limited ? begin + (int64_t)(8e9 * (double)bytes / n->bits_per_s) : 0;
    int64_t until = n->free_ns;
    pthread_mutex_unlock(&n->lock);
    if (!limited) {
        return;
    }
    const struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

static bool write_all(const rpexec_link *link, const void *bytes, uint64_t count)
{
    const unsigned char *at = bytes;
    while (count != 0) {
        ssize_t written = send(link->socket, at, count, MSG_NOSIGNAL);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        at += written > 0 ? written : 0;
        count -= written > 0 ? (uint64_t)written : 0;
    }
    return true;
}

static uint64_t slice_bytes(const rpexec_processes *n)
{
    double bytes = n->bits_per_s > 0 ? n->bits_per_s / 8 * SLICE_S : (double)RPEXEC_PIECE_BYTES;
    return bytes < (double)LEAST_SLICE          ? LEAST_SLICE
           : bytes > (double)RPEXEC_PIECE_BYTES ? RPEXEC_PIECE_BYTES
                                                : (uint64_t)bytes;
}

/* Signs of life do not count against the rate. */
static bool write_letter(const rpexec_link *link, const rpexec_letter *letter)
{
    const unsigned char *payload = letter->payload;
    uint64_t most = slice_bytes(link->processes);
    uint64_t size = letter->message.bytes;
    uint64_t slice = size < most ? size : most;
    if (letter->message.kind != RPEXEC_MESSAGE_ALIVE) {
        pace(link->processes, letter->given_ns, HEADER_BYTES + slice);
    }
    bool well = write_all(link, &letter->message, HEADER_BYTES) && write_all(link, payload, slice);
    for (uint64_t at = slice; well && at < size; at += slice) {
        slice = size - at < most ? size - at : most;
        pace(link->processes, letter->given_ns, slice);
        well = write_all(link, payload + at, slice);
    }
    return well;
}

/* Writes a letter. Called with the lock held, which is released for the time of writing. After a
 * failure payloads may be gone, so only the report of the failure is written. */
static void deliver(rpexec_link *link, const rpexec_letter *letter, bool *well)
{
    rpexec_processes *n = link->processes;
    bool drops = n->failed && letter->message.kind != RPEXEC_MESSAGE_ABORT;
    link->writing = true;
    pthread_mutex_unlock(&n->lock);
    *well = *well && (drops || write_letter(link, letter));
    pthread_mutex_lock(&n->lock);
    bool gone = !*well && !link->ended;
    if (gone) {
        pthread_mutex_unlock(&n->lock);
        rpexec_processes_fail(n, link->other, "is gone");
        pthread_mutex_lock(&n->lock);
    }
    link->writing = false;
    if (letter->left != NULL) {
        *letter->left = true;
    }
    if (letter->left != NULL || n->failed || n->leaving) {
        pthread_cond_broadcast(&n->moved);
    }
}

void *rpexec_processes_write_letters(void *context)
{
    rpexec_link *link = context;
    rpexec_processes *n = link->processes;
    bool well = true;
    (void)prctl(PR_SET_TIMERSLACK, 1UL); /* the default is 50 us, by which `pace` would be late */
    pthread_mutex_lock(&n->lock);
    for (;;) {
        while (link->first == NULL && !n->closing) {
            pthread_cond_wait(&link->given, &n->lock);
        }
        rpexec_letter *letter = link->first;
        if (letter == NULL) {
            break;
        }
        link->first = letter->next;
        link->last = link->first == NULL ? NULL : link->last;
        deliver(link, letter, &well);
        rp_mem_release(&letter);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

rp_status rpexec_processes_put(rpexec_processes *n, uint32_t to, const rpexec_message *message,
                               const void *payload, bool *left)
{
    rpexec_letter *letter = NULL;
    RP_TRY(rp_mem_resize(&letter, sizeof *letter));
    *letter = (rpexec_letter){.message = *message,
                              .payload = payload,
                              .given_ns = rpexec_processes_now_ns(),
                              .left = left};
    pthread_mutex_lock(&n->lock);
    rpexec_link *link = &n->links[to];
    bool refused = n->failed && message->kind != RPEXEC_MESSAGE_ABORT;
    if (!refused) {
        if (link->last != NULL) {
            link->last->next = letter;
        } else {
            link->first = letter;
        }
        link->last = letter;
        pthread_cond_signal(&link->given);
    }
    pthread_mutex_unlock(&n->lock);
    if (refused) {
        rp_mem_release(&letter);
    }
    return refused ? RP_LOST : RP_OK;
}

rp_status rpexec_processes_await(rpexec_processes *n, uint32_t to, const bool *left)
{
    pthread_mutex_lock(&n->lock);
    while (!*left) {
        rpexec_processes_wait(n, to);
    }
    rp_status status = n->failed ? RP_LOST : RP_OK;
    pthread_mutex_unlock(&n->lock);
    return status;
}

void rpexec_processes_settle(rpexec_processes *n)
{
    pthread_mutex_lock(&n->lock);
    for (uint32_t i = 0; i < n->count;) {
        if (n->links[i].writing) {
            pthread_cond_wait(&n->moved, &n->lock);
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&n->lock);
}

rp_status rpexec_processes_give(rpexec_processes *n, uint32_t to, uint64_t tag, const void *values,
                                uint64_t bytes, bool *left)
{
    const rpexec_message m = {.kind = RPEXEC_MESSAGE_PARCEL, .bytes = bytes, .values = {tag}};
    return rpexec_processes_put(n, to, &m, values, left);
}

rp_status rpexec_processes_tell(rpexec_processes *n, const rpexec_message *message)
{
    rp_status status = RP_OK;
    for (uint32_t other = 0; other < n->count && status == RP_OK; other++) {
        status = other == n->rank ? RP_OK : rpexec_processes_put(n, other, message, NULL, NULL);
    }
    return status;
}
