/** @file gantt.h  Timelines as a picture, drawn by gnuplot: a panel for each schedule, a row for
 * each GPU.
 */
#pragma once

#include "common/timeline/metrics.h"
#include "common/timeline/timeline.h"

/** A panel; all members are borrowed. */
typedef struct rp_gantt_panel {
    const rp_timeline *timeline;
    const rp_metrics *metrics; /**< makespan_ps and bubble_ps are shown */
    const char *schedule;      /**< shown as the panel's name */
    const char *model;         /**< shown beside it; may be NULL */
    uint32_t first_iteration;  /**< first drawn iteration, from 1; 0: all are drawn */
    uint32_t last_iteration;   /**< last drawn iteration; at most the program's last */
} rp_gantt_panel;

/** Most panels of a picture; more would be unreadable and are refused. */
#define RP_GANTT_MAX_PANELS 32u

/**
 * Checks the properties of an output file that can be known before any run: its ending and its
 * folder.
 * @param what option that messages name
 * @retval RP_OK
 * @retval RP_USAGE the ending is not .svg, .png or .pdf (logged)
 * @retval RP_INPUT the file cannot be written there (logged)
 * @retval RP_NO_MEMORY
 */
rp_status rp_gantt_check_path(const char *what, const char *path);

/**
 * Draws `count` panels (1 .. RP_GANTT_MAX_PANELS) above each other on a common time axis; `path`
 * appears only after the picture is complete. Ops too short to be seen are drawn together, and the
 * picture tells so; more ops cost only the time to read them.
 * @retval RP_OK
 * @retval RP_USAGE, RP_INPUT as rp_gantt_check_path; RP_USAGE also for too many panels (logged)
 * @retval RP_TOOL gnuplot is missing or failed (logged, with its message)
 * @retval RP_IO, RP_NO_MEMORY (logged)
 */
rp_status rp_gantt_write(const rp_gantt_panel *panels, size_t count, const char *path);

/**
 * The folder of style.gp and the figures' scripts: environment RP_PLOTS, else plots/ of
 * rp_data_shipped().
 * @return a path that is valid as long as the process
 */
const char *rp_plots_root(void);
