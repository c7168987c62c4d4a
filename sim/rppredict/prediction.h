/** @file prediction.h  Predicted against measured throughput, cell by cell, for the published
 * tables.
 */
#pragma once

#include "common/base/mem.h"
#include "sim/run/noise.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/** A measured cell and its prediction. */
typedef struct rpsim_cell {
    const char *group; /**< group of sim/model.md section 5; cells of "…-set" set a constant */
    const char *framework; /**< as published */
    const char *model;
    uint32_t gpus;
    double measured_tokens_per_s;
    bool fits; /**< predicted to fit; if not, the cell has no throughput and is in no mean */
    double predicted_tokens_per_s;
    double error_pct;     /**< predicted / measured - 1; NaN if the run does not fit or its
                             configuration is unknown */
    rpsim_interval range; /**< tokens per second over the ranges of the inputs. If the configuration
                             is unknown, over all plausible configurations that fit; p50 is then the
                             geometric mean of the two ends */
    bool known; /**< false: the run's batch and microbatches are not published; the numbers of
                   traces/configs/paper.csv are an assumption */
} rpsim_cell;

/** Calibration of the intervals: an interval of 80 % should hold the measured value in four cells
 * of five. */
typedef struct rpsim_calibration {
    uint32_t cells;         /**< number of cells that count */
    uint32_t inside;        /**< number of cells measured between p10 and p90 */
    uint32_t below;         /**< number of cells measured below p10: the prediction is too fast */
    double dense_width_pct; /**< median of (p90 - p10) / p50 over the dense models' cells */
} rpsim_calibration;

typedef struct rpsim_prediction {
    rpsim_cell *cells;
    uint32_t count;
    uint32_t draws; /**< number of draws of the inputs for the intervals */
} rpsim_prediction;

/**
 * Simulates every published cell whose run configuration is known, at hardware fidelity on
 * rtx4090x8 and on all cores: throughput_4090.csv at 8 GPUs, scaling_4090.csv at 1 to 8.
 * @param folder the folder that has throughput_4090.csv and scaling_4090.csv
 * @param draws 1 to RPSIM_PREDICT_DRAWS (run.h)
 * @param prediction_out lives in `arena`
 * @retval RP_OK, RP_INPUT (a file is malformed), RP_IO, RP_NO_MEMORY, and the statuses of runs
 */
rp_status rpsim_predict(const char *folder, uint32_t draws, rp_arena *arena,
                        rpsim_prediction *prediction_out);

/**
 * @param cells_out NULL, or receives the number of cells of the group that have an error
 * @return mean absolute error in percent of these cells; NaN if there are none
 */
double rpsim_prediction_mape(const rpsim_prediction *prediction, const char *group,
                             uint32_t *cells_out);

/** @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_prediction_calibrate(const rpsim_prediction *prediction, rp_arena *arena,
                                     rpsim_calibration *calibration_out);

/** Prints the calibration, the cells and the groups as Markdown tables. */
void rpsim_prediction_write(const rpsim_prediction *prediction,
                            const rpsim_calibration *calibration, FILE *stream);
