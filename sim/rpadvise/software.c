/* The best run of each system that can be told to train. */
#include "sim/rpadvise/advice_internal.h"
#include "sim/rpadvise/search_internal.h"

#include <math.h>
#include <string.h>

/* @return the first of the trials, the fastest first, that fits and that the system can run */
static const rpadvise_trial *first_of(const rpadvise_trial *trials, uint32_t count, uint32_t system)
{
    for (uint32_t i = 0; i < count && trials[i].outcome.fits; i++) {
        if ((trials[i].outcome.systems >> system & 1) != 0) {
            return &trials[i];
        }
    }
    return NULL;
}

/* Searches among the runs that a system can be told to do. */
static rp_status search_again(const rpadvise_search *s, uint32_t system,
                              const rpadvise_trial **best_out)
{
    rpadvise_bench bench = *s->bench;
    rpadvise_search again;
    bench.runnable = bench.systems->names[system];
    RP_TRY(rpadvise_search_run(s->options, s->gpus, s->seq_len, &bench, s->arena, &again));
    s->bench->spent = bench.spent;
    *best_out = rpadvise_search_fits(&again) ? &again.found[0] : NULL;
    return RP_OK;
}

/* Finds the fastest run of a system. A system whose schedules are all much slower than the best has
 * only short runs so far, the best of which is run in full, or none. */
static rp_status find_best(rpadvise_search *s, uint32_t system, const rpadvise_trial **best_out)
{
    *best_out = first_of(s->found, s->found_count, system);
    const rpadvise_trial *short_run = first_of(s->screened, s->screened_count, system);
    if (*best_out == NULL && short_run != NULL) {
        rpadvise_candidate candidate = short_run->candidate;
        RP_TRY(rpadvise_search_add(s, &candidate, 1));
        *best_out = first_of(s->found, s->found_count, system);
    }
    return *best_out == NULL && s->bench->runnable == NULL ? search_again(s, system, best_out)
                                                           : RP_OK;
}

/* Adds a system's name to the software with this run, which may be new. */
static rp_status add(rpadvise_advice *a, const char *name, const rpadvise_trial *trial)
{
    rp_arena *arena = a->search->arena;
    for (uint32_t i = 0; i < a->software_count; i++) {
        rpadvise_software *software = &a->software[i];
        if (rpadvise_candidate_equal(&software->trial->candidate, &trial->candidate)) {
            return rp_arena_print(arena, &software->names, "%s, %s", software->names, name);
        }
    }
    rpadvise_software *software = &a->software[a->software_count++];
    rpadvise_trial *copy = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *copy, &copy));
    *copy = *trial; /* further runs move those of the search */
    *software = (rpadvise_software){.trial = copy};
    return rp_arena_print(arena, &software->names, "%s", name);
}

static void sort(rpadvise_advice *a)
{
    for (uint32_t i = 1; i < a->software_count; i++) {
        rpadvise_software software = a->software[i];
        uint32_t at = i;
        for (; at > 0 && a->software[at - 1].trial->outcome.tokens_per_s <
                             software.trial->outcome.tokens_per_s;
             at--) {
            a->software[at] = a->software[at - 1];
        }
        a->software[at] = software;
    }
}

rp_status rpadvise_software_find(rpadvise_search *s, rpadvise_advice *a)
{
    const rpadvise_systems *systems = s->bench->systems;
    RP_TRY(rp_arena_alloc(s->arena, systems->name_count, sizeof *a->software, &a->software));
    for (uint32_t i = 0; i < systems->name_count; i++) {
        const rpadvise_trial *best = NULL;
        bool asked =
            s->bench->runnable == NULL || strcmp(s->bench->runnable, systems->names[i]) == 0;
        RP_TRY(asked ? find_best(s, i, &best) : RP_OK);
        RP_TRY(best != NULL ? add(a, systems->names[i], best) : RP_OK);
    }
    sort(a);
    return RP_OK;
}

rp_status rpadvise_software_draw(rpadvise_advice *a)
{
    for (uint32_t i = 0; i < a->software_count; i++) {
        rpadvise_software *software = &a->software[i];
        for (uint32_t k = 0; k < a->row_count && software->row == NULL; k++) {
            bool same =
                rpadvise_candidate_equal(&a->rows[k].trial->candidate, &software->trial->candidate);
            software->row = same ? &a->rows[k] : NULL;
        }
        if (software->row == NULL) {
            rpadvise_row *row = NULL;
            RP_TRY(rp_arena_alloc(a->search->arena, 1, sizeof *row, &row));
            *row = (rpadvise_row){.trial = software->trial, .hours = NAN, .kwh = NAN, .usd = NAN};
            software->row = software->own = row;
            RP_TRY(rpadvise_row_run(a->search, row));
        }
    }
    return RP_OK;
}
