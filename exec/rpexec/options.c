#include "exec/rpexec/options.h"

const rp_options_program *rpexec_command_line(void)
{
    static rp_options_program program;
    program = *rpexec_setup_keys();
    program.purpose = "trains a decoder with a pipeline schedule";
    program.usage = "rpexec [options]";
    program.description =
        "Trains a decoder with a pipeline schedule, and can check it against plain "
        "loops. Defaults are in parentheses.";
    program.notes =
        "With --save SIGINT and SIGTERM end the run after its step, with a checkpoint; a "
        "second one ends it at once. One process at a time saves in a folder.\n"
        "RPEXEC_BACKEND in the environment is the backend of runs without --backend.";
    program.exit_status = "0 success, 1 the run failed, 2 bad usage or bad input, 130 or 143 ended "
                          "by SIGINT or SIGTERM.";
    program.example =
        "rpexec --schedule roundpipe --gpus 4 --model tiny --data README.md --steps 200";
    return &program;
}

rp_status rpexec_options_parse(int argc, char **argv, rp_arena *arena, rpexec_options *options_out,
                               rp_reason *reason)
{
    rpexec_options o = rpexec_setup_defaults();
    RP_TRY(rp_options_parse(rpexec_command_line(), argc, argv, arena, &o, reason));
    if (o.common.request == RP_OPTIONS_RUN) {
        RP_TRY(rpexec_setup_complete(&o, reason));
    }
    *options_out = o;
    return RP_OK;
}
