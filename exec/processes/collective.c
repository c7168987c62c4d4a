/* Values that a process takes from another process, and sums over all processes. */
#include "exec/processes/processes_internal.h"

#include "common/base/log.h"
#include "exec/operators/collective.h"
#include "exec/state/scaler.h"

#include <string.h>

rp_status rpexec_processes_take(rpexec_processes *n, uint32_t from, uint64_t tag, uint64_t bytes,
                                rpexec_parcel **parcel_out)
{
    rpexec_parcel *found = NULL;
    pthread_mutex_lock(&n->lock);
    while (found == NULL && !n->failed) {
        rpexec_parcel **at = &n->parcels;
        while (*at != NULL && ((*at)->from != from || (*at)->tag != tag)) {
            at = &(*at)->next;
        }
        found = *at;
        if (found != NULL) {
            *at = found->next;
            n->parcels_end = found->next == NULL ? at : n->parcels_end;
        } else {
            rpexec_processes_wait(n, from);
        }
    }
    pthread_mutex_unlock(&n->lock);
    if (found != NULL && found->bytes != bytes) {
        rp_log_error("process %u has come with %llu bytes, process %u with %llu; valid is the same "
                     "command on all processes",
                     from, (unsigned long long)found->bytes, n->rank, (unsigned long long)bytes);
        rp_mem_release(&found);
        rpexec_processes_abort(n);
    }
    *parcel_out = found;
    return found != NULL ? RP_OK : RP_LOST;
}

/* The part of an array that a process sums. */
static uint64_t part_of(const rpexec_processes *n, uint64_t count, uint32_t process,
                        uint64_t *begin)
{
    *begin = rpexec_share(count, n->count, process);
    return rpexec_share(count, n->count, process + 1) - *begin;
}

/* An array that is summed, in pieces: while a piece is on its way, the piece before is added up,
 * and its sum is sent after the last piece. So the network card always has bytes to send. */
typedef struct reduction {
    rpexec_processes *n;
    uint64_t tag;
    rp_dtype dtype;
    uint64_t count;
    void *array;
    uint64_t piece; /* values */
} reduction;

static uint64_t end_of(const reduction *r, uint64_t at, uint64_t end)
{
    return end - at < r->piece ? end : at + r->piece;
}

static uint64_t bytes_of(const reduction *r, uint64_t values)
{
    return values * rp_dtype_bytes(r->dtype);
}

/* Sends each process this process's values of its part. The array may stay in use: the sum of a
 * piece comes back only after the piece has arrived at its owner. */
static rp_status give_parts(const reduction *r)
{
    rpexec_processes *n = r->n;
    for (uint32_t i = 1; i < n->count; i++) {
        uint32_t other = (n->rank + i) % n->count;
        uint64_t at = 0;
        uint64_t end = part_of(n, r->count, other, &at);
        end += at;
        for (uint64_t next; at < end; at = next) {
            next = end_of(r, at, end);
            RP_TRY(rpexec_processes_give(n, other, r->tag, rpexec_element(r->dtype, r->array, at),
                                         bytes_of(r, next - at), NULL));
        }
    }
    return RP_OK;
}

/* Sums a piece of this process's own part. */
static rp_status sum_piece(const reduction *r, uint64_t values, float *sum, void *own)
{
    for (uint32_t process = 0; process < r->n->count; process++) {
        rpexec_parcel *parcel = NULL;
        const void *from = own;
        if (process != r->n->rank) {
            RP_TRY(rpexec_processes_take(r->n, process, r->tag, bytes_of(r, values), &parcel));
            from = parcel->values;
        }
        (void)rpexec_unscale(r->dtype, values, from, 1, process != 0, sum);
        rp_mem_release(&parcel);
    }
    rpexec_narrow(r->dtype, values, sum, own);
    return RP_OK;
}

/* @param left [process] set when the last piece has left. @param waits_out [process] whether the
 *        last piece was given to the writer */
