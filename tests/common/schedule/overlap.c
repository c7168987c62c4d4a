/* roundpipe-overlap against a slow, independent dispatcher and closed forms. */
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "sim/run/hardware_case.h"
#include "tests/support/assertions.h"
#include "tests/support/hand_run.h"
#include "tests/support/random_case.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(overlap, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

/* ---- the rule again, as in its file's head comment ------------------------------------------- */

enum { MOST_GPUS = 16, MOST_MICROBATCHES = 64 };

typedef struct slow_job {
    bool backward;
    bool first;
    int64_t pre;
    int64_t work;
} slow_job;

typedef struct slow_round {
    uint32_t microbatches;
    uint32_t next;
    int64_t forward_end[MOST_MICROBATCHES];
    int64_t backward_end[MOST_MICROBATCHES];
    uint32_t forward_gpu;
    uint32_t backward_gpu;
} slow_round;

typedef struct slow_pool {
    slow_job *jobs;
    uint32_t job_count;
    uint32_t gpus;
    int64_t hop;
    bool early;
    bool has_forward;
    int64_t free_at[MOST_GPUS];
} slow_pool;

static int64_t slow_begin(const slow_pool *s, const slow_round *r, uint32_t m, uint32_t gpu,
                          int64_t free_at)
{
    const slow_job *job = &s->jobs[r->next];
    int64_t needs = INT64_MIN;
    if (job->backward ? s->has_forward : !job->first) {
        needs = r->forward_end[m] + (gpu == r->forward_gpu ? 0 : s->hop);
    }
    if (job->backward && !job->first) {
        int64_t gradient = r->backward_end[m] + (gpu == r->backward_gpu ? 0 : s->hop);
        needs = gradient > needs ? gradient : needs;
    }
    needs = needs == INT64_MIN ? 0 : needs - (s->early ? job->pre : 0);
    return needs > free_at ? needs : free_at;
}

static void slow_dispatch(slow_pool *s, slow_round *r, uint32_t gpu)
{
    const slow_job *job = &s->jobs[r->next];
    for (uint32_t m = 0; m < r->microbatches; m++) {
        int64_t start = slow_begin(s, r, m, gpu, s->free_at[gpu]);
        s->free_at[gpu] = start + job->pre + job->work;
        (job->backward ? r->backward_end : r->forward_end)[m] = s->free_at[gpu];
    }
    if (job->backward) {
        r->backward_gpu = gpu;
    } else {
        r->forward_gpu = gpu;
    }
    r->next++;
}

/* Every round in flight x every GPU, in the rule's order of preference. */
static int64_t slow_makespan(slow_pool *s, uint32_t microbatches, uint32_t round)
{
    uint32_t rounds = (microbatches + round - 1) / round;
    uint32_t window = (2 * s->gpus + round - 1) / round;
    window = window < 2 ? 2 : window > 16 ? 16 : window;
    slow_round *all = calloc(rounds, sizeof *all);
    cr_assert(all != NULL);
    for (uint32_t k = 0; k < rounds; k++) {
        all[k].microbatches = microbatches * (k + 1) / rounds - microbatches * k / rounds;
    }
    for (uint32_t left = rounds * s->job_count; left > 0; left--) {
        uint32_t best_round = UINT32_MAX;
        uint32_t best_gpu = 0;
        int64_t best = INT64_MAX;
        uint32_t done = 0;
        while (all[done].next == s->job_count) {
            done++;
        }
        for (uint32_t k = done; k < rounds && k < done + window; k++) {
            if (all[k].next == s->job_count ||
                (k > 0 && all[k - 1].next < s->job_count && all[k].next >= all[k - 1].next)) {
                continue;
            }
            for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
                int64_t start = slow_begin(s, &all[k], 0, gpu, s->free_at[gpu]);
                bool better = start < best;
                if (start == best && best_round != UINT32_MAX) {
                    better = best_round == k ? s->free_at[gpu] > s->free_at[best_gpu]
                                             : all[k].next > all[best_round].next;
                }
                if (better) {
                    best = start;
                    best_round = k;
                    best_gpu = gpu;
                }
            }
        }
        slow_dispatch(s, &all[best_round], best_gpu);
    }
    free(all);
    int64_t makespan = 0;
    for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
        makespan = s->free_at[gpu] > makespan ? s->free_at[gpu] : makespan;
    }
    return makespan;
}

/* A random cut of `layers` into non-empty stages. */
static uint32_t cut(rp_random *random, uint32_t layers, uint32_t *stages)
{
    uint32_t count = 0;
    while (layers > 0) {
        stages[count] = rp_random_between(random, 1, layers < 4 ? layers : 4);
        layers -= stages[count++];
    }
    return count;
}

