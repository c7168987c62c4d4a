#include "sim/rpdiff/options.h"

#include "common/base/log.h"

#define DEFAULT_WORST 10u
#define MOST_WORST 1000u

static const rp_option_group groups[] = {{"Output", false}};

#define TO(member) .to = RP_OPTION_MEMBER(rpdiff_options, member)

static const rp_option rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#include "sim/rpdiff/options_rows.inc"
#undef OPTION
};

static const char *predicted_of(const void *options)
{
    return ((const rpdiff_options *)options)->predicted;
}

static bool has_a_store(const void *options)
{
    return ((const rpdiff_options *)options)->measured == NULL;
}

static bool prints_csv_of_two(const void *options)
{
    return ((const rpdiff_options *)options)->format == RPDIFF_FORMAT_CSV && !has_a_store(options);
}

static const rp_option_rule rules[] = {
    {.given = "trace-out gantt-out html-out",
     .when = has_a_store,
     .subject = predicted_of,
     .message = "'@' alone is a store with many runs; valid with two timelines only"},
    {.given = "format",
     .when = prints_csv_of_two,
     .message = "'csv' is not valid; valid values are table, json, and with a store alone csv"},
};

const rp_options_program rpdiff_command_line = {
    .name = "rpdiff",
    .purpose = "compares two timelines of a program, or the runs of a store",
    .usage = "rpdiff PREDICTED MEASURED [options]\nrpdiff STORE [options]",
    .words = "FILE",
    .description =
        "How far two timelines of the same program are apart: in all, per iteration, per GPU, per "
        "kind of op, and the worst ops. Each of the two is a folder of rpexec --record, a CSV file "
        "of rpsim --timeline-out, or STORE:RUN, a run stored with --db-ops. With a store alone: "
        "all its runs of rpexec --predict, errors of the iteration time and Kendall's tau of the "
        "schedules' order where nothing else differs. Defaults are in parentheses.",
    .notes = "Errors are predicted / measured - 1. An iteration's time is from the end of all "
             "before it to its own end; mean |d| is the mean absolute difference of the ops' "
             "durations. Of several runs, measured is the median of their median iterations, "
             "predicted that of their predictions; pairs of schedules closer than the spread of "
             "their runs have no order.",
    .example = "rpdiff predicted.csv record/ --html-out both.html",
    RP_OPTION_TABLES(groups, rows, rules),
};

rp_status rpdiff_options_parse(int argc, char **argv, rp_arena *arena, rpdiff_options *options_out)
{
    rpdiff_options *o = options_out;
    *o = (rpdiff_options){.worst = DEFAULT_WORST};
    RP_TRY(rp_options_parse(&rpdiff_command_line, argc, argv, arena, o, NULL));
    if (o->common.request != RP_OPTIONS_RUN) {
        return RP_OK;
    }
    uint32_t count = o->common.word_count;
    if (count != 1 && count != 2) {
        rp_log_error(
            "%u timelines; valid are two, PREDICTED and MEASURED, or a store; see rpdiff --help",
            count);
        return RP_USAGE;
    }
    o->predicted = o->common.words[0];
    o->measured = count == 2 ? o->common.words[1] : NULL;
    return rp_options_check(&rpdiff_command_line, o, NULL);
}
