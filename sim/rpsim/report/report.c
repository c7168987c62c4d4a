#include "sim/rpsim/report/report.h"

#include "common/base/log.h"

#include "common/base/units.h"
#include "common/formats/csv.h"
#include "sim/rpsim/report/table.h"
#include "sim/study/columns.h"
#include "sim/study/explain_report.h"
#include "sim/study/ranking.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- CSV ------------------------------------------------------------------------------------- */

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
        rpsim_field_write(study, row, field, &json);
    }
}

/* Writes CSV, without columns whose values are objects. */
static void write_csv(const rpsim_study *study, FILE *stream)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        rpsim_field fields[RPSIM_MAX_FIELDS];
        uint32_t count = rpsim_row_fields(study, &study->rows[i], fields);
        while (count > 0 && fields[count - 1].type == RPSIM_VALUE_OBJECT) {
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

/* ---- key=value: the artifact's log (formats.md 4) -------------------------------------------- */

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
        double gpu_time_ps = (double)m->makespan_ps * row->run.gpus;
        /* The artifact counts events by layers: a forward, a recompute and a backward for each
         * layer, and two for the head. */
        uint64_t events =
            (uint64_t)rp_resolved_microbatches(&row->run) * (3 * (uint64_t)row->run.layers + 2);
        fprintf(stream, "scheduler=%s\nevents=%" PRIu64 "\nmakespan=%.4f\n", row->schedule_name,
                events, rp_ps_to_ms(m->makespan_ps));
        write_kv_part("bubble", m->bubble_ps, gpu_time_ps, stream);
        write_kv_part("fill_bubble", m->fill_ps, gpu_time_ps, stream);
        write_kv_part("switch_bubble", m->switch_ps, gpu_time_ps, stream);
        write_kv_part("drain_bubble", m->drain_ps, gpu_time_ps, stream);
        write_kv_part("intra_bubble", m->intra_ps, gpu_time_ps, stream);
        fprintf(stream, "comm_time_per_hop=%.4f\ncomm_total_time=%.4f\n",
                rp_ps_to_ms(row->run.costs->hop_ps), rp_ps_to_ms(m->comm_total_ps));
        write_kv_part("comm_exposed", m->comm_exposed_ps, gpu_time_ps, stream);
        const char *picture = NULL;
        RP_TRY(rpsim_row_picture(row, study->arena, &picture));
        fprintf(stream, "output=%s\n", picture);
    }
    return RP_OK;
}

/* ---- for people ------------------------------------------------------------------------------ */

/* Writes tables, and a comparison for each model. The comparisons are simulated before the first
 * line is written, because a simulation may fail. */
static rp_status write_page(const rpsim_study *study, const rp_page *page)
{
    const rpsim_setup *o = study->setup;
    rpsim_comparison *comparisons = NULL;
    uint32_t count = 0;
    bool flips = o->all_schedules && !o->run.max_seqlen && !o->jitter_given;
    RP_TRY(rp_arena_alloc(study->arena, study->row_count, sizeof *comparisons, &comparisons));
    for (uint32_t i = 0; flips && i < study->row_count; i++) {
        if (i == 0 || !rpsim_row_same_group(&study->rows[i - 1], &study->rows[i])) {
            RP_TRY(rpsim_comparison_make(study, i, &comparisons[count++]));
        }
    }
    rp_progress_end();
    RP_TRY(rpsim_table_write(study, page));
    rpsim_refusals_write(study, page->stream);
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(rpsim_comparison_write(study, &comparisons[i], page->stream));
    }
    rpsim_explain_write(study, page->stream);
    return RP_OK;
}

static rp_status write_all(const rpsim_study *study, FILE *stream)
{
    rp_page page;
    RP_TRY(rp_page_open(stream, study->arena, &page));
    rp_status status = write_page(study, &page);
    rp_page_close(&page);
    return status;
}

rp_status rpsim_report_write(const rpsim_study *study, rpsim_format format, FILE *stream)
{
    rp_progress_end();
    switch (format) {
    case RPSIM_FORMAT_TABLE:
        return write_all(study, stream);
    case RPSIM_FORMAT_JSON:
        rpsim_study_write_json(study, stream);
        return RP_OK;
    case RPSIM_FORMAT_CSV:
        write_csv(study, stream);
        return RP_OK;
    case RPSIM_FORMAT_KV:
        return write_kv(study, stream);
    case RPSIM_FORMAT_MD:
        return rpsim_table_write_markdown(study, stream);
    }
    return rp_broken();
}

/* ---- --check --------------------------------------------------------------------------------- */

void rpsim_report_check(const rpsim_study *study, FILE *stream)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        fprintf(stream,
                "valid: %s, %s, recompute %s: %" PRIu64 " ops, program hash %016" PRIx64 "\n",
                row->schedule_name, row->model_name, rp_recompute_text(row->run.recompute),
                row->ops, row->program_hash);
    }
}
