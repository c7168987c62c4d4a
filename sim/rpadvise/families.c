/* Steps 1 and 2 of the search: short runs of many families. */
#define _GNU_SOURCE /* qsort_r */
#include "sim/rpadvise/search_internal.h"

#include "common/compile/compile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_SIZE 64u /* sequences per microbatch */
#define MOST_MICROBATCHES 256u
#define LEAST_ROUNDS 4u
#define MOST_ROUNDS 16u /* microbatches per GPU, if the batch is free */
#define SHORT_SYNC 1    /* iterations: all synchronous iterations are equal, to 1e-6 */
#define SHORT_ASYNC 4   /* iterations: within 4 % of a steady state */

/* ---- sizes ----------------------------------------------------------------------------------- */

uint32_t rpadvise_target(const rpadvise_search *s, const rpadvise_candidate *c)
{
    uint32_t n = rpadvise_places(s, c);
    uint32_t size = c->run.microbatch_size;
    uint32_t batch = s->given->global_batch / rpadvise_copies(c);
    if (batch != 0) {
        uint32_t units = (batch + size - 1) / size;
        uint32_t whole = rpadvise_multiple(units + n - 1, n); /* equal rounds, a little smaller */
        return units > n && whole <= batch ? whole : units;
    }
    uint64_t tokens = (uint64_t)size * s->seq_len * rpadvise_copies(c);
    uint64_t units = s->options->max_step_tokens / tokens;
    uint32_t most = rpadvise_least(MOST_ROUNDS * n, MOST_MICROBATCHES);
    most = most < LEAST_ROUNDS * n ? LEAST_ROUNDS * n : most; /* enough to fill a pipeline */
    units = units < most ? units : most;
    return rpadvise_whole((uint32_t)units, n);
}

rpadvise_manner rpadvise_shortly(const rpadvise_candidate *c)
{
    return (rpadvise_manner){.iterations = c->run.asynchronous ? SHORT_ASYNC : SHORT_SYNC};
}

void rpadvise_begin_step(rpadvise_search *s, unsigned parts)
{
    const rpadvise_bench *b = s->bench;
    uint64_t left = b->budget > b->spent ? b->budget - b->spent : 0;
    s->until = b->spent + left / parts;
}

uint32_t rpadvise_allowed(rpadvise_search *s, uint32_t wanted)
{
    uint64_t left = s->until > s->bench->spent ? s->until - s->bench->spent : 0;
    s->cut_short = s->cut_short || left < wanted;
    return wanted < left ? wanted : (uint32_t)left;
}

/* ---- steps 1 and 2: families ----------------------------------------------------------------- */

static bool may_differ(const rp_schedule_type *schedule, uint32_t partition)
{
    return partition == 0 || schedule->separate_backward; /* RoundPipe's planner differs */
}

static const rp_schedule_type *schedule_at(const rpadvise_options *o, uint32_t index)
{
    return o->schedule_count != 0 ? rp_schedule_find(o->schedules[index]) : rp_schedules[index];
}

rpadvise_family rpadvise_family_of(const rpadvise_search *s, const rpadvise_candidate *c)
{
    uint32_t n = rpadvise_places(s, c);
    bool free_batch = s->given->global_batch == 0;
    return (rpadvise_family){.candidate = *c,
                             .least = free_batch ? rpadvise_least(n, rpadvise_target(s, c)) : n};
}

rp_status rpadvise_families_add(rpadvise_search *s, const rpadvise_family *families, uint32_t count)
{
    if (s->family_count + count > s->family_room) {
        uint32_t room = 2 * (s->family_count + count);
        rpadvise_family *larger = NULL;
        RP_TRY(rp_arena_alloc(s->arena, room, sizeof *larger, &larger));
        for (uint32_t i = 0; i < s->family_count; i++) {
            larger[i] = s->families[i];
        }
        s->families = larger;
        s->family_room = room;
    }
    for (uint32_t i = 0; i < count; i++) {
        s->families[s->family_count++] = families[i];
    }
    return RP_OK;
}

/* Schedules that flush as the same schedule have the same synchronous run: the search keeps that
 * schedule, or else the first of them. */
