#include "sim/rpdiff/options.h"

#include "common/base/log.h"
#include "common/cli/option_values.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_WORST 10u
#define MOST_WORST 1000u

/* X(enumerator, option, argument (NULL: none), help). The long options, --help and the parser. */
#define OPTION_LIST(X)                                                                             \
    X(FORMAT, "format", "table|json|csv", "output on stdout (table); csv with STORE only")         \
    X(WORST, "worst", "N", "name the N ops with the largest differences of time (10)")             \
    X(TRACE_OUT, "trace-out", "F", "both timelines as one Chrome/Perfetto trace")                  \
    X(GANTT_OUT, "gantt-out", "F", "both timelines as one Gantt chart (.svg, .png, .pdf)")         \
    X(HELP, "help", NULL, "this text")                                                             \
    X(VERSION, "version", NULL, "the version")

RP_OPTION_TABLES(OPTION_LIST)

void rpdiff_options_help(void)
{
    puts("Usage: rpdiff PREDICTED MEASURED [options]\n"
         "       rpdiff STORE [options]\n\n"
         "How far two timelines of the same program are apart: in all, per iteration, per GPU,\n"
         "per kind of op, and the worst ops. Each of the two is a folder of rpexec --record, a\n"
         "CSV file of rpsim --timeline-out, or STORE:RUN, a run stored with --db-ops. With a\n"
         "store alone: all its runs of rpexec --predict, errors of the iteration time and\n"
         "Kendall's tau of the schedules' order where nothing else differs.\n\n"
         "Options (default):");
    rp_option_print(option_helps, sizeof option_helps / sizeof option_helps[0]);
    puts("\nErrors are predicted / measured - 1. An iteration's time is from the end of all\n"
         "before it to its own end; mean |d| is the mean absolute difference of the ops'\n"
         "durations. Of several runs, measured is the median of their median iterations,\n"
         "predicted that of their predictions; pairs of schedules closer than the spread of\n"
         "their runs have no order.\n\n"
         "Exit status: 0 success, 1 the run failed, 2 bad usage or bad input.\n"
         "Example: rpdiff predicted.csv record/ --gantt-out both.svg");
}

static rp_status take_option(int option, rpdiff_options *o)
{
    uint32_t index = 0;
    switch (option) {
    case OPTION_FORMAT:
        RP_TRY(rp_option_choice("format", optarg, "table|json|csv", &index));
        o->format = (rpdiff_format)index;
        return RP_OK;
    case OPTION_WORST:
        return rp_option_u32("worst", optarg, MOST_WORST, &o->worst);
    case OPTION_TRACE_OUT:
        o->trace_out = optarg;
        return RP_OK;
    case OPTION_GANTT_OUT:
        o->gantt_out = optarg;
        return RP_OK;
    case OPTION_HELP:
        o->action = RPDIFF_ACTION_HELP;
        return RP_OK;
    default: /* OPTION_VERSION */
        o->action = RPDIFF_ACTION_VERSION;
        return RP_OK;
    }
}

static rp_status check_store(const rpdiff_options *o)
{
    if (o->trace_out != NULL || o->gantt_out != NULL) {
        rp_log_error("%s: '%s' alone is a store with many runs; valid with two timelines only",
                     o->trace_out != NULL ? "--trace-out" : "--gantt-out", o->predicted);
        return RP_USAGE;
    }
    return RP_OK;
}

rp_status rpdiff_options_parse(int argc, char **argv, rpdiff_options *options_out)
{
    *options_out = (rpdiff_options){.worst = DEFAULT_WORST};
    optind = 0; /* GNU: start anew, also when called again in the same process */
    opterr = 0;
    for (;;) {
        int option = getopt_long(argc, argv, ":", long_options, NULL);
        if (option == -1) {
            break;
        }
        if (option == '?' || option == ':') {
            return rp_option_unknown("rpdiff", argv[optind - 1], option, long_options);
        }
        RP_TRY(take_option(option, options_out));
    }
    if (options_out->action != RPDIFF_ACTION_COMPARE) {
        return RP_OK;
    }
    if (argc - optind == 1) {
        options_out->predicted = argv[optind];
        return check_store(options_out);
    }
    if (argc - optind != 2) {
        rp_log_error(
            "%d timelines; valid are two, PREDICTED and MEASURED, or a store; see rpdiff --help",
            argc - optind);
        return RP_USAGE;
    }
    if (options_out->format == RPDIFF_FORMAT_CSV) {
        return rp_option_bad("format", "csv", "table, json, and with a store alone csv");
    }
    options_out->predicted = argv[optind];
    options_out->measured = argv[optind + 1];
    return RP_OK;
}
