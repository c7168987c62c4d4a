/** @file producers.h  The ops that run each (iteration, stage, microbatch) of a program, and their
 * needs.
 *
 * The data dependencies of schedules.md 1 and 7 follow from the program's chains: F needs the
 * previous forward stage; a backward needs its own forward (pipelines) or the last forward stage
 * (separate backward stages), and the previous backward stage; W needs its I.
 */
#pragma once

#include "common/program/program.h"

#define RP_NO_OP UINT32_MAX

typedef struct rp_producers {
    const rp_program *program;
    uint32_t *forward_position;  /**< [stage] index in the forward chain, RP_NO_OP if it is not in
                                    the chain */
    uint32_t *backward_position; /**< [stage] index in the backward chain, RP_NO_OP if it is not in
                                    the chain */
    uint32_t *forward_at;        /**< [iteration][forward position][microbatch] -> FORWARD */
    uint32_t *backward_at;       /**< [iteration][backward position][microbatch] -> B or I */
    uint32_t *weight_at;         /**< as backward_at -> W; NULL if the program has no W */
    uint32_t duplicate; /**< an op that runs a part of the work a second time; RP_NO_OP: none */
    uint32_t missing_position; /**< position in the chain of a part that never runs; RP_NO_OP if all
                                  parts run */
    uint32_t missing_microbatch;
    uint32_t missing_iteration;
    rp_op_kind missing_kind;
} rp_producers;

/**
 * Builds the tables in `arena`. The program's header, stages, chains, queues and ops must be in
 * range (rp_program_check verifies them first). Duplicates and gaps are reported in the result, not
 * logged.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_producers_create(const rp_program *program, rp_arena *arena,
                              rp_producers *producers_out);

/**
 * rp_program_check without its last rule: cycles, which an engine notices by itself when it cannot
 * go on. It returns the tables that it has built on the way, so that they need not be built again.
 * @param arena holds the tables and the checks' scratch memory
 * @retval RP_OK, RP_INVALID_PROGRAM (logged), RP_NO_MEMORY
 */
rp_status rp_program_check_but_cycles(const rp_program *program, rp_arena *arena,
                                      rp_producers *producers_out);

static inline size_t rp_producers_forward_index(const rp_producers *p, uint32_t iteration,
                                                uint32_t position, uint32_t microbatch)
{
    size_t row = (size_t)iteration * p->program->forward_count + position;
    return row * p->program->microbatch_count + microbatch;
}

static inline size_t rp_producers_backward_index(const rp_producers *p, uint32_t iteration,
                                                 uint32_t position, uint32_t microbatch)
{
    size_t row = (size_t)iteration * p->program->backward_count + position;
    return row * p->program->microbatch_count + microbatch;
}

/** @return whether a backward stage begins with the output of the last forward stage. Only the
 * head's stage does, and only if it recomputes no layers that forward stages have run. */
static inline bool rp_producers_continues_forward(const rp_stage *stage)
{
    bool head = (stage->roles & RP_STAGE_HEAD) != 0;
    bool fused = (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0;
    return head && (fused || stage->layer_end == stage->layer_begin);
}

#define RP_MAX_PRODUCERS 2

/**
 * Finds the ops whose results `op` needs, at most RP_MAX_PRODUCERS. Pre-work of a backward unit has
 * the needs of the unit.
 * @return the number written to `ops_out`.
 */
static inline uint32_t rp_producers_of(const rp_producers *p, const rp_op *op,
                                       uint32_t ops_out[static RP_MAX_PRODUCERS])
{
    const rp_program *program = p->program;
    uint32_t forward = p->forward_position[op->stage];
    uint32_t m = op->microbatch;
    if (rp_op_kind_is_weight_part(op->kind)) {
        uint32_t position = p->backward_position[op->stage];
        ops_out[0] = p->backward_at[rp_producers_backward_index(p, op->iteration, position, m)];
        return 1;
    }
    if (rp_op_kind_is_forward(op->kind) && forward != RP_NO_OP) {
        if (forward == 0) {
            return 0;
        }
        ops_out[0] = p->forward_at[rp_producers_forward_index(p, op->iteration, forward - 1, m)];
        return 1;
    }
    uint32_t count = 0;
    uint32_t backward = p->backward_position[op->stage];
    if (program->forward_count != 0) {
        uint32_t from = forward != RP_NO_OP ? forward : program->forward_count - 1;
        ops_out[count++] = p->forward_at[rp_producers_forward_index(p, op->iteration, from, m)];
    }
    if (backward != 0) {
        ops_out[count++] =
            p->backward_at[rp_producers_backward_index(p, op->iteration, backward - 1, m)];
    }
    return count;
}