bool rpadvise_is_double(const rpadvise_search *s, const rpadvise_candidate *c)
{
    const rpadvise_options *o = s->options;
    uint32_t schedules = o->schedule_count != 0 ? o->schedule_count : rp_schedule_count;
    bool before = true;
    const rp_schedule_type *flushed = c->schedule->flushed;
    if (c->run.asynchronous || flushed == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < schedules; i++) {
        const rp_schedule_type *other = schedule_at(o, i);
        before = before && other != c->schedule;
        if (other == flushed || (before && other->flushed == flushed)) {
            return true;
        }
    }
    return false;
}

/* @return true if the short runs of the synchronous family stand for the asynchronous family, too.
 * With a single version of resident weights, a step without a barrier begins a little earlier, and
 * nothing else differs. */
static bool is_as_late(const rp_schedule_type *schedule)
{
    const rp_traits *traits = &schedule->traits;
    return traits->placement == RP_PLACEMENT_RESIDENT && traits->versions == RP_VERSIONS_ONE;
}

bool rpadvise_wants_mode(const rpadvise_search *s, const rp_schedule_type *schedule, bool late)
{
    return !late || !(s->options->synchronous || is_as_late(schedule));
}

/* Adds the asynchronous families for which the short runs of the synchronous families stand. */
static rp_status add_late(rpadvise_search *s)
{
    uint32_t count = s->options->synchronous ? 0 : s->family_count;
    for (uint32_t i = 0; i < count; i++) {
        rpadvise_family late = s->families[i];
        late.candidate.run.asynchronous = true;
        late.candidate.run.layout.zero = rpadvise_zero(&late.candidate);
        bool refused = rp_traits_only_synchronous(&late.candidate.schedule->traits) != NULL;
        if (is_as_late(late.candidate.schedule) && !refused && late.estimate > 0) {
            RP_TRY(rpadvise_families_add(s, &late, 1));
        }
    }
    return RP_OK;
}

static rp_status add_family(rpadvise_search *s, const rp_schedule_type *schedule, uint32_t bits,
                            rp_recompute recompute)
{
    rpadvise_candidate candidate = rpadvise_candidate_of(s->bench->work, schedule);
    candidate.run.asynchronous = bits & 1;
    candidate.run.recomputes[0] = recompute;
    candidate.run.layer_grain = bits & 2;
    candidate.run.partition = bits & 4 ? "auto" : NULL;
    candidate.run.offload_activations = bits & 8;
    const rpadvise_family family = rpadvise_family_of(s, &candidate);
    bool layers = candidate.run.layer_grain != rp_usual_layer_grain(schedule);
    bool nothing = !rp_recompute_has_ops(recompute) && layers && !(bits & 8); /* nothing to cut */
    nothing |= recompute == RP_RECOMPUTE_SELECTIVE && !s->bench->selective;
    rp_reason reason = {0};
    if (rp_compile_check_offload(schedule, bits & 8, &reason) != RP_OK) {
        return RP_OK;
    }
    bool counts = !nothing && rpadvise_wants_mode(s, schedule, bits & 1) &&
                  may_differ(schedule, bits & 4) && !rpadvise_is_double(s, &candidate);
    return counts ? rpadvise_families_add(s, &family, 1) : RP_OK;
}

rp_status rpadvise_families_list(rpadvise_search *s)
{
    const rpadvise_options *o = s->options;
    uint32_t schedules = o->schedule_count != 0 ? o->schedule_count : rp_schedule_count;
    for (uint32_t i = 0; i < schedules; i++) {
        uint32_t ways = s->bench->work->run.offload_activations ? 16 : 8; /* also without, then */
        for (uint32_t bits = 0; bits < ways; bits++) {
            for (int mode = 0; mode < RP_RECOMPUTE_COUNT; mode++) {
                RP_TRY(add_family(s, schedule_at(o, i), bits, (rp_recompute)mode));
            }
        }
    }
    return RP_OK;
}

/* Trials of a set of families, each with a number of microbatches. */
typedef struct probe {
    rpadvise_search *search;
    rpadvise_trial *trials;
    uint32_t *of; /* [count] index of each trial's family */
    uint32_t count;
} probe;

