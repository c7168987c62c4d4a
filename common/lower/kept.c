/* What a forward keeps for its backward: the inputs of a recompute, or tapes. */
#include "common/lower/lower_internal.h"

static const rp_lower_unit *unit_at(const rp_lowering *l, uint32_t op)
{
    return &l->units[l->unit_of[op]];
}

rp_handle rp_lower_release(const rp_lowering *l, const rp_op *op, uint32_t part)
{
    const rp_producers *producers = &l->producers;
    size_t index = rp_producers_backward_index(
        producers, op->iteration, producers->backward_position[op->stage], op->microbatch);
    const rp_lower_unit *backward = unit_at(l, producers->backward_at[index]);
    if (producers->weight_at != NULL && producers->weight_at[index] != RP_NO_OP) {
        return unit_at(l, producers->weight_at[index])->compute_last;
    }
    return part == RP_LOWER_WHOLE ? backward->compute_last
                                  : backward->parts[backward->part_count - 1 - part].last;
}

rp_handle rp_lower_kept_until(const rp_lowering *l, const rp_lower_unit *forward, uint32_t part)
{
    return rp_lower_release(l, &l->schedule->ops[forward->last], part);
}
