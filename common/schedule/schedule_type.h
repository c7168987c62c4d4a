/** @file schedule_type.h  The plug-in interface of schedules, and their table.
 *
 * Each schedule has a file in common/schedules/; CMake generates the table from the folder. A
 * schedule only decides the order of forwards and backwards on each GPU; the builder (build.c)
 * turns orders into ops, recompute, waits, buffers and iterations.
 */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/costs.h"
#include "common/inputs/partition.h"
#include "common/program/program.h"
#include "common/program/traits.h"

/** A round holds all microbatches of the call; the rotation never resets. */
#define RP_ROUND_ALL 0u

/** Choice of the GPU that begins RoundPipe's next round. */
typedef enum rp_round_start {
    RP_ROUND_START_FREE_FIRST, /**< the GPU that is free first, lowest index on ties (the paper) */
    RP_ROUND_START_ROTATE,     /**< the next GPU in the rotation (the library) */
} rp_round_start;

/**
 * Settings of a schedule: VALUE(type, member), POINTER(type, member). A program is kept as long as
 * all of them are the same (sim/run/kept.c, which has a function same_MEMBER for each pointer).
 *  - gpus: 1 .. RP_MAX_GPUS;
 *  - microbatches: per iteration, 1 .. RP_MAX_MICROBATCHES;
 *  - iterations: 1 .. RP_MAX_ITERATIONS;
 *  - round: microbatches per round (RoundPipe), or RP_ROUND_ALL;
 *  - call_microbatches: those of a call, for schedules that flush between the calls of an
 *    iteration; the last call may have fewer. 0: a single call has all;
 *  - asynchronous: no barrier between iterations;
 *  - boundary_bytes: bytes of a boundary activation; 0: unknown;
 *  - partition: in the form that the schedule takes; sums equal `layers`;
 *  - costs: needed by schedules that place by time; otherwise may be NULL;
 *  - orders: read from a file (rp_torch_csv_schedule); NULL for all other schedules.
 */
#define RP_SCHEDULE_SETTINGS(VALUE, POINTER)                                                       \
    VALUE(uint32_t, gpus)                                                                          \
    VALUE(uint32_t, microbatches)                                                                  \
    VALUE(uint32_t, iterations)                                                                    \
    VALUE(uint32_t, round)                                                                         \
    VALUE(uint32_t, call_microbatches)                                                             \
    VALUE(rp_round_start, round_start)                                                             \
    VALUE(bool, asynchronous)                                                                      \
    VALUE(rp_recompute, recompute)                                                                 \
    VALUE(uint32_t, layers)                                                                        \
    VALUE(uint64_t, boundary_bytes)                                                                \
    POINTER(const rp_partition *, partition)                                                       \
    POINTER(const rp_costs *, costs)                                                               \
    POINTER(const struct rp_torch_csv *, orders)

/** Everything is borrowed and must outlive the build only. */
typedef struct rp_schedule_config {
#define MEMBER(type, member) type member;
    RP_SCHEDULE_SETTINGS(MEMBER, MEMBER)
#undef MEMBER
} rp_schedule_config;

typedef struct rp_emitter rp_emitter;

/**
 * Appends to the current rank's order. `stage` is an index into the program's stages.
 * rp_emit_backward appends the whole backward unit: pre-work (recompute, and the head's forward if
 * it belongs to the backward stage) and the backward, as the recompute mode demands.
 */
void rp_emit_forward(rp_emitter *emitter, uint32_t stage, uint32_t microbatch);
void rp_emit_backward(rp_emitter *emitter, uint32_t stage, uint32_t microbatch);

/** Ops emitted from here on, until the current call of `order` returns, belong to `iteration`. */
void rp_emit_iteration(rp_emitter *emitter, uint32_t iteration);

/** Appends a forward that runs together with the next emitted op, a backward (or its input part) of
 * another microbatch or stage (RP_OP_OVERLAP). */
void rp_emit_overlapped_forward(rp_emitter *emitter, uint32_t stage, uint32_t microbatch);

/**
 * Append the backward in two parts, for schedules with `splits_backward`: the gradient of the
 * stage's input (the unit with its pre-work, as rp_emit_backward appends it), and later on the same
 * rank the gradient of its weights. The data that a forward keeps stays until the second part.
 */
void rp_emit_backward_input(rp_emitter *emitter, uint32_t stage, uint32_t microbatch);
void rp_emit_backward_weight(rp_emitter *emitter, uint32_t stage, uint32_t microbatch);

