#include "exec/processes/processes_internal.h"

#include "common/base/log.h"

#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define END_S 10   /* time for others to end, too, if no signs of life are expected */
#define LINGER_S 1 /* time for others to hear of a failure */

int64_t rpexec_processes_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Tells the others once, and ends all waiting in this process. */
static void give_up(rpexec_processes *n, uint32_t culprit)
{
    const rpexec_message m = {.kind = RPEXEC_MESSAGE_ABORT, .number = culprit};
    pthread_mutex_lock(&n->lock);
    bool tells = n->failed_ns == 0 && !n->closing;
    n->failed_ns = n->failed_ns == 0 ? rpexec_processes_now_ns() : n->failed_ns;
    n->failing = true; /* answers of the others are ignored */
    pthread_mutex_unlock(&n->lock);
    if (tells) {
        (void)rpexec_processes_tell(n, &m);
    }
    pthread_mutex_lock(&n->lock);
    n->failed = true;
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
}

void rpexec_processes_fail(rpexec_processes *n, uint32_t other, const char *cause)
{
    pthread_mutex_lock(&n->lock);
    bool first = !n->failed && !n->failing && !n->closing;
    bool tells = first && n->handled;
    bool says = first && !n->parting;
    const rpexec_processes_handler handler = n->handler;
    n->failing = true;
    n->inside += tells ? 1 : 0;
    pthread_mutex_unlock(&n->lock);
    if (says) {
        rp_log_error("process %u of %u %s: this run ends", other, n->count, cause);
    }
    if (tells) {
        handler.lost(handler.context);
    }
    give_up(n, other);
    pthread_mutex_lock(&n->lock);
    n->inside -= tells ? 1 : 0;
    pthread_cond_broadcast(&n->moved);
    pthread_mutex_unlock(&n->lock);
}

void rpexec_processes_abort(rpexec_processes *n)
{
    give_up(n, n->rank);
}

void rpexec_processes_part(rpexec_processes *n)
{
    pthread_mutex_lock(&n->lock);
    n->parting = true;
    pthread_mutex_unlock(&n->lock);
}

void rpexec_processes_handle(rpexec_processes *n, const rpexec_processes_handler *handler)
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

/* ---- together -------------------------------------------------------------------------------- */

/* Waits until every process has a count at least as high as that of this process. Called with the
 * lock held. */
static rp_status wait_for_all(rpexec_processes *n, const uint64_t *counts)
{
    for (uint32_t other = 0; other < n->count && !n->failed;) {
        if (counts[other] >= counts[n->rank]) {
            other++;
        } else {
            rpexec_processes_wait(n, other);
        }
    }
    return n->failed ? RP_LOST : RP_OK;
}

rp_status rpexec_processes_meet(rpexec_processes *n)
{
    const rpexec_message meet = {.kind = RPEXEC_MESSAGE_MEET};
    RP_TRY(rpexec_processes_tell(n, &meet));
    pthread_mutex_lock(&n->lock);
    n->met[n->rank]++;
    rp_status status = wait_for_all(n, n->met);
    pthread_mutex_unlock(&n->lock);
    return status;
}

static rp_status give_all(rpexec_processes *n, const void *array, uint64_t bytes)
{
    const rpexec_message m = {.kind = RPEXEC_MESSAGE_SHARE, .bytes = bytes};
    for (uint32_t other = 0; other < n->count; other++) {
        bool left = false;
        if (other != n->rank) {
            RP_TRY(rpexec_processes_put(n, other, &m, array, &left));
            RP_TRY(rpexec_processes_await(n, other, &left));
        }
    }
    return RP_OK;
}

rp_status rpexec_processes_share(rpexec_processes *n, uint32_t root, void *array, uint64_t bytes)
{
    if (n->rank == root) {
        return give_all(n, array, bytes);
    }
    pthread_mutex_lock(&n->lock);
    n->taken = false;
    n->target = array;
    n->target_bytes = bytes;
    n->target_root = root;
    pthread_cond_broadcast(&n->moved);
    while ((!n->taken && !n->failed) || n->filling) {
        rpexec_processes_wait(n, root);
    }
    n->target = NULL;
    rp_status status = n->taken ? RP_OK : RP_LOST;
    pthread_mutex_unlock(&n->lock);
    return status;
}

