#include "common/timeline/timeline_rows.h"

#include "common/base/log.h"
#include "common/formats/csv.h"

#include <inttypes.h>
#include <string.h>

bool rp_timeline_row_kinds(const char *queue, const char *kind, rp_timeline_row *row)
{
    uint32_t q = 0;
    rp_op_kind k = RP_OP_KIND_COUNT;
    while (q < RP_QUEUE_KIND_COUNT && strcmp(queue, rp_queue_kind_text((rp_queue_kind)q)) != 0) {
        q++;
    }
    bool known = rp_op_kind_parse(kind, &k);
    row->queue = (uint16_t)q;
    row->op.kind = (uint8_t)k;
    return q < RP_QUEUE_KIND_COUNT && known;
}

/* ---- a program of rows ----------------------------------------------------------------------- */

static bool same_queue(const rp_timeline_row *a, const rp_timeline_row *b)
{
    return a->queue == b->queue && a->gpu == b->gpu;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static rp_status make_program(const char *name, const rp_timeline_row *rows, uint32_t count,
                              rp_program *p)
{
    uint32_t queues = 0;
    for (uint32_t i = 0; i < count; i++) {
        queues += i == 0 || !same_queue(&rows[i], &rows[i - 1]) ? 1 : 0;
    }
    p->schedule = "unknown";
    RP_TRY(rp_arena_alloc(p->arena, (size_t)count + 1, sizeof *p->ops, &p->ops));
    RP_TRY(rp_arena_alloc(p->arena, queues, sizeof *p->queues, &p->queues));
    for (uint32_t i = 0; i < count; i++) {
        const rp_timeline_row *row = &rows[i];
        bool joins = i > 0 && same_queue(row, &rows[i - 1]);
        if (joins && row->start_ps < rows[i - 1].end_ps) {
            rp_log_error("%s: op %" PRIu32 " begins before the op before it in its queue has "
                         "ended; valid are ops of a queue one after the other",
                         name, i);
            return RP_INPUT;
        }
        if (!joins) {
            p->queues[p->queue_count++] =
                (rp_queue){.op_begin = i, .gpu = row->gpu, .kind = row->queue};
        }
        p->queues[p->queue_count - 1].op_end = i + 1;
        p->ops[i] = row->op;
        p->ops[i].wait_begin = 0;
        bool host = rp_op_kind_class((rp_op_kind)row->op.kind) == RP_CLASS_HOST;
        p->gpu_count = larger(p->gpu_count, row->gpu + 1u);
        p->microbatch_count = larger(p->microbatch_count, host ? 0 : row->op.microbatch + 1);
        p->iteration_count = larger(p->iteration_count, row->op.iteration + 1u);
        p->stage_count = larger(p->stage_count, row->op.stage + 1u);
    }
    p->op_count = count;
    return rp_arena_alloc(p->arena, p->stage_count, sizeof *p->stages, &p->stages);
}

rp_status rp_timeline_of_rows(const char *name, const rp_timeline_row *rows, uint32_t count,
                              rp_read_timeline *out)
{
    *out = (rp_read_timeline){0};
    if (count == 0) {
        rp_log_error("%s: no ops; valid are timelines with at least one", name);
        return RP_INPUT;
    }
    RP_TRY(rp_program_create(&out->program));
    RP_TRY(make_program(name, rows, count, out->program));
    RP_TRY(rp_timeline_create(out->program, &out->timeline));
    for (uint32_t i = 0; i < count; i++) {
        out->timeline->start_ps[i] = rows[i].start_ps;
        out->timeline->end_ps[i] = rows[i].end_ps;
    }
    return RP_OK;
}

void rp_read_timeline_fini(rp_read_timeline *read)
{
    rp_timeline_destroy(read->timeline);
    rp_program_destroy(read->program);
    *read = (rp_read_timeline){0};
}

/* ---- CSV ------------------------------------------------------------------------------------- */

typedef struct columns {
    uint32_t op, queue, gpu, kind, stage, microbatch, iteration, start, end;
} columns;

static rp_status find_columns(const rp_csv *table, columns *c)
{
    const struct {
        const char *name;
        uint32_t *column;
    } all[] = {{"op", &c->op},
               {"queue", &c->queue},
               {"gpu", &c->gpu},
               {"kind", &c->kind},
               {"stage", &c->stage},
               {"microbatch", &c->microbatch},
               {"iteration", &c->iteration},
               {"start_ps", &c->start},
               {"end_ps", &c->end}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        RP_TRY(rp_csv_column(table, all[i].name, all[i].column));
    }
    return RP_OK;
}

static rp_status read_row(const rp_csv *t, const columns *c, uint32_t i, rp_timeline_row *row)
{
    uint64_t op, gpu = 0, stage, microbatch, iteration, start, end;
    *row = (rp_timeline_row){0};
    if (!rp_timeline_row_kinds(rp_csv_cell(t, i, c->queue), rp_csv_cell(t, i, c->kind), row)) {
        rp_log_error_at(t->name, t->lines[i],
                        "row %" PRIu32 ": queue '%s' with op '%s'; valid are the names of program "
                        "text, such as compute and F",
                        i + 2, rp_csv_cell(t, i, c->queue), rp_csv_cell(t, i, c->kind));
        return RP_INPUT;
    }
    bool on_gpu = rp_queue_kind_on_gpu((rp_queue_kind)row->queue);
    if (!on_gpu && strcmp(rp_csv_cell(t, i, c->gpu), "host") != 0) {
        rp_log_error_at(t->name, t->lines[i],
                        "row %" PRIu32 ": gpu is '%s' of a queue of the host; valid is host", i + 2,
                        rp_csv_cell(t, i, c->gpu));
        return RP_INPUT;
    }
    RP_TRY(rp_csv_u64(t, i, c->op, i, i, &op));
    if (on_gpu) {
        RP_TRY(rp_csv_u64(t, i, c->gpu, 0, RP_MAX_GPUS - 1, &gpu));
    }
    RP_TRY(rp_csv_u64(t, i, c->stage, 0, 2 * RP_MAX_STAGES - 1, &stage));
    RP_TRY(rp_csv_u64(t, i, c->microbatch, 0, RP_MAX_MICROBATCHES - 1, &microbatch));
    RP_TRY(rp_csv_u64(t, i, c->iteration, 0, RP_MAX_ITERATIONS - 1, &iteration));
    RP_TRY(rp_csv_u64(t, i, c->start, 0, INT64_MAX, &start));
    RP_TRY(rp_csv_u64(t, i, c->end, start, INT64_MAX, &end));
    row->gpu = (uint16_t)gpu;
    row->op.stage = (uint16_t)stage;
    row->op.microbatch = (uint32_t)microbatch;
    row->op.iteration = (uint16_t)iteration;
    row->start_ps = (int64_t)start;
    row->end_ps = (int64_t)end;
    return RP_OK;
}

static rp_status read_table(const rp_csv *table, rp_arena *arena, rp_read_timeline *out)
{
    columns c;
    rp_timeline_row *rows = NULL;
    RP_TRY(find_columns(table, &c));
    RP_TRY(rp_arena_alloc(arena, (size_t)table->rows + 1, sizeof *rows, &rows));
    for (uint32_t i = 0; i < table->rows; i++) {
        RP_TRY(read_row(table, &c, i, &rows[i]));
    }
    return rp_timeline_of_rows(table->name, rows, table->rows, out);
}

rp_status rp_timeline_read_file(const char *path, rp_read_timeline *out)
{
    rp_arena *arena = NULL;
    rp_csv table;
    *out = (rp_read_timeline){0};
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_csv_read_file(path, arena, &table);
    if (status == RP_OK) {
        status = read_table(&table, arena, out);
    }
    rp_arena_destroy(arena);
    return status;
}
