/* Causes and critical path of a run, for all its ops at once. */
#include "common/page/page_internal.h"

#define NO_OP UINT32_MAX

static void count_piece(void *context, const rp_walk_piece *piece)
{
    rp_page_causes *causes = context;
    (void)piece;
    causes->piece_count++;
}

/* Collects the pieces of the critical path, which arrive from last to first. */
typedef struct collector {
    rp_page_piece *pieces;
    uint32_t left;
} collector;

static void add_piece(void *context, const rp_walk_piece *piece)
{
    collector *c = context;
    c->pieces[--c->left] = (rp_page_piece){piece->op, piece->end_ps - piece->start_ps, piece->step};
}

static rp_status find_path(const rp_walk *walk, rp_arena *arena, rp_page_causes *causes)
{
    uint32_t last = rp_walk_last(walk->timeline);
    int64_t end_ps = walk->timeline->end_ps[last];
    if (end_ps == walk->timeline->start_ps[last]) {
        return RP_OK;
    }
    rp_walk_back(walk, last, 0, end_ps, RP_WALK_PATH, count_piece, causes);
    RP_TRY(rp_arena_alloc(arena, causes->piece_count, sizeof *causes->pieces, &causes->pieces));
    collector c = {causes->pieces, causes->piece_count};
    rp_walk_back(walk, last, 0, end_ps, RP_WALK_PATH, add_piece, &c);
    return RP_OK;
}

rp_status rp_page_causes_find(const rp_page_run *run, rp_arena *arena, rp_page_causes *causes_out)
{
    const rp_timeline *t = run->timeline;
    uint32_t count = t->program->op_count;
    rp_page_causes causes = {.known = t->program->wait_count > 0};
    rp_walk walk;
    RP_TRY(rp_arena_alloc(arena, count, sizeof *causes.cause_of, &causes.cause_of));
    RP_TRY(rp_arena_alloc(arena, count, sizeof *causes.reason_of, &causes.reason_of));
    if (causes.known) {
        RP_TRY(rp_walk_prepare(t, run->hop_ps, arena, &walk));
        RP_TRY(find_path(&walk, arena, &causes));
    }
    for (uint32_t op = 0; op < count; op++) {
        causes.cause_of[op] = NO_OP;
        if (causes.known) {
            causes.reason_of[op] = (uint8_t)rp_walk_cause(&walk, op, &causes.cause_of[op]);
        }
    }
    *causes_out = causes;
    return RP_OK;
}
