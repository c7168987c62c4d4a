/** @file costs.h  Measured times of layers: data in traces/costs.
 *
 * The loader reads a YAML file by a schema (common/formats/config.h): unknown keys, wrong types,
 * NaN, negative or absurd numbers and sums that do not match are refused with "file:line: cause;
 * valid values are …" and RP_INPUT. `name_or_path` is a registered name (traces/costs/NAME.yaml)
 * or, when it contains '/' or ends in ".yaml", a path. An unknown name lists the known ones.
 * Objects live in `arena`.
 */
#pragma once

#include "common/inputs/platform.h"
#include "common/program/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/**
 * Longest time in ps of a microbatch through all layers and the head: forward, recompute, backward
 * and a hop, about 20 hours in all. An int64 has room for 127 such microbatches in sequence; a
 * simulation of more must check its own sum.
 */
#define RP_MAX_MICROBATCH_PS (INT64_MAX / 128)

/** Measured times of a microbatch, in picoseconds. Keys: docs/generated/costs.md. */
typedef struct rp_costs {
    const char *name;
    const char *source; /**< origin of the times; "" if the file does not say it */
    /** measured: times from a file; moved: converted from times of another GPU or arithmetic;
     * assumed: times of the roofline */
    rp_provenance kind;
    rp_arithmetic arithmetic; /**< the arithmetic of the times; accumulation USUAL: the file does
                                 not say it */
    rp_frozen frozen;         /**< rp_model.frozen and rp_model.fp8_products of the times */
    bool fp8_products;
    uint32_t layers;
    int64_t *fwd_ps;       /**< [layers] */
    int64_t *bwd_ps;       /**< [layers], full backward without recompute */
    int64_t *bwd_input_ps; /**< [layers], input-gradient part of bwd_ps; default half, floor */
    int64_t head_fwd_ps;   /**< final norm + LM head + loss, forward */
    int64_t head_bwd_ps;
    int64_t hop_ps; /**< boundary activation between two GPUs, stage fidelity only */
    /**
     * 0 to 1, stage fidelity only. When a forward and a backward run together (DualPipeV), the pair
     * takes less than the sum of both times by this share of the shorter time. 0: it takes the sum,
     * as the published bubble assumes.
     */
    double overlap_saving;
    uint32_t microbatch_size; /**< sequences */
    uint32_t seq_len;         /**< tokens per sequence */
    /** software that the times are of, the loss included (stacks/stack.h); NULL: the table does not
     * say */
    const struct rp_stack *stack;
    /** documents within which the times have attention (load/documents.h); NULL: whole sequences */
    const struct rp_documents *documents;
    uint32_t tensor_parallel; /**< GPUs that share each layer; the times are those of a GPU's part.
                                 0 or 1: whole layers */
    bool computed; /**< by rp_roofline_costs: a run of other sizes may have times of its own */
} rp_costs;

/** The keys of a cost table. */
extern const rp_config_schema rp_costs_schema;

/** @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY */
rp_status rp_costs_load(const char *name_or_path, rp_arena *arena, rp_costs *costs_out);

/** As rp_costs_load, from bytes in memory. @retval RP_OK, RP_INPUT, RP_NO_MEMORY */
rp_status rp_costs_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                         rp_costs *costs_out);
