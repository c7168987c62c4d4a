#define _GNU_SOURCE /* qsort_r */
#include "sim/rpadvise/search_internal.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SCREENED 512u  /* largest number of runs of step 3 */
#define MOST_FOUND 1024u    /* largest number of runs of step 4 */
#define SCREENED_FIRST 60u  /* families of each optimizer mode for step 3 */
#define SCREENED_PRUNED 12u /* of these, families that cannot be the fastest of both modes */
#define SCREENED_SHARE 0.9  /* share of the best estimate that step 3 asks for */
#define BRIEFLY_SCREENED 8u /* schedules and modes in step 3 of a brief search */
#define BRIEFLY_FOUND 4u    /* of these, in step 4 */
#define FOUND_FIRST 12u     /* runs of each optimizer mode for step 4 */
#define FOUND_SHARE 0.97    /* share of the best short run of its schedule and mode */
#define RIVAL_SHARE 0.25    /* share of the best: slower schedules are not run in full */
#define REFINED 3u          /* runs of each optimizer mode whose neighbours are tried */
#define MOST_NEIGHBOURS 8u
#define MOST_ROUNDS 4u            /* rounds of neighbours, while new neighbours appear */
#define SYNCHRONOUS_ITERATIONS 2u /* all iterations are equal */

/* ---- order ----------------------------------------------------------------------------------- */

/* Orders runs: runs that fit go first, then the faster, then the synchronous; equal runs keep the
 * order in which the search found them. */
static int compare_trials(const void *a, const void *b)
{
    const rpadvise_trial *one = a;
    const rpadvise_trial *other = b;
    if (one->outcome.fits != other->outcome.fits) {
        return one->outcome.fits ? -1 : 1;
    }
    double lead = one->outcome.tokens_per_s - other->outcome.tokens_per_s;
    int late = (int)one->candidate.run.asynchronous - (int)other->candidate.run.asynchronous;
    return lead > 0 ? -1 : lead < 0 ? 1 : late;
}

static void insert_sorted(rpadvise_trial *trials, uint32_t *count, const rpadvise_trial *trial)
{
    uint32_t at = *count;
    while (at > 0 && compare_trials(&trials[at - 1], trial) > 0) {
        trials[at] = trials[at - 1];
        at--;
    }
    trials[at] = *trial;
    (*count)++;
}

/* ---- step 3: at the batch that is asked for -------------------------------------------------- */

typedef struct worklist {
    rpadvise_trial *trials; /* [MOST_SCREENED] */
    uint32_t count;
    uint32_t begin; /* first of the trials that have not run */
} worklist;

static void push(worklist *w, const rpadvise_candidate *c)
{
    for (uint32_t i = 0; i < w->count; i++) {
        if (rpadvise_candidate_equal(&w->trials[i].candidate, c)) {
            return;
        }
    }
    if (w->count < MOST_SCREENED) {
        rpadvise_trial *trial = &w->trials[w->count++];
        *trial = (rpadvise_trial){.candidate = *c, .manner = rpadvise_shortly(c)};
        trial->manner.period_only = true;
    }
}

/* Adds runs with as many microbatches as a call has room for, in as many calls as the batch needs.
 * If the batch is free, a single call is tried, too. */
static void push_calls(const rpadvise_search *s, worklist *w, const rpadvise_family *f)
{
    uint32_t n = rpadvise_places(s, &f->candidate);
    uint32_t target = rpadvise_target(s, &f->candidate);
    uint32_t most = f->candidate.run.microbatches;
    rpadvise_candidate c = f->candidate;
    if (s->given->global_batch == 0) {
        push(w, &c);
        c.run.accumulate = target / most;
    } else if (target > most) {
        c.run.accumulate = (target + most - 1) / most;
        uint32_t each = (target + c.run.accumulate - 1) / c.run.accumulate;
        uint32_t whole = rpadvise_multiple(each + n - 1, n);
        uint32_t batch = s->given->global_batch / rpadvise_copies(&c);
        bool room = (uint64_t)whole * c.run.accumulate <= batch;
        c.run.microbatches = room ? whole : each;
    }
    if (c.run.accumulate > 1 || s->given->global_batch != 0) {
        push(w, &c);
    }
}

