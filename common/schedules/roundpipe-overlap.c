/* RoundPipe with overlapping rounds.
 *
 * RoundPipe's idle time. A round of RoundPipe enters the GPUs stage by stage: GPU k has no work
 * until the round's first microbatch has gone through k stages, and at the end of an iteration GPU
 * N-1-k has no more work k stages before the last stage ends. The next round begins only after the
 * whole round before it, so that nothing fills these gaps; with two rounds per iteration they are
 * most of the bubble.
 *
 * Rule. Rounds have R microbatches as in RoundPipe, but are as equal as possible (20 microbatches
 * in rounds of at most 8 are 7 + 7 + 6, not 8 + 8 + 4). Up to W = max(2, ceil(2 N / R)) rounds, at
 * most MAX_WINDOW, are in flight at once: with R = N two. Jobs (a stage with all microbatches of
 * its round, as in RoundPipe) are dispatched singly. Among the next jobs of the rounds in flight,
 * the job with the earliest possible start on any GPU is dispatched; on ties the job furthest in
 * its round, then the job of the older round. It goes to the GPU on which it can begin at that
 * time; among several GPUs, to the GPU that has become free last, so that the others stay free for
 * later jobs, then to the lowest. A round never overtakes the round before it: its job j is
 * dispatched after job j of the earlier round, so that the oldest round always makes progress.
 *
 * Times. Like RoundPipe's free-first start, dispatch replays stage times; the resulting program has
 * fixed placements.
 *
 * Correctness. A job is dispatched after all jobs that it depends on, and every GPU runs its jobs
 * in the order of dispatch: that order is a topological order of all ops, so no deadlock is
 * possible. Every (stage, microbatch) belongs to exactly 1 job. An iteration's jobs are dispatched
 * after those of the iteration before, so that iterations overlap as in RoundPipe and weights are
 * as stale as in RoundPipe.
 *
 * Costs. There are as many jobs as in RoundPipe with the same R: every stage's weights are uploaded
 * and its gradients downloaded as often, and a GPU holds two stages as before. The boundary
 * activations of W rounds are in host memory instead of those of a single round. Gradients:
 * RoundPipe accumulates rounds (calls of a step) on the GPU, so that a stage's next backward cannot
 * begin before its backward of the round before has ended and its gradients have gone down and up
 * again. Here every round of a step has its own slot in host memory, 2 bytes per parameter, and the
 * host adds the slots in the order of rounds when it collects them: the same sum of the same terms
 * in every run, at the precision of the master gradients.
 *
 * On a GPU jobs follow each other without a pause, so that the gradients of a job go down while the
 * next job accumulates its own: twice a stage's weights and gradients must fit, which RoundPipe,
 * with its idle time, does not need.
 *
 * Runs that do not gain (numbers: experiments/optimality.md). A single round per iteration
 * (microbatches <= R): there is nothing to overlap. Many rounds per iteration: fill and drain are
 * paid once per iteration and are small anyway. Asynchronous iterations: the next iteration fills
 * the gaps, and only the little idle time inside remains. If the host's optimizer takes longer than
 * the step's compute (gpt-oss-20b and qwen3-235b with 16 microbatches, asynchronous), the slots add
 * work to the bottleneck, and RoundPipe in a single call is better. If a GPU holds little more than
 * a layer (qwen3-235b on 24 GB), the schedule does not fit. Greedy dispatch looks only 1 job ahead
 * and is not optimal. */
#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/schedule/orders/round_replay.h"

#define MAX_WINDOW 16u

typedef struct dispatched {
    uint32_t round;
    uint32_t job;
} dispatched;

typedef struct plan {
    uint32_t rounds;  /* per iteration */
    dispatched *jobs; /* sorted by iteration, GPU and dispatch */
    /* [iteration * gpus + gpu] its first job; one past the end at the last index. */
    uint32_t *begin;
} plan;

/* Dispatch of an iteration. */
typedef struct dispatcher {
    const rp_schedule_config *config;
    rp_replay replay;
    uint32_t rounds;
    uint32_t window;
    rp_replay_round *flight; /* [window] round k is at k mod window */
    uint32_t oldest;         /* oldest round in flight */
    uint32_t *gpu_of;        /* [dispatched job] */
} dispatcher;

static uint32_t round_begin(const rp_schedule_config *config, uint32_t rounds, uint32_t round)
{
    return (uint32_t)((uint64_t)config->microbatches * round / rounds);
}

static rp_replay_round *in_flight(const dispatcher *d, uint32_t round)
{
    return &d->flight[round % d->window];
}

