#include "exec/host/lane.h"

rp_status rpexec_host_lane_create(const rpexec_model *model, uint64_t tokens, rp_arena *arena,
                                  rpexec_lane *lane_out)
{
    rpexec_lane lane = {.dtype = model->dtype};
    size_t experts = rpexec_host_experts_scratch(model->config);
    lane.scratch_count = model->dtype == RP_DTYPE_F32
                             ? rpexec_host_attention_scratch(model->config->head_dim)
                             : rpexec_host_half_scratch(model, tokens);
    lane.scratch_count = experts > lane.scratch_count ? experts : lane.scratch_count;
    RP_TRY(rp_arena_alloc(arena, lane.scratch_count, sizeof(float), &lane.scratch));
    *lane_out = lane;
    return RP_OK;
}
