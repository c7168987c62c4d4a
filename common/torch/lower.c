/* Lowers a compute-only schedule CSV: FSDP's actions, reductions, transfers, waits.
 *
 * The passes and their order are those of PyTorch's runtime (formats.md 1), so that files can be
 * compared byte by byte; the goldens in tests/golden/torch are PyTorch's output. Each pass reads a
 * table of rows and appends to another. */
#include "common/base/log.h"
#include "common/torch/torch_csv_internal.h"

#include <string.h>

#define WINDOW 3u             /* most stages kept unsharded: PyTorch's max_active_stages */
#define LONGEST (WINDOW + 1u) /* a pair at the window's end is not split */

/* End of the unit that begins at action `first`; a pair is a unit of two actions. */
static inline uint32_t unit_end(const rp_torch_csv *csv, uint32_t first)
{
    return first + (csv->actions[first].overlaps_next ? 2 : 1);
}

static rp_status begin_pass(const rp_torch_csv *in, size_t capacity, rp_arena *arena,
                            rp_torch_csv *out)
{
    *out = *in;
    RP_TRY(rp_arena_alloc(arena, in->rank_count + 1, sizeof(uint32_t), &out->row_begin));
    return rp_arena_alloc_raw(arena, capacity, sizeof(rp_torch_action), &out->actions);
}

static void push_copy(rp_torch_csv *out, uint32_t *count, const rp_torch_action *action)
{
    out->actions[(*count)++] = *action;
}

static void push(rp_torch_csv *out, uint32_t *count, rp_torch_type type, uint32_t stage,
                 uint32_t microbatch)
{
    out->actions[(*count)++] =
        (rp_torch_action){.stage = stage, .microbatch = microbatch, .type = (uint8_t)type};
}

static bool is_backward(uint8_t type)
{
    return type == RP_TORCH_BACKWARD || type == RP_TORCH_BACKWARD_INPUT;
}

/* ---- FSDP: gather parameters before use, drop them after it ---------------------------------- */

/* The first stages that a unit and the units after it use, in the order of first use. */
typedef struct window {
    uint32_t count;
    uint32_t stages[LONGEST];
    uint32_t units[LONGEST]; /* unit that first uses the stage */
} window;

static bool has_stage(const uint32_t *stages, uint32_t count, uint32_t stage)
{
    for (uint32_t i = 0; i < count; i++) {
        if (stages[i] == stage) {
            return true;
        }
    }
    return false;
}

static void add_stage(window *w, uint32_t stage, uint32_t unit)
{
    if (w->count < LONGEST && !has_stage(w->stages, w->count, stage)) {
        w->stages[w->count] = stage;
        w->units[w->count++] = unit;
    }
}

/* Puts the unit's stages first, then the stages of the next unit's window. Its LONGEST stages
 * suffice, because only stages that the unit adds push others out. */
static void set_window(const rp_torch_csv *csv, uint32_t first, const window *behind, window *out)
{
    *out = (window){0};
    for (uint32_t i = first; i < unit_end(csv, first); i++) {
        add_stage(out, csv->actions[i].stage, first);
    }
    for (uint32_t i = 0; i < behind->count; i++) {
        add_stage(out, behind->stages[i], behind->units[i]);
    }
}

static uint32_t window_size(const window *w)
{
    bool pair = w->count > WINDOW && w->units[WINDOW] == w->units[WINDOW - 1];
    return w->count <= WINDOW || pair ? w->count : WINDOW;
}

static void set_windows(const rp_torch_csv *csv, uint32_t rank, window *windows)
{
    const window none = {0};
    const window *behind = &none;
    for (uint32_t i = csv->row_begin[rank + 1]; i-- > csv->row_begin[rank];) {
        if (i > csv->row_begin[rank] && csv->actions[i - 1].overlaps_next) {
            continue; /* second part */
        }
        set_window(csv, i, behind, &windows[i]);
        behind = &windows[i];
    }
}

