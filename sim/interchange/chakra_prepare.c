/* Prepares a timeline for Chakra execution traces, and finds the causes of the ops' starts. */
#include "common/machine/machine.h"
#include "sim/interchange/chakra_internal.h"

#include <stdlib.h>
#include <string.h>

uint32_t rpsim_chakra_rank_of(const rpsim_chakra_export *x, uint32_t op)
{
    const rp_queue *queue = &x->program->queues[x->queue_of[op]];
    return rp_queue_kind_on_gpu((rp_queue_kind)queue->kind) ? queue->gpu : 0;
}

uint32_t rpsim_chakra_result_op(const rp_program *p, uint32_t op)
{
    bool overlaps = (p->ops[op].flags & RP_OP_OVERLAP) != 0;
    while (overlaps && (p->ops[op].flags & (RP_OP_JOIN | RP_OP_OVERLAP)) != 0) {
        op++;
    }
    return op;
}

/* True if a RECV op receives the tensor of a SEND op, by the validator's rule. */
static bool is_peer_wait(const rp_program *p, uint32_t op, uint32_t target)
{
    return rp_op_kind_receives(p->ops[op].kind) && rp_op_kind_sends(p->ops[target].kind) &&
           p->ops[op].microbatch == p->ops[target].microbatch &&
           p->ops[op].iteration == p->ops[target].iteration;
}

bool rpsim_chakra_is_message(const rpsim_chakra_export *x, uint32_t op, uint32_t target)
{
    return rpsim_chakra_rank_of(x, op) != rpsim_chakra_rank_of(x, target) &&
           !rp_op_kind_sends(x->program->ops[target].kind);
}

static void index_waits(rpsim_chakra_export *x)
{
    const rp_program *p = x->program;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < p->op_count; i++) {
            for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
                uint32_t target = rp_wait_op(p->waits[w]);
                x->consumer_of[w] = i;
                if (pass == 0 && is_peer_wait(p, i, target)) {
                    x->peer_wait[i] = w;
                    x->peer_wait[target] = w;
                }
                if (rpsim_chakra_is_message(x, i, target)) { /* counted, then filled */
                    x->out_begin[target + (pass == 0 ? 2 : 1)] += 1;
                    if (pass == 1) {
                        x->out_waits[x->out_begin[target + 1] - 1] = w;
                    }
                }
            }
        }
        for (uint32_t i = 0; pass == 0 && i < p->op_count; i++) {
            x->out_begin[i + 2] += x->out_begin[i + 1];
        }
    }
}

typedef struct engine_end {
    uint32_t engine;
    uint32_t op;
    int64_t end_ps;
} engine_end;

static int compare_ends(const void *a, const void *b)
{
    const engine_end *x = a;
    const engine_end *y = b;
    if (x->engine != y->engine) {
        return x->engine < y->engine ? -1 : 1;
    }
    if (x->end_ps != y->end_ps) {
        return x->end_ps < y->end_ps ? -1 : 1;
    }
    return x->op < y->op ? -1 : x->op > y->op;
}

/* Finds an op that used the key's copy engine until `key->end_ps`. */
static uint32_t find_end(const engine_end *ends, uint32_t count, const engine_end *key)
{
    uint32_t low = 0;
    uint32_t high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare_ends(&ends[middle], key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool found = low < count && ends[low].engine == key->engine && ends[low].end_ps == key->end_ps;
    return found ? ends[low].op : RPSIM_CHAKRA_NO_OP;
}

static int64_t ready_ps(const rpsim_chakra_export *x, uint32_t op)
{
    const rp_program *p = x->program;
    const int64_t *end_ps = x->timeline->end_ps;
    int64_t ready = op > p->queues[x->queue_of[op]].op_begin ? end_ps[op - 1] : 0;
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        int64_t end = end_ps[rp_wait_op(p->waits[w])];
        ready = end > ready ? end : ready;
    }
    return ready;
}

/* Finds the time when each op is ready. A collective is ready when all its parts are. */
static rp_status find_ready(const rpsim_chakra_export *x, rp_arena *arena, int64_t **ready_out)
{
    const rp_program *p = x->program;
    uint32_t *ordinal = NULL;
    uint32_t *count = NULL;
    uint32_t most = 0;
    int64_t *meeting_ps = NULL;
    RP_TRY(rpsim_chakra_index_meetings(p, arena, &ordinal, &count, &most));
    RP_TRY(rp_arena_alloc(arena, most, sizeof *meeting_ps, &meeting_ps));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof **ready_out, ready_out));
    for (uint32_t i = 0; i < p->op_count; i++) {
        int64_t ready = (*ready_out)[i] = ready_ps(x, i);
        if (ordinal[i] != RPSIM_CHAKRA_NO_OP && ready > meeting_ps[ordinal[i]]) {
            meeting_ps[ordinal[i]] = ready;
        }
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        (*ready_out)[i] =
            ordinal[i] != RPSIM_CHAKRA_NO_OP ? meeting_ps[ordinal[i]] : (*ready_out)[i];
    }
    return RP_OK;
}

