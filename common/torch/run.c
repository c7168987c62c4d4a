/* The dry run of a schedule CSV: checks whether all ranks reach the end of their rows.
 *
 * A rank runs its row in order and waits, at its next action, for at most 1 action of another row
 * (2 for an overlapped pair, which starts when both parts can). Waiting ranks are noted at the
 * awaited action, so that the time is linear in the number of actions. */
#include "common/torch/torch_csv_internal.h"

#include <string.h>

typedef struct runner {
    const rp_torch_csv *csv;
    const rp_torch_tables *tables;
    uint32_t columns;       /* number of columns that are run */
    uint32_t *next;         /* [rank] its next action */
    uint32_t *end;          /* [rank] end of its actions within the columns */
    uint32_t *first_waiter; /* [action] a rank that waits for it */
    uint32_t *next_waiter;  /* [rank] another rank that waits for the same action */
    uint32_t *rank_of;      /* [action] */
    uint32_t *todo;         /* [rank] stack of ranks that may be able to go on */
    uint32_t todo_count;
} runner;

static uint32_t separate_input(const runner *r, const rp_torch_action *a)
{
    if (a->stage == 0) {
        return RP_TORCH_NONE;
    }
    uint8_t type = a->stage > r->csv->forward_count ? RP_TORCH_BACKWARD : RP_TORCH_FORWARD;
    return rp_torch_at(r->csv, r->tables, type, a->stage - 1, a->microbatch);
}

/* The action whose result is the input of an action, or RP_TORCH_NONE. */
static uint32_t input_of(const runner *r, const rp_torch_action *a)
{
    const rp_torch_csv *csv = r->csv;
    uint32_t s = a->stage;
    uint32_t m = a->microbatch;
    if (csv->separate) {
        return separate_input(r, a);
    }
    bool first = s == 0;
    bool last = s + 1 == csv->stage_count;
    bool from_before = csv->lowered && !first && csv->stage_ranks[s - 1] != csv->stage_ranks[s];
    bool from_behind = csv->lowered && !last && csv->stage_ranks[s + 1] != csv->stage_ranks[s];
    switch ((rp_torch_type)a->type) {
    case RP_TORCH_FORWARD:
        return first         ? RP_TORCH_NONE
               : from_before ? rp_torch_at(csv, r->tables, RP_TORCH_RECV_F, s, m)
                             : rp_torch_at(csv, r->tables, RP_TORCH_FORWARD, s - 1, m);
    case RP_TORCH_BACKWARD:
    case RP_TORCH_BACKWARD_INPUT:
        return last          ? RP_TORCH_NONE
               : from_behind ? rp_torch_at(csv, r->tables, RP_TORCH_RECV_B, s, m)
                             : rp_torch_at(csv, r->tables, RP_TORCH_BACKWARD, s + 1, m);
    case RP_TORCH_RECV_F:
        return rp_torch_at(csv, r->tables, RP_TORCH_SEND_F, s - 1, m);
    case RP_TORCH_RECV_B:
        return rp_torch_at(csv, r->tables, RP_TORCH_SEND_B, s + 1, m);
    case RP_TORCH_WAIT_SEND_F:
        return rp_torch_at(csv, r->tables, RP_TORCH_RECV_F, s + 1, m);
    case RP_TORCH_WAIT_SEND_B:
        return rp_torch_at(csv, r->tables, RP_TORCH_RECV_B, s - 1, m);
    case RP_TORCH_BACKWARD_WEIGHT:
    case RP_TORCH_UNSHARD:
    case RP_TORCH_RESHARD:
    case RP_TORCH_REDUCE_GRAD:
    case RP_TORCH_SEND_F:
    case RP_TORCH_SEND_B:
    case RP_TORCH_WAIT_REDUCE_GRAD:
    case RP_TORCH_TYPE_COUNT:
        break; /* their inputs come before them in their row */
    }
    return RP_TORCH_NONE;
}

/* The action for which `rank` waits at its next cell; RP_TORCH_NONE: the rank can go on. */
static uint32_t blocked_by(const runner *r, uint32_t rank)
{
    const rp_torch_csv *csv = r->csv;
    for (uint32_t i = r->next[rank];; i++) {
        const rp_torch_action *a = &csv->actions[i];
        uint32_t input = input_of(r, a);
        if (input != RP_TORCH_NONE && csv->actions[input].column < r->columns) {
            if (input >= r->next[r->rank_of[input]]) {
                return input;
            }
        }
        if (!a->overlaps_next) {
            return RP_TORCH_NONE;
        }
    }
}

static void wake(runner *r, uint32_t action)
{
    for (uint32_t w = r->first_waiter[action]; w != RP_TORCH_NONE;) {
        r->todo[r->todo_count++] = w;
        w = r->next_waiter[w];
    }
    r->first_waiter[action] = RP_TORCH_NONE;
}

