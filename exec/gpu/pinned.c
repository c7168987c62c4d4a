/* Pinning the arrays that copies start from and go to.
 *
 * They are pinned piece by piece: some kernels and drivers refuse to pin more than 2 GiB at once,
 * and pages that the failed call has pinned by then stay pinned until the process ends (OneTrainer
 * #1082, PyTorch #139884 and #152335). So nothing is tried again after a failure; the rest is
 * copied as pageable memory, which is slower, not wrong. */
#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES (UINT64_C(1) << 30)

/* Pages are pinned, so two arrays that share a page are pinned together. */
static uint32_t whole_pages(const rpexec_pinned *arrays, rpexec_pinned *pages)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uint32_t count = 0;
    for (uint32_t i = 0; i < RPEXEC_PINNED_ARRAYS; i++) {
        uintptr_t begin = (uintptr_t)arrays[i].memory / page * page;
        uintptr_t end = ((uintptr_t)arrays[i].memory + arrays[i].bytes + page - 1) / page * page;
        if (arrays[i].bytes == 0) {
            continue;
        }
        for (uint32_t k = 0; k < count; k++) {
            uintptr_t other = (uintptr_t)pages[k].memory;
            if (begin < other + pages[k].bytes && other < end) {
                begin = begin < other ? begin : other;
                end = end > other + pages[k].bytes ? end : other + pages[k].bytes;
                pages[k] = pages[--count];
                k = UINT32_MAX; /* the joined area may touch others */
            }
        }
        pages[count++] = (rpexec_pinned){.memory = (void *)begin, .bytes = end - begin};
    }
    return count;
}

static uint64_t piece_of(const rpexec_devices *d)
{
    return d->config.pin_bytes != 0 ? d->config.pin_bytes : PIECE_BYTES;
}

/* Bytes of an area, from `at` on, that are pinned by a single call or not at all. */
static uint64_t together(const rpexec_devices *d, const rpexec_pinned *area, uint64_t at)
{
    uint64_t piece = piece_of(d);
    uint64_t left = area->bytes - at;
    uint64_t to_next = piece - at % piece;
    return left < to_next ? left : to_next;
}

uint64_t rpexec_gpu_pinned_together(const rpexec_devices *d, const void *address, uint64_t bytes)
{
    uint64_t most = bytes;
    for (uint32_t i = 0; i < d->asked_count; i++) {
        const rpexec_pinned *area = &d->asked[i];
        uintptr_t begin = (uintptr_t)area->memory;
        uintptr_t here = (uintptr_t)address;
        uint64_t left = most;
        if (here < begin) { /* other memory may share the area's first page */
            left = begin - here;
        } else if (here - begin < area->bytes) {
            left = together(d, area, here - begin);
        }
        most = left < most ? left : most;
    }
    return most;
}

void rpexec_gpu_unpin(rpexec_devices *d)
{
    for (uint32_t i = 0; i < d->asked_count; i++) {
        for (uint64_t at = 0; at < d->pinned[i]; at += piece_of(d)) {
            (void)d->calls->host_unpin((unsigned char *)d->asked[i].memory + at);
        }
        d->pinned[i] = 0;
    }
    d->asked_count = 0;
}

void rpexec_gpu_pin(rpexec_devices *d, const rpexec_pinned *arrays)
{
    rpexec_pinned pages[RPEXEC_PINNED_ARRAYS];
    uint32_t count = whole_pages(arrays, pages);
    int error = 0;
    if (count == 0 ||
        (count == d->asked_count && memcmp(pages, d->asked, count * sizeof *pages) == 0)) {
        return;
    }
    rpexec_gpu_unpin(d);
    memcpy(d->asked, pages, count * sizeof *pages);
    d->asked_count = count;
    for (uint32_t i = 0; i < count && !d->pinning_failed; i++) {
        while (d->pinned[i] < pages[i].bytes && error == 0) {
            uint64_t bytes = together(d, &pages[i], d->pinned[i]);
            error = d->calls->host_pin((unsigned char *)pages[i].memory + d->pinned[i], bytes);
            d->pinned[i] += error == 0 ? bytes : 0;
        }
        d->pinning_failed |= error != 0;
    }
    const rpexec_pinning now = rpexec_gpu_pinning(d);
    if (error != 0) {
        rp_log_warning("cudaHostRegister: %s; %" PRIu64 " of %" PRIu64
                       " MiB are pinned, copies of the rest are slower",
                       d->calls->text(error), now.pinned_bytes >> 20,
                       (now.pinned_bytes + now.pageable_bytes) >> 20);
    }
}

rpexec_pinning rpexec_gpu_pinning(const rpexec_devices *d)
{
    rpexec_pinning sum = {0};
    for (uint32_t i = 0; i < d->asked_count; i++) {
        sum.pinned_bytes += d->pinned[i];
        sum.pageable_bytes += d->asked[i].bytes - d->pinned[i];
    }
    return sum;
}
