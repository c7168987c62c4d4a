/* Step 5 of the search: moves from a partition to a neighbour as long as a neighbour is faster.
 * Nothing is random, and a batch has as many neighbours on any machine. */
#include "common/inputs/partition.h"
#include "sim/rpadvise/search_internal.h"

#include <stdio.h>
#include <string.h>

#define IMPROVED 2u       /* schedules and modes whose partitions are improved */
#define BATCH 16u         /* neighbours in a batch; the search moves to the best of a batch */
#define MOST_OPS 1500000u /* of all runs for a schedule and mode: few if programs are large */
#define LEAST_RUNS 8u
#define WORTH_A_STEP 1.00001

/* Neighbours of a partition, as texts in an arena. */
typedef struct neighbours {
    rp_arena *arena;
    const char **texts;
    uint32_t count;
    uint32_t room;
} neighbours;

static rp_status add(neighbours *n, const rp_partition *p)
{
    const char *text = NULL;
    RP_TRY(rp_partition_text(p, n->arena, &text));
    if (n->count < n->room && strlen(text) < RPADVISE_PARTITION_SIZE) {
        n->texts[n->count++] = text;
    }
    return RP_OK;
}

/* A direction of a partition: its stages from `first` on. */
typedef struct stages {
    uint32_t *layers;
    uint32_t *count;
    uint32_t first;
    uint32_t least; /* smallest number of layers of a stage */
} stages;

/* Adds moves of a layer to another stage; with separate backward stages, which are many, only to a
 * neighbouring stage. */
static rp_status add_shifts(neighbours *n, const rp_partition *p, const stages *s, bool far)
{
    for (uint32_t from = s->first; from < *s->count; from++) {
        for (uint32_t to = s->first; to < *s->count; to++) {
            bool next = to + 1 == from || from + 1 == to;
            if (from == to || s->layers[from] <= s->least || !(far || next)) {
                continue;
            }
            s->layers[from]--;
            s->layers[to]++;
            RP_TRY(add(n, p));
            s->layers[from]++;
            s->layers[to]--;
        }
    }
    return RP_OK;
}

/* Adds merges of two neighbouring stages. */
static rp_status add_merges(neighbours *n, const rp_partition *p, const stages *s)
{
    for (uint32_t i = s->first; i + 1 < *s->count; i++) {
        uint32_t one = s->layers[i];
        uint32_t other = s->layers[i + 1];
        size_t behind = *s->count - i - 2;
        s->layers[i] += other;
        memmove(&s->layers[i + 1], &s->layers[i + 2], behind * sizeof *s->layers);
        --*s->count;
        RP_TRY(add(n, p));
        ++*s->count;
        memmove(&s->layers[i + 2], &s->layers[i + 1], behind * sizeof *s->layers);
        s->layers[i] = one;
        s->layers[i + 1] = other;
    }
    return RP_OK;
}

/* Adds splits of a stage into halves; `layers` has room for another stage. */
static rp_status add_splits(neighbours *n, const rp_partition *p, const stages *s)
{
    for (uint32_t i = s->first; i < *s->count; i++) {
        uint32_t whole = s->layers[i];
        size_t behind = *s->count - i - 1;
        if (whole < 2) {
            continue;
        }
        memmove(&s->layers[i + 2], &s->layers[i + 1], behind * sizeof *s->layers);
        s->layers[i] = whole - whole / 2;
        s->layers[i + 1] = whole / 2;
        ++*s->count;
        RP_TRY(add(n, p));
        --*s->count;
        memmove(&s->layers[i + 1], &s->layers[i + 2], behind * sizeof *s->layers);
        s->layers[i] = whole;
    }
    return RP_OK;
}

/* Adds moves of a layer between the head's backward stage and the next. If the head's stage is
 * fused, forward stages give and take a layer, too. */