static uint32_t end_of_flight(const dispatcher *d)
{
    uint32_t end = d->oldest + d->window;
    return end < d->rounds ? end : d->rounds;
}

static void begin_round(dispatcher *d, uint32_t round)
{
    uint32_t begin = round_begin(d->config, d->rounds, round);
    rp_replay_round_begin(round_begin(d->config, d->rounds, round + 1) - begin,
                          in_flight(d, round));
}

static uint32_t free_first(const dispatcher *d)
{
    uint32_t best = 0;
    for (uint32_t gpu = 1; gpu < d->config->gpus; gpu++) {
        best = d->replay.free_ps[gpu] < d->replay.free_ps[best] ? gpu : best;
    }
    return best;
}

/* A hop depends only on whether the GPU is one of the two that ran the round's latest stages:
 * either these GPUs or the GPU that is free first start the job earliest. */
static int64_t earliest_start(const dispatcher *d, const rp_replay_round *round, uint32_t free_gpu)
{
    int64_t start = rp_replay_start(&d->replay, round, free_gpu);
    const uint32_t near[] = {round->forward_gpu, round->backward_gpu};
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
        int64_t other = rp_replay_start(&d->replay, round, near[i]);
        start = other < start ? other : start;
    }
    return start;
}

static uint32_t choose_round(const dispatcher *d, int64_t *start_out)
{
    uint32_t free_gpu = free_first(d);
    uint32_t best = d->oldest;
    *start_out = INT64_MAX;
    for (uint32_t k = d->oldest; k < end_of_flight(d); k++) {
        const rp_replay_round *round = in_flight(d, k);
        bool overtakes = k > d->oldest && round->next >= in_flight(d, k - 1)->next;
        if (rp_replay_done(&d->replay, round) ||
            (overtakes && !rp_replay_done(&d->replay, in_flight(d, k - 1)))) {
            continue;
        }
        int64_t start = earliest_start(d, round, free_gpu);
        bool tie = start == *start_out && round->next > in_flight(d, best)->next;
        if (start < *start_out || tie) {
            *start_out = start;
            best = k;
        }
    }
    return best;
}

/* Among the GPUs on which the job can begin at `start`, the GPU that has become free last. */
static uint32_t choose_gpu(const dispatcher *d, const rp_replay_round *round, int64_t start)
{
    uint32_t best = UINT32_MAX;
    const int64_t *free_ps = d->replay.free_ps;
    for (uint32_t gpu = 0; gpu < d->config->gpus; gpu++) {
        if (free_ps[gpu] <= start && (best == UINT32_MAX || free_ps[gpu] > free_ps[best]) &&
            rp_replay_start(&d->replay, round, gpu) == start) {
            best = gpu;
        }
    }
    return best;
}

static void dispatch_iteration(dispatcher *d, dispatched *jobs, uint32_t job_count)
{
    d->oldest = 0;
    for (uint32_t k = 0; k < end_of_flight(d); k++) {
        begin_round(d, k);
    }
    for (uint32_t i = 0; i < job_count; i++) {
        int64_t start = 0;
        uint32_t chosen = choose_round(d, &start);
        rp_replay_round *round = in_flight(d, chosen);
        uint32_t gpu = choose_gpu(d, round, start);
        jobs[i] = (dispatched){chosen, round->next};
        d->gpu_of[i] = gpu;
        rp_replay_run(&d->replay, round, gpu);
        while (d->oldest < d->rounds && rp_replay_done(&d->replay, in_flight(d, d->oldest))) {
            uint32_t entering = d->oldest + d->window;
            d->oldest++;
            if (entering < d->rounds) {
                begin_round(d, entering);
            }
        }
    }
}

/* Appends the iteration's jobs to the plan, GPU by GPU, in the order of dispatch. */
static void sort_by_gpu(const dispatcher *d, const dispatched *jobs, uint32_t job_count,
                        uint32_t iteration, plan *p)
{
    uint32_t gpus = d->config->gpus;
    uint32_t *begin = &p->begin[(size_t)iteration * gpus];
    for (uint32_t i = 0; i < job_count; i++) {
        begin[d->gpu_of[i] + 1]++; /* the iteration's entries after the first are still 0 */
    }
    for (uint32_t gpu = 0; gpu < gpus; gpu++) {
        begin[gpu + 1] += begin[gpu];
    }
    for (uint32_t i = job_count; i-- > 0;) {
        /* Going backwards moves the end of each GPU's jobs down to their begin. */
        p->jobs[--begin[d->gpu_of[i] + 1]] = jobs[i];
    }
    for (uint32_t gpu = 0; gpu < gpus; gpu++) {
        begin[gpu] = begin[gpu + 1];
    }
    begin[gpus] = (iteration + 1) * job_count;
}

