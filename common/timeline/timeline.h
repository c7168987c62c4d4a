/** @file timeline.h  Record of a run: start and end of every op of a program. */
#pragma once

#include "common/program/program.h"

typedef struct rp_timeline {
    const rp_program *program; /**< borrowed; must outlive the timeline */
    rp_arena *arena;           /**< owned */
    int64_t *start_ps;         /**< [op_count], from the beginning of the run */
    int64_t *end_ps;           /**< [op_count] */
    int64_t *held_ps; /**< [op_count] part of end - start in which a compute op waited for the host
                         to launch the rest of it; NULL: none */
    int64_t *work_ps; /**< [op_count] part of end - start in which the op's thread had a core, or
                         its transfer a link, if ops share cores; NULL: all of it */
} rp_timeline;

/** Creates a timeline whose times are still undefined. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_timeline_create(const rp_program *program, rp_timeline **timeline_out);

/** NULL is allowed. */
void rp_timeline_destroy(rp_timeline *timeline);

/** @return time at which an op's result exists: its end, or the end of the backward after it if the
 * two overlap. */
static inline int64_t rp_timeline_result_ps(const rp_timeline *timeline, uint32_t op)
{
    const rp_op *ops = timeline->program->ops;
    bool overlaps = (ops[op].flags & RP_OP_OVERLAP) != 0;
    while ((ops[op].flags & (RP_OP_JOIN | RP_OP_OVERLAP)) != 0 && overlaps) {
        op++;
    }
    return timeline->end_ps[op];
}

/** @return 64-bit hash of all starts and ends. */
uint64_t rp_timeline_hash(const rp_timeline *timeline);
