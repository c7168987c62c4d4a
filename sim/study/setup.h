/** @file setup.h  What a study is asked for: a run, its inputs, and what is to be found out.
 *
 * rpsim's command line, rpsweep's points and the library's settings fill a setup by keys, which are
 * rows of setup_rows.inc and common/run/run_rows.inc; other callers set members.
 */
#pragma once

#include "common/inputs/changes.h"
#include "common/run/run.h"

#define RPSIM_DEFAULT_PLATFORM "rtx4090x8"

struct rpsim_session;

/** Texts and lists are borrowed; 0 and NULL mean "not given". */
typedef struct rpsim_setup {
    rp_options common; /**< first: which keys were given; zeroes where members were set */
    rp_run run;
#define OPTION(members, ...) members;
#include "sim/study/setup_rows.inc"
#undef OPTION
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

/** Keys of a setup and of its run, and what is refused of them together. Programs whose structure
 * begins with an rpsim_setup have the same rows and rules before their own. */
extern const rp_options_program rpsim_setup_keys;

/**
 * Refuses what keys say together (rp_options_check).
 * @param rows whose places setup->common counts: rpsim_setup_keys, or a program's that has more
 * @param setup begins the program's structure
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rpsim_setup_check(const rp_options_program *rows, const rpsim_setup *setup,
                            rp_reason *reason);

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

/**
 * The changes of --set, and those that the memories of the machine are short for.
 * @param changes_out texts in `arena`
 * @retval RP_OK, RP_USAGE (refused), RP_NO_MEMORY
 */
rp_status rpsim_setup_all_changes(const rpsim_setup *setup, rp_arena *arena,
                                  rp_changes *changes_out, rp_reason *reason);

/** Writes keys and values of the settings that a run's record has beside its columns. */
void rpsim_setup_write(const rpsim_setup *setup, rp_json *json);

/* Values with rules of their own, for the tables of programs. */
rp_status rpsim_take_schedules(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                               rp_reason *reason);
rp_status rpsim_take_changes(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                             rp_reason *reason);
rp_status rpsim_take_intervals(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                               rp_reason *reason);
rp_status rpsim_take_slow_gpu(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                              rp_reason *reason);
rp_status rpsim_text_schedules(const rp_option *row, const void *object, rp_arena *arena,
                               const char **text_out);
rp_status rpsim_text_changes(const rp_option *row, const void *object, rp_arena *arena,
                             const char **text_out);
rp_status rpsim_text_intervals(const rp_option *row, const void *object, rp_arena *arena,
                               const char **text_out);
rp_status rpsim_text_slow_gpu(const rp_option *row, const void *object, rp_arena *arena,
                              const char **text_out);
rp_status rpsim_text_columns(const rp_option *row, const void *object, rp_arena *arena,
                             const char **text_out);
rp_status rpsim_text_tokens(const rp_option *row, const void *object, rp_arena *arena,
                            const char **text_out);
rp_status rpsim_take_columns(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                             rp_reason *reason);
rp_status rpsim_take_tokens(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                            rp_reason *reason);
