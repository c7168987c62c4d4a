/** @file cells.h  Orders that are planned with times (schedules.md 3, 5): the cells to run, an
 * order of the cells on each GPU, their start times, and the improvement of an order.
 *
 * A cell is a forward, an input part or a weight part of a stage and a microbatch. A plan's times
 * are those of stage fidelity: an order's makespan is the makespan of the program made from it.
 */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/even.h"
#include "common/schedule/schedule_type.h"

typedef enum rp_cell_kind {
    RP_CELL_FORWARD,
    RP_CELL_INPUT, /**< input part, with the recompute before it */
    RP_CELL_WEIGHT,
    RP_CELL_KINDS,
} rp_cell_kind;

/** A cell's number among all cells of a call: ((stage * microbatches) + microbatch) * kinds +
 * kind. */
typedef uint32_t rp_cell;

#define RP_NO_CELL UINT32_MAX

/** Cells to run. Lives in the arena of rp_cells_make. */
typedef struct rp_cells {
    uint32_t gpus;
    uint32_t stages;
    uint32_t microbatches;
    uint32_t count;       /**< number of all cells */
    uint32_t *gpu_of;     /**< [stage] */
    uint32_t *begin;      /**< [gpus + 1] index at which each GPU's cells begin in an order */
    int64_t *duration_ps; /**< [stage * RP_CELL_KINDS + kind] */
    int64_t *ahead_ps;    /**< [stage] part of an input part that need not wait for the gradient */
    int64_t hop_ps;
} rp_cells;

/** An order of each GPU's cells, and its times. */
typedef struct rp_cell_order {
    rp_cell *cells;      /**< GPU g's are cells[begin[g]] .. cells[begin[g + 1] - 1] */
    int64_t *start_ps;   /**< [cell] */
    uint32_t *sequence;  /**< [cell] a topological numbering: each cell follows its dependencies */
    int64_t makespan_ps; /**< end of the last cell that takes time; RP_CELL_DEADLOCK: some cells
                            never start */
} rp_cell_order;

#define RP_CELL_DEADLOCK INT64_MAX

/** Result of a planned schedule's prepare. */
typedef struct rp_cell_plan {
    rp_cells cells;
    rp_cell_order order;
} rp_cell_plan;

typedef struct rp_cell_name {
    uint32_t stage;
    uint32_t microbatch;
    rp_cell_kind kind;
} rp_cell_name;

static inline rp_cell rp_cell_of(const rp_cells *c, rp_cell_kind kind, uint32_t stage,
                                 uint32_t microbatch)
{
    return (stage * c->microbatches + microbatch) * RP_CELL_KINDS + kind;
}

static inline rp_cell_name rp_cell_name_of(const rp_cells *c, rp_cell cell)
{
    uint32_t unit = cell / RP_CELL_KINDS;
    return (rp_cell_name){unit / c->microbatches, unit % c->microbatches,
                          (rp_cell_kind)(cell % RP_CELL_KINDS)};
}

static inline int64_t rp_cell_duration_ps(const rp_cells *c, rp_cell cell)
{
    uint32_t stage = cell / RP_CELL_KINDS / c->microbatches;
    return c->duration_ps[stage * RP_CELL_KINDS + cell % RP_CELL_KINDS];
}

static inline uint32_t rp_cell_gpu(const rp_cells *c, rp_cell cell)
{
    return c->gpu_of[cell / RP_CELL_KINDS / c->microbatches];
}

/** A dependency: the cell may begin `lag_ps` after the end of `on`; negative if a recompute may run
 * before that end.
 */
typedef struct rp_cell_edge {
    rp_cell on;
    int64_t lag_ps;
} rp_cell_edge;

/**
 * @param edges_out dependencies of the cell, on any GPU
 * @return their number
 */
uint32_t rp_cell_dependencies(const rp_cells *c, rp_cell cell, rp_cell_edge edges_out[2]);

/** As rp_cell_dependencies, in the other direction: `on` are the cells that depend on the cell. */
uint32_t rp_cell_dependents(const rp_cells *c, rp_cell cell, rp_cell_edge edges_out[2]);

/**
 * Makes the cells of a program with 1 stage per GPU, or 2 stages in a V (v_placement.h), as its
 * number of stages tells.
 * @retval RP_OK, RP_INPUT (rp_stage_times_compute, or more work than 46 days), RP_NO_MEMORY
 */
rp_status rp_cells_make(const rp_schedule_config *config, const rp_program *program,
                        rp_arena *arena, rp_cells *cells_out, rp_reason *reason);

/** Allocates the arrays of an order, without content. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_cell_order_make(const rp_cells *c, rp_arena *arena, rp_cell_order *order_out);

/** Copies the cells and times of an order. Both orders belong to the same `c`. */
void rp_cell_order_copy(const rp_cells *c, const rp_cell_order *from, rp_cell_order *to);

/**
 * Makes the order of another schedule, whose backwards all come in two parts, and runs it.
 * @retval RP_OK, RP_USAGE (its rule does not allow the sizes; given as the reason), RP_NO_MEMORY,
 * RP_BROKEN
 */
rp_status rp_cell_order_of(const rp_schedule_type *schedule, const rp_schedule_config *config,
                           const rp_cells *c, rp_arena *arena, rp_cell_order *order,
                           rp_reason *reason);

/**
 * Runs each GPU's cells in order, as early as possible; sets start, sequence and makespan.
 * @param order its `cells` are set: each cell once, on its GPU
 * @retval RP_OK (even if some cell never starts), RP_NO_MEMORY
 */
rp_status rp_cell_order_run(const rp_cells *c, rp_cell_order *order);

/**
 * @param peaks_out [gpus] most forwards that a GPU keeps at a time, until their weight parts are
 * done
 * @return the largest of them
 */
uint32_t rp_cell_order_peaks(const rp_cells *c, const rp_cell_order *order, uint32_t *peaks_out);

/** @return the longest time between a GPU's first start and last end. The order must have been
 * run. */
int64_t rp_cell_order_span_ps(const rp_cells *c, const rp_cell_order *order);

/** For rp_schedule_type.order: emits the cells of `rank` from an rp_cell_plan. */
void rp_cell_plan_emit(const rp_schedule_config *config, const void *plan, uint32_t rank,
                       uint32_t iteration, rp_emitter *emitter);

/**
 * For rp_schedule_type.check: refuses to plan without times.
 * @param name the schedule's name, for the message
 * @retval RP_OK, RP_USAGE (given as the reason)
 */
rp_status rp_cell_plan_check(const rp_schedule_config *config, const char *name, rp_reason *reason);

/**
 * Compaction ("squeeze"): moves cells into idle time, while no GPU ever keeps more forwards than it
 * may. First, from back to front, every cell is put as late as the makespan allows; then, from
 * front to back, as early as possible, into the first gap that is long enough (justification, as in
 * resource-constrained project scheduling: Valls, Ballestin and Quintanilla, EJOR 2005). Both
 * passes are repeated while they help.
 *
 * The result is never worse: cells are placed in the order of their old times. By induction, the
 * cells already placed end no later than before, so the cell's old time is still free and its
 * dependencies are done; a gap is taken only if it is earlier. The best order found is kept.
 * @param capacity [gpus] most forwards that each GPU may keep, at least the order's own peaks
 * @param order has been run; on success it is at least as good, and has been run
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_cell_order_compact(const rp_cells *c, const uint32_t *capacity, rp_cell_order *order);
