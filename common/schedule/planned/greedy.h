/** @file greedy.h  Building an order with times cell by cell (schedules.md 3, cost-aware ZB-1P,
 * ZB-2P and ZBV): the GPUs' states and the moves that the builders share.
 *
 * A cell is appended to its GPU's order only when all it waits for has been, so that the order
 * cannot deadlock. Weight parts are used to fill gaps and to make room in memory.
 */
#pragma once

#include "common/schedule/planned/cells.h"

/** The stages of a GPU: its own number, and in a V the one on the way up. */
#define RP_GREEDY_CHUNKS 2u

typedef struct rp_greedy_gpu {
    uint32_t done[RP_GREEDY_CHUNKS][RP_CELL_KINDS]; /**< microbatches so far */
    uint32_t count;                                 /**< cells so far */
    uint32_t live;                                  /**< forwards whose weight part is not done */
    int64_t free_ps;
    int64_t bubble_ps; /**< idle since its first cell */
    uint32_t choice;   /**< of chunk, in this turn of a builder */
} rp_greedy_gpu;

typedef struct rp_greedy {
    const rp_cells *c;
    rp_cell_order *order;
    rp_greedy_gpu *gpus;
    uint32_t chunks;
    uint32_t capacity;   /**< forwards that a GPU may keep, at least 1 per chunk */
    int64_t approved_ps; /**< a bubble that no GPU need avoid */
} rp_greedy;

/**
 * Begins an order anew.
 * @param gpus [gpus] overwritten
 */
void rp_greedy_begin(rp_greedy *g);

/** The next cell of that kind and chunk. Only where there is one. */
rp_cell rp_greedy_next(const rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind);

/** @return true where there is one, and all it waits for is in the order. */
bool rp_greedy_can(const rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind);

/** @return when what the next cell waits for is done; only where rp_greedy_can. */
int64_t rp_greedy_ready_ps(const rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind);

/** Appends the next cell, with the gap before it. Only where rp_greedy_can. */
void rp_greedy_put(rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind);

/** Appends pending weight parts until another forward fits. @return true where one does */
bool rp_greedy_make_room(rp_greedy *g, uint32_t gpu);

/**
 * Appends a forward or input part and before it the weight parts that fit into the gap.
 * @param force where the rest of the gap would make this GPU's bubble the largest of all and larger
 *        than approved, one more weight part is run, although it is too long
 */
void rp_greedy_put_filled(rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind,
                          bool force);

/**
 * Appends all weight parts that are left and runs the order.
 * Where cells are missing, the builder was stuck, and the order's makespan is RP_CELL_DEADLOCK.
 * @retval as rp_cell_order_run
 */
rp_status rp_greedy_end(rp_greedy *g);

/** @return the largest bubble of a GPU. */
int64_t rp_greedy_bubble_ps(const rp_greedy *g);

/** Switches of rp_greedy_zb. */
typedef struct rp_zb_switches {
    bool more_warmup;  /**< one forward more, although it delays the first input part */
    bool skip_forward; /**< not yet, where an input part can run and the next GPU has enough */
    bool force_weight; /**< as in rp_greedy_put_filled */
} rp_zb_switches;

/**
 * One chunk (Qi et al. 2024, section 3.1): as many forwards before the first input part as fit in
 * time and memory, then one forward and one input part per GPU in turn.
 * @retval RP_OK (also where it is stuck), RP_NO_MEMORY
 */
rp_status rp_greedy_zb(rp_greedy *g, const rp_zb_switches *switches);

/**
 * Two chunks in a V (Qi et al. 2024, section 6): forwards on the way down as long as they fit in
 * time and memory before the first forward on the way up, then an input part and a forward per GPU
 * in turn, those on the way up first.
 * @param force_forward, force_input as in rp_greedy_put_filled, by the kind of cell
 * @retval RP_OK (also where it is stuck), RP_NO_MEMORY
 */
rp_status rp_greedy_zbv(rp_greedy *g, bool force_forward, bool force_input);
