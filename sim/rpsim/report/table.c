#include "sim/rpsim/report/table.h"

#include "common/base/units.h"
#include "common/cli/table.h"
#include "sim/rpsim/report/table_notes.h"
#include "sim/study/columns.h"
#include "sim/study/decided.h"
#include "sim/study/ranking.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define CELL_SIZE 256
#define MARK UINT32_MAX /* stands for the column of the best row's star */

/* Rows that share a table, in the order of the table. */
typedef struct group {
    const rpsim_study *study;
    uint32_t sentences; /* bits of the legend's sentences that its columns need */
    uint32_t begin;
    uint32_t count;
    uint32_t *order; /* [count] indices of rows */
    uint32_t best;   /* index of the best row; begin + count: none may fit, or no rate is known */
} group;

/* Columns of a table: each stands alone, or is joined to the column before it. */
typedef struct layout {
    uint32_t columns[RPSIM_MAX_FIELDS + 1]; /* indices of rpsim_columns, and MARK */
    uint32_t count;
    rp_table_column headings[RPSIM_MAX_FIELDS + 1];
    uint32_t heading_count;
} layout;

/* ---- columns --------------------------------------------------------------------------------- */

static bool is_joined(const layout *l, uint32_t i)
{
    return i > 0 && l->columns[i] != MARK && l->columns[i - 1] != MARK &&
           rpsim_columns[l->columns[i]].before != NULL;
}

static bool is_flush_left(const rpsim_study *study, const rpsim_column *column)
{
    rpsim_value_type type = column->value(study, &study->rows[0]).type;
    return type == RPSIM_VALUE_TEXT;
}

static const char *heading_of(const rpsim_column *column)
{
    return column->heading != NULL ? column->heading : column->key;
}

/* Makes the headings of the columns; joined columns share a heading. On a narrow page columns
 * farther left are dropped later. */
static rp_status head(const rpsim_study *study, layout *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        rp_table_column *last = &l->headings[l->heading_count];
        if (l->columns[i] == MARK) {
            *last = (rp_table_column)RP_TABLE_LEFT("", l->count - i);
        } else if (is_joined(l, i)) {
            const rpsim_column *column = &rpsim_columns[l->columns[i]];
            RP_TRY(rp_arena_print(study->arena, &last[-1].heading, "%s%s%s", last[-1].heading,
                                  column->before, heading_of(column)));
            continue;
        } else {
            const rpsim_column *column = &rpsim_columns[l->columns[i]];
            *last = (rp_table_column){.heading = heading_of(column),
                                      .left = is_flush_left(study, column),
                                      .keep = l->count - i};
        }
        l->heading_count++;
    }
    return RP_OK;
}

/* Lays out the columns of the given tables, in the order of their places. */
static rp_status lay_out(const rpsim_study *study, unsigned tables, bool marked, layout *l)
{
    *l = (layout){.count = 0};
    for (uint32_t i = 0; i < rpsim_column_count; i++) {
        if ((rpsim_columns[i].tables & tables) == 0) {
            continue;
        }
        uint32_t at = l->count++;
        for (; at > 0 && rpsim_columns[l->columns[at - 1]].place > rpsim_columns[i].place; at--) {
            l->columns[at] = l->columns[at - 1];
        }
        l->columns[at] = i;
    }
    uint32_t ranks = (tables & RPSIM_TABLE_RANK) != 0 ? 1 : 0;
    if (marked) {
        memmove(&l->columns[ranks + 1], &l->columns[ranks],
                (l->count - ranks) * sizeof *l->columns);
        l->columns[ranks] = MARK;
        l->count++;
    }
    return head(study, l);
}

