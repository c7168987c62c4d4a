/* rppredict: the simulator at hardware fidelity against published measurements. */
#include "common/log.h"
#include "common/version.h"
#include "sim/prediction.h"
#include "sim/prediction_seqlen.h"

#include <string.h>

static int usage(FILE *stream)
{
    fputs("Usage: rppredict FOLDER\n\n"
          "Simulates every published RoundPipe run whose configuration is known at hardware "
          "fidelity\n"
          "and prints predicted against measured throughput as Markdown. FOLDER holds\n"
          "throughput_4090.csv, scaling_4090.csv and max_seqlen_4090.csv "
          "(paper-figures/published).\n\n"
          "Exit status: 0 success, 1 a run failed, 2 bad usage or bad input.\n",
          stream);
    return stream == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    rp_log_set_program("rppredict");
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        return usage(stdout);
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("rppredict %s\n", rp_version());
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-') {
        rp_log_error("valid is one argument, the folder of the published tables; see --help");
        return rp_status_exit(RP_USAGE);
    }
    rp_arena *arena = NULL;
    rpsim_prediction prediction;
    rpsim_seqlens seqlens;
    rp_status status = rp_arena_create(&arena);
    if (status == RP_OK) {
        status = rpsim_predict(argv[1], arena, &prediction);
    }
    if (status == RP_OK) {
        status = rpsim_predict_seqlens(argv[1], arena, &seqlens);
    }
    if (status == RP_OK) {
        rpsim_prediction_write(&prediction, stdout);
        rpsim_seqlens_write(&seqlens, stdout);
        status = fflush(stdout) != 0 || ferror(stdout) != 0 ? RP_IO : RP_OK;
    }
    rp_arena_destroy(arena);
    return rp_status_exit(status);
}
