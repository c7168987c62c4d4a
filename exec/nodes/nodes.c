#include "exec/nodes/nodes_internal.h"

#include "common/base/log.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEADER_BYTES sizeof(rpexec_message)
/* A limited card's bytes are written when it has sent so much more, and what it sends last is not
 * long on its way to whoever waits for it. */
#define SLICE_S 5e-4
#define LEAST_SLICE (UINT64_C(16) << 10)
#define END_S 10

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ---- failures ---------------------------------------------------------------------------------
 */

/* The first one is said, and told to whoever handles messages, before threads that wait for a
 * process return: the run has failed by then, and not their ops. */
static void fail(rpexec_nodes *n, uint32_t other, const char *cause)
{
    pthread_mutex_lock(&n->lock);
    bool first = !n->failed && !n->failing && !n->closing;
    bool tells = first && n->handled;
    const rpexec_nodes_handler handler = n->handler;
    n->failing = true;
    n->inside += tells ? 1 : 0;
    pthread_mutex_unlock(&n->lock);
    if (first) {
        rp_log_error("process %u of %u %s: this run ends", other, n->count, cause);
    }
    if (tells) {
        handler.lost(handler.context);
    }
    pthread_mutex_lock(&n->lock);
    n->inside -= tells ? 1 : 0;
    n->failed = true;
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
}

/* ---- writing ----------------------------------------------------------------------------------
 */

/* Sleeps until the card has sent `bytes` more than before. It has had them since `given_ns`: what
 * this thread sleeps and writes too long is not lost, the next bytes leave the earlier. */
static void pace(rpexec_nodes *n, int64_t given_ns, uint64_t bytes)
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

static uint64_t slice_bytes(const rpexec_nodes *n)
{
    double bytes = n->bits_per_s > 0 ? n->bits_per_s / 8 * SLICE_S : (double)RPEXEC_PIECE_BYTES;
    return bytes < (double)LEAST_SLICE            ? LEAST_SLICE
           : bytes > (double)RPEXEC_PIECE_BYTES ? RPEXEC_PIECE_BYTES
                                                  : (uint64_t)bytes;
}

static bool write_letter(const rpexec_link *link, const rpexec_letter *letter)
{
    const unsigned char *payload = letter->payload;
    uint64_t most = slice_bytes(link->nodes);
    uint64_t size = letter->message.bytes;
    uint64_t slice = size < most ? size : most;
    pace(link->nodes, letter->given_ns, HEADER_BYTES + slice);
    bool well = write_all(link, &letter->message, HEADER_BYTES) && write_all(link, payload, slice);
    for (uint64_t at = slice; well && at < size; at += slice) {
        slice = size - at < most ? size - at : most;
        pace(link->nodes, letter->given_ns, slice);
        well = write_all(link, payload + at, slice);
    }
    return well;
}

