#include "sim/rpsim/report/report.h"

#include "common/base/log.h"

#include "common/base/units.h"
#include "common/formats/csv.h"
#include "common/formats/json.h"
#include "common/inputs/data.h"
#include "sim/rpsim/report/explain_report.h"
#include "sim/rpsim/report/ranking.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- JSON and CSV -----------------------------------------------------------------------------
 */

static void write_json_value(rp_json *json, const rpsim_field *field)
{
    switch (field->type) {
    case RPSIM_VALUE_NULL:
        rp_json_null(json);
        break;
    case RPSIM_VALUE_TEXT:
        rp_json_string(json, field->text);
        break;
    case RPSIM_VALUE_UINT:
        rp_json_uint(json, field->uint);
        break;
    case RPSIM_VALUE_MS:
        rp_json_ms(json, field->ps);
        break;
    case RPSIM_VALUE_REAL:
        rp_json_double(json, field->real);
        break;
    case RPSIM_VALUE_BOOL:
        rp_json_bool(json, field->uint != 0);
        break;
    case RPSIM_VALUE_UINTS:
        rp_json_begin_array(json);
        for (uint64_t i = 0; i < field->uint; i++) {
            rp_json_uint(json, field->uints[i]);
        }
        rp_json_end_array(json);
        break;
    }
}

static bool same_group(const rpsim_row *a, const rpsim_row *b)
{
    return strcmp(a->model_name, b->model_name) == 0 && a->costs == b->costs &&
           a->workload.seq_len == b->workload.seq_len;
}

/* Against every other row of the same model, by its index in the array. */
static void write_json_beats(const rpsim_study *study, const rpsim_row *row, rp_json *json)
{
    if (row->replica_ps == NULL) {
        return;
    }
    rp_json_key(json, "beats");
    rp_json_begin_object(json);
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *other = &study->rows[i];
        if (other != row && same_group(row, other)) {
            char index[16];
            snprintf(index, sizeof index, "%" PRIu32, i);
            rp_json_key(json, index);
            rp_json_double(json, rpsim_row_beats(study, row, other));
        }
    }
    rp_json_end_object(json);
}

static void write_json(const rpsim_study *study, FILE *stream)
{
    rp_json json;
    rp_json_begin_document(&json, stream, 1);
    rp_json_begin_array(&json);
    for (uint32_t i = 0; i < study->row_count; i++) {
        rpsim_field fields[RPSIM_MAX_FIELDS];
        uint32_t count = rpsim_row_fields(study, &study->rows[i], fields);
        rp_json_begin_object(&json);
        for (uint32_t k = 0; k < count; k++) {
            rp_json_key(&json, fields[k].key);
            write_json_value(&json, &fields[k]);
        }
        write_json_beats(study, &study->rows[i], &json);
        rpsim_explain_write_json(&study->rows[i], &json);
        rp_json_end_object(&json);
    }
    rp_json_end_array(&json);
    rp_json_end_document(&json);
}

static void write_csv_value(const rpsim_field *field, FILE *stream)
{
    char number[RP_JSON_NUMBER_SIZE];
    switch (field->type) {
    case RPSIM_VALUE_NULL:
        break;
    case RPSIM_VALUE_TEXT:
        rp_csv_write_cell(field->text, stream);
        break;
    case RPSIM_VALUE_UINT:
        fprintf(stream, "%" PRIu64, field->uint);
        break;
    case RPSIM_VALUE_MS:
        rp_json_print_ms(field->ps, number);
        fputs(number, stream);
        break;
    case RPSIM_VALUE_REAL:
        rp_json_print_double(field->real, number);
        fputs(number, stream);
        break;
    case RPSIM_VALUE_BOOL:
        fputs(field->uint != 0 ? "true" : "false", stream);
        break;
    case RPSIM_VALUE_UINTS:
        for (uint64_t i = 0; i < field->uint; i++) {
            fprintf(stream, "%s%" PRIu64, i == 0 ? "\"" : ",", field->uints[i]);
        }
        fputs(field->uint > 0 ? "\"" : "", stream);
        break;
    }
}

