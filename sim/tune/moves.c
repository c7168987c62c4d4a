/* The neighbourhood of a point. */
#include "common/base/hash.h"
#include "sim/tune/tune_internal.h"

#include <string.h>

static uint64_t next(rpsim_tune_random *random)
{
    uint64_t number = rp_splitmix64(random->state);
    random->state += RP_SPLITMIX64_STEP;
    return number;
}

/* The seeds are mixed, so that the random numbers of chains are not shifted copies of each other.
 */
rpsim_tune_random rpsim_tune_random_make(uint64_t seed, uint64_t number)
{
    rpsim_tune_random of_seed = {seed};
    rpsim_tune_random mixed = {next(&of_seed) + number * UINT64_C(0xd1342543de82ef95)};
    return (rpsim_tune_random){next(&mixed)};
}

uint32_t rpsim_tune_draw(rpsim_tune_random *random, uint32_t count)
{
    return (uint32_t)((next(random) >> 32) * count >> 32);
}

void rpsim_tune_spread(uint32_t layers, uint32_t stages, uint32_t *layers_out)
{
    for (uint32_t i = 0; i < stages; i++) {
        layers_out[i] = layers / stages + (i < layers % stages ? 1 : 0);
    }
}

/* Consecutive stages that moves change: `layers` points at the layers of `count` stages. */
typedef struct stages {
    uint32_t *layers;
    uint32_t *count;
    uint32_t first; /* stages before it have rules of their own */
} stages;

static bool shift(const stages *s, rpsim_tune_random *random)
{
    uint32_t count = *s->count - s->first;
    if (count < 2) {
        return false;
    }
    uint32_t from = s->first + rpsim_tune_draw(random, count);
    uint32_t to = s->first + rpsim_tune_draw(random, count);
    if (from == to || s->layers[from] == 0) {
        return false;
    }
    s->layers[from]--;
    s->layers[to]++;
    return true;
}

static bool swap(const stages *s, rpsim_tune_random *random)
{
    uint32_t count = *s->count - s->first;
    if (count < 2) {
        return false;
    }
    uint32_t i = s->first + rpsim_tune_draw(random, count - 1);
    uint32_t layers = s->layers[i];
    s->layers[i] = s->layers[i + 1];
    s->layers[i + 1] = layers;
    return s->layers[i] != layers;
}

static bool split(const stages *s, uint32_t capacity, rpsim_tune_random *random)
{
    uint32_t count = *s->count - s->first;
    if (count == 0 || *s->count == capacity) {
        return false;
    }
    uint32_t i = s->first + rpsim_tune_draw(random, count);
    if (s->layers[i] < 2) {
        return false;
    }
    uint32_t part = 1 + rpsim_tune_draw(random, s->layers[i] - 1);
    memmove(&s->layers[i + 1], &s->layers[i], (*s->count - i) * sizeof *s->layers);
    s->layers[i] = part;
    s->layers[i + 1] -= part;
    ++*s->count;
    return true;
}

static bool merge(const stages *s, rpsim_tune_random *random)
{
    uint32_t count = *s->count - s->first;
    if (count < 2) {
        return false;
    }
    uint32_t i = s->first + rpsim_tune_draw(random, count - 1);
    s->layers[i] += s->layers[i + 1];
    memmove(&s->layers[i + 1], &s->layers[i + 2], (*s->count - i - 2) * sizeof *s->layers);
    --*s->count;
    return true;
}

/* Drop `layers` layers from the end of the forward stages, or from the front of the backward stages
 * that follow the head's. Emptied stages are removed. */
static bool drop_forward(rp_partition *p, uint32_t layers)
{
    while (layers > 0 && p->forward_count > 0) {
        uint32_t *last = &p->forward_layers[p->forward_count - 1];
        uint32_t part = layers < *last ? layers : *last;
        *last -= part;
        layers -= part;
        p->forward_count -= *last == 0 ? 1 : 0;
    }
    return layers == 0;
}

static bool drop_backward(rp_partition *p, uint32_t layers)
{
    while (layers > 0 && p->backward_count > 1) {
        uint32_t *first = &p->backward_layers[1];
        uint32_t part = layers < *first ? layers : *first;
        *first -= part;
        layers -= part;
        if (*first == 0) {
            memmove(first, first + 1, (p->backward_count - 2) * sizeof *first);
            p->backward_count--;
        }
    }
    return layers == 0;
}

/* Add layers at the same places: they join the stage there, or become a stage of their own. */
static bool add_forward(const rpsim_tune_input *in, rp_partition *p, uint32_t layers, bool join)
{
    if (join && p->forward_count > 0) {
        p->forward_layers[p->forward_count - 1] += layers;
        return true;
    }
    if (p->forward_count == rpsim_tune_capacity(in)) {
        return false;
    }
    p->forward_layers[p->forward_count++] = layers;
    return true;
}

