/* rpexec: trains a decoder with a pipeline schedule. */
#include "common/base/log.h"
#include "common/cli/option_values.h"
#include "common/cli/page.h"
#include "common/cli/tool.h"
#include "common/inputs/data.h"
#include "exec/describe/describe.h"
#include "exec/rpexec/options.h"
#include "exec/rpexec/report.h"
#include "exec/run/backend.h"
#include "exec/run/runs.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void print_device(void *context, const rpexec_device *device)
{
    FILE *stream = context;
    fprintf(stream, "    device %" PRIu32 ": %s, %" PRIu32 " %s", device->index, device->name,
            device->units, device->unit_name);
    if (device->memory_bytes != 0) {
        fprintf(stream, ", %.1f GiB", (double)device->memory_bytes / (1024.0 * 1024.0 * 1024.0));
    }
    fprintf(stream, "%s%s\n", device->detail[0] == '\0' ? "" : ", ", device->detail);
}

static void print_absent(void *context, const char *reason)
{
    fprintf(context, "    no device: %s\n", reason);
}

static rp_status list_backends(FILE *stream)
{
    rpexec_probe probe = {.context = stream, .device = print_device, .absent = print_absent};
    rp_status result = RP_OK;
    for (uint32_t i = 0; i < rpexec_backend_count; i++) {
        const rpexec_backend_type *backend = rpexec_backends[i];
        fprintf(stream, "%s: %s (%s)\n", backend->name, backend->summary, backend->source);
        rp_status status = backend->probe(&probe);
        if (status != RP_OK) {
            result = status;
        }
    }
    return result;
}

static rp_status list_schedules(rp_arena *arena, FILE *stream)
{
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const rp_schedule_type *schedule = rp_schedules[i];
        const char *never = NULL;
        const char *asynchronous = NULL;
        RP_TRY(rpexec_runs(schedule, false, arena, &never));
        RP_TRY(rpexec_runs(schedule, true, arena, &asynchronous));
        fprintf(stream, "%s: %s", schedule->name, schedule->summary);
        if (never != NULL) {
            fprintf(stream, " (simulated only: %s)", never);
        } else if (rp_traits_only_synchronous(&schedule->traits) != NULL) {
            fprintf(stream, " (runs with --optimizer sync: %s)",
                    rp_traits_only_synchronous(&schedule->traits));
        } else if (asynchronous != NULL) {
            fprintf(stream, " (runs with --optimizer sync; with async simulated only: %s)",
                    asynchronous);
        }
        fputc('\n', stream);
    }
    return RP_OK;
}

static rp_status list(const rpexec_options *options, rp_arena *arena)
{
    rp_page page;
    RP_TRY(rp_page_open(stdout, arena, &page));
    rp_status status = strcmp(options->list, "backends") == 0 ? list_backends(page.stream)
                                                              : list_schedules(arena, page.stream);
    rp_page_close(&page);
    return status;
}

static rp_status report(const rpexec_options *options, const rpexec_outcome *outcome,
                        rp_arena *arena)
{
    rp_page page;
    if (options->json) {
        rpexec_report(options, outcome, stdout);
        return RP_OK;
    }
    RP_TRY(rp_page_open(stdout, arena, &page));
    rpexec_report(options, outcome, page.stream);
    rp_page_close(&page);
    return RP_OK;
}

static rp_status describe_to(const char *path, bool host_alone, rp_arena *arena)
{
    rp_output output = {0};
    const char *name = NULL;
    RP_TRY(rp_data_name_of(path, 64, "this-machine", arena, &name));
    RP_TRY(rp_output_open(path, &output));
    rp_status status = host_alone ? rpexec_describe_host(output.stream)
                                  : rpexec_describe(name, arena, output.stream);
    status = status == RP_OK ? rp_output_commit(&output) : status;
    rp_output_discard(&output);
    return status;
}

static rp_status describe(const rpexec_options *o, rp_arena *arena)
{
    if (o->host_rates != NULL) {
        RP_TRY(describe_to(o->host_rates, true, arena));
    }
    return o->platform_out != NULL ? describe_to(o->platform_out, false, arena) : RP_OK;
}

static rp_status train(rpexec_options *options, rp_arena *arena)
{
    rpexec_launch launch;
    rpexec_outcome outcome;
    RP_TRY(rpexec_launch_find(rpexec_patience_s(options), &launch));
    RP_TRY(rpexec_train_together(options, &launch, arena, &outcome));
    return launch.rank == 0 ? report(options, &outcome, arena) : RP_OK;
}

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    rpexec_options options;
    RP_TRY(rpexec_options_parse(argc, argv, arena, &options, NULL));
    RP_TRY(rp_option_command("rpexec", argc, argv, arena, &options.command));
    if (options.common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(rpexec_command_line(), &options, stdout);
    }
    switch (options.action) {
    case RPEXEC_ACTION_LIST:
        return list(&options, arena);
    case RPEXEC_ACTION_DESCRIBE:
        return describe(&options, arena);
    case RPEXEC_ACTION_RUN:
        return train(&options, arena);
    }
    return rp_broken();
}

int main(int argc, char **argv)
{
    return rp_tool_main("rpexec", argc, argv, run);
}
