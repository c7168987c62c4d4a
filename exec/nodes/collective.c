/* Sums over all processes. */
#include "exec/nodes/nodes_internal.h"

#include "exec/operators/collective.h"
#include "exec/state/scaler.h"

#include <string.h>

/* Part of an array that a process sums. */
static uint64_t part_of(const rpexec_nodes *n, uint64_t count, uint32_t process, uint64_t *begin)
{
    *begin = rpexec_share(count, n->count, process);
    return rpexec_share(count, n->count, process + 1) - *begin;
}

/* Each process gets what this one has of its part. It stays as it is: before anybody sends the sum
 * of a part back, all have come. */
static rp_status give_parts(rpexec_nodes *n, uint64_t tag, rp_dtype dtype, uint64_t count,
                            const void *array)
{
    rp_status status = RP_OK;
    for (uint32_t i = 1; i < n->count && status == RP_OK; i++) {
        uint32_t other = (n->rank + i) % n->count;
        uint64_t begin = 0;
        uint64_t values = part_of(n, count, other, &begin);
        status = rpexec_nodes_give(n, other, tag, rpexec_element_const(dtype, array, begin),
                                   values * rp_dtype_bytes(dtype), false);
    }
    return status;
}

static rp_status sum_own(rpexec_nodes *n, uint64_t tag, rp_dtype dtype, uint64_t values, float *sum,
                         void *own)
{
    for (uint32_t process = 0; process < n->count; process++) {
        rpexec_parcel *parcel = NULL;
        const void *from = own;
        if (process != n->rank) {
            RP_TRY(rpexec_nodes_take(n, process, tag, values * rp_dtype_bytes(dtype), &parcel));
            from = parcel->values;
        }
        (void)rpexec_unscale(dtype, values, from, 1, process != 0, sum);
        rp_mem_release(&parcel);
    }
    rpexec_narrow(dtype, values, sum, own);
    return RP_OK;
}

/* Sums go out, and come in. */
static rp_status spread(rpexec_nodes *n, uint64_t tag, rp_dtype dtype, uint64_t count, void *array)
{
    uint64_t begin = 0;
    uint64_t values = part_of(n, count, n->rank, &begin);
    uint64_t width = rp_dtype_bytes(dtype);
    for (uint32_t i = 1; i < n->count; i++) {
        uint32_t other = (n->rank + i) % n->count;
        RP_TRY(rpexec_nodes_give(n, other, tag, rpexec_element(dtype, array, begin), values * width,
                                 true));
    }
    for (uint32_t other = 0; other < n->count; other++) {
        rpexec_parcel *parcel = NULL;
        if (other == n->rank) {
            continue;
        }
        values = part_of(n, count, other, &begin);
        RP_TRY(rpexec_nodes_take(n, other, tag, values * width, &parcel));
        memcpy(rpexec_element(dtype, array, begin), parcel->values, values * width);
        rp_mem_release(&parcel);
    }
    return RP_OK;
}

rp_status rpexec_nodes_all_reduce(rpexec_nodes *n, uint64_t tag, rp_dtype dtype, uint64_t count,
                                  void *array)
{
    float *sum = NULL;
    uint64_t begin = 0;
    uint64_t values = part_of(n, count, n->rank, &begin);
    RP_TRY(rp_mem_resize(&sum, (values + 1) * sizeof *sum));
    rp_status status = give_parts(n, tag, dtype, count, array);
    status = status == RP_OK
                 ? sum_own(n, tag, dtype, values, sum, rpexec_element(dtype, array, begin))
                 : status;
    rp_mem_release(&sum);
    RP_TRY(status);
    RP_TRY(spread(n, tag, dtype, count, array));
    pthread_mutex_lock(&n->lock);
    n->sent_bytes += (count - values + (n->count - 1) * values) * rp_dtype_bytes(dtype);
    pthread_mutex_unlock(&n->lock);
    return RP_OK;
}

rp_status rpexec_nodes_gather(rpexec_nodes *n, uint64_t tag, double own, double *all_out)
{
    all_out[n->rank] = own;
    for (uint32_t other = 0; other < n->count; other++) {
        if (other != n->rank) {
            RP_TRY(rpexec_nodes_give(n, other, tag, &own, sizeof own, true));
        }
    }
    for (uint32_t other = 0; other < n->count; other++) {
        rpexec_parcel *parcel = NULL;
        if (other != n->rank) {
            RP_TRY(rpexec_nodes_take(n, other, tag, sizeof own, &parcel));
            memcpy(&all_out[other], parcel->values, sizeof own);
            rp_mem_release(&parcel);
        }
    }
    return RP_OK;
}
