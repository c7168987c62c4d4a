/* The inside of the slow reference, shared by slow_reference.c (the rules) and slow_metrics.c. */
#pragma once

#include "tests/reference/slow_reference.h"

#include <stddef.h>

/* Costs per microbatch of a stage in a direction. `pre` comes before the backward proper. */
typedef struct slow_work {
    int64_t pre, body;
    int64_t head_fwd; /* the part of `pre` that is RoundPipe's LM head forward */
} slow_work;

typedef struct slow_op {
    bool backward;
    int iteration, stage, microbatch, gpu;
    int64_t begin, start, end; /* pre-work [begin, start), op proper [start, end) */
} slow_op;

typedef struct slow_queue {
    int *ids;
    int count, capacity, next;
    int64_t free_ps; /* end of the op that was started last; empty ops count */
} slow_queue;

typedef struct slow_sim {
    const slow_config *config;
    int backs; /* number of backward stages */
    bool pre_early;
    slow_work *forward_work, *backward_work;
    slow_op *ops;
    int op_count;
    int *forward_ids, *backward_ids; /* [iteration][stage][microbatch] -> op */
    int *order;                      /* ops in the order in which they were started: a topological
                                      * order */
    int order_count;
    slow_queue *queues;
    int64_t comm_total_ps, comm_exposed_ps;
} slow_sim;

/* Aborts with the text `what` if `condition` is false, in every build type. */
void slow_require(bool condition, const char *what);

/* Zeroed memory, never NULL; the caller frees. */
void *slow_alloc(size_t count, size_t size);

int64_t slow_max(int64_t a, int64_t b);
int64_t slow_min(int64_t a, int64_t b);

const slow_work *slow_work_of(const slow_sim *sim, const slow_op *op);

/* Duration of the pre-work and the op proper together. */
int64_t slow_duration(const slow_sim *sim, const slow_op *op);

/* Finds the ops whose data `op` needs. @return their number */
int slow_dependencies(const slow_sim *sim, const slow_op *op, int ids_out[2]);

/* @return the hop from the GPU of `a` to the GPU of `b`; 0 if they are the same */
int64_t slow_hop(const slow_sim *sim, const slow_op *a, const slow_op *b);

/* @return the latest end of a non-empty unit, in all iterations or in a single iteration; 0 if
 * there is none */
int64_t slow_latest_end(const slow_sim *sim, bool all, int iteration);

/* All metrics of a finished run. */
slow_result slow_measure(const slow_sim *sim);
