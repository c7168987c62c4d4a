#include "sim/rpadvise/advice_internal.h"
#include "sim/rpadvise/search_internal.h"
#include "sim/study/columns.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NEARLY 1e-6 /* weight of the smaller shortfall, to order equal larger shortfalls */

/* ---- rows ------------------------------------------------------------------------------------ */

/* @return true if there is a row of this mode. For an asynchronous run, a synchronous row of its
 * schedule that is as fast counts, too: stale weights buy nothing then. */
static bool has_row(const rpadvise_advice *a, const rpadvise_trial *trial)
{
    for (uint32_t i = 0; i < a->row_count; i++) {
        const rpadvise_trial *row = a->rows[i].trial;
        bool as_fast = trial->candidate.run.asynchronous && !row->candidate.run.asynchronous &&
                       trial->candidate.schedule == row->candidate.schedule;
        if (as_fast || rpadvise_candidate_same_mode(&row->candidate, &trial->candidate)) {
            return true;
        }
    }
    return false;
}

/* Copies a trial: the order and times of `found` may change while runs are added. */
static rp_status keep(rp_arena *arena, const rpadvise_trial *trial, const rpadvise_trial **copy_out)
{
    rpadvise_trial *copy = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *copy, &copy));
    *copy = *trial;
    *copy_out = copy;
    return RP_OK;
}

static rp_status choose_rows(rpadvise_advice *a)
{
    const rpadvise_search *s = a->search;
    RP_TRY(rp_arena_alloc(s->arena, s->options->top, sizeof *a->rows, &a->rows));
    for (uint32_t i = 0; i < s->found_count && a->row_count < s->options->top; i++) {
        const rpadvise_trial *t = &s->found[i];
        if (t->outcome.fits && !has_row(a, t)) {
            rpadvise_row *row = &a->rows[a->row_count];
            *row = (rpadvise_row){.decided = true, .hours = NAN, .kwh = NAN, .usd = NAN};
            RP_TRY(keep(s->arena, t, &row->trial));
            a->row_count++;
        }
    }
    return RP_OK;
}

rp_status rpadvise_row_run(const rpadvise_search *s, rpadvise_row *row)
{
    static const rpadvise_manner as_it_is = {0};
    const rpadvise_candidate *c = &row->trial->candidate;
    const rpadvise_manner drawn = {.iterations = c->run.asynchronous ? 6 : 2, .intervals = true};
    rpsim_study draws;
    RP_TRY(rpadvise_study(s->bench, c, &as_it_is, s->arena, &row->study));
    rp_status status = rpadvise_study(s->bench, c, &drawn, s->arena, &draws);
    if (status == RP_OK) {
        row->study.rows[0].intervals = draws.rows[0].intervals;
    }
    rpsim_study_fini(&draws);
    return status;
}

static rp_status set_systems(const rpadvise_search *s, rpadvise_row *row)
{
    const rpadvise_systems *systems = s->bench->systems;
    RP_TRY(rp_arena_alloc(s->arena, systems->name_count, sizeof *row->systems, &row->systems));
    for (uint32_t i = 0; i < systems->name_count; i++) {
        const char *why = NULL;
        if (rpadvise_runs(systems, systems->names[i], &row->study.rows[0], &why)) {
            row->systems[row->system_count++] = systems->names[i];
        }
    }
    return RP_OK;
}

