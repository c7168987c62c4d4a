/* rpsim: the command line of the simulator (cli.md). */
#include "common/base/log.h"
#include "common/cli/option_values.h"
#include "common/cli/tool.h"
#include "common/inputs/data.h"
#include "common/inputs/detect/detect.h"
#include "sim/rpsim/artefacts.h"
#include "sim/rpsim/flows.h"
#include "sim/rpsim/report/report.h"

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
    rp_mem_keep_freed(); /* a ranking has hundreds of runs */
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

/* The words of --platform and --set as a file. */
static rp_status write_platform(const rpsim_options *options, const char *name, rp_arena *arena,
                                FILE *stream)
{
    const char *from = options->platform != NULL ? options->platform : RPSIM_DEFAULT_PLATFORM;
    if (strcmp(from, RP_PLATFORM_DETECT) == 0 && !rp_changes_any(&options->changes, true)) {
        return rp_detect_write(name, arena, stream);
    }
    rp_platform platform;
    const char *head = NULL;
    RP_TRY(rp_platform_load_changed(from, &options->changes, arena, &platform));
    RP_TRY(rp_arena_print(arena, &head, "# rpsim --platform-out: %s\n", platform.name));
    platform.name = name;
    rp_platform_write(&platform, head, NULL, 0, stream);
    return RP_OK;
}

static rp_status describe(const rpsim_options *options, rp_arena *arena)
{
    rp_output output = {0};
    const char *name = NULL;
    RP_TRY(rp_data_name_of(options->platform_out, 64, "this-machine", arena, &name));
    RP_TRY(rp_output_open(options->platform_out, &output));
    rp_status status = write_platform(options, name, arena, output.stream);
    status = status == RP_OK ? rp_output_commit(&output) : status;
    rp_output_discard(&output);
    return status;
}

static rp_status act(const rpsim_options *options, const char *command, rp_arena *arena)
{
    if (options->common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(&rpsim_command_line, options, stdout);
    }
    switch (options->action) {
    case RPSIM_ACTION_LIST:
        return rpsim_report_list(options->list, arena, stdout);
    case RPSIM_ACTION_FLOWS:
        return rpsim_flows_run(options->flows, arena, stdout);
    case RPSIM_ACTION_PLATFORM:
        return describe(options, arena);
    case RPSIM_ACTION_CHECK:
    case RPSIM_ACTION_RUN:
        return run_study(options, command, arena);
    }
    return rp_broken();
}

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    rpsim_options options;
    const char *command = NULL;
    RP_TRY(rp_option_command("rpsim", argc, argv, arena, &command));
    RP_TRY(rpsim_options_parse(argc, argv, arena, &options));
    return act(&options, command, arena);
}

int main(int argc, char **argv)
{
    return rp_tool_main("rpsim", argc, argv, run);
}