/* Lays out the columns that --columns names, or all columns that have a place in a table. */
static rp_status lay_out_asked(const rpsim_study *study, layout *l)
{
    const rpsim_setup *o = study->setup;
    *l = (layout){.count = 0};
    for (uint32_t i = 0; o->all_columns && i < rpsim_column_count; i++) {
        rpsim_field field = rpsim_columns[i].value(study, &study->rows[0]);
        if (!rpsim_columns[i].stored_only && field.type != RPSIM_VALUE_OBJECT &&
            field.type != RPSIM_VALUE_ABSENT) {
            l->columns[l->count++] = i;
        }
    }
    for (uint32_t k = 0; !o->all_columns && k < o->column_count; k++) {
        l->columns[l->count++] = rpsim_column_find(o->columns[k]);
    }
    for (uint32_t i = 0; i < l->count; i++) { /* each column stands alone */
        const rpsim_column *column = &rpsim_columns[l->columns[i]];
        l->headings[i] = (rp_table_column){
            .heading = heading_of(column), .left = is_flush_left(study, column), .keep = 1};
    }
    l->heading_count = l->count;
    return RP_OK;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void write_value(const rpsim_study *study, const rpsim_row *row, const rpsim_column *column,
                        char cell[static CELL_SIZE])
{
    rpsim_field field = column->value(study, row);
    double number = rpsim_field_number(&field);
    if (column->shown != NULL && field.type != RPSIM_VALUE_NULL) {
        number = column->shown(&field, row);
    }
    bool plain = column->heading == NULL && column->shown == NULL;
    if (field.type == RPSIM_VALUE_ABSENT) {
        cell[0] = '\0';
    } else if (field.type == RPSIM_VALUE_TEXT) {
        (void)snprintf(cell, CELL_SIZE, "%s", field.text);
    } else if (field.type == RPSIM_VALUE_BOOL) {
        (void)snprintf(cell, CELL_SIZE, field.uint != 0 ? "yes" : "no");
    } else if (isnan(number)) {
        (void)snprintf(cell, CELL_SIZE, "-");
    } else if (plain && (field.type == RPSIM_VALUE_UINT || field.type == RPSIM_VALUE_UINTS)) {
        (void)snprintf(cell, CELL_SIZE, "%" PRIu64, field.uint);
    } else if (plain) {
        (void)snprintf(cell, CELL_SIZE, "%.6g", number);
    } else {
        (void)snprintf(cell, CELL_SIZE, "%.*f", column->decimals, number);
    }
}

static rp_status add_row(const group *g, uint32_t index, const layout *l, rp_table *table)
{
    const rpsim_row *row = &g->study->rows[index];
    for (uint32_t i = 0; i < l->count;) {
        char cells[4 * CELL_SIZE];
        size_t length = 0;
        if (l->columns[i] == MARK) {
            RP_TRY(rp_table_print(table, index == g->best && g->count > 1 ? "*" : ""));
            i++;
            continue;
        }
        uint32_t begin = i;
        do {
            char cell[CELL_SIZE];
            const rpsim_column *column = &rpsim_columns[l->columns[i]];
            write_value(g->study, row, column, cell);
            length += (size_t)snprintf(cells + length, sizeof cells - length, "%s%s",
                                       i > begin && cell[0] != '\0' ? column->before : "", cell);
            i++;
        } while (i < l->count && l->heading_count != l->count && is_joined(l, i));
        RP_TRY(rp_table_print(table, "%s", cells));
    }
    return RP_OK;
}

/* @return true if the ranks of a recompute mode begin at this row of a ranking: an empty line goes
 * before it */
static bool begins_ranks(const group *g, uint32_t i)
{
    const rpsim_row *rows = g->study->rows;
    return i > 0 && g->study->setup->all_schedules &&
           rows[g->order[i]].run.recompute != rows[g->order[i - 1]].run.recompute;
}

static rp_status fill(const group *g, const layout *l, bool gaps, rp_table **table_out)
{
    RP_TRY(
        rp_table_create(l->headings, l->heading_count, 2 * g->count, g->study->arena, table_out));
    for (uint32_t i = 0; i < g->count; i++) {
        for (uint32_t k = 0; gaps && begins_ranks(g, i) && k < l->heading_count; k++) {
            RP_TRY(rp_table_print(*table_out, "%s", ""));
        }
        RP_TRY(add_row(g, g->order[i], l, *table_out));
    }
    return RP_OK;
}

/* @return the tables whose columns a run has */
static unsigned tables_of(const rpsim_study *study, const rpsim_row *row)
{
    const rpsim_setup *o = study->setup;
    unsigned tables = !row->run.stage ? RPSIM_TABLE_HARDWARE : RPSIM_TABLE_STAGE;
    tables |= !row->run.stage && o->intervals != 0 ? RPSIM_TABLE_INTERVALS : 0;
    return tables | (o->all_schedules ? RPSIM_TABLE_RANK : 0);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Finds the row of the highest rate, or of the longest sequence, among the rows that may fit. */
static void find_best(group *g)
{
    g->best = g->begin + g->count;
    for (uint32_t i = g->begin; i < g->begin + g->count; i++) {
        const rpsim_row *row = &g->study->rows[i];
        if (rpsim_row_may_fit(row) && !isnan(rpsim_row_tokens_per_s(row)) &&
            (g->best == g->begin + g->count || rpsim_row_is_ahead(row, &g->study->rows[g->best]))) {
            g->best = i;
        }
    }
}

static rp_status take_group(const rpsim_study *study, uint32_t begin, group *g)
{
    *g = (group){.study = study, .begin = begin};
    RP_TRY(rp_arena_alloc(study->arena, study->row_count - begin, sizeof *g->order, &g->order));
    g->count = rpsim_study_order(study, begin, g->order);
    find_best(g);
    return RP_OK;
}

/* ---- the question ---------------------------------------------------------------------------- */

static void write_question(const group *g, FILE *stream)
{
    const rpsim_setup *o = g->study->setup;
    const rpsim_row *row = &g->study->rows[g->begin];
    const rp_resolved *w = &row->run;
    const char *added = rp_accumulation_text(row->run.costs->arithmetic.accumulation);
    fprintf(stream, "%s%s%s (%u GPU%s): ", row->model_name,
            row->platform_name != NULL ? " on " : "",
            row->platform_name != NULL ? row->platform_name : "", rpsim_row_gpus(row),
            rpsim_row_gpus(row) == 1 ? "" : "s");
    if (row->run.stage) {
        fprintf(stream, "%u microbatches of %u x %u tokens, stage fidelity, hop %g ms\n",
                w->decided.microbatches, row->run.costs->microbatch_size, w->decided.seq_len,
                rp_ps_to_ms(row->run.costs->hop_ps));
    } else if (o->run.config_paper) {
        fprintf(stream, "each as published, %s accumulated in %s\n",
                rp_dtype_text(w->decided.dtype), added);
    } else {
        char seq_len[32] = "the longest that fit";
        char calls[24] = "";
        if (!o->run.max_seqlen) {
            (void)snprintf(seq_len, sizeof seq_len, "%u tokens", w->decided.seq_len);
        }
        if (w->decided.accumulate > 1) {
            (void)snprintf(calls, sizeof calls, "%u x ", w->decided.accumulate);
        }
        fprintf(stream, "%u x %s a step, %s%u microbatches, %s accumulated in %s\n",
                rpsim_row_global_batch(row), seq_len, calls, w->decided.microbatches,
                rp_dtype_text(w->decided.dtype), added);
    }
    if (rp_layout_gpus(&w->decided.layout) > 1) {
        fprintf(stream,
                "%u copies x %u GPUs per layer x %u in the pipeline; %u GPUs are simulated, each "
                "once for %u that do the same\n",
                rp_layout_data(&w->decided.layout), rp_layout_tensor(&w->decided.layout),
                row->run.gpus, row->run.gpus, rp_layout_gpus(&w->decided.layout));
    }
    if (rp_changes_any(&o->changes, &rp_costs_schema)) {
        fprintf(stream, "times of %s\n", row->run.costs->name);
    }
}

/* ---- noise ----------------------------------------------------------------------------------- */

/* Writes percentiles and, for several rows, the share of replicas in which a row beats another.
 * Rows are numbered by their places. */
static rp_status write_noise(const group *g, const rp_page *page)
{
    const rpsim_setup *o = g->study->setup;
    layout l;
    rp_table *table = NULL;
    rp_table_column columns[RP_TABLE_MAX_COLUMNS] = {RP_TABLE_RIGHT("#", 9)};
    uint32_t beats = g->count > 1 ? g->count : 0;
    RP_TRY(lay_out(g->study, RPSIM_TABLE_NOISE, false, &l));
    beats = beats < RP_TABLE_MAX_COLUMNS - 1 - l.count ? beats : RP_TABLE_MAX_COLUMNS - 1 - l.count;
    for (uint32_t i = 0; i < l.count; i++) {
        columns[1 + i] = l.headings[i];
        columns[1 + i].keep = 9;
    }
    for (uint32_t i = 0; i < beats; i++) {
        columns[1 + l.count + i].keep = 1;
        RP_TRY(
            rp_arena_print(g->study->arena, &columns[1 + l.count + i].heading, "beats %u", i + 1));
    }
    RP_TRY(rp_table_create(columns, 1 + l.count + beats, g->count, g->study->arena, &table));
    for (uint32_t i = 0; i < g->count; i++) {
        const rpsim_row *row = &g->study->rows[g->order[i]];
        RP_TRY(rp_table_print(table, "%u", i + 1));
        RP_TRY(add_row(g, g->order[i], &l, table));
        for (uint32_t k = 0; k < beats; k++) {
            const rpsim_row *other = &g->study->rows[g->order[k]];
            RP_TRY(rp_table_number(table, k == i ? NAN : rpsim_row_beats(g->study, row, other), 3));
        }
    }
    fprintf(page->stream,
            "\nNoise of single runs, not accuracy: CV %g on compute times, %u replicas, seed "
            "%" PRIu64,
            o->jitter, o->replicas, o->seed);
    if (o->slow_factor != 0) {
        fprintf(page->stream, "; compute of GPU %u takes %g times as long", o->slow_gpu,
                o->slow_factor);
    }
    fputc('\n', page->stream);
    rp_table_write(table, 2, page->columns, page->stream);
    return RP_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static rp_status write_rows(group *g, const rp_page *page)
{
    const rpsim_setup *o = g->study->setup;
    const rpsim_row *first = &g->study->rows[g->begin];
    layout l;
    rp_table *table = NULL;
    if (o->all_columns || o->column_count != 0) {
        RP_TRY(lay_out_asked(g->study, &l));
        RP_TRY(fill(g, &l, true, &table));
        rp_table_write_all(table, l.heading_count > 1 ? 1 : 0, 0, page->columns, page->stream);
        for (uint32_t i = 0; i < l.heading_count; i++) {
            g->sentences |= rpsim_legend_of(l.headings[i].heading);
        }
        return RP_OK;
    }
    RP_TRY(lay_out(g->study, tables_of(g->study, first), true, &l));
    RP_TRY(fill(g, &l, true, &table));
    rp_table_write(table, 0, page->columns, page->stream);
    for (uint32_t i = 0; i < l.heading_count; i++) {
        bool shown = rp_table_has_place(table, i, 0, page->columns);
        g->sentences |= shown ? rpsim_legend_of(l.headings[i].heading) : 0;
    }
    return RP_OK;
}

static rp_status write_group(group *g, const rp_page *page)
{
    const rpsim_row *first = &g->study->rows[g->begin];
    write_question(g, page->stream);
    fputc('\n', page->stream);
    RP_TRY(write_rows(g, page));
    fputc('\n', page->stream);
    for (uint32_t i = 0; i < g->count; i++) {
        rpsim_row_notes_write(g->study, &g->study->rows[g->order[i]], page);
    }
    rpsim_host_note_write(first, page->stream);
    rpsim_intervals_write(g->study, g->begin, g->begin + g->count, g->best, page->stream);
    rpsim_measured_note_write(g->study, g->begin, g->begin + g->count, page->stream);
    return first->replica_ps != NULL ? write_noise(g, page) : RP_OK;
}

rp_status rpsim_table_write(const rpsim_study *study, const rp_page *page)
{
    uint32_t sentences = 0;
    for (uint32_t begin = 0; begin < study->row_count;) {
        group g;
        fputs(begin != 0 ? "\n" : "", page->stream);
        RP_TRY(take_group(study, begin, &g));
        RP_TRY(write_group(&g, page));
        sentences |= g.sentences;
        begin += g.count;
    }
    rpsim_legend_write(study, sentences, page->stream);
    return RP_OK;
}

rp_status rpsim_table_write_markdown(const rpsim_study *study, FILE *stream)
{
    const rpsim_setup *o = study->setup;
    for (uint32_t begin = 0; begin < study->row_count;) {
        group g;
        layout l;
        rp_table *table = NULL;
        bool asked = o->all_columns || o->column_count != 0;
        RP_TRY(take_group(study, begin, &g));
        RP_TRY(asked ? lay_out_asked(study, &l)
                     : lay_out(study, tables_of(study, &study->rows[begin]), true, &l));
        RP_TRY(fill(&g, &l, false, &table));
        fputs(begin != 0 ? "\n" : "", stream);
        write_question(&g, stream);
        fputc('\n', stream);
        rp_table_write_markdown(table, stream);
        begin += g.count;
    }
    return RP_OK;
}
