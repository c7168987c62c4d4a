/* rppredict: the simulator at hardware fidelity against published measurements, and where nobody
 * has measured. */
#include "common/base/log.h"
#include "common/cli/options.h"
#include "common/cli/page.h"
#include "common/cli/tool.h"
#include "common/inputs/data.h"
#include "sim/rppredict/cells.h"
#include "sim/rppredict/constants.h"
#include "sim/rppredict/fit.h"
#include "sim/rppredict/fsdp.h"
#include "sim/rppredict/megatron.h"
#include "sim/rppredict/prediction.h"
#include "sim/rppredict/seqlen.h"

#define PLATFORM "rtx4090x8"

typedef struct options {
    rp_options common; /* first, as rp_options_parse wants it */
    const char *cells;
    const char *fit;
    const char *platform;
    const char **costs;
    uint32_t costs_count;
    const char **constants;
    uint32_t constant_count;
    const char *platform_out;
    uint32_t draws;
    bool markdown;
} options;

static const rp_option_group groups[] = {
    {"Cells", true}, {"One's own runs", true}, {"Output", false}};

static const rp_option rows[] = {
    {"cells", "F", 0, RP_OPTION_TEXT, RP_OPTION_MEMBER(options, cells),
     .help = "predicts the rows of a CSV file instead and prints CSV; columns framework, model, "
             "seq_len (tokens, as 4k, or longest), global_batch, microbatches, calls, grain and "
             "sequence_slices, the last five empty for the published run's"},
    {"platform", "NAME|FILE", 0, RP_OPTION_TEXT, RP_OPTION_MEMBER(options, platform),
     .names = "platforms", .help = "of --cells and --fit (" PLATFORM ")"},
    {"costs", "NAME|FILE[,…]", 0, RP_OPTION_LIST, RP_OPTION_MEMBER(options, costs),
     .count = RP_OPTION_MEMBER(options, costs_count),
     .help =
         "of --cells and --fit: cost tables, each called MODEL@ANYTHING, that count before those "
         "of the platform's GPU"},
    {"intervals", "N", 0, RP_OPTION_U32, RP_OPTION_MEMBER(options, draws),
     .most = RPSIM_PREDICT_DRAWS,
     .help = "draws of the inputs within their ranges; fewer are quicker (32)"},
    {"fit", "F", 1, RP_OPTION_TEXT, RP_OPTION_MEMBER(options, fit),
     .help =
         "sets constants of the platform on rows of a table of runs, predicts its other rows, "
         "and prints the errors; columns as --cells, and tokens_per_s, measured, and use, fit or "
         "predict"},
    {"fit-constants", "KEY[,KEY…]", 1, RP_OPTION_LIST, RP_OPTION_MEMBER(options, constants),
     .count = RP_OPTION_MEMBER(options, constant_count),
     .help = "keys of the platform that --fit may set (layer_time_factor, rates of host, link and "
             "collectives, dispatch)"},
    {"platform-out", "F", 1, RP_OPTION_TEXT, RP_OPTION_MEMBER(options, platform_out),
     .output = true, .help = "of --fit: the platform with the constants set"},
    {"format", NULL, 2, RP_OPTION_CHOICE, RP_OPTION_MEMBER(options, markdown),
     .choices = "table|md",
     .help = "on stdout: tables within the width of the terminal, or Markdown with all columns "
             "(table; --cells: always CSV)"},
};

static bool has_no_single_source(const void *given)
{
    const options *o = given;
    return o->common.word_count > 1 ||
           o->common.word_count + (o->cells != NULL) + (o->fit != NULL) != 1;
}

static bool has_table(const options *o)
{
    return o->cells != NULL || o->fit != NULL;
}

static bool has_platform_alone(const void *given)
{
    const options *o = given;
    return (o->platform != NULL || o->costs_count > 0) && !has_table(o);
}

static const rp_option_rule rules[] = {
    {.when = has_no_single_source,
     .message = "valid is one argument, the folder of the published tables, or --cells F, or --fit "
                "F; see rppredict --help"},
    {.when = has_platform_alone,
     .message =
         "--platform and --costs: valid only with --cells F or --fit F; what is published was "
         "measured on " PLATFORM},
    {.given = "format",
     .with = "cells",
     .message = "--cells prints CSV; valid with FOLDER and --fit"},
    {.given = "intervals",
     .with = "fit",
     .message = "--fit has no intervals; valid with FOLDER and --cells"},
    {.given = "fit-constants platform-out", .without = "fit", .message = "valid only with --fit F"},
};

