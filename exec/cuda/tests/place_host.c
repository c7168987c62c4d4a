/* The host's lanes, one per type. */
#include "exec/cuda/tests/trial.h"
#include "exec/host/lane.h"

static rpexec_lane lanes[RP_DTYPE_COUNT];
enum { SCRATCH = 1 << 26 /* floats, touched only when used */ };

rp_status trial_host_open(void)
{
    for (uint32_t i = 0; i < RP_DTYPE_COUNT; i++) {
        lanes[i] = (rpexec_lane){.dtype = (rp_dtype)i, .scratch_count = SCRATCH};
        RP_TRY(rp_arena_alloc_raw(trial_lane_arena, SCRATCH, sizeof(float), &lanes[i].scratch));
    }
    return RP_OK;
}

rpexec_lane *trial_host_lane(rp_dtype dtype)
{
    return &lanes[dtype];
}

const rpexec_operators *trial_host_table(rp_dtype dtype)
{
    return rpexec_host_operators[dtype];
}