static void run_rank(runner *r, uint32_t rank)
{
    while (r->next[rank] < r->end[rank]) {
        uint32_t input = blocked_by(r, rank);
        if (input != RP_TORCH_NONE) {
            r->next_waiter[rank] = r->first_waiter[input];
            r->first_waiter[input] = rank;
            return;
        }
        uint32_t first = r->next[rank];
        uint32_t last = first;
        while (r->csv->actions[last].overlaps_next) {
            last++;
        }
        r->next[rank] = last + 1;
        for (uint32_t i = first; i <= last; i++) {
            wake(r, i);
        }
    }
}

/* Runs the first `columns` columns. @return a rank that does not reach its end, or RP_TORCH_NONE */
static uint32_t run_columns(runner *r, uint32_t columns)
{
    const rp_torch_csv *csv = r->csv;
    r->columns = columns;
    r->todo_count = 0;
    memset(r->first_waiter, 0xff, csv->row_begin[csv->rank_count] * sizeof *r->first_waiter);
    for (uint32_t rank = 0; rank < csv->rank_count; rank++) {
        r->next[rank] = csv->row_begin[rank];
        r->end[rank] = csv->row_begin[rank + 1];
        while (r->end[rank] > r->next[rank] && csv->actions[r->end[rank] - 1].column >= columns) {
            r->end[rank]--;
        }
        r->todo[r->todo_count++] = csv->rank_count - 1 - rank;
    }
    while (r->todo_count > 0) {
        run_rank(r, r->todo[--r->todo_count]);
    }
    for (uint32_t rank = 0; rank < csv->rank_count; rank++) {
        if (r->next[rank] < r->end[rank]) {
            return rank;
        }
    }
    return RP_TORCH_NONE;
}

/* Follows the waits from a stuck rank as often as there are ranks; the last rank is on the
 * circle. */
static uint32_t rank_on_circle(const runner *r, uint32_t rank)
{
    for (uint32_t step = 0; step < r->csv->rank_count; step++) {
        rank = r->rank_of[blocked_by(r, rank)];
    }
    return rank;
}

static rp_status refuse_circle(const runner *r, uint32_t stuck, uint32_t columns)
{
    enum { SHOWN = 4 };
    const rp_torch_csv *csv = r->csv;
    char text[600];
    size_t length = 0;
    uint32_t begin = rank_on_circle(r, stuck);
    uint32_t rank = begin;
    for (uint32_t step = 0; step < SHOWN; step++) {
        char needs[RP_TORCH_NAME_SIZE];
        char head[RP_TORCH_NAME_SIZE];
        uint32_t blocker = blocked_by(r, rank);
        const rp_torch_action *input = &csv->actions[blocker];
        rank = r->rank_of[blocker];
        const rp_torch_action *next = &csv->actions[r->next[rank]];
        length += (size_t)snprintf(
            text + length, sizeof text - length,
            "%s waits for %s (row %u, column %u), which stands behind %s (column %u)",
            step == 0 ? "it" : ", which", rp_torch_action_name(input, needs), rank + 1,
            input->column + 1, rp_torch_action_name(next, head), next->column + 1);
        if (rank == begin) {
            break;
        }
    }
    if (rank != begin) {
        snprintf(text + length, sizeof text - length, ", and so on around");
    }
    return rp_torch_refuse(csv, begin, &csv->actions[r->next[begin]],
                           "never starts, a deadlock: %s; the smallest prefix that fails is "
                           "columns 1 to %u; valid are rows that all ranks can run to the end",
                           text, columns);
}

rp_status rp_torch_dry_run(const rp_torch_csv *csv, const rp_torch_tables *tables, rp_arena *arena)
{
    runner r = {.csv = csv, .tables = tables};
    uint32_t count = csv->row_begin[csv->rank_count];
    RP_TRY(rp_arena_alloc(arena, csv->rank_count, sizeof(uint32_t), &r.next));
    RP_TRY(rp_arena_alloc(arena, csv->rank_count, sizeof(uint32_t), &r.end));
    RP_TRY(rp_arena_alloc(arena, csv->rank_count, sizeof(uint32_t), &r.next_waiter));
    RP_TRY(rp_arena_alloc(arena, csv->rank_count, sizeof(uint32_t), &r.todo));
    RP_TRY(rp_arena_alloc_raw(arena, count, sizeof(uint32_t), &r.first_waiter));
    RP_TRY(rp_arena_alloc_raw(arena, count, sizeof(uint32_t), &r.rank_of));
    for (uint32_t rank = 0; rank < csv->rank_count; rank++) {
        for (uint32_t i = csv->row_begin[rank]; i < csv->row_begin[rank + 1]; i++) {
            r.rank_of[i] = rank;
        }
    }
    uint32_t columns = 0;
    for (uint32_t i = 0; i < count; i++) {
        columns = csv->actions[i].column >= columns ? csv->actions[i].column + 1 : columns;
    }
    if (run_columns(&r, columns) == RP_TORCH_NONE) {
        return RP_OK;
    }
    uint32_t fits = 0; /* number of columns that run to their end */
    while (columns - fits > 1) {
        uint32_t middle = fits + (columns - fits) / 2;
        if (run_columns(&r, middle) == RP_TORCH_NONE) {
            fits = middle;
        } else {
            columns = middle;
        }
    }
    return refuse_circle(&r, run_columns(&r, columns), columns);
}
