/* rpadvise: finds the configuration that trains a model fastest on a server (cli.md). */
#include "common/cli/tool.h"
#include "sim/rpadvise/program/command.h"

#include <unistd.h>

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    rpadvise_options options;
    bool found = false;
    rp_mem_keep_freed(); /* hundreds of runs use the same sizes */
    RP_TRY(rpadvise_options_parse(argc, argv, arena, &options));
    if (options.common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(&rpadvise_command_line, &options, stdout);
    }
    bool progress = isatty(STDERR_FILENO) == 1;
    RP_TRY(rpadvise_command_act(&options, progress, arena, stdout, &found));
    return found ? RP_OK : RP_TOOL;
}

int main(int argc, char **argv)
{
    return rp_tool_main("rpadvise", argc, argv, run);
}
