/* rppredict: compares the simulator at hardware fidelity with published measurements, and predicts
 * cells that nobody has measured. */
#include "common/base/log.h"
#include "common/cli/page.h"
#include "common/cli/tool.h"
#include "common/inputs/data.h"
#include "sim/rppredict/cells.h"
#include "sim/rppredict/constants.h"
#include "sim/rppredict/fit.h"
#include "sim/rppredict/fsdp.h"
#include "sim/rppredict/megatron.h"
#include "sim/rppredict/options.h"
#include "sim/rppredict/prediction.h"
#include "sim/rppredict/seqlen.h"

/* Begins the output: Markdown as it is, or tables of the page's width. */
static rp_status begin_page(const rppredict_options *o, rp_arena *arena, rp_page *page_out)
{
    rp_progress_end();
    *page_out = (rp_page){.stream = stdout};
    return o->markdown ? RP_OK : rp_page_open_markdown(stdout, arena, page_out);
}

static void end_page(const rppredict_options *o, rp_page *page)
{
    if (!o->markdown) {
        rp_page_close(page);
    }
}

static rp_status report(const rppredict_options *o, const char *folder)
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

static rp_status fit(const rppredict_options *o, const rpsim_cells_inputs *inputs, rp_arena *arena)
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

static rp_status predict(const rppredict_options *o, rp_arena *arena)
{
    rpsim_cells_inputs inputs;
    RP_TRY(rpsim_cells_load(o->platform != NULL ? o->platform : RPPREDICT_PLATFORM, o->costs,
                            o->costs_count, arena, &inputs));
    return o->fit != NULL ? fit(o, &inputs, arena)
                          : rpsim_predict_cells(o->cells, &inputs, o->draws, arena, stdout);
}

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    rppredict_options o = {.draws = RPSIM_PREDICT_DRAWS};
    rp_mem_keep_freed(); /* hundreds of short runs */
    RP_TRY(rp_options_parse(&rppredict_command_line, argc, argv, arena, &o, NULL));
    if (o.common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(&rppredict_command_line, &o, stdout);
    }
    RP_TRY(rp_options_check(&rppredict_command_line, &o, NULL));
    return rppredict_has_table(&o) ? predict(&o, arena) : report(&o, o.common.words[0]);
}

int main(int argc, char **argv)
{
    rp_progress_allow();
    return rp_tool_main("rppredict", argc, argv, run);
}
