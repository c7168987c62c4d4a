#include "sim/rpadvise/candidate.h"

#include "common/base/text.h"
#include "common/run/resolve.h"

#include <string.h>

rpadvise_candidate rpadvise_candidate_of(const rpsim_setup *work, const rp_schedule_type *schedule)
{
    rpadvise_candidate c = {.schedule = schedule, .run = work->run};
    c.run.optimizer_given = true;
    c.run.recomputes[0] = RP_RECOMPUTE_NONE;
    c.run.recompute_count = 1;
    c.run.grain_given = true;
    c.run.microbatch_size = 1;
    c.run.accumulate = 1;
    return c;
}

bool rpadvise_candidate_equal(const rpadvise_candidate *a, const rpadvise_candidate *b)
{
    return a->schedule == b->schedule && rp_run_equal(&a->run, &b->run);
}

bool rpadvise_candidate_same_mode(const rpadvise_candidate *a, const rpadvise_candidate *b)
{
    return a->schedule == b->schedule && a->run.asynchronous == b->run.asynchronous;
}

/* Leaves open the settings that are the schedule's defaults. */
static void drop_usual(const rp_schedule_type *schedule, rp_run *run)
{
    run->recompute_count = run->recomputes[0] != schedule->default_recompute ? 1 : 0;
    run->grain_given = run->layer_grain != rp_run_usual_layer_grain(run, schedule);
    run->layer_grain = run->layer_grain && run->grain_given;
}

rp_status rpadvise_candidate_setup(const rpsim_setup *work, const rpadvise_candidate *c,
                                   const rpadvise_manner *manner, rp_arena *arena,
                                   rpsim_setup **setup_out, rp_reason *reason)
{
    rpsim_setup *setup = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *setup, &setup));
    *setup = *work;
    setup->run = c->run;
    drop_usual(c->schedule, &setup->run);
    setup->run.global_batch = manner->free_batch ? 0 : c->run.global_batch;
    setup->run.iterations = manner->iterations;
    setup->explain = manner->explain;
    setup->intervals_given = !manner->intervals;
    setup->unreported = !manner->reported;
    RP_TRY(rpsim_setup_schedule(c->schedule, arena, setup));
    rpsim_setup_complete(setup);
    *setup_out = setup;
    if (c->run.microbatches == 0) {
        return rp_refuse(reason, RP_USAGE, "a call has no microbatches; valid is at least one");
    }
    return rp_run_check(&setup->run, reason);
}

/* ---- as a command line ----------------------------------------------------------------------- */

/* Options in the order of the command line: the work, the server, then the settings that the search
 * has found. */
static const char *const shown[] = {"schedule",
                                    "model",
                                    "assume",
                                    "lora-rank",
                                    "platform",
                                    "gpus",
                                    "nodes",
                                    "data-parallel",
                                    "tensor-parallel",
                                    "sequence-parallel",
                                    "zero",
                                    "dtype",
                                    "accumulation",
                                    "states",
                                    "master",
                                    "frozen",
                                    "compute",
                                    "seq-len",
                                    "stack",
                                    "set",
                                    "optimizer",
                                    "microbatch-size",
                                    "microbatches",
                                    "accumulate",
                                    "global-batch",
                                    "recompute",
                                    "grain",
                                    "partition",
                                    "seed"};
#define SHOWN (sizeof shown / sizeof shown[0])

/* @param name name of a row; NULL: all rows that `shown` does not list */
static rp_status add_named(const rpsim_setup *setup, const char *name, rp_arena *arena,
                           rp_text *line)
{
    for (uint32_t i = 0; i < rpsim_setup_keys.row_count; i++) {
        const rp_option *row = &rpsim_setup_keys.rows[i];
        bool listed = false;
        for (size_t k = 0; k < SHOWN && name == NULL && !listed; k++) {
            listed = strcmp(shown[k], row->name) == 0;
        }
        if (name != NULL ? strcmp(row->name, name) == 0 : !listed) {
            RP_TRY(rp_option_add(row, setup, arena, line));
        }
    }
    return RP_OK;
}

rp_status rpadvise_candidate_command(const rpsim_setup *work, const rpadvise_candidate *candidate,
                                     rp_arena *arena, const char **command_out)
{
    const rpadvise_manner as_it_is = {.intervals = true};
    rpsim_setup *setup = NULL;
    RP_TRY(rpadvise_candidate_setup(work, candidate, &as_it_is, arena, &setup, NULL));
    rp_text line = {0};
    rp_status status = rp_text_print(&line, "rpsim");
    for (size_t i = 0; i <= SHOWN && status == RP_OK; i++) {
        status = add_named(setup, i < SHOWN ? shown[i] : NULL, arena, &line);
    }
    if (status == RP_OK) {
        status = rp_arena_copy_text(arena, line.bytes, line.length, command_out);
    }
    rp_text_fini(&line);
    return status;
}
