/** @file setup.h  The request for a study: a run, its inputs, and the results asked for.
 *
 * rpsim's command line, rpsweep's points and the library's settings fill a setup by keys, which are
 * rows of setup_rows.inc and common/run/run_rows.inc; other callers set members. */
#pragma once

#include "common/inputs/changes.h"
#include "common/inputs/stacks/stack.h"
#include "common/run/run.h"

#define RPSIM_DEFAULT_PLATFORM "rtx4090x8"

struct rpsim_session;

/** A request. Texts and lists are borrowed; 0 and NULL mean "not given". */
typedef struct rpsim_setup {
    rp_options common; /**< must be first: the keys given; zeroes if members were set instead */
    rp_run run;
#define OPTION(members, ...) members;
#include "sim/study/setup_rows.inc"
#undef OPTION
    bool one_iteration; /**< simulates a single iteration, as is usual at hardware fidelity, not a
                           steady state */
    bool keep;          /**< keeps the timelines of all rows for the caller */
    bool hashes;        /**< computes the hashes of all programs */
    bool quiet;         /**< does not warn of schedules that are left out */
    bool unreported;    /**< reports neither speed limits nor errors of measured runs */
    const char *what;   /**< noun for the runs in progress messages; NULL: "runs" */
    struct rpsim_session *session; /**< the process's session; NULL: none */
} rpsim_setup;

/** A setup in which nothing is decided yet. */
#define RPSIM_SETUP_INIT                                                                           \
    {                                                                                              \
        .run = RP_RUN_INIT                                                                         \
    }

/** Keys of a setup and of its run, with the rules on their combinations. A program whose structure
 * begins with an rpsim_setup has these rows and rules before its own. */
extern const rp_options_program rpsim_setup_keys;

/**
 * Refuses invalid combinations of keys (rp_options_check).
 * @param rows the rows that setup->common refers to: rpsim_setup_keys, or a program's longer table
 * @param setup first member of the program's structure
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rpsim_setup_check(const rp_options_program *rows, const rpsim_setup *setup,
                            rp_reason *reason);

/** Settles everything that follows from the given members; to be called before
 * rpsim_study_prepare. */
void rpsim_setup_complete(rpsim_setup *setup);

/** Adds a registered schedule to the request. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_setup_schedule(const rp_schedule_type *schedule, rp_arena *arena,
                               rpsim_setup *setup);

/**
 * Gives the changes of --set as a single text.
 * @param text_out in `arena`; NULL: no changes
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_setup_changes(const rpsim_setup *setup, rp_arena *arena, const char **text_out);

/**
 * Gives the changes of --set, and the changes that the options for the machine's memories and power
 * abbreviate. Refuses changes of a stack, and a limit of power, in a run without a stack.
 * @param changes_out its texts live in `arena`
 * @retval RP_OK, RP_USAGE (refused), RP_NO_MEMORY
 */
rp_status rpsim_setup_all_changes(const rpsim_setup *setup, rp_arena *arena,
                                  rp_changes *changes_out, rp_reason *reason);

/**
 * Refuses a type of frozen weights where all weights are trained.
 * @param adapters whether the model has any
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rpsim_setup_check_frozen(rp_frozen frozen, const char *model, bool adapters,
                                   rp_reason *reason);

/**
 * Refuses products in fp8 where no tensor cores, or no software, has them.
 * @param stack NULL: times are those of cost tables
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rpsim_setup_check_products(const rpsim_setup *setup, const rp_platform *platform,
                                     const rp_stack *stack, rp_reason *reason);

/**
 * Refuses a limit of power on a platform whose energy is not known, which it would not slow down.
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rpsim_setup_check_power(const rpsim_setup *setup, const rp_platform *platform,
                                  rp_reason *reason);

/** @return energy in kWh. */
static inline double rpsim_kwh(double watts, double hours)
{
    return 1e-3 * watts * hours;
}

/** Writes the keys and values of the settings that a run's record contains beside its columns. */
void rpsim_setup_write(const rpsim_setup *setup, rp_json *json);

/* Functions for values with rules of their own, for the option tables of programs. */
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
