#include "tests/support/random_case.h"

#include "common/base/hash.h"

#include <stdio.h>
#include <string.h>

uint64_t rp_random_next(rp_random *random)
{
    uint64_t number = rp_splitmix64(random->state);
    random->state += RP_SPLITMIX64_STEP;
    return number;
}

uint32_t rp_random_between(rp_random *random, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(rp_random_next(random) % ((uint64_t)high - low + 1));
}

static bool chance(rp_random *random, uint32_t percent)
{
    return rp_random_between(random, 1, 100) <= percent;
}

/* A number that is mostly small, and sometimes up to `high`. */
static uint32_t skewed(rp_random *random, uint32_t high)
{
    uint32_t limit = rp_random_between(random, 1, high);
    return rp_random_between(random, 1, limit);
}

static int64_t draw_time(rp_random *random, bool coarse)
{
    if (chance(random, 6)) {
        return 0;
    }
    if (coarse) { /* few different whole milliseconds, so that times are equal and ties happen */
        return INT64_C(1000000000) * rp_random_between(random, 1, 4);
    }
    return 1 + (int64_t)(rp_random_next(random) % UINT64_C(90000000000));
}

static void draw_times(rp_random *random, rp_random_case *c)
{
    bool coarse = chance(random, 40);
    bool equal = chance(random, 20);
    for (uint32_t i = 0; i < c->costs.layers; i++) {
        bool copy = equal && i > 0;
        c->fwd_ps[i] = copy ? c->fwd_ps[0] : draw_time(random, coarse);
        c->bwd_ps[i] = copy ? c->bwd_ps[0] : draw_time(random, coarse);
        c->bwd_input_ps[i] = c->bwd_ps[i] / 2;
    }
    c->costs.head_fwd_ps = chance(random, 80) ? draw_time(random, coarse) : 0;
    c->costs.head_bwd_ps = chance(random, 80) ? draw_time(random, coarse) : 0;
    c->costs.hop_ps = chance(random, 75) ? draw_time(random, coarse) / 4 : 0;
}

/* Draws a partition of `layers` layers into `stages` stages, of which some are empty. */
static void draw_partition(rp_random *random, uint32_t layers, uint32_t stages, uint32_t *out)
{
    memset(out, 0, stages * sizeof *out);
    uint32_t mode = rp_random_between(random, 0, 2);
    for (uint32_t i = 0; i < layers; i++) {
        uint32_t stage = mode == 0 ? i % stages : rp_random_between(random, 0, stages - 1);
        if (mode == 2) { /* crowded: most stages stay empty */
            stage = stage / 3 * 3;
        }
        out[stage]++;
    }
}

static uint32_t draw_stages(rp_random *random, const rp_schedule_type *schedule, uint32_t gpus)
{
    if (!schedule->many_stages) {
        return gpus;
    }
    uint32_t most = RP_TEST_MAX_STAGES / gpus;
    return gpus * rp_random_between(random, 1, most > 6 ? 6 : most);
}

static void draw_separate(rp_random *random, rp_random_case *c)
{
    uint32_t layers = c->costs.layers;
    c->partition.backward_count = skewed(random, 48);
    draw_partition(random, layers, c->partition.backward_count, c->backward);
    bool fused = chance(random, 30);
    uint32_t forward = fused ? layers - c->backward[0] : layers;
    bool all_fused = forward == 0 && chance(random, 50);
    c->partition.forward_count = all_fused ? 0 : skewed(random, 48);
    if (c->partition.forward_count != 0) {
        draw_partition(random, forward, c->partition.forward_count, c->forward);
    }
    if (fused && c->costs.head_fwd_ps == 0) {
        c->costs.head_fwd_ps = 7; /* a fused stage's forward always holds the head's */
    }
    uint32_t m = c->config.microbatches;
    c->config.round = chance(random, 20) ? RP_ROUND_ALL : rp_random_between(random, 1, m);
    if (chance(random, 40)) {
        c->config.round = c->config.gpus;
    }
    c->config.round_start = chance(random, 30) ? RP_ROUND_START_ROTATE : RP_ROUND_START_FREE_FIRST;
}

static const struct {
    const char *name;
    slow_schedule slow;
} schedules[] = {
    {"gpipe", SLOW_GPIPE},
    {"1f1b", SLOW_1F1B},
    {"interleaved-1f1b", SLOW_INTERLEAVED_1F1B},
    {"looped-bfs", SLOW_LOOPED_BFS},
    {"roundpipe", SLOW_ROUNDPIPE},
    {"roundpipe", SLOW_ROUNDPIPE},
};

