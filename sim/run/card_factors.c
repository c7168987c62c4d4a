#include "sim/run/card_factors.h"

#include <math.h>
#include <string.h>

/* Cards whose peaks and memories outdo each other in turn may pass each other by a few percent from
 * model to model: down to this factor they count as equals. */
#define ALIKE 0.95

/* Time of forward and backward of all layers and the head. */
static double total_ps(const rp_costs *table)
{
    double ps = (double)table->head_fwd_ps + (double)table->head_bwd_ps;
    for (uint32_t i = 0; i < table->layers; i++) {
        ps += (double)table->fwd_ps[i] + (double)table->bwd_ps[i];
    }
    return ps;
}

/* The platform of `gpu` among the cards: as it was read, whatever an interval's draw changes. */
static const rp_platform *find_own(const rp_platform *p)
{
    uint32_t i = 0;
    while (strcmp(p->cards[i]->gpu, p->gpu) != 0) {
        i++; /* the list contains it, perhaps after the GPUs that a run uses */
    }
    return p->cards[i];
}

static rp_status compare(const rpsim_card_run *run, const rp_platform *card, rp_arena *arena,
                         rpsim_gpu_factor *factor, rp_reason *reason)
{
    const rp_costs *table = run->table;
    const rp_platform *own = find_own(run->platform);
    const rp_roof from = {own, run->arithmetic, table->stack};
    const rp_roof to = {card, run->arithmetic, table->stack};
    rp_costs here = *table;
    rp_costs there;
    if (table->kind == RP_ASSUMED) {
        uint32_t sequences = table->microbatch_size;
        RP_TRY(
            rp_roofline_costs(run->model, &from, sequences, table->seq_len, arena, &here, reason));
        RP_TRY(
            rp_roofline_costs(run->model, &to, sequences, table->seq_len, arena, &there, reason));
    } else {
        RP_TRY(rp_moved_costs(table, run->model, &from, &to, arena, &there, reason));
    }
    factor->pass = total_ps(&there) / total_ps(&here);
    factor->update = own->memory_effective_gb_per_s / card->memory_effective_gb_per_s;
    if (factor->pass >= ALIKE) {
        factor->pass = fmax(factor->pass, 1);
    } else {
        return rp_refuse(reason, RP_INPUT,
                         "{platform}: a microbatch takes %.4g times as long on %s as on %s, the "
                         "'gpu' of %s; valid are cards of which none is much faster than 'gpu'",
                         factor->pass, card->gpu, run->platform->gpu, run->platform->name);
    }
    return RP_OK;
}

/* Compares each GPU of a server. GPUs of the same card share a platform. */
static rp_status compare_all(const rpsim_card_run *run, uint32_t of_node, rp_arena *arena,
                             rpsim_gpu_factor *factors, rp_reason *reason)
{
    const rp_platform *const *cards = run->platform->cards;
    for (uint32_t gpu = 0; gpu < of_node; gpu++) {
        uint32_t same = 0;
        while (cards[same] != cards[gpu]) {
            same++;
        }
        bool own = strcmp(cards[gpu]->gpu, run->platform->gpu) == 0;
        factors[gpu] = same < gpu ? factors[same] : (rpsim_gpu_factor){1, 1};
        if (same == gpu && !own) {
            RP_TRY(compare(run, cards[gpu], arena, &factors[gpu], reason));
        }
    }
    return RP_OK;
}

rp_status rpsim_card_factors(const rpsim_card_run *run, rp_arena *arena,
                             const rpsim_gpu_factor **factors_out, rp_reason *reason)
{
    const rp_platform *p = run->platform;
    const rp_layout *layout = &run->traits->layout;
    bool servers = rp_server_copies(run->traits) > 1;
    uint32_t of_node = p->gpus / p->nodes;
    uint32_t copies = servers ? 1 : rp_layout_gpus(layout);
    uint32_t inner = copies > 1 ? rp_layout_strides(layout, run->gpus).pipeline : 1;
    rpsim_gpu_factor *of_gpu = NULL;
    rpsim_gpu_factor *factors = NULL;
    *factors_out = NULL;
    if (p->cards == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, of_node, sizeof *of_gpu, &of_gpu));
    RP_TRY(rp_arena_alloc(arena, run->gpus, sizeof *factors, &factors));
    RP_TRY(compare_all(run, of_node, arena, of_gpu, reason));
    for (uint32_t gpu = 0; gpu < run->gpus; gpu++) {
        factors[gpu] = (rpsim_gpu_factor){0, 0};
        for (uint32_t copy = 0; copy < copies; copy++) {
            uint32_t real = copy / inner * inner * run->gpus + gpu * inner + copy % inner;
            const rpsim_gpu_factor *one = &of_gpu[real % of_node];
            factors[gpu].pass = fmax(factors[gpu].pass, one->pass);
            factors[gpu].update = fmax(factors[gpu].update, one->update);
        }
    }
    *factors_out = factors;
    return RP_OK;
}

int64_t rpsim_card_least_ps(const rp_program *program, const rpsim_compute_costs *costs)
{
    rpsim_gpu_factor least = {1, 1};
    int64_t sum = 0;
    for (uint32_t gpu = 0; gpu < program->gpu_count; gpu++) {
        least.update = fmin(least.update, costs->gpu_factor[gpu].update);
    }
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        for (uint32_t i = queue->op_begin; i < queue->op_end && queue->kind == RP_QUEUE_COMPUTE;
             i++) {
            sum += rpsim_op_ps_by(costs, program, i, &least);
        }
    }
    return sum;
}

double rpsim_card_mean_peak(const rp_roof *roof, uint32_t gpus)
{
    const rp_platform *p = roof->platform;
    double sum = 0;
    if (p->cards == NULL) {
        return rp_peak_flops_per_s(roof);
    }
    for (uint32_t gpu = 0; gpu < gpus; gpu++) {
        const rp_platform *card = rp_platform_card(p, gpu % (p->gpus / p->nodes));
        double peak = rp_peak_flops_per_s(&(const rp_roof){card, roof->arithmetic, NULL});
        if (!(peak > 0)) {
            return 0;
        }
        sum += peak;
    }
    return sum / gpus;
}