static void *write_letters(void *context)
{
    rpexec_link *link = context;
    rpexec_nodes *n = link->nodes;
    bool well = true;
    (void)prctl(PR_SET_TIMERSLACK, 1UL); /* 50 us otherwise, by which `pace` would be late */
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
        pthread_mutex_unlock(&n->lock);
        well = well && write_letter(link, letter);
        if (!well) {
            fail(n, link->other, "is gone");
        }
        pthread_mutex_lock(&n->lock);
        if (letter->left != NULL) {
            *letter->left = true;
            pthread_cond_broadcast(&n->moved);
        }
        rp_mem_release(&letter);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* @param left NULL: nobody waits */
static rp_status put(rpexec_nodes *n, uint32_t to, const rpexec_message *message,
                     const void *payload, bool *left)
{
    rpexec_letter *letter = NULL;
    RP_TRY(rp_mem_resize(&letter, sizeof *letter));
    *letter = (rpexec_letter){
        .message = *message, .payload = payload, .given_ns = now_ns(), .left = left};
    pthread_mutex_lock(&n->lock);
    rpexec_link *link = &n->links[to];
    bool failed = n->failed;
    if (!failed) {
        if (link->last != NULL) {
            link->last->next = letter;
        } else {
            link->first = letter;
        }
        link->last = letter;
        pthread_cond_signal(&link->given);
    }
    pthread_mutex_unlock(&n->lock);
    if (failed) {
        rp_mem_release(&letter);
    }
    return failed ? RP_BROKEN : RP_OK;
}

rp_status rpexec_nodes_await(rpexec_nodes *n, const bool *left)
{
    pthread_mutex_lock(&n->lock);
    while (!*left) {
        pthread_cond_wait(&n->moved, &n->lock);
    }
    rp_status status = n->failed ? RP_BROKEN : RP_OK;
    pthread_mutex_unlock(&n->lock);
    return status;
}

rp_status rpexec_nodes_give(rpexec_nodes *n, uint32_t to, uint64_t tag, const void *values,
                            uint64_t bytes, bool *left)
{
    const rpexec_message m = {.kind = RPEXEC_MESSAGE_PARCEL, .bytes = bytes, .values = {tag}};
    return put(n, to, &m, values, left);
}

rp_status rpexec_nodes_tell(rpexec_nodes *n, const rpexec_message *message)
{
    rp_status status = RP_OK;
    for (uint32_t other = 0; other < n->count && status == RP_OK; other++) {
        status = other == n->rank ? RP_OK : put(n, other, message, NULL, NULL);
    }
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static bool read_all(const rpexec_link *link, void *to, uint64_t count)
{
    unsigned char *at = to;
    while (count != 0) {
        ssize_t got = recv(link->socket, at, count, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        at += got > 0 ? got : 0;
        count -= got > 0 ? (uint64_t)got : 0;
    }
    return true;
}

static bool read_away(const rpexec_link *link, uint64_t count)
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

static bool read_payload(const rpexec_link *link, void *to, uint64_t count)
{
    return to != NULL ? read_all(link, to, count) : read_away(link, count);
}

/* An array waits for the one who wants it, and all that comes behind it waits, too. */
static bool read_shared(const rpexec_link *link, const rpexec_message *m)
{
    rpexec_nodes *n = link->nodes;
    pthread_mutex_lock(&n->lock);
    while (n->target == NULL && !n->failed) {
        pthread_cond_wait(&n->moved, &n->lock);
    }
    void *to = n->target_bytes == m->bytes ? n->target : NULL;
    pthread_mutex_unlock(&n->lock);
    bool well = read_payload(link, to, m->bytes);
    pthread_mutex_lock(&n->lock);
    n->target = NULL;
    n->taken = well && to != NULL;
    n->failed = n->failed || !n->taken;
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
    return well;
}

static bool read_parcel(const rpexec_link *link, const rpexec_message *m)
{
    rpexec_nodes *n = link->nodes;
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

/* A message waits for somebody to handle it, and all that comes behind it waits, too. */
static void hand_over(const rpexec_link *link, const rpexec_message *m)
{
    rpexec_nodes *n = link->nodes;
    pthread_mutex_lock(&n->lock);
    while (!n->handled && !n->failed && !n->closing) {
        pthread_cond_wait(&n->moved, &n->lock);
    }
    bool handled = n->handled;
    const rpexec_nodes_handler handler = n->handler;
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
    rpexec_nodes *n = link->nodes;
    pthread_mutex_lock(&n->lock);
    n->met[link->other] += ends ? 0 : 1;
    link->ended = link->ended || ends;
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
}

/* @return false where nothing more comes */
static bool read_one(rpexec_link *link)
{
    rpexec_message m;
    bool well = read_all(link, &m, HEADER_BYTES);
    if (!well || m.kind == RPEXEC_MESSAGE_ABORT) {
        fail(link->nodes, link->other, well ? "has failed" : "is gone");
        return false;
    }
    switch (m.kind) {
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
        fail(link->nodes, link->other, "is gone");
    }
    return well;
}

static void *read_letters(void *context)
{
    rpexec_link *link = context;
    while (read_one(link)) {
    }
    return NULL;
}

void rpexec_nodes_handle(rpexec_nodes *n, const rpexec_nodes_handler *handler)
{
    pthread_mutex_lock(&n->lock);
    n->handled = handler != NULL;
    if (handler != NULL) {
        n->handler = *handler;
    }
    while (handler == NULL && n->inside != 0) {
        pthread_cond_wait(&n->moved, &n->lock);
    }
    bool failed = n->failed;
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
    if (failed && handler != NULL) {
        handler->lost(handler->context);
    }
}

/* ---- together ---------------------------------------------------------------------------------
 */

/* With the lock: until every process has a count as high as this one's. */
static rp_status wait_for_all(rpexec_nodes *n, const uint64_t *counts)
{
    for (uint32_t other = 0; other < n->count && !n->failed;) {
        if (counts[other] >= counts[n->rank]) {
            other++;
        } else {
            pthread_cond_wait(&n->moved, &n->lock);
        }
    }
    return n->failed ? RP_BROKEN : RP_OK;
}

rp_status rpexec_nodes_meet(rpexec_nodes *n)
{
    const rpexec_message meet = {.kind = RPEXEC_MESSAGE_MEET};
    RP_TRY(rpexec_nodes_tell(n, &meet));
    pthread_mutex_lock(&n->lock);
    n->met[n->rank]++;
    rp_status status = wait_for_all(n, n->met);
    pthread_mutex_unlock(&n->lock);
    return status;
}

rp_status rpexec_nodes_share(rpexec_nodes *n, uint32_t root, void *array, uint64_t bytes)
{
    const rpexec_message m = {.kind = RPEXEC_MESSAGE_SHARE, .bytes = bytes};
    rp_status status = RP_OK;
    for (uint32_t other = 0; n->rank == root && other < n->count && status == RP_OK; other++) {
        bool left = false;
        status = other == root ? RP_OK : put(n, other, &m, array, &left);
        status = other == root || status != RP_OK ? status : rpexec_nodes_await(n, &left);
    }
    if (n->rank == root) {
        return status;
    }
    pthread_mutex_lock(&n->lock);
    n->taken = false;
    n->target = array;
    n->target_bytes = bytes;
    pthread_cond_broadcast(&n->moved);
    while (!n->taken && !n->failed) {
        pthread_cond_wait(&n->moved, &n->lock);
    }
    status = n->taken ? RP_OK : RP_BROKEN;
    pthread_mutex_unlock(&n->lock);
    return status;
}

void rpexec_nodes_abort(rpexec_nodes *n)
{
    const rpexec_message m = {.kind = RPEXEC_MESSAGE_ABORT};
    (void)rpexec_nodes_tell(n, &m); /* nobody is told of what they know */
    pthread_mutex_lock(&n->lock);
    n->failed = true;
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
}

uint32_t rpexec_nodes_rank(const rpexec_nodes *n)
{
    return n->rank;
}

uint32_t rpexec_nodes_count(const rpexec_nodes *n)
{
    return n->count;
}

bool rpexec_nodes_is_beside(const rpexec_nodes *n, uint32_t process)
{
    return n->links[process].beside;
}

double rpexec_nodes_limit(rpexec_nodes *n, double bits_per_s)
{
    pthread_mutex_lock(&n->lock);
    double before = n->bits_per_s;
    n->bits_per_s = bits_per_s;
    pthread_mutex_unlock(&n->lock);
    return before;
}

bool rpexec_nodes_failed(rpexec_nodes *n)
{
    pthread_mutex_lock(&n->lock);
    bool failed = n->failed;
    pthread_mutex_unlock(&n->lock);
    return failed;
}

uint64_t rpexec_nodes_sent_bytes(rpexec_nodes *n)
{
    pthread_mutex_lock(&n->lock);
    uint64_t bytes = n->sent_bytes;
    pthread_mutex_unlock(&n->lock);
    return bytes;
}

/* ---- opening and closing ----------------------------------------------------------------------
 */

static rp_status start(rpexec_nodes *n)
{
    for (uint32_t other = 0; other < n->count; other++) {
        rpexec_link *link = &n->links[other];
        if (other == n->rank) {
            continue;
        }
        int error = pthread_create(&link->writer, NULL, write_letters, link);
        link->writes = error == 0;
        error = error == 0 ? pthread_create(&link->reader, NULL, read_letters, link) : error;
        link->reads = error == 0;
        if (error != 0) {
            rp_log_error("out of memory or processes: pthread_create: %s", strerror(error));
            return RP_NO_MEMORY;
        }
    }
    return RP_OK;
}

rp_status rpexec_nodes_open(const rpexec_launch *launch, double bits_per_s,
                            rpexec_nodes **nodes_out)
{
    rp_arena *arena = NULL;
    rpexec_nodes *n = NULL;
    *nodes_out = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof *n, &n);
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    *n = (rpexec_nodes){
        .arena = arena, .rank = launch->rank, .count = launch->count, .bits_per_s = bits_per_s};
    n->parcels_end = &n->parcels;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->moved, NULL);
    status = rp_arena_alloc(arena, n->count, sizeof *n->met, &n->met);
    status =
        status == RP_OK ? rp_arena_alloc(arena, n->count, sizeof *n->links, &n->links) : status;
    for (uint32_t i = 0; status == RP_OK && i < n->count; i++) {
        n->links[i] = (rpexec_link){.nodes = n, .other = i, .socket = -1};
        pthread_cond_init(&n->links[i].given, NULL);
    }
    status = status == RP_OK ? rpexec_nodes_connect(n, launch) : status;
    status = status == RP_OK ? start(n) : status;
    launch->end();
    if (status != RP_OK) {
        rpexec_nodes_close(n, false);
        return status;
    }
    *nodes_out = n;
    return RP_OK;
}

static bool all_ended(const rpexec_nodes *n)
{
    bool ended = true;
    for (uint32_t i = 0; i < n->count; i++) {
        ended &= i == n->rank || n->links[i].ended;
    }
    return ended;
}

/* Tells the others how it went; where all went well, waits for them to say so. */
static void take_leave(rpexec_nodes *n, bool well)
{
    struct timespec until;
    const rpexec_message m = {.kind = well ? RPEXEC_MESSAGE_END : RPEXEC_MESSAGE_ABORT};
    (void)rpexec_nodes_tell(n, &m);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_S;
    pthread_mutex_lock(&n->lock);
    while (well && !all_ended(n) && !n->failed &&
           pthread_cond_timedwait(&n->moved, &n->lock, &until) == 0) {
    }
    n->closing = true;
    pthread_cond_broadcast(&n->moved);
    for (uint32_t i = 0; n->links != NULL && i < n->count; i++) {
        pthread_cond_signal(&n->links[i].given);
    }
    pthread_mutex_unlock(&n->lock);
}

void rpexec_nodes_close(rpexec_nodes *n, bool well)
{
    if (n == NULL) {
        return;
    }
    take_leave(n, well);
    for (uint32_t i = 0; n->links != NULL && i < n->count; i++) {
        rpexec_link *link = &n->links[i];
        if (link->writes) {
            pthread_join(link->writer, NULL);
        }
        if (link->socket >= 0) {
            (void)shutdown(link->socket, well ? SHUT_RD : SHUT_RDWR);
        }
        if (link->reads) {
            pthread_join(link->reader, NULL);
        }
        if (link->socket >= 0) {
            close(link->socket);
        }
        pthread_cond_destroy(&link->given);
    }
    while (n->parcels != NULL) {
        rpexec_parcel *parcel = n->parcels;
        n->parcels = parcel->next;
        rp_mem_release(&parcel);
    }
    pthread_cond_destroy(&n->moved);
    pthread_mutex_destroy(&n->lock);
    rp_arena_destroy(n->arena);
}
