/* Gradients in host memory: their norm, and their sum over several processes, each of which has a
 * pool of GPUs and all weights. */
#include "exec/run/execute_internal.h"

void rpexec_run_measure(rpexec_run *r, uint32_t op, uint32_t layer)
{
    rpexec_state *state = r->e->state;
    rpexec_state_measure(state, layer);
    rpexec_run_note_norm(r, op, rpexec_squares_root(&state->squares)); /* the last norm stays */
}

rp_status rpexec_run_network_reduce(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    uint32_t layer = rp_op_layer(&r->program->ops[op]);
    rpexec_state *state = r->e->state;
    (void)lane;
    return rpexec_processes_all_reduce(r->e->processes, rpexec_run_tag(RPEXEC_TAG_LAYER, layer),
                                       RP_DTYPE_F32, rpexec_state_own(state, layer, layer + 1),
                                       state->gradients + state->trained[layer]);
}
