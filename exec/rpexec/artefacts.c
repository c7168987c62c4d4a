#include "exec/rpexec/artefacts.h"

#include "common/base/log.h"
#include "common/base/median.h"
#include "common/base/version.h"
#include "common/schedule/even.h"
#include "common/timeline/chrome_trace.h"
#include "common/timeline/gantt.h"
#include "common/timeline/timeline_csv.h"
#include "exec/rpexec/columns.h"
#include "exec/rpexec/page.h"
#include "exec/rpexec/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* Room for the JSON of a run's settings, with the names of schedule, backend and device. */
#define SETTINGS_SIZE 65536

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

rp_status rpexec_artefacts_open(const rpexec_options *o, rpexec_artefacts *a)
{
    *a = (rpexec_artefacts){.opened_s = now_s()};
    const struct {
        const char *path;
        rp_output *output;
    } outputs[] = {{o->program_out, &a->program},
                   {o->timeline_out, &a->timeline},
                   {o->trace_out, &a->trace},
                   {o->html_out, &a->page}};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        if (outputs[i].path != NULL) {
            RP_TRY(rp_output_open(outputs[i].path, outputs[i].output));
        }
    }
    if (o->gantt_out != NULL) {
        RP_TRY(rp_gantt_check_path("--gantt-out", o->gantt_out));
    }
    return o->db != NULL ? rp_store_open_before(o->db, &a->store) : RP_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static rp_status write_trace(const rpexec_run_made *run, rp_output *output)
{
    const rpexec_options *o = run->options;
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, o->seed);
    const rp_trace_fact facts[] = {{"program", "rpexec"},
                                   {"version", rp_version()},
                                   {"schedule", o->schedule->name},
                                   {"model", run->model->name},
                                   {"platform", run->platform},
                                   {"backend", o->backend},
                                   {"recompute", rp_recompute_text(o->run.recomputes[0])},
                                   {"measured", "true"},
                                   {"seed", seed}};
    RP_TRY(rp_trace_write(run->timeline, facts, sizeof facts / sizeof facts[0], output->stream));
    return rp_output_commit(output);
}

static rp_status write_gantt(const rpexec_run_made *run, const rp_metrics *metrics)
{
    const rp_gantt_panel panel = {run->timeline,    metrics, run->options->schedule->name,
                                  run->model->name, 0,       0};
    return rp_gantt_write(&panel, 1, run->options->gantt_out);
}

/* ---- the store ------------------------------------------------------------------------------- */

static rp_status measure_spread(const rpexec_outcome *out, rp_arena *arena,
                                rpexec_spread *spread_out)
{
    uint32_t count = out->steps > 1 ? out->steps - 1 : 0;
    double *ms = NULL;
    double sum = 0;
    *spread_out = (rpexec_spread){.mean_ms = NAN};
    if (count == 0) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, count, sizeof *ms, &ms));
    for (uint32_t i = 0; i < count; i++) {
        ms[i] = out->iteration_ms[i + 1];
        sum += ms[i];
    }
    double median = rp_median(ms, count); /* sorts `ms` */
    *spread_out = (rpexec_spread){.count = count,
                                  .mean_ms = sum / count,
                                  .median_ms = median,
                                  .least_ms = ms[0],
                                  .most_ms = ms[count - 1]};
    return RP_OK;
}

static rp_store_metric metric_of(const char *name, const rpexec_field *field)
{
    switch (field->type) {
    case RPEXEC_VALUE_UINT:
    case RPEXEC_VALUE_BOOL:
    case RPEXEC_VALUE_UINTS:
        return (rp_store_metric){.name = name, .integer = (int64_t)field->uint};
    case RPEXEC_VALUE_PS:
        return (rp_store_metric){.name = name, .integer = field->ps};
    case RPEXEC_VALUE_MS:
        return (rp_store_metric){.name = name, .is_real = true, .real = 1e9 * field->real};
    case RPEXEC_VALUE_REAL:
    case RPEXEC_VALUE_NULL:
    case RPEXEC_VALUE_TEXT:
    case RPEXEC_VALUE_REALS:
        break;
    }
    return (rp_store_metric){.name = name, .is_real = true, .real = rpexec_field_number(field)};
}

static void collect_metrics(const rpexec_result *result, rp_store_run *run,
                            rp_store_metric metrics[static RPEXEC_MAX_COLUMNS])
{
    for (uint32_t i = 0; i < rpexec_column_count; i++) {
        const rpexec_column *column = &rpexec_columns[i];
        if (column->metric != NULL) {
            rpexec_field field = column->value(result);
            if (field.type != RPEXEC_VALUE_NULL) {
                metrics[run->metric_count++] = metric_of(column->metric, &field);
            }
        }
    }
}

