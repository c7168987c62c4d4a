#include "sim/artefacts.h"

#include "common/gantt.h"
#include "common/json.h"
#include "common/log.h"
#include "common/torch_csv.h"
#include "common/trace.h"
#include "common/version.h"
#include "sim/report.h"

#include <inttypes.h>
#include <string.h>

#define MOST_METRICS 24

static rp_status require_one(const rpsim_study *study, const char *option, const char *path)
{
    if (path == NULL || study->row_count == 1) {
        return RP_OK;
    }
    rp_log_error("%s: one file cannot hold %u runs; valid is one schedule in one recompute mode on "
                 "one model",
                 option, study->row_count);
    return RP_USAGE;
}

static bool writes_sidecar(const rpsim_options *o)
{
    return o->torch_csv_out != NULL && o->torch_csv_in == NULL && o->torch_sidecar != NULL;
}

rp_status rpsim_artefacts_open(const rpsim_study *study, rpsim_artefacts *artefacts_out)
{
    const rpsim_options *o = study->options;
    *artefacts_out = (rpsim_artefacts){0};
    RP_TRY(require_one(study, "--trace-out", o->trace_out));
    RP_TRY(require_one(study, "--program-out", o->program_out));
    RP_TRY(require_one(study, "--torch-csv-out", o->torch_csv_out));
    RP_TRY(require_one(study, "--chakra-out", o->chakra_out));
    if (o->gantt_out != NULL) {
        if (study->row_count > RP_GANTT_MAX_PANELS) {
            rp_log_error("--gantt-out: %u runs do not fit one chart; valid are up to %u",
                         study->row_count, RP_GANTT_MAX_PANELS);
            return RP_USAGE;
        }
        RP_TRY(rp_gantt_check_path("--gantt-out", o->gantt_out));
    }
    if (o->trace_out != NULL) {
        RP_TRY(rp_output_open(o->trace_out, &artefacts_out->trace));
    }
    if (o->program_out != NULL) {
        RP_TRY(rp_output_open(o->program_out, &artefacts_out->program));
    }
    if (o->torch_csv_out != NULL) {
        RP_TRY(rp_output_open(o->torch_csv_out, &artefacts_out->torch_csv));
    }
    if (o->chakra_out != NULL) {
        RP_TRY(rpsim_chakra_open(o->chakra_out, study->rows[0].config.gpus, study->arena,
                                 &artefacts_out->chakra));
    }
    if (writes_sidecar(o)) {
        RP_TRY(rp_output_open(o->torch_sidecar, &artefacts_out->sidecar));
    }
    return o->db != NULL ? rp_store_open(o->db, &artefacts_out->store) : RP_OK;
}

static rp_status write_trace(const rpsim_study *study, rp_output *output)
{
    const rpsim_row *row = &study->rows[0];
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, study->options->seed);
    const rp_trace_fact facts[] = {
        {"program", "rpsim"},
        {"version", rp_version()},
        {"schedule", row->schedule_name},
        {"model", row->model_name},
        {"platform", row->platform_name},
        {"costs", row->costs->name},
        {"partition", row->partition_text},
        {"recompute", rp_recompute_text(row->config.recompute)},
        {"fidelity", row->hardware ? "hardware" : "stage"},
        {"seed", seed},
    };
    RP_TRY(rp_trace_write(row->result.timeline, facts, sizeof facts / sizeof facts[0],
                          output->stream));
    return rp_output_commit(output);
}

/* The chart shows the whole timeline; the row's metrics are those of one iteration. */
static rp_status write_gantt(const rpsim_study *study)
{
    rp_gantt_panel panels[RP_GANTT_MAX_PANELS];
    rp_metrics metrics[RP_GANTT_MAX_PANELS];
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        const char *title = row->schedule_name;
        if (study->options->all_schedules || study->options->recompute_count != 0) {
            RP_TRY(rp_arena_print(study->arena, &title, "%s, recompute %s", row->schedule_name,
                                  rp_recompute_text(row->config.recompute)));
        }
        metrics[i] = row->result.metrics;
        RP_TRY(
            rp_metrics_measure(row->result.timeline, row->result.separate_backward, &metrics[i]));
        panels[i] = (rp_gantt_panel){row->result.timeline, &metrics[i], title, row->model_name};
    }
    return rp_gantt_write(panels, study->row_count, study->options->gantt_out);
}

