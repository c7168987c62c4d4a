#include "sim/rpimport/options.h"

#include "common/base/log.h"
#include "common/cli/option_values.h"

#include <getopt.h>
#include <stdio.h>

/* X(enumerator, option, argument (NULL: none), help). The long options, --help and the parser. */
#define OPTION_LIST(X)                                                                             \
    X(KINETO, "kineto", "F[,F…]",                                                                  \
      "traces of PyTorch's profiler (Kineto, JSON) with the ranges PP:2F0 that its pipeline "      \
      "runtime makes, one per rank of one run; prints a cost table")                               \
    X(PARTITION, "partition", "P",                                                                 \
      "layers of each stage that was measured, 7,7,7,7; what the last stage takes longer than "    \
      "its layers becomes the head's (each stage counts as one layer, the head as part of the "    \
      "last)")                                                                                     \
    X(MICROBATCH_SIZE, "microbatch-size", "B", "sequences per microbatch; no trace says it")       \
    X(SEQ_LEN, "seq-len", "S", "tokens per sequence; no trace says it")                            \
    X(STATISTIC, "statistic", "median|min",                                                        \
      "of the ranges of a stage and kind; min suits ranges of the CPU, which include waiting "     \
      "(median)")                                                                                  \
    X(OUT, "out", "F|-", "the cost table; its name is the file's (-, stdout)")                     \
    X(CHAKRA, "chakra", "PREFIX",                                                                  \
      "runs Chakra execution traces, PREFIX.RANK.et of all ranks from 0 on, as rpsim "             \
      "--chakra-out and ASTRA-sim's tools write them")                                             \
    X(PLATFORM, "platform", "NAME|FILE",                                                           \
      "of --chakra: its rates give times to transfers and collectives that have a size only "      \
      "(rtx4090x8)")                                                                               \
    X(FORMAT, "format", "table|json", "of --chakra (table)")                                       \
    X(HELP, "help", NULL, "this text")                                                             \
    X(VERSION, "version", NULL, "the version")

RP_OPTION_TABLES(OPTION_LIST)

void rpimport_options_help(void)
{
    puts("Usage: rpimport --kineto F[,F…] --microbatch-size B --seq-len S [options]\n"
         "       rpimport --chakra PREFIX [options]\n\n"
         "Takes measurements and runs over from other programs.\n\nOptions (default):");
    rp_option_print(option_helps, sizeof option_helps / sizeof option_helps[0]);
    puts("\nExit status: 0 success, 1 the run failed, 2 bad usage or bad input.\n"
         "Example: rpimport --kineto rank0.json,rank1.json --partition 14,14 --microbatch-size 4 "
         "--seq-len 2048 --out mine.yaml");
}

static rp_status take_option(int option, rp_arena *arena, rpimport_options *o)
{
    uint32_t index = 0;
    switch (option) {
    case OPTION_KINETO:
        return rp_option_list("kineto", optarg, arena, &o->traces, &o->trace_count);
    case OPTION_PARTITION:
        o->partition = optarg;
        return RP_OK;
    case OPTION_MICROBATCH_SIZE:
        return rp_option_u32("microbatch-size", optarg, 1u << 20, &o->microbatch_size);
    case OPTION_SEQ_LEN:
        return rp_option_u32("seq-len", optarg, 1u << 24, &o->seq_len);
    case OPTION_STATISTIC:
        RP_TRY(rp_option_choice("statistic", optarg, "median|min", &index));
        o->statistic_given = true;
        o->statistic = (rpsim_statistic)index;
        return RP_OK;
    case OPTION_OUT:
        o->out = optarg;
        return RP_OK;
    case OPTION_CHAKRA:
        o->chakra = optarg;
        return RP_OK;
    case OPTION_PLATFORM:
        o->platform = optarg;
        return RP_OK;
    case OPTION_FORMAT:
        RP_TRY(rp_option_choice("format", optarg, "table|json", &index));
        o->format_given = true;
        o->json = index == 1;
        return RP_OK;
    case OPTION_HELP:
        o->action = RPIMPORT_ACTION_HELP;
        return RP_OK;
    default: /* OPTION_VERSION */
        o->action = RPIMPORT_ACTION_VERSION;
        return RP_OK;
    }
}

static rp_status check_combination(rpimport_options *o)
{
    if (o->action != RPIMPORT_ACTION_NONE) {
        return RP_OK; /* help or version */
    }
    if ((o->trace_count != 0) == (o->chakra != NULL)) {
        rp_log_error("one thing to import; valid is either --kineto F[,F…] or --chakra PREFIX; "
                     "see rpimport --help");
        return RP_USAGE;
    }
    o->action = o->chakra != NULL ? RPIMPORT_ACTION_CHAKRA : RPIMPORT_ACTION_KINETO;
    bool table = o->partition != NULL || o->microbatch_size != 0 || o->seq_len != 0 ||
                 o->statistic_given || o->out != NULL;
    if (o->chakra != NULL && table) {
        rp_log_error("--chakra: makes no cost table; valid beside it are --platform and --format");
        return RP_USAGE;
    }
    if (o->chakra == NULL && (o->platform != NULL || o->format_given)) {
        rp_log_error("%s: valid only with --chakra PREFIX",
                     o->platform != NULL ? "--platform" : "--format");
        return RP_USAGE;
    }
    if (o->chakra == NULL && (o->microbatch_size == 0 || o->seq_len == 0)) {
        rp_log_error("--kineto: a cost table says what it was measured on, and a trace does not; "
                     "valid with --microbatch-size B and --seq-len S");
        return RP_USAGE;
    }
    return RP_OK;
}

rp_status rpimport_options_parse(int argc, char **argv, rp_arena *arena,
                                 rpimport_options *options_out)
{
    *options_out = (rpimport_options){0};
    optind = 0; /* GNU: start anew, also when called again in the same process */
    opterr = 0;
    for (;;) {
        int option = getopt_long(argc, argv, "+:", long_options, NULL);
        if (option == -1) {
            break;
        }
        if (option == '?' || option == ':') {
            return rp_option_unknown("rpimport", argv[optind - 1], option, long_options);
        }
        RP_TRY(take_option(option, arena, options_out));
    }
    if (optind < argc) {
        rp_log_error("'%s': valid are options only; see rpimport --help", argv[optind]);
        return RP_USAGE;
    }
    return check_combination(options_out);
}
