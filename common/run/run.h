/** @file run.h  rp_run: everything that a user decides about a training run, as a value.
 *
 * A decision is a row of run_rows.inc: the member of rp_run, its kind, range and usual value, the
 * fidelity that knows it, the inputs that fix it, its key and its help. rpsim's and rpexec's
 * command lines fill an rp_run, rpadvise's search varies it, and rpsweep and the library set it by
 * keys; rp_resolve turns it into an rp_resolved (resolve.h). Models, platforms, cost tables and
 * files are inputs of a run, not decisions.
 */
#pragma once

#include "common/base/reason.h"
#include "common/cli/options.h"
#include "common/program/dtype.h"
#include "common/program/traits.h"
#include "common/schedule/schedule_type.h"

/** Most evaluations of a search for a partition (tune_budget). */
#define RP_RUN_MAX_TUNE_BUDGET 100000000u

/** Time and type of the reductions of gradients by FSDP or the copies of a pipeline; zero: as the
 * schedule declares them. Copies that share gradients (ZeRO-2) reduce them with every microbatch,
 * other copies with the last microbatch of a step. */
typedef struct rp_reductions {
    bool each_given;
    bool each_microbatch; /**< with every microbatch; otherwise with a step's last microbatch */
    bool dtype_given;
    rp_dtype dtype; /**< type of the reduced gradients; not given: the run's type */
} rp_reductions;

/** Marks of a row, OR-ed (rp_option.marks). */
enum {
    RP_RUN_HARDWARE = 1,   /**< known at hardware fidelity only */
    RP_RUN_OF_PROGRAM = 2, /**< fixed by a given program */
    RP_RUN_OF_CSV = 4,     /**< fixed by a schedule CSV of PyTorch's pipelining */
    RP_RUN_OF_SIDECAR = 8, /**< fixed by the side-car of such a file */
    /** Decides how tensor groups, copies and pipelines share the GPUs (rp_layout). */
    RP_RUN_LAYOUT = 16 | RP_RUN_HARDWARE | RP_RUN_OF_PROGRAM | RP_RUN_OF_CSV,
};

/** 0 and NULL mean "not decided" unless a row or a `_given` member says otherwise. The partition is
 * a text (rp_compile_partition), borrowed. `recomputes` are alternatives, each of which is a
 * run. */
typedef struct rp_run {
#define OPTION(members, ...) members;
#define MORE(...)
#include "common/run/run_rows.inc"
#undef MORE
#undef OPTION
} rp_run;

/** A run in which nothing is decided: hardware fidelity, fp16. */
#define RP_RUN_INIT                                                                                \
    {                                                                                              \
        .hardware = true, .dtype = RP_DTYPE_F16                                                    \
    }

/** The rows, whose members are offsets into an rp_run. */
extern const rp_option rp_run_rows[];
extern const uint32_t rp_run_row_count;

/** @return the row of a key, whose words may be joined by '-' or '_'; NULL: no such key. */
const rp_option *rp_run_row(const char *key);

/**
 * Completes a row of a program's table from the run's row of the same name: kind, member, and the
 * limits and words that the program's row lacks. Group, help, key and the members for reports stay
 * the program's.
 * @param row its name is known to rp_run_row; a row that already has a member stays unchanged
 * @param base bytes from the beginning of the program's structure to its rp_run
 */
void rp_run_complete_row(rp_option *row, size_t base);

/**
 * Makes the decision of a key, from the text that its option takes.
 * @param text of a flag: NULL
 * @param arena owns lists of values; texts are borrowed
 * @retval RP_OK, RP_USAGE (no such key or no such value), RP_NO_MEMORY
 */
rp_status rp_run_set(rp_run *run, const char *key, const char *text, rp_arena *arena,
                     rp_reason *reason);

/** @return whether both runs have the same decisions. */
bool rp_run_equal(const rp_run *a, const rp_run *b);

/** Checks that counts are within their rows' ranges, for a run that was not read from texts.
 * @retval RP_OK, RP_USAGE */
rp_status rp_run_check(const rp_run *run, rp_reason *reason);

/** @return whether the partition is searched for. */
bool rp_run_is_tuned(const rp_run *run);

/* Values with their own rules, for the tables of programs. */
rp_status rp_run_take_recompute(const rp_option *row, const char *text, rp_arena *arena,
                                void *object, rp_reason *reason);
rp_status rp_run_take_accumulation(const rp_option *row, const char *text, rp_arena *arena,
                                   void *object, rp_reason *reason);
rp_status rp_run_text_recompute(const rp_option *row, const void *object, rp_arena *arena,
                                const char **text_out);
rp_status rp_run_text_accumulation(const rp_option *row, const void *object, rp_arena *arena,
                                   const char **text_out);