static rp_status probe_begin(rpadvise_search *s, uint32_t room, probe *p)
{
    *p = (probe){.search = s};
    RP_TRY(rp_arena_alloc(s->arena, room, sizeof *p->trials, &p->trials));
    return rp_arena_alloc(s->arena, room, sizeof *p->of, &p->of);
}

static void probe_add(probe *p, uint32_t family, uint32_t microbatches)
{
    const rpadvise_candidate *c = &p->search->families[family].candidate;
    rpadvise_trial *trial = &p->trials[p->count];
    *trial = (rpadvise_trial){.candidate = *c, .manner = rpadvise_shortly(c)};
    trial->manner.free_batch = true;
    trial->manner.period_only = true;
    trial->candidate.run.microbatches = microbatches;
    p->of[p->count++] = family;
}

static rp_status probe_run(probe *p, const char *what)
{
    p->count = rpadvise_allowed(p->search, p->count);
    return rpadvise_try(p->search->bench, p->trials, p->count, what);
}

/* Adds the next larger size of every family of [begin, end) that fits, unless the batch forbids it.
 */
static rp_status double_sizes(rpadvise_search *s, uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; i < end; i++) {
        const rpadvise_family *f = &s->families[i];
        uint32_t size = 2 * f->candidate.run.microbatch_size;
        rpadvise_candidate twice = f->candidate;
        twice.run.microbatch_size = size;
        uint32_t n = rpadvise_places(s, &twice);
        uint32_t batch = s->given->global_batch / rpadvise_copies(&twice);
        uint32_t target = rpadvise_target(s, &twice);
        uint32_t least = f->least < n ? rpadvise_least(f->least, target) : f->least;
        bool allowed_size = batch != 0 ? size <= batch : least != 0 && target >= least;
        if (f->at_n.fits && size <= LARGEST_SIZE && allowed_size) {
            const rpadvise_family larger = {.candidate = twice, .least = least};
            RP_TRY(rpadvise_families_add(s, &larger, 1));
        }
    }
    return RP_OK;
}

static uint32_t first_point(const rpadvise_search *s, const rpadvise_family *f)
{
    return rpadvise_least(rpadvise_target(s, &f->candidate), f->least);
}

static void take_first(const rpadvise_search *s, rpadvise_family *f, const rpadvise_outcome *o)
{
    f->at_n = *o;
    f->estimate = o->fits ? o->tokens_per_s : 0;
    if (o->ran) {
        uint32_t target = rpadvise_target(s, &f->candidate);
        f->candidate.run.microbatches = target > f->least ? target : first_point(s, f);
    }
}

/* @return true if the family must be tried with 2 N microbatches, as schedules that fill the
 * pipeline from both ends need */
static bool wants_more(const rpadvise_search *s, const rpadvise_family *f)
{
    uint32_t n = rpadvise_places(s, &f->candidate);
    return !f->at_n.ran && f->least == n && f->candidate.run.microbatch_size == 1 &&
           rpadvise_target(s, &f->candidate) >= 2 * n;
}

/* @return true if the family must be tried with a single microbatch. That helps only if the batch
 * is free: calls follow each other without a gap, so that a given batch in more calls of fewer
 * microbatches holds as many activations. */
static bool wants_fewer(const rpadvise_search *s, const rpadvise_family *f)
{
    return s->given->global_batch == 0 && f->at_n.ran && !f->at_n.fits && f->least > 1 &&
           f->candidate.run.microbatch_size == 1;
}

/* Tries families that do not fit with more microbatches with a single microbatch. */
static rp_status try_at_one(rpadvise_search *s, uint32_t begin, uint32_t end)
{
    probe p;
    RP_TRY(probe_begin(s, end - begin, &p));
    for (uint32_t i = begin; i < end; i++) {
        if (wants_fewer(s, &s->families[i])) {
            probe_add(&p, i, 1);
        }
    }
    RP_TRY(probe_run(&p, "what fits"));
    for (uint32_t i = 0; i < p.count; i++) {
        rpadvise_family *f = &s->families[p.of[i]];
        f->at_one = p.trials[i].outcome;
        if (f->at_one.fits) {
            f->least = 1;
            take_first(s, f, &f->at_one);
        }
    }
    return RP_OK;
}

