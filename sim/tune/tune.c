/* Both searches and their common parts (tune.h). */
#include "sim/tune/tune.h"

#include "common/base/crew.h"
#include "common/base/log.h"
#include "sim/tune/tune_internal.h"

#include <math.h>

/* First threshold of a chain, as a share of its first objective: while it searches for a region,
 * and while it refines within a region. */
#define EXPLORE_THRESHOLD 0.02
#define REFINE_THRESHOLD 0.005

/* Share of the budget that exploring gets, in percent. */
#define EXPLORE_PERCENT 40u

/* Most tries of a move for each evaluation. A space so small that moves hardly ever lead anywhere
 * is enumerated, so only odd spaces reach this limit. */
#define TRIES_PER_EVALUATION 64u

/* Best point that a chain, or a share of the enumeration, has found. */
typedef struct chain_result {
    rpsim_tune_candidate best;
    double best_ps;
    uint64_t best_index; /* index in the walk; of equal points the first counts */
    uint64_t evaluations;
} chain_result;

typedef struct search {
    const rpsim_tune_input *in;
    const double *reference_ps;             /* [reference] */
    chain_result shares[RPSIM_TUNE_CHAINS]; /* of the enumeration, or of the refining chains */
    rpsim_tune_candidate *starts;           /* starting points of the exploring chains */
    chain_result *explored;                 /* [start] */
    uint32_t start_count;
} search;

static rp_status evaluate_point(const rpsim_tune_input *in, const rpsim_tune_point *point,
                                double *ps_out)
{
    rp_schedule_config config = *in->config;
    rp_progress_tick();
    config.partition = &point->partition;
    config.round = point->round;
    config.round_start = point->round_start;
    return in->objective(in->context, &config, ps_out);
}

static rpsim_tune_point point_of(const rpsim_tune_input *in, const rpsim_tune_candidate *c)
{
    return (rpsim_tune_point){c->partition, in->rounds[c->round], in->starts[c->start]};
}

static rp_status evaluate(const rpsim_tune_input *in, const rpsim_tune_candidate *c,
                          chain_result *result, double *ps_out)
{
    rpsim_tune_point point = point_of(in, c);
    result->evaluations++;
    return evaluate_point(in, &point, ps_out);
}

/* ---- all points ------------------------------------------------------------------------------ */

typedef struct share {
    const rpsim_tune_input *in;
    uint32_t number;
    chain_result *result;
} share;

static rp_status visit(void *context, const rpsim_tune_candidate *c, uint64_t index)
{
    share *s = context;
    double ps = INFINITY;
    if (index % RPSIM_TUNE_CHAINS != s->number) {
        return RP_OK;
    }
    RP_TRY(evaluate(s->in, c, s->result, &ps));
    if (ps < s->result->best_ps) {
        s->result->best_ps = ps;
        s->result->best_index = index;
        rpsim_tune_candidate_copy(c, &s->result->best);
    }
    return RP_OK;
}

static rp_status enumerate(search *s, uint32_t chain, rp_arena *scratch)
{
    rpsim_tune_candidate c;
    share mine = {s->in, chain, &s->shares[chain]};
    RP_TRY(rpsim_tune_candidate_init(s->in, scratch, &c));
    return rpsim_tune_walk(s->in, &c, visit, &mine);
}

/* ---- threshold accepting --------------------------------------------------------------------- */

static uint32_t stages_of(uint32_t layers, uint32_t most)
{
    return (layers + most - 1) / most;
}

/* Makes stages as large and as equal as the space allows. */
static void spread_separate(const rpsim_tune_input *in, rp_partition *p)
{
    uint32_t layers = in->config->layers;
    p->forward_count = stages_of(layers, in->max_forward);
    rpsim_tune_spread(layers, p->forward_count, p->forward_layers);
    p->backward_count = 1 + stages_of(layers, in->max_backward);
    p->backward_layers[0] = 0;
    rpsim_tune_spread(layers, p->backward_count - 1, p->backward_layers + 1);
}

static rp_status add_start(search *s, const rpsim_tune_candidate *start, rp_arena *arena)
{
    rpsim_tune_candidate *c = &s->starts[s->start_count];
    RP_TRY(rpsim_tune_candidate_init(s->in, arena, c));
    RP_TRY(rpsim_tune_candidate_init(s->in, arena, &s->explored[s->start_count].best));
    s->explored[s->start_count++].best_ps = INFINITY;
    rpsim_tune_candidate_copy(start, c);
    return RP_OK;
}

/* Adds the starting points for a rule: the references that the space holds, and equal stages for
 * every allowed number of stages. */