/* Adds a smaller run in place of a run that does not fit after all: more calls for a given batch, a
 * smaller batch if it is free. */
static void push_smaller(const rpadvise_search *s, worklist *w, const rpadvise_candidate *c)
{
    uint32_t n = rpadvise_places(s, c);
    rpadvise_candidate next = *c;
    if (s->given->global_batch != 0) {
        next.run.microbatches = rpadvise_multiple(c->run.microbatches / 2 + n - 1, n);
        next.run.accumulate *= 2;
    } else {
        next.run.microbatches = c->run.accumulate > 1 && c->run.microbatches > n
                                    ? c->run.microbatches - n
                                    : rpadvise_whole(c->run.microbatches / 2, n);
    }
    if (next.run.microbatches > 0 && next.run.microbatches < c->run.microbatches) {
        push(w, &next);
    }
}

/* Chooses the best estimates of each optimizer mode, the best family of each schedule and mode, and
 * the families that no other beats in both speed and memory. */
static rp_status choose(rpadvise_search *s, worklist *w)
{
    uint32_t *order = NULL;
    uint32_t chosen[2] = {0};
    double best[2] = {0};
    uint64_t smallest = UINT64_MAX;
    RP_TRY(rp_arena_alloc(s->arena, s->family_count, sizeof *order, &order));
    for (uint32_t i = 0; i < s->family_count; i++) {
        order[i] = i;
    }
    qsort_r(order, s->family_count, sizeof *order, rpadvise_compare_families, s->families);
    for (uint32_t i = 0; i < s->family_count; i++) {
        const rpadvise_family *f = &s->families[order[i]];
        int mode = f->candidate.run.asynchronous;
        best[mode] = best[mode] > 0 ? best[mode] : f->estimate;
        if (!(f->estimate > RIVAL_SHARE / 2 * s->families[order[0]].estimate)) {
            break;
        }
        bool first = true;
        for (uint32_t k = 0; k < w->count && first; k++) {
            first = !rpadvise_candidate_same_mode(&w->trials[k].candidate, &f->candidate);
        }
        bool small = f->at_n.gpu_bytes < smallest;
        smallest = small ? f->at_n.gpu_bytes : smallest;
        bool promising = f->estimate > SCREENED_SHARE * best[mode];
        uint32_t most = f->pruned ? SCREENED_PRUNED : SCREENED_FIRST;
        if (s->brief && w->count >= BRIEFLY_SCREENED) {
            break;
        }
        if (first || (!s->brief && (small || (promising && chosen[mode] < most)))) {
            chosen[mode]++;
            push_calls(s, w, f);
        }
    }
    return RP_OK;
}

static rp_status screen(rpadvise_search *s)
{
    worklist w = {0};
    RP_TRY(rp_arena_alloc(s->arena, MOST_SCREENED, sizeof *w.trials, &w.trials));
    RP_TRY(choose(s, &w));
    while (w.begin < w.count) {
        uint32_t begin = w.begin;
        w.count = begin + rpadvise_allowed(s, w.count - begin);
        if (w.count == begin) {
            break;
        }
        RP_TRY(rpadvise_try(s->bench, &w.trials[begin], w.count - begin, "the batch asked for"));
        w.begin = w.count;
        for (uint32_t i = begin, end = w.count; i < end; i++) {
            if (w.trials[i].outcome.ran && !w.trials[i].outcome.fits) {
                push_smaller(s, &w, &w.trials[i].candidate);
            }
        }
    }
    RP_TRY(rp_arena_alloc(s->arena, MOST_SCREENED, sizeof *s->screened, &s->screened));
    for (uint32_t i = 0; i < w.begin; i++) {
        insert_sorted(s->screened, &s->screened_count, &w.trials[i]);
    }
    return RP_OK;
}

/* ---- step 4: as rpsim runs them -------------------------------------------------------------- */

const rpadvise_trial *rpadvise_search_find(const rpadvise_search *search,
                                           const rpadvise_candidate *candidate)
{
    for (uint32_t i = 0; i < search->found_count; i++) {
        if (rpadvise_candidate_equal(&search->found[i].candidate, candidate)) {
            return &search->found[i];
        }
    }
    return NULL;
}

