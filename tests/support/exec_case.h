/** @file exec_case.h  A small decoder, its data, and runs of it on the host backend. */
#pragma once

#include "exec/run/execute.h"
#include "exec/run/single.h"
#include "exec/run/work.h"

/** A model for tests: d = 32, GQA 4/2, head_dim 8, f = 48, V = 97 (executor.md section 3.3). */
rp_model rp_test_decoder(uint32_t layers, bool tied, bool qk_norm);

/** Work of one call with a sequence per microbatch and the schedule's own recompute mode, uploaded
 * in small pieces; a name of no schedule ends the test. */
rp_resolved rp_test_work(const char *schedule, uint32_t gpus, uint32_t microbatches,
                         uint32_t iterations);

typedef struct rp_test_run {
    rpexec_model model;
    rpexec_state state;
    uint32_t iterations;
    uint64_t sequences;      /**< of an iteration */
    rpexec_batch *batches;   /**< [iterations] */
    double *losses;          /**< [iterations] */
    double *norms;           /**< [iterations] of the gradients */
    uint32_t iterations_run; /**< that the follower has let run */
    uint64_t uploaded_bytes;
    uint64_t downloaded_bytes;
    uint64_t exchanged_bytes;
    uint64_t collective_bytes; /**< that the program says, of all ranks */
    uint32_t collectives;      /**< ops of all ranks */
    uint64_t most_bytes;       /**< of the fullest GPU's memory */
    rp_program *program;       /**< with twist.observe: what ran, and when; rp_test_forget */
    rp_timeline *timeline;
    rpexec_plan plan;
} rp_test_run;

/** @return where the tensor of a Hugging Face name is in the state's arrays; none of that name ends
 * the test. */
uint64_t rp_test_offset_of(const rp_test_run *run, const char *name);

/** Random tokens of `sequences` sequences per iteration; some labels are ignored. */
void rp_test_batches(rp_arena *arena, const rpexec_model *model, uint32_t iterations,
                     uint32_t sequences, uint64_t seed, rpexec_batch **batches_out);

/** Departures of a run from the plain one. Zeroes: none. */
typedef struct rp_test_twist {
    uint64_t delay_seed;
    uint32_t delay_us;
    uint32_t delay_classes;    /**< rpexec_driver_config */
    uint32_t watchdog_s;       /**< 0: 30 */
    uint64_t cap_bytes;        /**< of each GPU's memory */
    rp_dtype dtype;            /**< storage type; 0: fp32 */
    const rp_machine *machine; /**< rpexec_driver_config */
    rp_op_kind fail_kind;      /**< with `fails`: the first op of that kind fails */
    bool fails;
    bool drops_gradients;     /**< the run keeps none, and fuses its steps where it can */
    rpexec_follower follower; /**< of the run */
    const rpexec_adam *adam;  /**< NULL: rpexec_adam_defaults */
    uint32_t again;           /**< how often the program runs once more, on further batches */
    bool observe;             /**< keeps program, plan and timeline in the run */
    const rpexec_driver_type *driver_type; /**< NULL: the host backend */
    rpexec_devices_config devices;         /**< of a driver with devices; `gpus` are the work's */
    /** Called before the run: weights and batches may be replaced. NULL: nothing is. */
    void (*prepare)(void *context, rp_arena *arena, rp_test_run *run);
    /** Called when the plan has been made: it may be changed. NULL: it is not. */
    void (*replan)(void *context, rp_arena *arena, rpexec_plan *plan);
    void *context;
} rp_test_twist;

/** Runs `work` on the host backend from seed 1. `twist` may be NULL. The run lives in `arena`. */
rp_status rp_test_execute(rp_arena *arena, const rp_model *config, uint32_t seq_len,
                          const rp_resolved *work, const rp_test_twist *twist,
                          rp_test_run *run_out);

/** Frees what twist.observe has kept. */
void rp_test_forget(rp_test_run *run);

/** The same on one device in plain loops. */
rp_status rp_test_single(rp_arena *arena, const rp_model *config, uint32_t seq_len,
                         const rp_resolved *work, rp_test_run *run_out);

/** The same with the twist's `prepare`; NULL: none. */
rp_status rp_test_single_from(rp_arena *arena, const rp_model *config, uint32_t seq_len,
                              const rp_resolved *work, const rp_test_twist *twist,
                              rp_test_run *run_out);

/**
 * @return the largest difference of two runs' last gradients, relative to the value plus its
 *         layer's root mean square; NaN if there is one
 */
double rp_test_distance(const rp_test_run *a, const rp_test_run *b);

/** @return true where losses, weights, moments and the last gradients are equal bit for bit. */
bool rp_test_same(const rp_test_run *a, const rp_test_run *b, uint32_t iterations);
