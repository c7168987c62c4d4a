#include "common/timeline/timeline_csv.h"

#include "common/base/log.h"
#include "common/formats/csv.h"

#include <inttypes.h>
#include <string.h>

typedef enum column {
    COLUMN_OP,
    COLUMN_QUEUE,
    COLUMN_GPU,
    COLUMN_KIND,
    COLUMN_STAGE,
    COLUMN_MICROBATCH,
    COLUMN_ITERATION,
    COLUMN_START,
    COLUMN_END,
    COLUMN_COUNT
} column;

static const char *const column_names[COLUMN_COUNT] = {
    "op", "queue", "gpu", "kind", "stage", "microbatch", "iteration", "start_ps", "end_ps",
};

#define CELL_SIZE 32u /* bytes for the longest number and the longest name */

typedef struct row {
    char cells[COLUMN_COUNT][CELL_SIZE];
} row;

/* Fills the cells that follow from the program, for writing and for checking. */
static void fill_row(const rp_program *program, const rp_queue *queue, uint32_t index, row *out)
{
    const rp_op *op = &program->ops[index];
    snprintf(out->cells[COLUMN_OP], CELL_SIZE, "%" PRIu32, index);
    snprintf(out->cells[COLUMN_QUEUE], CELL_SIZE, "%s", rp_queue_kind_text(queue->kind));
    snprintf(out->cells[COLUMN_GPU], CELL_SIZE, "host");
    if (rp_queue_kind_on_gpu(queue->kind)) {
        snprintf(out->cells[COLUMN_GPU], CELL_SIZE, "%u", queue->gpu);
    }
    snprintf(out->cells[COLUMN_KIND], CELL_SIZE, "%s", rp_op_kind_text(op->kind));
    snprintf(out->cells[COLUMN_STAGE], CELL_SIZE, "%u", op->stage);
    snprintf(out->cells[COLUMN_MICROBATCH], CELL_SIZE, "%" PRIu32, op->microbatch);
    snprintf(out->cells[COLUMN_ITERATION], CELL_SIZE, "%u", op->iteration);
}

static void write_row(const row *cells, FILE *stream)
{
    for (int c = 0; c < COLUMN_COUNT; c++) {
        fputs(cells->cells[c], stream);
        putc(c + 1 < COLUMN_COUNT ? ',' : '\n', stream);
    }
}

void rp_timeline_write_csv(const rp_timeline *timeline, FILE *stream)
{
    const rp_program *program = timeline->program;
    for (int c = 0; c < COLUMN_COUNT; c++) {
        fprintf(stream, "%s%c", column_names[c], c + 1 < COLUMN_COUNT ? ',' : '\n');
    }
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        for (uint32_t op = queue->op_begin; op < queue->op_end; op++) {
            row cells;
            fill_row(program, queue, op, &cells);
            snprintf(cells.cells[COLUMN_START], CELL_SIZE, "%" PRId64, timeline->start_ps[op]);
            snprintf(cells.cells[COLUMN_END], CELL_SIZE, "%" PRId64, timeline->end_ps[op]);
            write_row(&cells, stream);
        }
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

size_t rp_timeline_csv_most_bytes(const rp_program *program)
{
    return ((size_t)program->op_count + 1) * COLUMN_COUNT * CELL_SIZE; /* separators included */
}

static rp_status check_header(const rp_csv *table)
{
    bool same = table->columns == COLUMN_COUNT;
    for (uint32_t c = 0; same && c < COLUMN_COUNT; c++) {
        same = strcmp(table->header[c], column_names[c]) == 0;
    }
    if (!same) {
        rp_log_error_at(table->name, 1,
                        "row 1: not the columns of a timeline; they are op, queue, gpu, kind, "
                        "stage, microbatch, iteration, start_ps, end_ps in this order");
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status check_row(const rp_csv *table, uint32_t op, const row *expected)
{
    for (uint32_t c = 0; c < COLUMN_START; c++) {
        const char *cell = rp_csv_cell(table, op, c);
        if (strcmp(cell, expected->cells[c]) != 0) {
            char shown[RP_CSV_SHOW_SIZE];
            rp_log_error_at(table->name, table->lines[op],
                            "row %" PRIu32 ", column %s: '%s'; in the program it is '%s'", op + 2,
                            column_names[c], rp_csv_show(cell, shown), expected->cells[c]);
            return RP_INPUT;
        }
    }
    return RP_OK;
}

/* Reads the times; an op must not start before its queue is free, so that ops of a queue cannot
 * overlap. */
static rp_status read_times(const rp_csv *table, const rp_queue *queue, rp_timeline *timeline)
{
    const rp_program *program = timeline->program;
    uint64_t free_ps = 0;
    for (uint32_t op = queue->op_begin; op < queue->op_end; op++) {
        uint64_t start_ps;
        row expected;
        fill_row(program, queue, op, &expected);
        RP_TRY(check_row(table, op, &expected));
        RP_TRY(rp_csv_u64(table, op, COLUMN_START, free_ps, INT64_MAX, &start_ps));
        RP_TRY(rp_csv_u64(table, op, COLUMN_END, start_ps, INT64_MAX, &free_ps));
        timeline->start_ps[op] = (int64_t)start_ps;
        timeline->end_ps[op] = (int64_t)free_ps;
    }
    return RP_OK;
}

static rp_status read_table(const rp_csv *table, rp_timeline *timeline)
{
    const rp_program *program = timeline->program;
    RP_TRY(check_header(table));
    if (table->rows != program->op_count) {
        rp_log_error_at(table->name, 0, "%" PRIu32 " rows; the program has %" PRIu32 " ops",
                        table->rows, program->op_count);
        return RP_INPUT;
    }
    for (uint32_t q = 0; q < program->queue_count; q++) {
        RP_TRY(read_times(table, &program->queues[q], timeline));
    }
    return RP_OK;
}

rp_status rp_timeline_read_csv(const char *name, const char *text, size_t length,
                               const rp_program *program, rp_timeline **timeline_out)
{
    rp_arena *arena;
    rp_csv table;
    rp_timeline *timeline = NULL;
    *timeline_out = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_csv_parse(name, text, length, ',', arena, &table);
    if (status == RP_OK) {
        status = rp_timeline_create(program, &timeline);
    }
    if (status == RP_OK) {
        status = read_table(&table, timeline);
    }
    rp_arena_destroy(arena);
    if (status != RP_OK) {
        rp_timeline_destroy(timeline);
        return status;
    }
    *timeline_out = timeline;
    return RP_OK;
}