/* @return true if another way to cut stages has already given the same stages */
static bool same_stages(const rpadvise_search *s, const rpadvise_trial *trial)
{
    for (uint32_t i = 0; i < s->found_count; i++) {
        rpadvise_candidate other = s->found[i].candidate;
        other.run.partition = trial->candidate.run.partition;
        if (rpadvise_candidate_equal(&other, &trial->candidate) &&
            strcmp(s->found[i].outcome.partition, trial->outcome.partition) == 0) {
            return true;
        }
    }
    return false;
}

rp_status rpadvise_search_add(rpadvise_search *s, const rpadvise_candidate *candidates,
                              uint32_t count)
{
    rpadvise_trial *trials = NULL;
    uint32_t wanted = 0;
    RP_TRY(rp_arena_alloc(s->arena, count, sizeof *trials, &trials));
    for (uint32_t i = 0; i < count; i++) {
        if (rpadvise_search_find(s, &candidates[i]) == NULL) {
            trials[wanted++] = (rpadvise_trial){
                .candidate = candidates[i],
                .manner = {.iterations =
                               candidates[i].run.asynchronous ? 0 : SYNCHRONOUS_ITERATIONS,
                           .period_only = true}};
        }
    }
    wanted = rpadvise_least(rpadvise_allowed(s, wanted), MOST_FOUND - s->found_count);
    RP_TRY(rpadvise_try(s->bench, trials, wanted, "the best"));
    for (uint32_t i = 0; i < wanted; i++) {
        if (trials[i].outcome.ran && !same_stages(s, &trials[i])) {
            insert_sorted(s->found, &s->found_count, &trials[i]);
        }
    }
    return RP_OK;
}

/* @return tokens/s of the best short run of the candidate's schedule and mode; 0: there is none */
static double best_short(const rpadvise_search *s, const rpadvise_candidate *c)
{
    for (uint32_t i = 0; i < s->screened_count && s->screened[i].outcome.fits; i++) {
        if (rpadvise_candidate_same_mode(&s->screened[i].candidate, c)) {
            return s->screened[i].outcome.tokens_per_s;
        }
    }
    return 0;
}

/* Keeps the candidates that short runs show to be about as fast as the best of their schedule and
 * mode. Synchronous candidates are all kept: their full runs are short, too. */
static rp_status keep_near(rpadvise_search *s, rpadvise_candidate *candidates, uint32_t *count)
{
    rpadvise_trial *trials = NULL;
    uint32_t kept = 0;
    uint32_t wanted = 0;
    RP_TRY(rp_arena_alloc(s->arena, *count, sizeof *trials, &trials));
    for (uint32_t i = 0; i < *count; i++) {
        if (!candidates[i].run.asynchronous) {
            candidates[kept++] = candidates[i];
        } else if (rpadvise_search_find(s, &candidates[i]) == NULL) {
            trials[wanted] = (rpadvise_trial){.candidate = candidates[i],
                                              .manner = rpadvise_shortly(&candidates[i])};
            trials[wanted++].manner.period_only = true;
        }
    }
    wanted = rpadvise_allowed(s, wanted);
    RP_TRY(rpadvise_try(s->bench, trials, wanted, "neighbours"));
    for (uint32_t i = 0; i < wanted; i++) {
        const rpadvise_outcome *o = &trials[i].outcome;
        if (o->fits && o->tokens_per_s >= FOUND_SHARE * best_short(s, &trials[i].candidate)) {
            candidates[kept++] = trials[i].candidate;
        }
    }
    *count = kept;
    return RP_OK;
}

/* Runs in full the first of the screened runs of each optimizer mode, and the first of each
 * schedule that comes near. */
