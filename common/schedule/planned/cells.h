/** @file cells.h  Orders that are planned with times (schedules.md 3, 5): what there is to run,
 * an order of it on each GPU, when each of it would run, and making an order better.
 *
 * A cell is a forward, an input part or a weight part of a stage and a microbatch. A plan's times
 * are those of stage fidelity: an order's makespan is that of the program made of it.
 */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/even.h"
#include "common/schedule/schedule_type.h"

typedef enum rp_cell_kind {
    RP_CELL_FORWARD,
    RP_CELL_INPUT, /**< with the recompute that comes before it */
    RP_CELL_WEIGHT,
    RP_CELL_KINDS,
} rp_cell_kind;

/** A cell's number among all of a call: ((stage * microbatches) + microbatch) * kinds + kind. */
typedef uint32_t rp_cell;

#define RP_NO_CELL UINT32_MAX

/** Cells to run. Lives in the arena of rp_cells_make. */
typedef struct rp_cells {
    uint32_t gpus;
    uint32_t stages;
    uint32_t microbatches;
    uint32_t count;       /**< of all cells */
    uint32_t *gpu_of;     /**< [stage] */
    uint32_t *begin;      /**< [gpus + 1] where each GPU's cells begin in an order */
    int64_t *duration_ps; /**< [stage * RP_CELL_KINDS + kind] */
    int64_t *ahead_ps;    /**< [stage] of an input part, what need not wait for the gradient */
    int64_t hop_ps;
} rp_cells;

/** An order of all cells on each GPU, and its times. */
typedef struct rp_cell_order {
    rp_cell *cells;      /**< GPU g's are cells[begin[g]] .. cells[begin[g + 1] - 1] */
    int64_t *start_ps;   /**< [cell] */
    uint32_t *sequence;  /**< [cell] a numbering in which each comes after what it waits for */
    int64_t makespan_ps; /**< of cells that take time; RP_CELL_DEADLOCK: some never start */
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

/** That `cell` may begin `lag_ps` after the end of `on`; negative where a recompute may run before.
 */
typedef struct rp_cell_edge {
    rp_cell on;
    int64_t lag_ps;
} rp_cell_edge;

/**
 * @param edges_out what the cell waits for, on whichever GPU
 * @return their number
 */
uint32_t rp_cell_dependencies(const rp_cells *c, rp_cell cell, rp_cell_edge edges_out[2]);

/** As rp_cell_dependencies, seen from the other end: `on` are those that wait for the cell. */
uint32_t rp_cell_dependents(const rp_cells *c, rp_cell cell, rp_cell_edge edges_out[2]);

/**
 * One stage per GPU, or two in a V (v_placement.h), by the number of the program's stages.
 * @retval RP_OK, RP_INPUT (rp_stage_times_compute, or more work than 46 days), RP_NO_MEMORY
 */
rp_status rp_cells_make(const rp_schedule_config *config, const rp_program *program,
                        rp_arena *arena, rp_cells *cells_out, rp_reason *reason);

/** Arrays for an order, still without content. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_cell_order_make(const rp_cells *c, rp_arena *arena, rp_cell_order *order_out);

/** Cells, times and all. Both are of the same `c`. */
void rp_cell_order_copy(const rp_cells *c, const rp_cell_order *from, rp_cell_order *to);

/**
 * The order of another schedule, whose backwards all come in two parts; runs it.
 * @retval RP_OK, RP_USAGE (its rule does not allow the sizes; logged), RP_NO_MEMORY, RP_BROKEN
 */
rp_status rp_cell_order_of(const rp_schedule_type *schedule, const rp_schedule_config *config,
                           const rp_cells *c, rp_arena *arena, rp_cell_order *order,
                           rp_reason *reason);

/**
 * Runs each GPU's cells in order, as early as they can; sets start, sequence and makespan.
 * @param order its `cells` are set: each cell once, on its GPU
 * @retval RP_OK (also where some cell never starts), RP_NO_MEMORY
 */
rp_status rp_cell_order_run(const rp_cells *c, rp_cell_order *order);

/**
 * @param peaks_out [gpus] most forwards of a GPU whose weight part is not done
 * @return the largest of them
 */
uint32_t rp_cell_order_peaks(const rp_cells *c, const rp_cell_order *order, uint32_t *peaks_out);

/** @return the longest time between a GPU's first start and last end; the order has been run. */
int64_t rp_cell_order_span_ps(const rp_cells *c, const rp_cell_order *order);

/** For rp_schedule_type.order: the cells of `rank`, from an rp_cell_plan. */
void rp_cell_plan_emit(const rp_schedule_config *config, const void *plan, uint32_t rank,
                       uint32_t iteration, rp_emitter *emitter);

/**
 * For rp_schedule_type.check: refuses to plan without times.
 * @param name of the schedule, for the message
 * @retval RP_OK, RP_USAGE (logged)
 */
rp_status rp_cell_plan_check(const rp_schedule_config *config, const char *name, rp_reason *reason);

/**
 * Compaction ("squeeze"): moves cells into idle time while no GPU ever keeps more forwards than it
 * may. From the back to the front every cell is put as late as the makespan allows, then from the
 * front to the back as early as possible, into the first gap that is long enough (justification, as
 * in resource-constrained project scheduling: Valls, Ballestin and Quintanilla, EJOR 2005); again
 * while that helps.
 *
 * Never worse: cells are placed in the order of their times before. What is already placed on a
 * GPU then ends before the cell began, and by induction no later than it did, so that the cell's
 * old time is still free and what it waits for is done; a gap is taken only where it is earlier.
 * The best order seen is kept.
 * @param capacity [gpus] no less than the order's own peaks
 * @param order has been run; on success at least as good, and run
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_cell_order_compact(const rp_cells *c, const uint32_t *capacity, rp_cell_order *order);
