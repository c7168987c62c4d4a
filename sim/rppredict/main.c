/* rppredict: the simulator at hardware fidelity against published measurements, and where nobody
 * has measured. */
#include "common/base/log.h"
#include "common/base/version.h"
#include "common/cli/option_values.h"
#include "common/cli/tool.h"
#include "sim/rppredict/cells.h"
#include "sim/rppredict/prediction.h"
#include "sim/rppredict/seqlen.h"

#include <getopt.h>
#include <stdbool.h>

#define PLATFORM "rtx4090x8"

typedef struct options {
    const char *folder;
    const char *cells;
    const char *platform;
    bool help;
    bool version;
} options;

static void usage(void)
{
    static const rp_option_help entries[] = {
        {"cells", "F",
         "predicts the rows of a CSV file instead and prints CSV; columns framework, "
         "model, seq_len (tokens, or longest), global_batch, microbatches, calls, "
         "grain and sequence_slices, the last five empty for the published run's"},
        {"platform", "NAME|FILE", "of --cells (" PLATFORM ")"},
        {"help", NULL, "this text"},
        {"version", NULL, "the version"}};
    fputs("Usage: rppredict FOLDER\n"
          "       rppredict --cells F [--platform NAME|FILE]\n\n"
          "Simulates every published run whose configuration is known at hardware fidelity and\n"
          "prints predicted against measured as Markdown. FOLDER holds throughput_4090.csv,\n"
          "scaling_4090.csv and max_seqlen_4090.csv (paper-figures/published). With --cells the\n"
          "same model predicts runs that need not have been measured.\n\nOptions (default):\n",
          stdout);
    rp_option_print(entries, sizeof entries / sizeof entries[0]);
    puts("\nExit status: 0 success, 1 a run failed, 2 bad usage or bad input.");
}

static rp_status parse(int argc, char **argv, options *o)
{
    enum { CELLS = 256, WHERE, HELP, VERSION };
    static const struct option long_options[] = {{"cells", required_argument, NULL, CELLS},
                                                 {"platform", required_argument, NULL, WHERE},
                                                 {"help", no_argument, NULL, HELP},
                                                 {"version", no_argument, NULL, VERSION},
                                                 {NULL, 0, NULL, 0}};
    opterr = 0;
    for (;;) {
        int option = getopt_long(argc, argv, ":", long_options, NULL);
        if (option == -1) {
            break;
        }
        switch (option) {
        case CELLS:
            o->cells = optarg;
            break;
        case WHERE:
            o->platform = optarg;
            break;
        case HELP:
            o->help = true;
            return RP_OK;
        case VERSION:
            o->version = true;
            return RP_OK;
        default:
            return rp_option_unknown("rppredict", argv[optind - 1], option, long_options);
        }
    }
    bool folder = argc - optind == 1;
    if (argc - optind > 1 || folder == (o->cells != NULL)) {
        rp_log_error("valid is one argument, the folder of the published tables, or --cells F; see "
                     "rppredict --help");
        return RP_USAGE;
    }
    if (folder && o->platform != NULL) {
        rp_log_error("--platform: valid only with --cells F; what is published was measured on "
                     "%s",
                     PLATFORM);
        return RP_USAGE;
    }
    o->folder = folder ? argv[optind] : NULL;
    return RP_OK;
}

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
    (void)arena;
    rp_mem_keep_freed(); /* hundreds of short runs */
    RP_TRY(parse(argc, argv, &o));
    if (o.help) {
        usage();
    } else if (o.version) {
        printf("rppredict %s\n", rp_version());
    } else if (o.cells != NULL) {
        RP_TRY(rpsim_predict_cells(o.cells, o.platform != NULL ? o.platform : PLATFORM, stdout));
    } else {
        RP_TRY(report(o.folder));
    }
    return RP_OK;
}

int main(int argc, char **argv)
{
    return rp_tool_main("rppredict", argc, argv, run);
}