/* ---- facts ----------------------------------------------------------------------------------- */

void rpexec_processes_note_step(rpexec_processes *n, uint64_t step)
{
    atomic_store(&n->step, step);
}

void rpexec_processes_note_work(rpexec_processes *n)
{
    atomic_fetch_add(&n->works, 1);
}

void rpexec_processes_begin_wait(rpexec_processes *n, uint32_t process)
{
    atomic_store(&n->awaited, process);
    atomic_fetch_add(&n->waiting, 1);
}

void rpexec_processes_end_wait(rpexec_processes *n)
{
    atomic_fetch_sub(&n->waiting, 1);
}

bool rpexec_processes_waits(const rpexec_processes *n)
{
    return atomic_load(&n->waiting) != 0;
}

uint32_t rpexec_processes_rank(const rpexec_processes *n)
{
    return n->rank;
}

uint32_t rpexec_processes_count(const rpexec_processes *n)
{
    return n->count;
}

bool rpexec_processes_is_beside(const rpexec_processes *n, uint32_t process)
{
    return n->links[process].beside;
}

double rpexec_processes_limit(rpexec_processes *n, double bits_per_s)
{
    pthread_mutex_lock(&n->lock);
    double before = n->bits_per_s;
    n->bits_per_s = bits_per_s;
    pthread_mutex_unlock(&n->lock);
    return before;
}

bool rpexec_processes_failed(rpexec_processes *n)
{
    pthread_mutex_lock(&n->lock);
    bool failed = n->failed;
    pthread_mutex_unlock(&n->lock);
    return failed;
}

uint64_t rpexec_processes_sent_bytes(rpexec_processes *n)
{
    pthread_mutex_lock(&n->lock);
    uint64_t bytes = n->sent_bytes;
    pthread_mutex_unlock(&n->lock);
    return bytes;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static rp_status start_thread(pthread_t *thread, void *(*run)(void *), void *context, bool *runs)
{
    int error = pthread_create(thread, NULL, run, context);
    *runs = error == 0;
    if (error != 0) {
        rp_log_error("out of memory or processes: pthread_create: %s", strerror(error));
        return RP_NO_MEMORY;
    }
    return RP_OK;
}

static rp_status start(rpexec_processes *n)
{
    int64_t now = rpexec_processes_now_ns();
    for (uint32_t other = 0; other < n->count; other++) {
        rpexec_link *link = &n->links[other];
        atomic_store(&link->heard_ns, now);
        atomic_store(&link->active_ns, now);
        if (other != n->rank) {
            RP_TRY(
                start_thread(&link->writer, rpexec_processes_write_letters, link, &link->writes));
            RP_TRY(start_thread(&link->reader, rpexec_processes_read_letters, link, &link->reads));
        }
    }
    return start_thread(&n->watch, rpexec_processes_watch, n, &n->watches);
}

/* A condition whose times are those of CLOCK_MONOTONIC, which is never set. */
static void make_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static rp_status set_up(rpexec_processes *n)
{
    n->parcels_end = &n->parcels;
    n->awaited = n->count;
    pthread_mutex_init(&n->lock, NULL);
    make_condition(&n->moved);
    make_condition(&n->tick);
    RP_TRY(rp_arena_alloc(n->arena, n->count, sizeof *n->met, &n->met));
    RP_TRY(rp_arena_alloc(n->arena, n->count, sizeof *n->links, &n->links));
    for (uint32_t i = 0; i < n->count; i++) {
        n->links[i].processes = n;
        n->links[i].other = i;
        n->links[i].socket = -1;
        pthread_cond_init(&n->links[i].given, NULL);
    }
    return RP_OK;
}

rp_status rpexec_processes_open(const rpexec_launch *launch, const rpexec_processes_config *config,
                                rpexec_processes **processes_out)
{
    rp_arena *arena = NULL;
    rpexec_processes *n = NULL;
    *processes_out = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof *n, &n);
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    n->arena = arena;
    n->rank = launch->rank;
    n->count = launch->count;
    n->bits_per_s = config->bits_per_s;
    n->patience_ns = config->patience_s * SECOND;
    status = set_up(n);
    status = status == RP_OK ? rpexec_processes_connect(n, launch, config->build) : status;
    status = status == RP_OK ? start(n) : status;
    launch->end();
    if (status != RP_OK) {
        (void)rpexec_processes_close(n, false);
        return status;
    }
    *processes_out = n;
    return RP_OK;
}

