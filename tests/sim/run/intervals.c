/* Intervals: closed forms with a single input, equal draws for all, independence of threads, a
 * single draw, and causes of undecided pairs. */
#include "sim/run/intervals.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/roofline/roofline.h"
#include "sim/study/decided.h"
#include "tests/support/assertions.h"
#include "tests/support/hand_run.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(intervals, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

#define DRAWS 32u
#define LAYERS 24u

static uint32_t four[] = {7, 7, 7, 7};

/* GPipe of qwen3-1.7b: seven layers on each of four GPUs. */
typedef struct bench {
    rp_model model;
    rp_platform platform;
    rp_costs costs;
    rp_partition partition;
    rp_resolved run;
    rpsim_result result;
} bench;

static void make(bench *b, const char *platform, uint32_t gpus)
{
    rp_arena *arena = rp_test_tool_arena();
    memset(b, 0, sizeof *b);
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", arena, &b->model), RP_OK));
    cr_assert(eq(int, rp_platform_load(platform, arena, &b->platform), RP_OK));
    const rp_roof roof = {&b->platform, {RP_DTYPE_F16, RP_ACCUMULATION_USUAL}, NULL};
    cr_assert(eq(int, rp_find_costs(&b->model, &roof, 4, 2048, arena, &b->costs, NULL), RP_OK));
    four[0] = gpus == 1 ? 28 : 7;
    b->partition = (rp_partition){.forward_count = gpus, .forward_layers = four};
    b->run = rp_test_hand_run("gpipe", &b->model, &b->costs, &b->partition, gpus, 4);
    b->run.global_batch = 16;
    b->run.recompute = RP_RECOMPUTE_WAIT;
    cr_assert(eq(int, rpsim_hardware_case_run(&b->run, &b->platform, 0, &b->result, NULL), RP_OK));
}

static rpsim_intervals draw(const bench *b, uint32_t draws, uint64_t seed, uint32_t threads)
{
    rpsim_intervals intervals;
    const rpsim_interval_run run = {.program = b->result.program,
                                    .platform = &b->platform,
                                    .resolved = &b->run,
                                    .period_ps = b->result.period_ps};
    cr_assert(
        eq(int,
           rpsim_intervals_make(&run, draws, seed, threads, true, rp_test_tool_arena(), &intervals),
           RP_OK));
    return intervals;
}

static const rpsim_input *input_of(const rpsim_intervals *i, rpsim_input_id id)
{
    for (uint32_t k = 0; k < i->input_count; k++) {
        if (i->inputs[k].id == id) {
            return &i->inputs[k];
        }
    }
    return NULL;
}

/* A GPU without transfers: the period is L layers + head + Adam, and each input has a share. An
 * input at its end changes only its share of the time. */
Test(intervals, alone_is_a_closed_form)
{
    bench b;
    make(&b, "rtx4090x8", 1);
    rpsim_intervals i = draw(&b, DRAWS, 0, 1);
    const rpsim_input *head = input_of(&i, RPSIM_INPUT_HEAD);
    cr_assert(ne(ptr, (void *)head, NULL));
    double head_ps = 4 * (double)(b.costs.head_fwd_ps + b.costs.head_bwd_ps);
    double share = head_ps / b.result.period_ps;
    cr_assert(share > 0.05 && share < 0.5);
    cr_expect(epsilon_eq(dbl, head->at_low, 1 / (1 + share * (head->range.low - 1)), 1e-6));
    cr_expect(epsilon_eq(dbl, head->at_high, 1 / (1 + share * (head->range.high - 1)), 1e-6));
    cr_expect(epsilon_eq(dbl, head->matters_pct, 100 * (head->at_low - head->at_high), 1e-9));
    const rpsim_input *link = input_of(&i, RPSIM_INPUT_LINK);
    cr_expect(link == NULL || link->matters_pct < 1e-3, "only tokens and losses move");
    cr_expect(eq(ptr, (void *)input_of(&i, RPSIM_INPUT_HOST), NULL), "the host does nothing");
    cr_expect(eq(ptr, (void *)input_of(&i, RPSIM_INPUT_COLLECTIVE), NULL), "no collectives");
    rpsim_result_fini(&b.result);
}

/* A run of layers only follows their range, to the stratum: without the head's time and with free
 * memory p10 of the times is the range's low end. */