static rp_status add_heads(neighbours *n, const rp_partition *p, bool fused)
{
    uint32_t *head = &p->backward_layers[0];
    uint32_t *forward = &p->forward_layers[p->forward_count - 1];
    for (int give = 0; give < 2; give++) {
        uint32_t *from = give != 0 ? &head[0] : &head[1];
        bool leaves = *from > (give == 0 || fused ? 1u : 0u);
        if (p->backward_count < 2 || !leaves || (fused && give == 0 && *forward < 2)) {
            continue;
        }
        int32_t more = give != 0 ? -1 : 1;
        head[0] += (uint32_t)more;
        head[1] -= (uint32_t)more;
        *forward -= fused ? (uint32_t)more : 0;
        RP_TRY(add(n, p));
        head[0] -= (uint32_t)more;
        head[1] += (uint32_t)more;
        *forward += fused ? (uint32_t)more : 0;
    }
    return RP_OK;
}

static uint32_t sum(const uint32_t *layers, uint32_t count)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        total += layers[i];
    }
    return total;
}

/* Copies a list into an array with room for another stage. */
static rp_status with_room(uint32_t **layers, uint32_t count, rp_arena *arena)
{
    uint32_t *larger = NULL;
    RP_TRY(rp_arena_alloc(arena, count + 1, sizeof *larger, &larger));
    for (uint32_t i = 0; i < count; i++) {
        larger[i] = (*layers)[i];
    }
    *layers = larger;
    return RP_OK;
}

static rp_status list_neighbours(const char *text, rp_arena *arena, neighbours *n)
{
    rp_partition p;
    RP_TRY(rp_partition_parse(NULL, text, arena, &p, NULL));
    RP_TRY(with_room(&p.forward_layers, p.forward_count, arena));
    RP_TRY(with_room(&p.backward_layers, p.backward_count, arena));
    uint64_t most = p.backward_count != 0 ? 4 * ((uint64_t)p.forward_count + p.backward_count) + 2
                                          : (uint64_t)p.forward_count * p.forward_count;
    *n = (neighbours){.arena = arena, .room = (uint32_t)most};
    RP_TRY(rp_arena_alloc(arena, n->room, sizeof *n->texts, &n->texts));
    const stages forward = {p.forward_layers, &p.forward_count, 0, p.backward_count != 0 ? 1 : 0};
    const stages backward = {p.backward_layers, &p.backward_count, 1, 1};
    if (p.backward_count == 0) {
        return add_shifts(n, &p, &forward, true);
    }
    RP_TRY(add_shifts(n, &p, &backward, false));
    RP_TRY(add_shifts(n, &p, &forward, false));
    bool fused = sum(p.forward_layers, p.forward_count) < sum(p.backward_layers, p.backward_count);
    RP_TRY(add_heads(n, &p, fused));
    RP_TRY(add_merges(n, &p, &backward));
    RP_TRY(add_splits(n, &p, &backward));
    RP_TRY(add_merges(n, &p, &forward));
    return add_splits(n, &p, &forward);
}

/* ---- the way --------------------------------------------------------------------------------- */

typedef struct descent {
    rpadvise_search *search;
    rpadvise_candidate like; /* the candidate without its partition */
    char at[RPADVISE_PARTITION_SIZE];
    double speed;  /* tokens/s of the partition `at`, in a short run */
    uint32_t left; /* runs */
} descent;

/* Runs partitions for few iterations, and moves to the fastest that fits if that is worth a step.
 */
static rp_status run_batch(descent *d, const char *const *texts, uint32_t count, bool *moved_out)
{
    rpadvise_trial trials[BATCH];
    count = rpadvise_allowed(d->search, rpadvise_least(count, d->left));
    *moved_out = false;
    for (uint32_t i = 0; i < count; i++) {
        trials[i] = (rpadvise_trial){.candidate = d->like, .manner = rpadvise_shortly(&d->like)};
        trials[i].candidate.run.partition = texts[i];
        trials[i].manner.period_only = true;
    }
    RP_TRY(rpadvise_try(d->search->bench, trials, count, "partitions"));
    d->left = count != 0 ? d->left - count : 0;
    for (uint32_t i = 0; i < count; i++) {
        const rpadvise_outcome *o = &trials[i].outcome;
        if (o->fits && o->tokens_per_s > WORTH_A_STEP * d->speed) {
            d->speed = o->tokens_per_s;
            (void)snprintf(d->at, sizeof d->at, "%s", texts[i]);
            *moved_out = true;
        }
    }
    return RP_OK;
}