static rp_status add_starts_of_rule(search *s, rpsim_tune_candidate *c, rp_arena *arena)
{
    const rpsim_tune_input *in = s->in;
    for (uint32_t i = 0; i < in->reference_count; i++) {
        const rp_partition *p = &in->references[i].partition;
        if (rpsim_tune_holds(in, p)) {
            rpsim_tune_candidate at = {*p, c->round, c->start};
            RP_TRY(add_start(s, &at, arena));
        }
    }
    if (in->separate_backward) {
        spread_separate(in, &c->partition);
        return add_start(s, c, arena);
    }
    for (uint32_t i = 0; i < in->stage_count_count; i++) {
        c->partition.forward_count = in->stage_counts[i];
        rpsim_tune_spread(in->config->layers, in->stage_counts[i], c->partition.forward_layers);
        RP_TRY(add_start(s, c, arena));
    }
    return RP_OK;
}

static rp_status add_starts(search *s, rp_arena *arena)
{
    const rpsim_tune_input *in = s->in;
    uint32_t per_rule = in->reference_count + in->stage_count_count + 1;
    size_t most = (size_t)in->round_count * in->start_count * per_rule;
    rpsim_tune_candidate c;
    RP_TRY(rpsim_tune_candidate_init(in, arena, &c));
    RP_TRY(rp_arena_alloc(arena, most, sizeof *s->starts, &s->starts));
    RP_TRY(rp_arena_alloc(arena, most, sizeof *s->explored, &s->explored));
    for (c.round = 0; c.round < in->round_count; c.round++) {
        bool one_round = in->rounds[c.round] >= in->config->microbatches;
        for (c.start = 0; c.start < (one_round ? 1 : in->start_count); c.start++) {
            RP_TRY(add_starts_of_rule(s, &c, arena));
        }
    }
    return RP_OK;
}

static void keep_best(const rpsim_tune_candidate *c, double ps, chain_result *result)
{
    if (ps < result->best_ps) {
        result->best_ps = ps;
        rpsim_tune_candidate_copy(c, &result->best);
    }
}

/* Input of a chain. */
typedef struct chain {
    const rpsim_tune_candidate *start;
    double threshold; /* first threshold, as a share of the first objective */
    uint32_t budget;
    uint64_t number; /* number of its sequence of random numbers */
} chain;

static rp_status accept_thresholds(const rpsim_tune_input *in, const chain *ch, rp_arena *scratch,
                                   chain_result *result)
{
    rpsim_tune_random random = rpsim_tune_random_make(in->seed, ch->number);
    rpsim_tune_candidate at;
    rpsim_tune_candidate trial;
    double at_ps = INFINITY;
    if (ch->budget == 0) {
        return RP_OK;
    }
    RP_TRY(rpsim_tune_candidate_init(in, scratch, &at));
    RP_TRY(rpsim_tune_candidate_init(in, scratch, &trial));
    rpsim_tune_candidate_copy(ch->start, &at);
    RP_TRY(evaluate(in, &at, result, &at_ps));
    keep_best(&at, at_ps, result);
    double threshold = isfinite(at_ps) ? ch->threshold * at_ps : 0;
    for (uint32_t i = 1; i < ch->budget; i++) {
        bool moved = false;
        for (uint32_t tries = 0; !moved && tries < TRIES_PER_EVALUATION; tries++) {
            rpsim_tune_candidate_copy(&at, &trial);
            moved = rpsim_tune_move(in, &random, &trial);
        }
        if (!moved) {
            continue;
        }
        double ps = INFINITY;
        RP_TRY(evaluate(in, &trial, result, &ps));
        keep_best(&trial, ps, result);
        if (ps <= at_ps + threshold * (1.0 - (double)i / ch->budget)) {
            rpsim_tune_candidate_copy(&trial, &at);
            at_ps = ps;
        }
    }
    return RP_OK;
}

static uint32_t explore_budget(const rpsim_tune_input *in)
{
    return (uint32_t)((uint64_t)in->budget * EXPLORE_PERCENT / 100);
}

static uint32_t part_of(uint32_t budget, uint32_t part, uint32_t parts)
{
    return budget / parts + (part < budget % parts ? 1 : 0);
}

static rp_status explore(search *s, uint32_t number, rp_arena *scratch)
{
    chain ch = {&s->starts[number], EXPLORE_THRESHOLD,
                part_of(explore_budget(s->in), number, s->start_count), number};
    return accept_thresholds(s->in, &ch, scratch, &s->explored[number]);
}

/* @return the result of the exploring chain of this rank; of equal chains the first is better.
 * Counting the better chains for each is cheap, because the chains are few. */
static const rpsim_tune_candidate *ranked(const search *s, uint32_t rank)
{
    for (uint32_t i = 0; i < s->start_count; i++) {
        uint32_t better = 0;
        for (uint32_t k = 0; k < s->start_count; k++) {
            double a = s->explored[k].best_ps;
            double b = s->explored[i].best_ps;
            better += a < b || (a == b && k < i) ? 1 : 0;
        }
        if (better == rank) {
            return s->explored[i].evaluations != 0 ? &s->explored[i].best : &s->starts[i];
        }
    }
    return &s->starts[0];
}

