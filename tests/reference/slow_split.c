#include "tests/reference/slow_split.h"

#include "tests/reference/slow_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put(slow_rows *rows, int rank, char type, int stage, int microbatch)
{
    int count = rows->counts[rank];
    slow_cell *cells = realloc(rows->cells[rank], ((size_t)count + 1) * sizeof *cells);
    slow_require(cells != NULL, "out of memory");
    cells[count] = (slow_cell){type, stage, microbatch, false, -1, -1};
    rows->cells[rank] = cells;
    rows->counts[rank] = count + 1;
}

/* ---- one stage per rank ---------------------------------------------------------------------- */

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Input part k comes after forward k + w (or the last), weight part k after input part k + lag (or
 * the last); lag < 0: whole backwards. */
static void make_1f1b(slow_rows *rows, int rank, int warmup, int lag)
{
    int last = rows->microbatches - 1;
    int weights = 0;
    int forwards = 0;
    for (int k = 0; k <= last; k++) {
        for (; forwards <= least(k + warmup, last); forwards++) {
            put(rows, rank, 'F', rank, forwards);
        }
        put(rows, rank, lag < 0 ? 'B' : 'I', rank, k);
        for (; lag >= 0 && weights + lag <= k; weights++) {
            put(rows, rank, 'W', rank, weights);
        }
    }
    for (; lag >= 0 && weights <= last; weights++) {
        put(rows, rank, 'W', rank, weights);
    }
}

/* ---- interleaved ----------------------------------------------------------------------------- */

static void make_zb1p(slow_rows *rows, int rank, int chunks)
{
    int ranks = rows->ranks;
    int m = rows->microbatches;
    int q = m / (m / ranks > 1 ? m / ranks : 1);
    int warmup = least((chunks - 1) * q + ranks - 1 - rank, chunks * m);
    int *forwards = slow_alloc((size_t)chunks, sizeof(int));
    int *inputs = slow_alloc((size_t)chunks, sizeof(int));
    slow_cell *pending = slow_alloc((size_t)chunks * (size_t)m, sizeof *pending);
    int begin = 0;
    int end = 0;
    for (int k = 0; k < warmup + chunks * m; k++) {
        if (k < chunks * m) {
            int chunk = (k / q) % chunks;
            put(rows, rank, 'F', chunk * ranks + rank, forwards[chunk]++);
        }
        if (k >= warmup) {
            int chunk = chunks - 1 - ((k - warmup) / q) % chunks;
            pending[end].stage = chunk * ranks + rank;
            pending[end].microbatch = inputs[chunk]++;
            put(rows, rank, 'I', pending[end].stage, pending[end].microbatch);
            end++;
            if (k - warmup >= rank) {
                put(rows, rank, 'W', pending[begin].stage, pending[begin].microbatch);
                begin++;
            }
        }
    }
    for (; begin < end; begin++) {
        put(rows, rank, 'W', pending[begin].stage, pending[begin].microbatch);
    }
    free(forwards);
    free(inputs);
    free(pending);
}

/* ---- V-shaped: a step is a text such as "Fa Ic Wc" ------------------------------------------- */

typedef struct slow_v {
    slow_rows *rows;
    int rank;
    int next[3][2]; /* the next microbatch for F, I or B, W, in chunks a and c */
    char pending[1 << 12];
    int pending_begin, pending_end;
} slow_v;

static void act(slow_v *v, char type, char chunk)
{
    int row = type == 'F' ? 0 : type == 'W' ? 2 : 1;
    int microbatch = v->next[row][chunk == 'c']++;
    if (type == 'B') {
        v->next[2][chunk == 'c']++;
    }
    if (microbatch < v->rows->microbatches) {
        int stage = chunk == 'a' ? v->rank : v->rows->stages - 1 - v->rank;
        put(v->rows, v->rank, type, stage, microbatch);
    }
}

/* Runs a step so many times. 'q' is the weight part of the oldest input part that was written as
 * 'J' instead of 'I'. */
static void repeat(slow_v *v, int times, const char *step)
{
    for (int i = 0; i < times; i++) {
        for (const char *at = step; *at != '\0';) {
            if (*at == 'q') {
                if (v->pending_begin < v->pending_end) {
                    act(v, 'W', v->pending[v->pending_begin++]);
                }
                at += 1;
            } else if (*at == 'J') {
                act(v, 'I', at[1]);
                v->pending[v->pending_end++] = at[1];
                at += 2;
            } else if (*at == '(') { /* "(FaBc)" */
                act(v, at[1], at[2]);
                v->rows->cells[v->rank][v->rows->counts[v->rank] - 1].paired = true;
                act(v, at[3], at[4]);
                at += 6;
            } else {
                act(v, at[0], at[1]);
                at += 2;
            }
        }
    }
}