Test(intervals, one_input_is_all)
{
    bench b;
    make(&b, "rtx4090x8", 1);
    b.costs.head_fwd_ps = b.costs.head_bwd_ps = 0;
    b.platform.memory_effective_gb_per_s *= 1000;
    rpsim_result_fini(&b.result);
    cr_assert(eq(int, rpsim_hardware_case_run(&b.run, &b.platform, 0, &b.result, NULL), RP_OK));
    rpsim_intervals i = draw(&b, DRAWS, 0, 1);
    const rpsim_input *layers = input_of(&i, RPSIM_INPUT_LAYERS);
    const rpsim_input *run = input_of(&i, RPSIM_INPUT_RUN);
    /* Two inputs: wider than either, narrower than both together. */
    cr_expect(lt(dbl, i.speed.p10, layers->at_high));
    cr_expect(gt(dbl, i.speed.p10, layers->at_high * run->at_low));
    cr_expect(gt(dbl, i.speed.p90, layers->at_low));
    cr_expect(lt(dbl, i.speed.p90, layers->at_low * run->at_high));
    double times[DRAWS];
    for (uint32_t k = 0; k < DRAWS; k++) { /* without the measurement */
        double strata[DRAWS];
        cr_assert(eq(int, rpsim_noise_strata(0, RPSIM_INPUT_RUN, DRAWS, strata), RP_OK));
        times[k] = rpsim_range_factor(&run->range, strata[k]) / i.speeds[k];
    }
    rpsim_interval of_times;
    cr_assert(eq(int, rpsim_noise_interval(times, DRAWS, &of_times), RP_OK));
    cr_expect(epsilon_eq(dbl, of_times.p10, layers->range.low, 1e-3));
    cr_expect(epsilon_eq(dbl, of_times.p50, 1, 1e-3));
    cr_expect(epsilon_eq(dbl, of_times.p90, layers->range.high, 1e-3));
    rpsim_result_fini(&b.result);
}

Test(intervals, one_draw_is_the_run)
{
    bench b;
    make(&b, "rtx4090x8", 4);
    rpsim_intervals i = draw(&b, 1, 7, 0);
    cr_expect(epsilon_eq(dbl, i.speeds[0], 1, 1e-12));
    cr_expect(i.speed.p10 == i.speeds[0] && i.speed.p50 == i.speeds[0] &&
              i.speed.p90 == i.speeds[0]);
    rpsim_result_fini(&b.result);
}

Test(intervals, threads_and_seeds)
{
    bench b;
    make(&b, "rtx4090x8", 4);
    rpsim_intervals one = draw(&b, DRAWS, 3, 1);
    rpsim_intervals four_threads = draw(&b, DRAWS, 3, 4);
    rpsim_intervals other = draw(&b, DRAWS, 4, 1);
    cr_expect(memcmp(one.speeds, four_threads.speeds, DRAWS * sizeof(double)) == 0);
    cr_expect(memcmp(one.speeds, other.speeds, DRAWS * sizeof(double)) != 0);
    cr_expect(epsilon_eq(dbl, one.speed.p50, other.speed.p50, 0.01),
              "another order, the same strata");
    rpsim_result_fini(&b.result);
}

/* Moved layer times are less certain than layer times on the measured platform. */
Test(intervals, kinds)
{
    bench known;
    bench moved;
    make(&known, "rtx4090x8", 4);
    make(&moved, "h100x8", 4);
    rpsim_intervals a = draw(&known, DRAWS, 0, 0);
    rpsim_intervals b = draw(&moved, DRAWS, 0, 0);
    cr_expect(eq(int, input_of(&a, RPSIM_INPUT_LAYERS)->kind, RP_MEASURED));
    cr_expect(eq(int, input_of(&a, RPSIM_INPUT_LINK)->kind, RP_MEASURED));
    cr_expect(eq(int, input_of(&b, RPSIM_INPUT_LAYERS)->kind, RP_MOVED));
    cr_expect(eq(int, input_of(&b, RPSIM_INPUT_PEER)->kind, RP_ASSUMED));
    cr_expect(gt(dbl, b.speed.p90 - b.speed.p10, 2 * (a.speed.p90 - a.speed.p10)));
    /* Times from elsewhere, used unchanged, count as nobody's here. */
    moved.costs = known.costs;
    rpsim_intervals c = draw(&moved, DRAWS, 0, 0);
    cr_expect(eq(int, input_of(&c, RPSIM_INPUT_LAYERS)->kind, RP_ASSUMED));
    rpsim_result_fini(&known.result);
    rpsim_result_fini(&moved.result);
}

