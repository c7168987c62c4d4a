#include "common/base/units.h"
#include "common/cli/page.h"
#include "common/cli/table.h"
#include "sim/rpdiff/diff.h"

#include <inttypes.h>
#include <math.h>

#define PS_PER_MS 1e9

/* ---- for people ------------------------------------------------------------------------------ */

/* Columns of predicted and measured time and of the error; all tables have them. */
#define TIMES                                                                                      \
    RP_TABLE_RIGHT("predicted ms", 9), RP_TABLE_RIGHT("measured ms", 9), RP_TABLE_RIGHT("error", 9)

static rp_status add_time(const char *name, const rpsim_diff_time *time, rp_table *table)
{
    double pct = rpsim_diff_pct(time);
    RP_TRY(rp_table_print(table, "%s", name));
    RP_TRY(rp_table_number(table, time->predicted_ps / PS_PER_MS, 3));
    RP_TRY(rp_table_number(table, time->measured_ps / PS_PER_MS, 3));
    return rp_table_print(table, isnan(pct) ? "-" : "%+.1f%%", pct);
}

static rp_status print_times(const rpsim_diff *d, rp_arena *arena, const rp_page *page)
{
    static const rp_table_column columns[] = {RP_TABLE_LEFT("", 9), TIMES};
    const rp_program *p = d->measured->program;
    rp_table *table = NULL;
    char name[48];
    RP_TRY(rp_table_create(columns, 4, 1 + p->iteration_count + 2 * p->gpu_count, arena, &table));
    RP_TRY(add_time("all", &d->makespan, table));
    for (uint32_t i = 0; i < p->iteration_count; i++) {
        snprintf(name, sizeof name, "iteration %" PRIu32, i);
        RP_TRY(add_time(name, &d->iterations[i], table));
    }
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        snprintf(name, sizeof name, "GPU %" PRIu32 " computes", gpu);
        RP_TRY(add_time(name, &d->gpus[gpu].busy, table));
        snprintf(name, sizeof name, "GPU %" PRIu32 " ends", gpu);
        RP_TRY(add_time(name, &d->gpus[gpu].end, table));
    }
    rp_table_write(table, 0, page->columns, page->stream);
    return RP_OK;
}

static rp_status print_kinds(const rpsim_diff *d, rp_arena *arena, const rp_page *page)
{
    static const rp_table_column columns[] = {RP_TABLE_LEFT("ops", 9), TIMES,
                                              RP_TABLE_RIGHT("count", 8),
                                              RP_TABLE_RIGHT("mean |d| ms", 7)};
    rp_table *table = NULL;
    RP_TRY(rp_table_create(columns, 6, RP_OP_KIND_COUNT, arena, &table));
    for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        const rpsim_diff_kind *k = &d->kinds[kind];
        if (k->count > 0) {
            RP_TRY(add_time(rp_op_kind_text((rp_op_kind)kind), &k->sum, table));
            RP_TRY(rp_table_print(table, "%" PRIu32, k->count));
            RP_TRY(rp_table_number(table, k->difference_ps / k->count / PS_PER_MS, 3));
        }
    }
    fputc('\n', page->stream);
    rp_table_write(table, 0, page->columns, page->stream);
    return RP_OK;
}

static rp_status print_worst(const rpsim_diff *d, rp_arena *arena, const rp_page *page)
{
    static const rp_table_column columns[] = {RP_TABLE_LEFT("worst ops", 9), TIMES};
    const rp_program *p = d->measured->program;
    rp_table *table = NULL;
    if (d->worst_count == 0) {
        return RP_OK;
    }
    RP_TRY(rp_table_create(columns, 4, d->worst_count, arena, &table));
    for (uint32_t i = 0; i < d->worst_count; i++) {
        uint32_t op = d->worst[i];
        char name[RP_OP_NAME_SIZE];
        char line[RP_OP_NAME_SIZE + 32];
        const rp_queue *queue = &p->queues[rp_program_queue_of(p, op)];
        rp_op_name(&p->ops[op], name);
        snprintf(line, sizeof line, "%s, host", name);
        if (rp_queue_kind_on_gpu((rp_queue_kind)queue->kind)) {
            snprintf(line, sizeof line, "%s, GPU %u", name, queue->gpu);
        }
        const rpsim_diff_time time = {
            (double)(d->predicted->end_ps[op] - d->predicted->start_ps[op]),
            (double)(d->measured->end_ps[op] - d->measured->start_ps[op])};
        RP_TRY(add_time(line, &time, table));
    }
    fputc('\n', page->stream);
    rp_table_write(table, 0, page->columns, page->stream);
    return RP_OK;
}

