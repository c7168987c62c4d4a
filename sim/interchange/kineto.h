/** @file kineto.h  Costs from traces of PyTorch's profiler and RoundPipe's timer (formats.md 2).
 *
 * PyTorch's pipeline runtime wraps each action of a rank in a profiler range named "PP:" and the
 * action, "PP:2F0". RoundPipe names layer and microbatch (roundpipe.h). A Kineto trace (Chrome
 * JSON) has these ranges as complete events: on the GPU from the first kernel of the range to the
 * end of its last one (category gpu_user_annotation), on the CPU as long as the call took
 * (user_annotation). A call on the CPU includes the wait for its input and, on a GPU, ends before
 * the work does, so the ranges of the CPU are taken only where a trace has none of the GPU.
 */
#pragma once

#include "common/inputs/costs.h"
#include "common/inputs/partition.h"
#include "common/torch/torch_csv.h"

/** A range: an action, or a pair that overlaps. Of RoundPipe a stage is a layer. */
typedef struct rpsim_range {
    uint32_t stage;
    uint32_t pair_stage; /**< of the pair's backward; of a group of layers the last; otherwise 0 */
    uint8_t type;        /**< rp_torch_type; of a pair: RP_TORCH_FORWARD */
    bool pair;
    bool recompute; /**< a forward that runs again before its backward */
    int64_t ps;     /**< time that it took */
} rpsim_range;

/** All ranges of one job. */
typedef struct rpsim_ranges {
    rpsim_range *ranges; /**< a counted block (mem.h) */
    uint32_t count;
    uint32_t capacity;
    uint32_t stage_count; /**< stages that they name, or send to or receive from */
    uint32_t unknown;     /**< ranges named PP: that are no action */
    bool on_gpu;          /**< measured on GPUs */
    bool roundpipe;       /**< of RoundPipe's layers */
    bool timer;           /**< by its timer, without a trace */
    const char *name;     /**< the first file that has ranges; borrowed. NULL: none yet */
} rpsim_ranges;

/**
 * Adds the ranges of one rank's trace. A range whose work is on several streams counts once, with
 * the longest.
 * @param name of the file, for messages; must outlive `ranges`
 * @param text `length` bytes, an object with "traceEvents" or a bare list of events; gzip or not
 * @param ranges zeroed before the first file; rpsim_ranges_fini
 * @retval RP_OK
 * @retval RP_INPUT no JSON ("name:line: cause"), no trace, a duration that is none ("name: event N
 *         (PP:…): cause"), no ranges, ranges of PyTorch's pipelines beside RoundPipe's, or of the
 *         CPU beside a file with ranges of the GPU
 * @retval RP_NO_MEMORY
 */
rp_status rpsim_kineto_read(const char *name, const char *text, size_t length,
                            rpsim_ranges *ranges);

/** Gives the memory back; zeroes are allowed. */
void rpsim_ranges_fini(rpsim_ranges *ranges);

/** Statistic that stands for the ranges of one action in a cost table. */
typedef enum rpsim_statistic {
    RPSIM_STATISTIC_MEDIAN,
    RPSIM_STATISTIC_MIN, /**< for ranges of the CPU: the one that waited least */
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
    int64_t median_ps; /**< of an even count: the mean of the middle two, rounded down */
    double mean_ps;
    double stddev_ps; /**< of the population */
} rpsim_range_summary;

/**
 * Sums ranges of the same action and stage up, ascending by stage, type, pair.
 * @param ranges is sorted in place
 * @param summaries_out in `arena`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_ranges_summarise(rpsim_ranges *ranges, rp_arena *arena,
                                 rpsim_range_summary **summaries_out, uint32_t *count_out);

/**
 * A cost table. A stage's time is shared evenly by its layers. What the last stage takes longer
 * than as many layers of the stages before it is the head's; without them, or without `partition`,
 * nothing is (rpsim_roundpipe_ends). A stage without forwards has its recomputes' time. A stage
 * that has I and W has their sum as backward, otherwise B. Pairs give overlap_saving, the median
 * over the pairs' stages of (F + B - pair) / min(F, B). The hop is not in these ranges and 0.
 * @param partition layers of each stage; NULL: each stage counts as one layer
 * @param costs_out in `arena`; name, source, microbatch_size and seq_len are left to the caller
 * @retval RP_OK, RP_INPUT (an action of a stage is missing, the partition has other stages, or
 *         times that are no costs; logged), RP_NO_MEMORY
 */
rp_status rpsim_kineto_costs(const rpsim_ranges *ranges, const rpsim_range_summary *summaries,
                             uint32_t count, rpsim_statistic statistic,
                             const rp_partition *partition, rp_arena *arena, rp_costs *costs_out);

/**
 * Writes the table as rp_costs_load reads it, with a comment for each summary.
 * @param costs all set
 * @param stream its errors stay with it
 */
void rpsim_kineto_write(const rp_costs *costs, const rpsim_ranges *ranges,
                        const rpsim_range_summary *summaries, uint32_t count, FILE *stream);
