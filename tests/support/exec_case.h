/** @file exec_case.h  A small decoder, its data, and runs of it on the host backend. */
#pragma once

#include "exec/run/execute.h"
#include "exec/run/single.h"
#include "exec/run/work.h"

/** A model for tests: d = 32, GQA 4/2, head_dim 8, f = 48, V = 97 (executor.md section 3.3). */
rp_model rp_test_decoder(uint32_t layers, bool tied, bool qk_norm);

/** Work of a single call with a sequence per microbatch and the schedule's own recompute mode,
 * uploaded in small pieces. An unknown schedule ends the test. */
rp_resolved rp_test_work(const char *schedule, uint32_t gpus, uint32_t microbatches,
                         uint32_t iterations);

typedef struct rp_test_run {
    rpexec_model model;
    rpexec_state state;
    uint32_t iterations;
    uint64_t sequences;      /**< sequences in an iteration */
    rpexec_batch *batches;   /**< [iterations] */
    double *losses;          /**< [iterations] */
    double *norms;           /**< [iterations] norms of the gradients */
    uint32_t iterations_run; /**< iterations that the follower has let run */
    uint64_t uploaded_bytes;
    uint64_t downloaded_bytes;
    uint64_t exchanged_bytes;
    uint64_t collective_bytes; /**< bytes of collectives in the program, for all ranks */
    uint32_t collectives;      /**< number of collective ops, for all ranks */
    uint64_t most_bytes;       /**< bytes planned in the memory of the fullest GPU */
    rp_program *program;       /**< with twist.observe: the program that ran, and its times;
                                * rp_test_forget */
    rp_timeline *timeline;
    rpexec_plan plan;
} rp_test_run;

/** @return the offset in the state's arrays of the tensor with a Hugging Face name; an unknown name
 * ends the test */
uint64_t rp_test_offset_of(const rp_test_run *run, const char *name);

/** Random tokens for `sequences` sequences per iteration; some labels are ignored. */
void rp_test_batches(rp_arena *arena, const rpexec_model *model, uint32_t iterations,
                     uint32_t sequences, uint64_t seed, rpexec_batch **batches_out);

/** Departures of a run from the plain run. Zeroes: none. */
typedef struct rp_test_twist {
    uint64_t delay_seed;
    uint32_t delay_us;
    uint32_t delay_classes;    /**< rpexec_driver_config */
    uint32_t watchdog_s;       /**< seconds; 0: 30 */
    uint64_t cap_bytes;        /**< cap on each GPU's memory */
    rp_dtype dtype;            /**< storage type; 0: fp32 */
    const rp_machine *machine; /**< rpexec_driver_config */
    rp_op_kind fail_kind;      /**< with `fails`: the first op of this kind fails */
    bool fails;
    bool drops_gradients;     /**< the run keeps no gradients, and fuses its steps if it can */
    rpexec_follower follower; /**< follower of the run */
    const rpexec_adam *adam;  /**< NULL: rpexec_adam_defaults */
    uint32_t again;           /**< number of further runs of the program, on further batches */
    bool observe;             /**< keeps program, plan and timeline in the run */
    const rpexec_driver_type *driver_type; /**< NULL: the host backend */
    rpexec_devices_config devices;         /**< for a driver with devices; `gpus` is taken from the
                                            * work */
    /** Called before the run, and may replace weights and batches. NULL: not called. */
    void (*prepare)(void *context, rp_arena *arena, rp_test_run *run);
    /** Called when the plan has been made, and may change it. NULL: not called. */
    void (*replan)(void *context, rp_arena *arena, rpexec_plan *plan);
    void *context;
} rp_test_twist;

/** Runs `work` on the host backend with seed 1. `twist` may be NULL. The run lives in `arena`. */
rp_status rp_test_execute(rp_arena *arena, const rp_model *config, uint32_t seq_len,
                          const rp_resolved *work, const rp_test_twist *twist,
                          rp_test_run *run_out);

/** Frees the parts of a run that twist.observe has kept. */
void rp_test_forget(rp_test_run *run);

/** Runs the same work on a single device in plain loops. */
rp_status rp_test_single(rp_arena *arena, const rp_model *config, uint32_t seq_len,
                         const rp_resolved *work, rp_test_run *run_out);

/** Runs the same work in plain loops with the twist's `prepare`; NULL: none. */
rp_status rp_test_single_from(rp_arena *arena, const rp_model *config, uint32_t seq_len,
                              const rp_resolved *work, const rp_test_twist *twist,
                              rp_test_run *run_out);

/**
 * @return the largest difference between two runs' last gradients, relative to the value plus its
 * layer's root mean square; NaN if there is a NaN
 */
double rp_test_distance(const rp_test_run *a, const rp_test_run *b);

/** @return true if losses, weights, moments and the last gradients are equal bit for bit */
bool rp_test_same(const rp_test_run *a, const rp_test_run *b, uint32_t iterations);
