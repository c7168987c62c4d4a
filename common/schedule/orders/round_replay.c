#include "common/schedule/orders/round_replay.h"

#include "common/base/units.h"
/* Properties of the next job that do not depend on the microbatch. */
typedef struct job_times {
    bool backward;
    bool first;        /* the first job of its direction */
    int64_t ahead_ps;  /* pre-work that may run before the job's dependencies (early recompute) */
    int64_t length_ps; /* time of a microbatch, pre-work included */
    int64_t forward_hop_ps;
    int64_t backward_hop_ps;
} job_times;

static job_times times_of(const rp_replay *r, const rp_replay_round *round, uint32_t gpu)
{
    const rp_program *program = r->program;
    uint32_t forwards = program->forward_count;
    job_times t = {.backward = round->next >= forwards};
    uint32_t position = t.backward ? round->next - forwards : round->next;
    uint32_t stage = t.backward ? program->backward_chain[position] : position;
    const int64_t *ps = &r->times.ps[(size_t)stage * RP_OP_KIND_COUNT];
    t.first = position == 0;
    t.forward_hop_ps = gpu != round->forward_gpu ? r->times.hop_ps : 0;
    if (!t.backward) {
        t.length_ps = ps[RP_OP_FORWARD];
        return t;
    }
    bool fused = (program->stages[stage].roles & RP_STAGE_FORWARD_LAYERS) != 0;
    bool recomputes = rp_recompute_has_ops(program->recompute) && !fused;
    int64_t pre = (recomputes ? ps[RP_OP_RECOMPUTE] : 0) + (t.first ? ps[RP_OP_FORWARD] : 0);
    t.ahead_ps = program->recompute == RP_RECOMPUTE_EARLY ? pre : 0;
    t.length_ps = pre + ps[RP_OP_BACKWARD];
    t.backward_hop_ps = gpu != round->backward_gpu ? r->times.hop_ps : 0;
    return t;
}

/* Time at which the dependencies of microbatch `m` allow it to begin; may be negative with
 * pre-work. */
static int64_t ready_ps(const rp_replay *r, const rp_replay_round *round, const job_times *t,
                        uint32_t m)
{
    bool no_forward = t->backward ? r->program->forward_count == 0 : t->first;
    int64_t ready = no_forward ? 0 : round->forward_ps[m] + t->forward_hop_ps;
    if (t->backward && !t->first) {
        ready = rp_max_ps(ready, round->backward_ps[m] + t->backward_hop_ps);
    }
    return ready - t->ahead_ps;
}

rp_status rp_replay_init(const rp_schedule_config *config, const rp_program *program,
                         rp_arena *arena, rp_replay *replay_out, rp_reason *reason)
{
    *replay_out = (rp_replay){.program = program};
    RP_TRY(rp_stage_times_compute(program, config->costs, arena, &replay_out->times, reason));
    return rp_arena_alloc(arena, config->gpus, sizeof(int64_t), &replay_out->free_ps);
}

rp_status rp_replay_round_init(uint32_t capacity, rp_arena *arena, rp_replay_round *round_out)
{
    *round_out = (rp_replay_round){0};
    RP_TRY(rp_arena_alloc(arena, capacity, sizeof(int64_t), &round_out->forward_ps));
    return rp_arena_alloc(arena, capacity, sizeof(int64_t), &round_out->backward_ps);
}

void rp_replay_round_begin(uint32_t count, rp_replay_round *round)
{
    round->count = count;
    round->next = 0;
}

int64_t rp_replay_start(const rp_replay *r, const rp_replay_round *round, uint32_t gpu)
{
    job_times t = times_of(r, round, gpu);
    return rp_max_ps(r->free_ps[gpu], ready_ps(r, round, &t, 0));
}

void rp_replay_run(rp_replay *r, rp_replay_round *round, uint32_t gpu)
{
    job_times t = times_of(r, round, gpu);
    int64_t now = r->free_ps[gpu];
    int64_t *ends = t.backward ? round->backward_ps : round->forward_ps;
    for (uint32_t m = 0; m < round->count; m++) {
        now = rp_max_ps(now, ready_ps(r, round, &t, m)) + t.length_ps;
        ends[m] = now;
    }
    r->free_ps[gpu] = now;
    if (t.backward) {
        round->backward_gpu = gpu;
    } else {
        round->forward_gpu = gpu;
    }
    round->next++;
}

bool rp_replay_done(const rp_replay *r, const rp_replay_round *round)
{
    return round->next == r->program->forward_count + r->program->backward_count;
}
