/* The points of the search: tests membership, counts the points, and visits all of them. */
#include "sim/tune/tune_internal.h"

#include <string.h>

/* With more layers even the compositions into parts of 1 or 2, over 10^13, are beyond any budget.
 */
#define COUNTED_LAYERS 64u

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t rpsim_tune_capacity(const rpsim_tune_input *in)
{
    uint32_t capacity = in->config->layers + 2;
    for (uint32_t i = 0; i < in->reference_count; i++) {
        const rp_partition *p = &in->references[i].partition;
        capacity = p->forward_count > capacity ? p->forward_count : capacity;
        capacity = p->backward_count > capacity ? p->backward_count : capacity;
    }
    for (uint32_t i = 0; i < in->stage_count_count; i++) {
        capacity = in->stage_counts[i] > capacity ? in->stage_counts[i] : capacity;
    }
    return capacity;
}

rp_status rpsim_tune_candidate_init(const rpsim_tune_input *in, rp_arena *arena,
                                    rpsim_tune_candidate *c)
{
    uint32_t capacity = rpsim_tune_capacity(in);
    *c = (rpsim_tune_candidate){0};
    RP_TRY(rp_arena_alloc(arena, capacity, sizeof(uint32_t), &c->partition.forward_layers));
    return rp_arena_alloc(arena, capacity, sizeof(uint32_t), &c->partition.backward_layers);
}

void rpsim_tune_candidate_copy(const rpsim_tune_candidate *from, rpsim_tune_candidate *to)
{
    const rp_partition *p = &from->partition;
    to->round = from->round;
    to->start = from->start;
    to->partition.forward_count = p->forward_count;
    to->partition.backward_count = p->backward_count;
    memcpy(to->partition.forward_layers, p->forward_layers, p->forward_count * sizeof(uint32_t));
    if (p->backward_count != 0) {
        memcpy(to->partition.backward_layers, p->backward_layers,
               p->backward_count * sizeof(uint32_t));
    }
}

static uint64_t sum(const uint32_t *layers, uint32_t count)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        total += layers[i];
    }
    return total;
}

bool rpsim_tune_fused(const rpsim_tune_input *in, const rp_partition *p)
{
    return sum(p->forward_layers, p->forward_count) < in->config->layers;
}

static bool within(const uint32_t *layers, uint32_t count, uint32_t most)
{
    for (uint32_t i = 0; i < count; i++) {
        if (layers[i] == 0 || layers[i] > most) {
            return false;
        }
    }
    return true;
}

static bool has_count(const rpsim_tune_input *in, uint32_t stages)
{
    for (uint32_t i = 0; i < in->stage_count_count; i++) {
        if (in->stage_counts[i] == stages) {
            return true;
        }
    }
    return false;
}

bool rpsim_tune_holds(const rpsim_tune_input *in, const rp_partition *p)
{
    uint32_t layers = in->config->layers;
    uint64_t forward = sum(p->forward_layers, p->forward_count);
    if (!in->separate_backward) {
        return forward == layers && has_count(in, p->forward_count);
    }
    if (p->backward_count == 0 || sum(p->backward_layers, p->backward_count) != layers) {
        return false;
    }
    uint32_t head = p->backward_layers[0];
    bool fused = forward != layers;
    return (fused ? head > 0 && forward + head == layers : true) &&
           head <= (fused ? in->max_fused : in->max_backward) &&
           within(p->forward_layers, p->forward_count, in->max_forward) &&
           within(p->backward_layers + 1, p->backward_count - 1, in->max_backward);
}

/* ---- number of points ------------------------------------------------------------------------ */

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* @return the number of ordered sums of `layers` with parts of 1 .. most */
static uint64_t compositions(uint32_t layers, uint32_t most)
{
    if (layers == 0 || most == 1) {
        return 1;
    }
    if (layers > COUNTED_LAYERS) {
        return UINT64_MAX;
    }
    uint64_t count[COUNTED_LAYERS + 1] = {1};
    for (uint32_t n = 1; n <= layers; n++) {
        for (uint32_t part = 1; part <= min_u32(most, n); part++) {
            count[n] = add_saturated(count[n], count[n - part]);
        }
    }
    return count[layers];
}

/* @return the number of ordered sums of `layers` with exactly `stages` parts, 0 allowed:
 * binomial(layers + stages - 1, stages - 1) */
static uint64_t weak_compositions(uint32_t layers, uint32_t stages)
{
    uint64_t most = (uint64_t)layers + stages - 1;
    uint64_t chosen = layers < stages - 1 ? layers : stages - 1;
    uint64_t count = 1;
    for (uint64_t i = 1; i <= chosen; i++) {
        count = multiply(count, most - chosen + i);
        if (count == UINT64_MAX) {
            return count;
        }
        count /= i; /* exact: the result is a binomial again */
    }
    return count;
}