/* Every setting and default as a JSON object, in memory. */
static rp_status config_json(const rpsim_study *study, const rpsim_row *row, char **json_out)
{
    size_t size = 4096 + 2 * strlen(row->partition_text);
    RP_TRY(rp_arena_alloc(study->arena, size, 1, json_out));
    FILE *stream = fmemopen(*json_out, size, "w");
    if (stream == NULL) {
        rp_log_error("out of memory for the run's configuration");
        return RP_NO_MEMORY;
    }
    const rpsim_options *o = study->options;
    rp_json json;
    rp_json_begin_document(&json, stream, 0);
    rp_json_begin_object(&json);
    rpsim_field fields[RPSIM_MAX_FIELDS];
    uint32_t count = rpsim_row_fields(study, row, fields);
    for (uint32_t i = 0; i < count && strcmp(fields[i].key, "ops") != 0; i++) {
        rp_json_key(&json, fields[i].key);
        if (fields[i].type == RPSIM_VALUE_UINT) {
            rp_json_uint(&json, fields[i].uint);
        } else if (fields[i].type == RPSIM_VALUE_REAL) {
            rp_json_double(&json, fields[i].real);
        } else {
            rp_json_string(&json, fields[i].type == RPSIM_VALUE_TEXT ? fields[i].text : NULL);
        }
    }
    if (o->jitter_given) {
        rp_json_key(&json, "jitter_cv");
        rp_json_double(&json, o->jitter);
        rp_json_key(&json, "replicas");
        rp_json_uint(&json, o->replicas);
    }
    rp_json_key(&json, "round_start");
    rp_json_string(&json,
                   row->config.round_start == RP_ROUND_START_ROTATE ? "rotate" : "free-first");
    rp_json_key(&json, "costs");
    rp_json_string(&json, row->costs->name);
    rp_json_key(&json, "hop_ms");
    rp_json_ms(&json, row->costs->hop_ps);
    rp_json_key(&json, "global_batch");
    rp_json_uint(&json, row->workload.global_batch);
    rp_json_key(&json, "accumulate");
    rp_json_uint(&json, row->workload.calls);
    rp_json_key(&json, "boundary_bytes");
    rp_json_uint(&json, row->config.boundary_bytes);
    rp_json_key(&json, "program_in");
    rp_json_string(&json, o->program_in);
    rp_json_key(&json, "torch_csv_in");
    rp_json_string(&json, o->torch_csv_in);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
    fclose(stream);
    return RP_OK;
}

/* Memory where it is known; of GPUs the fullest one. */
static uint32_t collect_memory(const rpsim_study *study, const rpsim_row *row,
                               rp_store_metric *metrics)
{
    const rpsim_memory *m = &row->memory;
    uint64_t peak = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; m->known && i < m->gpu_count; i++) {
        peak = m->peak_gpu_bytes[i] > peak ? m->peak_gpu_bytes[i] : peak;
    }
    if (m->known) {
        metrics[n++] = (rp_store_metric){.name = "peak_gpu_bytes", .integer = (int64_t)peak};
        metrics[n++] =
            (rp_store_metric){.name = "peak_host_bytes", .integer = (int64_t)m->peak_host_bytes};
        metrics[n++] = (rp_store_metric){.name = "fits", .integer = m->fits ? 1 : 0};
    }
    if (study->options->max_seqlen) {
        metrics[n++] = (rp_store_metric){.name = "max_seqlen", .integer = row->max_seqlen};
    }
    return n;
}

static uint32_t collect_metrics(const rpsim_row *row, rp_store_metric *metrics)
{
    const rp_metrics *m = &row->result.metrics;
    const struct {
        const char *name;
        int64_t ps;
    } times[] = {
        {"makespan_ps", m->makespan_ps},
        {"busy_ps", m->busy_ps},
        {"bubble_ps", m->bubble_ps},
        {"fill_ps", m->fill_ps},
        {"switch_ps", m->switch_ps},
        {"drain_ps", m->drain_ps},
        {"intra_ps", m->intra_ps},
        {"comm_total_ps", m->comm_total_ps},
        {"comm_exposed_ps", m->comm_exposed_ps},
        {"lower_bound_ps", m->lower_bound_ps},
    };
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        bool of_one = strncmp(times[i].name, "comm_", 5) == 0;
        bool one = row->config.iterations == 1 || !row->from_program;
        if (!row->hardware || !of_one || one) {
            metrics[n++] = (rp_store_metric){.name = times[i].name, .integer = times[i].ps};
        }
    }
    metrics[n++] =
        (rp_store_metric){.name = "iteration_ps", .is_real = true, .real = row->result.period_ps};
    metrics[n++] = (rp_store_metric){
        .name = "tokens_per_s", .is_real = true, .real = rpsim_row_tokens_per_s(row)};
    if (row->replica_ps != NULL) {
        const rpsim_quantiles *q = &row->quantiles;
        metrics[n++] =
            (rp_store_metric){.name = "iteration_p05_ps", .is_real = true, .real = q->p05};
        metrics[n++] =
            (rp_store_metric){.name = "iteration_median_ps", .is_real = true, .real = q->median};
        metrics[n++] =
            (rp_store_metric){.name = "iteration_p95_ps", .is_real = true, .real = q->p95};
    }
    metrics[n++] =
        (rp_store_metric){.name = "sim_wall_s", .is_real = true, .real = row->result.wall_s};
    return n;
}

