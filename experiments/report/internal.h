/** @file internal.h  Inside of the report of a store. Not for other modules. */
#pragma once

#include "common/base/mem.h"
#include "common/store/store.h"

#define RPSWEEP_MOST_PLOTS 12
#define RPSWEEP_MOST_SERIES 8

/** A setting, by its key in `config_json`. */
typedef struct rpsweep_parameter {
    const char *key;  /**< a-z, 0-9, _; column p_KEY of the temporary table `report` */
    uint32_t values;  /**< how many; a run without it counts as one value more */
    bool is_number;   /**< all runs have it, and as a number */
    const char *same; /**< its value where there is only one, otherwise NULL */
} rpsweep_parameter;

typedef struct rpsweep_parameters {
    rpsweep_parameter *list;
    uint32_t count;
    uint32_t capacity;
} rpsweep_parameters;

/** Result that runs are compared by. */
typedef struct rpsweep_measure {
    const char *column; /**< of the view summary */
    const char *name;   /**< for people, with its unit */
    bool least_is_best;
} rpsweep_measure;

/** Content of a store; everything lives in the report's arena. */
typedef struct rpsweep_findings {
    rp_store *store;
    rp_arena *arena;
    const char *path;
    uint64_t runs;    /**< all of them */
    uint64_t latest;  /**< without those that were repeated: the rows of `report` */
    uint64_t unfit;   /**< of these, known not to fit into memory */
    bool unfit_count; /**< no run fits: they are compared all the same */
    rpsweep_measure measure;
    rpsweep_parameters varied;   /**< independent of each other, the most telling first */
    rpsweep_parameters follow;   /**< varied, but given by the others */
    rpsweep_parameters constant; /**< the same in all runs */
} rpsweep_findings;

/** A picture, ready for a page. */
typedef struct rpsweep_plot {
    const rpsweep_parameter *parameter;
    const char *shows; /**< alternative text */
    const char *wide;  /**< SVG as a data URL; NULL: no gnuplot */
    const char *narrow;
} rpsweep_plot;

/**
 * Reads what varied, and makes the temporary table `report` (run_id, y, fits, p_KEY of everything
 * that varied): a row per run, the newest of its configuration; y is the measure.
 * @retval RP_OK, RP_INPUT (there is no run; logged), RP_DATABASE, RP_NO_MEMORY
 */
rp_status rpsweep_find(rpsweep_findings *findings);

/** @return the condition on rows of `report` that are compared */
const char *rpsweep_compared(const rpsweep_findings *findings);

/**
 * Draws a picture for each of the first parameters that varied.
 * @param plots_out RPSWEEP_MOST_PLOTS at most
 * @param drawn_out false: there is no gnuplot, the plots have their texts only
 */
rp_status rpsweep_draw(const rpsweep_findings *findings, rpsweep_plot **plots_out,
                       uint32_t *count_out, bool *drawn_out);

/** Writes the page; write errors stay in the stream, for rp_output_commit. */
rp_status rpsweep_page(const rpsweep_findings *findings, const rpsweep_plot *plots, uint32_t count,
                       bool drawn, FILE *stream);