static void shard_row(const rp_torch_csv *in, uint32_t rank, const window *windows,
                      rp_torch_csv *out)
{
    uint32_t active[2 * LONGEST];
    uint32_t active_count = 0;
    uint32_t count = out->row_begin[rank];
    for (uint32_t i = in->row_begin[rank]; i < in->row_begin[rank + 1];) {
        const window *w = &windows[i];
        uint32_t size = window_size(w);
        uint32_t kept = 0;
        for (uint32_t a = 0; a < active_count; a++) {
            if (has_stage(w->stages, size, active[a])) {
                active[kept++] = active[a];
            } else {
                push(out, &count, RP_TORCH_RESHARD, active[a], 0);
            }
        }
        active_count = kept;
        for (uint32_t k = 0; k < size; k++) {
            if (!has_stage(active, active_count, w->stages[k])) {
                push(out, &count, RP_TORCH_UNSHARD, w->stages[k], 0);
                active[active_count++] = w->stages[k];
            }
        }
        for (uint32_t end = unit_end(in, i); i < end; i++) {
            push_copy(out, &count, &in->actions[i]);
        }
    }
    for (uint32_t a = 0; a < active_count; a++) {
        push(out, &count, RP_TORCH_RESHARD, active[a], 0);
    }
    out->row_begin[rank + 1] = count;
}

static rp_status add_sharding(const rp_torch_csv *in, rp_arena *arena, rp_torch_csv *out)
{
    window *windows = NULL;
    uint32_t count = in->row_begin[in->rank_count];
    size_t capacity = (size_t)count * (1 + 2 * LONGEST) + (size_t)in->rank_count * LONGEST;
    RP_TRY(begin_pass(in, capacity, arena, out));
    RP_TRY(rp_arena_alloc_raw(arena, count, sizeof *windows, &windows));
    for (uint32_t rank = 0; rank < in->rank_count; rank++) {
        set_windows(in, rank, windows);
        shard_row(in, rank, windows, out);
    }
    return RP_OK;
}

/* ---- reductions ------------------------------------------------------------------------------ */