Test(intervals, strata)
{
    double strata[LAYERS];
    double again[LAYERS];
    double other[LAYERS];
    bool seen[LAYERS] = {false};
    cr_assert(eq(int, rpsim_noise_strata(5, 2, LAYERS, strata), RP_OK));
    cr_assert(eq(int, rpsim_noise_strata(5, 2, LAYERS, again), RP_OK));
    cr_assert(eq(int, rpsim_noise_strata(5, 3, LAYERS, other), RP_OK));
    cr_expect(memcmp(strata, again, sizeof strata) == 0);
    cr_expect(memcmp(strata, other, sizeof strata) != 0);
    for (uint32_t i = 0; i < LAYERS; i++) {
        uint32_t stratum = (uint32_t)(strata[i] * LAYERS);
        cr_expect(not(seen[stratum]));
        seen[stratum] = true;
        cr_expect(epsilon_eq(dbl, strata[i], (stratum + 0.5) / LAYERS, 1e-12));
    }
    rpsim_interval q;
    cr_assert(eq(int, rpsim_noise_interval(strata, LAYERS, &q), RP_OK));
    cr_expect(epsilon_eq(dbl, q.p10, 0.1, 1e-12));
    cr_expect(epsilon_eq(dbl, q.p50, 0.5, 1e-12));
    cr_expect(epsilon_eq(dbl, q.p90, 0.9, 1e-12));
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static const rpsim_range wide = {1 / 1.2, 1.2};

/* Speeds that follow an input's factor to a power, with noise if `noise` is set. */
static rpsim_intervals follow(double power, double noise, double *speeds)
{
    double strata[DRAWS];
    double others[DRAWS];
    cr_assert(eq(int, rpsim_noise_strata(0, RPSIM_INPUT_HOST, DRAWS, strata), RP_OK));
    cr_assert(eq(int, rpsim_noise_strata(0, RPSIM_INPUT_LINK, DRAWS, others), RP_OK));
    rpsim_intervals i = {.draws = DRAWS, .speeds = speeds, .input_count = 2};
    for (uint32_t k = 0; k < DRAWS; k++) {
        speeds[k] = pow(rpsim_range_factor(&wide, strata[k]), power) *
                    pow(rpsim_range_factor(&wide, others[k]), noise);
    }
    i.inputs[0] = (rpsim_input){.id = RPSIM_INPUT_HOST,
                                .range = wide,
                                .at_low = pow(wide.low, power),
                                .at_high = pow(wide.high, power)};
    i.inputs[1] = (rpsim_input){.id = RPSIM_INPUT_LINK,
                                .range = wide,
                                .at_low = pow(wide.low, noise),
                                .at_high = pow(wide.high, noise)};
    return i;
}

/* a = f, b = 1 / 1.05: a is ahead if ln f > -ln 1.05. Uniform: the share of stratified draws with f
 * above 1 / 1.05. For a lead in 90 % the range must shrink until 1.28 standard deviations are ln
 * 1.05. */
Test(intervals, what_decides)
{
    double speeds_a[DRAWS];
    double speeds_b[DRAWS];
    rpsim_intervals a = follow(1, 0, speeds_a);
    rpsim_intervals b = follow(0, 0, speeds_b);
    rpsim_decision d = rpsim_decide(&a, 1.05, &b, 1);
    double below = 0.5 - 0.4 * log(1.05) / log(1.2);
    cr_expect(not(d.decided));
    cr_expect(epsilon_eq(dbl, d.ahead, 1 - below, 1.0 / DRAWS));
    cr_expect(eq(int, (int)d.input, (int)RPSIM_INPUT_HOST));
    double sigma = 2 * log(1.2) / 0.8 / sqrt(12);
    cr_expect(epsilon_eq(dbl, d.needed / d.today, log(1.05) / 1.2815515655446 / sigma, 0.01));
    cr_expect(rpsim_decide(&a, 1.3, &b, 1).decided);
    cr_expect(rpsim_decide(&a, 1 / 1.3, &b, 1).decided);
    cr_expect(rpsim_decide(&b, 1, &a, 1 / 1.3).ahead >= RPSIM_DECIDED);
}

/* Common inputs move both, and decide nothing, however wide they are. */
Test(intervals, what_is_common_cancels)
{
    double speeds_a[DRAWS];
    double speeds_b[DRAWS];
    rpsim_intervals a = follow(2, 1, speeds_a);
    rpsim_intervals b = follow(2, 1, speeds_b);
    cr_expect(rpsim_decide(&a, 1.001, &b, 1).decided);
    rpsim_decision tie = rpsim_decide(&a, 1, &b, 1);
    cr_expect(eq(dbl, tie.ahead, 0.5));
    cr_expect(eq(int, (int)tie.input, (int)RPSIM_INPUT_COUNT), "nothing would decide a tie");
}

/* Either of two inputs leaves the pair open: knowing only one does not help. */
Test(intervals, no_single_input_decides)
{
    double speeds_a[DRAWS];
    double speeds_b[DRAWS];
    rpsim_intervals a = follow(1, 0.9, speeds_a);
    rpsim_intervals b = follow(0, 0, speeds_b);
    rpsim_decision d = rpsim_decide(&a, 1.02, &b, 1);
    cr_expect(not(d.decided));
    cr_expect(eq(dbl, d.needed, 0));
    cr_expect(eq(int, (int)d.input, (int)RPSIM_INPUT_HOST), "the larger part");
}