static rp_status sum_own(const reduction *r, float *sum, bool *left, bool *waits_out)
{
    rpexec_processes *n = r->n;
    uint64_t at = 0;
    uint64_t end = part_of(n, r->count, n->rank, &at);
    end += at;
    for (uint64_t next; at < end; at = next) {
        next = end_of(r, at, end);
        void *own = rpexec_element(r->dtype, r->array, at);
        RP_TRY(sum_piece(r, next - at, sum, own));
        for (uint32_t i = 1; i < n->count; i++) {
            uint32_t other = (n->rank + i) % n->count;
            RP_TRY(rpexec_processes_give(n, other, r->tag, own, bytes_of(r, next - at),
                                         next == end ? &left[other] : NULL));
            waits_out[other] = next == end;
        }
    }
    return RP_OK;
}

static rp_status take_sums(const reduction *r)
{
    rpexec_processes *n = r->n;
    for (uint32_t other = 0; other < n->count; other++) {
        uint64_t at = 0;
        uint64_t end = part_of(n, r->count, other, &at);
        end += at;
        for (uint64_t next; other != n->rank && at < end; at = next) {
            rpexec_parcel *parcel = NULL;
            next = end_of(r, at, end);
            RP_TRY(rpexec_processes_take(n, other, r->tag, bytes_of(r, next - at), &parcel));
            memcpy(rpexec_element(r->dtype, r->array, at), parcel->values, parcel->bytes);
            rp_mem_release(&parcel);
        }
    }
    return RP_OK;
}

/* Returns when all values have left, or after a failure when no thread reads the array any more. */
static rp_status reduce(const reduction *r)
{
    bool left[RPEXEC_MAX_PROCESSES] = {false};
    bool waits[RPEXEC_MAX_PROCESSES] = {false};
    float *sum = NULL;
    RP_TRY(rp_mem_resize(&sum, r->piece * sizeof *sum));
    rp_status status = give_parts(r);
    status = status == RP_OK ? sum_own(r, sum, left, waits) : status;
    status = status == RP_OK ? take_sums(r) : status;
    for (uint32_t other = 0; other < r->n->count; other++) {
        rp_status gone = waits[other] ? rpexec_processes_await(r->n, other, &left[other]) : RP_OK;
        status = status == RP_OK ? gone : status;
    }
    if (status != RP_OK) {
        rpexec_processes_abort(r->n);
        rpexec_processes_settle(r->n);
    }
    rp_mem_release(&sum);
    return status;
}

rp_status rpexec_processes_all_reduce(rpexec_processes *n, uint64_t tag, rp_dtype dtype,
                                      uint64_t count, void *array)
{
    const reduction r = {.n = n,
                         .tag = tag,
                         .dtype = dtype,
                         .count = count,
                         .array = array,
                         .piece = RPEXEC_PIECE_BYTES / rp_dtype_bytes(dtype)};
    uint64_t begin = 0;
    uint64_t values = part_of(n, count, n->rank, &begin);
    RP_TRY(reduce(&r));
    pthread_mutex_lock(&n->lock);
    n->sent_bytes += (count - values + (n->count - 1) * values) * rp_dtype_bytes(dtype);
    pthread_mutex_unlock(&n->lock);
    return RP_OK;
}

rp_status rpexec_processes_gather(rpexec_processes *n, uint64_t tag, double own, double *all_out)
{
    all_out[n->rank] = own;
    for (uint32_t other = 0; other < n->count; other++) {
        if (other != n->rank) {
            bool left = false;
            RP_TRY(rpexec_processes_give(n, other, tag, &own, sizeof own, &left));
            RP_TRY(rpexec_processes_await(n, other, &left));
        }
    }
    for (uint32_t other = 0; other < n->count; other++) {
        rpexec_parcel *parcel = NULL;
        if (other != n->rank) {
            RP_TRY(rpexec_processes_take(n, other, tag, sizeof own, &parcel));
            memcpy(&all_out[other], parcel->values, sizeof own);
            rp_mem_release(&parcel);
        }
    }
    return RP_OK;
}
