/* rpexec, as far as it exists: which backends this build has and which devices they see. */
#include "common/log.h"
#include "exec/backend.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WHAT_EXISTS "valid options are --list backends, --help, --version"

static const char help_text[] =
    "Usage: rpexec --list backends\n"
    "\n"
    "The executor itself does not exist yet: rpexec cannot run a schedule. What it can do today:\n"
    "  --list backends   the backends of this build and the devices that each of them sees\n"
    "  --help            this text\n"
    "  --version         the version\n"
    "\n"
    "Schedules are simulated by rpsim (rpsim --help).\n"
    "Exit status: 0 success, 1 the run failed, 2 bad usage.\n";

static void print_device(void *context, const rpexec_device *device)
{
    (void)context;
    printf("    device %" PRIu32 ": %s, %" PRIu32 " %s", device->index, device->name, device->units,
           device->unit_name);
    if (device->memory_bytes != 0) {
        printf(", %.1f GiB", (double)device->memory_bytes / (1024.0 * 1024.0 * 1024.0));
    }
    printf("%s%s\n", device->detail[0] == '\0' ? "" : ", ", device->detail);
}

static void print_absent(void *context, const char *reason)
{
    (void)context;
    printf("    no device: %s\n", reason);
}

static rp_status list_backends(void)
{
    rpexec_probe probe = {.context = NULL, .device = print_device, .absent = print_absent};
    rp_status result = RP_OK;
    for (uint32_t i = 0; i < rpexec_backend_count; i++) {
        const rpexec_backend_type *backend = rpexec_backends[i];
        printf("%s: %s (%s)\n", backend->name, backend->summary, backend->source);
        rp_status status = backend->probe(&probe);
        if (status != RP_OK) {
            result = status;
        }
    }
    return result;
}

static rp_status list(const char *what)
{
    if (strcmp(what, "backends") != 0) {
        rp_log_error("--list: unknown list \"%s\"; valid values are backends", what);
        return RP_USAGE;
    }
    return list_backends();
}

/** getopt has moved past an option that it does not know or whose value is missing. */
static rp_status refuse(int letter, const char *argument)
{
    if (letter == ':') {
        rp_log_error("%s: needs a value; " WHAT_EXISTS, argument);
    } else {
        rp_log_error("%s: no such option; the executor does not exist yet; " WHAT_EXISTS, argument);
    }
    return RP_USAGE;
}

static rp_status run(int argc, char **argv)
{
    static const struct option options[] = {
        {"list", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    opterr = 0;
    const char *what = NULL;
    for (;;) {
        int letter = getopt_long(argc, argv, ":", options, NULL);
        if (letter == -1) {
            break;
        }
        switch (letter) {
        case 'l':
            what = optarg;
            break;
        case 'h':
            fputs(help_text, stdout);
            return RP_OK;
        case 'v':
            printf("rpexec %s (backend registry only)\n", RP_VERSION);
            return RP_OK;
        default:
            return refuse(letter, argv[optind - 1]);
        }
    }
    if (optind < argc) {
        return refuse('?', argv[optind]);
    }
    if (what == NULL) {
        rp_log_error("nothing to do; the executor does not exist yet; " WHAT_EXISTS);
        return RP_USAGE;
    }
    return list(what);
}

int main(int argc, char **argv)
{
    rp_log_set_program("rpexec");
    rp_status status = run(argc, argv);
    bool written = fflush(stdout) == 0 && ferror(stdout) == 0;
    if (status == RP_OK && !written) {
        rp_log_error("standard output cannot be written");
        status = RP_IO;
    }
    return rp_status_exit(status);
}
