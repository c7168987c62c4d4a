/* A deliberately slow and obvious partitioner: the pseudo-code of planner.md 2, line by line, with
 * every sum added up anew. It shares no code with common/. Times and bytes must be so small that no
 * product here overflows: sums below 2^31, limits below 2^62. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SLOW_PLAN_LAYERS 256

typedef enum { SLOW_PLAN_INFER, SLOW_PLAN_TRAIN, SLOW_PLAN_FUSED } slow_plan_mode;

typedef struct slow_plan_input {
    slow_plan_mode mode;
    int layers; /* 1 .. SLOW_PLAN_LAYERS */
    int64_t f[SLOW_PLAN_LAYERS], b[SLOW_PLAN_LAYERS];
    int64_t p[SLOW_PLAN_LAYERS], q[SLOW_PLAN_LAYERS];
    int64_t limit;
    int64_t min_stages, num, den;
} slow_plan_input;

typedef struct slow_plan {
    int forward_count, backward_count;
    int forward[SLOW_PLAN_LAYERS][2]; /* first layer, layer after the last; execution order */
    int backward[SLOW_PLAN_LAYERS][2];
    int64_t cap, cost, limit;
    bool raised;
} slow_plan;

/* The best plan. */
void slow_plan_make(const slow_plan_input *input, slow_plan *plan_out);

/* Finds every cap of the pseudo-code, ascending and each once, with the stages that greedy packing
 * needs for it. @param most size of the arrays @return the number of caps, of which at most `most`
 * are stored */
int slow_plan_caps(const slow_plan_input *input, int most, int64_t *caps, int *stages);

/* The fewest stages of any valid plan whose stages fit `cap` and the effective limit, found by
 * trying every way to cut the layers; layers <= 10. */
int slow_plan_fewest_stages(const slow_plan_input *input, int64_t cap);

/* True if the plan has all layers for its mode, in order, without gaps and empty stages, and every
 * stage fits the cap and the limit. */
bool slow_plan_is_valid(const slow_plan_input *input, const slow_plan *plan);
