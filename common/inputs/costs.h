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
 * Longest time that one microbatch may take through all layers and the head, forward, recompute and
 * backward together with one hop: about 20 hours. Leaves room for 127 microbatches one after the
 * other in an int64; a simulation of more must check its own sum.
 */
#define RP_MAX_MICROBATCH_PS (INT64_MAX / 128)

/** Measured times of one microbatch, in picoseconds. Keys: docs/generated/costs.md. */
typedef struct rp_costs {
    const char *name;
    const char *source; /**< where the times come from; "" where the file does not say */
    /** measured: a file; moved: of another GPU or arithmetic; assumed: roofline */
    rp_provenance kind;
    rp_arithmetic arithmetic; /**< that they were measured in, or are for; accumulation USUAL: the
                                   file does not say it */
    uint32_t layers;
    int64_t *fwd_ps;       /**< [layers] */
    int64_t *bwd_ps;       /**< [layers], full backward without recompute */
    int64_t *bwd_input_ps; /**< [layers], input-gradient part of bwd_ps; default half, floor */
    int64_t head_fwd_ps;   /**< final norm + LM head + loss, forward */
    int64_t head_bwd_ps;
    int64_t hop_ps; /**< boundary activation between two GPUs, stage fidelity only */
    /**
     * 0 to 1: of the shorter of a forward and a backward that run together (DualPipeV), what the
     * pair saves of their sum; stage fidelity only. 0: the sum, as published for its bubble.
     */
    double overlap_saving;
    uint32_t microbatch_size; /**< sequences */
    uint32_t seq_len;         /**< tokens per sequence */
    uint32_t tensor_parallel; /**< GPUs that share the layers whose times on each these are; 0 or 1:
                                   whole layers */
} rp_costs;

/** The keys of a cost table. */
extern const rp_config_schema rp_costs_schema;

/** @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY */
rp_status rp_costs_load(const char *name_or_path, rp_arena *arena, rp_costs *costs_out);

/** As rp_costs_load, from bytes in memory. @retval RP_OK, RP_INPUT, RP_NO_MEMORY */
rp_status rp_costs_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                         rp_costs *costs_out);
