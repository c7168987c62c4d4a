/* rpsim: the command line of the simulator (cli.md). */
#include "common/base/log.h"
#include "common/cli/tool.h"
#include "sim/rpsim/command.h"

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    rp_mem_keep_freed(); /* a ranking has hundreds of runs */
    return rpsim_command_run(argc, argv, arena, stdout);
}

int main(int argc, char **argv)
{
    rp_progress_allow();
    return rp_tool_main("rpsim", argc, argv, run);
}