static bool add_backward(const rpsim_tune_input *in, rp_partition *p, uint32_t layers, bool join)
{
    uint32_t *first = &p->backward_layers[1];
    if (join && p->backward_count > 1) {
        *first += layers;
        return true;
    }
    if (p->backward_count == rpsim_tune_capacity(in)) {
        return false;
    }
    memmove(first + 1, first, (p->backward_count - 1) * sizeof *first);
    *first = layers;
    p->backward_count++;
    return true;
}

/* Changes the number of layers of the head's backward stage. If it is fused, the forward stages
 * give or get these layers, too. */
static bool move_head(const rpsim_tune_input *in, rp_partition *p, rpsim_tune_random *random)
{
    bool fused = rpsim_tune_fused(in, p);
    uint32_t old = p->backward_layers[0];
    uint32_t new = rpsim_tune_draw(random, (fused ? in->max_fused : in->max_backward) + 1);
    bool join_forward = rpsim_tune_draw(random, 2) != 0;
    bool join_backward = rpsim_tune_draw(random, 2) != 0;
    p->backward_layers[0] = new;
    if (new > old) {
        return drop_backward(p, new - old) && (!fused || drop_forward(p, new - old));
    }
    return new < old &&add_backward(in, p, old - new, join_backward) &&
           (!fused || add_forward(in, p, old - new, join_forward));
}

/* Fuses the head's stage, or lets forward stages run its layers. */
static bool toggle_fused(const rpsim_tune_input *in, rp_partition *p, rpsim_tune_random *random)
{
    uint32_t head = p->backward_layers[0];
    if (head == 0) {
        return false;
    }
    return rpsim_tune_fused(in, p) ? add_forward(in, p, head, rpsim_tune_draw(random, 2) != 0)
                                   : drop_forward(p, head);
}

static bool change_rules(const rpsim_tune_input *in, rpsim_tune_random *random,
                         rpsim_tune_candidate *c)
{
    uint32_t round = rpsim_tune_draw(random, in->round_count);
    uint32_t start = rpsim_tune_draw(random, in->start_count);
    bool changed = round != c->round || start != c->start;
    c->round = round;
    c->start = start;
    return changed;
}

static bool change_count(const rpsim_tune_input *in, rpsim_tune_random *random, rp_partition *p)
{
    uint32_t count = in->stage_counts[rpsim_tune_draw(random, in->stage_count_count)];
    if (count == p->forward_count) {
        return false;
    }
    p->forward_count = count;
    rpsim_tune_spread(in->config->layers, count, p->forward_layers);
    return true;
}

static bool move_pipeline(const rpsim_tune_input *in, rpsim_tune_random *random, rp_partition *p)
{
    stages s = {p->forward_layers, &p->forward_count, 0};
    uint32_t kind = rpsim_tune_draw(random, 64);
    if (kind == 0) {
        return change_count(in, random, p);
    }
    return kind % 4 == 0 ? swap(&s, random) : shift(&s, random);
}

static bool move_separate(const rpsim_tune_input *in, rpsim_tune_random *random, rp_partition *p)
{
    stages forward = {p->forward_layers, &p->forward_count, 0};
    stages backward = {p->backward_layers, &p->backward_count, 1};
    const stages *s = rpsim_tune_draw(random, 2) != 0 ? &forward : &backward;
    uint32_t kind = rpsim_tune_draw(random, 16);
    switch (kind) {
    case 0:
        return move_head(in, p, random);
    case 1:
        return toggle_fused(in, p, random);
    case 2:
    case 3:
        return split(s, rpsim_tune_capacity(in), random);
    case 4:
    case 5:
        return merge(s, random);
    case 6:
    case 7:
        return swap(s, random);
    default:
        return shift(s, random);
    }
}

bool rpsim_tune_move(const rpsim_tune_input *in, rpsim_tune_random *random, rpsim_tune_candidate *c)
{
    bool rules = (uint64_t)in->round_count * in->start_count > 1;
    if (rules && rpsim_tune_draw(random, 8) == 0) {
        return change_rules(in, random, c);
    }
    /* Up to three steps: two steps together often gain although each of them alone loses. */
    for (uint32_t steps = 1 + rpsim_tune_draw(random, 3); steps > 0; steps--) {
        if (!(in->separate_backward ? move_separate(in, random, &c->partition)
                                    : move_pipeline(in, random, &c->partition))) {
            return false;
        }
    }
    return rpsim_tune_holds(in, &c->partition);
}