static rp_status try_at_n(rpadvise_search *s, uint32_t begin, uint32_t end)
{
    probe p;
    RP_TRY(probe_begin(s, end - begin, &p));
    for (uint32_t i = begin; i < end; i++) {
        probe_add(&p, i, first_point(s, &s->families[i]));
    }
    RP_TRY(probe_run(&p, "what fits"));
    for (uint32_t i = 0; i < p.count; i++) {
        take_first(s, &s->families[p.of[i]], &p.trials[i].outcome);
    }
    p.count = 0;
    for (uint32_t i = begin; i < end; i++) {
        if (wants_more(s, &s->families[i])) {
            probe_add(&p, i, 2 * rpadvise_places(s, &s->families[i].candidate));
        }
    }
    RP_TRY(probe_run(&p, "what fits"));
    for (uint32_t i = 0; i < p.count; i++) {
        rpadvise_family *f = &s->families[p.of[i]];
        if (p.trials[i].outcome.ran) {
            f->least = 2 * rpadvise_places(s, &f->candidate);
            take_first(s, f, &p.trials[i].outcome);
        }
    }
    return try_at_one(s, begin, end);
}

/* @return tokens per second that no step with the family's compute can exceed */
static double ceiling_of(const rpadvise_family *f)
{
    const rpadvise_outcome *one = &f->at_n;
    double tokens = one->real_share * one->batch * one->seq_len;
    return one->least_s > 0 ? tokens / one->least_s : INFINITY;
}

static uint32_t second_point(const rpadvise_family *f)
{
    return rpadvise_least(2 * f->least, f->candidate.run.microbatches);
}

static void set_estimate(rpadvise_family *f)
{
    const rpadvise_outcome *one = &f->at_n;
    const rpadvise_outcome *two = &f->at_2n;
    if (!two->fits || f->candidate.run.microbatches <= f->least) {
        return;
    }
    double n = f->least;
    double slope = fmax((two->period_s - one->period_s) / n, one->least_s / n);
    double period = two->period_s + slope * (f->candidate.run.microbatches - 2 * n);
    double tokens = (double)f->candidate.run.microbatches * f->candidate.run.microbatch_size *
                    two->seq_len * rpadvise_copies(&f->candidate) * two->real_share;
    f->estimate = period > 0 ? fmax(tokens / period, two->tokens_per_s) : two->tokens_per_s;
}

/* @return the number of microbatches that reach `limit`. Memory is affine in them, so the points at
 * N and 2 N determine it */
static double room_for(uint32_t n, uint64_t at_n, uint64_t at_2n, uint64_t limit)
{
    double slope = ((double)at_2n - (double)at_n) / n;
    bool endless = limit == 0 || slope <= 0;
    return endless ? INFINITY : n + ((double)limit - (double)at_n) / slope;
}

/* Sets the number of microbatches: the target, or as many as memory has room for. */
static void set_microbatches(const rpadvise_search *s, rpadvise_family *f)
{
    const rpadvise_outcome *one = &f->at_n;
    const rpadvise_outcome *two = &f->at_2n;
    double most = fmin(room_for(f->least, one->gpu_bytes, two->gpu_bytes, one->gpu_limit_bytes),
                       room_for(f->least, one->host_bytes, two->host_bytes, one->host_limit_bytes));
    if (two->ran && most < f->candidate.run.microbatches) {
        f->candidate.run.microbatches =
            rpadvise_whole((uint32_t)fmax(most, f->least), rpadvise_places(s, &f->candidate));
    }
}

int rpadvise_compare_families(const void *a, const void *b, void *families)
{
    const rpadvise_family *f = families;
    uint32_t one = *(const uint32_t *)a;
    uint32_t other = *(const uint32_t *)b;
    double lead = f[one].estimate - f[other].estimate;
    return lead > 0 ? -1 : lead < 0 ? 1 : (int)(one > other) - (int)(one < other);
}

