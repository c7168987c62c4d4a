/* A schedule whose orders come from a schedule CSV of PyTorch's pipelining. Transfers and FSDP's
 * actions of a lowered file are ignored: the builder and the lowering add their own. */
#include "common/torch/torch_csv_internal.h"

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    const rp_torch_csv *csv = config->orders;
    const rp_partition *partition = config->partition;
    bool separate = csv->separate && partition->forward_count == csv->forward_count &&
                    partition->backward_count == csv->stage_count - csv->forward_count;
    if (separate || (!csv->separate && partition->forward_count == csv->stage_count)) {
        return RP_OK;
    }
    return rp_refuse(reason, RP_USAGE,
                     "{partition}: %u stages, and %s has %u; valid are even and lists of %u stages",
                     partition->forward_count + partition->backward_count, csv->name,
                     csv->stage_count, csv->stage_count);
}

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    const rp_torch_csv *csv = config->orders;
    for (uint32_t i = csv->row_begin[rank]; i < csv->row_begin[rank + 1]; i++) {
        const rp_torch_action *a = &csv->actions[i];
        if (a->overlaps_next) {
            rp_emit_overlapped_forward(emitter, a->stage, a->microbatch);
        } else if (a->type == RP_TORCH_FORWARD) {
            rp_emit_forward(emitter, a->stage, a->microbatch);
        } else if (a->type == RP_TORCH_BACKWARD) {
            rp_emit_backward(emitter, a->stage, a->microbatch);
        } else if (a->type == RP_TORCH_BACKWARD_INPUT) {
            rp_emit_backward_input(emitter, a->stage, a->microbatch);
        } else if (a->type == RP_TORCH_BACKWARD_WEIGHT) {
            rp_emit_backward_weight(emitter, a->stage, a->microbatch);
        }
    }
}

const rp_schedule_type rp_torch_csv_schedule = {
    .name = "torch-csv",
    .summary = "the orders of a schedule CSV",
    .source = "PyTorch, torch.distributed.pipelining",
    .many_stages = true,
    .splits_backward = true,
    .default_recompute = RP_RECOMPUTE_NONE,
    .check = check,
    .order = order,
};