static bool all_ended(const rpexec_processes *n)
{
    bool ended = true;
    for (uint32_t i = 0; i < n->count; i++) {
        ended &= i == n->rank || n->links[i].ended;
    }
    return ended;
}

static bool all_written(const rpexec_processes *n)
{
    bool written = true;
    for (uint32_t i = 0; i < n->count; i++) {
        written &= !n->links[i].writes || (n->links[i].first == NULL && !n->links[i].writing);
    }
    return written;
}

static bool is_whole(const rpexec_processes *n)
{
    return n->links != NULL;
}

/* Tells the others whether all went well, and if so waits until the living processes have said the
 * same.
 * @param written_out whether all messages have left
 * @return RP_OK, RP_LOST */
static rp_status take_leave(rpexec_processes *n, bool well, bool *written_out)
{
    const rpexec_message m = {.kind = RPEXEC_MESSAGE_END};
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += well ? END_S : LINGER_S;
    pthread_mutex_lock(&n->lock);
    n->leaving = true; /* writers signal when they have written */
    pthread_mutex_unlock(&n->lock);
    if (well) {
        (void)rpexec_processes_tell(n, &m);
    } else {
        rpexec_processes_abort(n);
    }
    pthread_mutex_lock(&n->lock);
    bool in_time = true;
    while (in_time && (!all_written(n) || (well && !all_ended(n) && !n->failed))) {
        if (well && n->patience_ns != 0 && !n->failed) {
            pthread_cond_wait(&n->moved, &n->lock);
        } else {
            in_time = pthread_cond_timedwait(&n->moved, &n->lock, &until) == 0;
        }
    }
    *written_out = all_written(n);
    rp_status status = n->failed ? RP_LOST : RP_OK;
    n->closing = true;
    pthread_cond_broadcast(&n->moved);
    pthread_cond_signal(&n->tick);
    for (uint32_t i = 0; i < n->count; i++) {
        pthread_cond_signal(&n->links[i].given);
    }
    pthread_mutex_unlock(&n->lock);
    return status;
}

/* Closes a connection, which ends the threads that read and write on it. */
static void close_link(rpexec_link *link, bool written, bool well)
{
    if (link->socket >= 0 && !written) {
        (void)shutdown(link->socket, SHUT_RDWR);
    }
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
    while (link->first != NULL) {
        rpexec_letter *letter = link->first;
        link->first = letter->next;
        rp_mem_release(&letter);
    }
}

rp_status rpexec_processes_close(rpexec_processes *n, bool well)
{
    if (n == NULL) {
        return RP_OK;
    }
    bool written = false;
    rp_status status = is_whole(n) ? take_leave(n, well, &written) : RP_LOST;
    if (n->watches) {
        pthread_join(n->watch, NULL);
    }
    for (uint32_t i = 0; is_whole(n) && i < n->count; i++) {
        close_link(&n->links[i], written, well);
    }
    while (n->parcels != NULL) {
        rpexec_parcel *parcel = n->parcels;
        n->parcels = parcel->next;
        rp_mem_release(&parcel);
    }
    pthread_cond_destroy(&n->tick);
    pthread_cond_destroy(&n->moved);
    pthread_mutex_destroy(&n->lock);
    rp_arena_destroy(n->arena);
    return status;
}