static rp_status run_rows(rpadvise_advice *a)
{
    const rpadvise_search *s = a->search;
    const rpadvise_options *o = s->options;
    for (uint32_t i = 0; i < a->row_count; i++) {
        rpadvise_row *row = &a->rows[i];
        RP_TRY(rpadvise_candidate_command(s->bench->work, &row->trial->candidate, s->arena,
                                          &row->command));
        RP_TRY(rpadvise_row_run(s, row));
        RP_TRY(set_systems(s, row));
        row->study.rows[0].rank = i + 1;
        row->hours = o->tokens > 0 ? o->tokens / row->trial->outcome.tokens_per_s / 3600 : NAN;
        row->kwh = o->watts > 0 ? rpsim_kwh(o->watts, row->hours) : NAN;
        row->usd =
            o->usd_per_hour > 0 || o->usd_per_kwh > 0
                ? o->usd_per_hour * row->hours + o->usd_per_kwh * rpsim_kwh(o->watts, row->hours)
                : NAN;
    }
    for (uint32_t i = 0; i + 1 < a->row_count; i++) {
        const rpsim_row *one = &a->rows[i].study.rows[0];
        const rpsim_row *next = &a->rows[i + 1].study.rows[0];
        if (one->intervals != NULL && next->intervals != NULL) {
            a->rows[i].decision = rpsim_decide(one->intervals, rpsim_row_tokens_per_s(one),
                                               next->intervals, rpsim_row_tokens_per_s(next));
            a->rows[i].decided = a->rows[i].decision.decided;
        }
    }
    return RP_OK;
}

/* ---- fronts ---------------------------------------------------------------------------------- */

static rp_status set_memory_front(rpadvise_advice *a)
{
    const rpadvise_search *s = a->search;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < s->found_count && a->memory_count < RPADVISE_MOST_POINTS; i++) {
        const rpadvise_trial *t = &s->found[i];
        bool smaller = (double)t->outcome.gpu_bytes < 0.95 * (double)least;
        if (t->outcome.fits && smaller) {
            least = t->outcome.gpu_bytes;
            RP_TRY(keep(s->arena, t, &a->memory_front[a->memory_count++]));
        }
    }
    return RP_OK;
}

static rp_status set_staleness(rpadvise_advice *a)
{
    const rpadvise_search *s = a->search;
    for (uint32_t i = 0; i < s->found_count; i++) {
        const rpadvise_trial *t = &s->found[i];
        const rpadvise_trial **place = t->candidate.run.asynchronous ? &a->late : &a->fresh;
        if (t->outcome.fits && *place == NULL) {
            RP_TRY(keep(s->arena, t, place));
        }
    }
    return RP_OK;
}

/* Tries half as many microbatches, and so on down to a single microbatch per GPU. */
static rp_status set_batch_front(rpadvise_search *s, rpadvise_advice *a)
{
    rpadvise_candidate smaller[RPADVISE_MOST_POINTS] = {0};
    uint32_t count = 0;
    rpadvise_candidate c = a->rows[0].trial->candidate;
    c.run.microbatches *= c.run.accumulate;
    c.run.accumulate = 1;
    rpadvise_drop_list(&c);
    uint32_t n = rpadvise_places(s, &c);
    while (c.run.microbatches / 2 >= n && count < RPADVISE_MOST_POINTS) {
        c.run.microbatches = c.run.microbatches / 2 / n * n;
        smaller[count++] = c;
    }
    RP_TRY(rpadvise_search_add(s, smaller, count));
    for (uint32_t i = 0; i < count; i++) {
        const rpadvise_trial *t = rpadvise_search_find(s, &smaller[i]);
        if (t != NULL && t->outcome.fits) {
            RP_TRY(keep(s->arena, t, &a->batch_front[a->batch_count++]));
        }
    }
    return RP_OK;
}

/* ---- reasons against the other schedules ----------------------------------------------------- */

double rpadvise_shortfall(const rpadvise_outcome *o)
{
    double gpu = (double)o->gpu_bytes / (double)o->gpu_limit_bytes;
    double host =
        o->host_limit_bytes != 0 ? (double)o->host_bytes / (double)o->host_limit_bytes : 0;
    return fmax(gpu, host) + NEARLY * fmin(gpu, host);
}

const rpadvise_outcome *rpadvise_least_of(const rpadvise_family *f)
{
    bool one = f->at_one.ran && rpadvise_shortfall(&f->at_one) < rpadvise_shortfall(&f->at_n);
    return one ? &f->at_one : &f->at_n;
}

