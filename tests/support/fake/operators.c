/* The operators of the fake: each is noted (exec/operators/calls.h), and performed by the host's
 * operator when its stream comes to it. Addresses have to be in memory that the stream's device
 * reaches. */
#include "common/base/log.h"
#include "tests/support/fake/cuda_internal.h"

#include <string.h>

/* An operator that waits to be performed. */
typedef struct operation {
    rp_fake_lane *lane;
    uint64_t call[RPEXEC_CALL_WORDS];
} operation;

static void perform(const void *arguments)
{
    const operation *o = arguments;
    rpexec_call_make(rpexec_host_operators[o->lane->host.dtype], &o->lane->host, o->call);
}

static int device_of(const rp_fake_lane *lane)
{
    return emulator_part_of(lane->stream)->device;
}

/* True if the lane is open and reaches all of the operator's addresses. */
static bool can_perform(const void *arguments)
{
    const operation *o = arguments;
    bool can = !o->lane->is_closed;
    for (uint32_t i = 1; i < rpexec_call_length(o->call); i++) {
        can &= !rpexec_call_has_address(o->call, i) ||
               emulator_is_reached(device_of(o->lane), (const void *)(uintptr_t)o->call[i]);
    }
    return can;
}

static void take(rpexec_call_taker *taker, const uint64_t *call)
{
    operation o = {.lane = (rp_fake_lane *)(void *)taker};
    const emulated_work work = {
        .run = perform, .can = can_perform, .arguments = &o, .bytes = sizeof o};
    memcpy(o.call, call, rpexec_call_length(call) * sizeof *call);
    if (!can_perform(&o)) {
        rp_log_error("%s: memory that device %d does not reach, or a lane that is closed",
                     rpexec_call_name(call), device_of(o.lane));
        o.lane->status = RP_TOOL;
    }
    emulator_count(EMULATED_OPERATORS, !emulator_is_capturing());
    if (emulator_launch(o.lane->stream, &work) != 0) {
        o.lane->status = RP_TOOL;
    }
}

static void ask_squares(rpexec_call_taker *taker, uint64_t count, const void *x,
                        rpexec_squares *sum)
{
    rp_fake_lane *lane = (rp_fake_lane *)(void *)taker;
    if (!emulator_is_reached(device_of(lane), x) ||
        emulator_stream_synchronize(lane->stream) != 0) {
        rp_log_error("squares: memory that is not reached, or a stream that is captured");
        lane->status = RP_TOOL;
        return;
    }
    rpexec_host_operators[lane->host.dtype]->squares(&lane->host, count, x, sum);
}

const rpexec_call_taker rp_fake_taker = {.take = take, .squares = ask_squares};