static void write_csv(const rpsim_study *study, FILE *stream)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        rpsim_field fields[RPSIM_MAX_FIELDS];
        uint32_t count = rpsim_row_fields(study, &study->rows[i], fields);
        for (uint32_t k = 0; i == 0 && k < count; k++) {
            fprintf(stream, "%s%s", k == 0 ? "" : ",", fields[k].key);
        }
        fputs(i == 0 ? "\n" : "", stream);
        for (uint32_t k = 0; k < count; k++) {
            fputs(k == 0 ? "" : ",", stream);
            write_csv_value(&fields[k], stream);
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

static void write_group_head(const rpsim_study *study, const rpsim_row *row, int width,
                             FILE *stream)
{
    const rpsim_workload *w = &row->workload;
    fprintf(stream, "%s%s%s: %u GPUs, ", row->model_name, row->platform_name != NULL ? " on " : "",
            row->platform_name != NULL ? row->platform_name : "", row->config.gpus);
    if (row->hardware) {
        fprintf(stream, "%u sequences of %u tokens per step in %u x %u microbatches, hardware\n",
                w->global_batch, w->seq_len, w->calls, w->microbatches);
    } else {
        fprintf(stream, "%u microbatches of %u x %u tokens, stage fidelity, hop %g ms\n",
                w->microbatches, row->costs->microbatch_size, w->seq_len,
                rp_ps_to_ms(row->costs->hop_ps));
    }
    if (rp_changes_any(&study->options->changes, false)) {
        fprintf(stream, "times of %s\n", row->costs->name);
    }
    fprintf(stream, "%s  %-*s %-9s %-5s %12s %8s = %6s + %6s + %6s + %6s %9s %7s %12s %12s %9s%s\n",
            study->options->all_schedules ? " rank" : "", width, "schedule", "recompute", "optim",
            "makespan ms", "bubble %", "fill", "switch", "drain", "intra", "hops ms", "bound %",
            "iteration ms", "paper est ms", "tokens/s", row->hardware ? "  peak GB  host GB" : "");
}

static void write_optional(double value, int width, int decimals, FILE *stream)
{
    if (isnan(value)) {
        fprintf(stream, " %*s", width, "-");
    } else {
        fprintf(stream, " %*.*f", width, decimals, value);
    }
}

static uint64_t peak_gpu_bytes(const rpsim_row *row)
{
    uint64_t peak = 0;
    for (uint32_t i = 0; i < row->memory.gpu_count; i++) {
        uint64_t bytes = row->memory.peak_gpu_bytes[i];
        peak = bytes > peak ? bytes : peak;
    }
    return peak;
}

static void write_rank(const rpsim_row *row, FILE *stream)
{
    if (row->rank != 0) {
        fprintf(stream, "%5u", row->rank);
    } else {
        fputs("    -", stream);
    }
}

static void write_table_row(const rpsim_row *row, bool best, int width, FILE *stream)
{
    const rp_metrics *m = &row->result.metrics;
    double percent =
        m->makespan_ps > 0 ? 100.0 / ((double)m->makespan_ps * (double)row->config.gpus) : 0.0;
    double overlapped = (double)(m->fill_ps + m->drain_ps) / row->config.gpus;
    fprintf(stream, "%c %-*s %-9s %-5s %12.3f %8.3f = %6.3f + %6.3f + %6.3f + %6.3f",
            best ? '*' : ' ', width, row->schedule_name, rp_recompute_text(row->config.recompute),
            row->config.asynchronous ? "async" : "sync", rp_ps_to_ms(m->makespan_ps),
            percent * (double)m->bubble_ps, percent * (double)m->fill_ps,
            percent * (double)m->switch_ps, percent * (double)m->drain_ps,
            percent * (double)m->intra_ps);
    bool one = rpsim_row_of_one_iteration(row);
    write_optional(one || !row->hardware ? rp_ps_to_ms(m->comm_exposed_ps) : NAN, 9, 3, stream);
    double gap = (double)m->makespan_ps / (double)m->lower_bound_ps - 1.0;
    write_optional(m->lower_bound_ps > 0 ? 100.0 * gap : NAN, 7, 2, stream);
    write_optional(row->result.period_ps / (double)RP_PS_PER_MS, 12, 3, stream);
    double paper_ps = (double)m->makespan_ps - overlapped;
    write_optional(one ? paper_ps / (double)RP_PS_PER_MS : NAN, 12, 3, stream);
    write_optional(rpsim_row_tokens_per_s(row), 9, 0, stream);
    if (row->hardware) {
        bool known = row->memory.known;
        write_optional(known ? 1e-9 * (double)peak_gpu_bytes(row) : NAN, 8, 2, stream);
        write_optional(known ? 1e-9 * (double)row->memory.peak_host_bytes : NAN, 8, 2, stream);
    }
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
                row->schedule->traits.overlapping_rounds                  ? ""
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
    fprintf(stream, "  jitter: CV %g on compute times, %u replicas, seed %" PRIu64, o->jitter,
            o->replicas, o->seed);
    if (o->slow_factor != 0) {
        fprintf(stream, "; compute of GPU %u takes %g times as long", o->slow_gpu, o->slow_factor);
    }
    fprintf(stream, "\n    # %-*s %-9s %-5s %12s %12s %12s", width, "schedule", "recompute",
            "optim", "p05 ms", "median ms", "p95 ms");
    for (uint32_t i = begin; end - begin > 1 && i < end; i++) {
        fprintf(stream, "  beats %2u", i - begin + 1);
    }
    fputc('\n', stream);
    for (uint32_t i = begin; i < end; i++) {
        const rpsim_row *row = &study->rows[i];
        fprintf(stream, "   %2u %-*s %-9s %-5s", i - begin + 1, width, row->schedule_name,
                rp_recompute_text(row->config.recompute),
                row->config.asynchronous ? "async" : "sync");
        write_optional(row->quantiles.p05 / (double)RP_PS_PER_MS, 12, 3, stream);
        write_optional(row->quantiles.median / (double)RP_PS_PER_MS, 12, 3, stream);
        write_optional(row->quantiles.p95 / (double)RP_PS_PER_MS, 12, 3, stream);
        for (uint32_t k = begin; end - begin > 1 && k < end; k++) {
            double share = k == i ? NAN : rpsim_row_beats(study, row, &study->rows[k]);
            write_optional(share, 9, 3, stream);
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
        while (end < study->row_count && same_group(first, &study->rows[end])) {
            end++;
        }
        fputs(begin != 0 ? "\n" : "", stream);
        write_group_head(study, first, width, stream);
        uint32_t best = find_best(study, begin, end);
        for (uint32_t i = begin; i < end; i++) {
            if (study->options->all_schedules) {
                write_rank(&study->rows[i], stream);
            }
            write_table_row(&study->rows[i], end - begin > 1 && i == best, width, stream);
        }
        for (uint32_t i = begin; i < end; i++) {
            write_tuned_note(&study->rows[i], stream);
            write_period_note(&study->rows[i], stream);
            write_memory_notes(study, &study->rows[i], stream);
        }
        write_host_note(first, stream);
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
        if (i == 0 || !same_group(&study->rows[i - 1], &study->rows[i])) {
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
