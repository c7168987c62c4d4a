/* Remedies where nothing fits. Each is tried with all families, in short runs; what is
 * said to help has fitted in one. */
#include "sim/rpadvise/advice_internal.h"
#include "sim/rpadvise/search_internal.h"

#include <stdlib.h>

#define FASTEST 12u /* runs with a microbatch alone that are run with more */
#define ADAPTERS_RANK 16u
#define LEAST_TOKENS 128u /* of a sequence */
#define MOST_TIMES 8u     /* as many GPUs or servers */

static void add(const rpadvise_change *change, rpadvise_advice *a)
{
    uint32_t *count = change->outcome.fits ? &a->change_count : &a->vain_count;
    if (*count < RPADVISE_MOST_CHANGES) {
        (change->outcome.fits ? a->changes : a->vain)[(*count)++] = *change;
    }
}

/* All families with one sequence in one microbatch: nothing of them needs less. */
static rp_status list_trials(const rpadvise_search *changed, rpadvise_trial **trials_out,
                             uint32_t *count_out)
{
    const rp_schedule_type *usual = rp_schedule_find("1f1b");
    rpadvise_trial *trials = NULL;
    uint32_t count = 0;
    RP_TRY(rp_arena_alloc(changed->arena, changed->family_count + changed->gpus, sizeof *trials,
                          &trials));
    for (uint32_t i = 0; i < changed->family_count; i++) {
        trials[count++].candidate = changed->families[i].candidate;
    }
    for (uint32_t tensor = 2; tensor < changed->gpus; tensor *= 2) { /* they share activations */
        const rpadvise_candidate c = {.schedule = usual,
                                      .recompute = RP_RECOMPUTE_WAIT,
                                      .layer_grain = true,
                                      .tensor_parallel = tensor,
                                      .microbatch_size = 1};
        if (changed->gpus % tensor == 0 && changed->options->schedule_count == 0) {
            trials[count++].candidate = c;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        rpadvise_trial *t = &trials[i];
        t->candidate.microbatches = 1;
        t->candidate.calls = 1;
        t->manner = rpadvise_shortly(&t->candidate);
        t->manner.free_batch = true;
        t->manner.period_only = true;
    }
    *trials_out = trials;
    *count_out = count;
    return RP_OK;
}

static int compare_speeds(const void *a, const void *b)
{
    const rpadvise_outcome *one = &((const rpadvise_trial *)a)->outcome;
    const rpadvise_outcome *other = &((const rpadvise_trial *)b)->outcome;
    double lead = (one->fits ? one->tokens_per_s : 0) - (other->fits ? other->tokens_per_s : 0);
    return lead > 0 ? -1 : lead < 0 ? 1 : 0;
}

static void take_fastest(const rpadvise_trial *trials, uint32_t count, rpadvise_change *change)
{
    for (uint32_t i = 0; i < count; i++) {
        const rpadvise_outcome *o = &trials[i].outcome;
        if (o->fits && !(change->outcome.fits && change->outcome.tokens_per_s >= o->tokens_per_s)) {
            change->candidate = trials[i].candidate;
            change->outcome = *o;
        }
    }
}

/* The fastest that fits of this work on so many GPUs, with a microbatch for each place where that
 * fits. The change's outcome fits where anything does. */
static rp_status try_with(const rpadvise_advice *a, const rpadvise_work *work, uint32_t gpus,
                          rpadvise_change *change)
{
    rpadvise_bench bench = *a->search->bench;
    rpadvise_search changed = {.options = a->search->options,
                               .bench = &bench,
                               .arena = a->search->arena,
                               .gpus = gpus,
                               .seq_len = work->seq_len};
    changed.seq_len = changed.seq_len != 0 ? changed.seq_len : a->search->seq_len;
    rpadvise_trial *trials = NULL;
    uint32_t count = 0;
    bench.work = work;
    change->outcome = (rpadvise_outcome){0};
    RP_TRY(rpadvise_families_list(&changed));
    RP_TRY(list_trials(&changed, &trials, &count));
    RP_TRY(rpadvise_try(&bench, trials, count, "what would fit"));
    qsort(trials, count, sizeof *trials, compare_speeds);
    take_fastest(trials, count, change);
    uint32_t more = 0;
    while (more < rpadvise_least(count, FASTEST) && trials[more].outcome.fits) {
        trials[more].candidate.microbatches = gpus / rpadvise_alike(&trials[more].candidate);
        more++;
    }
    RP_TRY(rpadvise_try(&bench, trials, more, "what would fit"));
    take_fastest(trials, more, change);
    a->search->bench->spent = bench.spent;
    return RP_OK;
}

/* Adapters alone, for which gradients and optimizer take next to nothing. */
static rp_status try_adapters(rpadvise_advice *a)
{
    rpadvise_work work = *a->search->bench->work;
    rpadvise_change change = {.kind = RPADVISE_CHANGE_ADAPTERS, .value = ADAPTERS_RANK};
    if (a->nearest->study.rows[0].model->lora_rank != 0) {
        return RP_OK;
    }
    work.lora_rank = ADAPTERS_RANK;
    RP_TRY(try_with(a, &work, a->search->gpus, &change));
    add(&change, a);
    return RP_OK;
}

/* One of the steps: half as long and so on, or twice as many and so on. */
typedef struct ladder {
    rpadvise_change_kind kind;
    uint32_t values[16]; /* from the least change to the largest */
    uint32_t count;
} ladder;

static rp_status try_value(const rpadvise_advice *a, rpadvise_change *change)
{
    const rpadvise_search *s = a->search;
    const rp_platform *platform = a->nearest->study.rows[0].platform;
    rpadvise_work work = *s->bench->work;
    uint32_t gpus = s->gpus;
    if (change->kind == RPADVISE_CHANGE_SEQ_LEN) {
        work.seq_len = change->value;
    } else if (change->kind == RPADVISE_CHANGE_SERVERS) {
        work.nodes = change->value;
        work.gpus = 0;
        gpus = platform->gpus * change->value;
    } else {
        work.gpus = gpus = change->value;
        if (gpus > platform->gpus) {
            RP_TRY(rp_arena_print(s->arena, &work.change, "platform.gpus=%u", gpus));
        }
    }
    return try_with(a, &work, gpus, change);
}

/* The largest change first, because nothing less fits where that does not; then by halves. */
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

/* Further GPUs of the server, and servers where it has a network, else a server with more. */
static rp_status try_more(rpadvise_advice *a)
{
    const rpadvise_search *s = a->search;
    const rp_platform *platform = a->nearest->study.rows[0].platform;
    ladder inside = {.kind = RPADVISE_CHANGE_GPUS};
    ladder servers = {.kind = RPADVISE_CHANGE_SERVERS};
    if (platform->nodes > 1 || s->options->nodes > 1) {
        return RP_OK; /* a cluster is what its file, or --nodes, says */
    }
    uint32_t most = platform->network_gb_per_s > 0 ? platform->gpus : MOST_TIMES * platform->gpus;
    add_times(&inside, s->gpus, rpadvise_least(most, RP_MAX_GPUS));
    RP_TRY(try_ladder(a, &inside));
    if (platform->network_gb_per_s > 0 && MOST_TIMES * platform->gpus <= RP_MAX_GPUS) {
        add_times(&servers, 1, MOST_TIMES);
    }
    return try_ladder(a, &servers);
}

/* A run that lacks this memory alone needs no other: the one that lacks least. */
static void find_memory(rpadvise_advice *a, rpadvise_change_kind kind)
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
        a->changes[a->change_count++] = (rpadvise_change){
            .kind = kind, .candidate = least->candidate, .outcome = *rpadvise_least_of(least)};
    }
}

rp_status rpadvise_remedies_find(rpadvise_advice *a)
{
    RP_TRY(try_adapters(a));
    RP_TRY(try_shorter(a));
    RP_TRY(try_more(a));
    find_memory(a, RPADVISE_CHANGE_HOST_MEMORY);
    find_memory(a, RPADVISE_CHANGE_GPU_MEMORY);
    return RP_OK;
}
