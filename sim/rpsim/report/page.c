/* --html-out: the page of a study (common/page/page.h). */
#include "sim/rpsim/report/page.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "common/page/page.h"
#include "sim/study/columns.h"
#include "sim/study/ranking.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Tables of each run, in addition to the tables of all runs. */
enum { TABLE_SHARES, TABLE_VALUES, TABLES_OF_RUN };

#define NEED_COLUMNS 160u /* length of the text of a need */

typedef struct maker {
    const rpsim_study *study;
    rp_arena *arena;
} maker;

/* ---- cells ----------------------------------------------------------------------------------- */

static rp_status number_cell(const maker *m, double value, int decimals, const char **cell_out)
{
    *cell_out = "-";
    return isnan(value) ? RP_OK : rp_arena_print(m->arena, cell_out, "%.*f", decimals, value);
}

/* Makes a cell in the form of the JSON; the numbers of lists have a blank between. */
static rp_status field_cell(const maker *m, const rpsim_field *field, const char **cell_out)
{
    char number[RP_JSON_NUMBER_SIZE];
    const char *list = "";
    *cell_out = "-";
    switch (field->type) {
    case RPSIM_VALUE_TEXT:
        *cell_out = field->text != NULL ? field->text : "-";
        return RP_OK;
    case RPSIM_VALUE_BOOL:
        *cell_out = field->uint != 0 ? "yes" : "no";
        return RP_OK;
    case RPSIM_VALUE_UINT:
        return rp_arena_print(m->arena, cell_out, "%" PRIu64, field->uint);
    case RPSIM_VALUE_UINTS:
        for (uint32_t i = 0; i < field->count; i++) {
            RP_TRY(rp_arena_print(m->arena, &list, "%s%s%" PRIu64, list, i > 0 ? " " : "",
                                  field->uints[i]));
        }
        *cell_out = list;
        return RP_OK;
    case RPSIM_VALUE_MS:
    case RPSIM_VALUE_REAL:
    case RPSIM_VALUE_REAL_MS:
        rp_json_print_double(rpsim_field_number(field), number);
        return strcmp(number, "null") == 0 ? RP_OK
                                           : rp_arena_print(m->arena, cell_out, "%s", number);
    case RPSIM_VALUE_NULL:
    case RPSIM_VALUE_ABSENT:
    case RPSIM_VALUE_OBJECT:
        break;
    }
    return RP_OK;
}

/* ---- the runs -------------------------------------------------------------------------------- */

/* Names a run by its schedule and by the other settings in which it differs from the other runs. */
static rp_status name_run(const maker *m, const rpsim_row *row, const char **name_out)
{
    bool recomputes = false;
    bool models = false;
    for (uint32_t i = 0; i < m->study->row_count; i++) {
        const rpsim_row *other = &m->study->rows[i];
        bool same = strcmp(other->schedule_name, row->schedule_name) == 0;
        recomputes |= same && other->run.recompute != row->run.recompute;
        models |= strcmp(other->model_name, row->model_name) != 0;
    }
    return rp_arena_print(m->arena, name_out, "%s%s%s%s%s", row->schedule_name,
                          recomputes ? ", recompute " : "",
                          recomputes ? rp_recompute_text(row->run.recompute) : "",
                          models ? ", " : "", models ? row->model_name : "");
}

static rp_status shown_cell(const maker *m, const rpsim_column *column, const rpsim_row *row,
                            const char **cell_out)
{
    rpsim_field field = column->value(m->study, row);
    if (field.type == RPSIM_VALUE_TEXT || field.type == RPSIM_VALUE_BOOL) {
        return field_cell(m, &field, cell_out);
    }
    bool known = field.type != RPSIM_VALUE_NULL && field.type != RPSIM_VALUE_ABSENT;
    double value = !known                  ? NAN
                   : column->shown != NULL ? column->shown(&field, row)
                                           : rpsim_field_number(&field);
    return number_cell(m, value, column->decimals, cell_out);
}

/* Chooses the columns of the table of all runs, the answer first. The parts of a bubble and the
 * bounds are not here, but among the values of each run. @return the number of columns */