typedef struct rp_schedule_type rp_schedule_type;

struct rp_schedule_type {
    const char *name;    /**< as on the command line */
    const char *summary; /**< a line for --list */
    const char *source;  /**< paper and section */
    /**
     * Another schedule with the same order and published partitions but other transfers (at stage
     * fidelity both are equal); NULL: none.
     */
    const char *published_as;
    /** Another schedule whose published partitions it takes, although its own order differs; NULL:
     * none. */
    const char *partitions_of;
    /** The schedule that it becomes with the synchronous optimizer, which makes it flush; NULL:
     * itself. */
    const rp_schedule_type *flushed;
    /** By default its stages have equally many layers if the layers can be divided so; otherwise
     * the `even` partition applies, whose stages take equally long. */
    bool equal_layers;
    /** Takes "fwd|bwd" partitions: backward stages are separate stages. */
    bool separate_backward;
    /** A GPU may have more than 1 stage (their number is a multiple of the GPUs). */
    bool many_stages;
    /** Exact number of stages per GPU, also without many_stages; 0: 1, or as many_stages allows. */
    uint32_t stages_per_gpu;
    /** Emits some or all backwards in two parts. */
    bool splits_backward;
    /** Takes --round. */
    bool rounds;
    /** Copied into the program. A schedule whose versions differ from 1 never flushes: its order is
     * an endless stream of microbatches, of which an iteration takes `microbatches`; with a
     * synchronous optimizer it must flush. A sharded schedule is data parallel: every GPU runs all
     * stages, any number of them, for its own microbatches. With overlapping_rounds --round-start
     * does not apply. */
    rp_traits traits;
    /** --max-seqlen counts the bytes that RoundPipe's library takes through PyTorch's allocator
     * (sim/run/memory/library_memory.h), not the lowered program's buffers. */
    bool library_memory;
    /** Time to make its orders, as a number of their simulations at stage fidelity; 0: negligible.
     * With a larger number a search (--partition tuned) tries fewer partitions. */
    uint32_t planning_runs;
    rp_recompute default_recompute; /**< as published */
    /**
     * Refuses sizes that the rule does not allow, naming the valid sizes: rp_refuse (RP_USAGE). The
     * builder has checked ranges and sums before.
     */
    rp_status (*check)(const rp_schedule_config *config, rp_reason *reason);
    /**
     * Computes data that all ranks share (RoundPipe's start GPUs); NULL: no such data. Schedules
     * without it do not see costs: runs that differ only in times have the same program. Refuses
     * sizes that are too large (rp_refuse).
     * @param program stages and chains are set, and there are no ops yet
     * @param plan_out allocated from `arena`, which lives until the program is built
     */
    rp_status (*prepare)(const rp_schedule_config *config, const rp_program *program,
                         rp_arena *arena, void **plan_out, rp_reason *reason);
    /**
     * Emits the order of `rank` in `iteration`: every forward and backward unit that it runs. Over
     * all ranks each (stage, microbatch) must come exactly once in each direction.
     */
    void (*order)(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter);
};

/** All registered schedules, sorted by file name. */
extern const rp_schedule_type *const rp_schedules[];
extern const uint32_t rp_schedule_count;

/** @return the number of stages of the schedule on `gpus` GPUs; 0: any multiple of `gpus`. */
static inline uint32_t rp_schedule_stages(const rp_schedule_type *schedule, uint32_t gpus)
{
    if (schedule->stages_per_gpu != 0) {
        return schedule->stages_per_gpu * gpus;
    }
    return schedule->many_stages ? 0 : gpus;
}

/** @return the schedule called `name`, or NULL (nothing is logged). */
const rp_schedule_type *rp_schedule_find(const char *name);

/**
 * Logs "unknown schedule …; valid values are …" if no schedule has that name.
 * @param what option or place that the message names
 * @param all whether "all", which is not a schedule, is valid as well
 * @retval RP_OK, RP_USAGE
 */
rp_status rp_schedule_require(const char *what, const char *name, bool all,
                              const rp_schedule_type **schedule_out, rp_reason *reason);

/**
 * Checks ranges, the optimizer mode, partition sums and the schedule's rule.
 * @retval RP_OK, RP_USAGE (given as the reason, with the valid values)
 */
rp_status rp_schedule_check(const rp_schedule_type *schedule, const rp_schedule_config *config,
                            rp_reason *reason);