static void make_jobs(const rp_costs *costs, const rp_partition *p, bool recompute, slow_pool *s)
{
    uint32_t layer = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->forward_count; i++) {
        s->jobs[n] = (slow_job){.first = i == 0};
        for (uint32_t k = 0; k < p->forward_layers[i]; k++) {
            s->jobs[n].work += costs->fwd_ps[layer++];
        }
        n++;
    }
    bool fused = layer < costs->layers;
    layer = costs->layers;
    for (uint32_t j = 0; j < p->backward_count; j++) {
        slow_job job = {.backward = true, .first = j == 0};
        for (uint32_t k = 0; k < p->backward_layers[j]; k++) {
            layer--;
            job.work += costs->bwd_ps[layer];
            job.pre += recompute || (j == 0 && fused) ? costs->fwd_ps[layer] : 0;
        }
        job.pre += j == 0 ? costs->head_fwd_ps : 0;
        job.work += j == 0 ? costs->head_bwd_ps : 0;
        s->jobs[n++] = job;
    }
    s->job_count = n;
    s->has_forward = p->forward_count != 0;
}

static void compare(rp_random *random)
{
    enum { LAYERS = 12 };
    uint32_t forward[LAYERS];
    uint32_t backward[LAYERS + 1];
    slow_job jobs[2 * LAYERS + 1];
    rp_costs costs;
    rp_test_equal_costs(rp_test_arena, LAYERS, 7, 16, &costs);
    for (uint32_t i = 0; i < LAYERS; i++) {
        costs.fwd_ps[i] = rp_random_between(random, 1, 9);
        costs.bwd_ps[i] = rp_random_between(random, 1, 19);
    }
    costs.head_fwd_ps = rp_random_between(random, 0, 20);
    costs.head_bwd_ps = rp_random_between(random, 1, 40);
    costs.hop_ps = rp_random_between(random, 0, 5);
    uint32_t fused = rp_random_between(random, 0, 3);
    rp_partition partition = {.forward_layers = forward, .backward_layers = backward};
    partition.forward_count = cut(random, LAYERS - fused, forward);
    backward[0] = fused;
    partition.backward_count = 1 + cut(random, LAYERS - fused, backward + 1);
    rp_schedule_config config = {.gpus = rp_random_between(random, 1, MOST_GPUS),
                                 .microbatches = rp_random_between(random, 1, MOST_MICROBATCHES),
                                 .iterations = 1,
                                 .recompute = (rp_recompute)rp_random_between(random, 0, 2),
                                 .layers = LAYERS,
                                 .partition = &partition,
                                 .costs = &costs};
    config.round = rp_random_between(random, 1, config.microbatches);
    rpsim_result result;
    rp_status status =
        rpsim_case_run(rp_schedule_find("roundpipe-overlap"), &config, &result, NULL);
    cr_assert(eq(int, status, RP_OK));
    slow_pool slow = {.jobs = jobs,
                      .gpus = config.gpus,
                      .hop = costs.hop_ps,
                      .early = config.recompute == RP_RECOMPUTE_EARLY};
    make_jobs(&costs, &partition, rp_recompute_has_ops(config.recompute), &slow);
    int64_t expected = slow_makespan(&slow, config.microbatches, config.round);
    cr_expect(eq(i64, result.metrics.makespan_ps, expected),
              "%u GPUs, %u microbatches, rounds of %u, recompute %d", config.gpus,
              config.microbatches, config.round, (int)config.recompute);
    rpsim_result_fini(&result);
}

Test(overlap, dispatch_is_that_of_a_slow_dispatcher)
{
    rp_random random = {4};
    for (uint32_t i = 0; i < 3000; i++) {
        compare(&random);
    }
}

/* With as many rounds in flight, and microbatches in each, as GPUs, every GPU keeps a round: no
 * hop, no idle time. (Early recompute may move jobs, as its pre-work hides hops.) */
Test(overlap, a_round_per_gpu_never_idles)
{
    rp_costs costs;
    rp_test_equal_costs(rp_test_arena, 6, 5, 11, &costs);
    costs.head_fwd_ps = 3;
    costs.head_bwd_ps = 8;
    costs.hop_ps = 4;
    uint32_t forward[] = {2, 2, 2};
    uint32_t backward[] = {0, 3, 3};
    rp_partition partition = {3, forward, 3, backward};
    for (uint32_t gpus = 1; gpus <= 8; gpus++) {
        for (uint32_t round = 1; round <= 2; round++) {
            rp_schedule_config config = {.gpus = gpus,
                                         .microbatches = gpus * round,
                                         .iterations = 1,
                                         .round = round,
                                         .recompute = RP_RECOMPUTE_WAIT,
                                         .layers = 6,
                                         .partition = &partition,
                                         .costs = &costs};
            rpsim_result result;
            cr_assert(eq(
                int, rpsim_case_run(rp_schedule_find("roundpipe-overlap"), &config, &result, NULL),
                RP_OK));
            cr_expect(eq(i64, result.metrics.makespan_ps, round * (6 * (2 * 5 + 11) + 3 + 8)));
            cr_expect(eq(i64, result.metrics.bubble_ps, 0));
            rpsim_result_fini(&result);
        }
    }
}