static uint32_t choose_columns(const maker *m, const rpsim_column **chosen)
{
    static const char *const keys[] = {"rank",         "schedule",         "model",
                                       "tokens_per_s", "tokens_per_s_p10", "tokens_per_s_p90",
                                       "fits",         "peak_gpu_bytes",   "peak_host_bytes",
                                       "iteration_ms", "makespan_ms",      "bubble_ms",
                                       "recompute",    "optimizer"};
    const rpsim_row *row = &m->study->rows[0];
    uint32_t count = 0;
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (uint32_t c = 0; c < rpsim_column_count; c++) {
            const rpsim_column *column = &rpsim_columns[c];
            bool hidden = (strcmp(keys[k], "model") == 0 && m->study->setup->model_count < 2) ||
                          (column->tables == RPSIM_TABLE_RANK && !m->study->setup->all_schedules) ||
                          (column->tables == RPSIM_TABLE_INTERVALS && row->intervals == NULL) ||
                          (column->tables == RPSIM_TABLE_HARDWARE && row->run.stage);
            if (strcmp(keys[k], column->key) == 0 && !hidden) {
                chosen[count++] = column;
            }
        }
    }
    return count;
}

/* @return the number of rows from `begin` on that share a table: in a ranking the rows of a model
 * and recompute mode, which have ranks of their own; otherwise all rows */
static uint32_t rows_of_table(const rpsim_study *study, uint32_t begin)
{
    const rpsim_row *first = &study->rows[begin];
    uint32_t end = begin + 1;
    while (end < study->row_count &&
           (!study->setup->all_schedules ||
            (study->rows[end].run.recompute == first->run.recompute &&
             study->rows[end].run.costs == first->run.costs &&
             strcmp(study->rows[end].model_name, first->model_name) == 0))) {
        end++;
    }
    return end - begin;
}

static rp_status make_runs_table(const maker *m, const uint32_t *order, uint32_t rows,
                                 rp_page_table *table_out)
{
    const rpsim_study *study = m->study;
    const rpsim_column *chosen[RPSIM_MAX_FIELDS];
    uint32_t columns = choose_columns(m, chosen);
    const char **headings = NULL;
    const char **cells = NULL;
    const char *title = "Runs";
    if (rows < study->row_count) {
        const rpsim_row *first = &study->rows[order[0]];
        bool models = study->setup->model_count > 1;
        RP_TRY(rp_arena_print(m->arena, &title, "Runs: %s%srecompute %s",
                              models ? first->model_name : "", models ? ", " : "",
                              rp_recompute_text(first->run.recompute)));
    }
    RP_TRY(rp_arena_alloc(m->arena, columns, sizeof *headings, &headings));
    RP_TRY(rp_arena_alloc(m->arena, (size_t)columns * rows, sizeof *cells, &cells));
    for (uint32_t c = 0; c < columns; c++) {
        headings[c] = chosen[c]->heading != NULL ? chosen[c]->heading : chosen[c]->key;
        for (uint32_t r = 0; r < rows; r++) {
            RP_TRY(shown_cell(m, chosen[c], &study->rows[order[r]], &cells[r * columns + c]));
        }
    }
    *table_out = (rp_page_table){.title = title,
                                 .columns = columns,
                                 .rows = rows,
                                 .headings = headings,
                                 .cells = cells,
                                 .run = RP_PAGE_ALL_RUNS};
    return RP_OK;
}

/* Appends the tables of all runs, each with its best row first. */
static rp_status make_runs_tables(const maker *m, rp_page_table *tables, uint32_t *count)
{
    const rpsim_study *study = m->study;
    uint32_t *order = NULL;
    RP_TRY(rp_arena_alloc(m->arena, study->row_count, sizeof *order, &order));
    for (uint32_t begin = 0; begin < study->row_count;) {
        begin += rpsim_study_order(study, begin, order + begin);
    }
    for (uint32_t begin = 0, rows = 0; begin < study->row_count; begin += rows) {
        rows = rows_of_table(study, begin);
        RP_TRY(make_runs_table(m, order + begin, rows, &tables[(*count)++]));
    }
    return RP_OK;
}

