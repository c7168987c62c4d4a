/* Remedies if nothing fits. Each is tried by a search: for a remedy that helps a run has been
 * simulated in full, and for a remedy that does not the search has found nothing. */
#include "sim/rpadvise/advice_internal.h"
#include "sim/rpadvise/search_internal.h"

#define ADAPTERS_RANK 16u
#define LEAST_TOKENS 128u /* smallest length of a sequence */
#define MOST_TIMES 8u     /* largest factor for the number of GPUs or servers */

static void add(const rpadvise_change *change, rpadvise_advice *a)
{
    uint32_t *count = change->outcome.fits ? &a->change_count : &a->vain_count;
    if (*count < RPADVISE_MOST_CHANGES) {
        (change->outcome.fits ? a->changes : a->vain)[(*count)++] = *change;
    }
}

/* Takes the fastest run of a brief search for this work, on this number of GPUs and nodes. The
 * change's outcome fits if any run does. */
static rp_status try_with(const rpadvise_advice *a, const rpsim_setup *work, uint32_t gpus,
                          rpadvise_change *change)
{
    const rpadvise_search *s = a->search;
    rpadvise_bench bench = *s->bench;
    rpadvise_search changed;
    uint32_t seq_len = work->run.seq_len != 0 ? work->run.seq_len : s->seq_len;
    bench.work = work;
    bench.budget = UINT64_MAX;
    RP_TRY(rpadvise_search_shortly(s->options, gpus, seq_len, &bench, s->arena, &changed));
    s->bench->spent = bench.spent;
    change->outcome = (rpadvise_outcome){0};
    if (rpadvise_search_fits(&changed)) {
        change->candidate = changed.found[0].candidate;
        change->outcome = changed.found[0].outcome;
    }
    return RP_OK;
}

/* Tries to train only adapters, whose gradients and optimizer take next to nothing. */
static rp_status try_adapters(rpadvise_advice *a)
{
    rpsim_setup work = *a->search->bench->work;
    rpadvise_change change = {.kind = RPADVISE_CHANGE_ADAPTERS, .value = ADAPTERS_RANK};
    if (a->nearest->study.rows[0].run.model->lora_rank != 0) {
        return RP_OK;
    }
    work.lora_rank = ADAPTERS_RANK;
    RP_TRY(try_with(a, &work, a->search->gpus, &change));
    add(&change, a);
    return RP_OK;
}

/* Values of a change, in steps of a half or of twice. */
typedef struct ladder {
    rpadvise_change_kind kind;
    uint32_t values[16]; /* from the least change to the largest */
    uint32_t count;
} ladder;

static rp_status try_value(const rpadvise_advice *a, rpadvise_change *change)
{
    const rpadvise_search *s = a->search;
    const rp_platform *platform = a->nearest->study.rows[0].platform;
    rpsim_setup work = *s->bench->work;
    uint32_t gpus = s->gpus;
    if (change->kind == RPADVISE_CHANGE_SEQ_LEN) {
        work.run.seq_len = change->value;
    } else if (change->kind == RPADVISE_CHANGE_SERVERS) {
        work.run.nodes = change->value;
        work.run.gpus = 0;
        gpus = platform->gpus * change->value;
    } else {
        gpus = change->value;
        RP_TRY(rpadvise_set_gpus(s, platform, gpus, &work));
    }
    return try_with(a, &work, gpus, change);
}

/* Finds the least change that helps, from below, because runs on the largest servers take the
 * longest. */
static rp_status try_upwards(rpadvise_advice *a, const ladder *l)
{
    rpadvise_change change = {.kind = l->kind};
    for (uint32_t i = 0; i < l->count && !change.outcome.fits; i++) {
        change.value = l->values[i];
        RP_TRY(try_value(a, &change));
    }
    if (l->count != 0) {
        add(&change, a);
    }
    return RP_OK;
}

/* Finds the least change that helps: tries the largest change first, because if it does not help no
 * smaller change does; then bisects. */
