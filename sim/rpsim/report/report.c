#include "sim/rpsim/report/report.h"

#include "common/base/log.h"

#include "common/base/units.h"
#include "common/formats/csv.h"
#include "common/inputs/data.h"
#include "sim/rpsim/report/columns.h"
#include "sim/rpsim/report/decided.h"
#include "sim/rpsim/report/explain_report.h"
#include "sim/rpsim/report/ranking.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- JSON and CSV -----------------------------------------------------------------------------
 */

static void write_json_value(const rpsim_study *study, const rpsim_row *row,
                             const rpsim_field *field, rp_json *json)
{
    switch (field->type) {
    case RPSIM_VALUE_NULL:
    case RPSIM_VALUE_ABSENT:
        rp_json_null(json);
        break;
    case RPSIM_VALUE_TEXT:
        rp_json_string(json, field->text);
        break;
    case RPSIM_VALUE_UINT:
        rp_json_uint(json, field->uint);
        break;
    case RPSIM_VALUE_BOOL:
        rp_json_bool(json, field->uint != 0);
        break;
    case RPSIM_VALUE_UINTS:
        rp_json_begin_array(json);
        for (uint32_t i = 0; i < field->count; i++) {
            rp_json_uint(json, field->uints[i]);
        }
        rp_json_end_array(json);
        break;
    case RPSIM_VALUE_MS:
        rp_json_ms(json, field->ps);
        break;
    case RPSIM_VALUE_REAL:
    case RPSIM_VALUE_REAL_MS:
        rp_json_double(json, rpsim_field_number(field));
        break;
    case RPSIM_VALUE_OBJECT:
        field->object(study, row, json);
        break;
    }
}

void rpsim_row_write_members(const rpsim_study *study, const rpsim_row *row, rp_json *json)
{
    rpsim_field fields[RPSIM_MAX_FIELDS];
    uint32_t count = rpsim_row_fields(study, row, fields);
    for (uint32_t k = 0; k < count; k++) {
        rp_json_key(json, fields[k].key);
        write_json_value(study, row, &fields[k], json);
    }
}

static void write_json(const rpsim_study *study, FILE *stream)
{
    rp_json json;
    rp_json_begin_document(&json, stream, 1);
    rp_json_begin_array(&json);
    for (uint32_t i = 0; i < study->row_count; i++) {
        rp_json_begin_object(&json);
        rpsim_row_write_members(study, &study->rows[i], &json);
        rp_json_end_object(&json);
    }
    rp_json_end_array(&json);
    rp_json_end_document(&json);
}

static void write_csv_value(const rpsim_study *study, const rpsim_row *row,
                            const rpsim_field *field, FILE *stream)
{
    rp_json json;
    if (field->type == RPSIM_VALUE_TEXT) {
        rp_csv_write_cell(field->text, stream);
    } else if (field->type == RPSIM_VALUE_UINTS) {
        for (uint32_t i = 0; i < field->count; i++) {
            fprintf(stream, "%s%" PRIu64, i == 0 ? "\"" : ",", field->uints[i]);
        }
        fputs(field->count > 0 ? "\"" : "", stream);
    } else if (!isnan(rpsim_field_number(field))) {
        rp_json_begin_document(&json, stream, 0);
        write_json_value(study, row, field, &json);
    }
}

/* Objects have no place here. */
static void write_csv(const rpsim_study *study, FILE *stream)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        rpsim_field fields[RPSIM_MAX_FIELDS];
        uint32_t count = rpsim_row_fields(study, &study->rows[i], fields);
        while (fields[count - 1].type == RPSIM_VALUE_OBJECT) {
            count--;
        }
        for (uint32_t k = 0; i == 0 && k < count; k++) {
            fprintf(stream, "%s%s", k == 0 ? "" : ",", fields[k].key);
        }
        fputs(i == 0 ? "\n" : "", stream);
        for (uint32_t k = 0; k < count; k++) {
            fputs(k == 0 ? "" : ",", stream);
            write_csv_value(study, &study->rows[i], &fields[k], stream);
        }
        fputc('\n', stream);
    }
}

/* ---- key=value: the artifact's log (formats.md 4) -------------------------------------------
 */

