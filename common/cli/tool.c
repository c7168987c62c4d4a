#include "common/cli/tool.h"

#include "common/base/log.h"
#include "common/cli/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Opens closed standard streams on /dev/null, so that no file opened later becomes a standard
 * stream. The mode is the opposite of the stream's, so that reading or writing the stream is still
 * an error. */
static void open_standard_streams(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        if (fcntl(descriptor, F_GETFD) <
            0) { /* open() gives the lowest free descriptor, `descriptor` */
            (void)open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

void rp_tool_begin(const char *name)
{
    open_standard_streams();
    rp_log_set_program(name);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    rp_interrupt_ends();
}

int rp_tool_main(const char *name, int argc, char **argv,
                 rp_status (*run)(int argc, char **argv, rp_arena *arena))
{
    rp_arena *arena = NULL;
    rp_tool_begin(name);
    rp_status status = rp_arena_create(&arena);
    status = status == RP_OK ? run(argc, argv, arena) : status;
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && status == RP_OK) {
        rp_log_error("standard output: %s", strerror(errno));
        status = RP_IO;
    }
    rp_arena_destroy(arena);
    return status == RP_INTERRUPTED ? 128 + rp_interrupt_signal() : rp_status_exit(status);
}
