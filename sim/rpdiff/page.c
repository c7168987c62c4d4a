#include "sim/rpdiff/page.h"

#include "common/base/version.h"
#include "common/page/page.h"

#include <inttypes.h>
#include <math.h>

#define PS_PER_MS 1e9
#define COLUMNS 4u

/* ---- tables ---------------------------------------------------------------------------------- */

/* A table of times, built row by row. */
typedef struct builder {
    rp_arena *arena;
    const char **cells; /* [rows][COLUMNS] */
    uint32_t rows;
} builder;

static rp_status builder_begin(rp_arena *arena, uint32_t most_rows, builder *out)
{
    *out = (builder){.arena = arena};
    return rp_arena_alloc(arena, (size_t)most_rows * COLUMNS, sizeof *out->cells, &out->cells);
}

static rp_status add_time(builder *b, const char *name, const rpsim_diff_time *time)
{
    const char **cells = &b->cells[(size_t)COLUMNS * b->rows++];
    double pct = rpsim_diff_pct(time);
    cells[0] = name;
    cells[3] = "-";
    RP_TRY(rp_arena_print(b->arena, &cells[1], "%.3f", time->predicted_ps / PS_PER_MS));
    RP_TRY(rp_arena_print(b->arena, &cells[2], "%.3f", time->measured_ps / PS_PER_MS));
    return isnan(pct) ? RP_OK : rp_arena_print(b->arena, &cells[3], "%+.1f", pct);
}

static rp_page_table finish(const builder *b, const char *title, bool folded)
{
    static const char *const headings[COLUMNS] = {"", "predicted, ms", "measured, ms", "error, %"};
    return (rp_page_table){.title = title,
                           .columns = COLUMNS,
                           .rows = b->rows,
                           .headings = headings,
                           .cells = b->cells,
                           .run = RP_PAGE_ALL_RUNS,
                           .folded = folded};
}

static rp_status make_kinds(const rpsim_diff *d, rp_arena *arena, rp_page_table *table_out)
{
    builder b;
    RP_TRY(builder_begin(arena, RP_OP_KIND_COUNT + 1, &b));
    RP_TRY(add_time(&b, "the whole timeline", &d->makespan));
    for (uint32_t k = 0; k < RP_OP_KIND_COUNT; k++) {
        const rpsim_diff_kind *kind = &d->kinds[k];
        const char *name = "";
        if (kind->count > 0) {
            RP_TRY(rp_arena_print(arena, &name, "%u ops %s: %s", kind->count,
                                  rp_op_kind_text((rp_op_kind)k),
                                  rp_op_kind_meaning((rp_op_kind)k)));
            RP_TRY(add_time(&b, name, &kind->sum));
        }
    }
    *table_out = finish(&b, "Predicted and measured", false);
    return RP_OK;
}

static rp_status make_places(const rpsim_diff *d, rp_arena *arena, rp_page_table *table_out)
{
    const rp_program *p = d->measured->program;
    const char *name = "";
    builder b;
    RP_TRY(builder_begin(arena, 2 * p->gpu_count + p->iteration_count, &b));
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        RP_TRY(rp_arena_print(arena, &name, "GPU %u computes", gpu));
        RP_TRY(add_time(&b, name, &d->gpus[gpu].busy));
        RP_TRY(rp_arena_print(arena, &name, "GPU %u ends", gpu));
        RP_TRY(add_time(&b, name, &d->gpus[gpu].end));
    }
    for (uint32_t i = 0; i < p->iteration_count; i++) {
        RP_TRY(rp_arena_print(arena, &name, "iteration %u", i));
        RP_TRY(add_time(&b, name, &d->iterations[i]));
    }
    *table_out = finish(&b, "GPUs and iterations", true);
    return RP_OK;
}

static rp_status make_worst(const rpsim_diff *d, rp_arena *arena, rp_page_table *table_out)
{
    builder b;
    RP_TRY(builder_begin(arena, d->worst_count, &b));
    for (uint32_t i = 0; i < d->worst_count; i++) {
        uint32_t op = d->worst[i];
        char text[RP_OP_NAME_SIZE];
        const char *name = "";
        rp_op_name(&d->measured->program->ops[op], text);
        const rpsim_diff_time time = {
            (double)(d->predicted->end_ps[op] - d->predicted->start_ps[op]),
            (double)(d->measured->end_ps[op] - d->measured->start_ps[op])};
        RP_TRY(rp_arena_print(arena, &name, "%s, op %u", text, op));
        RP_TRY(add_time(&b, name, &time));
    }
    *table_out = finish(&b, "Ops with the largest differences", true);
    return RP_OK;
}

/* ---- the page -------------------------------------------------------------------------------- */

rp_status rpsim_diff_page_write(const rpsim_diff *d, const char *const names[2],
                                const char *command, rp_arena *arena, FILE *stream)
{
    rp_timeline sides[2] = {*d->predicted, *d->measured};
    rp_page_table tables[3];
    rp_page page = {.command = command, .tables = tables, .table_count = 3, .together = true};
    /* Both timelines are of the same ops, so a CSV, which has no waits, gets the program of the
     * record. */
    for (int i = 0; i < 2; i++) {
        bool lacks = sides[i].program->wait_count == 0;
        sides[i].program = lacks ? sides[1 - i].program : sides[i].program;
    }
    const rp_page_run runs[2] = {{.name = "predicted", .timeline = &sides[0]},
                                 {.name = "measured", .timeline = &sides[1]}};
    RP_TRY(make_kinds(d, arena, &tables[0]));
    RP_TRY(make_places(d, arena, &tables[1]));
    RP_TRY(make_worst(d, arena, &tables[2]));
    RP_TRY(rp_arena_print(arena, &page.title, "Predicted %s, measured %s", names[0], names[1]));
    RP_TRY(rp_arena_print(arena, &page.answer,
                          "Predicted %.3f ms, measured %.3f ms: %+.1f %%, in all.",
                          d->makespan.predicted_ps / PS_PER_MS, d->makespan.measured_ps / PS_PER_MS,
                          rpsim_diff_pct(&d->makespan)));
    RP_TRY(rp_arena_print(arena, &page.made_by, "rpdiff %s", rp_version()));
    page.runs = runs;
    page.run_count = 2;
    return rp_page_write(&page, stream);
}