static rp_status make_values_table(const maker *m, uint32_t number, rp_page_table *table_out)
{
    static const char *const headings[] = {"value", "unit", "key", "meaning"};
    const rpsim_row *row = &m->study->rows[number];
    const char **cells = NULL;
    uint32_t rows = 0;
    RP_TRY(rp_arena_alloc(m->arena, rpsim_column_count * 4, sizeof *cells, &cells));
    for (uint32_t c = 0; c < rpsim_column_count; c++) {
        const rpsim_column *column = &rpsim_columns[c];
        rpsim_field field = column->value(m->study, row);
        if (field.type != RPSIM_VALUE_ABSENT && field.type != RPSIM_VALUE_OBJECT &&
            !column->stored_only) {
            const char **of = &cells[4 * rows++];
            RP_TRY(field_cell(m, &field, &of[0]));
            of[1] = column->unit;
            of[2] = column->key;
            of[3] = column->help;
        }
    }
    *table_out = (rp_page_table){.title = "All values of the run",
                                 .columns = 4,
                                 .rows = rows,
                                 .headings = headings,
                                 .cells = cells,
                                 .run = number,
                                 .folded = true};
    return RP_OK;
}

/* Makes the table of the shares of GPU time (sim/run/explain). */
static rp_status make_shares_table(const maker *m, uint32_t number, rp_page_table *table_out)
{
    static const char *const headings[] = {"GPU time", "ms, all GPUs", "%"};
#define WORDS(name, key, words) words,
    static const char *const words[] = {RPSIM_SHARE_LIST(WORDS)};
    const rpsim_row *row = &m->study->rows[number];
    const rp_stage_times times = {.hop_ps = row->run.costs->hop_ps};
    const rpsim_explain_case c = {.timeline = row->result.timeline,
                                  .times = !row->run.stage ? NULL : &times};
    rpsim_explanation e;
    const char **cells = NULL;
    uint32_t rows = 0;
    RP_TRY(rpsim_explain(&c, m->arena, &e, NULL));
    RP_TRY(rp_arena_alloc(m->arena, 3 * RPSIM_SHARE_COUNT, sizeof *cells, &cells));
    for (uint32_t s = 0; s < RPSIM_SHARE_COUNT; s++) {
        if (e.share_ps[s] > 0) {
            const char **of = &cells[3 * rows++];
            double all = (double)e.gpus * (double)e.makespan_ps;
            of[0] = words[s];
            RP_TRY(number_cell(m, rp_ps_to_ms(e.share_ps[s]), 3, &of[1]));
            RP_TRY(number_cell(m, 100 * (double)e.share_ps[s] / all, 2, &of[2]));
        }
    }
    *table_out = (rp_page_table){.title = "Where the time of the GPUs goes",
                                 .note = "Of the whole timeline; the sum is GPUs x its length.",
                                 .columns = 3,
                                 .rows = rows,
                                 .headings = headings,
                                 .cells = cells,
                                 .run = number};
    return RP_OK;
}

/* ---- the page -------------------------------------------------------------------------------- */

static rp_page_memory memory_of(const rpsim_row *row)
{
    const rpsim_memory *memory = &row->memory;
    if (!memory->known) {
        return (rp_page_memory){.hidden = true};
    }
    rpsim_memory_limits limits = rpsim_memory_limits_of(row->platform, &row->result.program->traits,
                                                        row->result.program->gpu_count);
    return (rp_page_memory){.gpu_fixed_bytes = limits.gpu_fixed_bytes,
                            .gpu_overhead = limits.gpu_overhead,
                            .gpu_bytes = limits.gpu_bytes,
                            .host_fixed_bytes = memory->host_fixed_bytes,
                            .host_bytes = memory->host_bytes,
                            .gpu_peaks = memory->peak_gpu_bytes,
                            .peaks_are = "as the system's own allocator has it"};
}

static bool overflows(const rpsim_row *row)
{
    return row->memory.known && !row->memory.fits;
}

