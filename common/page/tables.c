/* Tables that the page itself makes from a timeline. */
#include "common/base/units.h"
#include "common/page/page_internal.h"

enum { KIND, MEANING, COUNT, TOTAL, MEAN, PATH, COLUMNS };

typedef struct kind_sum {
    uint32_t count;
    int64_t busy_ps;
    int64_t path_ps;
} kind_sum;

static void sum_kinds(const rp_timeline *t, const rp_page_causes *causes,
                      kind_sum sums[static RP_OP_KIND_COUNT])
{
    for (uint32_t op = 0; op < t->program->op_count; op++) {
        kind_sum *sum = &sums[t->program->ops[op].kind];
        sum->count++;
        sum->busy_ps += t->end_ps[op] - t->start_ps[op];
    }
    for (uint32_t i = 0; i < causes->piece_count; i++) {
        const rp_page_piece *piece = &causes->pieces[i];
        bool runs = piece->step == RP_WALK_STEP_RUN;
        sums[t->program->ops[piece->op].kind].path_ps += runs ? piece->duration_ps : 0;
    }
}

static rp_status fill_row(rp_op_kind kind, const kind_sum *sum, bool known, rp_arena *arena,
                          const char **cells)
{
    double total_ms = rp_ps_to_ms(sum->busy_ps);
    cells[KIND] = rp_op_kind_text(kind);
    cells[MEANING] = rp_op_kind_meaning(kind);
    RP_TRY(rp_arena_print(arena, &cells[COUNT], "%u", sum->count));
    RP_TRY(rp_arena_print(arena, &cells[TOTAL], "%.3f", total_ms));
    RP_TRY(rp_arena_print(arena, &cells[MEAN], "%.3f", total_ms / sum->count));
    return known ? rp_arena_print(arena, &cells[PATH], "%.3f", rp_ps_to_ms(sum->path_ps)) : RP_OK;
}

rp_status rp_page_kinds_table(const rp_page_run *run, uint32_t number, const rp_page_causes *causes,
                              rp_arena *arena, rp_page_table *table_out)
{
    static const char *const headings[COLUMNS] = {
        [KIND] = "kind",     [MEANING] = "meaning", [COUNT] = "ops",
        [TOTAL] = "all, ms", [MEAN] = "mean, ms",   [PATH] = "on the critical path, ms"};
    kind_sum sums[RP_OP_KIND_COUNT] = {{0}};
    const char **cells = NULL;
    uint32_t rows = 0;
    sum_kinds(run->timeline, causes, sums);
    RP_TRY(rp_arena_alloc(arena, RP_OP_KIND_COUNT * COLUMNS, sizeof *cells, &cells));
    for (uint32_t k = 0; k < RP_OP_KIND_COUNT; k++) {
        if (sums[k].count > 0) {
            RP_TRY(fill_row((rp_op_kind)k, &sums[k], causes->known, arena, cells + rows * COLUMNS));
            rows++;
        }
    }
    *table_out = (rp_page_table){.title = "Kinds of ops",
                                 .columns = COLUMNS,
                                 .rows = rows,
                                 .headings = headings,
                                 .cells = cells,
                                 .run = number,
                                 .folded = true};
    return RP_OK;
}
