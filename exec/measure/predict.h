/** @file predict.h  --predict: the very program that runs, simulated by the rpsim beside rpexec
 * with the costs that an earlier run has recorded. */
#pragma once

#include "common/inputs/costs.h"
#include "common/timeline/timeline.h"
#include "exec/operators/dtype.h"
#include "exec/run/driver.h"

/** Files of an earlier run. */
typedef struct rpexec_prediction {
    const char *costs_path;
    const char *platform_path;
    rp_costs costs;
    bool bound;              /**< GPUs' threads stayed on a core each (--bind) */
    double busy_pct;         /**< rp_platform.recorded_busy_pct */
    double network_gb_per_s; /**< as recorded; 0: by one process. rpexec_predict simulates what it
                                  finds here */
} rpexec_prediction;

/** Text that a cost table's source begins with, before the conditions and a semicolon. */
#define RPEXEC_MEASURED_IN "measured by rpexec in "

/** Settings that the costs of a run must have been measured with. */
typedef struct rpexec_measured {
    const char *model;
    const char *backend;
    const char *conditions; /**< rpexec_predict_conditions */
    uint32_t layers;
    uint32_t sequences; /**< of a microbatch */
    uint32_t seq_len;
} rpexec_measured;

/** Conditions that a layer's time depends on, apart from sizes: storage, adapters, where fp16 adds
 * up, whose attention was asked for. */
rp_status rpexec_predict_conditions(rp_dtype dtype, const rp_model *model, bool half_accumulation,
                                    rpexec_attention_by attention, rp_arena *arena,
                                    const char **text_out);

/**
 * Finds and reads them, before anything runs.
 * @param from a folder of --record, or the cost table in one; platform.yaml is beside it
 * @param wanted what they must be of; tables that do not say so (names without '@', sources without
 *        conditions) are taken
 * @retval RP_OK, RP_INPUT (missing, malformed, or of something else; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_predict_read(const char *from, const rpexec_measured *wanted, rp_arena *arena,
                              rpexec_prediction *prediction_out);

/**
 * Simulates a program at hardware fidelity.
 * @param model name or file, as rpsim takes it
 * @param timeline_path where the simulated timeline stays (common/timeline/timeline_csv.h), or NULL
 * @param timeline_out of `program`, which must outlive it; owned by the caller
 * @retval RP_OK, RP_TOOL (rpsim is missing, or has failed; logged with its message), RP_IO,
 *         RP_NO_MEMORY
 */
rp_status rpexec_predict(const rpexec_prediction *prediction, const rp_program *program,
                         const char *model, const char *timeline_path, rp_arena *arena,
                         rp_timeline **timeline_out);