static void note_family(rpadvise_note *note, const rpadvise_family *f, rpadvise_candidate *best)
{
    if (f->at_n.fits) {
        if (f->estimate > note->tokens_per_s) {
            note->reason = RPADVISE_REASON_SLOWER;
            note->tokens_per_s = f->estimate;
            *best = f->candidate;
        }
    } else if (f->at_n.ran && note->tokens_per_s <= 0) {
        bool first = note->reason != RPADVISE_REASON_MEMORY;
        const rpadvise_outcome *least = rpadvise_least_of(f);
        note->best = first || rpadvise_shortfall(least) < rpadvise_shortfall(&note->best)
                         ? *least
                         : note->best;
        note->reason = RPADVISE_REASON_MEMORY;
    } else if (note->reason == RPADVISE_REASON_UNTRIED && f->at_n.cause[0] != '\0') {
        note->reason = RPADVISE_REASON_REFUSED;
        note->best = f->at_n;
    }
}

/* Looks through the runs of a mode. @return true if a run fits; otherwise `least` gets the run that
 * needs least */
static bool look_through(const rpadvise_trial *trials, uint32_t count, const rpadvise_candidate *c,
                         const rpadvise_outcome **least)
{
    for (uint32_t i = 0; i < count; i++) {
        const rpadvise_outcome *o = &trials[i].outcome;
        if (!o->ran || !rpadvise_candidate_same_mode(&trials[i].candidate, c)) {
            continue;
        }
        if (o->fits) {
            return true;
        }
        bool less = *least == NULL || rpadvise_shortfall(o) < rpadvise_shortfall(*least);
        *least = less ? o : *least;
    }
    return false;
}

/* @return the family with the outcome of its longest runs: a run that fits in few iterations may
 * not fit in more */
static rpadvise_family as_run(const rpadvise_search *s, const rpadvise_family *family)
{
    rpadvise_family f = *family;
    const rpadvise_outcome *least = NULL;
    bool fits =
        look_through(s->found, s->found_count, &f.candidate, &least) ||
        (least == NULL && look_through(s->screened, s->screened_count, &f.candidate, &least));
    if (f.at_n.fits && !fits && least != NULL) {
        f.at_n = *least;
        f.at_one = (rpadvise_outcome){0};
    }
    return f;
}

static void note_runs(const rpadvise_advice *a, rpadvise_note *note, rpadvise_candidate *best)
{
    const rpadvise_search *s = a->search;
    bool known = false;
    for (uint32_t i = 0; i < s->found_count && !known; i++) {
        known = s->found[i].candidate.schedule == note->schedule && s->found[i].outcome.fits;
        if (known) {
            note->tokens_per_s = s->found[i].outcome.tokens_per_s;
            *best = s->found[i].candidate;
        }
    }
    for (uint32_t i = 0; i < s->screened_count && !known; i++) {
        known = s->screened[i].candidate.schedule == note->schedule &&
                !s->screened[i].candidate.run.asynchronous && s->screened[i].outcome.fits;
        if (known) {
            note->tokens_per_s = s->screened[i].outcome.tokens_per_s;
            *best = s->screened[i].candidate;
        }
    }
    for (uint32_t i = 0; i < a->software_count; i++) { /* a search of its own may find more */
        const rpadvise_trial *t = a->software[i].trial;
        if (t->candidate.schedule == note->schedule &&
            t->outcome.tokens_per_s > note->tokens_per_s) {
            note->tokens_per_s = t->outcome.tokens_per_s;
            note->reason = RPADVISE_REASON_SLOWER;
            *best = t->candidate;
        }
    }
}

static bool schedule_has_row(const rpadvise_advice *a, const rp_schedule_type *schedule)
{
    for (uint32_t i = 0; i < a->row_count; i++) {
        if (a->rows[i].trial->candidate.schedule == schedule) {
            return true;
        }
    }
    return false;
}

