/** @file setup.h  What a study is asked for: a run, its inputs, and what is to be found out.
 *
 * Rows of setup_rows.inc are options of rpsim that fill it, as those of common/run/run_rows.inc
 * fill its run; other callers set members.
 */
#pragma once

#include "common/inputs/changes.h"
#include "common/run/run.h"

#define RPSIM_DEFAULT_PLATFORM "rtx4090x8"

struct rpsim_session;

/** Texts and lists are borrowed; 0 and NULL mean "not given". */
typedef struct rpsim_setup {
    rp_run run;
#define OPTION(members, ...) members;
#include "sim/study/setup_rows.inc"
#undef OPTION
    const char *torch_sidecar; /**< side-car of torch_csv_in */
    bool multi_rank_stages;    /**< its stages may have forward and backward apart */
    double tokens;             /**< to train on, for hours and dollars; 0: not asked */
    double usd_per_hour;       /**< price of the server */
    const char **columns;      /**< keys that results have; NULL: the usual ones */
    uint32_t column_count;
    bool all_columns; /**< tables have all columns, too */
    bool explain;
    bool timings;                  /**< results say how long their simulation took */
    bool one_iteration;            /**< usual at hardware fidelity; otherwise a steady state */
    bool keep;                     /**< timelines of all rows, for the caller */
    bool hashes;                   /**< of all programs */
    bool quiet;                    /**< schedules that are left out are no news */
    const char *what;              /**< of the runs, for progress; NULL: runs */
    struct rpsim_session *session; /**< of the process; NULL: none */
} rpsim_setup;

/** A setup of which nothing is decided. */
#define RPSIM_SETUP_INIT                                                                           \
    {                                                                                              \
        .run = RP_RUN_INIT                                                                         \
    }

/** Settles what follows from what is given; before rpsim_study_prepare. */
void rpsim_setup_complete(rpsim_setup *setup);

/** Asks for a schedule; `schedule` is registered. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_setup_schedule(const rp_schedule_type *schedule, rp_arena *arena,
                               rpsim_setup *setup);

/**
 * The changes of --set as one text.
 * @param text_out in `arena`; NULL: there are none
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_setup_changes(const rpsim_setup *setup, rp_arena *arena, const char **text_out);

/** Writes keys and values of the settings that a run's record has beside its columns. */
void rpsim_setup_write(const rpsim_setup *setup, rp_json *json);

/** Rows whose members are offsets into an rpsim_setup; those of its run are rp_run_rows. */
extern const rp_option rpsim_setup_rows[];
extern const uint32_t rpsim_setup_row_count;

/* Values with rules of their own, for the tables of programs. */
rp_status rpsim_take_schedules(const rp_option *row, const char *text, rp_arena *arena,
                               void *object, rp_reason *reason);
rp_status rpsim_take_changes(const rp_option *row, const char *text, rp_arena *arena, void *object,
                             rp_reason *reason);
rp_status rpsim_take_intervals(const rp_option *row, const char *text, rp_arena *arena,
                               void *object, rp_reason *reason);
rp_status rpsim_take_slow_gpu(const rp_option *row, const char *text, rp_arena *arena, void *object,
                              rp_reason *reason);
rp_status rpsim_text_schedules(const rp_option *row, const void *object, rp_arena *arena,
                               const char **text_out);
rp_status rpsim_text_changes(const rp_option *row, const void *object, rp_arena *arena,
                             const char **text_out);
rp_status rpsim_text_intervals(const rp_option *row, const void *object, rp_arena *arena,
                               const char **text_out);
rp_status rpsim_text_slow_gpu(const rp_option *row, const void *object, rp_arena *arena,
                              const char **text_out);