static rp_status try_ladder(rpadvise_advice *a, const ladder *l)
{
    rpadvise_change best = {.kind = l->kind};
    uint32_t low = 0;
    uint32_t high = l->count;
    if (l->count == 0) {
        return RP_OK;
    }
    best.value = l->values[l->count - 1];
    RP_TRY(try_value(a, &best));
    high = best.outcome.fits ? l->count - 1 : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        rpadvise_change change = {.kind = l->kind, .value = l->values[middle]};
        RP_TRY(try_value(a, &change));
        best = change.outcome.fits ? change : best;
        low = change.outcome.fits ? low : middle + 1;
        high = change.outcome.fits ? middle : high;
    }
    add(&best, a);
    return RP_OK;
}

static rp_status try_shorter(rpadvise_advice *a)
{
    ladder l = {.kind = RPADVISE_CHANGE_SEQ_LEN};
    for (uint32_t tokens = a->search->seq_len / 2; tokens >= LEAST_TOKENS && l.count < 16;
         tokens /= 2) {
        l.values[l.count++] = tokens;
    }
    return try_ladder(a, &l);
}

static void add_times(ladder *l, uint32_t from, uint32_t most)
{
    for (uint32_t value = from; value < most && l->count < 16;) {
        value = rpadvise_least(2 * value, most);
        l->values[l->count++] = value;
    }
}

/* Tries further GPUs of the server, and further servers if it has a network, otherwise a server
 * with more GPUs. */
static rp_status try_more(rpadvise_advice *a)
{
    const rpadvise_search *s = a->search;
    const rp_platform *platform = a->nearest->study.rows[0].platform;
    ladder inside = {.kind = RPADVISE_CHANGE_GPUS};
    ladder servers = {.kind = RPADVISE_CHANGE_SERVERS};
    if (platform->nodes > 1 || s->given->nodes > 1) {
        return RP_OK; /* the file or --nodes fixes the size of a cluster */
    }
    uint32_t most = platform->network_gb_per_s > 0 ? platform->gpus : MOST_TIMES * platform->gpus;
    add_times(&inside, s->gpus, rpadvise_least(most, RP_MAX_GPUS));
    RP_TRY(try_upwards(a, &inside));
    if (platform->network_gb_per_s > 0 && MOST_TIMES * platform->gpus <= RP_MAX_GPUS) {
        add_times(&servers, 1, MOST_TIMES);
    }
    return try_upwards(a, &servers);
}

/* Finds the run that lacks only this memory, and the least of it. */
static rp_status find_memory(rpadvise_advice *a, rpadvise_change_kind kind)
{
    const rpadvise_search *s = a->search;
    const rpadvise_family *least = NULL;
    for (uint32_t i = 0; i < s->family_count; i++) {
        const rpadvise_family *f = &s->families[i];
        const rpadvise_outcome *o = rpadvise_least_of(f);
        bool host = o->host_limit_bytes != 0 && o->host_bytes > o->host_limit_bytes;
        bool gpu = o->gpu_bytes > o->gpu_limit_bytes;
        bool alone = kind == RPADVISE_CHANGE_HOST_MEMORY ? host && !gpu : gpu && !host;
        bool lacks = o->ran && !o->fits && alone;
        if (lacks && (least == NULL ||
                      rpadvise_shortfall(o) < rpadvise_shortfall(rpadvise_least_of(least)))) {
            least = f;
        }
    }
    if (least != NULL && a->change_count < RPADVISE_MOST_CHANGES) {
        rpadvise_trial trial;
        RP_TRY(rpadvise_run_least(s, least, &trial));
        a->changes[a->change_count++] =
            (rpadvise_change){.kind = kind, .candidate = trial.candidate, .outcome = trial.outcome};
    }
    return RP_OK;
}

rp_status rpadvise_remedies_find(rpadvise_advice *a)
{
    RP_TRY(try_adapters(a));
    RP_TRY(try_shorter(a));
    RP_TRY(try_more(a));
    RP_TRY(find_memory(a, RPADVISE_CHANGE_HOST_MEMORY));
    return find_memory(a, RPADVISE_CHANGE_GPU_MEMORY);
}
