/* RoundPipe: GPUs are a pool of stateless workers. Rounds have at most R microbatches; in a round
 * that begins on GPU g, forward stage s runs on GPU (g + s) mod N and backward stage j on (g +
 * #forward + j) mod N, each for all microbatches of the round in order.
 *
 * The next round begins on the GPU that is free first (lowest index on ties), as in the paper's own
 * simulation, or simply continues the rotation, as in the library; with --round all the whole call
 * is a single round and the rotation never resets. The free-first rule needs times: the schedule
 * replays its own stage times (schedules.md 7), and the resulting program has fixed placements. */
#include "common/base/reason.h"
#include "common/schedule/orders/round_replay.h"

typedef struct round_plan {
    uint32_t round;  /* microbatches per round */
    uint32_t rounds; /* per iteration */
    uint16_t *start; /* [iteration * rounds + round] GPU of the round's first job */
} round_plan;

static uint32_t free_first(const rp_replay *r)
{
    uint32_t best = 0;
    for (uint32_t gpu = 1; gpu < r->program->gpu_count; gpu++) {
        if (r->free_ps[gpu] < r->free_ps[best]) {
            best = gpu;
        }
    }
    return best;
}

static uint32_t round_size(const rp_schedule_config *config, const round_plan *plan, uint32_t round)
{
    uint32_t begin = round * plan->round;
    uint32_t left = config->microbatches - begin;
    return left < plan->round ? left : plan->round;
}

static rp_status plan_free_first(const rp_schedule_config *config, const rp_program *program,
                                 rp_arena *arena, round_plan *plan, rp_reason *reason)
{
    rp_replay r;
    rp_replay_round round_replay;
    RP_TRY(rp_replay_init(config, program, arena, &r, reason));
    RP_TRY(rp_replay_round_init(plan->round, arena, &round_replay));
    for (uint32_t i = 0; i < config->iterations; i++) {
        for (uint32_t round = 0; round < plan->rounds; round++) {
            /* After the barrier of a synchronous iteration all GPUs are free at once. */
            bool all_free = round == 0 && !config->asynchronous;
            uint32_t start = all_free ? 0 : free_first(&r);
            plan->start[(size_t)i * plan->rounds + round] = (uint16_t)start;
            if (all_free) {
                for (uint32_t gpu = 0; gpu < config->gpus; gpu++) {
                    r.free_ps[gpu] = 0;
                }
            }
            rp_replay_round_begin(round_size(config, plan, round), &round_replay);
            while (!rp_replay_done(&r, &round_replay)) {
                rp_replay_run(&r, &round_replay, (start + round_replay.next) % config->gpus);
            }
        }
    }
    return RP_OK;
}

static void plan_rotation(const rp_schedule_config *config, const rp_program *program,
                          round_plan *plan)
{
    uint64_t jobs = (uint64_t)program->forward_count + program->backward_count;
    for (uint64_t k = 0; k < (uint64_t)config->iterations * plan->rounds; k++) {
        plan->start[k] = (uint16_t)(k * jobs % config->gpus);
    }
}

static rp_status prepare(const rp_schedule_config *config, const rp_program *program,
                         rp_arena *arena, void **plan_out, rp_reason *reason)
{
    round_plan *plan = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *plan, &plan));
    bool all = config->round == RP_ROUND_ALL || config->round >= config->microbatches;
    plan->round = all ? config->microbatches : config->round;
    plan->rounds = (config->microbatches - 1) / plan->round + 1;
    RP_TRY(rp_arena_alloc(arena, (size_t)config->iterations * plan->rounds, sizeof(uint16_t),
                          &plan->start));
    *plan_out = plan;
    if (config->round == RP_ROUND_ALL || config->round_start == RP_ROUND_START_ROTATE) {
        plan_rotation(config, program, plan);
        return RP_OK;
    }
    return plan_free_first(config, program, arena, plan, reason);
}

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    bool free_first_start =
        config->round != RP_ROUND_ALL && config->round_start == RP_ROUND_START_FREE_FIRST;
    if (free_first_start && config->costs == NULL) {
        return rp_refuse(
            reason, RP_USAGE,
            "{round}: roundpipe starts a round on the GPU that is free first, which needs "
            "a cost table; without one valid are {round} all and {round_start} rotate");
    }
    return RP_OK;
}

/* Job k of a round that begins on GPU `start` runs on this rank when k = rank - start modulo N. */
static void order(const rp_schedule_config *config, const void *plan_pointer, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    const round_plan *plan = plan_pointer;
    const rp_partition *partition = config->partition;
    uint32_t jobs = partition->forward_count + partition->backward_count;
    for (uint32_t round = 0; round < plan->rounds; round++) {
        uint32_t start = plan->start[(size_t)iteration * plan->rounds + round];
        uint32_t begin = round * plan->round;
        uint32_t end = begin + round_size(config, plan, round);
        for (uint32_t job = (rank + config->gpus - start) % config->gpus; job < jobs;
             job += config->gpus) {
            bool forward = job < partition->forward_count;
            for (uint32_t m = begin; m < end; m++) {
                if (forward) {
                    rp_emit_forward(emitter, job, m);
                } else {
                    rp_emit_backward(emitter, job, m);
                }
            }
        }
    }
}

const rp_schedule_type rp_schedule_roundpipe = {
    .name = "roundpipe",
    .summary = "stages dispatched round-robin to stateless GPUs, separate backward stages",
    .source = "RoundPipe, arXiv 2604.27085, section 4; dispatch as its artifact simulates it",
    .separate_backward = true,
    .rounds = true,
    .library_memory = true,
    .traits =
        {
            .placement = RP_PLACEMENT_OFFLOAD,
            .one_dispatcher = true,
        },
    .default_recompute = RP_RECOMPUTE_EARLY,
    .check = check,
    .prepare = prepare,
    .order = order,
};
