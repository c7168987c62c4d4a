/** @file simgrid_run.h  What bench_simgrid gives to SimGrid: a lowered program as plain arrays.
 * SimGrid's interface is C++, librp's headers are C17 (array parameters with static), so the two
 * meet here.
 */
#pragma once

#include <stdint.h>

#define SIMGRID_NO_ENGINE UINT32_MAX

/** Everything is borrowed. Ops are numbered as in the program, queue after queue. */
typedef struct simgrid_case {
    uint32_t gpus;
    uint32_t op_count;
    uint32_t queue_count;
    const uint32_t *queue_begin;     /**< [queue] */
    const uint32_t *queue_end;       /**< [queue] */
    const uint32_t *queue_engine;    /**< [queue] 2 gpu: uploads, 2 gpu + 1: downloads, or none */
    const uint32_t *queue_of;        /**< [op] */
    const double *seconds;           /**< [op] of compute ops */
    const double *bytes;             /**< [op] of transfers */
    uint32_t *pending;               /**< [op] open waits; used up by the runs */
    const uint32_t *dependent_begin; /**< [op + 1] into dependents */
    const uint32_t *dependents;
    double link_Bps; /**< of each GPU and direction */
    double root_Bps; /**< shared by all transfers; 0: not a bottleneck */
    int timers;      /**< GPU ops are timers; otherwise executions on a host of their own */
} simgrid_case;

/** Outcome of a case that SimGrid has run. */
typedef struct simgrid_result {
    double makespan_s;
    double cpu_s; /**< CPU seconds of this process per run, of the runs after a warm-up */
    uint32_t runs;
    uint32_t ended; /**< ops of the last run; 0 where another run ended fewer */
} simgrid_result;

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Runs the case again and again for at least `least_s` CPU seconds, once at least; once per
 * process, since SimGrid's engine is one per process.
 */
void bench_run_simgrid(const simgrid_case *of, double least_s, simgrid_result *result_out);

#ifdef __cplusplus
}
#endif