static rp_status dispatch(dispatcher *d, rp_arena *arena, plan *p, rp_reason *reason)
{
    const rp_schedule_config *config = d->config;
    const rp_program *program = d->replay.program;
    uint64_t job_count = (uint64_t)p->rounds * (program->forward_count + program->backward_count);
    uint64_t all = job_count * config->iterations;
    if (all > RP_MAX_OPS) {
        return rp_refuse(
            reason, RP_USAGE,
            "roundpipe-overlap: %llu jobs; valid are up to %u: use fewer rounds, stages "
            "or iterations",
            (unsigned long long)all, RP_MAX_OPS);
    }
    dispatched *jobs = NULL;
    RP_TRY(rp_arena_alloc(arena, job_count, sizeof *jobs, &jobs));
    RP_TRY(rp_arena_alloc(arena, job_count, sizeof(uint32_t), &d->gpu_of));
    RP_TRY(rp_arena_alloc(arena, all, sizeof *p->jobs, &p->jobs));
    RP_TRY(rp_arena_alloc(arena, (size_t)config->iterations * config->gpus + 1, sizeof(uint32_t),
                          &p->begin));
    for (uint32_t i = 0; i < config->iterations; i++) {
        for (uint32_t gpu = 0; gpu < config->gpus && !config->asynchronous; gpu++) {
            d->replay.free_ps[gpu] = 0; /* after the barrier of a synchronous iteration */
        }
        dispatch_iteration(d, jobs, (uint32_t)job_count);
        sort_by_gpu(d, jobs, (uint32_t)job_count, i, p);
    }
    return RP_OK;
}

static rp_status prepare(const rp_schedule_config *config, const rp_program *program,
                         rp_arena *arena, void **plan_out, rp_reason *reason)
{
    plan *p = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *p, &p));
    bool all = config->round == RP_ROUND_ALL || config->round >= config->microbatches;
    uint32_t most = all ? config->microbatches : config->round;
    p->rounds = (config->microbatches - 1) / most + 1;
    uint64_t window = (2 * (uint64_t)config->gpus + most - 1) / most;
    window = window < 2 ? 2 : window;
    dispatcher d = {.config = config, .rounds = p->rounds};
    d.window = window < MAX_WINDOW ? (uint32_t)window : MAX_WINDOW;
    d.window = d.window < p->rounds ? d.window : p->rounds;
    RP_TRY(rp_replay_init(config, program, arena, &d.replay, reason));
    RP_TRY(rp_arena_alloc(arena, d.window, sizeof *d.flight, &d.flight));
    for (uint32_t k = 0; k < d.window; k++) {
        RP_TRY(rp_replay_round_init(most, arena, &d.flight[k]));
    }
    *plan_out = p;
    return dispatch(&d, arena, p, reason);
}

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    if (config->costs == NULL) {
        return rp_refuse(reason, RP_USAGE,
                         "{costs}: roundpipe-overlap dispatches by time, which needs a cost table; "
                         "without one valid is {schedule} roundpipe {round} all");
    }
    return RP_OK;
}

static void order(const rp_schedule_config *config, const void *plan_pointer, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    const plan *p = plan_pointer;
    uint32_t forwards = config->partition->forward_count;
    size_t row = (size_t)iteration * config->gpus + rank;
    for (uint32_t i = p->begin[row]; i < p->begin[row + 1]; i++) {
        const dispatched *d = &p->jobs[i];
        uint32_t end = round_begin(config, p->rounds, d->round + 1);
        for (uint32_t m = round_begin(config, p->rounds, d->round); m < end; m++) {
            if (d->job < forwards) {
                rp_emit_forward(emitter, d->job, m);
            } else {
                rp_emit_backward(emitter, d->job, m);
            }
        }
    }
}

const rp_schedule_type rp_schedule_roundpipe_overlap = {
    .name = "roundpipe-overlap",
    .summary = "RoundPipe whose rounds overlap: the job that can begin first, where it can",
    .source = "this project; experiments/optimality.md",
    .partitions_of = "roundpipe",
    .separate_backward = true,
    .rounds = true,
    .traits =
        {
            .overlapping_rounds = true,
            .placement = RP_PLACEMENT_OFFLOAD,
        },
    .default_recompute = RP_RECOMPUTE_EARLY,
    .check = check,
    .prepare = prepare,
    .order = order,
};
