/* The operators of the fake: each is noted (exec/operators/calls.h), and performed by the host's
 * operator when its stream comes to it. Addresses have to be in memory that the stream's device
 * reaches. */
#include "common/base/log.h"
#include "tests/support/fake/cuda_internal.h"

#include <string.h>

static void perform(const void *arguments)
{
    const rp_fake_operator *o = arguments;
    rpexec_call_make(rpexec_host_operators[o->lane->host.dtype], &o->lane->host, o->call);
}

bool rp_fake_can_perform(const rp_fake_operator *o)
{
    bool can = !o->lane->is_closed;
    for (uint32_t i = 1; i < rpexec_call_length(o->call); i++) {
        can &= !rpexec_call_has_address(o->call, i) ||
               rp_fake_is_reached(o->lane, (const void *)(uintptr_t)o->call[i]);
    }
    return can;
}

static void take(rpexec_call_taker *taker, const uint64_t *call)
{
    rp_fake_operator o = {.lane = (rp_fake_lane *)(void *)taker};
    memcpy(o.call, call, rpexec_call_length(call) * sizeof *call);
    if (!rp_fake_can_perform(&o)) {
        rp_log_error("%s: memory that device %d does not reach, or a lane that is closed",
                     rpexec_call_name(call), rp_fake_part_of(o.lane->stream)->device);
        o.lane->status = RP_TOOL;
    }
    if (rp_fake_enqueue_operator(o.lane->stream, perform, &o) != 0) {
        o.lane->status = RP_TOOL;
    }
}

static bool is_finite(rpexec_call_taker *taker, uint64_t count, const void *x)
{
    rp_fake_lane *lane = (rp_fake_lane *)(void *)taker;
    if (!rp_fake_is_reached(lane, x) || rp_fake_synchronize(lane->stream) != 0) {
        rp_log_error("finite: memory that is not reached, or a stream that is captured");
        lane->status = RP_TOOL;
        return false;
    }
    return rpexec_host_operators[lane->host.dtype]->finite(&lane->host, count, x);
}

const rpexec_call_taker rp_fake_taker = {.take = take, .finite = is_finite};
