#include "tests/reference/slow_optimum.h"

#include "tests/reference/slow_sim.h"

#include <stdlib.h>
#include <string.h>

#define MOST_KEY (2 * SLOW_MOST_JOBS)
#define MOST_TIMES (SLOW_MOST_GPUS + SLOW_MOST_JOBS * SLOW_MOST_COUNT)
#define BUCKETS 65536u

typedef struct partial {
    int done[SLOW_MOST_JOBS]; /* microbatches done */
    int gpu[SLOW_MOST_JOBS];  /* GPU of the job, or SLOW_ANY_GPU */
    int64_t end[SLOW_MOST_JOBS][SLOW_MOST_COUNT];
    int64_t free[SLOW_MOST_GPUS];
    int64_t last; /* begin of the latest op, without its pre-work */
    int64_t makespan;
} partial;

/* Times of a state that the search has seen. The key gives the ops done, and so the meaning of the
 * entries of `times`. */
typedef struct seen {
    struct seen *next;
    signed char key[MOST_KEY];
    int count;
    int64_t times[];
} seen;

typedef struct search {
    const slow_instance *instance;
    int64_t tail[SLOW_MOST_JOBS]; /* longest path after an op of the job */
    int64_t most_pre;
    bool needed_by[SLOW_MOST_JOBS][SLOW_MOST_JOBS];
    int64_t best;
    uint64_t states, most_states;
    seen **buckets;
} search;

/* ---- properties of a state ------------------------------------------------------------------- */

/* GPUs that have run nothing are interchangeable: only the first such GPU is tried. */
static bool is_used(const partial *p, const slow_instance *in, int gpu)
{
    for (int j = 0; j < in->job_count; j++) {
        if (p->gpu[j] == gpu) {
            return true;
        }
    }
    return false;
}

static bool is_ready(const partial *p, const slow_instance *in, int j)
{
    for (int d = 0; d < in->jobs[j].after_count; d++) {
        if (p->done[in->jobs[j].after[d]] <= p->done[j]) {
            return false;
        }
    }
    return p->done[j] < in->jobs[j].count;
}

static int64_t begin_on(const partial *p, const slow_instance *in, int j, int gpu)
{
    int64_t begin = slow_max(p->last - in->jobs[j].pre, p->free[gpu]);
    for (int d = 0; d < in->jobs[j].after_count; d++) {
        int from = in->jobs[j].after[d];
        int64_t hop = p->gpu[from] == gpu ? 0 : in->hop;
        begin = slow_max(begin, p->end[from][p->done[j]] + hop - in->jobs[j].pre);
    }
    return begin;
}

static int64_t duration(const slow_job *job)
{
    return job->pre + job->work;
}

/* A lower bound: each job's rest on a single GPU and the work that must follow it; the same for
 * each GPU; and all work spread over all GPUs. */
static int64_t least_end(const search *s, const partial *p)
{
    const slow_instance *in = s->instance;
    int64_t load[SLOW_MOST_GPUS], after[SLOW_MOST_GPUS];
    int64_t best = p->makespan, left = 0, sum = 0;
    for (int g = 0; g < in->gpus; g++) {
        load[g] = slow_max(p->free[g], p->last - s->most_pre);
        after[g] = INT64_MAX;
        sum += load[g];
    }
    for (int j = 0; j < in->job_count; j++) {
        const slow_job *job = &in->jobs[j];
        int64_t rest = (job->count - p->done[j]) * duration(job);
        int g = p->gpu[j];
        int64_t begin = slow_max(0, p->last - job->pre);
        if (rest == 0) {
            continue;
        }
        for (int d = 0; d < job->after_count; d++) {
            int from = job->after[d];
            if (p->done[from] > p->done[j]) {
                begin = slow_max(begin, p->end[from][p->done[j]] - job->pre);
            }
        }
        begin = g >= 0 ? slow_max(begin, p->free[g]) : begin;
        best = slow_max(best, begin + rest + s->tail[j]);
        left += rest;
        if (g >= 0) {
            load[g] += rest;
            after[g] = slow_min(after[g], s->tail[j]);
        }
    }
    for (int g = 0; g < in->gpus; g++) {
        best = after[g] == INT64_MAX ? best : slow_max(best, load[g] + after[g]);
    }
    /* If only empty ops are left, their begins do not count. */
    return left == 0 ? best : slow_max(best, (sum + left + in->gpus - 1) / in->gpus);
}

/* ---- states that are no better than other states --------------------------------------------- */

static int list_times(const search *s, const partial *p, int64_t *times)
{
    const slow_instance *in = s->instance;
    int count = 0;
    for (int g = 0; g < in->gpus; g++) {
        times[count++] = slow_max(p->free[g], p->last - s->most_pre);
    }
    for (int j = 0; j < in->job_count; j++) {
        int first = p->done[j]; /* the first microbatch that another job still needs */
        for (int k = j + 1; k < in->job_count; k++) {
            first = s->needed_by[j][k] && p->done[k] < first ? p->done[k] : first;
        }
        for (int m = first; m < p->done[j]; m++) {
            times[count++] = p->end[j][m];
        }
    }
    times[count++] = p->makespan;
    times[count++] = p->last;
    return count;
}

static bool no_later(const int64_t *a, const int64_t *b, int count)
{
    for (int i = 0; i < count; i++) {
        if (a[i] > b[i]) {
            return false;
        }
    }
    return true;
}

/* Remembers the state, unless a state with the same ops done is nowhere later. @return true if it
 * was remembered */
