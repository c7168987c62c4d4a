/* rppredict: the simulator at hardware fidelity against published measurements, and where nobody
 * has measured. */
#include "common/cli/options.h"
#include "common/cli/tool.h"
#include "sim/rppredict/cells.h"
#include "sim/rppredict/prediction.h"
#include "sim/rppredict/seqlen.h"

#define PLATFORM "rtx4090x8"

typedef struct options {
    rp_options common; /* first, as rp_options_parse wants it */
    const char *cells;
    const char *platform;
} options;

static const rp_option_group groups[] = {{"Cells", true}};

static const rp_option rows[] = {
    {"cells", "F", 0, RP_OPTION_TEXT, RP_OPTION_MEMBER(options, cells),
     .help = "predicts the rows of a CSV file instead and prints CSV; columns framework, model, "
             "seq_len (tokens, or longest), global_batch, microbatches, calls, grain and "
             "sequence_slices, the last five empty for the published run's"},
    {"platform", "NAME|FILE", 0, RP_OPTION_TEXT, RP_OPTION_MEMBER(options, platform),
     .names = "platforms", .help = "of --cells (" PLATFORM ")"},
};

static bool has_no_single_source(const void *given)
{
    const options *o = given;
    return o->common.word_count > 1 || (o->common.word_count == 1) == (o->cells != NULL);
}

static const rp_option_rule rules[] = {
    {.when = has_no_single_source,
     .message = "valid is one argument, the folder of the published tables, or --cells F; see "
                "rppredict --help"},
    {.given = "platform",
     .without = "cells",
     .message = "valid only with --cells F; what is published was measured on " PLATFORM},
};

static const rp_options_program command_line = {
    .name = "rppredict",
    .purpose = "predicts the published runs, or a table of cells",
    .usage = "rppredict FOLDER\nrppredict --cells F [--platform NAME|FILE]",
    .words = "DIR",
    .description =
        "Simulates every published run whose configuration is known at hardware fidelity and "
        "prints predicted against measured as Markdown. FOLDER holds throughput_4090.csv, "
        "scaling_4090.csv and max_seqlen_4090.csv (paper-figures/published). With --cells the same "
        "model predicts runs that need not have been measured.",
    .exit_status = "0 success, 1 a run failed, 2 bad usage or bad input.",
    .example = "rppredict paper-figures/published",
    RP_OPTION_TABLES(groups, rows, rules),
};

static rp_status report(const char *folder)
{
    rp_arena *arena = NULL;
    rpsim_prediction prediction;
    rpsim_seqlens seqlens;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rpsim_predict(folder, arena, &prediction);
    if (status == RP_OK) {
        status = rpsim_predict_seqlens(folder, arena, &seqlens);
    }
    if (status == RP_OK) {
        rpsim_prediction_write(&prediction, stdout);
        rpsim_seqlens_write(&seqlens, stdout);
    }
    rp_arena_destroy(arena);
    return status;
}

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    options o = {0};
    rp_mem_keep_freed(); /* hundreds of short runs */
    RP_TRY(rp_options_parse(&command_line, argc, argv, arena, &o));
    if (o.common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(&command_line, &o, stdout);
    }
    RP_TRY(rp_options_check(&command_line, &o));
    return o.cells != NULL
               ? rpsim_predict_cells(o.cells, o.platform != NULL ? o.platform : PLATFORM, stdout)
               : report(o.common.words[0]);
}

int main(int argc, char **argv)
{
    return rp_tool_main("rppredict", argc, argv, run);
}
