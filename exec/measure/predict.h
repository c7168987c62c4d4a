/** @file predict.h  --predict: the program that rpexec is about to run, simulated by the rpsim
 * beside it with the costs that an earlier run has recorded. */
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
    bool bound;              /**< each GPU's thread stayed on a core (--bind) */
    double busy_pct;         /**< rp_platform.recorded_busy_pct */
    double network_gb_per_s; /**< recorded rate; 0: the record is of a single process.
                                  rpexec_predict simulates the network with this value */
} rpexec_prediction;

/** Text at the beginning of a cost table's source; the conditions and a semicolon follow. */
#define RPEXEC_MEASURED_IN "measured by rpexec in "

/** Settings that the costs of a run must have been measured with. */
typedef struct rpexec_measured {
    const char *model;
    const char *backend;
    const char *conditions; /**< rpexec_predict_conditions */
    uint32_t layers;
    uint32_t sequences; /**< sequences of a microbatch */
    uint32_t seq_len;
} rpexec_measured;

/** Prints the conditions that a layer's time depends on, apart from sizes: storage type, adapters,
 * the type in which fp16 products accumulate, and the requested implementation of attention. */
rp_status rpexec_predict_conditions(rp_dtype dtype, const rp_model *model, bool half_accumulation,
                                    rpexec_attention_by attention, rp_arena *arena,
                                    const char **text_out);

/**
 * Finds and reads the files of an earlier run, before anything runs.
 * @param from a folder of --record, or the cost table in it; platform.yaml lies beside the table
 * @param wanted settings that the files must have; a table that does not name them (a name without
 *        '@', a source without conditions) is accepted
 * @retval RP_OK, RP_INPUT (files are missing, malformed, or of other settings; logged), RP_IO,
 *         RP_NO_MEMORY
 */
rp_status rpexec_predict_read(const char *from, const rpexec_measured *wanted, rp_arena *arena,
                              rpexec_prediction *prediction_out);

/**
 * Simulates a program at hardware fidelity.
 * @param model name or file, as rpsim takes it
 * @param timeline_path file that keeps the simulated timeline (common/timeline/timeline_csv.h), or
 *        NULL
 * @param timeline_out timeline of `program`, which must outlive it; owned by the caller
 * @retval RP_OK, RP_TOOL (rpsim is missing, or has failed; logged with its message), RP_IO,
 *         RP_NO_MEMORY
 */
rp_status rpexec_predict(const rpexec_prediction *prediction, const rp_program *program,
                         const char *model, const char *timeline_path, rp_arena *arena,
                         rp_timeline **timeline_out);
