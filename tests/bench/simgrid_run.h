/** @file simgrid_run.h  The input of bench_simgrid's SimGrid side: a lowered program as plain
 * arrays. SimGrid's interface is C++ and librp's headers are C17 (array parameters with static), so
 * the two sides share only this header.
 */
#pragma once

#include <stdint.h>

#define SIMGRID_NO_ENGINE UINT32_MAX

/** Borrows all of its arrays. Ops are numbered as in the program, queue after queue. */
typedef struct simgrid_case {
    uint32_t gpus;
    uint32_t op_count;
    uint32_t queue_count;
    const uint32_t *queue_begin;     /**< [queue] */
    const uint32_t *queue_end;       /**< [queue] */
    const uint32_t *queue_engine;    /**< [queue] 2 gpu: uploads, 2 gpu + 1: downloads, or
                                      * SIMGRID_NO_ENGINE */
    const uint32_t *queue_of;        /**< [op] */
    const double *seconds;           /**< [op] seconds of compute ops */
    const double *bytes;             /**< [op] bytes of transfers */
    uint32_t *pending;               /**< [op] open waits; used up by the runs */
    const uint32_t *dependent_begin; /**< [op + 1] into dependents */
    const uint32_t *dependents;
    double link_Bps; /**< bytes per second of each GPU's link in each direction */
    double root_Bps; /**< bytes per second shared by all transfers; 0: not a bottleneck */
    int timers;      /**< GPU ops are timers; otherwise executions on a host of their own */
} simgrid_case;

/** Result of a case in SimGrid. */
typedef struct simgrid_result {
    double makespan_s;
    double cpu_s; /**< CPU seconds of this process per run, without the warm-up */
    uint32_t runs;
    uint32_t ended; /**< ops of the last run; 0 if another run ended fewer ops */
} simgrid_result;

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Runs the case at least once, and again until the runs have taken `least_s` CPU seconds. To be
 * called once per process, since SimGrid makes only a single engine per process.
 */
void bench_run_simgrid(const simgrid_case *of, double least_s, simgrid_result *result_out);

#ifdef __cplusplus
}
#endif
