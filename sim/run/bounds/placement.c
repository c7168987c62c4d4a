/* Lower bound on the makespan by the program's own data edges, hops and placement.
 *
 * Microbatches do not depend on each other through data, so heads and tails are those of a single
 * microbatch's chain. They are the same for all microbatches that run on the same GPUs, and are
 * computed once per change of placement. Units without work count only inside a path, because they
 * do not extend the makespan. */
#include "sim/run/bounds/bounds.h"

typedef struct chain_unit {
    int64_t pre_ps;    /* work that may run before the unit's dependencies (early recompute) */
    int64_t work_ps;   /* work that waits for the dependencies */
    int64_t weight_ps; /* the backward's weight part if it is an op of its own */
    int64_t head_ps;   /* earliest possible begin */
    int64_t
        tail_ps; /* longest path after the unit's end; -1: the unit and all after it are empty */
    uint32_t queue;
} chain_unit;

typedef struct gpu_bound {
    int64_t busy_ps;
    int64_t head_ps;
    int64_t tail_ps;
} gpu_bound;

typedef struct bound {
    const rp_program *program;
    const rp_producers *producers;
    int64_t hop_ps;
    uint32_t units; /* forward_count + backward_count */
    chain_unit *chain;
    gpu_bound *gpus;
    int64_t path_ps;
} bound;