static rp_status run_best(rpadvise_search *s)
{
    rpadvise_candidate best[MOST_SCREENED] = {0};
    uint32_t count = 0;
    uint32_t chosen[2] = {0};
    for (uint32_t i = 0; i < s->screened_count && s->screened[i].outcome.fits; i++) {
        const rpadvise_trial *t = &s->screened[i];
        bool rival = t->outcome.tokens_per_s > RIVAL_SHARE * s->screened[0].outcome.tokens_per_s;
        for (uint32_t k = 0; k < count && rival; k++) {
            rival = !rpadvise_candidate_same_mode(&best[k], &t->candidate);
        }
        uint32_t *of_mode = &chosen[t->candidate.run.asynchronous];
        bool near = t->outcome.tokens_per_s >= FOUND_SHARE * best_short(s, &t->candidate);
        if (s->brief && count >= BRIEFLY_FOUND) {
            break;
        }
        if (((*of_mode)++ < FOUND_FIRST && near) || rival) {
            best[count++] = t->candidate;
        }
    }
    return rpadvise_search_add(s, best, count);
}

bool rpadvise_search_fits(const rpadvise_search *s)
{
    return s->found_count != 0 && s->found[0].outcome.fits;
}

static bool mode_fits(const rpadvise_search *s, const rpadvise_candidate *c)
{
    for (uint32_t i = 0; i < s->found_count && s->found[i].outcome.fits; i++) {
        if (rpadvise_candidate_same_mode(&s->found[i].candidate, c)) {
            return true;
        }
    }
    return false;
}

/* Lists the asynchronous candidates: first the screened runs that fit, then the families, best
 * first. */
static rp_status list_others(const rpadvise_search *s, rpadvise_candidate **others_out,
                             uint32_t *count_out)
{
    uint32_t *order = NULL;
    uint32_t count = 0;
    RP_TRY(rp_arena_alloc(s->arena, s->family_count, sizeof *order, &order));
    RP_TRY(rp_arena_alloc(s->arena, s->screened_count + s->family_count, sizeof **others_out,
                          others_out));
    for (uint32_t i = 0; i < s->family_count; i++) {
        order[i] = i;
    }
    qsort_r(order, s->family_count, sizeof *order, rpadvise_compare_families, s->families);
    for (uint32_t i = 0; i < s->screened_count && s->screened[i].outcome.fits; i++) {
        if (s->screened[i].candidate.run.asynchronous) {
            (*others_out)[count++] = s->screened[i].candidate;
        }
    }
    for (uint32_t i = 0; i < s->family_count; i++) {
        const rpadvise_family *f = &s->families[order[i]];
        bool near = f->estimate > RIVAL_SHARE / 2 * s->families[order[0]].estimate;
        if (near && f->candidate.run.asynchronous) {
            (*others_out)[count++] = f->candidate;
        }
    }
    *count_out = count;
    return RP_OK;
}

/* Runs further asynchronous candidates. A short run may fit, and be faster, although the full run
 * does not fit: for each schedule whose full run does not fit, the next candidate is run, until a
 * run fits. */
static rp_status run_others(rpadvise_search *s)
{
    rpadvise_candidate *others = NULL;
    rpadvise_candidate *next = NULL;
    uint32_t left = 0;
    RP_TRY(list_others(s, &others, &left));
    RP_TRY(rp_arena_alloc(s->arena, left, sizeof *next, &next));
    while (left != 0 && !(s->brief && rpadvise_search_fits(s))) {
        uint32_t count = 0;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < left; i++) {
            bool first = true;
            for (uint32_t k = 0; k < count && first; k++) {
                first = !rpadvise_candidate_same_mode(&next[k], &others[i]);
            }
            if (mode_fits(s, &others[i]) || rpadvise_search_find(s, &others[i]) != NULL) {
                continue;
            }
            if (first) {
                next[count++] = others[i];
            } else {
                others[kept++] = others[i];
            }
        }
        left = kept;
        RP_TRY(rpadvise_search_add(s, next, count));
    }
    return RP_OK;
}

/* Lists the neighbours of a candidate, which differ in a single option and have about the same
 * batch. */
