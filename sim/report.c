#include "sim/report.h"

#include "common/units.h"

#include "common/json.h"

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
    }
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
        rp_json_end_object(&json);
    }
    rp_json_end_array(&json);
    rp_json_end_document(&json);
}

/* RFC 4180: quotes where needed, quotes doubled. */
static void write_csv_text(const char *text, FILE *stream)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stream);
        return;
    }
    fputc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            fputc('"', stream);
        }
        fputc(*text, stream);
    }
    fputc('"', stream);
}

static void write_csv_value(const rpsim_field *field, FILE *stream)
{
    char number[RP_JSON_NUMBER_SIZE];
    switch (field->type) {
    case RPSIM_VALUE_NULL:
        break;
    case RPSIM_VALUE_TEXT:
        write_csv_text(field->text, stream);
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

/* ---- key=value: the artifact's log (formats.md 4.4) -------------------------------------------
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

static bool same_group(const rpsim_row *a, const rpsim_row *b)
{
    return strcmp(a->model_name, b->model_name) == 0 && a->costs == b->costs;
}

static void write_group_head(const rpsim_row *row, int width, FILE *stream)
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
    fprintf(stream, "  %-*s %-9s %-5s %12s %8s = %6s + %6s + %6s + %6s %9s %7s %12s %12s %9s\n",
            width, "schedule", "recompute", "optim", "makespan ms", "bubble %", "fill", "switch",
            "drain", "intra", "hops ms", "bound %", "iteration ms", "paper est ms", "tokens/s");
}

static void write_optional(double value, int width, int decimals, FILE *stream)
{
    if (isnan(value)) {
        fprintf(stream, " %*s", width, "-");
    } else {
        fprintf(stream, " %*.*f", width, decimals, value);
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
    write_optional(row->hardware ? NAN : rp_ps_to_ms(m->comm_exposed_ps), 9, 3, stream);
    double gap = (double)m->makespan_ps / (double)m->lower_bound_ps - 1.0;
    write_optional(m->lower_bound_ps > 0 ? 100.0 * gap : NAN, 7, 2, stream);
    write_optional(row->result.period_ps / (double)RP_PS_PER_MS, 12, 3, stream);
    write_optional(((double)m->makespan_ps - overlapped) / (double)RP_PS_PER_MS, 12, 3, stream);
    fprintf(stream, " %9.0f\n", rpsim_row_tokens_per_s(row));
}

static uint32_t find_best(const rpsim_study *study, uint32_t begin, uint32_t end)
{
    uint32_t best = begin;
    for (uint32_t i = begin + 1; i < end; i++) {
        if (rpsim_row_tokens_per_s(&study->rows[i]) > rpsim_row_tokens_per_s(&study->rows[best])) {
            best = i;
        }
    }
    return best;
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
        write_group_head(first, width, stream);
        uint32_t best = find_best(study, begin, end);
        for (uint32_t i = begin; i < end; i++) {
            write_table_row(&study->rows[i], end - begin > 1 && i == best, width, stream);
        }
        begin = end;
    }
    fputs("\nmakespan, bubble and its parts: one iteration; bubble parts in % of GPU time. hops: "
          "time "
          "by which hops delay ops. bound: distance to\nthe lower bound with the same edges and "
          "placement. iteration: steady-state period. paper est: makespan - (fill + drain) / GPUs. "
          "* most tokens/s.\n",
          stream);
    if (study->options->hardware) {
        fputs("Hardware fidelity so far: RoundPipe's weights and optimizer are in host memory; the "
              "other "
              "schedules' weights are resident and their\noptimizer takes no time. Memory is not "
              "checked, peers are reached through the host.\n",
              stream);
    }
}

rp_status rpsim_report_write(const rpsim_study *study, FILE *stream)
{
    switch (study->options->format) {
    case RPSIM_FORMAT_TABLE:
        write_table(study, stream);
        return RP_OK;
    case RPSIM_FORMAT_JSON:
        write_json(study, stream);
        return RP_OK;
    case RPSIM_FORMAT_CSV:
        write_csv(study, stream);
        return RP_OK;
    case RPSIM_FORMAT_KV:
        return write_kv(study, stream);
    }
    return RP_BROKEN;
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
