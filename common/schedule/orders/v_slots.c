#include "common/schedule/orders/v_slots.h"

static bool is_at(uint64_t slot, uint64_t first, uint32_t microbatches)
{
    return slot >= first && (slot - first) % RP_V_PERIOD == 0 &&
           (slot - first) / RP_V_PERIOD < microbatches;
}

static bool weight(rp_v_rank *v, rp_v_chunk chunk)
{
    if (v->weights[chunk] == v->backwards[chunk]) {
        return false;
    }
    rp_v_weight(v, chunk);
    return true;
}

static bool planned(rp_v_rank *v, const rp_v_slots *slots, uint64_t slot)
{
    for (rp_v_chunk chunk = RP_V_DOWN; chunk < RP_V_CHUNKS; chunk++) {
        if (is_at(slot, slots->forward[chunk], v->microbatches)) {
            rp_v_forward(v, chunk);
            return true;
        }
        if (is_at(slot, slots->input[chunk], v->microbatches)) {
            rp_v_input(v, chunk);
            return true;
        }
    }
    return false;
}

void rp_v_slots_order(const rp_schedule_config *config, uint32_t rank, const rp_v_slots *slots,
                      rp_emitter *emitter)
{
    rp_v_rank v = rp_v_rank_begin(config, rank, emitter);
    uint64_t end = slots->input[RP_V_DOWN] + (uint64_t)RP_V_PERIOD * config->microbatches;
    for (uint64_t slot = 0; slot < end; slot++) {
        if (!planned(&v, slots, slot) && !weight(&v, RP_V_UP)) {
            weight(&v, RP_V_DOWN);
        }
    }
    while (weight(&v, RP_V_UP) || weight(&v, RP_V_DOWN)) {
    }
}