/* Runs the slower schedules at two microbatches per GPU to find the causes of their waiting. */
static rp_status explain_notes(rpadvise_advice *a, const rpadvise_candidate *best)
{
    const rpadvise_search *s = a->search;
    rpadvise_trial *trials = NULL;
    RP_TRY(rp_arena_alloc(s->arena, a->note_count, sizeof *trials, &trials));
    uint32_t count = 0;
    for (uint32_t i = 0; i < a->note_count; i++) {
        if (a->notes[i].reason == RPADVISE_REASON_SLOWER) {
            rpadvise_trial *t = &trials[count++];
            *t = (rpadvise_trial){.candidate = best[i],
                                  .manner = {.iterations = 1, .explain = true}};
            uint32_t most = 2 * rpadvise_places(s, &best[i]);
            if (s->given->global_batch == 0 && t->candidate.run.microbatches > most) {
                t->candidate.run.microbatches = most;
                t->candidate.run.accumulate = 1;
            }
        }
    }
    RP_TRY(rpadvise_try(s->bench, trials, count, "why not the others"));
    for (uint32_t i = 0, k = 0; i < a->note_count; i++) {
        if (a->notes[i].reason == RPADVISE_REASON_SLOWER) {
            a->notes[i].best = trials[k++].outcome;
        }
    }
    return RP_OK;
}

/* @return whether a note precedes another: first the slower schedules, the fastest of them first;
 * then the schedules that do not fit, the least need first */
static bool goes_before(const rpadvise_note *a, const rpadvise_note *b)
{
    if (a->reason != b->reason) {
        return a->reason < b->reason;
    }
    if (a->reason == RPADVISE_REASON_SLOWER) {
        return a->tokens_per_s > b->tokens_per_s;
    }
    return a->reason == RPADVISE_REASON_MEMORY &&
           rpadvise_shortfall(&a->best) < rpadvise_shortfall(&b->best);
}

static void sort_notes(rpadvise_note *notes, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        rpadvise_note note = notes[i];
        uint32_t at = i;
        while (at > 0 && goes_before(&note, &notes[at - 1])) {
            notes[at] = notes[at - 1];
            at--;
        }
        notes[at] = note;
    }
}

static double best_speed(const rpadvise_advice *a)
{
    return a->row_count != 0 ? a->rows[0].trial->outcome.tokens_per_s : 0;
}

static rp_status make_notes(rpadvise_advice *a)
{
    const rpadvise_search *s = a->search;
    rpadvise_candidate *best = NULL;
    RP_TRY(rp_arena_alloc(s->arena, s->family_count, sizeof *a->notes, &a->notes));
    RP_TRY(rp_arena_alloc(s->arena, s->family_count, sizeof *best, &best));
    for (uint32_t i = 0; i < s->family_count; i++) {
        const rpadvise_family f = as_run(s, &s->families[i]);
        uint32_t at = 0;
        while (at < a->note_count && a->notes[at].schedule != f.candidate.schedule) {
            at++;
        }
        if (schedule_has_row(a, f.candidate.schedule)) {
            continue;
        }
        if (at == a->note_count) {
            a->notes[a->note_count++] = (rpadvise_note){.schedule = f.candidate.schedule,
                                                        .reason = RPADVISE_REASON_UNTRIED};
        }
        note_family(&a->notes[at], &f, &best[at]);
    }
    for (uint32_t i = 0; i < a->note_count; i++) {
        rpadvise_note *note = &a->notes[i];
        note_runs(a, note, &best[i]);
        if (note->reason == RPADVISE_REASON_SLOWER && note->tokens_per_s > best_speed(a)) {
            note->reason = RPADVISE_REASON_UNTRIED; /* in full: the estimate is of short runs */
        }
    }
    RP_TRY(explain_notes(a, best));
    sort_notes(a->notes, a->note_count);
    return RP_OK;
}

