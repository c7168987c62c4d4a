#include "sim/rppredict/options.h"

#include "sim/rppredict/run.h"

static const rp_option_group groups[] = {
    {"Cells", true}, {"One's own runs", true}, {"Output", false}};

static const rp_option rows[] = {
    {"cells", "F", 0, RP_OPTION_TEXT, RP_OPTION_MEMBER(rppredict_options, cells),
     .help = "predicts the rows of a CSV file instead and prints CSV; columns framework, model, "
             "seq_len (tokens, as 4k, or longest), global_batch, microbatches, calls, grain and "
             "sequence_slices, the last five empty for the published run's"},
    {"platform", "NAME|FILE", 0, RP_OPTION_TEXT, RP_OPTION_MEMBER(rppredict_options, platform),
     .names = "platforms", .help = "of --cells and --fit (" RPPREDICT_PLATFORM ")"},
    {"costs", "NAME|FILE[,…]", 0, RP_OPTION_LIST, RP_OPTION_MEMBER(rppredict_options, costs),
     .count = RP_OPTION_MEMBER(rppredict_options, costs_count),
     .help =
         "of --cells and --fit: cost tables, each called MODEL@ANYTHING, that count before those "
         "of the platform's GPU"},
    {"intervals", "N", 0, RP_OPTION_U32, RP_OPTION_MEMBER(rppredict_options, draws),
     .most = RPSIM_PREDICT_DRAWS,
     .help = "draws of the inputs within their ranges; fewer are quicker (32)"},
    {"fit", "F", 1, RP_OPTION_TEXT, RP_OPTION_MEMBER(rppredict_options, fit),
     .help =
         "sets constants of the platform on rows of a table of runs, predicts its other rows, "
         "and prints the errors; columns as --cells, and tokens_per_s, measured, and use, fit or "
         "predict"},
    {"fit-constants", "KEY[,KEY…]", 1, RP_OPTION_LIST,
     RP_OPTION_MEMBER(rppredict_options, constants),
     .count = RP_OPTION_MEMBER(rppredict_options, constant_count),
     .help = "keys of the platform that --fit may set (layer_time_factor, rates of host, link and "
             "collectives, dispatch)"},
    {"platform-out", "F", 1, RP_OPTION_TEXT, RP_OPTION_MEMBER(rppredict_options, platform_out),
     .output = true, .help = "of --fit: the platform with the constants set"},
    {"format", NULL, 2, RP_OPTION_CHOICE, RP_OPTION_MEMBER(rppredict_options, markdown),
     .choices = "table|md",
     .help = "on stdout: tables within the width of the terminal, or Markdown with all columns "
             "(table; --cells: always CSV)"},
};

static bool has_no_single_source(const void *given)
{
    const rppredict_options *o = given;
    return o->common.word_count > 1 ||
           o->common.word_count + (o->cells != NULL) + (o->fit != NULL) != 1;
}

static bool has_platform_alone(const void *given)
{
    const rppredict_options *o = given;
    return (o->platform != NULL || o->costs_count > 0) && !rppredict_has_table(o);
}

static const rp_option_rule rules[] = {
    {.when = has_no_single_source,
     .message = "valid is one argument, the folder of the published tables, or --cells F, or --fit "
                "F; see rppredict --help"},
    {.when = has_platform_alone,
     .message =
         "--platform and --costs: valid only with --cells F or --fit F; what is published was "
         "measured on " RPPREDICT_PLATFORM},
    {.given = "format",
     .with = "cells",
     .message = "--cells prints CSV; valid with FOLDER and --fit"},
    {.given = "intervals",
     .with = "fit",
     .message = "--fit has no intervals; valid with FOLDER and --cells"},
    {.given = "fit-constants platform-out", .without = "fit", .message = "valid only with --fit F"},
};

const rp_options_program rppredict_command_line = {
    .name = "rppredict",
    .purpose = "predicts the published runs, or a table of cells, or one's own runs",
    .usage = "rppredict FOLDER\nrppredict --cells F [--platform NAME|FILE]\n"
             "rppredict --fit F [--platform NAME|FILE] [--platform-out F]",
    .words = "DIR",
    .description =
        "Simulates every published run whose configuration is known at hardware fidelity and "
        "prints predicted against measured. FOLDER holds throughput_4090.csv, "
        "scaling_4090.csv, max_seqlen_4090.csv, fsdp_mpt_a100.csv and megatron_a100.csv "
        "(paper-figures/published). "
        "With --cells the same model predicts runs that need not have been measured, and with "
        "--fit runs that one has measured oneself.",
    .exit_status = "0 success, 1 a run failed, 2 bad usage or bad input.",
    .example = "rppredict paper-figures/published",
    RP_OPTION_TABLES(groups, rows, rules),
};