static rp_status store_row(const rpsim_study *study, const rpsim_row *row, const char *command,
                           rp_store *store)
{
    char *json = NULL;
    RP_TRY(config_json(study, row, &json));
    rp_store_metric metrics[MOST_METRICS];
    rp_store_run run = {
        .program = "rpsim",
        .version = rp_version(),
        .command = command,
        .config_json = json,
        .seed = study->options->seed,
        .schedule = row->schedule_name,
        .model = row->model_name,
        .platform = row->platform_name,
        .costs = row->costs->name,
        .partition = row->partition_text,
        .fidelity = row->hardware ? "hardware" : "stage",
        .recompute = rp_recompute_text(row->config.recompute),
        .optimizer = row->config.asynchronous ? "async" : "sync",
        .gpus = row->config.gpus,
        .microbatches = row->workload.microbatches,
        .microbatch_size = (uint32_t)rpsim_row_microbatch_size(row),
        .seq_len = row->workload.seq_len,
        .iterations = row->config.iterations,
        .ops = row->ops,
        .program_hash = row->program_hash,
        .metrics = metrics,
    };
    run.metric_count = collect_metrics(row, metrics);
    run.metric_count += collect_memory(study, row, &metrics[run.metric_count]);
    return rp_store_add_run(store, &run, study->options->db_ops ? row->result.timeline : NULL);
}

static rp_status check_legacy(const rpsim_options *o, const rp_program *program,
                              const rp_torch_csv *csv)
{
    bool pairs = false;
    for (uint32_t i = 0; i < csv->row_begin[csv->rank_count]; i++) {
        pairs = pairs || csv->actions[i].overlaps_next;
    }
    if (!o->torch_legacy || !pairs) {
        return RP_OK;
    }
    rp_log_error("--torch-csv-dialect: the legacy dialect has no overlapped pairs, and %s has "
                 "some; valid are compute-only, lowered and lowered-waits",
                 program->schedule);
    return RP_USAGE;
}

static rp_status write_torch_csv(const rpsim_study *study, rp_output *output, rp_output *sidecar)
{
    const rpsim_options *o = study->options;
    const rp_program *program = study->rows[0].result.program;
    rp_torch_csv csv;
    bool multi_rank = o->multi_rank_stages;
    RP_TRY(rp_torch_csv_of_program(program, multi_rank, study->arena, &csv));
    if (csv.separate && o->torch_lowered) {
        rp_log_error("--torch-csv-dialect: PyTorch has no lowering for stages with the backward "
                     "apart, as %s has them; valid is compute-only",
                     program->schedule);
        return RP_USAGE;
    }
    RP_TRY(check_legacy(o, program, &csv));
    if (writes_sidecar(o)) {
        RP_TRY(rpsim_sidecar_write(program, &csv, study->arena, sidecar->stream));
        RP_TRY(rp_output_commit(sidecar));
    }
    if (o->torch_lowered) {
        rp_torch_csv computations = csv;
        RP_TRY(rp_torch_csv_lower(&computations, &o->torch_lowering, study->arena, &csv));
    }
    csv.legacy = o->torch_legacy;
    RP_TRY(rp_torch_csv_print(&csv, output->stream));
    return rp_output_commit(output);
}

rp_status rpsim_artefacts_write(const rpsim_study *study, const char *command,
                                rpsim_artefacts *artefacts)
{
    const rpsim_options *o = study->options;
    /* First: it may refuse the program, and then no other file is to appear. */
    if (o->torch_csv_out != NULL) {
        RP_TRY(write_torch_csv(study, &artefacts->torch_csv, &artefacts->sidecar));
    }
    if (o->chakra_out != NULL) {
        const rpsim_row *row = &study->rows[0];
        RP_TRY(rpsim_chakra_write(row->result.timeline, row->costs->hop_ps,
                                  row->config.boundary_bytes, study->arena, &artefacts->chakra));
    }
    if (o->trace_out != NULL) {
        RP_TRY(write_trace(study, &artefacts->trace));
    }
    if (o->program_out != NULL) {
        RP_TRY(rp_program_write(study->rows[0].result.program, artefacts->program.stream));
        RP_TRY(rp_output_commit(&artefacts->program));
    }
    if (o->gantt_out != NULL) {
        RP_TRY(write_gantt(study));
    }
    for (uint32_t i = 0; o->db != NULL && i < study->row_count; i++) {
        RP_TRY(store_row(study, &study->rows[i], command, artefacts->store));
    }
    return RP_OK;
}

void rpsim_artefacts_fini(rpsim_artefacts *artefacts)
{
    rp_output_discard(&artefacts->trace);
    rp_output_discard(&artefacts->program);
    rp_output_discard(&artefacts->torch_csv);
    rp_output_discard(&artefacts->sidecar);
    rpsim_chakra_discard(&artefacts->chakra);
    rp_store_close(artefacts->store);
    artefacts->store = NULL;
}
