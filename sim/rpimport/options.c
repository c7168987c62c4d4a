#include "sim/rpimport/options.h"

enum { KINETO, CHAKRA };

static const rp_option_group groups[] = {
    [KINETO] = {"Cost tables from PyTorch's profiler and RoundPipe's timer", true},
    [CHAKRA] = {"Chakra execution traces", true},
};

#define TO(member) .to = RP_OPTION_MEMBER(rpimport_options, member)

static const rp_option rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#include "sim/rpimport/options_rows.inc"
#undef OPTION
};

static bool has_no_single_source(const void *options)
{
    const rpimport_options *o = options;
    return (o->trace_count != 0) + (o->timer != NULL) + (o->chakra != NULL) != 1;
}

#define SIZES                                                                                      \
    "a cost table says what it was measured on, and a trace does not; valid with "                 \
    "--microbatch-size B and --seq-len S"

static bool makes_unknown_sizes(const void *options)
{
    const rpimport_options *o = options;
    return o->chakra == NULL && (o->microbatch_size == 0 || o->seq_len == 0);
}

static const rp_option_rule rules[] = {
    {.when = has_no_single_source,
     .message =
         "one thing to import; valid is one of --kineto F[,F…], --timer F and --chakra PREFIX; "
         "see rpimport --help"},
    {.given = "chakra",
     .with = "partition ends microbatch-size seq-len statistic out",
     .message = "makes no cost table; valid beside it are --platform and --format"},
    {.given = "platform format", .without = "chakra", .message = "valid only with --chakra PREFIX"},
    {.when = makes_unknown_sizes, .message = SIZES},
};

const rp_options_program rpimport_command_line = {
    .name = "rpimport",
    .purpose = "takes measurements and runs over from other programs",
    .usage = "rpimport --kineto F[,F…] --microbatch-size B --seq-len S [options]\n"
             "rpimport --timer F --microbatch-size B --seq-len S [options]\n"
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
    RP_TRY(rp_options_parse(&rpimport_command_line, argc, argv, arena, options_out, NULL));
    return options_out->common.request == RP_OPTIONS_RUN
               ? rp_options_check(&rpimport_command_line, options_out, NULL)
               : RP_OK;
}
