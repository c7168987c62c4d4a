/* Copies of a program on servers, with weights in host memory (schedules.md 16): the hosts add up
 * master gradients, a layer at a time, in a ring over the network. */
#include "common/lower/lower_internal.h"

/* Bytes that a ring's scatter, or its gather, takes through each port: fp32, as masters are. */
static uint64_t half_bytes(const rp_lowering *l, uint32_t layer)
{
    uint32_t copies = rp_server_copies(&l->schedule->traits);
    uint64_t bytes = l->config->sizes.parameters[layer] * rp_dtype_bytes(RP_DTYPE_F32);
    return bytes * (copies - 1) / copies;
}

uint64_t rp_lower_sum_bytes(const rp_lowering *l, uint32_t layer)
{
    return RP_RING_SUM_BYTES * half_bytes(l, layer);
}

rp_status rp_lower_add_exchanges(rp_lowering *l, uint32_t iteration, rp_handle adam)
{
    uint32_t count = l->config->sizes.layers + 2;
    for (uint32_t layer = count; l->network_queue != 0 && layer-- > 0;) {
        rp_handle exchange;
        rp_op op = {
            .kind = RP_OP_NETWORK_REDUCE, .microbatch = layer, .iteration = (uint16_t)iteration};
        RP_TRY(rp_assembly_add(l->assembly, l->network_queue, &op, 2 * half_bytes(l, layer),
                               &exchange));
        RP_TRY(rp_assembly_wait(l->assembly, exchange,
                                l->collect[(size_t)iteration * count + layer], true));
        RP_TRY(rp_assembly_wait(l->assembly, adam, exchange, true));
    }
    return RP_OK;
}
