/* The machine's speed limit. */
#include "common/roofline/roofline.h"

rp_status rp_ideal_s(const rp_model *model, const rp_roof *run, uint32_t sequences,
                     uint32_t seq_len, rp_arena *arena, double *time_s_out, rp_reason *reason)
{
    rp_stack ideal;
    rp_costs costs;
    RP_TRY(rp_stack_load("ideal", arena, &ideal));
    const rp_roof roof = {run->platform, run->arithmetic, &ideal};
    rp_model plain = *model; /* weights lie as products take them */
    plain.frozen = RP_FROZEN_DTYPE;
    RP_TRY(rp_roofline_costs(&plain, &roof, sequences, seq_len, arena, &costs, reason));
    double time_ps = (double)costs.head_fwd_ps + (double)costs.head_bwd_ps;
    for (uint32_t i = 0; i < costs.layers; i++) {
        time_ps += (double)costs.fwd_ps[i] + (double)costs.bwd_ps[i];
    }
    *time_s_out = 1e-12 * time_ps;
    return RP_OK;
}