static rp_status add_reductions(const rp_torch_csv *in, bool waits, rp_arena *arena,
                                rp_torch_csv *out)
{
    uint32_t *gradients = NULL; /* [stage] gradients of its weights so far */
    uint32_t count = 0;
    RP_TRY(begin_pass(in, in->row_begin[in->rank_count] + 2 * (size_t)in->stage_count, arena, out));
    RP_TRY(rp_arena_alloc(arena, in->stage_count, sizeof *gradients, &gradients));
    for (uint32_t rank = 0; rank < in->rank_count; rank++) {
        for (uint32_t i = in->row_begin[rank]; i < in->row_begin[rank + 1];) {
            uint32_t first = i;
            uint32_t end = unit_end(in, first);
            for (; i < end; i++) {
                push_copy(out, &count, &in->actions[i]);
            }
            for (i = first; i < end; i++) {
                const rp_torch_action *a = &in->actions[i];
                if ((a->type == RP_TORCH_BACKWARD || a->type == RP_TORCH_BACKWARD_WEIGHT) &&
                    ++gradients[a->stage] == in->microbatch_count) {
                    push(out, &count, RP_TORCH_REDUCE_GRAD, a->stage, 0);
                    if (waits) {
                        push(out, &count, RP_TORCH_WAIT_REDUCE_GRAD, a->stage, 0);
                    }
                }
            }
        }
        out->row_begin[rank + 1] = count;
    }
    return RP_OK;
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* The stage that receives the result of an action; RP_TORCH_NONE if it is on the same rank or does
 * not exist. */
static uint32_t receiver(const rp_torch_csv *csv, const rp_torch_action *a)
{
    uint32_t to = RP_TORCH_NONE;
    if (a->type == RP_TORCH_FORWARD && a->stage + 1 < csv->stage_count) {
        to = a->stage + 1;
    } else if (is_backward(a->type) && a->stage > 0) {
        to = a->stage - 1;
    }
    bool crosses = to != RP_TORCH_NONE && csv->stage_ranks[to] != csv->stage_ranks[a->stage];
    return crosses ? to : RP_TORCH_NONE;
}

typedef struct sender {
    const rp_torch_csv *in;
    rp_torch_csv *out;
    uint8_t *arrived[2]; /* [forward, backward][stage * M + m]: the input is on the rank */
    uint32_t *next;      /* [rank] next action in `in` */
    uint32_t *count;     /* [rank] end of its row in `out` so far */
} sender;

static size_t entry(const rp_torch_csv *csv, uint32_t stage, uint32_t microbatch)
{
    return (size_t)stage * csv->microbatch_count + microbatch;
}

static bool is_ready(const sender *s, const rp_torch_action *a)
{
    const rp_torch_csv *csv = s->in;
    if (a->type == RP_TORCH_FORWARD && a->stage > 0) {
        return s->arrived[0][entry(csv, a->stage, a->microbatch)] != 0;
    }
    if (is_backward(a->type) && a->stage + 1 < csv->stage_count) {
        return s->arrived[1][entry(csv, a->stage, a->microbatch)] != 0;
    }
    return true;
}

static void place(sender *s, uint32_t rank, const rp_torch_action *a)
{
    const rp_torch_csv *csv = s->in;
    bool forward = a->type == RP_TORCH_FORWARD;
    if (!forward && !is_backward(a->type)) {
        return;
    }
    if (a->stage == (forward ? csv->stage_count - 1 : 0)) {
        return;
    }
    uint32_t neighbour = forward ? a->stage + 1 : a->stage - 1;
    s->arrived[forward ? 0 : 1][entry(csv, neighbour, a->microbatch)] = 1;
    uint32_t to = receiver(csv, a);
    if (to != RP_TORCH_NONE) {
        push(s->out, &s->count[rank], forward ? RP_TORCH_SEND_F : RP_TORCH_SEND_B, a->stage,
             a->microbatch);
        push(s->out, &s->count[csv->stage_ranks[to]], forward ? RP_TORCH_RECV_F : RP_TORCH_RECV_B,
             to, a->microbatch);
    }
}

/* @return whether the rank's next unit could be placed */
static bool step(sender *s, uint32_t rank)
{
    const rp_torch_csv *in = s->in;
    uint32_t first = s->next[rank];
    if (first == in->row_begin[rank + 1]) {
        return false;
    }
    uint32_t end = unit_end(in, first);
    for (uint32_t i = first; i < end; i++) {
        if (!is_ready(s, &in->actions[i])) {
            return false;
        }
    }
    for (uint32_t i = first; i < end; i++) {
        push_copy(s->out, &s->count[rank], &in->actions[i]);
    }
    for (uint32_t i = first; i < end; i++) {
        place(s, rank, &in->actions[i]);
    }
    s->next[rank] = end;
    return true;
}

/* Rows grow side by side, with gaps between: each begins at the largest possible end of the row
 * before it.
 */
static void set_row_begins(const rp_torch_csv *in, rp_torch_csv *out)
{
    uint32_t *length = &out->row_begin[1];
    for (uint32_t rank = 0; rank < in->rank_count; rank++) {
        length[rank] += in->row_begin[rank + 1] - in->row_begin[rank];
        for (uint32_t i = in->row_begin[rank]; i < in->row_begin[rank + 1]; i++) {
            uint32_t to = receiver(in, &in->actions[i]);
            if (to != RP_TORCH_NONE) {
                length[rank]++;
                length[in->stage_ranks[to]]++;
            }
        }
    }
    for (uint32_t rank = 0; rank < in->rank_count; rank++) {
        length[rank] += out->row_begin[rank];
    }
}

static rp_status add_transfers(const rp_torch_csv *in, rp_arena *arena, rp_torch_csv *out)
{
    sender s = {.in = in, .out = out};
    size_t entries = entry(in, in->stage_count, 0);
    RP_TRY(begin_pass(in, 3 * (size_t)in->row_begin[in->rank_count], arena, out));
    for (int direction = 0; direction < 2; direction++) {
        RP_TRY(rp_arena_alloc(arena, entries, 1, &s.arrived[direction]));
    }
    RP_TRY(rp_arena_alloc(arena, in->rank_count, sizeof(uint32_t), &s.next));
    RP_TRY(rp_arena_alloc(arena, in->rank_count, sizeof(uint32_t), &s.count));
    set_row_begins(in, out);
    memcpy(s.next, in->row_begin, in->rank_count * sizeof(uint32_t));
    memcpy(s.count, out->row_begin, in->rank_count * sizeof(uint32_t));
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t rank = 0; rank < in->rank_count; rank++) {
            moved = step(&s, rank) || moved;
        }
    }
    for (uint32_t rank = 0; rank < in->rank_count; rank++) {
        if (s.next[rank] != in->row_begin[rank + 1]) {
            rp_log_error("a schedule that runs to its end has no order of transfers");
            return rp_broken();
        }
    }
    return RP_OK;
}

