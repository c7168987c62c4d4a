/* A deliberately slow and obvious simulation of the five pipeline schedules of the paper's study.
 * It is the oracle of the tests: it transcribes schedules.md 1 and 7 and the metrics of
 * docs/results.md, and shares no code with common/ or sim/. All times are in picoseconds. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    SLOW_GPIPE,
    SLOW_1F1B,
    SLOW_INTERLEAVED_1F1B,
    SLOW_LOOPED_BFS,
    SLOW_ROUNDPIPE
} slow_schedule;

typedef enum { SLOW_RECOMPUTE_NONE, SLOW_RECOMPUTE_WAIT, SLOW_RECOMPUTE_EARLY } slow_recompute;

typedef struct slow_config {
    slow_schedule schedule;
    slow_recompute recompute;
    int gpus, microbatches, iterations;
    /* iterations > 1. true: the next iteration queues after this iteration, without edges between
     * them; false: it starts at this iteration's makespan, until which all GPUs are idle. */
    bool async;
    /* roundpipe: microbatches per round; the last round takes the rest. 0: all microbatches are in
     * a single round, and the rotation never resets. */
    int round;
    /* roundpipe: true: the next round starts at GPU (g0 + forward + backward stages) mod N, also
     * over iterations; false: at the GPU with the smallest free time, lowest index on ties. */
    bool rotate;
    int layers;
    const int64_t *fwd_ps, *bwd_ps; /* per layer; bwd without recompute */
    int64_t head_fwd_ps, head_bwd_ps, hop_ps;
    int stage_count;
    const int *stage_layers; /* forward stages, in order; may be NULL if stage_count is 0 */
    int backward_count;
    const int *backward_layers; /* roundpipe only: in execution order, first the head's */
} slow_config;

/* Metrics of the whole run, all iterations together. makespan, fill, switch, drain and intra count
 * only non-empty units (a unit is an op with its pre-work; it is empty if it takes no time). */
typedef struct slow_result {
    int64_t makespan_ps, busy_ps, bubble_ps, fill_ps, switch_ps, drain_ps, intra_ps;
    int64_t comm_total_ps, comm_exposed_ps;
    /* A lower bound on the makespan with the same edges and placement; 0 unless iterations is 1.
     * Paths end at a non-empty unit, as the makespan does. */
    int64_t lower_bound_ps;
    /* `iterations` entries, which the caller frees: the latest end of a non-empty unit of each
     * iteration (0 if it has none). */
    int64_t *iteration_end_ps;
} slow_result;

/* Simulates `config`. Durations must be >= 0 and gpus * makespan must fit into int64_t. @return
 * false if the schedule's rule does not allow these sizes; `*result_out` is untouched then.
 * A broken invariant (negative bubble part, parts that do not sum to the bubble, bound above the
 * makespan, deadlock) aborts, in every build type. */
bool slow_run(const slow_config *config, slow_result *result_out);
