/* Changes of the answer: more memory, faster links, a further GPU or server. */
#include "sim/rpadvise/advice_internal.h"
#include "sim/rpadvise/search_internal.h"

#include <ctype.h>

#define RIVALS_CHANGED 6u /* number of runs that a change of the server is tried with */
#define WORTH_IT 1.02     /* factor over the best speed from which a change is worth it */
#define LINKS_TWICE "platform.link_gb_per_s*2,platform.link_effective_gb_per_s*2"

void rpadvise_drop_list(rpadvise_candidate *candidate)
{
    bool word =
        candidate->run.partition == NULL || isalpha((unsigned char)*candidate->run.partition) != 0;
    candidate->run.partition = word ? candidate->run.partition : NULL;
}

rp_status rpadvise_set_gpus(const rpadvise_search *s, const rp_platform *platform, uint32_t gpus,
                            rpsim_setup *work)
{
    const char *change = NULL;
    work->run.gpus = gpus;
    if (gpus <= platform->gpus || gpus > RP_MAX_GPUS) {
        return RP_OK; /* the server has these GPUs, or no server may have so many */
    }
    RP_TRY(rp_arena_print(s->arena, &change, "platform.gpus=%u", gpus));
    return rp_changes_add("set", change, s->arena, &work->changes, NULL);
}

static void add_change(rpadvise_advice *a, rpadvise_change_kind kind, const rpadvise_trial *trial)
{
    if (a->change_count < RPADVISE_MOST_CHANGES) {
        a->changes[a->change_count++] = (rpadvise_change){
            .kind = kind, .candidate = trial->candidate, .outcome = trial->outcome};
    }
}

static double best_speed(const rpadvise_advice *a)
{
    return a->rows[0].trial->outcome.tokens_per_s;
}

/* Runs the rows again on a changed server, or on more servers. The addition need not be used, so
 * the present answer competes, too. (A schedule that plans with times may plan worse with shorter
 * times.) */
static rp_status change_server(rpadvise_advice *a, rpadvise_change_kind kind,
                               const rpsim_setup *work)
{
    const rpadvise_search *s = a->search;
    rpadvise_trial *trials = NULL;
    RP_TRY(rp_arena_alloc(s->arena, a->row_count, sizeof *trials, &trials));
    for (uint32_t i = 0; i < a->row_count; i++) {
        rpadvise_trial *t = &trials[i];
        *t = (rpadvise_trial){.candidate = a->rows[i].trial->candidate, .work = work};
        t->candidate.run.gpus = work->run.gpus;
        if (kind == RPADVISE_CHANGE_LINK) {
            continue;
        }
        uint32_t places = rpadvise_places(s, &t->candidate);
        uint32_t more = work->run.gpus / rpadvise_alike(&t->candidate);
        if (kind == RPADVISE_CHANGE_SERVER) {
            t->candidate.run.nodes = s->given->nodes + 1;
            more = rpadvise_places(s, &t->candidate);
        }
        if (s->given->global_batch == 0 && t->candidate.run.microbatches >= places) {
            t->candidate.run.microbatches = t->candidate.run.microbatches / places * more;
        }
        rpadvise_drop_list(&t->candidate);
    }
    RP_TRY(rpadvise_try(s->bench, trials, a->row_count, "another server"));
    const rpadvise_trial *best = a->rows[0].trial;
    bool any = false;
    for (uint32_t i = 0; i < a->row_count; i++) {
        const rpadvise_outcome *o = &trials[i].outcome;
        any = any || o->fits;
        best = o->fits && o->tokens_per_s > best->outcome.tokens_per_s ? &trials[i] : best;
    }
    if (any) {
        add_change(a, kind, best);
    }
    return RP_OK;
}

/* @return the family that is fastest in its short run among those that lack this memory, of modes
 * that are not in `trials` yet */
static const rpadvise_family *fastest_lacking(const rpadvise_search *s, rpadvise_shortage short_of,
                                              const rpadvise_trial *trials, uint32_t count)
{
    const rpadvise_family *best = NULL;
    for (uint32_t i = 0; i < s->family_count; i++) {
        const rpadvise_family *f = &s->families[i];
        bool listed = !f->at_n.ran || f->at_n.fits || f->at_n.short_of != short_of;
        for (uint32_t k = 0; k < count && !listed; k++) {
            listed = rpadvise_candidate_same_mode(&trials[k].candidate, &f->candidate);
        }
        if (!listed && (best == NULL || f->at_n.tokens_per_s > best->at_n.tokens_per_s)) {
            best = f;
        }
    }
    return best;
}

/* Finds the run that would beat the answer with more memory and needs the least of it. */
static rp_status change_memory(rpadvise_advice *a, rpadvise_shortage short_of)
{
    const rpadvise_search *s = a->search;
    rpadvise_trial trials[RIVALS_CHANGED];
    uint32_t count = 0;
    while (count < RIVALS_CHANGED) {
        const rpadvise_family *f = fastest_lacking(s, short_of, trials, count);
        if (f == NULL) {
            break;
        }
        trials[count++] = (rpadvise_trial){.candidate = f->candidate};
    }
    RP_TRY(rpadvise_try(s->bench, trials, count, "with more memory"));
    const rpadvise_trial *best = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const rpadvise_outcome *o = &trials[i].outcome;
        bool helps = o->ran && !o->fits && o->short_of == short_of &&
                     o->tokens_per_s > WORTH_IT * best_speed(a);
        if (helps && (best == NULL || rpadvise_shortfall(o) < rpadvise_shortfall(&best->outcome))) {
            best = &trials[i];
        }
    }
    if (best != NULL) {
        add_change(a,
                   short_of == RPADVISE_SHORT_OF_GPU ? RPADVISE_CHANGE_GPU_MEMORY
                                                     : RPADVISE_CHANGE_HOST_MEMORY,
                   best);
    }
    return RP_OK;
}

rp_status rpadvise_changes_find(rpadvise_advice *a)
{
    const rpadvise_search *s = a->search;
    const rp_platform *platform = a->rows[0].study.rows[0].platform;
    rpsim_setup faster = *s->bench->work;
    rpsim_setup larger = *s->bench->work;
    RP_TRY(rp_changes_add("set", LINKS_TWICE, s->arena, &faster.changes, NULL));
    RP_TRY(change_memory(a, RPADVISE_SHORT_OF_GPU));
    RP_TRY(change_memory(a, RPADVISE_SHORT_OF_HOST));
    RP_TRY(change_server(a, RPADVISE_CHANGE_LINK, &faster));
    if (s->given->nodes > 1) {
        return change_server(a, RPADVISE_CHANGE_SERVER, &larger);
    }
    RP_TRY(rpadvise_set_gpus(s, platform, s->gpus + 1, &larger));
    return change_server(a, RPADVISE_CHANGE_GPU, &larger);
}
