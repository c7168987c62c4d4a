#include "common/tool.h"

#include "common/log.h"
#include "common/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

int rp_tool_main(const char *name, int argc, char **argv,
                 rp_status (*run)(int argc, char **argv, rp_arena *arena))
{
    rp_arena *arena = NULL;
    rp_log_set_program(name);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    rp_output_clean_up_after_signals();
    rp_status status = rp_arena_create(&arena);
    status = status == RP_OK ? run(argc, argv, arena) : status;
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && status == RP_OK) {
        rp_log_error("standard output: %s", strerror(errno));
        status = RP_IO;
    }
    rp_arena_destroy(arena);
    return rp_status_exit(status);
}
