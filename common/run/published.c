/* Finds the run configurations of the published measurements. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/csv.h"
#include "common/inputs/data.h"
#include "common/run/resolve.h"

#include <string.h>

enum {
    COLUMN_SCHEDULE,
    COLUMN_MODEL,
    COLUMN_BATCH,
    COLUMN_MICROBATCHES,
    COLUMN_CALLS,
    COLUMN_OPTIMIZER,
    COLUMNS
};

static const char *const columns[COLUMNS] = {"schedule",     "model", "global_batch",
                                             "microbatches", "calls", "optimizer"};

/* The published run that is searched for. */
typedef struct query {
    const rp_schedule_type *schedule;
    const char *model;
    bool optimizer_given;
    bool asynchronous;
} query;

static rp_status find_columns(const rp_csv *csv, uint32_t index[static COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++) {
        RP_TRY(rp_csv_column(csv, columns[i], &index[i]));
    }
    return RP_OK;
}

static bool matches(const rp_csv *csv, const uint32_t *index, uint32_t row, const query *q)
{
    bool asynchronous = strcmp(rp_csv_cell(csv, row, index[COLUMN_OPTIMIZER]), "async") == 0;
    return strcmp(rp_csv_cell(csv, row, index[COLUMN_SCHEDULE]), q->schedule->name) == 0 &&
           strcmp(rp_csv_cell(csv, row, index[COLUMN_MODEL]), q->model) == 0 &&
           (!q->optimizer_given || asynchronous == q->asynchronous);
}

static rp_status read_number(const rp_csv *csv, uint32_t row, uint32_t column, uint32_t *value_out)
{
    uint64_t value = 0;
    RP_TRY(rp_csv_u64(csv, row, column, 1, 1u << 20, &value));
    *value_out = (uint32_t)value;
    return RP_OK;
}

static rp_status not_listed(const rp_csv *csv, const uint32_t *index, const query *q,
                            rp_reason *reason)
{
    rp_text valid = {0};
    rp_status status = RP_OK;
    for (uint32_t row = 0; row < csv->rows && status == RP_OK; row++) {
        status = rp_text_print(&valid, "%s%s %s %s", row == 0 ? "" : ", ",
                               rp_csv_cell(csv, row, index[COLUMN_SCHEDULE]),
                               rp_csv_cell(csv, row, index[COLUMN_MODEL]),
                               rp_csv_cell(csv, row, index[COLUMN_OPTIMIZER]));
    }
    if (status == RP_OK) {
        status = rp_refuse(reason, RP_USAGE,
                           "{config}: the paper lists no run of %s with %s; valid values are %s",
                           q->schedule->name, q->model, valid.bytes != NULL ? valid.bytes : "none");
    }
    rp_text_fini(&valid);
    return status;
}

/* Reads a number unless it is decided. */
static rp_status read_open(const rp_csv *csv, uint32_t row, uint32_t column, uint32_t *number)
{
    return *number != 0 ? RP_OK : read_number(csv, row, column, number);
}

static rp_status find(const rp_csv *csv, const query *q, rp_resolved *run, rp_reason *reason)
{
    uint32_t index[COLUMNS];
    RP_TRY(find_columns(csv, index));
    for (uint32_t row = 0; row < csv->rows; row++) {
        if (matches(csv, index, row, q)) {
            rp_run *decided = &run->decided;
            decided->asynchronous =
                strcmp(rp_csv_cell(csv, row, index[COLUMN_OPTIMIZER]), "async") == 0;
            RP_TRY(read_number(csv, row, index[COLUMN_BATCH], &run->global_batch));
            RP_TRY(read_open(csv, row, index[COLUMN_MICROBATCHES], &decided->microbatches));
            return read_open(csv, row, index[COLUMN_CALLS], &decided->accumulate);
        }
    }
    return not_listed(csv, index, q, reason);
}

/* Finds the query's row and a column that only one of the two tables has. */
static rp_status find_cell(const rp_csv *csv, const query *q, const char *column, uint32_t *row_out,
                           uint32_t *column_out)
{
    uint32_t index[COLUMNS];
    RP_TRY(find_columns(csv, index));
    RP_TRY(rp_csv_column(csv, column, column_out));
    for (*row_out = 0; *row_out < csv->rows; (*row_out)++) {
        if (matches(csv, index, *row_out, q)) {
            return RP_OK;
        }
    }
    return rp_broken(); /* find() has found the row before */
}

static rp_status find_text(const rp_csv *csv, const query *q, const char *column,
                           const char **text_out)
{
    uint32_t row = 0;
    uint32_t at = 0;
    RP_TRY(find_cell(csv, q, column, &row, &at));
    *text_out = rp_csv_cell(csv, row, at);
    return RP_OK;
}

static rp_status find_number(const rp_csv *csv, const query *q, const char *column,
                             uint32_t *number_out)
{
    uint32_t row = 0;
    uint32_t at = 0;
    RP_TRY(find_cell(csv, q, column, &row, &at));
    return read_number(csv, row, at, number_out);
}

static rp_status find_whole(const rp_csv *csv, const query *q, bool longest, rp_resolved *run,
                            rp_reason *reason)
{
    const char *text = NULL;
    RP_TRY(find(csv, q, run, reason));
    bool layers = rp_usual_layer_grain(q->schedule);
    run->decided.dtype = RP_DTYPE_F16; /* the type of all published runs */
    if (longest) {
        RP_TRY(find_text(csv, q, "grain", &text));
        layers = strcmp(text, "layer") == 0;
        RP_TRY(find_number(csv, q, "sequence_slices", &run->sequence_slices));
    }
    run->decided.layer_grain = run->decided.grain_given ? run->decided.layer_grain : layers;
    RP_TRY(find_text(csv, q, "sets", &text));
    if (text[0] == '\0') {
        return RP_OK;
    }
    uint64_t gpus = 0;
    const char *at = strchr(text, '@');
    if (at != NULL && !rp_parse_u64(at + 1, 1, 4096, &gpus)) {
        rp_log_error("%s: 'sets' has '%s'; valid values are KEY and KEY@GPUS of a platform file",
                     csv->name, text);
        return RP_INPUT;
    }
    run->sets_constant = true;
    run->sets_gpus = (uint32_t)gpus;
    return RP_OK;
}

static rp_status find_in_table(const char *file, bool longest, const query *q, rp_resolved *run,
                               rp_reason *reason)
{
    rp_arena *arena = NULL;
    rp_csv csv;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_data_read_csv(file, arena, &csv);
    if (status == RP_OK) {
        status = find_whole(&csv, q, longest, run, reason);
    }
    rp_arena_destroy(arena);
    return status;
}

rp_status rp_resolve_published(const char *model, bool optimizer_given, rp_resolved *run,
                               rp_reason *reason)
{
    const query q = {run->schedule, model, optimizer_given, run->decided.asynchronous};
    return find_in_table("configs/paper.csv", false, &q, run, reason);
}

rp_status rp_resolve_longest(const char *model, rp_resolved *run, rp_reason *reason)
{
    const query q = {.schedule = run->schedule, .model = model};
    return find_in_table("configs/paper_seqlen.csv", true, &q, run, reason);
}
