#include "sim/rpsim/arguments.h"

#include "sim/rpsim/options_internal.h"

rp_status rpsim_arguments_study(int argc, char **argv, rp_arena *arena, rpsim_study *study_out,
                                rp_reason *reason)
{
    rpsim_options *options = NULL;
    *study_out = (rpsim_study){.arena = arena};
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *options, &options));
    RP_TRY(rpsim_options_parse(argc, argv, arena, options, reason));
    return rpsim_study_prepare(&options->setup, arena, study_out, reason);
}
