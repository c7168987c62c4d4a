/** @file planner.h  RoundPipe's automatic partitioner: layers to forward and backward stages.
 *
 * Rules: planner.md 2. All quantities are integers, so that a plan is the same
 * everywhere. `cap` is the time that no stage may exceed; a plan's cost is the length of a full
 * rotation if every stage took `cap`.
 */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/costs.h"
#include "common/inputs/model.h"
#include "common/inputs/partition.h"
#include "common/inputs/platform.h"

/** Longest list of layers: all transformer blocks, embedding and head. */
#define RP_PLAN_MAX_LAYERS (RP_MAX_LAYERS + 2u)

/** A memory limit that nothing exceeds. */
#define RP_PLAN_UNLIMITED UINT64_MAX

/** Most window sums that rp_plan_candidates lists; a list of 1023 layers never has more. */
#define RP_PLAN_MAX_WINDOWS (UINT32_C(1) << 20)

/** X(enumerator, name, meaning). Nothing else enumerates the modes. */
#define RP_PLAN_MODE_LIST(X)                                                                       \
    X(RP_PLAN_INFER, "infer", "forward stages only")                                               \
    X(RP_PLAN_TRAIN, "train", "forward and backward stages both hold every layer")                 \
    X(RP_PLAN_FUSED, "fused", "the last layers run forward and backward in one stage")

typedef enum rp_plan_mode {
#define RP_PLAN_MODE_ENUM(name, text, meaning) name,
    RP_PLAN_MODE_LIST(RP_PLAN_MODE_ENUM)
#undef RP_PLAN_MODE_ENUM
} rp_plan_mode;

/** @return "infer", "train" or "fused". */
const char *rp_plan_mode_text(rp_plan_mode mode);

/** @return true if `text` names a mode, which `mode_out` receives. */
bool rp_plan_mode_parse(const char *text, rp_plan_mode *mode_out);

/**
 * Plan input; everything is borrowed. The times of all layers must fit into an int64 together, as
 * must the bytes of all layers, and the cost of the worst plan that the tolerance allows.
 */
typedef struct rp_plan_input {
    const char *name; /**< origin of the input, for messages; NULL: "planner" */
    rp_plan_mode mode;
    uint32_t layers;           /**< 1 .. RP_PLAN_MAX_LAYERS, embedding and head are layers */
    const int64_t *fwd_time;   /**< [layers] time of the forward, in training of the recomputation;
                                  any unit, >= 0 */
    const int64_t *bwd_time;   /**< [layers] time of recomputation and backward, in the same unit;
                                  infer: unused */
    const uint64_t *fwd_bytes; /**< [layers] bytes of weights and buffers */
    const uint64_t *bwd_bytes; /**< [layers] bytes with gradients; infer: unused */
    /**
     * Bytes, of which a stage may use half. A limit below twice the largest layer, 0 included, is
     * raised to that. RP_PLAN_UNLIMITED: no limit.
     */
    uint64_t memory_limit;
    uint32_t min_stages;    /**< >= 1, usually the GPUs: fewer stages than this do not help */
    uint32_t tolerance_num; /**< caps reach up to num / den times the longest layer; num >= den */
    uint32_t tolerance_den; /**< >= 1 */
} rp_plan_input;

/** Layers begin .. end - 1. */
typedef struct rp_interval {
    uint32_t begin;
    uint32_t end;
} rp_interval;

/** Stages in execution order; the arrays live in the arena. */
typedef struct rp_plan {
    uint32_t forward_count; /**< 0 if a single fused stage holds all layers */
    rp_interval *forward;   /**< ascending */
    uint32_t backward_count;
    rp_interval *backward; /**< descending; mode fused: the first stage runs its forward, too */
    int64_t max_stage_workload; /**< the cap, in the input's unit of time */
    uint32_t total_stages;
    int64_t cost;                    /**< max(total_stages, min_stages) * max_stage_workload */
    uint64_t effective_memory_limit; /**< bytes; RP_PLAN_UNLIMITED if there is no limit */
    bool limit_raised;               /**< the largest layer needs more than half the limit */
} rp_plan;

/**
 * Finds the cheapest plan; among equally cheap plans, the plan with the smallest cap.
 *
 * The rules try every sum of neighbouring layers between the longest layer and the tolerance. This
 * function finds the same plan by bisection over caps (planner.c has the proof), in O(n) memory and
 * O(n k log(cap range)) time; k is the number of different stage counts that the bound does not
 * exclude: 0.2 ms at most for 100 layers, below a second for 65536 (tests/bench/planner.c).
 * @param plan_out its arrays live in `arena`; undefined on failure
 * @retval RP_OK, RP_INPUT (no layers, negative times, sums too large, …; given as the reason),
 * RP_NO_MEMORY
 */
rp_status rp_plan_make(const rp_plan_input *input, rp_arena *arena, rp_plan *plan_out,
                       rp_reason *reason);

/** A cap that the rules try. */
typedef struct rp_plan_candidate {
    int64_t cap;
    uint32_t stages;
    int64_t cost;
} rp_plan_candidate;

/**
 * Lists every cap that the rules try, each once, ascending, with its stages and cost: an entry for
 * each different window sum. There are up to n^2 of them, which take O(n^2) time and more
 * (milliseconds for 1000 layers, up to a minute for 65536).
 * @param candidates_out lives in `arena`; NULL with *count_out == 0 if there are more than
 * RP_PLAN_MAX_WINDOWS windows
 * @retval RP_OK, RP_INPUT (as rp_plan_make; given as the reason), RP_NO_MEMORY
 */
rp_status rp_plan_candidates(const rp_plan_input *input, rp_arena *arena,
                             rp_plan_candidate **candidates_out, uint32_t *count_out,
                             rp_reason *reason);

/**
 * Makes the input that a cost table implies: embedding (0 ms), blocks and head, in picoseconds;
 * bwd_time is the sum of recomputation and backward; bytes are those of fp16 weights and gradients
 * of all parameters (a tied table counts in both end layers). The mode is fused, the tolerance
 * 11/10, min_stages 1, without a memory limit; the caller may change these members.
 * @param model gives the bytes; must have the table's layer count. NULL: bytes are 0.
 * @param input_out borrows costs->name; its arrays live in `arena`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_plan_input_from_costs(const rp_costs *costs, const rp_model *model, rp_arena *arena,
                                   rp_plan_input *input_out);

/** @return 0.6 of the GPU's nominal memory, in bytes (executor.md 1.9). As in the library, a number
 * of GiB counts as a number of GB. */
uint64_t rp_plan_default_limit(const rp_platform *platform);

/**
 * Turns a plan of embedding, `blocks` transformer blocks and head into a partition, which counts
 * blocks only: a stage that holds only the embedding or the head has 0.
 * @param partition_out lives in `arena`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_plan_partition(const rp_plan *plan, uint32_t blocks, rp_arena *arena,
                            rp_partition *partition_out);
