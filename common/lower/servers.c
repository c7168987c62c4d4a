/* Copies of a program on servers, with weights in host memory (schedules.md 16): the hosts add up
 * gradients, a layer at a time, in a ring over the network. */
#include "common/lower/lower_internal.h"

/* Gradients of a layer's trained parameters; a tied table once, with the embedding. */
static uint64_t trained_bytes(const rp_lowering *l, uint32_t layer)
{
    return l->config->sizes.parameters[layer] * rp_dtype_bytes(l->config->sizes.dtype);
}

/* Bytes that a ring's scatter, or its gather, takes through each port. */
static uint64_t half_bytes(const rp_lowering *l, uint32_t layer)
{
    uint32_t copies = rp_server_copies(&l->schedule->traits);
    return trained_bytes(l, layer) * (copies - 1) / copies;
}

uint64_t rp_lower_sum_bytes(const rp_lowering *l, uint32_t layer)
{
    return RP_RING_SUM_BYTES * half_bytes(l, layer);
}

rp_status rp_lower_add_exchanges(rp_lowering *l, uint32_t iteration)
{
    uint32_t count = l->config->sizes.layers + 2;
    for (uint32_t layer = count; l->network_queue != 0 && layer-- > 0;) {
        rp_op op = {
            .kind = RP_OP_NETWORK_REDUCE, .microbatch = layer, .iteration = (uint16_t)iteration};
        RP_TRY(rp_assembly_add(l->assembly, l->network_queue, &op, 2 * half_bytes(l, layer),
                               &l->exchange[(size_t)iteration * count + layer]));
    }
    return RP_OK;
}

rp_status rp_lower_connect_exchange(rp_lowering *l, uint32_t iteration, uint32_t layer,
                                    rp_handle gradients)
{
    uint32_t count = l->config->sizes.layers + 2;
    rp_handle *row = &l->exchange[(size_t)iteration * count];
    bool table = l->config->sizes.tied_head && layer + 1 == count;
    RP_TRY(rp_assembly_wait(l->assembly, row[layer], gradients, false));
    return table ? rp_assembly_wait(l->assembly, row[0], gradients, false) : RP_OK;
}
