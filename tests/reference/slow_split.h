/* Slow and obvious orders and simulation of the schedules with backwards in two parts, and of eager
 * 1F1B (schedules.md 1 to 5). An order is rows of cells as in PyTorch's schedule CSV. Shares no
 * code with common/ or sim/. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct slow_cell {
    char type; /* F forward, I input gradient, W weight gradient, B both */
    int stage, microbatch;
    bool paired;        /* runs together with the next cell: both begin and end at the same time */
    int64_t start, end; /* after slow_rows_run */
} slow_cell;

typedef struct slow_rows {
    int ranks, microbatches, stages;
    int *counts;
    slow_cell **cells; /* [rank][count] */
} slow_rows;

/* Time units of a stage's forward and of the two parts of its backward. */
typedef struct slow_split {
    int64_t forward, input, weight;
} slow_split;

typedef struct slow_span {
    int64_t makespan;
    int64_t longest_span; /* longest time of a rank from its first start to its last end */
    int peak;             /* most chunks of a rank that are run forward but not backward (W or B) */
} slow_span;

/* @param chunks stages per rank, used if the schedule's rule leaves the number open @return false
 * if the schedule is unknown, or its rule does not allow these sizes */
bool slow_rows_make(const char *schedule, int ranks, int microbatches, int chunks,
                    slow_rows *rows_out);

/* Runs each rank's cells in order, as early as they can. A forward and a backward that are paired
 * take the sum of their times less `saving` times the shorter time. Aborts on a deadlock. */
slow_span slow_rows_run(slow_rows *rows, const slow_split *stages, int64_t hop, double saving);

/* As slow_rows_run. @return false after a deadlock */
bool slow_rows_try(slow_rows *rows, const slow_split *stages, int64_t hop, double saving,
                   slow_span *span_out);

void slow_rows_free(slow_rows *rows);