/* Tries families at 2 N, the fastest at N first and a quarter at a time, because the first
 * estimates rule later families out by their bounds. */
static rp_status try_at_2n(rpadvise_search *s, uint32_t from, double best)
{
    uint32_t *order = NULL;
    uint32_t count = 0;
    RP_TRY(rp_arena_alloc(s->arena, s->family_count, sizeof *order, &order));
    for (uint32_t i = from; i < s->family_count; i++) {
        const rpadvise_family *f = &s->families[i];
        if (f->at_n.fits && f->candidate.run.microbatches > f->least) {
            order[count++] = i;
        }
    }
    qsort_r(order, count, sizeof *order, rpadvise_compare_families, s->families);
    for (uint32_t begin = 0, end = 0; begin < count; begin = end) {
        probe p;
        end = rpadvise_least(count, begin + count / 4 + 1);
        RP_TRY(probe_begin(s, end - begin, &p));
        for (uint32_t i = begin; i < end; i++) {
            rpadvise_family *f = &s->families[order[i]];
            if (ceiling_of(f) < best) {
                f->pruned = true;
                s->pruned++;
            } else {
                probe_add(&p, order[i], second_point(f));
            }
        }
        RP_TRY(probe_run(&p, "how it scales"));
        for (uint32_t i = 0; i < p.count; i++) {
            rpadvise_family *f = &s->families[p.of[i]];
            f->at_2n = p.trials[i].outcome;
            set_microbatches(s, f);
            set_estimate(f);
            best = f->at_2n.fits ? fmax(best, f->at_2n.tokens_per_s) : best;
        }
    }
    return RP_OK;
}

/* @return true if two grains, or two ways to cut stages, have come to the same program, as with
 * stages of a single layer */
static bool are_one(const rpadvise_family *a, const rpadvise_family *b)
{
    rpadvise_candidate like = b->candidate;
    like.run.layer_grain = a->candidate.run.layer_grain;
    like.run.partition = a->candidate.run.partition;
    const rpadvise_outcome *one = &a->at_n;
    const rpadvise_outcome *other = &b->at_n;
    return rpadvise_candidate_equal(&a->candidate, &like) && one->ran && other->ran &&
           one->ops == other->ops && one->period_s == other->period_s &&
           one->gpu_bytes == other->gpu_bytes && one->host_bytes == other->host_bytes &&
           one->partition[0] != '\0' && strcmp(one->partition, other->partition) == 0;
}

/* Keeps only the first of equal families, from `begin` to the last. */
static void drop_equals(rpadvise_search *s, uint32_t begin)
{
    uint32_t count = begin;
    for (uint32_t i = begin; i < s->family_count; i++) {
        bool known = false;
        for (uint32_t k = begin; k < count && !known; k++) {
            known = are_one(&s->families[k], &s->families[i]);
        }
        if (!known) {
            s->families[count++] = s->families[i];
        }
    }
    s->family_count = count;
}

rp_status rpadvise_families_probe(rpadvise_search *s, uint32_t from, double best, unsigned parts,
                                  bool sizes)
{
    rpadvise_begin_step(s, parts);
    for (uint32_t begin = from, end = s->family_count; begin < end;) {
        RP_TRY(try_at_n(s, begin, end));
        drop_equals(s, begin);
        end = s->family_count;
        RP_TRY(sizes ? double_sizes(s, begin, end) : RP_OK);
        begin = end;
        end = s->family_count;
    }
    rpadvise_begin_step(s, parts);
    return s->brief ? RP_OK : try_at_2n(s, from, best);
}

rp_status rpadvise_families_measure(rpadvise_search *s)
{
    RP_TRY(rpadvise_families_list(s));
    RP_TRY(rpadvise_families_probe(s, 0, 0, 2, !s->brief));
    for (uint32_t i = 0; i < s->family_count && s->brief; i++) {
        if (s->families[i].at_n.fits) {
            return RP_OK;
        }
    }
    s->brief = false; /* nothing fits, so no larger size would have fitted */
    RP_TRY(rpadvise_layouts_measure(s));
    return add_late(s);
}