static void make_zbv(slow_rows *rows, int rank)
{
    int ranks = rows->ranks;
    int count = rows->microbatches > 2 * ranks - 1 ? rows->microbatches : 2 * ranks - 1;
    slow_v v = {.rows = rows, .rank = rank};
    repeat(&v, 2 * (ranks - rank) - 1, "Fa");
    repeat(&v, rank, "FcFa");
    repeat(&v, ranks - rank, "FcIcWc");
    while (v.next[0][1] < v.next[0][0] || v.next[0][0] < count) {
        repeat(&v, v.next[0][0] < count ? 1 : 0, "Fa");
        repeat(&v, 1, "IaWaFcIcWc");
    }
    repeat(&v, rank, "IaIc");
    repeat(&v, ranks - rank, "IaWa");
    repeat(&v, v.next[1][1] - v.next[2][1], "Wc");
    repeat(&v, v.next[1][0] - v.next[2][0], "Wa");
}

static void make_dualpipev(slow_rows *rows, int rank)
{
    int ranks = rows->ranks;
    int m = rows->microbatches;
    slow_v v = {.rows = rows, .rank = rank};
    repeat(&v, 2 * (ranks - rank - 1), "Fa");
    repeat(&v, rank + 1, "FaFc");
    repeat(&v, ranks - rank - 1, "JcqFc");
    for (int i = 0; i < m - 2 * ranks + rank + 1; i++) {
        repeat(&v, 1, i == 0 && rank == ranks - 1 ? "FaBc" : "(FaBc)");
        repeat(&v, 1, "(FcBa)");
    }
    repeat(&v, ranks - rank - 1, "Bc(FcBa)");
    bool split = false;
    for (int i = 0; i < rank + 1; i++) {
        bool here = i == (rank + 1) / 2;
        split |= here && rank % 2 == 1;
        repeat(&v, 1, split ? "Jc" : "Bc");
        split |= here && rank % 2 == 0;
        repeat(&v, 1, split ? "Ja" : "Ba");
    }
    repeat(&v, ranks - rank - 1, "qJa");
    repeat(&v, rank + 1, "q");
}

/* ---- V with slots ---------------------------------------------------------------------------- */

typedef struct slow_slot {
    int slot;
    char type, chunk;
} slow_slot;

static int by_slot(const void *left, const void *right)
{
    return ((const slow_slot *)left)->slot - ((const slow_slot *)right)->slot;
}

/* Offsets of Fa, Fc, Ic, Ia. */
static void make_slots(slow_rows *rows, int rank, const int offsets[4])
{
    int m = rows->microbatches;
    slow_slot *slots = slow_alloc((size_t)m * 4, sizeof *slots);
    for (int i = 0; i < 4 * m; i++) {
        slots[i] = (slow_slot){offsets[i % 4] + 6 * (i / 4), "FFII"[i % 4], "acca"[i % 4]};
    }
    qsort(slots, (size_t)m * 4, sizeof *slots, by_slot);
    slow_v v = {.rows = rows, .rank = rank};
    int gap_begin = 0;
    for (int i = 0; i < 4 * m; i++) {
        slow_require(i == 0 || slots[i].slot != slots[i - 1].slot, "two ops in one slot");
        for (int free_slots = slots[i].slot - gap_begin; free_slots > 0; free_slots--) {
            if (v.next[1][1] > v.next[2][1]) {
                act(&v, 'W', 'c');
            } else if (v.next[1][0] > v.next[2][0]) {
                act(&v, 'W', 'a');
            }
        }
        act(&v, slots[i].type, slots[i].chunk);
        gap_begin = slots[i].slot + 1;
    }
    repeat(&v, v.next[1][1] - v.next[2][1], "Wc");
    repeat(&v, v.next[1][0] - v.next[2][0], "Wa");
    free(slots);
}

static void make_v_min(slow_rows *rows, int i)
{
    int p = rows->ranks;
    int g = p % 3 == 0 ? 2 : 0;
    int offsets[4] = {i, 2 * p - i - 1, 2 * p + g + i, 4 * p + g - i - 1};
    make_slots(rows, i, offsets);
}

