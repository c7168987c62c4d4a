/* Record of a run in a store. */
#include "sim/rpsim/record.h"

#include "common/base/log.h"
#include "common/base/version.h"
#include "common/formats/json.h"
#include "sim/rpsim/report/columns.h"

#include <string.h>

/* Every setting and default as a JSON object, in memory. */
static rp_status config_json(const rpsim_study *study, const rpsim_row *row, char **json_out)
{
    const rpsim_options *o = study->options;
    /* The names of platform and costs have the changes once more. */
    size_t size = 4096 + 2 * strlen(row->partition_text) +
                  4 * rp_options_settings_size(&rpsim_command_line, o);
    RP_TRY(rp_arena_alloc(study->arena, size, 1, json_out));
    FILE *stream = fmemopen(*json_out, size, "w");
    if (stream == NULL) {
        rp_log_error("out of memory for the run's configuration");
        return RP_NO_MEMORY;
    }
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
    rp_options_write_settings(&rpsim_command_line, o, false, &json);
    rp_json_key(&json, "round_start");
    rp_json_string(&json,
                   row->config.round_start == RP_ROUND_START_ROTATE ? "rotate" : "free-first");
    rp_json_key(&json, "costs");
    rp_json_string(&json, row->costs->name);
    rp_options_write_setting(&rpsim_command_line, o, "set", &json);
    rp_json_key(&json, "hop_ms");
    rp_json_ms(&json, row->costs->hop_ps);
    rp_json_key(&json, "global_batch");
    rp_json_uint(&json, rpsim_row_global_batch(row));
    rp_json_key(&json, "accumulate");
    rp_json_uint(&json, row->workload.calls);
    rp_json_key(&json, "dtype");
    rp_json_string(&json, row->hardware ? rp_dtype_text(row->workload.dtype) : NULL);
    rp_json_key(&json, "accumulation");
    rp_json_string(&json, row->hardware ? rp_accumulation_text(row->costs->arithmetic.accumulation)
                                        : NULL);
    rp_json_key(&json, "boundary_bytes");
    rp_json_uint(&json, row->config.boundary_bytes);
    rp_options_write_setting(&rpsim_command_line, o, "program-in", &json);
    rp_options_write_setting(&rpsim_command_line, o, "torch-csv-in", &json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
    fclose(stream);
    return RP_OK;
}

/* Values of the columns that the store keeps; what is null has no metric. */
static size_t collect_metrics(const rpsim_study *study, const rpsim_row *row,
                              rp_store_metric *metrics)
{
    size_t count = 0;
    for (uint32_t i = 0; i < rpsim_column_count; i++) {
        const rpsim_column *column = &rpsim_columns[i];
        rpsim_field field = column->value(study, row);
        bool present = field.type != RPSIM_VALUE_NULL && field.type != RPSIM_VALUE_ABSENT;
        if (column->metric != NULL && present) {
            metrics[count++] = (rp_store_metric){
                .name = column->metric,
                .is_real = field.type == RPSIM_VALUE_REAL || field.type == RPSIM_VALUE_REAL_MS,
                .integer = field.type == RPSIM_VALUE_MS ? field.ps : (int64_t)field.uint,
                .real = field.real,
            };
        }
    }
    return count;
}

rp_status rpsim_row_record(const rpsim_study *study, const rpsim_row *row, const char *command,
                           rp_store_run *run_out)
{
    char *json = NULL;
    rp_store_metric *metrics = NULL;
    RP_TRY(config_json(study, row, &json));
    RP_TRY(rp_arena_alloc(study->arena, rpsim_column_count, sizeof *metrics, &metrics));
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
        .gpus = rpsim_row_gpus(row),
        .microbatches = row->workload.microbatches,
        .microbatch_size = (uint32_t)rpsim_row_microbatch_size(row),
        .seq_len = row->workload.seq_len,
        .iterations = row->config.iterations,
        .ops = row->ops,
        .program_hash = row->program_hash,
        .metrics = metrics,
    };
    run.metric_count = collect_metrics(study, row, metrics);
    *run_out = run;
    return RP_OK;
}