static const rp_options_program command_line = {
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

/* Begins what is printed: Markdown as it is, or as tables of the width. */
static rp_status begin_page(const options *o, rp_arena *arena, rp_page *page_out)
{
    rp_progress_end();
    *page_out = (rp_page){.stream = stdout};
    return o->markdown ? RP_OK : rp_page_open_markdown(stdout, arena, page_out);
}

static void end_page(const options *o, rp_page *page)
{
    if (!o->markdown) {
        rp_page_close(page);
    }
}

static rp_status report(const options *o, const char *folder)
{
    rp_page page;
    rp_arena *arena = NULL;
    rpsim_prediction prediction;
    rpsim_calibration calibration;
    rpsim_seqlens seqlens;
    rpsim_fsdp fsdp;
    rpsim_megatron megatron;
    rpsim_constants constants;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rpsim_predict(folder, o->draws, arena, &prediction);
    if (status == RP_OK) {
        status = rpsim_prediction_calibrate(&prediction, arena, &calibration);
    }
    if (status == RP_OK) {
        status = rpsim_predict_seqlens(folder, arena, &seqlens);
    }
    if (status == RP_OK) {
        status = rpsim_predict_fsdp(folder, o->draws, arena, &fsdp);
    }
    if (status == RP_OK) {
        status = rpsim_predict_megatron(folder, arena, &megatron);
    }
    if (status == RP_OK) {
        status = rpsim_constants_load(arena, &constants);
    }
    if (status == RP_OK) {
        status = begin_page(o, arena, &page);
    }
    if (status == RP_OK) {
        rpsim_prediction_write(&prediction, &calibration, page.stream);
        rpsim_seqlens_write(&seqlens, page.stream);
        rpsim_fsdp_write(&fsdp, &calibration, page.stream);
        rpsim_megatron_write(&megatron, page.stream);
        rpsim_constants_write(&constants, page.stream);
        end_page(o, &page);
    }
    rp_arena_destroy(arena);
    return status;
}

static rp_status fit(const options *o, const rpsim_cells_inputs *inputs, rp_arena *arena)
{
    rpsim_fit result;
    const char *name = NULL;
    rp_output output = {0};
    if (o->platform_out != NULL) {
        RP_TRY(rp_output_open(o->platform_out, &output));
    }
    rp_status status =
        rpsim_fit_run(o->fit, inputs, o->constants, o->constant_count, arena, &result);
    if (status == RP_OK && o->platform_out != NULL) {
        status = rp_data_name_of(o->platform_out, 64, "fitted", arena, &name);
    }
    if (status == RP_OK && o->platform_out != NULL) {
        status = rpsim_fit_write_platform(&result, name, o->fit, arena, output.stream);
    }
    if (status == RP_OK && o->platform_out != NULL) {
        status = rp_output_commit(&output);
    }
    rp_output_discard(&output);
    rp_page page;
    status = status == RP_OK ? begin_page(o, arena, &page) : status;
    if (status == RP_OK) {
        rpsim_fit_write(&result, page.stream);
        end_page(o, &page);
    }
    return status;
}

static rp_status predict(const options *o, rp_arena *arena)
{
    rpsim_cells_inputs inputs;
    RP_TRY(rpsim_cells_load(o->platform != NULL ? o->platform : PLATFORM, o->costs, o->costs_count,
                            arena, &inputs));
    return o->fit != NULL ? fit(o, &inputs, arena)
                          : rpsim_predict_cells(o->cells, &inputs, o->draws, arena, stdout);
}

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    options o = {.draws = RPSIM_PREDICT_DRAWS};
    rp_mem_keep_freed(); /* hundreds of short runs */
    RP_TRY(rp_options_parse(&command_line, argc, argv, arena, &o, NULL));
    if (o.common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(&command_line, &o, stdout);
    }
    RP_TRY(rp_options_check(&command_line, &o, NULL));
    return has_table(&o) ? predict(&o, arena) : report(&o, o.common.words[0]);
}

int main(int argc, char **argv)
{
    rp_progress_allow();
    return rp_tool_main("rppredict", argc, argv, run);
}