static void write_kv_part(const char *name, int64_t ps, double gpu_time_ps, FILE *stream)
{
    fprintf(stream, "%s_time=%.4f\n%s_ratio=%.4f%%\n", name, rp_ps_to_ms(ps), name,
            gpu_time_ps > 0 ? 100.0 * (double)ps / gpu_time_ps : 0.0);
}

rp_status rpsim_row_picture(const rpsim_row *row, rp_arena *arena, const char **name_out)
{
    const char *dash = strrchr(row->model_name, '-');
    const char *size = dash != NULL ? dash + 1 : row->model_name;
    return rp_arena_print(arena, name_out, "%s_%s.svg", size, row->schedule_name);
}

static rp_status write_kv(const rpsim_study *study, FILE *stream)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        const rp_metrics *m = &row->result.metrics;
        double gpu_time_ps = (double)m->makespan_ps * row->config.gpus;
        /* The artifact counts layers: a forward, a recompute and a backward each, and the head's
         * two. */
        uint64_t events =
            (uint64_t)row->config.microbatches * (3 * (uint64_t)row->config.layers + 2);
        fprintf(stream, "scheduler=%s\nevents=%" PRIu64 "\nmakespan=%.4f\n", row->schedule_name,
                events, rp_ps_to_ms(m->makespan_ps));
        write_kv_part("bubble", m->bubble_ps, gpu_time_ps, stream);
        write_kv_part("fill_bubble", m->fill_ps, gpu_time_ps, stream);
        write_kv_part("switch_bubble", m->switch_ps, gpu_time_ps, stream);
        write_kv_part("drain_bubble", m->drain_ps, gpu_time_ps, stream);
        write_kv_part("intra_bubble", m->intra_ps, gpu_time_ps, stream);
        fprintf(stream, "comm_time_per_hop=%.4f\ncomm_total_time=%.4f\n",
                rp_ps_to_ms(row->costs->hop_ps), rp_ps_to_ms(m->comm_total_ps));
        write_kv_part("comm_exposed", m->comm_exposed_ps, gpu_time_ps, stream);
        const char *picture = NULL;
        RP_TRY(rpsim_row_picture(row, study->arena, &picture));
        fprintf(stream, "output=%s\n", picture);
    }
    return RP_OK;
}

/* ---- table ------------------------------------------------------------------------------------
 */

/* Width of a column, < 0: flush left; `names` is that of the longest schedule's name. */
static int width_of(const rpsim_column *column, int names)
{
    return column->width != 0 ? column->width : -names;
}

static const char *separator_of(const rpsim_column *column)
{
    return column->before != NULL ? column->before : " ";
}

/* Headings of the columns of a table, each behind its separator. */
static void write_headings(unsigned table, int names, FILE *stream)
{
    for (uint32_t i = 0; i < rpsim_column_count; i++) {
        const rpsim_column *column = &rpsim_columns[i];
        if ((column->tables & table) != 0) {
            fprintf(stream, "%s%*s", separator_of(column), width_of(column, names),
                    column->heading);
        }
    }
}

/* "-" for NaN. */
static void write_number(double value, int width, int decimals, FILE *stream)
{
    if (isnan(value)) {
        fprintf(stream, "%*s", width, "-");
    } else {
        fprintf(stream, "%*.*f", width, decimals, value);
    }
}

/* A row's values below the headings. */
static void write_cells(const rpsim_study *study, const rpsim_row *row, unsigned table, int names,
                        FILE *stream)
{
    for (uint32_t i = 0; i < rpsim_column_count; i++) {
        const rpsim_column *column = &rpsim_columns[i];
        if ((column->tables & table) == 0) {
            continue;
        }
        int width = width_of(column, names);
        rpsim_field field = column->value(study, row);
        fputs(separator_of(column), stream);
        if (field.type == RPSIM_VALUE_TEXT) {
            fprintf(stream, "%*s", width, field.text);
        } else if (field.type != RPSIM_VALUE_NULL && column->shown != NULL) {
            write_number(column->shown(&field, row), width, column->decimals, stream);
        } else {
            write_number(rpsim_field_number(&field), width, column->decimals, stream);
        }
    }
}

