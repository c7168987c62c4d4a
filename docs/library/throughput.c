/* Throughput and memory of a model on two servers, by the typed interface: throughput MODEL. */
#include <rpsim.h>

#include <stdio.h>

/* Prints the line of a server. Every call gives a code; the message is rp_last_error(). */
static rp_code print_server(const rp_input *model, const char *name)
{
    rp_input *platform = NULL;
    rp_simulation *simulation = NULL;
    rp_settings settings = RP_SETTINGS_INIT;
    rp_result result = RP_RESULT_INIT;
    rp_code code = rp_input_load(RP_KIND_PLATFORM, name, &platform);
    settings.schedule = "roundpipe";
    settings.model = model;
    settings.platform = platform;
    if (code == RP_CODE_OK) {
        code = rp_simulation_prepare(&settings, &simulation);
    }
    if (code == RP_CODE_OK) {
        code = rp_simulation_run(simulation);
    }
    if (code == RP_CODE_OK) {
        code = rp_simulation_result(simulation, 0, &result);
    }
    if (code == RP_CODE_OK) {
        printf("%s on %s: %.0f tokens/s, %s\n", result.model, result.platform, result.tokens_per_s,
               result.fits == RP_ANSWER_YES  ? "fits"
               : result.fits == RP_ANSWER_NO ? result.oom_reason
                                             : "nobody knows whether it fits");
    }
    rp_simulation_free(simulation);
    rp_input_free(platform);
    return code;
}

int main(int argc, char **argv)
{
    rp_input *model = NULL;
    rp_code code = rp_input_load(RP_KIND_MODEL, argc > 1 ? argv[1] : "qwen3-8b", &model);
    if (code == RP_CODE_OK) {
        code = print_server(model, "rtx4090x8");
    }
    if (code == RP_CODE_OK) {
        code = print_server(model, "h100x8");
    }
    if (code != RP_CODE_OK) {
        fprintf(stderr, "%s\n", rp_last_error());
    }
    rp_input_free(model);
    return (int)code;
}
