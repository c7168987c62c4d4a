/** @file kineto.h  Costs from traces of PyTorch's profiler and RoundPipe's timer (formats.md 2).
 *
 * PyTorch's pipeline runtime wraps each action of a rank in a profiler range named "PP:" and the
 * action, "PP:2F0". RoundPipe's ranges name layer and microbatch (roundpipe.h). A Kineto trace
 * (Chrome JSON) has these ranges as complete events: on the GPU from the start of the range's first
 * kernel to the end of its last kernel (category gpu_user_annotation), on the CPU for the duration
 * of the call (user_annotation). A call on the CPU includes the wait for its input and, if a GPU
 * does the work, ends before the work does, so the ranges of the CPU are taken only if a trace has
 * no ranges of the GPU. */
#pragma once

#include "common/inputs/costs.h"
#include "common/inputs/partition.h"
#include "common/torch/torch_csv.h"

/** A range: an action, or a pair of actions that overlap. In RoundPipe's ranges a stage is a
 * layer. */
typedef struct rpsim_range {
    uint32_t stage;
    uint32_t pair_stage; /**< of a pair: stage of its backward; of a group of layers: the last
                            layer; otherwise 0 */
    uint8_t type;        /**< rp_torch_type; for a pair RP_TORCH_FORWARD */
    bool pair;
    bool recompute; /**< a forward that runs again before its backward */
    int64_t ps;     /**< duration */
} rpsim_range;

/** All ranges of a job. */
typedef struct rpsim_ranges {
    rpsim_range *ranges; /**< a counted block (mem.h) */
    uint32_t count;
    uint32_t capacity;
    uint32_t stage_count; /**< number of stages that the ranges name, send to or receive from */
    uint32_t unknown;     /**< ranges whose name begins with PP: but is no action */
    bool on_gpu;          /**< measured on GPUs */
    bool roundpipe;       /**< ranges of RoundPipe's layers */
    bool timer;           /**< RoundPipe's timer was read, not a trace */
    const char *name;     /**< the first file that has ranges; borrowed. NULL: no file yet */
} rpsim_ranges;

/**
 * Adds the ranges of a rank's trace. A range with work on several streams counts once, with the
 * longest duration.
 * @param name name of the file, for messages; must outlive `ranges`
 * @param text `length` bytes, an object with "traceEvents" or a bare list of events; gzip or not
 * @param ranges zeroed before the first file, freed by rpsim_ranges_fini
 * @retval RP_OK
 * @retval RP_INPUT no JSON ("name:line: cause"), no trace, an invalid duration ("name: event N
 *         (PP:…): cause"), no ranges, ranges of PyTorch's pipelines beside RoundPipe's, or of the
 *         CPU beside a file with ranges of the GPU
 * @retval RP_NO_MEMORY
 */
rp_status rpsim_kineto_read(const char *name, const char *text, size_t length,
                            rpsim_ranges *ranges);

/** Frees the ranges' memory; a zeroed structure is allowed. */
void rpsim_ranges_fini(rpsim_ranges *ranges);

/** Statistic that stands for the ranges of an action in a cost table. */
typedef enum rpsim_statistic {
    RPSIM_STATISTIC_MEDIAN,
    RPSIM_STATISTIC_MIN, /**< for ranges of the CPU: the range that waited least */
} rpsim_statistic;

/** The ranges of a stage's action. */
typedef struct rpsim_range_summary {
    uint32_t stage;
    uint32_t pair_stage; /**< as in rpsim_range */
    uint8_t type;
    bool pair;
    bool recompute;
    uint32_t count;
    int64_t min_ps;
    int64_t median_ps; /**< for an even count the mean of the middle two, rounded down */
    double mean_ps;
    double stddev_ps; /**< standard deviation of the population */
} rpsim_range_summary;

/**
 * Summarises the ranges of each action and stage, ascending by stage, type, pair.
 * @param ranges is sorted in place
 * @param summaries_out lives in `arena`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_ranges_summarise(rpsim_ranges *ranges, rp_arena *arena,
                                 rpsim_range_summary **summaries_out, uint32_t *count_out);

/**
 * Makes a cost table. A stage's time is shared evenly by its layers. The head's time is the time
 * that the last stage takes beyond as many layers of the stages before it; without such stages, or
 * without `partition`, the head has none (rpsim_roundpipe_ends). A stage without forwards gets its
 * recomputes' time. The backward is the sum of I and W if the stage has them, otherwise B. Pairs
 * give overlap_saving, the median over the pairs' stages of (F + B - pair) / min(F, B). The hop is
 * not in these ranges and is 0.
 * @param partition layers of each stage; NULL: each stage counts as a layer
 * @param costs_out lives in `arena`; name, source, microbatch_size and seq_len are left to the
 * caller
 * @retval RP_OK, RP_INPUT (an action of a stage is missing, the partition has other stages, or a
 *         time is outside a cost's limits; logged), RP_NO_MEMORY
 */
rp_status rpsim_kineto_costs(const rpsim_ranges *ranges, const rpsim_range_summary *summaries,
                             uint32_t count, rpsim_statistic statistic,
                             const rp_partition *partition, rp_arena *arena, rp_costs *costs_out);

/**
 * Writes the table in the form that rp_costs_load reads, with a comment for each summary.
 * @param costs complete
 * @param stream its errors stay with it
 */
void rpsim_kineto_write(const rp_costs *costs, const rpsim_ranges *ranges,
                        const rpsim_range_summary *summaries, uint32_t count, FILE *stream);