static bool is_new(search *s, const partial *p)
{
    signed char key[MOST_KEY] = {0};
    int64_t times[MOST_TIMES + 2];
    uint32_t hash = 2166136261u;
    for (int j = 0; j < s->instance->job_count; j++) {
        key[2 * j] = (signed char)p->done[j];
        key[2 * j + 1] = (signed char)p->gpu[j];
        hash = (hash ^ (uint32_t)p->done[j]) * 16777619u;
        hash = (hash ^ (uint32_t)(p->gpu[j] + 1)) * 16777619u;
    }
    int count = list_times(s, p, times);
    seen **bucket = &s->buckets[(hash ^ hash >> 16) % BUCKETS];
    for (seen **at = bucket; *at != NULL;) {
        seen *other = *at;
        bool same = memcmp(other->key, key, sizeof key) == 0;
        if (same && no_later(other->times, times, count)) {
            return false;
        }
        if (same && no_later(times, other->times, count)) {
            *at = other->next;
            free(other);
            continue;
        }
        at = &other->next;
    }
    seen *entry = slow_alloc(1, sizeof *entry + (size_t)count * sizeof *times);
    memcpy(entry->key, key, sizeof key);
    memcpy(entry->times, times, (size_t)count * sizeof *times);
    entry->count = count;
    entry->next = *bucket;
    *bucket = entry;
    return true;
}

/* ---- the search ------------------------------------------------------------------------------ */

typedef struct choice {
    int job, gpu;
    int64_t begin, tail;
} choice;

static int earliest_first(const void *a, const void *b)
{
    const choice *left = a, *right = b;
    if (left->begin != right->begin) {
        return left->begin < right->begin ? -1 : 1;
    }
    if (left->tail != right->tail) {
        return left->tail > right->tail ? -1 : 1;
    }
    return left->job != right->job ? left->job - right->job : left->gpu - right->gpu;
}

static int list_choices(const search *s, const partial *p, choice *choices)
{
    const slow_instance *in = s->instance;
    int count = 0;
    for (int j = 0; j < in->job_count; j++) {
        bool unused_tried = false;
        if (!is_ready(p, in, j)) {
            continue;
        }
        for (int g = 0; g < in->gpus; g++) {
            bool free = p->gpu[j] == SLOW_ANY_GPU;
            bool unused = free && !is_used(p, in, g);
            if ((!free && p->gpu[j] != g) || (unused && unused_tried)) {
                continue;
            }
            unused_tried |= unused;
            choices[count++] = (choice){j, g, begin_on(p, in, j, g), s->tail[j]};
        }
    }
    qsort(choices, (size_t)count, sizeof *choices, earliest_first);
    return count;
}

static void place(const slow_instance *in, partial *p, int j, int gpu)
{
    p->gpu[j] = gpu;
    for (int k = 0; k < in->job_count; k++) {
        if (in->jobs[k].with == j) {
            place(in, p, k, gpu);
        }
    }
}

static void visit(search *s, const partial *p)
{
    const slow_instance *in = s->instance;
    choice choices[SLOW_MOST_JOBS * SLOW_MOST_GPUS];
    if (least_end(s, p) >= s->best || s->states > s->most_states || !is_new(s, p)) {
        return;
    }
    s->states++;
    int count = list_choices(s, p, choices);
    if (count == 0) {
        s->best = p->makespan; /* all is done, earlier than in the best schedule so far */
        return;
    }
    for (int i = 0; i < count; i++) {
        partial next = *p;
        const slow_job *job = &in->jobs[choices[i].job];
        int j = choices[i].job;
        int64_t end = choices[i].begin + duration(job);
        if (p->gpu[j] == SLOW_ANY_GPU) {
            place(in, &next, j, choices[i].gpu);
        }
        next.end[j][next.done[j]++] = end;
        next.free[choices[i].gpu] = end;
        next.last = choices[i].begin + job->pre;
        next.makespan = duration(job) > 0 ? slow_max(next.makespan, end) : next.makespan;
        visit(s, &next);
    }
}

static void prepare(search *s, partial *p)
{
    const slow_instance *in = s->instance;
    slow_require(in->job_count <= SLOW_MOST_JOBS && in->gpus <= SLOW_MOST_GPUS, "a small instance");
    for (int j = in->job_count; j-- > 0;) {
        const slow_job *job = &in->jobs[j];
        slow_require(job->count <= SLOW_MOST_COUNT && job->with < j, "a small job");
        p->gpu[j] = job->gpu;
        s->most_pre = slow_max(s->most_pre, job->pre);
        for (int d = 0; d < job->after_count; d++) {
            int from = job->after[d];
            int64_t behind = duration(job) > 0 || s->tail[j] > 0 ? job->work + s->tail[j] : 0;
            s->tail[from] = slow_max(s->tail[from], behind);
            s->needed_by[from][j] = true;
        }
    }
}

int64_t slow_optimum(const slow_instance *instance, int64_t known, uint64_t most_states)
{
    search s = {.instance = instance, .best = known + 1, .most_states = most_states};
    partial p = {0};
    prepare(&s, &p);
    s.buckets = slow_alloc(BUCKETS, sizeof(seen *));
    visit(&s, &p);
    for (uint32_t i = 0; i < BUCKETS; i++) {
        while (s.buckets[i] != NULL) {
            seen *next = s.buckets[i]->next;
            free(s.buckets[i]);
            s.buckets[i] = next;
        }
    }
    free(s.buckets);
    slow_require(s.states > most_states || s.best <= known, "a schedule reaches what is known");
    return s.states > most_states ? -1 : s.best;
}