static uint32_t neighbours(const rpadvise_search *s, const rpadvise_candidate *c,
                           rpadvise_candidate out[static MOST_NEIGHBOURS])
{
    uint32_t n = rpadvise_places(s, c);
    uint32_t count = 0;
    for (uint32_t i = 0; i < MOST_NEIGHBOURS; i++) {
        out[i] = *c;
    }
    if (c->schedule->separate_backward && c->run.partition == NULL) {
        out[count++].run.partition = "auto";
    }
    if (c->run.microbatches % (2 * n) == 0) {
        out[count].run.accumulate = 2 * c->run.accumulate;
        out[count++].run.microbatches = c->run.microbatches / 2;
        out[count].run.microbatch_size = 2 * c->run.microbatch_size;
        out[count++].run.microbatches = c->run.microbatches / 2;
    }
    if (c->run.microbatch_size % 2 == 0) {
        out[count].run.microbatch_size = c->run.microbatch_size / 2;
        out[count++].run.microbatches = 2 * c->run.microbatches;
        out[count].run.microbatch_size = c->run.microbatch_size / 2 * 3;
        out[count++].run.microbatches = rpadvise_multiple(c->run.microbatches * 2 / 3 + n - 1, n);
    }
    if (s->given->global_batch == 0 && c->run.microbatches >= 4 * n) {
        out[count++].run.microbatches = rpadvise_multiple(c->run.microbatches * 3 / 4, n);
    }
    return count;
}

static bool within_batch(const rpadvise_search *s, const rpadvise_candidate *c, uint32_t seq_len)
{
    uint64_t units = (uint64_t)c->run.microbatches * c->run.accumulate * rpadvise_copies(c);
    if (s->given->global_batch != 0) {
        return units <= s->given->global_batch;
    }
    return units * c->run.microbatch_size * seq_len <= s->options->max_step_tokens;
}

/* Runs the neighbours of the first runs of each optimizer mode. */
static rp_status refine(rpadvise_search *s)
{
    rpadvise_candidate all[2 * MOST_NEIGHBOURS * REFINED] = {0};
    uint32_t count = 0;
    uint32_t refined[2] = {0};
    for (uint32_t i = 0; i < s->found_count && s->found[i].outcome.fits; i++) {
        rpadvise_candidate near[MOST_NEIGHBOURS];
        if (refined[s->found[i].candidate.run.asynchronous]++ >= REFINED) {
            continue;
        }
        uint32_t found = neighbours(s, &s->found[i].candidate, near);
        for (uint32_t k = 0; k < found; k++) {
            if (within_batch(s, &near[k], s->found[i].outcome.seq_len)) {
                all[count++] = near[k];
            }
        }
    }
    RP_TRY(keep_near(s, all, &count));
    return rpadvise_search_add(s, all, count);
}

/* Does steps 3 and 4, without neighbours. */
static rp_status find_best(rpadvise_search *s)
{
    RP_TRY(rp_arena_alloc(s->arena, MOST_FOUND, sizeof *s->found, &s->found));
    rpadvise_begin_step(s, 2);
    RP_TRY(screen(s));
    rpadvise_begin_step(s, 1);
    RP_TRY(run_best(s));
    return run_others(s);
}

rp_status rpadvise_search_run(const rpadvise_options *options, uint32_t gpus, uint32_t seq_len,
                              rpadvise_bench *bench, rp_arena *arena, rpadvise_search *search_out)
{
    rpadvise_search *s = search_out;
    *s = (rpadvise_search){.options = options,
                           .given = &bench->work->run,
                           .bench = bench,
                           .arena = arena,
                           .gpus = gpus,
                           .seq_len = seq_len};
    RP_TRY(rpadvise_families_measure(s));
    RP_TRY(find_best(s));
    for (uint32_t round = 0, before = 0; round < MOST_ROUNDS && s->found_count != before; round++) {
        before = s->found_count;
        RP_TRY(refine(s));
    }
    return rpadvise_partitions_improve(s);
}

rp_status rpadvise_search_shortly(const rpadvise_options *options, uint32_t gpus, uint32_t seq_len,
                                  rpadvise_bench *bench, rp_arena *arena,
                                  rpadvise_search *search_out)
{
    rpadvise_search *s = search_out;
    *s = (rpadvise_search){.options = options,
                           .given = &bench->work->run,
                           .bench = bench,
                           .arena = arena,
                           .gpus = gpus,
                           .seq_len = seq_len,
                           .brief = true};
    RP_TRY(rpadvise_families_measure(s));
    RP_TRY(find_best(s));
    return s->brief && !rpadvise_search_fits(s)
               ? rpadvise_search_run(options, gpus, seq_len, bench, arena, search_out)
               : RP_OK;
}