static uint32_t stages_of(const char *text)
{
    uint32_t count = 1;
    for (const char *c = text; *c != '\0' && *c != '|'; c++) {
        count += *c == ',' ? 1 : 0;
    }
    return count;
}

/* Starts from the best of its own partition and those of other runs with as many stages. */
static rp_status begin(descent *d, const rpadvise_trial *from)
{
    const rpadvise_search *s = d->search;
    const char *starts[BATCH] = {from->outcome.partition};
    uint32_t count = 1;
    bool moved = false;
    for (uint32_t i = 0; i < s->found_count && count < BATCH; i++) {
        const char *text = s->found[i].outcome.partition;
        bool other = s->found[i].outcome.fits && text[0] != '\0' &&
                     !rp_is_data_parallel(&s->found[i].candidate.schedule->traits) &&
                     (strchr(text, '|') != NULL) == (strchr(starts[0], '|') != NULL) &&
                     (strchr(text, '|') != NULL || stages_of(text) == stages_of(starts[0]));
        for (uint32_t k = 0; k < count && other; k++) {
            other = strcmp(starts[k], text) != 0;
        }
        if (other) {
            starts[count++] = text;
        }
    }
    return run_batch(d, starts, count, &moved);
}

/* Goes through the neighbours in turn, each time from the place of the last step, until none is
 * faster. */
static rp_status walk(descent *d)
{
    uint32_t cursor = 0;
    bool ended = d->speed <= 0;
    while (!ended && d->left > 0) {
        rp_arena *scratch = NULL;
        neighbours n = {0};
        bool moved = false;
        RP_TRY(rp_arena_create(&scratch));
        rp_status status = list_neighbours(d->at, scratch, &n);
        for (uint32_t done = 0; status == RP_OK && !moved && done < n.count && d->left > 0;) {
            const char *batch[BATCH];
            uint32_t count = rpadvise_least(BATCH, n.count - done);
            for (uint32_t i = 0; i < count; i++) {
                batch[i] = n.texts[(cursor + i) % n.count];
            }
            status = run_batch(d, batch, count, &moved);
            cursor = (cursor + count) % n.count;
            done += count;
        }
        ended = !moved;
        rp_arena_destroy(scratch);
        RP_TRY(status);
    }
    return RP_OK;
}

static rp_status improve(rpadvise_search *s, const rpadvise_trial *from)
{
    descent d = {.search = s, .like = from->candidate};
    uint32_t parts =
        d.like.run.asynchronous ? 4 : 2; /* a short run has 1 / parts of the iterations */
    d.left = MOST_OPS / (from->outcome.ops / parts + 1);
    if (rp_is_data_parallel(&d.like.schedule->traits) || from->outcome.partition[0] == '\0' ||
        d.left < LEAST_RUNS) {
        return RP_OK;
    }
    RP_TRY(begin(&d, from));
    RP_TRY(walk(&d));
    if (d.at[0] == '\0' || strcmp(d.at, from->outcome.partition) == 0) {
        return RP_OK;
    }
    RP_TRY(rp_arena_copy_text(s->arena, d.at, strlen(d.at), &d.like.run.partition));
    return rpadvise_search_add(s, &d.like, 1);
}

rp_status rpadvise_partitions_improve(rpadvise_search *s)
{
    rpadvise_trial best[IMPROVED] = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->found_count && count < IMPROVED && s->found[i].outcome.fits; i++) {
        bool known = false;
        for (uint32_t k = 0; k < count; k++) {
            known =
                known || rpadvise_candidate_same_mode(&best[k].candidate, &s->found[i].candidate);
        }
        if (!known) {
            best[count++] = s->found[i];
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(improve(s, &best[i]));
    }
    return RP_OK;
}