/* ---- if nothing fits ------------------------------------------------------------------------- */

rp_status rpadvise_run_least(const rpadvise_search *s, const rpadvise_family *family,
                             rpadvise_trial *trial_out)
{
    *trial_out = (rpadvise_trial){.candidate = family->candidate};
    rpadvise_candidate *c = &trial_out->candidate;
    c->run.microbatches =
        rpadvise_least_of(family)->batch / (c->run.microbatch_size * rpadvise_copies(c));
    c->run.accumulate = 1;
    c->run.global_batch = 0;
    return rpadvise_try(s->bench, trial_out, 1, "the nearest");
}

/* Sets the run that needs least beyond the memory that there is. */
static rp_status set_nearest(rpadvise_advice *a)
{
    static const rpadvise_manner as_it_is = {0};
    const rpadvise_search *s = a->search;
    const rpadvise_family *least = NULL;
    for (uint32_t i = 0; i < s->family_count; i++) {
        const rpadvise_family *f = &s->families[i];
        if (f->at_n.ran && !f->at_n.fits &&
            (least == NULL || rpadvise_shortfall(rpadvise_least_of(f)) <
                                  rpadvise_shortfall(rpadvise_least_of(least)))) {
            least = f;
        }
    }
    if (least == NULL) {
        return RP_OK;
    }
    rpadvise_trial trial;
    RP_TRY(rpadvise_run_least(s, least, &trial));
    const rpadvise_candidate *c = &trial.candidate;
    rpadvise_row *row = NULL;
    RP_TRY(rp_arena_alloc(s->arena, 1, sizeof *row, &row));
    *row = (rpadvise_row){.decided = true, .hours = NAN, .kwh = NAN, .usd = NAN};
    RP_TRY(keep(s->arena, &trial, &row->trial));
    RP_TRY(rpadvise_candidate_command(s->bench->work, c, s->arena, &row->command));
    a->nearest = row;
    RP_TRY(rpadvise_study(s->bench, c, &as_it_is, s->arena, &row->study));
    row->study.rows[0].rank = 1;
    return set_systems(s, row);
}

rp_status rpadvise_advice_make(rpadvise_search *search, rpadvise_advice *advice_out)
{
    rpadvise_advice *a = advice_out;
    *a = (rpadvise_advice){.search = search};
    RP_TRY(choose_rows(a));
    RP_TRY(a->row_count != 0 ? rpadvise_software_find(search, a) : RP_OK);
    RP_TRY(make_notes(a));
    if (a->row_count == 0) {
        a->exhausted = search->cut_short;
        RP_TRY(set_nearest(a));
        return a->exhausted || a->nearest == NULL ? RP_OK : rpadvise_remedies_find(a);
    }
    if (search->given->global_batch == 0) {
        RP_TRY(set_batch_front(search, a));
    }
    RP_TRY(set_memory_front(a));
    RP_TRY(set_staleness(a));
    RP_TRY(run_rows(a));
    RP_TRY(rpadvise_software_draw(a));
    return rpadvise_changes_find(a);
}

rpsim_measured rpadvise_measured(const rpadvise_advice *advice)
{
    rpsim_measured measured = {0};
    for (uint32_t i = 0; i < advice->row_count; i++) {
        rpsim_measured_add(&measured, &advice->rows[i].study.rows[0]);
    }
    return measured;
}

void rpadvise_advice_fini(rpadvise_advice *advice)
{
    for (uint32_t i = 0; i < advice->row_count; i++) {
        rpsim_study_fini(&advice->rows[i].study);
    }
    for (uint32_t i = 0; i < advice->software_count; i++) {
        if (advice->software[i].own != NULL) {
            rpsim_study_fini(&advice->software[i].own->study);
        }
    }
    if (advice->nearest != NULL) {
        rpsim_study_fini(&advice->nearest->study);
    }
}
