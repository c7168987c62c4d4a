/** @file walk.h  Causes: the op for which each op of a timeline waited, and the walk back over
 * them.
 *
 * **Cause of a start.** An op starts when the op before it in its queue and all ops it waits for
 * have ended (a data wait at stage fidelity: one hop later), and, a transfer, when its copy engine
 * is free. The *cause* of its start is the last of these to finish. If several finish at the same
 * instant, the cause is the op before it in the queue, then the wait that is listed first (waits
 * are listed by op number); it is the copy engine only if that is strictly the last. At stage
 * fidelity a joined group starts as late as the waits of all its members demand; a member's own
 * wait takes precedence over the joined op before it.
 */
#pragma once

#include "common/timeline/timeline.h"

/** X(enumerator, words): the reason for which an op did not begin earlier. */
#define RP_DELAY_LIST(X)                                                                           \
    X(START, "nothing: it began as soon as it could")                                              \
    X(QUEUE, "the op before it in its queue,")                                                     \
    X(DATA, "a tensor of")                                                                         \
    X(CONTROL, "the end of")                                                                       \
    X(ENGINE, "its copy engine, busy with")                                                        \
    X(JOINED, "for the ops joined to it, the end of")                                              \
    X(DISPATCH, "the host, which issued it only after")

/** The reason for which an op, or a segment of the critical path, did not begin earlier. */
typedef enum rp_delay {
#define RP_DELAY_ENUM(name, words) RP_DELAY_##name,
    RP_DELAY_LIST(RP_DELAY_ENUM)
#undef RP_DELAY_ENUM
        RP_DELAY_COUNT
} rp_delay;

/** A timeline with the tables of the walk. */
typedef struct rp_walk {
    const rp_program *program;
    const rp_timeline *timeline;
    int64_t hop_ps;          /**< of a data wait */
    bool joins;              /**< joined ops follow each other without a gap (stage fidelity) */
    uint32_t *queue_of;      /**< [op] */
    uint32_t *engine_before; /**< [op] last op of another queue of its copy engine that takes time
                                and ended before the op; UINT32_MAX: none */
} rp_walk;

/** State of an op in a piece of time. */
typedef enum rp_walk_step {
    RP_WALK_STEP_RUN,    /**< the op runs */
    RP_WALK_STEP_HOP,    /**< the tensor of the op is on its way */
    RP_WALK_STEP_ENGINE, /**< the op waits for its copy engine */
    RP_WALK_STEP_MEMORY, /**< the op is held back by a memory limit */
    RP_WALK_STEP_IDLE,   /**< the program does not explain the op's delay: the host has not launched
                            it, or starting takes time */
} rp_walk_step;

typedef struct rp_walk_piece {
    uint32_t op;
    rp_walk_step step;
    int64_t start_ps; /**< before end_ps */
    int64_t end_ps;
    rp_delay reason; /**< reason for which it did not begin earlier */
} rp_walk_piece;

typedef void (*rp_walk_sink)(void *context, const rp_walk_piece *piece);

typedef enum rp_walk_mode {
    RP_WALK_WAITS, /**< waits for copy engines and memory limits are charged to the waiting op */
    RP_WALK_PATH,  /**< the walk goes on with the op that held the engine or the memory */
} rp_walk_mode;

/**
 * Fills the tables.
 * @param hop_ps time that a tensor takes to another GPU at stage fidelity, otherwise 0
 * @param arena owns them
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_walk_prepare(const rp_timeline *timeline, int64_t hop_ps, rp_arena *arena,
                          rp_walk *walk_out);

/**
 * Explains [from_ps, to_ps) from its end to its beginning: first `op`'s own run, as far as it lies
 * within, then its cause, and so on. The pieces that `sink` gets are contiguous and cover the whole
 * range.
 */
void rp_walk_back(const rp_walk *walk, uint32_t op, int64_t from_ps, int64_t to_ps,
                  rp_walk_mode mode, rp_walk_sink sink, void *context);

/**
 * Gives the cause of an op's start, from which RP_WALK_PATH goes on.
 * @param op_out the causing op; UINT32_MAX if the op waited for nothing
 */
rp_delay rp_walk_cause(const rp_walk *walk, uint32_t op, uint32_t *op_out);

/** @return the op whose end is the makespan and with which the critical path ends. Ops that take no
 * time do not count; on ties it is the lowest op, and 0 if no op takes time. `timeline` must have
 * ops. */
uint32_t rp_walk_last(const rp_timeline *timeline);
