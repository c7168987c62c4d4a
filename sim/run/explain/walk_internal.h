/** @file walk_internal.h  Inside of explain: walking back from an op over what it waited for. Not
 * for other modules. */
#pragma once

#include "sim/run/explain/explain.h"

/** A timeline with what the walk looks up. */
typedef struct rpsim_walk {
    const rp_program *program;
    const rp_timeline *timeline;
    int64_t hop_ps;          /**< of a data wait */
    bool joins;              /**< joined ops follow each other without a gap (stage fidelity) */
    uint32_t *queue_of;      /**< [op] */
    uint32_t *engine_before; /**< [op] the last op that takes time, ended before it and is from
                                  another queue of its copy engine; UINT32_MAX: none */
} rpsim_walk;

/** State of an op in a piece of time. */
typedef enum rpsim_step {
    RPSIM_STEP_RUN,    /**< the op runs */
    RPSIM_STEP_HOP,    /**< the tensor of the op is on its way */
    RPSIM_STEP_ENGINE, /**< the op waits for its copy engine */
    RPSIM_STEP_MEMORY, /**< the op is held back by a memory limit */
    RPSIM_STEP_IDLE,   /**< nothing in the program explains why the op did not begin: the host has
                            not launched it, or starting takes time */
} rpsim_step;

typedef struct rpsim_walk_piece {
    uint32_t op;
    rpsim_step step;
    int64_t start_ps; /**< before end_ps */
    int64_t end_ps;
    rpsim_reason reason; /**< why it did not begin earlier */
} rpsim_walk_piece;

typedef void (*rpsim_walk_sink)(void *context, const rpsim_walk_piece *piece);

typedef enum rpsim_walk_mode {
    RPSIM_WALK_WAITS, /**< waits for copy engines and memory limits are the waiting op's own */
    RPSIM_WALK_PATH,  /**< goes on with the op that held the engine or the memory */
} rpsim_walk_mode;

/** Fills the tables. @param arena owns them @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_walk_prepare(const rp_timeline *timeline, int64_t hop_ps, rp_arena *arena,
                             rpsim_walk *walk_out);

/**
 * Explains [from_ps, to_ps) from its end to its beginning: first `op`'s own run, as far as it lies
 * within, then its cause, and so on. The pieces that `sink` gets are contiguous and cover all.
 */
void rpsim_walk_back(const rpsim_walk *walk, uint32_t op, int64_t from_ps, int64_t to_ps,
                     rpsim_walk_mode mode, rpsim_walk_sink sink, void *context);

/** @return the kind of resource that is in use while `op` is in `step`. */
rpsim_resource_kind rpsim_walk_resource_kind(const rpsim_walk *walk, uint32_t op, rpsim_step step);

/** @return its number (rpsim_resource). */
uint32_t rpsim_walk_resource(const rpsim_walk *walk, uint32_t op, rpsim_step step);
