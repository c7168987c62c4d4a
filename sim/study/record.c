/* Record of a run in a store. */
#include "sim/study/record.h"

#include "common/base/log.h"
#include "common/base/version.h"
#include "common/formats/json.h"
#include "sim/study/columns.h"

#include <string.h>

#define SETTINGS_SIZE 16384u /* most bytes of JSON, not counting texts */
#define MOST_ESCAPED 6u      /* most bytes of JSON for a byte of text */

/* Writes the types that are not the usual ones. */
static void write_types(const rpsim_row *row, rp_json *json)
{
    const rp_types *types = &row->run.decided.types;
    const struct {
        const char *key;
        const char *text;
        bool set;
    } all[] = {{"states", rp_states_text((rp_states)types->states), types->states != 0},
               {"master", rp_master_text((rp_master)types->master), types->master != 0},
               {"frozen", rp_frozen_text((rp_frozen)types->frozen), types->frozen != 0},
               {"compute", "fp8", row->run.costs->fp8_products}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].set) {
            rp_json_key(json, all[i].key);
            rp_json_string(json, all[i].text);
        }
    }
}

/* Writes every setting and default as a JSON object in memory. */
static rp_status config_json(const rpsim_study *study, const rpsim_row *row, char **json_out)
{
    const rpsim_setup *o = study->setup;
    const char *changes = NULL;
    RP_TRY(rpsim_setup_changes(o, study->arena, &changes));
    const char *const texts[] = {row->partition_text, row->partition_text,  changes,
                                 row->platform_name,  row->run.costs->name, row->model_name,
                                 o->program_in,       row->run.costs->name, o->torch_csv_in,
                                 row->schedule_name};
    size_t size = SETTINGS_SIZE;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        size += texts[i] != NULL ? MOST_ESCAPED * strlen(texts[i]) : 0;
    }
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
    rpsim_setup_write(o, &json);
    rp_json_key(&json, "round_start");
    rp_json_string(&json,
                   row->run.decided.round_start == RP_ROUND_START_ROTATE ? "rotate" : "free-first");
    rp_json_key(&json, "costs");
    rp_json_string(&json, row->run.costs->name);
    rp_json_key(&json, "set");
    rp_json_string(&json, changes);
    rp_json_key(&json, "hop_ms");
    rp_json_ms(&json, row->run.costs->hop_ps);
    rp_json_key(&json, "global_batch");
    rp_json_uint(&json, rpsim_row_global_batch(row));
    rp_json_key(&json, "accumulate");
    rp_json_uint(&json, row->run.decided.accumulate);
    rp_json_key(&json, "dtype");
    rp_json_string(&json, !row->run.stage ? rp_dtype_text(row->run.decided.dtype) : NULL);
    rp_json_key(&json, "accumulation");
    rp_json_string(&json, !row->run.stage
                              ? rp_accumulation_text(row->run.costs->arithmetic.accumulation)
                              : NULL);
    write_types(row, &json);
    rp_json_key(&json, "boundary_bytes");
    rp_json_uint(&json, row->run.boundary_bytes);
    rp_json_key(&json, "program_in");
    rp_json_string(&json, o->program_in);
    rp_json_key(&json, "torch_csv_in");
    rp_json_string(&json, o->torch_csv_in);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
    fclose(stream);
    return RP_OK;
}

/* Collects the values of the columns that the store keeps; a null value gives no metric. */
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
        .seed = study->setup->seed,
        .schedule = row->schedule_name,
        .model = row->model_name,
        .platform = row->platform_name,
        .costs = row->run.costs->name,
        .partition = row->partition_text,
        .fidelity = !row->run.stage ? "hardware" : "stage",
        .recompute = rp_recompute_text(row->run.recompute),
        .optimizer = row->run.decided.asynchronous ? "async" : "sync",
        .gpus = rpsim_row_gpus(row),
        .microbatches = row->run.decided.microbatches,
        .microbatch_size = (uint32_t)rpsim_row_microbatch_size(row),
        .seq_len = row->run.decided.seq_len,
        .iterations = row->run.decided.iterations,
        .ops = row->ops,
        .program_hash = row->program_hash,
        .metrics = metrics,
    };
    run.metric_count = collect_metrics(study, row, metrics);
    *run_out = run;
    return RP_OK;
}

static rp_status record_rows(rpsim_study *study, const char *command, rp_store_run **runs_out)
{
    RP_TRY(rpsim_study_run(study, NULL));
    RP_TRY(rp_arena_alloc(study->arena, study->row_count, sizeof **runs_out, runs_out));
    for (uint32_t i = 0; i < study->row_count; i++) {
        RP_TRY(rpsim_row_record(study, &study->rows[i], command, &(*runs_out)[i]));
    }
    return RP_OK;
}

rp_status rpsim_setup_record(const rpsim_setup *setup, const char *command, rp_arena *arena,
                             rp_store_run **runs_out, uint32_t *count_out)
{
    rpsim_study study;
    rp_status status = rpsim_study_prepare(setup, arena, &study, NULL);
    if (status == RP_OK) {
        status = record_rows(&study, command, runs_out);
    }
    *count_out = status == RP_OK ? study.row_count : 0;
    rpsim_study_fini(&study);
    return status;
}
