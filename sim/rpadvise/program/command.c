#include "sim/rpadvise/program/command.h"

#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/model.h"
#include "common/inputs/platform.h"
#include "common/inputs/stacks/ledger.h"
#include "common/roofline/roofline.h"
#include "sim/engine/clock.h"
#include "sim/rpadvise/export/export.h"
#include "sim/rpadvise/program/report.h"

static rp_status choose_arithmetic(const rp_model *model, rp_run *run)
{
    bool given = run->dtype_given;
    if (!given) {
        run->dtype = model->bf16 ? RP_DTYPE_BF16 : RP_DTYPE_F16;
    }
    run->dtype_given = run->dtype != RP_DTYPE_F16; /* fp16 may also mean the usual type */
    if (!rp_arithmetic_exists((rp_arithmetic){run->dtype, run->accumulation})) {
        rp_log_error("{accumulation}: products of %s%s add up in fp32; valid are fp32, and {dtype} "
                     "fp16",
                     rp_dtype_text(run->dtype), given ? "" : ", the type of the model,");
        return RP_USAGE;
    }
    return RP_OK;
}

/* Checks the inputs once, with messages: a fault of the inputs must not become the reason against a
 * schedule.
 * @param selective_out whether a stack is given whose software has selective recompute */
static rp_status check_inputs(const rpadvise_options *o, rp_arena *arena, rpsim_setup *work,
                              uint32_t *gpus_out, uint32_t *seq_len_out, bool *selective_out)
{
    rp_run *run = &work->run;
    rp_platform platform;
    rp_model model;
    rp_costs costs;
    rp_changes changes;
    RP_TRY(rpsim_setup_all_changes(work, arena, &changes, NULL));
    RP_TRY(rp_platform_load_changed(work->platform, &changes, arena, &platform, NULL));
    RP_TRY(rpsim_setup_check_power(work, &platform, NULL));
    RP_TRY(rp_model_load_as(o->model, work->assume, arena, &model));
    RP_TRY(choose_arithmetic(&model, run));
    if (run->nodes != 0) {
        RP_TRY(rp_platform_set_nodes(&platform, run->nodes, run->gpus, NULL));
    }
    uint32_t most = rp_platform_usual_gpus(&platform);
    *gpus_out = run->gpus != 0 && run->nodes == 0 ? run->gpus : most;
    if (run->nodes == 0 && run->gpus > most) {
        rp_log_error("{gpus}: %s has %u GPUs; valid are 1 to %u", platform.name, most, most);
        return RP_USAGE;
    }
    rp_stack stack;
    RP_TRY(work->stack != NULL ? rp_stack_load_changed(work->stack, &changes, arena, &stack, NULL)
                               : RP_OK);
    *selective_out = work->stack != NULL && rp_stack_again(&stack) != 0;
    RP_TRY(rpsim_setup_check_products(work, &platform, work->stack != NULL ? &stack : NULL, NULL));
    bool adapters = work->lora_rank != 0 || model.lora_rank != 0;
    RP_TRY(rpsim_setup_check_frozen((rp_frozen)run->types.frozen, o->model, adapters, NULL));
    rp_ledger ledger;
    RP_TRY(work->stack != NULL ? rp_ledger_read(arena, &ledger) : RP_OK);
    const rp_roof roof = {
        &platform, {run->dtype, run->accumulation}, work->stack != NULL ? &stack : NULL};
    uint32_t usual = run->seq_len != 0 ? run->seq_len : RP_DEFAULT_SEQ_LEN;
    RP_TRY(rp_find_costs(&model, &roof, 1, usual, arena, &costs, NULL));
    *seq_len_out = run->seq_len != 0 ? run->seq_len : costs.seq_len;
    if (run->global_batch == 0 && o->max_step_tokens < *seq_len_out) {
        rp_log_error("{max_step_tokens}: a sequence has %u tokens; valid are %u and more",
                     *seq_len_out, *seq_len_out);
        return RP_USAGE;
    }
    return RP_OK;
}

static rp_status answer(const rpadvise_options *o, rpadvise_search *search, FILE *stream,
                        bool *found_out)
{
    rpadvise_advice advice;
    rp_status status = rpadvise_advice_make(search, &advice);
    rpadvise_bench_end(search->bench);
    if (status == RP_OK && o->export_dir != NULL && advice.row_count != 0) {
        const rpadvise_row *row = &advice.rows[0];
        status = rpadvise_export(&row->study.rows[0], row->command, o->export_dir, search->arena);
    }
    if (status == RP_OK && o->json) {
        rpadvise_report_write_json(&advice, stream);
    } else if (status == RP_OK) {
        status = rpadvise_report_write(&advice, stream);
    }
    *found_out = advice.row_count != 0;
    if (status == RP_OK && !*found_out) {
        if (advice.exhausted) {
            rp_log_error("{budget}: within %u simulations nothing that fits was found", o->budget);
        } else {
            rp_log_error("nothing fits");
        }
    }
    rpadvise_advice_fini(&advice);
    return status;
}

rp_status rpadvise_command_act(const rpadvise_options *o, bool progress, rp_arena *arena,
                               FILE *stream, bool *found_out)
{
    uint32_t gpus = 0;
    uint32_t seq_len = 0;
    bool selective = false;
    rpadvise_search search;
    rpadvise_systems systems;
    const char *models[] = {o->model};
    rpsim_setup work = o->work;
    work.models = models;
    work.model_count = 1;
    RP_TRY(check_inputs(o, arena, &work, &gpus, &seq_len, &selective));
    RP_TRY(rpadvise_systems_load(arena, &systems));
    if (o->runnable != NULL) {
        RP_TRY(rpadvise_systems_require(&systems, o->runnable));
    }
    if (o->export_dir != NULL) {
        RP_TRY(rpadvise_export_check(o->export_dir));
    }
    rpadvise_bench bench = {.work = &work,
                            .systems = &systems,
                            .runnable = o->runnable,
                            .budget = o->budget,
                            .begin_s = rpsim_clock_s(),
                            .progress = progress,
                            .selective = selective};
    rp_status status = rpadvise_search_run(o, gpus, seq_len, &bench, arena, &search);
    if (status != RP_OK) {
        rpadvise_bench_end(&bench);
        return status;
    }
    return answer(o, &search, stream, found_out);
}