/* ---- waits for sends ------------------------------------------------------------------------- */

/* Adds the waits for sends. The wait for a forward's send comes after the stage's backward of the
 * microbatch, which proves that the peer has used the tensor; the other waits come at the end of
 * the row. */
static void wait_row(const rp_torch_csv *in, uint32_t rank, uint8_t *sent, rp_torch_csv *out)
{
    uint32_t count = out->row_begin[rank];
    uint32_t end = in->row_begin[rank + 1];
    for (uint32_t i = in->row_begin[rank]; i < end;) {
        uint32_t first = i;
        uint32_t behind = unit_end(in, first);
        for (; i < behind; i++) {
            const rp_torch_action *a = &in->actions[i];
            push_copy(out, &count, a);
            if (a->type == RP_TORCH_SEND_F) {
                sent[entry(in, a->stage, a->microbatch)] = 1;
            }
        }
        for (i = first; i < behind; i++) {
            const rp_torch_action *a = &in->actions[i];
            uint8_t *pending = &sent[entry(in, a->stage, a->microbatch)];
            if (is_backward(a->type) && *pending != 0) {
                push(out, &count, RP_TORCH_WAIT_SEND_F, a->stage, a->microbatch);
                *pending = 0;
            }
        }
    }
    for (uint32_t i = in->row_begin[rank]; i < end; i++) {
        const rp_torch_action *a = &in->actions[i];
        if (a->type == RP_TORCH_SEND_B) {
            push(out, &count, RP_TORCH_WAIT_SEND_B, a->stage, a->microbatch);
        }
    }
    out->row_begin[rank + 1] = count;
}

static rp_status add_waits(const rp_torch_csv *in, rp_arena *arena, rp_torch_csv *out)
{
    uint8_t *sent = NULL;
    RP_TRY(begin_pass(in, 2 * (size_t)in->row_begin[in->rank_count], arena, out));
    RP_TRY(rp_arena_alloc(arena, entry(in, in->stage_count, 0), 1, &sent));
    for (uint32_t rank = 0; rank < in->rank_count; rank++) {
        wait_row(in, rank, sent, out);
    }
    return RP_OK;
}

/* ---- receives just in time ------------------------------------------------------------------- */

typedef struct deferral {
    const rp_torch_csv *in;
    rp_torch_csv *out;
    uint32_t count;
    rp_torch_action *held; /* receives that are not placed yet, in their order */
    uint32_t held_count;
} deferral;

static uint32_t peer_of(const rp_torch_csv *csv, const rp_torch_action *a)
{
    bool before = a->type == RP_TORCH_RECV_F || a->type == RP_TORCH_SEND_B;
    return csv->stage_ranks[before ? a->stage - 1 : a->stage + 1];
}

