/** @file internal.h  Inside of the report of a store. Not for other modules. */
#pragma once

#include "common/base/mem.h"
#include "common/store/store.h"

#define RPSWEEP_MOST_PLOTS 12
#define RPSWEEP_MOST_SERIES 8

/** A setting, named by its key in `config_json`. */
typedef struct rpsweep_parameter {
    const char *key;  /**< a-z, 0-9, _; column p_KEY of the temporary table `report` */
    uint32_t values;  /**< number of values; runs without the setting count as a further value */
    bool is_number;   /**< all runs have the setting, and its value is a number */
    const char *same; /**< its value if all runs have the same, otherwise NULL */
} rpsweep_parameter;

typedef struct rpsweep_parameters {
    rpsweep_parameter *list;
    uint32_t count;
    uint32_t capacity;
} rpsweep_parameters;

/** Result by which runs are compared. */
typedef struct rpsweep_measure {
    const char *column; /**< a column of the view summary */
    const char *name;   /**< its name for people, with the unit */
    bool least_is_best;
} rpsweep_measure;

/** Content of a store; everything lives in the report's arena. */
typedef struct rpsweep_findings {
    rp_store *store;
    rp_arena *arena;
    const char *path;
    uint64_t runs;    /**< number of all runs */
    uint64_t latest;  /**< number of runs that no newer run repeats: rows of `report` */
    uint64_t unfit;   /**< number of these that are known not to fit into memory */
    bool unfit_count; /**< true: no run fits, and runs that do not fit are compared */
    rpsweep_measure measure;
    rpsweep_parameters varied;   /**< settings that varied independently, the most telling first */
    rpsweep_parameters follow;   /**< settings that varied, but follow from others */
    rpsweep_parameters constant; /**< settings with the same value in all runs */
} rpsweep_findings;

/** A picture, ready for a page. */
typedef struct rpsweep_plot {
    const rpsweep_parameter *parameter;
    const char *shows; /**< alternative text of the picture */
    const char *wide;  /**< SVG as a data URL; NULL: no gnuplot */
    const char *narrow;
} rpsweep_plot;

/**
 * Reads the settings that varied, and makes the temporary table `report` (run_id, y, fits, and
 * p_KEY of each setting that varied). It has a row for the newest run of each configuration; y is
 * the measure.
 * @retval RP_OK, RP_INPUT (there is no run; logged), RP_DATABASE, RP_NO_MEMORY
 */
rp_status rpsweep_find(rpsweep_findings *findings);

/** @return the SQL condition that selects the rows of `report` to compare */
const char *rpsweep_compared(const rpsweep_findings *findings);

/**
 * Draws a picture for each of the first parameters that varied.
 * @param plots_out at most RPSWEEP_MOST_PLOTS
 * @param drawn_out false: there is no gnuplot, and the plots have only their texts
 */
rp_status rpsweep_draw(const rpsweep_findings *findings, rpsweep_plot **plots_out,
                       uint32_t *count_out, bool *drawn_out);

/** Writes the page; write errors stay in the stream, for rp_output_commit. */
rp_status rpsweep_page(const rpsweep_findings *findings, const rpsweep_plot *plots, uint32_t count,
                       bool drawn, FILE *stream);
