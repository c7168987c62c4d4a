/** @file prediction.h  Predicted against measured throughput, cell by cell, for what is published.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdint.h>
#include <stdio.h>

/** One measured cell and what the simulator says of it. */
typedef struct rpsim_cell {
    const char *group;     /**< of sim/model.md section 5; "baselines-set" set a constant */
    const char *framework; /**< as published */
    const char *model;
    uint32_t gpus;
    double measured_tokens_per_s;
    double predicted_tokens_per_s;
    double error_pct; /**< predicted / measured - 1 */
} rpsim_cell;

typedef struct rpsim_prediction {
    rpsim_cell *cells;
    uint32_t count;
} rpsim_prediction;

/**
 * Simulates every published cell whose run configuration is known, at hardware fidelity on
 * rtx4090x8 and on all cores: throughput_4090.csv at 8 GPUs, scaling_4090.csv at 1 to 8.
 * @param folder with throughput_4090.csv and scaling_4090.csv
 * @param prediction_out lives in `arena`
 * @retval RP_OK, RP_INPUT (a file is malformed), RP_IO, RP_NO_MEMORY, and what the runs return
 */
rp_status rpsim_predict(const char *folder, rp_arena *arena, rpsim_prediction *prediction_out);

/** @return mean absolute error in percent of a group's cells; NaN where it has none. */
double rpsim_prediction_mape(const rpsim_prediction *prediction, const char *group);

/** Prints the cells and the groups as Markdown tables. */
void rpsim_prediction_write(const rpsim_prediction *prediction, FILE *stream);