/* In lowered programs, finds the reason why an op starts later than its queue and its waits allow:
 * its copy engine, or a delay. */
static rp_status find_delays(rpsim_chakra_export *x, rp_arena *arena)
{
    const rp_program *p = x->program;
    const rp_timeline *t = x->timeline;
    engine_end *ends = NULL;
    uint32_t count = 0;
    int64_t *ready = NULL;
    RP_TRY(find_ready(x, arena, &ready));
    RP_TRY(rp_arena_alloc_raw(arena, p->op_count, sizeof *ends, &ends));
    for (uint32_t i = 0; i < p->op_count; i++) {
        uint32_t engine = rp_copy_engine(NULL, &p->queues[x->queue_of[i]]);
        if (engine != RP_NO_ENGINE && t->end_ps[i] > t->start_ps[i]) {
            ends[count++] = (engine_end){engine, i, t->end_ps[i]};
        }
    }
    qsort(ends, count, sizeof *ends, compare_ends);
    for (uint32_t i = 0; i < p->op_count; i++) {
        engine_end key = {.engine = rp_copy_engine(NULL, &p->queues[x->queue_of[i]]),
                          .end_ps = t->start_ps[i]};
        int64_t delay_ps = t->start_ps[i] - ready[i];
        if (delay_ps > 0 && key.engine != RP_NO_ENGINE) {
            x->engine_after[i] = find_end(ends, count, &key);
        }
        x->delay_ps[i] = delay_ps > 0 && x->engine_after[i] == RPSIM_CHAKRA_NO_OP ? delay_ps : 0;
    }
    return RP_OK;
}

/* In compute schedules, the waits of a pair's later ops hold the whole pair, so these ops start
 * after their waits by the time that the pair's forward runs alone. */
static void find_pairs(rpsim_chakra_export *x)
{
    const rp_program *p = x->program;
    const int64_t *start_ps = x->timeline->start_ps;
    for (uint32_t f = 0; f < p->op_count; f++) {
        bool overlaps = (p->ops[f].flags & RP_OP_OVERLAP) != 0;
        for (uint32_t i = f + 2; overlaps && i <= rpsim_chakra_result_op(p, f); i++) {
            bool waits = p->ops[i + 1].wait_begin > p->ops[i].wait_begin;
            x->delay_ps[i] = waits ? start_ps[f + 1] - start_ps[f] : 0;
        }
    }
}

rp_status rpsim_chakra_prepare(const rp_timeline *timeline, int64_t hop_ps, uint64_t boundary_bytes,
                               rpsim_chakra_host host, rp_arena *arena,
                               rpsim_chakra_export **export_out)
{
    rpsim_chakra_export *x = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *x, &x));
    *x = (rpsim_chakra_export){.host = host, .boundary_bytes = boundary_bytes};
    RP_TRY(rpsim_chakra_expand(timeline, host == RPSIM_CHAKRA_HOST_DELAY, arena, &x->timeline,
                               &x->tail));
    const rp_program *p = x->program = x->timeline->program;
    x->hop_ps = p->op_bytes == NULL ? hop_ps : 0;
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), &x->queue_of));
    RP_TRY(rp_arena_alloc(arena, p->wait_count, sizeof(uint32_t), &x->consumer_of));
    RP_TRY(rp_arena_alloc(arena, (size_t)p->op_count + 2, sizeof(uint32_t), &x->out_begin));
    RP_TRY(rp_arena_alloc(arena, p->wait_count, sizeof(uint32_t), &x->out_waits));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), &x->peer_wait));
    RP_TRY(rp_arena_alloc_raw(arena, p->op_count, sizeof(uint32_t), &x->engine_after));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(int64_t), &x->delay_ps));
    RP_TRY(rp_arena_alloc(arena, (size_t)p->op_count + 1, sizeof(uint32_t), &x->before_begin));
    memset(x->engine_after, 0xff, p->op_count * sizeof(uint32_t));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            x->queue_of[i] = q;
        }
    }
    index_waits(x);
    *export_out = x;
    if (p->op_bytes != NULL) {
        RP_TRY(find_delays(x, arena));
        return rpsim_chakra_order_collectives(x, arena);
    }
    find_pairs(x);
    return RP_OK;
}

bool rpsim_chakra_loses_precision(const rpsim_chakra_export *x)
{
    bool loses = x->hop_ps % RPSIM_CHAKRA_PS_PER_US != 0;
    for (uint32_t i = 0; i < x->program->op_count && !loses; i++) {
        loses = (x->timeline->end_ps[i] - x->timeline->start_ps[i]) % RPSIM_CHAKRA_PS_PER_US != 0 ||
                x->delay_ps[i] % RPSIM_CHAKRA_PS_PER_US != 0;
    }
    return loses;
}