static uint64_t separate_points(const rpsim_tune_input *in)
{
    uint32_t layers = in->config->layers;
    uint64_t points = 0;
    for (uint32_t fused = 0; fused <= 1; fused++) {
        uint32_t most = min_u32(fused != 0 ? in->max_fused : in->max_backward, layers);
        for (uint32_t head = fused; head <= most && points != UINT64_MAX; head++) {
            uint64_t forward = compositions(layers - (fused != 0 ? head : 0), in->max_forward);
            uint64_t backward = compositions(layers - head, in->max_backward);
            points = add_saturated(points, multiply(forward, backward));
        }
    }
    return points;
}

uint64_t rpsim_tune_space(const rpsim_tune_input *in)
{
    uint64_t points = in->separate_backward ? separate_points(in) : 0;
    for (uint32_t i = 0; !in->separate_backward && i < in->stage_count_count; i++) {
        points = add_saturated(points, weak_compositions(in->config->layers, in->stage_counts[i]));
    }
    return multiply(points, (uint64_t)in->round_count * in->start_count);
}

/* ---- all of them ----------------------------------------------------------------------------- */

typedef struct walker {
    const rpsim_tune_input *in;
    rpsim_tune_candidate *c;
    rpsim_tune_visit visit;
    void *context;
    uint64_t index;
    uint32_t behind_head; /* layers of the backward stages that follow the head's */
} walker;

static rp_status visit_rules(walker *w)
{
    for (w->c->round = 0; w->c->round < w->in->round_count; w->c->round++) {
        for (w->c->start = 0; w->c->start < w->in->start_count; w->c->start++) {
            RP_TRY(w->visit(w->context, w->c, w->index++));
        }
    }
    return RP_OK;
}

static rp_status walk_backward(walker *w, uint32_t left)
{
    rp_partition *p = &w->c->partition;
    if (left == 0) {
        return visit_rules(w);
    }
    uint32_t stage = p->backward_count++;
    for (uint32_t part = 1; part <= min_u32(left, w->in->max_backward); part++) {
        p->backward_layers[stage] = part;
        RP_TRY(walk_backward(w, left - part));
    }
    p->backward_count = stage;
    return RP_OK;
}

static rp_status walk_forward(walker *w, uint32_t left)
{
    rp_partition *p = &w->c->partition;
    if (left == 0) {
        return walk_backward(w, w->behind_head);
    }
    uint32_t stage = p->forward_count++;
    for (uint32_t part = 1; part <= min_u32(left, w->in->max_forward); part++) {
        p->forward_layers[stage] = part;
        RP_TRY(walk_forward(w, left - part));
    }
    p->forward_count = stage;
    return RP_OK;
}

static rp_status walk_separate(walker *w)
{
    uint32_t layers = w->in->config->layers;
    rp_partition *p = &w->c->partition;
    for (uint32_t fused = 0; fused <= 1; fused++) {
        uint32_t most = min_u32(fused != 0 ? w->in->max_fused : w->in->max_backward, layers);
        for (uint32_t head = fused; head <= most; head++) {
            p->forward_count = 0;
            p->backward_count = 1;
            p->backward_layers[0] = head;
            w->behind_head = layers - head;
            RP_TRY(walk_forward(w, layers - (fused != 0 ? head : 0)));
        }
    }
    return RP_OK;
}

static rp_status walk_stages(walker *w, uint32_t stage, uint32_t left)
{
    rp_partition *p = &w->c->partition;
    if (stage + 1 == p->forward_count) {
        p->forward_layers[stage] = left;
        return visit_rules(w);
    }
    for (uint32_t part = 0; part <= left; part++) {
        p->forward_layers[stage] = part;
        RP_TRY(walk_stages(w, stage + 1, left - part));
    }
    return RP_OK;
}

rp_status rpsim_tune_walk(const rpsim_tune_input *in, rpsim_tune_candidate *scratch,
                          rpsim_tune_visit visit, void *context)
{
    walker w = {.in = in, .c = scratch, .visit = visit, .context = context};
    if (in->separate_backward) {
        return walk_separate(&w);
    }
    scratch->partition.backward_count = 0;
    for (uint32_t i = 0; i < in->stage_count_count; i++) {
        scratch->partition.forward_count = in->stage_counts[i];
        RP_TRY(walk_stages(&w, 0, in->config->layers));
    }
    return RP_OK;
}
