#include "sim/rpsim/arguments.h"

#include "sim/rpsim/options_internal.h"

#include "sim/study/record.h"

rp_status rpsim_arguments_check(int argc, char **argv, rp_arena *arena, rp_reason *reason)
{
    rpsim_options options;
    return rpsim_options_parse(argc, argv, arena, &options, reason);
}

static rp_status run_rows(rpsim_study *study, const char *command, rp_store_run **runs_out)
{
    RP_TRY(rpsim_study_run(study, NULL));
    RP_TRY(rp_arena_alloc(study->arena, study->row_count, sizeof **runs_out, runs_out));
    for (uint32_t i = 0; i < study->row_count; i++) {
        RP_TRY(rpsim_row_record(study, &study->rows[i], command, &(*runs_out)[i]));
    }
    return RP_OK;
}

rp_status rpsim_arguments_run(rpsim_session *session, int argc, char **argv, const char *command,
                              rp_arena *arena, rp_store_run **runs_out, uint32_t *count_out)
{
    rpsim_options options;
    rpsim_study study;
    RP_TRY(rpsim_options_parse(argc, argv, arena, &options, NULL));
    rpsim_setup *setup = &options.setup;
    setup->session = session;
    setup->hashes = true;
    setup->intervals = setup->intervals_given ? setup->intervals : 0;
    rp_status status = rpsim_study_prepare(setup, arena, &study, NULL);
    if (status == RP_OK) {
        status = run_rows(&study, command, runs_out);
    }
    *count_out = status == RP_OK ? study.row_count : 0;
    rpsim_study_fini(&study);
    return status;
}

rp_status rpsim_arguments_study(int argc, char **argv, rp_arena *arena, rpsim_study *study_out,
                                rp_reason *reason)
{
    rpsim_options *options = NULL;
    *study_out = (rpsim_study){.arena = arena};
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *options, &options));
    RP_TRY(rpsim_options_parse(argc, argv, arena, options, reason));
    return rpsim_study_prepare(&options->setup, arena, study_out, reason);
}
