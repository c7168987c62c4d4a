#include "exec/rpexec/page.h"

#include "common/base/units.h"
#include "common/base/version.h"
#include "common/page/page.h"
#include "exec/rpexec/columns.h"
#include "exec/rpexec/report.h"

#include <inttypes.h>
#include <math.h>

/* Most rows of the table of steps; of more steps, rows are taken evenly spread. */
#define MOST_STEPS 200u

static rp_status make_steps(const rpexec_outcome *out, rp_arena *arena, rp_page_table *table_out)
{
    uint32_t shown = out->steps < MOST_STEPS ? out->steps : MOST_STEPS;
    const char **headings = NULL;
    const char **cells = NULL;
    const char *note = NULL;
    char number[RPEXEC_NUMBER_SIZE];
    uint32_t columns = 0;
    size_t most = rpexec_step_column_count;
    RP_TRY(rp_arena_alloc(arena, most, sizeof *headings, &headings));
    RP_TRY(rp_arena_alloc(arena, most * shown, sizeof *cells, &cells));
    for (uint32_t k = 0; k < most; k++) {
        if (rpexec_step_columns[k].heading != NULL) {
            headings[columns++] = rpexec_step_columns[k].heading;
        }
    }
    const char **cell = cells;
    for (uint32_t i = 0; i < shown; i++) {
        uint32_t step = shown == 1 ? 0 : (uint32_t)((uint64_t)i * (out->steps - 1) / (shown - 1));
        const rpexec_loss_line line = rpexec_outcome_step(out, step);
        for (uint32_t k = 0; k < most; k++) {
            const rpexec_step_column *c = &rpexec_step_columns[k];
            if (c->heading != NULL) {
                rpexec_print_number(c->number, 0, c->digits, c->value(&line), number);
                RP_TRY(rp_arena_print(arena, cell++, "%s", number));
            }
        }
    }
    if (shown < out->steps) {
        RP_TRY(rp_arena_print(arena, &note, "%u of %u steps.", shown, out->steps));
    }
    *table_out = (rp_page_table){.title = "Steps",
                                 .note = note,
                                 .columns = columns,
                                 .rows = shown,
                                 .headings = headings,
                                 .cells = cells,
                                 .run = RP_PAGE_ALL_RUNS,
                                 .folded = true};
    return RP_OK;
}

static rp_status make_facts(const rpexec_run_made *run, rp_arena *arena, rp_page_table *table_out)
{
    enum { ROWS = 7 };
    static const char *const headings[] = {"of the run", "value"};
    const rpexec_outcome *out = run->outcome;
    const rpexec_options *o = run->options;
    char sizes[3][RPEXEC_SIZE_TEXT];
    uint64_t peak = 0;
    const char **cells = NULL;
    for (uint32_t i = 0; i < out->gpus; i++) {
        peak = out->peak_gpu_bytes[i] > peak ? out->peak_gpu_bytes[i] : peak;
    }
    RP_TRY(rp_arena_alloc(arena, 2 * ROWS, sizeof *cells, &cells));
    const char **at = cells;
    *at++ = "backend";
    *at++ = o->backend;
    *at++ = "work of a step";
    RP_TRY(rp_arena_print(arena, at++, "%u call%s of %u microbatches, %u x %u tokens each",
                          o->run.accumulate, o->run.accumulate == 1 ? "" : "s", o->run.microbatches,
                          o->run.microbatch_size, o->run.seq_len));
    *at++ = "type of values, optimizer";
    RP_TRY(rp_arena_print(arena, at++, "%s, %s", rp_dtype_text(o->run.dtype),
                          o->run.asynchronous ? "asynchronous" : "synchronous"));
    *at++ = "tokens/s by the wall clock";
    RP_TRY(rp_arena_print(arena, at++, "%.0f", out->wall_tokens_per_s));
    *at++ = "memory of the fullest GPU";
    RP_TRY(rp_arena_print(arena, at++, "%s", rpexec_print_size((double)peak, sizes[0])));
    *at++ = "uploaded, downloaded, between GPUs";
    RP_TRY(rp_arena_print(arena, at++, "%s, %s, %s",
                          rpexec_print_size((double)out->uploaded_bytes, sizes[0]),
                          rpexec_print_size((double)out->downloaded_bytes, sizes[1]),
                          rpexec_print_size((double)out->exchanged_bytes, sizes[2])));
    *at++ = "processors that others used, %";
    RP_TRY(rp_arena_print(arena, at++, "%.1f", out->busy_pct));
    *table_out = (rp_page_table){.title = "Run",
                                 .columns = 2,
                                 .rows = ROWS,
                                 .headings = headings,
                                 .cells = cells,
                                 .run = RP_PAGE_ALL_RUNS};
    return RP_OK;
}

static rp_status make_answer(const rpexec_outcome *out, rp_arena *arena, const char **answer_out)
{
    const char *prediction = "";
    const char *doubt = "";
    if (!isnan(out->predicted_iteration_ms) && out->costs_busy_pct > 0) {
        RP_TRY(rp_arena_print(arena, &doubt,
                              " It is not to be trusted: its costs were recorded while other "
                              "processes used %.0f %% of the processors.",
                              out->costs_busy_pct));
    }
    if (!isnan(out->predicted_iteration_ms)) {
        RP_TRY(rp_arena_print(arena, &prediction,
                              " Predicted %.3f ms per iteration, measured %.3f ms: %+.1f %%.%s",
                              out->predicted_iteration_ms,
                              out->predicted_iteration_ms / (1 + out->prediction_error_pct / 100),
                              out->prediction_error_pct, doubt));
    }
    return rp_arena_print(arena, answer_out, "%.0f tokens/s in %u steps.%s", out->tokens_per_s,
                          out->steps, prediction);
}

rp_status rpexec_page_write(const rpexec_run_made *run, rp_arena *arena, FILE *stream)
{
    bool predicts = run->predicted != NULL;
    const rp_page_run measured = {.name = predicts ? "measured" : run->options->schedule->name,
                                  .timeline = run->timeline,
                                  .memory = {.gpu_peaks = run->outcome->peak_gpu_bytes,
                                             .peaks_are = "reserved for the whole run"}};
    const rp_page_run both[] = {
        {.name = "predicted", .timeline = run->predicted, .memory = {.hidden = true}}, measured};
    rp_page_table tables[2];
    rp_page page = {.command = run->options->command,
                    .tables = tables,
                    .table_count = 2,
                    .runs = predicts ? both : &measured,
                    .run_count = predicts ? 2 : 1,
                    .together = predicts};
    RP_TRY(make_facts(run, arena, &tables[0]));
    RP_TRY(make_steps(run->outcome, arena, &tables[1]));
    RP_TRY(make_answer(run->outcome, arena, &page.answer));
    RP_TRY(rp_arena_print(arena, &page.title, "%s: %s, %u GPUs (%s), measured",
                          run->options->schedule->name, run->model->name, run->outcome->gpus,
                          rpexec_report_device(run->options).text));
    RP_TRY(rp_arena_print(arena, &page.made_by,
                          "rpexec %s; the timeline is of the last part of the run", rp_version()));
    return rp_page_write(&page, stream);
}