/* Tables that a run's columns are of. */
static unsigned tables_of(const rpsim_study *study, const rpsim_row *row)
{
    unsigned intervals = study->options->intervals != 0 ? RPSIM_TABLE_INTERVALS : 0;
    return row->hardware ? RPSIM_TABLE_HARDWARE | intervals : RPSIM_TABLE_STAGE;
}

static void write_group_head(const rpsim_study *study, const rpsim_row *row, int width,
                             FILE *stream)
{
    const rpsim_workload *w = &row->workload;
    fprintf(stream, "%s%s%s: %u GPUs, ", row->model_name, row->platform_name != NULL ? " on " : "",
            row->platform_name != NULL ? row->platform_name : "", row->config.gpus);
    if (row->hardware) {
        fprintf(stream,
                "%u sequences of %u tokens per step in %u x %u microbatches, hardware, %s\n",
                w->global_batch, w->seq_len, w->calls, w->microbatches, rp_dtype_text(w->dtype));
    } else {
        fprintf(stream, "%u microbatches of %u x %u tokens, stage fidelity, hop %g ms\n",
                w->microbatches, row->costs->microbatch_size, w->seq_len,
                rp_ps_to_ms(row->costs->hop_ps));
    }
    if (rp_changes_any(&study->options->changes, false)) {
        fprintf(stream, "times of %s\n", row->costs->name);
    }
    write_headings(study->options->all_schedules ? RPSIM_TABLE_RANK : 0, width, stream);
    fputc(' ', stream); /* the mark of the best row */
    write_headings(tables_of(study, row), width, stream);
    fputc('\n', stream);
}

static void write_table_row(const rpsim_study *study, const rpsim_row *row, bool best, int width,
                            FILE *stream)
{
    write_cells(study, row, study->options->all_schedules ? RPSIM_TABLE_RANK : 0, width, stream);
    fputc(best ? '*' : ' ', stream);
    write_cells(study, row, tables_of(study, row), width, stream);
    fputc('\n', stream);
}

static void write_tuned_note(const rpsim_row *row, FILE *stream)
{
    if (row->tune_evaluations == 0) {
        return;
    }
    fprintf(stream, "  %s tuned: %s", row->schedule_name, row->partition_text);
    if (row->schedule->rounds && row->config.round < row->config.microbatches) {
        fprintf(stream, " in rounds of %" PRIu32 "%s", row->config.round,
                row->schedule->traits.overlapping_rounds           ? ""
                : row->config.round_start == RP_ROUND_START_ROTATE ? ", rotating"
                                                                   : ", free first");
    }
    fprintf(stream, "; %s of %" PRIu64 " simulations\n",
            row->tune_exact ? "optimal, the best" : "the best", row->tune_evaluations);
}

/* A period of less than a steady state; at stage fidelity synchronous iterations are all equal. */
static void write_period_note(const rpsim_row *row, FILE *stream)
{
    uint32_t iterations = row->config.iterations;
    bool alike = !row->config.asynchronous && !row->hardware;
    if (alike || iterations >= RP_STEADY_ITERATIONS) {
        return;
    }
    if (row->config.asynchronous && iterations == 1) {
        fprintf(stream,
                "  %s: one asynchronous iteration has no period; --iterations 2 gives an "
                "estimate, %u a steady state\n",
                row->schedule_name, RP_STEADY_ITERATIONS);
    } else {
        fprintf(stream,
                "  %s: iteration and tokens/s are an estimate from %u iteration%s; "
                "--iterations %u gives a steady state\n",
                row->schedule_name, iterations, iterations == 1 ? "" : "s", RP_STEADY_ITERATIONS);
    }
}

/* Notes on memory that a row of the table has no place for. */
static void write_memory_notes(const rpsim_study *study, const rpsim_row *row, FILE *stream)
{
    if (study->options->max_seqlen) {
        fprintf(stream, "  %s: longest sequence that fits: %u tokens\n", row->schedule_name,
                row->max_seqlen);
    }
    if (row->memory.known && !row->memory.fits) {
        bool all = study->options->all_schedules;
        fprintf(stream, "  %s%s%s%s does not fit: %s\n", row->schedule_name,
                all ? ", recompute " : "", all ? rp_recompute_text(row->config.recompute) : "",
                all ? "," : "", row->memory.oom_reason);
    }
}