static int64_t max_ps(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min_ps(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static uint32_t unit_op(const bound *b, uint32_t unit, uint32_t microbatch)
{
    uint32_t forwards = b->program->forward_count;
    if (unit < forwards) {
        return b->producers
            ->forward_at[rp_producers_forward_index(b->producers, 0, unit, microbatch)];
    }
    return b->producers
        ->backward_at[rp_producers_backward_index(b->producers, 0, unit - forwards, microbatch)];
}

/* Sets the durations of a microbatch's units: microbatches differ if only some split their
 * backward. */
static void set_durations(bound *b, const rp_stage_times *times, uint32_t microbatch)
{
    const rp_program *program = b->program;
    for (uint32_t i = 0; i < b->units; i++) {
        chain_unit *unit = &b->chain[i];
        uint32_t op = unit_op(b, i, microbatch);
        const rp_op *ops = program->ops;
        size_t row = (size_t)ops[op].stage * RP_OP_KIND_COUNT;
        *unit = (chain_unit){.work_ps = times->ps[row + ops[op].kind]};
        if (rp_op_kind_leaves_weights(ops[op].kind)) {
            unit->weight_ps = times->ps[row + RP_OP_BACKWARD_WEIGHT];
        }
        int64_t pre = 0;
        for (; op > 0 && (ops[op - 1].flags & RP_OP_JOIN) != 0; op--) {
            pre += times->ps[row + ops[op - 1].kind];
        }
        if (program->recompute == RP_RECOMPUTE_EARLY) {
            unit->pre_ps = pre;
        } else {
            unit->work_ps += pre;
        }
    }
}

/* Lists the units that unit `i` depends on, as indices into the chain. */
static uint32_t dependencies(const bound *b, uint32_t i, uint32_t out[static 2])
{
    const rp_program *program = b->program;
    uint32_t forwards = program->forward_count;
    uint32_t count = 0;
    if (i < forwards) {
        if (i != 0) {
            out[count++] = i - 1;
        }
        return count;
    }
    uint32_t own = b->producers->forward_position[program->backward_chain[i - forwards]];
    if (forwards != 0) {
        out[count++] = own != RP_NO_OP ? own : forwards - 1;
    }
    if (i > forwards) {
        out[count++] = i - 1;
    }
    return count;
}

static int64_t hop(const bound *b, uint32_t from, uint32_t to)
{
    return b->chain[from].queue != b->chain[to].queue ? b->hop_ps : 0;
}

static void walk_chain(bound *b)
{
    chain_unit *chain = b->chain;
    uint32_t deps[2];
    for (uint32_t i = 0; i < b->units; i++) {
        chain[i].head_ps = 0;
        chain[i].tail_ps = chain[i].pre_ps + chain[i].work_ps > 0 ? 0 : -1;
        if (chain[i].weight_ps > 0) {
            chain[i].tail_ps = chain[i].weight_ps;
        }
        uint32_t count = dependencies(b, i, deps);
        for (uint32_t d = 0; d < count; d++) {
            const chain_unit *from = &chain[deps[d]];
            int64_t end = from->head_ps + from->pre_ps + from->work_ps;
            chain[i].head_ps = max_ps(chain[i].head_ps, end + hop(b, deps[d], i) - chain[i].pre_ps);
        }
    }
    for (uint32_t i = b->units; i-- > 0;) {
        uint32_t count = chain[i].tail_ps < 0 ? 0 : dependencies(b, i, deps);
        for (uint32_t d = 0; d < count; d++) {
            chain_unit *from = &chain[deps[d]];
            int64_t path = hop(b, deps[d], i) + chain[i].work_ps + chain[i].tail_ps;
            from->tail_ps = max_ps(from->tail_ps, path);
        }
    }
}

static void merge_chain(bound *b)
{
    for (uint32_t i = 0; i < b->units; i++) {
        const chain_unit *unit = &b->chain[i];
        int64_t duration = unit->pre_ps + unit->work_ps;
        if (unit->tail_ps >= 0) {
            b->path_ps = max_ps(b->path_ps, unit->head_ps + duration + unit->tail_ps);
        }
        if (duration > 0) {
            gpu_bound *gpu = &b->gpus[unit->queue];
            gpu->head_ps = min_ps(gpu->head_ps, unit->head_ps);
            gpu->tail_ps = min_ps(gpu->tail_ps, unit->tail_ps);
        }
    }
}

static bool in_queue(const rp_program *program, uint32_t queue, uint32_t op)
{
    return op >= program->queues[queue].op_begin && op < program->queues[queue].op_end;
}

/* Marks each microbatch whose GPUs or kinds of ops differ from those of the microbatch before it.
 * Goes stage by stage, because the tables are contiguous in microbatches. */
static void find_moves(const bound *b, uint8_t *moved)
{
    const rp_program *program = b->program;
    bool split = b->producers->weight_at != NULL; /* some backwards are in two parts */
    moved[0] = 1;
    for (uint32_t i = 0; i < b->units; i++) {
        uint32_t before = unit_op(b, i, 0);
        uint32_t queue = rp_program_queue_of(program, before);
        for (uint32_t m = 1; m < program->microbatch_count; m++) {
            uint32_t op = unit_op(b, i, m);
            if (!in_queue(program, queue, op)) {
                queue = rp_program_queue_of(program, op);
                moved[m] = 1;
            }
            if (split && program->ops[op].kind != program->ops[before].kind) {
                moved[m] = 1;
            }
            before = op;
        }
    }
}

/* Adds the weight parts of `count` microbatches, which may run any time after their input part.
 * Nothing waits for a weight part, so it may be a GPU's last op. */
static void add_weights(bound *b, uint32_t first, uint32_t count)
{
    uint32_t forwards = b->program->forward_count;
    for (uint32_t i = forwards; i < b->units; i++) {
        const chain_unit *unit = &b->chain[i];
        for (uint32_t m = first; unit->weight_ps > 0 && m < first + count; m++) {
            size_t index = rp_producers_backward_index(b->producers, 0, i - forwards, m);
            uint32_t queue = rp_program_queue_of(b->program, b->producers->weight_at[index]);
            gpu_bound *gpu = &b->gpus[queue];
            gpu->busy_ps += unit->weight_ps;
            gpu->head_ps = min_ps(gpu->head_ps, unit->head_ps + unit->pre_ps + unit->work_ps);
            gpu->tail_ps = 0;
        }
    }
}

/* Adds `count` microbatches from `first` on, all placed in the same way. */
static void add_microbatches(bound *b, const rp_stage_times *times, uint32_t first, uint32_t count)
{
    set_durations(b, times, first);
    for (uint32_t i = 0; i < b->units; i++) {
        chain_unit *unit = &b->chain[i];
        unit->queue = rp_program_queue_of(b->program, unit_op(b, i, first));
        b->gpus[unit->queue].busy_ps += count * (unit->pre_ps + unit->work_ps);
    }
    walk_chain(b);
    merge_chain(b);
    add_weights(b, first, count);
}

static int64_t op_ps(const rp_stage_times *times, const rp_op *op)
{
    return times->ps[(size_t)op->stage * RP_OP_KIND_COUNT + op->kind];
}

/* Subtracts from the work the time that overlapped pairs save. */
static void subtract_savings(bound *b, const rp_stage_times *times)
{
    const rp_op *ops = b->program->ops;
    for (uint32_t i = 0; i < b->program->op_count && times->overlap_saving > 0; i++) {
        if ((ops[i].flags & RP_OP_OVERLAP) == 0) {
            continue;
        }
        uint32_t last = i + 1;
        int64_t unit_ps = op_ps(times, &ops[last]);
        for (; (ops[last].flags & RP_OP_JOIN) != 0; last++) {
            unit_ps += op_ps(times, &ops[last + 1]);
        }
        b->gpus[rp_program_queue_of(b->program, i)].busy_ps -=
            rp_overlap_saved_ps(times->overlap_saving, op_ps(times, &ops[i]), unit_ps);
    }
}

static int64_t combine(bound *b, const rp_stage_times *times, const uint8_t *moved)
{
    const rp_program *program = b->program;
    for (uint32_t q = 0; q < program->queue_count; q++) {
        b->gpus[q] = (gpu_bound){0, INT64_MAX, INT64_MAX};
    }
    for (uint32_t m = 0; m < program->microbatch_count;) {
        uint32_t end = m + 1;
        while (end < program->microbatch_count && moved[end] == 0) {
            end++;
        }
        add_microbatches(b, times, m, end - m);
        m = end;
    }
    subtract_savings(b, times);
    int64_t best = b->path_ps;
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const gpu_bound *gpu = &b->gpus[q];
        if (gpu->busy_ps > 0) {
            best = max_ps(best, gpu->head_ps + gpu->busy_ps + gpu->tail_ps);
        }
    }
    return best;
}

rp_status rpsim_lower_bound(const rp_producers *producers, const rp_stage_times *times,
                            int64_t *bound_ps_out)
{
    const rp_program *program = producers->program;
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    uint8_t *moved = NULL;
    bound b = {.program = program,
               .producers = producers,
               .hop_ps = times->hop_ps,
               .units = program->forward_count + program->backward_count};
    rp_status status = rp_arena_alloc(arena, b.units, sizeof(chain_unit), &b.chain);
    if (status == RP_OK) {
        status = rp_arena_alloc(arena, program->queue_count, sizeof(gpu_bound), &b.gpus);
    }
    if (status == RP_OK) {
        status = rp_arena_alloc(arena, program->microbatch_count, 1, &moved);
    }
    if (status == RP_OK) {
        find_moves(&b, moved);
        *bound_ps_out = combine(&b, times, moved);
    }
    rp_arena_destroy(arena);
    return status;
}
