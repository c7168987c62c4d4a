/* rpsim: the command line of the simulator (cli.md). */
#include "common/log.h"
#include "common/option_values.h"
#include "common/version.h"
#include "sim/artefacts.h"
#include "sim/flows.h"
#include "sim/report.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static rp_status simulate(rpsim_study *study, const char *command)
{
    rpsim_artefacts artefacts;
    rp_status status = rpsim_artefacts_open(study, &artefacts);
    if (status == RP_OK) {
        status = rpsim_study_run(study);
    }
    if (status == RP_OK) {
        status = rpsim_artefacts_write(study, command, &artefacts);
    }
    if (status == RP_OK) {
        status = rpsim_report_write(study, stdout);
    }
    rpsim_artefacts_fini(&artefacts);
    return status;
}

static rp_status run_study(const rpsim_options *options, const char *command, rp_arena *arena)
{
    rpsim_study study;
    rp_status status = rpsim_study_prepare(options, arena, &study);
    if (status == RP_OK && options->action == RPSIM_ACTION_CHECK) {
        status = rpsim_study_check(&study);
        if (status == RP_OK) {
            rpsim_report_check(&study, stdout);
        }
    } else if (status == RP_OK) {
        status = simulate(&study, command);
    }
    rpsim_study_fini(&study);
    return status;
}

static rp_status act(const rpsim_options *options, const char *command, rp_arena *arena)
{
    switch (options->action) {
    case RPSIM_ACTION_HELP:
        rpsim_options_help();
        return RP_OK;
    case RPSIM_ACTION_VERSION:
        printf("rpsim %s\n", rp_version());
        return RP_OK;
    case RPSIM_ACTION_LIST:
        return rpsim_report_list(options->list, arena, stdout);
    case RPSIM_ACTION_FLOWS:
        return rpsim_flows_run(options->flows, arena, stdout);
    case RPSIM_ACTION_CHECK:
    case RPSIM_ACTION_RUN:
        return run_study(options, command, arena);
    }
    return RP_BROKEN;
}

int main(int argc, char **argv)
{
    rp_log_set_program("rpsim");
    /* Closed readers and full quotas are errors that are reported, not deaths. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    rp_arena *arena = NULL;
    rp_status status = rp_arena_create(&arena);
    if (status != RP_OK) {
        return rp_status_exit(status);
    }
    rpsim_options options;
    const char *command = NULL;
    status = rp_option_command("rpsim", argc, argv, arena, &command);
    if (status == RP_OK) {
        status = rpsim_options_parse(argc, argv, arena, &options);
    }
    if (status == RP_OK) {
        status = act(&options, command, arena);
    }
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && status == RP_OK) {
        rp_log_error("standard output: %s", strerror(errno));
        status = RP_IO;
    }
    rp_arena_destroy(arena);
    return rp_status_exit(status);
}
