#include "sim/rppredict/cells.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/csv.h"
#include "common/inputs/published.h"
#include "sim/rppredict/run.h"

#include <string.h>

enum {
    COLUMN_FRAMEWORK,
    COLUMN_MODEL,
    COLUMN_LENGTH,
    COLUMN_BATCH, /* this one and the rest are empty together */
    COLUMN_MICROBATCHES,
    COLUMN_CALLS,
    COLUMN_GRAIN,
    COLUMN_SLICES,
    COLUMNS
};

static const char *const columns[COLUMNS] = {"framework",    "model", "seq_len", "global_batch",
                                             "microbatches", "calls", "grain",   "sequence_slices"};

typedef struct cells {
    rp_csv csv;
    uint32_t index[COLUMNS];
    rp_platform platform;
    rpsim_question *questions; /* [rows], as the answers */
    rpsim_answer *answers;
} cells;

static const char *cell(const cells *c, uint32_t row, int column)
{
    return rp_csv_cell(&c->csv, row, c->index[column]);
}

static rp_status number(const cells *c, uint32_t row, int column, uint32_t most,
                        uint32_t *value_out)
{
    uint64_t value = 0;
    RP_TRY(rp_csv_u64(&c->csv, row, c->index[column], 1, most, &value));
    *value_out = (uint32_t)value;
    return RP_OK;
}

static rp_status refuse(const cells *c, uint32_t row, const char *what)
{
    rp_log_error_at(c->csv.name, c->csv.lines[row], "%s", what);
    return RP_INPUT;
}

static rp_status published_workload(const rp_schedule_type *schedule, rpsim_question *q)
{
    uint32_t seq_len = q->workload.seq_len;
    if (q->longest) {
        return rpsim_workload_longest(schedule, q->model, &q->workload, &q->asynchronous);
    }
    RP_TRY(rpsim_workload_published(schedule, q->model, true, q->asynchronous, &q->workload,
                                    &q->asynchronous));
    q->workload.seq_len = seq_len;
    return RP_OK;
}

static rp_status given_workload(const cells *c, uint32_t row, rpsim_workload *w)
{
    const char *grain = cell(c, row, COLUMN_GRAIN);
    RP_TRY(number(c, row, COLUMN_BATCH, 1u << 20, &w->global_batch));
    RP_TRY(number(c, row, COLUMN_MICROBATCHES, 1u << 16, &w->microbatches));
    RP_TRY(number(c, row, COLUMN_CALLS, 1u << 12, &w->calls));
    RP_TRY(number(c, row, COLUMN_SLICES, 1u << 12, &w->sequence_slices));
    w->dtype = RP_DTYPE_F16;
    w->layer_grain = strcmp(grain, "layer") == 0;
    if (!w->layer_grain && strcmp(grain, "stage") != 0) {
        return refuse(c, row, "column grain; valid values are stage and layer");
    }
    if ((uint64_t)w->microbatches * w->calls > w->global_batch) {
        return refuse(c, row,
                      "a microbatch without a sequence; valid is a global_batch of at least calls "
                      "x microbatches");
    }
    return RP_OK;
}

static rp_status ask(const cells *c, uint32_t row, rpsim_question *q)
{
    const rp_schedule_type *schedule = NULL;
    *q = (rpsim_question){.framework = cell(c, row, COLUMN_FRAMEWORK),
                          .model = cell(c, row, COLUMN_MODEL),
                          .gpus = c->platform.gpus,
                          .file = c->csv.name,
                          .line = c->csv.lines[row],
                          .memory = true};
    RP_TRY(rp_schedule_require("framework", rp_published_schedule(q->framework), false, &schedule));
    q->longest = strcmp(cell(c, row, COLUMN_LENGTH), "longest") == 0;
    q->asynchronous = strcmp(q->framework, "roundpipe") == 0;
    if (!q->longest) {
        RP_TRY(number(c, row, COLUMN_LENGTH, 1u << 22, &q->workload.seq_len));
    }
    uint32_t empty = 0;
    for (int column = COLUMN_BATCH; column < COLUMNS; column++) {
        empty += cell(c, row, column)[0] == '\0' ? 1 : 0;
    }
    if (empty == COLUMNS - COLUMN_BATCH) {
        return published_workload(schedule, q);
    }
    return given_workload(c, row, &q->workload);
}

static void write_answers(const cells *c, FILE *stream)
{
    fputs("framework,model,platform,gpus,seq_len,fits,tokens_per_s\n", stream);
    for (uint32_t row = 0; row < c->csv.rows; row++) {
        const rpsim_question *q = &c->questions[row];
        const rpsim_answer *a = &c->answers[row];
        fprintf(stream, "%s,%s,%s,%u,%u,%s,", q->framework, q->model, c->platform.name, q->gpus,
                a->seq_len,
                !a->fits        ? "no"
                : a->host_known ? "yes"
                                : "unknown");
        if (!q->longest && a->fits) {
            fprintf(stream, "%.2f", a->tokens_per_s);
        }
        fputc('\n', stream);
    }
}

static rp_status predict(cells *c, rp_arena *arena, FILE *stream)
{
    for (int i = 0; i < COLUMNS; i++) {
        RP_TRY(rp_csv_column(&c->csv, columns[i], &c->index[i]));
    }
    RP_TRY(rp_arena_alloc(arena, c->csv.rows, sizeof *c->questions, &c->questions));
    RP_TRY(rp_arena_alloc(arena, c->csv.rows, sizeof *c->answers, &c->answers));
    for (uint32_t row = 0; row < c->csv.rows; row++) {
        rp_log_set_place(c->csv.name, c->csv.lines[row]);
        rp_status status = ask(c, row, &c->questions[row]);
        rp_log_set_place(NULL, 0);
        RP_TRY(status);
    }
    RP_TRY(rpsim_answer_all(&c->platform, c->questions, c->csv.rows, c->answers));
    write_answers(c, stream);
    return RP_OK;
}

rp_status rpsim_predict_cells(const char *path, const char *platform, FILE *stream)
{
    cells c = {0};
    rp_arena *arena = NULL;
    rp_text text = {0};
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_platform_load(platform, arena, &c.platform);
    if (status == RP_OK) {
        status = rp_text_read_file(path, RP_CSV_MAX_BYTES, &text);
    }
    if (status == RP_OK) {
        status = rp_csv_parse(path, text.bytes, text.length, ',', arena, &c.csv);
    }
    if (status == RP_OK) {
        status = predict(&c, arena, stream);
    }
    rp_text_fini(&text);
    rp_arena_destroy(arena);
    return status;
}
