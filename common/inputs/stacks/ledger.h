/** @file ledger.h  The ledger, traces/ledger.csv: measured runs, and the errors of their
 * predictions by stack and class. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/** Errors of predictions in percent of the measured speeds, without their signs. */
typedef struct rp_ledger_error {
    uint32_t rows;    /**< 0: nobody has measured such a run; the other members are 0 then */
    double mean_pct;  /**< mean of the rows */
    double worst_pct; /**< largest of the rows */
} rp_ledger_error;

/** A predicted run that has set no constant. */
typedef struct rp_ledger_row {
    const char *stack;
    const char *of_class; /**< rp_ledger_class */
    double error_pct;     /**< prediction over measured speed - 1 */
} rp_ledger_row;

typedef struct rp_ledger {
    rp_ledger_row *rows;
    uint32_t count;
} rp_ledger;

/**
 * Reads the ledger: rows of roles `test` and `listed` that have a prediction.
 * @param ledger_out lives in `arena`
 * @retval RP_OK, RP_INPUT (logged with file and line), RP_IO, RP_NO_MEMORY
 */
rp_status rp_ledger_read(rp_arena *arena, rp_ledger *ledger_out);

/**
 * Gives the class of a run, as the ledger writes it: ARCHITECTURE/offloaded|resident/full|adapters.
 * @param architecture rp_platform.architecture; NULL: unknown
 * @param class_out in `arena`; NULL if the architecture is unknown
 */
rp_status rp_ledger_class(const char *architecture, bool offloaded, bool adapters, rp_arena *arena,
                          const char **class_out);

/** @return the errors of a stack's runs of a class. @param of_class NULL: no runs are of it */
rp_ledger_error rp_ledger_error_of(const rp_ledger *ledger, const char *stack,
                                   const char *of_class);

/** @return the errors of both sets of rows together. */
rp_ledger_error rp_ledger_error_both(rp_ledger_error a, rp_ledger_error b);
