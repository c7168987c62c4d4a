#include "sim/rpsim/command.h"

#include "common/base/log.h"
#include "common/cli/option_values.h"
#include "common/inputs/data.h"
#include "common/inputs/detect/detect.h"
#include "common/inputs/load/platforms.h"
#include "sim/rpsim/artefacts.h"
#include "sim/rpsim/flows.h"
#include "sim/rpsim/report/list.h"
#include "sim/rpsim/report/report.h"

#include <inttypes.h>
#include <string.h>

rp_status rpsim_command_simulate(rpsim_study *study, const rpsim_options *options,
                                 const char *command)
{
    rpsim_artefacts artefacts;
    rp_status status = rpsim_artefacts_open(study, options, &artefacts);
    if (status == RP_OK) {
        status = rpsim_study_run(study, NULL);
    }
    if (status == RP_OK) {
        status = rpsim_artefacts_write(study, options, command, &artefacts);
    }
    rpsim_artefacts_fini(&artefacts);
    return status;
}

static rp_status run_study(const rpsim_options *options, const char *command, rp_arena *arena,
                           FILE *stream)
{
    rpsim_study study;
    rp_status status = rpsim_study_prepare(&options->setup, arena, &study, NULL);
    if (status == RP_OK && options->action == RPSIM_ACTION_CHECK) {
        status = rpsim_study_check(&study);
        if (status == RP_OK) {
            rpsim_report_check(&study, stream);
        }
    } else if (status == RP_OK) {
        status = rpsim_command_simulate(&study, options, command);
        status = status == RP_OK ? rpsim_report_write(&study, options->format, stream) : status;
    }
    rpsim_study_fini(&study);
    return status;
}

static rp_status refuse_part(uint32_t gpus)
{
    rp_log_error("{gpus}: {platform_out} writes the whole server; valid is {set} "
                 "platform.gpus=%" PRIu32,
                 gpus);
    return RP_USAGE;
}

/* Writes a platform file with the values of --platform and --set. */
static rp_status write_platform(const rpsim_options *options, const char *name, rp_arena *arena,
                                FILE *stream)
{
    const rpsim_setup *o = &options->setup;
    const char *from = o->platform != NULL ? o->platform : RPSIM_DEFAULT_PLATFORM;
    rp_changes changes;
    RP_TRY(rpsim_setup_all_changes(o, arena, &changes, NULL));
    if (strcmp(from, RP_PLATFORM_DETECT) == 0 && !rp_changes_any(&changes, &rp_platform_schema)) {
        return rp_detect_write(name, arena, stream);
    }
    rp_platform platform;
    const char *head = NULL;
    RP_TRY(rp_platform_load_changed(from, &changes, arena, &platform, NULL));
    if (platform.used_gpus != 0 && platform.used_gpus != platform.gpus) {
        return refuse_part(platform.used_gpus);
    }
    RP_TRY(rp_arena_print(arena, &head, "# rpsim --platform-out: %s\n", platform.name));
    platform.name = name;
    rp_platform_write(&platform, head, NULL, 0, stream);
    return RP_OK;
}

static rp_status describe(const rpsim_options *options, rp_arena *arena)
{
    rp_output output = {0};
    const char *name = NULL;
    if (options->setup.run.gpus != 0) {
        return refuse_part(options->setup.run.gpus);
    }
    RP_TRY(rp_data_name_of(options->platform_out, 64, "this-machine", arena, &name));
    RP_TRY(rp_output_open(options->platform_out, &output));
    rp_status status = write_platform(options, name, arena, output.stream);
    status = status == RP_OK ? rp_output_commit(&output) : status;
    rp_output_discard(&output);
    return status;
}

rp_status rpsim_command_act(const rpsim_options *options, const char *command, rp_arena *arena,
                            FILE *stream)
{
    if (options->setup.common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(&rpsim_command_line, options, stream);
    }
    switch (options->action) {
    case RPSIM_ACTION_LIST:
        return rpsim_list_write(options->list, options->format, arena, stream);
    case RPSIM_ACTION_FLOWS:
        return rpsim_flows_run(options->flows, arena, stream);
    case RPSIM_ACTION_PLATFORM:
        return describe(options, arena);
    case RPSIM_ACTION_CHECK:
    case RPSIM_ACTION_RUN:
        return run_study(options, command, arena, stream);
    }
    return rp_broken();
}

rp_status rpsim_command_run(int argc, char **argv, rp_arena *arena, FILE *stream)
{
    rpsim_options options;
    const char *command = NULL;
    RP_TRY(rp_option_command("rpsim", argc, argv, arena, &command));
    RP_TRY(rpsim_options_parse(argc, argv, arena, &options, NULL));
    return rpsim_command_act(&options, command, arena, stream);
}
