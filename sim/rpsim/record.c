/* Record of a run in a store. */
#include "sim/rpsim/record.h"

#include "common/base/log.h"
#include "common/base/version.h"
#include "common/formats/json.h"
#include "sim/rpsim/report/report.h"

#include <string.h>

#define MOST_METRICS 24

/* Every setting and default as a JSON object, in memory. */
static rp_status config_json(const rpsim_study *study, const rpsim_row *row, char **json_out)
{
    const char *changes = NULL;
    RP_TRY(rp_changes_text(&study->options->changes, study->arena, &changes));
    size_t size = 4096 + 2 * strlen(row->partition_text) + 4 * strlen(changes);
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
    if (o->slow_factor != 0) {
        rp_json_key(&json, "slow_gpu");
        rp_json_uint(&json, o->slow_gpu);
        rp_json_key(&json, "slow_factor");
        rp_json_double(&json, o->slow_factor);
    }
    if (o->piece_mb != 0) {
        rp_json_key(&json, "piece_mb");
        rp_json_uint(&json, o->piece_mb);
    }
    rp_json_key(&json, "round_start");
    rp_json_string(&json,
                   row->config.round_start == RP_ROUND_START_ROTATE ? "rotate" : "free-first");
    rp_json_key(&json, "costs");
    rp_json_string(&json, row->costs->name);
    rp_json_key(&json, "set");
    rp_json_string(&json, *changes != '\0' ? changes : NULL);
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
    }
    if (m->known && m->host_bytes != 0) {
        metrics[n++] =
            (rp_store_metric){.name = "host_memory_bytes", .integer = (int64_t)m->host_bytes};
    }
    if (m->known && (!m->fits || m->host_bytes != 0)) {
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
        bool comm = strncmp(times[i].name, "comm_", 5) == 0;
        bool bound = strcmp(times[i].name, "lower_bound_ps") == 0;
        if (rpsim_row_of_one_iteration(row) || !(bound || (comm && row->hardware))) {
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

rp_status rpsim_row_record(const rpsim_study *study, const rpsim_row *row, const char *command,
                           rp_store_run *run_out)
{
    char *json = NULL;
    rp_store_metric *metrics = NULL;
    RP_TRY(config_json(study, row, &json));
    RP_TRY(rp_arena_alloc(study->arena, MOST_METRICS, sizeof *metrics, &metrics));
    rp_store_run run = {
        .program = "rpsim",
        .version = rp_version(),
        .git_commit = rp_commit(),
        .duration_s = row->result.wall_s,
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
    *run_out = run;
    return RP_OK;
}