/* Weights in host memory: the run fits only where there is enough of it. With all schedules the
 * column has to do. */
static void write_host_need(const rpsim_study *study, const rpsim_row *row, FILE *stream)
{
    const rpsim_memory *m = &row->memory;
    bool fits = m->known && m->fits && m->host_bytes != 0 && m->host_fixed_bytes != 0;
    if (fits && !study->options->all_schedules) {
        fprintf(stream, "  %s fits only where the host has %.1f GB; here it has %.1f GB\n",
                row->schedule_name, 1e-9 * (double)m->peak_host_bytes,
                1e-9 * (double)m->host_bytes);
    }
}

/* All rows of a group run on the same servers. */
static void write_host_note(const rpsim_row *row, FILE *stream)
{
    if (!row->memory.known) {
        return;
    }
    if (row->memory.host_bytes == 0) {
        fprintf(stream,
                "  %s does not say its host memory (host_memory_gb): nobody knows whether what "
                "lies there fits\n",
                row->platform_name);
        return;
    }
    fprintf(stream, "  host memory: %.1f GB", 1e-9 * (double)row->memory.host_bytes);
    if (row->memory.host_servers > 1) {
        fprintf(stream, " of %u servers together", row->memory.host_servers);
    }
    fputc('\n', stream);
}

/* The row of the highest rate among those that may fit; `end` where none may, or no rate is
 * known. */
static uint32_t find_best(const rpsim_study *study, uint32_t begin, uint32_t end)
{
    uint32_t best = end;
    for (uint32_t i = begin; i < end; i++) {
        const rpsim_row *row = &study->rows[i];
        bool may_fit = !row->memory.known || row->memory.fits;
        double tokens = rpsim_row_tokens_per_s(row);
        if (may_fit && !isnan(tokens) &&
            (best == end || tokens > rpsim_row_tokens_per_s(&study->rows[best]))) {
            best = i;
        }
    }
    return best;
}

/* Percentiles and, for several rows, who beats whom. */
static void write_table_noise(const rpsim_study *study, uint32_t begin, uint32_t end, int width,
                              FILE *stream)
{
    const rpsim_options *o = study->options;
    fprintf(
        stream,
        "  noise of single runs, not accuracy: CV %g on compute times, %u replicas, seed %" PRIu64,
        o->jitter, o->replicas, o->seed);
    if (o->slow_factor != 0) {
        fprintf(stream, "; compute of GPU %u takes %g times as long", o->slow_gpu, o->slow_factor);
    }
    fputs("\n    #", stream);
    write_headings(RPSIM_TABLE_NOISE, width, stream);
    for (uint32_t i = begin; end - begin > 1 && i < end; i++) {
        fprintf(stream, "  beats %2u", i - begin + 1);
    }
    fputc('\n', stream);
    for (uint32_t i = begin; i < end; i++) {
        const rpsim_row *row = &study->rows[i];
        fprintf(stream, "   %2u", i - begin + 1);
        write_cells(study, row, RPSIM_TABLE_NOISE, width, stream);
        for (uint32_t k = begin; end - begin > 1 && k < end; k++) {
            write_number(k == i ? NAN : rpsim_row_beats(study, row, &study->rows[k]), 10, 3,
                         stream);
        }
        fputc('\n', stream);
    }
}