static uint64_t fullest(const rpsim_row *row)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < row->memory.gpu_count; i++) {
        uint64_t bytes = row->memory.peak_gpu_bytes[i];
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* @return the fastest of the rows that fit; if none fits, the fastest of all */
static const rpsim_row *best_of(const rpsim_study *study)
{
    const rpsim_row *best = &study->rows[0];
    for (uint32_t i = 1; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        bool faster = rpsim_row_tokens_per_s(row) > rpsim_row_tokens_per_s(best);
        best = overflows(best) != overflows(row) ? (overflows(best) ? row : best)
               : faster                          ? row
                                                 : best;
    }
    return best;
}

static rp_status make_answer(const maker *m, const char **answer_out)
{
    const rpsim_study *study = m->study;
    const rpsim_row *best = best_of(study);
    const rp_metrics *metrics = &best->result.metrics;
    double idle =
        100.0 * (double)metrics->bubble_ps / ((double)metrics->makespan_ps * best->run.gpus);
    const char *speed = "";
    const char *name = "";
    const char *fits = "";
    double tokens = rpsim_row_tokens_per_s(best);
    if (study->row_count > 1) {
        RP_TRY(name_run(m, best, &name));
        RP_TRY(rp_arena_print(m->arena, &name, "Fastest of %u%s: %s. ", study->row_count,
                              overflows(best) ? ", none of which fits" : "", name));
    }
    if (!isnan(tokens)) {
        RP_TRY(rp_arena_print(m->arena, &speed, "%.0f tokens/s, %.1f ms per iteration; ", tokens,
                              best->result.period_ps / (double)RP_PS_PER_MS));
    }
    if (best->memory.known) {
        char need[RPSIM_OOM_REASON_SIZE];
        rpsim_memory_say_need(&best->memory.need, NEED_COLUMNS, need, sizeof need);
        RP_TRY(overflows(best)
                   ? rp_arena_print(m->arena, &fits, " It does not fit: it %s.", need)
                   : rp_arena_print(
                         m->arena, &fits, " It fits, with %.1f of %.1f GB on the fullest GPU.",
                         1e-9 * (double)fullest(best), 1e-9 * (double)memory_of(best).gpu_bytes));
    }
    return rp_arena_print(m->arena, answer_out, "%s%sGPUs are idle %.1f %% of one iteration.%s",
                          name, speed, idle, fits);
}

static rp_status make_title(const maker *m, const char **title_out)
{
    const rpsim_row *row = &m->study->rows[0];
    const char *name = row->schedule_name;
    const char *model = row->model_name;
    if (m->study->row_count > 1) {
        RP_TRY(rp_arena_print(m->arena, &name, "%u runs", m->study->row_count));
    }
    if (m->study->setup->model_count > 1) {
        RP_TRY(rp_arena_print(m->arena, &model, "%u models", m->study->setup->model_count));
    }
    return rp_arena_print(m->arena, title_out, "%s: %s, %u GPUs%s%s", name, model,
                          rpsim_row_gpus(row), row->platform_name != NULL ? " of " : "",
                          row->platform_name != NULL ? row->platform_name : "");
}

rp_status rpsim_page_write(const rpsim_study *study, const char *command, FILE *stream)
{
    const maker m = {study, study->arena};
    rp_page page = {.command = command, .run_count = study->row_count};
    rp_page_run *runs = NULL;
    rp_page_table *tables = NULL;
    RP_TRY(rp_arena_alloc(m.arena, study->row_count, sizeof *runs, &runs));
    RP_TRY(
        rp_arena_alloc(m.arena, (1 + TABLES_OF_RUN) * study->row_count, sizeof *tables, &tables));
    RP_TRY(make_runs_tables(&m, tables, &page.table_count));
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        runs[i] = (rp_page_run){.timeline = row->result.timeline,
                                .hop_ps = !row->run.stage ? 0 : row->run.costs->hop_ps,
                                .memory = memory_of(row)};
        RP_TRY(name_run(&m, row, &runs[i].name));
        RP_TRY(make_shares_table(&m, i, &tables[page.table_count++]));
        RP_TRY(make_values_table(&m, i, &tables[page.table_count++]));
    }
    RP_TRY(make_title(&m, &page.title));
    RP_TRY(make_answer(&m, &page.answer));
    RP_TRY(rp_arena_print(m.arena, &page.made_by, "rpsim %s, simulated", rp_version()));
    page.first = (uint32_t)(best_of(study) - study->rows);
    page.runs = runs;
    page.tables = tables;
    return rp_page_write(&page, stream);
}
