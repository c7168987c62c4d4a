#include "tests/reference/slow_exact.h"

#include "tests/reference/slow_sim.h"

#include <stdlib.h>
#include <string.h>

#define MOST_CELLS 16

typedef struct slow_words {
    int microbatches, capacity;
    int count;
    char (*words)[MOST_CELLS]; /* "FIFWIW": the kind of each cell in turn */
} slow_words;

static void extend(slow_words *w, const char *begun, int forwards, int inputs, int weights)
{
    int length = forwards + inputs + weights;
    char word[MOST_CELLS];
    memcpy(word, begun, (size_t)length);
    if (weights == w->microbatches) {
        w->words = realloc(w->words, ((size_t)w->count + 1) * sizeof *w->words);
        slow_require(w->words != NULL, "out of memory");
        memcpy(w->words[w->count++], word, MOST_CELLS);
        return;
    }
    if (forwards < w->microbatches && forwards - weights < w->capacity) {
        word[length] = 'F';
        extend(w, word, forwards + 1, inputs, weights);
    }
    if (inputs < forwards) {
        word[length] = 'I';
        extend(w, word, forwards, inputs + 1, weights);
    }
    if (weights < inputs) {
        word[length] = 'W';
        extend(w, word, forwards, inputs, weights + 1);
    }
}

typedef struct slow_exact {
    const slow_words *words;
    const slow_split *stages;
    slow_rows rows;
    int64_t hop, least;
} slow_exact;

static void set_row(slow_exact *e, int rank, const char *word)
{
    int next[3] = {0, 0, 0};
    for (int i = 0; i < e->rows.counts[rank]; i++) {
        int kind = word[i] == 'F' ? 0 : word[i] == 'I' ? 1 : 2;
        e->rows.cells[rank][i] = (slow_cell){word[i], rank, next[kind]++, false, -1, -1};
    }
}

static void try_ranks(slow_exact *e, int rank)
{
    if (rank == e->rows.ranks) {
        slow_span span;
        if (slow_rows_try(&e->rows, e->stages, e->hop, 0, &span)) {
            e->least = span.makespan < e->least ? span.makespan : e->least;
        }
        return;
    }
    for (int i = 0; i < e->words->count; i++) {
        set_row(e, rank, e->words->words[i]);
        try_ranks(e, rank + 1);
    }
}

int64_t slow_exact_makespan(int ranks, int microbatches, int capacity, const slow_split *stages,
                            int64_t hop)
{
    slow_require(3 * microbatches <= MOST_CELLS, "too many microbatches to try all orders");
    slow_words words = {microbatches, capacity, 0, NULL};
    extend(&words, "", 0, 0, 0);
    slow_exact e = {&words, stages, {ranks, microbatches, ranks, NULL, NULL}, hop, INT64_MAX};
    e.rows.counts = slow_alloc((size_t)ranks, sizeof(int));
    e.rows.cells = slow_alloc((size_t)ranks, sizeof(slow_cell *));
    for (int r = 0; r < ranks; r++) {
        e.rows.counts[r] = 3 * microbatches;
        e.rows.cells[r] = slow_alloc((size_t)e.rows.counts[r], sizeof(slow_cell));
    }
    try_ranks(&e, 0);
    slow_rows_free(&e.rows);
    free(words.words);
    return e.least;
}