static rp_status refine(search *s, uint32_t number, rp_arena *scratch)
{
    uint32_t budget = s->in->budget - explore_budget(s->in);
    uint32_t ranks = s->start_count < RPSIM_TUNE_CHAINS ? s->start_count : RPSIM_TUNE_CHAINS;
    chain ch = {ranked(s, number % ranks), REFINE_THRESHOLD,
                part_of(budget, number, RPSIM_TUNE_CHAINS), (uint64_t)s->start_count + number};
    return accept_thresholds(s->in, &ch, scratch, &s->shares[number]);
}

/* ---- the search ------------------------------------------------------------------------------ */

static rp_status in_scratch(void *context, uint32_t job,
                            rp_status (*run)(search *, uint32_t, rp_arena *))
{
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = run(context, job, scratch);
    rp_arena_destroy(scratch);
    return status;
}

static rp_status run_enumerate(void *context, uint32_t job)
{
    return in_scratch(context, job, enumerate);
}

static rp_status run_explore(void *context, uint32_t job)
{
    return in_scratch(context, job, explore);
}

static rp_status run_refine(void *context, uint32_t job)
{
    return in_scratch(context, job, refine);
}

static rp_status copy_layers(const uint32_t *layers, uint32_t count, rp_arena *arena,
                             uint32_t **layers_out)
{
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint32_t), layers_out));
    for (uint32_t i = 0; i < count; i++) {
        (*layers_out)[i] = layers[i];
    }
    return RP_OK;
}

static rp_status copy_point(const rpsim_tune_point *from, rp_arena *arena, rpsim_tune_point *to)
{
    *to = *from;
    const rp_partition *p = &from->partition;
    RP_TRY(copy_layers(p->forward_layers, p->forward_count, arena, &to->partition.forward_layers));
    return copy_layers(p->backward_layers, p->backward_count, arena,
                       &to->partition.backward_layers);
}

/* Takes the best of `results` if it is better than the best so far; of equal points it takes the
 * first in the walk. */
static void take_better(const search *s, const chain_result *results, uint32_t count,
                        rpsim_tune_point *best, rpsim_tune_result *result)
{
    bool taken = false;
    uint64_t index = 0;
    for (uint32_t i = 0; i < count; i++) {
        const chain_result *c = &results[i];
        bool tie = taken && c->best_ps == result->objective_ps && c->best_index < index;
        if (c->best_ps < result->objective_ps || tie) {
            result->objective_ps = c->best_ps;
            *best = point_of(s->in, &c->best);
            index = c->best_index;
            taken = true;
        }
        result->evaluations += c->evaluations;
    }
}

/* Takes the best point of all. Among equal points a reference comes first, then the order of the
 * walk or of the chains decides. */
static rp_status take_best(const search *s, rp_arena *arena, rpsim_tune_result *result)
{
    const rpsim_tune_input *in = s->in;
    rpsim_tune_point best = in->references[0];
    result->objective_ps = s->reference_ps[0];
    result->evaluations = in->reference_count;
    for (uint32_t i = 1; i < in->reference_count; i++) {
        if (s->reference_ps[i] < result->objective_ps) {
            result->objective_ps = s->reference_ps[i];
            best = in->references[i];
        }
    }
    take_better(s, s->explored, s->start_count, &best, result);
    take_better(s, s->shares, RPSIM_TUNE_CHAINS, &best, result);
    return copy_point(&best, arena, &result->point);
}

static rp_status search_in(const rpsim_tune_input *in, rp_arena *scratch, rp_arena *arena,
                           rpsim_tune_result *result)
{
    double *reference_ps = NULL;
    search s = {.in = in};
    RP_TRY(rp_arena_alloc(scratch, in->reference_count, sizeof *reference_ps, &reference_ps));
    for (uint32_t i = 0; i < in->reference_count; i++) {
        RP_TRY(evaluate_point(in, &in->references[i], &reference_ps[i]));
    }
    s.reference_ps = reference_ps;
    for (uint32_t i = 0; i < RPSIM_TUNE_CHAINS; i++) {
        s.shares[i].best_ps = INFINITY;
        RP_TRY(rpsim_tune_candidate_init(in, scratch, &s.shares[i].best));
    }
    result->exact = rpsim_tune_space(in) <= in->budget;
    if (result->exact) {
        RP_TRY(rp_crew_run(in->threads, RPSIM_TUNE_CHAINS, run_enumerate, &s));
    } else if (in->budget > 0) {
        RP_TRY(add_starts(&s, scratch));
        RP_TRY(rp_crew_run(in->threads, s.start_count, run_explore, &s));
        RP_TRY(rp_crew_run(in->threads, RPSIM_TUNE_CHAINS, run_refine, &s));
    }
    return take_best(&s, arena, result);
}

rp_status rpsim_tune(const rpsim_tune_input *input, rp_arena *arena, rpsim_tune_result *result_out)
{
    rp_arena *scratch = NULL;
    rp_mem_keep_freed();
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = search_in(input, scratch, arena, result_out);
    rp_arena_destroy(scratch);
    return status;
}