static void make_v_half(slow_rows *rows, int i)
{
    int p = rows->ranks;
    int g = p % 2 == 0 ? 3 : 0;
    int offsets[4] = {2 * i, 3 * p - i - 2, 3 * p + g + 2 * i - 1, 6 * p + g - i - 2};
    make_slots(rows, i, offsets);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

bool slow_rows_make(const char *schedule, int ranks, int microbatches, int chunks,
                    slow_rows *rows_out)
{
    bool shaped = is(schedule, "zbv") || is(schedule, "dualpipev") || is(schedule, "v-min") ||
                  is(schedule, "v-half");
    bool interleaved = is(schedule, "zb1p");
    bool plain = is(schedule, "zb-h1") || is(schedule, "zb-h2") || is(schedule, "eager-1f1b") ||
                 is(schedule, "1f1b");
    int groups = microbatches / ranks > 1 ? microbatches / ranks : 1;
    if (!(shaped || interleaved || plain) || (interleaved && microbatches % groups != 0) ||
        (is(schedule, "zb-h2") && microbatches < 2 * ranks - 1) ||
        (is(schedule, "dualpipev") && microbatches < 2 * ranks)) {
        return false;
    }
    slow_rows rows = {ranks, microbatches,
                      ranks * (shaped        ? 2
                               : interleaved ? chunks
                                             : 1),
                      NULL, NULL};
    rows.counts = slow_alloc((size_t)ranks, sizeof(int));
    rows.cells = slow_alloc((size_t)ranks, sizeof(slow_cell *));
    for (int r = 0; r < ranks; r++) {
        if (is(schedule, "zb-h1")) {
            make_1f1b(&rows, r, ranks - 1 - r, r);
        } else if (is(schedule, "zb-h2")) {
            make_1f1b(&rows, r, 2 * (ranks - 1 - r), 2 * r);
        } else if (is(schedule, "eager-1f1b")) {
            make_1f1b(&rows, r, 2 * (ranks - 1 - r), -1);
        } else if (is(schedule, "1f1b")) {
            make_1f1b(&rows, r, ranks - 1 - r, -1);
        } else if (interleaved) {
            make_zb1p(&rows, r, chunks);
        } else if (is(schedule, "zbv")) {
            make_zbv(&rows, r);
        } else if (is(schedule, "dualpipev")) {
            make_dualpipev(&rows, r);
        } else if (is(schedule, "v-min")) {
            make_v_min(&rows, r);
        } else {
            make_v_half(&rows, r);
        }
    }
    *rows_out = rows;
    return true;
}

void slow_rows_free(slow_rows *rows)
{
    for (int r = 0; r < rows->ranks; r++) {
        free(rows->cells[r]);
    }
    free(rows->cells);
    free(rows->counts);
}

/* ---- running them ---------------------------------------------------------------------------- */

static int rank_of(const slow_rows *rows, int stage)
{
    for (int r = 0; r < rows->ranks; r++) {
        for (int i = 0; i < rows->counts[r]; i++) {
            if (rows->cells[r][i].stage == stage) {
                return r;
            }
        }
    }
    slow_require(false, "a stage without a rank");
    return -1;
}

typedef struct slow_ends {
    const slow_rows *rows;
    int64_t *forward, *backward; /* [stage][microbatch], -1: has not ended */
    int *rank;                   /* [stage] */
    int64_t hop;
} slow_ends;

static int64_t *end_of(const slow_ends *e, bool backward, int stage, int microbatch)
{
    size_t index = (size_t)stage * (size_t)e->rows->microbatches + (size_t)microbatch;
    return backward ? &e->backward[index] : &e->forward[index];
}

/* The time at which all inputs of the cell have arrived; -1: not yet. */
static int64_t inputs_at(const slow_ends *e, const slow_cell *c)
{
    bool backward = c->type != 'F';
    int from = backward ? c->stage + 1 : c->stage - 1;
    int64_t at = 0;
    if (c->type == 'W') {
        return *end_of(e, true, c->stage, c->microbatch);
    }
    if (backward) {
        at = *end_of(e, false, c->stage, c->microbatch);
    }
    if (at >= 0 && from >= 0 && from < e->rows->stages) {
        int64_t end = *end_of(e, backward, from, c->microbatch);
        int64_t hop = e->rank[from] != e->rank[c->stage] ? e->hop : 0;
        return end < 0 ? -1 : slow_max(at, end + hop);
    }
    return at;
}

static int64_t takes(const slow_split *stages, const slow_cell *c)
{
    const slow_split *s = &stages[c->stage];
    return c->type == 'F'   ? s->forward
           : c->type == 'I' ? s->input
           : c->type == 'W' ? s->weight
                            : s->input + s->weight;
}

static void finish(const slow_ends *e, slow_cell *c, int64_t start, int64_t end)
{
    c->start = start;
    c->end = end;
    if (c->type != 'W') {
        *end_of(e, c->type != 'F', c->stage, c->microbatch) = end;
    }
}

/* Chunks that this rank holds immediately after `now`. */
static int held(const slow_rows *rows, int rank, int64_t now)
{
    int count = 0;
    for (int i = 0; i < rows->counts[rank]; i++) {
        const slow_cell *c = &rows->cells[rank][i];
        count += c->type == 'F' && c->start <= now ? 1 : 0;
        count -= (c->type == 'W' || c->type == 'B') && c->end <= now ? 1 : 0;
    }
    return count;
}

static slow_span measure(const slow_rows *rows)
{
    slow_span span = {0, 0, 0};
    for (int r = 0; r < rows->ranks; r++) {
        const slow_cell *cells = rows->cells[r];
        int last = rows->counts[r] - 1;
        span.makespan = slow_max(span.makespan, cells[last].end);
        span.longest_span = slow_max(span.longest_span, cells[last].end - cells[0].start);
        for (int i = 0; i <= last; i++) {
            int now = held(rows, r, cells[i].start);
            span.peak = now > span.peak ? now : span.peak;
        }
    }
    return span;
}

/* Starts the next cells of a rank. @return the number of cells started */
static int step(const slow_ends *e, slow_cell *c, const slow_split *stages, double saving,
                int64_t *free_at)
{
    int64_t at = inputs_at(e, c);
    int64_t time = takes(stages, c);
    if (c->paired) {
        int64_t other = inputs_at(e, c + 1);
        int64_t other_time = takes(stages, c + 1);
        int64_t saved = (int64_t)floor(saving * (double)slow_min(time, other_time));
        at = at < 0 || other < 0 ? -1 : slow_max(at, other);
        time += other_time - saved;
    }
    if (at < 0) {
        return 0;
    }
    int64_t start = slow_max(*free_at, at);
    *free_at = start + time;
    finish(e, c, start, *free_at);
    if (c->paired) {
        finish(e, c + 1, start, *free_at);
    }
    return c->paired ? 2 : 1;
}

bool slow_rows_try(slow_rows *rows, const slow_split *stages, int64_t hop, double saving,
                   slow_span *span_out)
{
    size_t units = (size_t)rows->stages * (size_t)rows->microbatches;
    slow_ends ends = {rows, slow_alloc(units, sizeof(int64_t)), slow_alloc(units, sizeof(int64_t)),
                      slow_alloc((size_t)rows->stages, sizeof(int)), hop};
    memset(ends.forward, 0xff, units * sizeof(int64_t));
    memset(ends.backward, 0xff, units * sizeof(int64_t));
    for (int s = 0; s < rows->stages; s++) {
        ends.rank[s] = rank_of(rows, s);
    }
    int *next = slow_alloc((size_t)rows->ranks, sizeof(int));
    int64_t *free_at = slow_alloc((size_t)rows->ranks, sizeof(int64_t));
    bool moved = true;
    while (moved) {
        moved = false;
        for (int r = 0; r < rows->ranks; r++) {
            if (next[r] < rows->counts[r]) {
                int count = step(&ends, &rows->cells[r][next[r]], stages, saving, &free_at[r]);
                next[r] += count;
                moved |= count > 0;
            }
        }
    }
    bool done = true;
    for (int r = 0; r < rows->ranks; r++) {
        done &= next[r] == rows->counts[r];
    }
    free(ends.forward);
    free(ends.backward);
    free(ends.rank);
    free(next);
    free(free_at);
    if (done) {
        *span_out = measure(rows);
    }
    return done;
}

slow_span slow_rows_run(slow_rows *rows, const slow_split *stages, int64_t hop, double saving)
{
    slow_span span;
    slow_require(slow_rows_try(rows, stages, hop, saving, &span), "deadlock");
    return span;
}