static rp_status settings_json(const rpexec_run_made *run, rp_arena *arena, char **json_out)
{
    size_t size = SETTINGS_SIZE + rp_options_settings_size(rpexec_setup_keys(), run->options);
    RP_TRY(rp_arena_alloc(arena, size, 1, json_out));
    FILE *stream = fmemopen(*json_out, size, "w");
    if (stream == NULL) {
        rp_log_error("out of memory for the run's settings");
        return RP_NO_MEMORY;
    }
    rpexec_report_settings(run->options, stream);
    fclose(stream);
    return RP_OK;
}

static rp_status store_run(const rpexec_run_made *made, const rp_metrics *measured, rp_arena *arena,
                           rpexec_artefacts *artefacts)
{
    const rpexec_options *o = made->options;
    const rp_program *p = made->program;
    char *json = NULL;
    const char *partition = NULL;
    rp_partition layers;
    rpexec_spread spread;
    rp_store_metric metrics[RPEXEC_MAX_COLUMNS];
    RP_TRY(settings_json(made, arena, &json));
    if (p != NULL) {
        RP_TRY(rp_partition_of_program(p, arena, &layers));
        RP_TRY(rp_partition_text(&layers, arena, &partition));
    }
    rp_store_run run = {.program = "rpexec",
                        .version = rp_version(),
                        .git_commit = rp_commit(),
                        .duration_s = now_s() - artefacts->opened_s,
                        .command = o->command,
                        .config_json = json,
                        .seed = o->seed,
                        .schedule = o->schedule->name,
                        .model = made->model->name,
                        .platform = made->platform,
                        .partition = partition,
                        .fidelity = o->backend,
                        .recompute = rp_recompute_text(o->run.recomputes[0]),
                        .optimizer = o->run.asynchronous ? "async" : "sync",
                        .gpus = o->run.gpus,
                        .microbatches = o->run.microbatches,
                        .microbatch_size = o->run.microbatch_size,
                        .seq_len = o->run.seq_len,
                        .iterations = p != NULL ? p->iteration_count : 0,
                        .ops = p != NULL ? p->op_count : 0,
                        .program_hash = p != NULL ? rp_program_hash(p) : 0,
                        .metrics = metrics};
    const rpexec_result result = {
        .options = o, .outcome = made->outcome, .metrics = measured, .spread = &spread};
    RP_TRY(measure_spread(made->outcome, arena, &spread));
    collect_metrics(&result, &run, metrics);
    return rp_store_add_run(artefacts->store, &run, o->db_ops ? made->timeline : NULL);
}

/* ---- all of it ------------------------------------------------------------------------------- */

rp_status rpexec_artefacts_write(const rpexec_run_made *run, rp_arena *arena, rpexec_artefacts *a)
{
    const rpexec_options *o = run->options;
    rp_metrics metrics;
    const rp_metrics *measured = NULL;
    if (run->timeline != NULL) {
        const rp_program *program = run->timeline->program;
        RP_TRY(rp_metrics_measure(run->timeline, rp_program_has_separate_backward(program),
                                  &metrics, NULL));
        measured = &metrics;
    }
    if (run->timeline != NULL && a->program.stream != NULL) {
        rp_program_write(run->program, a->program.stream);
        RP_TRY(rp_output_commit(&a->program));
    }
    if (run->timeline != NULL && a->timeline.stream != NULL) {
        rp_timeline_write_csv(run->timeline, a->timeline.stream);
        RP_TRY(rp_output_commit(&a->timeline));
    }
    if (run->timeline != NULL && a->trace.stream != NULL) {
        RP_TRY(write_trace(run, &a->trace));
    }
    if (run->timeline != NULL && a->page.stream != NULL) {
        RP_TRY(rpexec_page_write(run, arena, a->page.stream));
        RP_TRY(rp_output_commit(&a->page));
    }
    if (run->timeline != NULL && o->gantt_out != NULL) {
        RP_TRY(write_gantt(run, measured));
    }
    if (o->db != NULL && a->store == NULL) {
        RP_TRY(rp_store_open(o->db, &a->store));
    }
    return o->db != NULL ? store_run(run, measured, arena, a) : RP_OK;
}

void rpexec_artefacts_fini(rpexec_artefacts *artefacts)
{
    rp_output_discard(&artefacts->program);
    rp_output_discard(&artefacts->timeline);
    rp_output_discard(&artefacts->trace);
    rp_output_discard(&artefacts->page);
    rp_store_close(artefacts->store);
    artefacts->store = NULL;
}