rp_status rpsim_diff_print(const rpsim_diff *d, rp_arena *arena, FILE *stream)
{
    rp_page page;
    RP_TRY(rp_page_open(stream, arena, &page));
    rp_status status = print_times(d, arena, &page);
    status = status == RP_OK ? print_kinds(d, arena, &page) : status;
    status = status == RP_OK ? print_worst(d, arena, &page) : status;
    rp_page_close(&page);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_time(rp_json *json, const rpsim_diff_time *time)
{
    rp_json_member_double(json, "predicted_ms", time->predicted_ps / PS_PER_MS);
    rp_json_member_double(json, "measured_ms", time->measured_ps / PS_PER_MS);
    rp_json_member_double(json, "error_pct", rpsim_diff_pct(time));
}

static void write_kinds(const rpsim_diff *d, rp_json *json)
{
    rp_json_key(json, "kinds");
    rp_json_begin_array(json);
    for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        if (d->kinds[kind].count > 0) {
            rp_json_begin_object(json);
            rp_json_member_string(json, "kind", rp_op_kind_text((rp_op_kind)kind));
            rp_json_member_uint(json, "count", d->kinds[kind].count);
            write_time(json, &d->kinds[kind].sum);
            rp_json_member_double(json, "mean_difference_ms",
                                  d->kinds[kind].difference_ps / d->kinds[kind].count / PS_PER_MS);
            rp_json_end_object(json);
        }
    }
    rp_json_end_array(json);
}

static void write_gpus(const rpsim_diff *d, rp_json *json)
{
    rp_json_key(json, "gpus");
    rp_json_begin_array(json);
    for (uint32_t gpu = 0; gpu < d->measured->program->gpu_count; gpu++) {
        rp_json_begin_object(json);
        rp_json_member_uint(json, "gpu", gpu);
        rp_json_key(json, "busy");
        rp_json_begin_object(json);
        write_time(json, &d->gpus[gpu].busy);
        rp_json_end_object(json);
        rp_json_key(json, "end");
        rp_json_begin_object(json);
        write_time(json, &d->gpus[gpu].end);
        rp_json_end_object(json);
        rp_json_end_object(json);
    }
    rp_json_end_array(json);
}

static void write_worst(const rpsim_diff *d, rp_json *json)
{
    rp_json_key(json, "worst_ops");
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < d->worst_count; i++) {
        uint32_t op = d->worst[i];
        char name[RP_OP_NAME_SIZE];
        rp_op_name(&d->measured->program->ops[op], name);
        const rpsim_diff_time time = {
            (double)(d->predicted->end_ps[op] - d->predicted->start_ps[op]),
            (double)(d->measured->end_ps[op] - d->measured->start_ps[op])};
        rp_json_begin_object(json);
        rp_json_member_uint(json, "op", op);
        rp_json_member_string(json, "name", name);
        write_time(json, &time);
        rp_json_end_object(json);
    }
    rp_json_end_array(json);
}

void rpsim_diff_write_json(const rpsim_diff *d, FILE *stream)
{
    rp_json json;
    rp_json_begin_document(&json, stream, 2);
    rp_json_begin_object(&json);
    write_time(&json, &d->makespan);
    rp_json_key(&json, "iterations");
    rp_json_begin_array(&json);
    for (uint32_t i = 0; i < d->measured->program->iteration_count; i++) {
        rp_json_begin_object(&json);
        write_time(&json, &d->iterations[i]);
        rp_json_end_object(&json);
    }
    rp_json_end_array(&json);
    write_gpus(d, &json);
    write_kinds(d, &json);
    write_worst(d, &json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
}
