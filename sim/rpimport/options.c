#include "sim/rpimport/options.h"

enum { KINETO, CHAKRA };

static const rp_option_group groups[] = {
    [KINETO] = {"Cost tables from traces of PyTorch's profiler", true},
    [CHAKRA] = {"Chakra execution traces", true},
};

#define TO(member) .to = RP_OPTION_MEMBER(rpimport_options, member)

static const rp_option rows[] = {
    {"kineto", "F[,F…]", KINETO, RP_OPTION_LIST, TO(traces),
     .count = RP_OPTION_MEMBER(rpimport_options, trace_count),
     .help = "traces of PyTorch's profiler (Kineto, JSON) with the ranges PP:2F0 that its pipeline "
             "runtime makes, one per rank of one run; prints a cost table"},
    {"partition", "P", KINETO, RP_OPTION_TEXT, TO(partition),
     .help = "layers of each stage that was measured, 7,7,7,7; what the last stage takes longer "
             "than its layers becomes the head's (each stage counts as one layer, the head as part "
             "of the last)"},
    {"microbatch-size", "B", KINETO, RP_OPTION_U32, TO(microbatch_size), .most = 1u << 20,
     .help = "sequences per microbatch; no trace says it"},
    {"seq-len", "S", KINETO, RP_OPTION_U32, TO(seq_len), .most = 1u << 24,
     .help = "tokens per sequence; no trace says it"},
    {"statistic", NULL, KINETO, RP_OPTION_CHOICE, TO(statistic), .choices = "median|min",
     .given = RP_OPTION_MEMBER(rpimport_options, statistic_given),
     .help = "of the ranges of a stage and kind; min suits ranges of the CPU, which include "
             "waiting (median)"},
    {"out", "F|-", KINETO, RP_OPTION_TEXT, TO(out),
     .help = "the cost table; its name is the file's (-, stdout)"},

    {"chakra", "PREFIX", CHAKRA, RP_OPTION_TEXT, TO(chakra),
     .help = "runs Chakra execution traces, PREFIX.RANK.et of all ranks from 0 on, as rpsim "
             "--chakra-out and ASTRA-sim's tools write them"},
    {"platform", "NAME|FILE", CHAKRA, RP_OPTION_TEXT, TO(platform), .names = "platforms",
     .help = "of --chakra: its rates give times to transfers and collectives that have a size only "
             "(rtx4090x8)"},
    {"format", NULL, CHAKRA, RP_OPTION_CHOICE, TO(json), .choices = "table|json",
     .help = "of --chakra (table)"},
};

static bool has_no_single_source(const void *options)
{
    const rpimport_options *o = options;
    return (o->trace_count != 0) == (o->chakra != NULL);
}

#define SIZES                                                                                      \
    "a cost table says what it was measured on, and a trace does not; valid with "                 \
    "--microbatch-size B and --seq-len S"

static const rp_option_rule rules[] = {
    {.when = has_no_single_source,
     .message = "one thing to import; valid is either --kineto F[,F…] or --chakra PREFIX; see "
                "rpimport --help"},
    {.given = "chakra",
     .with = "partition microbatch-size seq-len statistic out",
     .message = "makes no cost table; valid beside it are --platform and --format"},
    {.given = "platform format", .without = "chakra", .message = "valid only with --chakra PREFIX"},
    {.given = "kineto", .without = "microbatch-size", .message = SIZES},
    {.given = "kineto", .without = "seq-len", .message = SIZES},
};

const rp_options_program rpimport_command_line = {
    .name = "rpimport",
    .purpose = "takes measurements and runs over from other programs",
    .usage = "rpimport --kineto F[,F…] --microbatch-size B --seq-len S [options]\n"
             "rpimport --chakra PREFIX [options]",
    .description = "Takes measurements and runs over from other programs. Defaults are in "
                   "parentheses.",
    .example = "rpimport --kineto rank0.json,rank1.json --partition 14,14 --microbatch-size 4 "
               "--seq-len 2048 --out mine.yaml",
    RP_OPTION_TABLES(groups, rows, rules),
};

rp_status rpimport_options_parse(int argc, char **argv, rp_arena *arena,
                                 rpimport_options *options_out)
{
    *options_out = (rpimport_options){0};
    RP_TRY(rp_options_parse(&rpimport_command_line, argc, argv, arena, options_out));
    return options_out->common.request == RP_OPTIONS_RUN
               ? rp_options_check(&rpimport_command_line, options_out)
               : RP_OK;
}