/* Places the held receives that `use` needs, or, if `use` is NULL, all held receives from
 * `peer`. */
static void release(deferral *d, uint32_t peer, const rp_torch_action *use)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->held_count; i++) {
        const rp_torch_action *a = &d->held[i];
        bool forward = a->type == RP_TORCH_RECV_F;
        bool now = use == NULL
                       ? peer_of(d->in, a) == peer
                       : a->stage == use->stage && a->microbatch == use->microbatch &&
                             (forward ? use->type == RP_TORCH_FORWARD : is_backward(use->type));
        if (now) {
            push_copy(d->out, &d->count, a);
        } else {
            d->held[kept++] = *a;
        }
    }
    d->held_count = kept;
}

/* When two ranks exchange tensors, the lower rank posts its receives before its sends and the
 * higher rank its sends first, so that they never wait for each other. */
static void defer_row(deferral *d, uint32_t rank)
{
    const rp_torch_csv *in = d->in;
    d->held_count = 0;
    for (uint32_t i = in->row_begin[rank]; i < in->row_begin[rank + 1];) {
        const rp_torch_action *a = &in->actions[i];
        uint32_t end = unit_end(in, i);
        if (a->type == RP_TORCH_RECV_F || a->type == RP_TORCH_RECV_B) {
            d->held[d->held_count++] = *a;
            i = end;
            continue;
        }
        if (a->type == RP_TORCH_SEND_F || a->type == RP_TORCH_SEND_B) {
            uint32_t peer = peer_of(in, a);
            if (rank < peer) {
                release(d, peer, NULL);
            }
        }
        for (uint32_t k = i; k < end; k++) {
            release(d, RP_TORCH_NONE, &in->actions[k]);
        }
        for (; i < end; i++) {
            push_copy(d->out, &d->count, &in->actions[i]);
        }
    }
    d->out->row_begin[rank + 1] = d->count;
}

static rp_status defer_receives(const rp_torch_csv *in, rp_arena *arena, rp_torch_csv *out)
{
    deferral d = {.in = in, .out = out};
    uint32_t count = in->row_begin[in->rank_count];
    RP_TRY(begin_pass(in, count, arena, out));
    RP_TRY(rp_arena_alloc_raw(arena, count, sizeof *d.held, &d.held));
    for (uint32_t rank = 0; rank < in->rank_count; rank++) {
        defer_row(&d, rank);
    }
    return RP_OK;
}

/* ---- all passes ------------------------------------------------------------------------------ */

void rp_torch_set_columns(rp_torch_csv *csv)
{
    for (uint32_t rank = 0; rank < csv->rank_count; rank++) {
        uint32_t column = 0;
        for (uint32_t i = csv->row_begin[rank]; i < csv->row_begin[rank + 1]; i++) {
            csv->actions[i].column = column;
            column += csv->actions[i].overlaps_next ? 0 : 1;
        }
    }
}

rp_status rp_torch_csv_lower(const rp_torch_csv *csv, const rp_torch_lowering *how, rp_arena *arena,
                             rp_torch_csv *csv_out)
{
    rp_torch_csv sharded;
    rp_torch_csv reduced;
    rp_torch_csv sent;
    rp_torch_csv waited;
    RP_TRY(add_sharding(csv, arena, &sharded));
    RP_TRY(add_reductions(&sharded, how->waits, arena, &reduced));
    RP_TRY(add_transfers(&reduced, arena, &sent));
    if (how->waits) {
        RP_TRY(add_waits(&sent, arena, &waited));
    } else {
        waited = sent;
    }
    if (how->receives == RP_TORCH_RECEIVES_JUST_IN_TIME) {
        RP_TRY(defer_receives(&waited, arena, csv_out));
    } else {
        *csv_out = waited;
    }
    csv_out->lowered = true;
    rp_torch_set_columns(csv_out);
    return RP_OK;
}
