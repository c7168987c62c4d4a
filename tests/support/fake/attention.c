/* The fake's cuDNN: it never computes, and reports whatever the machine is set to. It fails if it
 * is asked at a wrong time, or about a lane that is closed or has no plan for the shape. */
#include "tests/support/fake/cuda_internal.h"

#include <math.h>

static rp_fake_cudnn given;
static bool given_on_first;

void rp_fake_give_cudnn(rp_fake_cudnn cudnn, bool on_first)
{
    given = cudnn;
    given_on_first = on_first;
}

static rp_fake_cudnn cudnn_of(const rp_fake_lane *lane)
{
    int odd = given_on_first ? 0 : emulator_machine()->devices - 1;
    return emulator_part_of(lane->stream)->device == odd ? given : RP_FAKE_CUDNN_FASTER;
}

bool rp_fake_find_cudnn(const char **name_out, const char **why_out)
{
    *name_out = "cudnn 9.99.0";
    *why_out = "the fake has no cuDNN";
    return given != RP_FAKE_CUDNN_ABSENT;
}

/* The rules of a device: the lane's own part has to be entered, and no capture may be on. */
static bool may_be_asked(const rp_fake_lane *lane)
{
    const rpexec_cuda_part *part = emulator_part_of(lane->stream);
    return !lane->is_closed && !emulator_is_capturing() &&
           emulator_here()->device == part->device && emulator_here()->context == part->context;
}

rp_status rp_fake_attention_plan(rpexec_lane *opaque, rp_arena *arena,
                                 const rpexec_attention_sizes *sizes, const char **why_out)
{
    rp_fake_lane *lane = (rp_fake_lane *)(void *)opaque;
    (void)arena;
    emulator_count(EMULATED_PLANS, 1);
    if (!may_be_asked(lane) || cudnn_of(lane) == RP_FAKE_CUDNN_NO_SHAPE || sizes->sequences == 0) {
        *why_out = "the fake has no engine for this shape";
        return RP_TOOL;
    }
    emulator_count(EMULATED_PLANNED, lane->planned == 0);
    lane->planned = sizes->sequences > lane->planned ? sizes->sequences : lane->planned;
    return RP_OK;
}

rp_status rp_fake_attention_try(rpexec_lane *opaque, const rpexec_attention_sizes *sizes,
                                rpexec_attention_trial *trial_out, const char **why_out)
{
    const rp_fake_lane *lane = (const rp_fake_lane *)(const void *)opaque;
    rp_fake_cudnn cudnn = cudnn_of(lane);
    emulator_count(EMULATED_TRIALS, 1);
    *why_out = "the fake's trial has failed";
    if (!may_be_asked(lane) || lane->planned != sizes->sequences || cudnn == RP_FAKE_CUDNN_FAILS) {
        return RP_TOOL;
    }
    bool first = emulator_part_of(lane->stream)->device == 0;
    *trial_out = (rpexec_attention_trial){.own_s = first ? 2e-3 : 9,
                                          .cudnn_s = !first                          ? 9
                                                     : cudnn == RP_FAKE_CUDNN_SLOWER ? 2e-3
                                                                                     : 1e-3,
                                          .same_bits = cudnn != RP_FAKE_CUDNN_RESTLESS,
                                          .worst = cudnn == RP_FAKE_CUDNN_DIFFERS ? 1.5
                                                   : cudnn == RP_FAKE_CUDNN_NAN   ? (double)NAN
                                                                                  : 0.5};
    return RP_OK;
}

void rp_fake_attention_own(rpexec_lane *opaque)
{
    rp_fake_lane *lane = (rp_fake_lane *)(void *)opaque;
    emulator_count(EMULATED_PLANNED, -(lane->planned != 0));
    lane->planned = 0;
}
