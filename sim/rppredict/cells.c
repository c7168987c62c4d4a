#include "sim/rppredict/cells.h"

#include "common/base/log.h"
#include "common/cli/option_values.h"
#include "common/formats/csv.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/published.h"
#include "sim/rppredict/run.h"

#include <string.h>

#define LONGEST (1u << 22) /* longest sequence, in tokens */

enum {
    COLUMN_FRAMEWORK,
    COLUMN_MODEL,
    COLUMN_LENGTH,
    COLUMN_BATCH, /* this column and the following columns are empty together */
    COLUMN_MICROBATCHES,
    COLUMN_CALLS,
    COLUMN_GRAIN,
    COLUMN_SLICES,
    COLUMNS
};

static const char *const columns[COLUMNS] = {"framework",    "model", "seq_len", "global_batch",
                                             "microbatches", "calls", "grain",   "sequence_slices"};

/* A table while it is read. */
typedef struct cells {
    const rpsim_cells_inputs *inputs;
    rp_csv csv;
    uint32_t index[COLUMNS];
    uint32_t gpus;  /* index of the column; UINT32_MAX if the table has none */
    uint32_t dtype; /* index of the column, as gpus */
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

static rp_status length(const cells *c, uint32_t row, uint32_t *tokens_out)
{
    uint64_t tokens = 0;
    if (!rp_option_count(cell(c, row, COLUMN_LENGTH), 1024, 1, LONGEST, &tokens)) {
        return number(c, row, COLUMN_LENGTH, LONGEST, tokens_out); /* refuses the number */
    }
    *tokens_out = (uint32_t)tokens;
    return RP_OK;
}

static rp_status refuse(const cells *c, uint32_t row, const char *what)
{
    rp_log_error_at(c->csv.name, c->csv.lines[row], "%s", what);
    return RP_INPUT;
}

static rp_status published_run(rpsim_question *q)
{
    return q->longest ? rp_resolve_longest(q->model, &q->run, NULL)
                      : rp_resolve_published(q->model, true, &q->run, NULL);
}

static rp_status given_run(const cells *c, uint32_t row, rp_resolved *w)
{
    const char *grain = cell(c, row, COLUMN_GRAIN);
    RP_TRY(number(c, row, COLUMN_BATCH, 1u << 20, &w->global_batch));
    RP_TRY(number(c, row, COLUMN_MICROBATCHES, 1u << 16, &w->decided.microbatches));
    RP_TRY(number(c, row, COLUMN_CALLS, 1u << 12, &w->decided.accumulate));
    RP_TRY(number(c, row, COLUMN_SLICES, 1u << 12, &w->sequence_slices));
    w->decided.dtype = RP_DTYPE_F16;
    w->decided.layer_grain = strcmp(grain, "layer") == 0;
    if (!w->decided.layer_grain && strcmp(grain, "stage") != 0) {
        return refuse(c, row, "column grain; valid values are stage and layer");
    }
    if ((uint64_t)w->decided.microbatches * w->decided.accumulate > w->global_batch) {
        return refuse(c, row,
                      "a microbatch without a sequence; valid is a global_batch of at least calls "
                      "x microbatches");
    }
    return RP_OK;
}

static const rp_costs *find_table(const rpsim_cells_inputs *inputs, const char *model)
{
    size_t length = strlen(model);
    for (uint32_t i = 0; i < inputs->table_count; i++) {
        const char *name = inputs->tables[i].name;
        if (strncmp(name, model, length) == 0 && (name[length] == '@' || name[length] == '\0')) {
            return &inputs->tables[i];
        }
    }
    return NULL;
}

static rp_status ask(const cells *c, uint32_t row, rpsim_question *q)
{
    uint64_t gpus = c->inputs->platform.gpus;
    if (c->gpus != UINT32_MAX) {
        RP_TRY(rp_csv_u64(&c->csv, row, c->gpus, 1, gpus, &gpus));
    }
    *q = (rpsim_question){
        .framework = cell(c, row, COLUMN_FRAMEWORK),
        .model = cell(c, row, COLUMN_MODEL),
        .run = {.gpus = (uint32_t)gpus, .costs = find_table(c->inputs, cell(c, row, COLUMN_MODEL))},
        .file = c->csv.name,
        .line = c->csv.lines[row]};
    RP_TRY(rp_schedule_require("framework", rp_published_schedule(q->framework), false,
                               &q->run.schedule, NULL));
    q->longest = strcmp(cell(c, row, COLUMN_LENGTH), "longest") == 0;
    q->run.decided.asynchronous = strcmp(q->framework, "roundpipe") == 0;
    if (!q->longest) {
        RP_TRY(length(c, row, &q->run.decided.seq_len));
    }
    uint32_t empty = 0;
    for (int column = COLUMN_BATCH; column < COLUMNS; column++) {
        empty += cell(c, row, column)[0] == '\0' ? 1 : 0;
    }
    RP_TRY(empty == COLUMNS - COLUMN_BATCH ? published_run(q) : given_run(c, row, &q->run));
    const char *dtype = c->dtype != UINT32_MAX ? rp_csv_cell(&c->csv, row, c->dtype) : "";
    if (*dtype != '\0' && !rp_dtype_parse(dtype, &q->run.decided.dtype)) {
        return refuse(c, row, "column dtype; valid values are fp16, bf16, fp32 and an empty cell");
    }
    return RP_OK;
}

static rp_status ask_all(cells *c, rp_arena *arena, rpsim_question **questions_out)
{
    for (int i = 0; i < COLUMNS; i++) {
        RP_TRY(rp_csv_column(&c->csv, columns[i], &c->index[i]));
    }
    c->gpus = c->dtype = UINT32_MAX;
    for (uint32_t i = 0; i < c->csv.columns; i++) {
        c->gpus = strcmp(c->csv.header[i], "gpus") == 0 ? i : c->gpus;
        c->dtype = strcmp(c->csv.header[i], "dtype") == 0 ? i : c->dtype;
    }
    RP_TRY(rp_arena_alloc(arena, c->csv.rows, sizeof **questions_out, questions_out));
    for (uint32_t row = 0; row < c->csv.rows; row++) {
        rp_log_set_place(c->csv.name, c->csv.lines[row]);
        rp_status status = ask(c, row, &(*questions_out)[row]);
        rp_log_set_place(NULL, 0);
        RP_TRY(status);
    }
    return RP_OK;
}

rp_status rpsim_cells_load(const char *platform, const char *const *tables, uint32_t table_count,
                           rp_arena *arena, rpsim_cells_inputs *inputs)
{
    *inputs = (rpsim_cells_inputs){.table_count = table_count};
    RP_TRY(rp_platform_load(platform, arena, &inputs->platform));
    RP_TRY(rp_arena_alloc(arena, table_count, sizeof *inputs->tables, &inputs->tables));
    for (uint32_t i = 0; i < table_count; i++) {
        RP_TRY(rp_costs_load(tables[i], arena, &inputs->tables[i]));
    }
    return RP_OK;
}

rp_status rpsim_cells_read(const char *path, const rpsim_cells_inputs *inputs, rp_arena *arena,
                           rpsim_cells *cells_out)
{
    cells c = {.inputs = inputs};
    RP_TRY(rp_csv_read_file(path, arena, &c.csv));
    RP_TRY(ask_all(&c, arena, &cells_out->questions));
    cells_out->csv = c.csv;
    return RP_OK;
}

/* Warns of each cost table whose times are too short to be true. */
static void doubt_tables(const rpsim_cells *c, const rpsim_answer *answers)
{
    for (uint32_t row = 0; row < c->csv.rows; row++) {
        const rpsim_question *q = &c->questions[row];
        bool said = q->run.costs == NULL || !answers[row].beats_peak;
        for (uint32_t i = 0; i < row && !said; i++) {
            said = c->questions[i].run.costs == q->run.costs && answers[i].beats_peak;
        }
        if (!said) {
            rp_log_warning("%s:%zu: with cost table %s GPUs compute faster than their peak; check "
                           "the table's times, microbatch_size, seq_len, dtype and accumulation, "
                           "and whether it is of this GPU",
                           q->file, (size_t)q->line, q->run.costs->name);
        }
    }
}

rp_status rpsim_predict_cells(const char *path, const rpsim_cells_inputs *inputs, uint32_t draws,
                              rp_arena *arena, FILE *stream)
{
    rpsim_cells c;
    rpsim_answer *answers = NULL;
    RP_TRY(rpsim_cells_read(path, inputs, arena, &c));
    RP_TRY(rp_arena_alloc(arena, c.csv.rows, sizeof *answers, &answers));
    for (uint32_t row = 0; row < c.csv.rows; row++) {
        c.questions[row].draws = draws;
    }
    RP_TRY(rpsim_answer_all(&inputs->platform, c.questions, c.csv.rows, answers));
    doubt_tables(&c, answers);
    fputs("framework,model,platform,gpus,seq_len,fits,tokens_per_s,tokens_per_s_p10,"
          "tokens_per_s_p50,tokens_per_s_p90\n",
          stream);
    for (uint32_t row = 0; row < c.csv.rows; row++) {
        const rpsim_question *q = &c.questions[row];
        const rpsim_answer *a = &answers[row];
        fprintf(stream, "%s,%s,%s,%u,%u,%s,", q->framework, q->model, inputs->platform.name,
                q->run.gpus, a->seq_len,
                !a->fits        ? "no"
                : a->host_known ? "yes"
                                : "unknown");
        if (q->longest || !a->fits) {
            fputs(",,,\n", stream);
            continue;
        }
        rpsim_interval speed;
        RP_TRY(rpsim_noise_interval(a->draws, draws, &speed));
        fprintf(stream, "%.2f,%.2f,%.2f,%.2f\n", a->tokens_per_s, speed.p10, speed.p50, speed.p90);
    }
    return RP_OK;
}
