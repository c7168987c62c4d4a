/* Several processes, each with a pool of GPUs and all weights in its host's memory. */
#include "exec/run/execute_internal.h"

const void *rpexec_run_slot(const rpexec_run *r, const rpexec_slot *slot, uint32_t layer)
{
    const rpexec_state *state = r->e->state;
    uint64_t first = state->trained[layer] - state->trained[r->plan->jobs[slot->job].begin];
    return rpexec_element(r->plan->model->dtype, rpexec_run_at(r, slot->value), first);
}

/* A process's calls first, as COLLECT adds them where there is one process. */
rp_status rpexec_run_network_reduce(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    uint32_t layer = r->program->ops[op].microbatch;
    const rpexec_task *task = &r->plan->tasks[op];
    rpexec_state *state = r->e->state;
    float scale = r->scales[r->program->ops[op].iteration];
    (void)lane;
    rpexec_state_gather(state, layer, rpexec_state_slot(state, layer), scale, false);
    for (uint32_t i = task->slot_begin; i < task->slot_end; i++) {
        const void *slot = rpexec_run_slot(r, &r->plan->slots[i], layer);
        rpexec_state_gather(state, layer, slot, scale, true);
    }
    return rpexec_nodes_all_reduce(r->e->nodes, rpexec_run_tag(RPEXEC_TAG_LAYER, layer),
                                   RP_DTYPE_F32, rpexec_state_own(state, layer, layer + 1),
                                   rpexec_state_gathered(state, layer));
}