static void write_table(const rpsim_study *study, FILE *stream)
{
    int width = 8;
    for (uint32_t i = 0; i < study->row_count; i++) {
        int length = (int)strlen(study->rows[i].schedule_name);
        width = length > width ? length : width;
    }
    for (uint32_t begin = 0; begin < study->row_count;) {
        const rpsim_row *first = &study->rows[begin];
        uint32_t end = begin;
        while (end < study->row_count && rpsim_row_same_group(first, &study->rows[end])) {
            end++;
        }
        fputs(begin != 0 ? "\n" : "", stream);
        write_group_head(study, first, width, stream);
        uint32_t best = find_best(study, begin, end);
        for (uint32_t i = begin; i < end; i++) {
            write_table_row(study, &study->rows[i], end - begin > 1 && i == best, width, stream);
        }
        for (uint32_t i = begin; i < end; i++) {
            write_tuned_note(&study->rows[i], stream);
            write_period_note(&study->rows[i], stream);
            write_memory_notes(study, &study->rows[i], stream);
            write_host_need(study, &study->rows[i], stream);
        }
        write_host_note(first, stream);
        rpsim_intervals_write(study, begin, end, best, stream);
        if (first->replica_ps != NULL) {
            write_table_noise(study, begin, end, width, stream);
        }
        begin = end;
    }
    bool one = study->row_count == 0 || rpsim_row_of_one_iteration(&study->rows[0]);
    fprintf(stream,
            "\nmakespan, bubble and its parts: %s; bubble parts in %% of GPU time. hops: time "
            "by which hops delay ops; at hardware fidelity GPU time between ops spent waiting for "
            "transfers. bound: distance to\nthe largest lower bound, mostly "
            "that of the same placement (--explain has all). iteration: steady-state period, from "
            "which tokens/s follow. paper "
            "est: makespan - (fill + drain) / GPUs. "
            "* most tokens/s, of what fits.\n",
            one ? "one iteration" : "all iterations of the program");
    if (study->options->hardware) {
        fputs(
            "Hardware fidelity: RoundPipe, Mobius and the offloading systems keep weights and "
            "optimizer in host memory, the other\nschedules on the GPUs. Boundary tensors go from "
            "GPU to GPU where the platform has peers, else through the host.\npeak GB: the fullest "
            "GPU, context included; host GB: of all servers; - where memory is not modelled.\n",
            stream);
    }
}

/* One comparison per model. They are simulated before the first line is written: it may fail. */
static rp_status write_all(const rpsim_study *study, FILE *stream)
{
    const rpsim_options *o = study->options;
    rpsim_comparison *comparisons = NULL;
    uint32_t count = 0;
    bool flips = o->all_schedules && !o->max_seqlen && !o->jitter_given;
    RP_TRY(rp_arena_alloc(study->arena, study->row_count, sizeof *comparisons, &comparisons));
    for (uint32_t i = 0; flips && i < study->row_count; i++) {
        if (i == 0 || !rpsim_row_same_group(&study->rows[i - 1], &study->rows[i])) {
            RP_TRY(rpsim_comparison_make(study, i, &comparisons[count++]));
        }
    }
    write_table(study, stream);
    rpsim_refusals_write(study, stream);
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(rpsim_comparison_write(study, &comparisons[i], stream));
    }
    rpsim_explain_write(study, stream);
    return RP_OK;
}

rp_status rpsim_report_write(const rpsim_study *study, FILE *stream)
{
    switch (study->options->format) {
    case RPSIM_FORMAT_TABLE:
        return write_all(study, stream);
    case RPSIM_FORMAT_JSON:
        write_json(study, stream);
        return RP_OK;
    case RPSIM_FORMAT_CSV:
        write_csv(study, stream);
        return RP_OK;
    case RPSIM_FORMAT_KV:
        return write_kv(study, stream);
    }
    return rp_broken();
}

/* ---- --list and --check -----------------------------------------------------------------------
 */

rp_status rpsim_report_list(const char *kind, rp_arena *arena, FILE *stream)
{
    if (strcmp(kind, "schedules") == 0) {
        for (uint32_t i = 0; i < rp_schedule_count; i++) {
            const rp_schedule_type *schedule = rp_schedules[i];
            fprintf(stream, "%-18s %s [%s]\n", schedule->name, schedule->summary, schedule->source);
        }
        return RP_OK;
    }
    const char **names = NULL;
    uint32_t count = 0;
    RP_TRY(rp_data_list(kind, arena, &names, &count));
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stream, "%s\n", names[i]);
    }
    return RP_OK;
}

void rpsim_report_check(const rpsim_study *study, FILE *stream)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        fprintf(stream, "valid: %s, %s, recompute %s: %u ops, program hash %016" PRIx64 "\n",
                row->schedule_name, row->model_name, rp_recompute_text(row->config.recompute),
                row->ops, row->program_hash);
    }
}
