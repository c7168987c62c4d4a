/* With resident weights all GPUs agree on a step before any of them takes it, if losses are scaled
 * (fp16) or gradients clipped (rpexec_run_agree). They agree only if no GPU needs work of the next
 * iteration to reach its step; a program that breaks this is refused, since it would wait for
 * ever. */
#include "common/base/reason.h"
#include "exec/plan/plan_internal.h"

static rp_status check_queue(const rp_program *p, const rp_queue *queue, bool clips,
                             uint64_t *updated, rp_reason *reason)
{
    uint64_t latest = 0; /* iteration + 1 of the ops so far */
    for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
        const rp_op *op = &p->ops[i];
        uint64_t now = (uint64_t)op->iteration + 1;
        latest = now > latest ? now : latest;
        if (!rp_op_kind_is_update(op->kind)) {
            continue;
        }
        if (latest > now || updated[queue->gpu] == now) {
            char name[RP_OP_NAME_SIZE];
            rp_op_name(op, name);
            return clips ? rp_refuse(reason, RP_USAGE,
                                     "{clip_norm}: gradients of all GPUs are known before a step, "
                                     "but GPU %u has %s after work of another step; valid for %s "
                                     "is {optimizer} sync",
                                     queue->gpu, name, p->schedule)
                         : rp_refuse(reason, RP_USAGE,
                                     "{dtype} fp16: all GPUs agree on skipping a step, but GPU %u "
                                     "has %s after work of another step; valid for %s are fp32 and "
                                     "bf16",
                                     queue->gpu, name, p->schedule);
        }
        updated[queue->gpu] = now;
    }
    return RP_OK;
}

rp_status rpexec_plan_check_scaling(const rpexec_planner *planner, rp_arena *scratch)
{
    const rp_program *p = planner->program;
    uint64_t *updated = NULL; /* [gpu] iteration + 1 of the last step */
    bool clips = planner->limits.clips;
    if (!clips && !rpexec_scaler_needed(planner->plan->model->dtype)) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(scratch, p->gpu_count, sizeof *updated, &updated));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        if (p->queues[q].kind == RP_QUEUE_COMPUTE) {
            RP_TRY(check_queue(p, &p->queues[q], clips, updated, planner->reason));
        }
    }
    return RP_OK;
}