/* ---- hardware fidelity ----------------------------------------------------------------------- */

/* Start of call 1's first forward less the end of call 0's last loss. */
static int64_t lead_ps(const rpsim_result *result, uint32_t per_call)
{
    const rp_program *p = result->program;
    uint32_t head = p->backward_chain[0];
    int64_t first = INT64_MAX;
    int64_t loss = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        const rp_op *op = &p->ops[i];
        bool forward = op->kind == RP_OP_FORWARD;
        if (forward && op->stage == 0 && op->microbatch >= per_call) {
            first = result->timeline->start_ps[i] < first ? result->timeline->start_ps[i] : first;
        } else if (forward && op->stage == head && op->microbatch < per_call) {
            loss = result->timeline->end_ps[i] > loss ? result->timeline->end_ps[i] : loss;
        }
    }
    return first - loss;
}

static uint64_t bytes_of(const rp_program *p, rp_op_kind kind, uint32_t *count_out)
{
    uint64_t bytes = 0;
    *count_out = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        bytes += p->ops[i].kind == kind ? p->op_bytes[i] : 0;
        *count_out += p->ops[i].kind == kind ? 1 : 0;
    }
    return bytes;
}

/* Layers as on the host: embedding 0, head last. */
static bool holds(const rp_program *p, const rp_stage *stage, uint32_t layer)
{
    if (layer == p->layer_count + 1) {
        return (stage->roles & RP_STAGE_HEAD) != 0;
    }
    bool embedding = layer == 0 && stage->layer_begin == 0 && stage->layer_end > 0;
    return embedding || (layer > stage->layer_begin && layer <= stage->layer_end);
}

/* The least number of calls whose gradients a layer's collection has waited for. */
static uint32_t collected_calls(const rpsim_result *result)
{
    const rp_program *p = result->program;
    const rp_timeline *t = result->timeline;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < p->op_count; i++) {
        uint32_t calls = 0;
        for (uint32_t k = 0; p->ops[i].kind == RP_OP_COLLECT && k < p->op_count; k++) {
            bool here = p->ops[k].kind == RP_OP_DOWNLOAD_PARAM_GRAD &&
                        holds(p, &p->stages[p->ops[k].stage], p->ops[i].microbatch);
            cr_expect(not(here && t->end_ps[k] > t->start_ps[i]));
            calls += here ? 1 : 0;
        }
        least = p->ops[i].kind == RP_OP_COLLECT && calls < least ? calls : least;
    }
    return least;
}

/* Calls of RoundPipe wait for the previous loss, overlapping calls do not; both programs pass the
 * validator with all transfers. */
Test(overlap, calls_overlap_on_hardware)
{
    static const char *const names[] = {"roundpipe", "roundpipe-overlap"};
    rp_model model;
    rp_platform platform;
    rp_costs costs;
    rp_partition partition;
    bool found = false;
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", rp_test_arena, &platform), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", rp_test_arena, &costs), RP_OK));
    cr_assert(eq(
        int, rp_partition_published("roundpipe", "qwen3-1.7b", rp_test_arena, &partition, &found),
        RP_OK));
    for (size_t i = 0; i < 2; i++) {
        rp_resolved run = rp_test_hand_run(names[i], &model, &costs, &partition, 8, 4);
        run.decided.accumulate = 4;
        run.global_batch = 64;
        run.recompute = RP_RECOMPUTE_EARLY;
        rpsim_result result;
        cr_assert(eq(int, rpsim_hardware_case_run(&run, &platform, 0, &result, NULL), RP_OK));
        /* RoundPipe: from the second call on gradients go up again. Overlap: a slot per call. */
        uint32_t ups = 0;
        uint32_t collects = 0;
        bytes_of(result.program, RP_OP_UPLOAD_PARAM_GRAD, &ups);
        uint64_t collected = bytes_of(result.program, RP_OP_COLLECT, &collects);
        cr_expect(eq(u32, collects, model.layers + 2));
        cr_expect(eq(u64, collected, (i == 0 ? 10 : 16) * model.total_parameters));
        cr_expect(eq(u32, ups, i == 0 ? 3 * partition.backward_count : 0));
        cr_expect(eq(u32, collected_calls(&result), 4));
        if (i == 0) {
            cr_expect(ge(i64, lead_ps(&result, 4), 0));
        } else {
            cr_expect(lt(i64, lead_ps(&result, 4), 0));
        }
        rpsim_result_fini(&result);
    }
}