static void fill_slow(rp_random_case *c, slow_schedule schedule)
{
    static const slow_recompute modes[] = {SLOW_RECOMPUTE_NONE, SLOW_RECOMPUTE_WAIT,
                                           SLOW_RECOMPUTE_EARLY, SLOW_RECOMPUTE_NONE};
    for (uint32_t i = 0; i < c->partition.forward_count; i++) {
        c->slow_forward[i] = (int)c->forward[i];
    }
    for (uint32_t i = 0; i < c->partition.backward_count; i++) {
        c->slow_backward[i] = (int)c->backward[i];
    }
    c->slow = (slow_config){
        .schedule = schedule,
        .recompute = modes[c->config.recompute],
        .gpus = (int)c->config.gpus,
        .microbatches = (int)c->config.microbatches,
        .iterations = (int)c->config.iterations,
        .async = c->config.asynchronous,
        .round = (int)c->config.round,
        .rotate = c->config.round_start == RP_ROUND_START_ROTATE,
        .layers = (int)c->costs.layers,
        .fwd_ps = c->fwd_ps,
        .bwd_ps = c->bwd_ps,
        .head_fwd_ps = c->costs.head_fwd_ps,
        .head_bwd_ps = c->costs.head_bwd_ps,
        .hop_ps = c->costs.hop_ps,
        .stage_count = (int)c->partition.forward_count,
        .stage_layers = c->slow_forward,
        .backward_count = (int)c->partition.backward_count,
        .backward_layers = c->slow_backward,
    };
}

/* The interleaved rule requires M to be a multiple of M div P. */
static uint32_t allowed_microbatches(const rp_random_case *c, uint32_t microbatches)
{
    bool interleaved = strcmp(c->schedule->name, "interleaved-1f1b") == 0;
    uint32_t groups = microbatches / c->config.gpus;
    return interleaved && groups > 1 ? microbatches / groups * groups : microbatches;
}

static bool has_empty_units(const rp_random_case *c)
{
    for (uint32_t i = 0; i < c->costs.layers; i++) {
        if (c->fwd_ps[i] == 0 || c->bwd_ps[i] == 0) {
            return true;
        }
    }
    for (uint32_t i = 0; i < c->partition.forward_count; i++) {
        if (c->forward[i] == 0) {
            return true;
        }
    }
    for (uint32_t i = 0; i < c->partition.backward_count; i++) {
        if (c->backward[i] == 0) {
            return true;
        }
    }
    return c->costs.head_bwd_ps == 0;
}

void rp_random_case_draw(rp_random *random, uint32_t max_units, rp_random_case *c)
{
    memset(c, 0, sizeof *c);
    uint32_t pick = rp_random_between(random, 0, sizeof schedules / sizeof schedules[0] - 1);
    c->schedule = rp_schedule_find(schedules[pick].name);
    c->costs.name = "random";
    c->costs.layers = skewed(random, RP_TEST_MAX_LAYERS);
    c->costs.fwd_ps = c->fwd_ps;
    c->costs.bwd_ps = c->bwd_ps;
    c->costs.bwd_input_ps = c->bwd_input_ps;
    c->costs.microbatch_size = c->costs.seq_len = 1;
    draw_times(random, c);
    c->config.gpus = skewed(random, 64);
    c->config.microbatches = skewed(random, 512);
    c->config.recompute = (rp_recompute)rp_random_between(random, 0, RP_RECOMPUTE_COUNT - 1);
    c->config.iterations = chance(random, 85) ? 1 : rp_random_between(random, 2, 17);
    c->config.asynchronous = chance(random, 50);
    c->config.layers = c->costs.layers;
    c->config.costs = &c->costs;
    c->config.partition = &c->partition;
    c->partition.forward_layers = c->forward;
    c->partition.backward_layers = c->backward;
    if (c->schedule->separate_backward) {
        draw_separate(random, c);
    } else {
        c->partition.forward_count = draw_stages(random, c->schedule, c->config.gpus);
        draw_partition(random, c->costs.layers, c->partition.forward_count, c->forward);
    }
    uint32_t stages = c->partition.forward_count + c->partition.backward_count;
    uint32_t most = max_units / (stages * c->config.iterations) + 1;
    uint32_t m = c->config.microbatches < most ? c->config.microbatches : most;
    c->config.microbatches = allowed_microbatches(c, m);
    c->empty_units = has_empty_units(c);
    fill_slow(c, schedules[pick].slow);
}

void rp_random_case_print(const rp_random_case *c, char *text, size_t size)
{
    snprintf(
        text, size,
        "%s, %u GPUs, %u microbatches, %u iterations %s, recompute %s, round %u %s, %u layers, "
        "%u|%u stages, hop %lld ps",
        c->schedule->name, c->config.gpus, c->config.microbatches, c->config.iterations,
        c->config.asynchronous ? "async" : "sync", rp_recompute_text(c->config.recompute),
        c->config.round, c->slow.rotate ? "rotate" : "free-first", c->costs.layers,
        c->partition.forward_count, c->partition.backward_count, (long long)c->costs.hop_ps);
}
