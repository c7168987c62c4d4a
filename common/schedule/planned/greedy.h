/** @file greedy.h  Builds an order with times cell by cell (schedules.md 3, cost-aware ZB-1P, ZB-2P
 * and ZBV): the GPUs' states and the moves that the builders share.
 *
 * A cell is appended to its GPU's order only after all of its dependencies, so that the order
 * cannot deadlock. Weight parts fill gaps and make room in memory.
 */
#pragma once

#include "common/schedule/planned/cells.h"

/** Most stages of a GPU: the stage with its own number, and in a V the stage on the way up. */
#define RP_GREEDY_CHUNKS 2u

typedef struct rp_greedy_gpu {
    uint32_t done[RP_GREEDY_CHUNKS][RP_CELL_KINDS]; /**< microbatches done so far */
    uint32_t count;                                 /**< cells appended so far */
    uint32_t live;                                  /**< forwards whose weight part is not done */
    int64_t free_ps;
    int64_t bubble_ps; /**< idle time since its first cell */
    uint32_t choice;   /**< chunk chosen for this turn of a builder */
} rp_greedy_gpu;

typedef struct rp_greedy {
    const rp_cells *c;
    rp_cell_order *order;
    rp_greedy_gpu *gpus;
    uint32_t chunks;
    uint32_t capacity;   /**< most forwards that a GPU may keep, at least 1 per chunk */
    int64_t approved_ps; /**< a bubble that no GPU need avoid */
} rp_greedy;

/**
 * Begins an order again.
 * @param gpus [gpus] overwritten
 */
void rp_greedy_begin(rp_greedy *g);

/** @return the next cell of that kind and chunk, which must exist. */
rp_cell rp_greedy_next(const rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind);

/** @return whether the next cell exists and all of its dependencies are in the order. */
bool rp_greedy_can(const rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind);

/** @return the time at which the next cell's dependencies are done; requires rp_greedy_can. */
int64_t rp_greedy_ready_ps(const rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind);

/** Appends the next cell, with the gap before it; requires rp_greedy_can. */
void rp_greedy_put(rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind);

/** Appends pending weight parts until another forward fits. @return whether it fits */
bool rp_greedy_make_room(rp_greedy *g, uint32_t gpu);

/**
 * Appends the weight parts that fit into the gap, then a forward or input part.
 * @param force appends another weight part, although it is too long, if the rest of the gap would
 *        make this GPU's bubble the largest of all and larger than approved
 */
void rp_greedy_put_filled(rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind,
                          bool force);

/**
 * Appends all remaining weight parts and runs the order. If cells are missing, the builder was
 * stuck, and the order's makespan is RP_CELL_DEADLOCK.
 * @retval as rp_cell_order_run
 */
rp_status rp_greedy_end(rp_greedy *g);

/** @return the largest bubble of a GPU. */
int64_t rp_greedy_bubble_ps(const rp_greedy *g);

/** Switches of rp_greedy_zb. */
typedef struct rp_zb_switches {
    bool more_warmup;  /**< another forward, although it delays the first input part */
    bool skip_forward; /**< delays a forward if an input part can run and the next GPU has enough
                          forwards */
    bool force_weight; /**< as in rp_greedy_put_filled */
} rp_zb_switches;

/**
 * Builds an order for a single chunk (Qi et al. 2024, section 3.1): as many forwards before the
 * first input part as fit in time and memory, then a forward and an input part per GPU in turn.
 * @retval RP_OK (even if it is stuck), RP_NO_MEMORY
 */
rp_status rp_greedy_zb(rp_greedy *g, const rp_zb_switches *switches);

/**
 * Builds an order for two chunks in a V (Qi et al. 2024, section 6): forwards on the way down as
 * long as they fit in time and memory before the first forward on the way up, then an input part
 * and a forward per GPU in turn, forwards on the way up first.
 * @param force_forward, force_input `force` of rp_greedy_put_filled for each kind of cell
 * @retval RP_OK (even if it is stuck), RP_NO_MEMORY
 */
rp_status rp_greedy_zbv(rp_greedy *g, bool force_forward, bool force_input);
