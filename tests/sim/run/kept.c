/* Programs kept between runs: a run's result does not depend on earlier runs. */
#include "sim/run/kept.h"
#include "common/schedule/build.h"
#include "sim/run/case.h"
#include "tests/support/assertions.h"
#include "tests/support/random_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define CASES 60u
#define MAX_UNITS 1500u

TestSuite(kept, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 120);

static bool same_period(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void expect_same_run(rpsim_kept *kept, const rp_random_case *c)
{
    rpsim_result alone;
    rpsim_result again;
    char text[512];
    rp_random_case_print(c, text, sizeof text);
    cr_assert(eq(int, rpsim_case_run(c->schedule, &c->config, &alone, NULL), RP_OK), "%s", text);
    cr_assert(eq(int, rpsim_case_run_kept(kept, c->schedule, &c->config, &again, NULL), RP_OK),
              "%s", text);
    cr_expect(eq(u64, again.program_hash, rp_program_hash(alone.program)), "%s", text);
    cr_expect(eq(u64, rp_program_hash(again.program), again.program_hash), "%s", text);
    cr_expect(eq(u64, rp_timeline_hash(again.timeline), rp_timeline_hash(alone.timeline)), "%s",
              text);
    cr_expect(eq(i64, again.metrics.makespan_ps, alone.metrics.makespan_ps), "%s", text);
    cr_expect(eq(i64, again.metrics.comm_exposed_ps, alone.metrics.comm_exposed_ps), "%s", text);
    cr_expect(eq(int, memcmp(&again.bounds, &alone.bounds, sizeof alone.bounds), 0), "%s", text);
    cr_expect(same_period(again.period_ps, alone.period_ps), "%s", text);
    rpsim_result_fini(&alone);
    rpsim_result_fini(&again);
}

static void change_times(rp_random *random, rp_random_case *c)
{
    for (uint32_t i = 0; i < c->costs.layers; i++) {
        c->costs.fwd_ps[i] += rp_random_between(random, 0, 1000);
        c->costs.bwd_ps[i] += rp_random_between(random, 0, 1000);
    }
    c->costs.hop_ps += rp_random_between(random, 0, 100);
}

/* Schedules, sizes and times change in turn; then only times change, and change back. */
Test(kept, runs_do_not_depend_on_those_before)
{
    static rp_random_case c;
    rp_random random = {29};
    rpsim_kept *kept = NULL;
    cr_assert(eq(int, rpsim_kept_create(&kept), RP_OK));
    for (uint32_t i = 0; i < CASES; i++) {
        rp_random_case_draw(&random, MAX_UNITS, &c);
        expect_same_run(kept, &c);
        change_times(&random, &c);
        expect_same_run(kept, &c);
        c.config.microbatches = c.config.microbatches > 1 && c.schedule->check == NULL
                                    ? c.config.microbatches - 1
                                    : c.config.microbatches;
        expect_same_run(kept, &c);
    }
    rpsim_kept_destroy(kept);
}

/* ---- settings -------------------------------------------------------------------------------- */

enum { LAYERS = 8 };

typedef struct settings {
    rp_schedule_config config;
    rp_partition partition;
    uint32_t forward[LAYERS];
    uint32_t backward[LAYERS];
    rp_costs costs;
    int64_t fwd_ps[LAYERS];
    int64_t bwd_ps[LAYERS];
    int64_t bwd_input_ps[LAYERS];
} settings;

/* *s points into itself. Two stages per GPU. */
static void make(settings *s)
{
    *s = (settings){
        .partition = {4, s->forward, 0, NULL},
        .forward = {2, 2, 2, 2},
        .backward = {2, 3, 3},
        .costs = {
            .name = "kept", .layers = LAYERS, .head_fwd_ps = 40, .head_bwd_ps = 90, .hop_ps = 7}};
    for (uint32_t i = 0; i < LAYERS; i++) {
        s->fwd_ps[i] = 50 + i;
        s->bwd_ps[i] = 110 + i;
        s->bwd_input_ps[i] = 60;
    }
    s->costs.fwd_ps = s->fwd_ps;
    s->costs.bwd_ps = s->bwd_ps;
    s->costs.bwd_input_ps = s->bwd_input_ps;
    s->config = (rp_schedule_config){.gpus = 2,
                                     .microbatches = 6,
                                     .iterations = 2,
                                     .round = 2,
                                     .round_start = RP_ROUND_START_FREE_FIRST,
                                     .recompute = RP_RECOMPUTE_WAIT,
                                     .layers = LAYERS,
                                     .partition = &s->partition,
                                     .costs = &s->costs,
                                     .boundary_bytes = 100};
}

static const rpsim_kept_program *expect_same_program(rpsim_kept *kept, const char *name,
                                                     const settings *s)
{
    const rp_schedule_type *schedule = rp_schedule_find(name);
    const rpsim_kept_program *program = NULL;
    rp_program *fresh = NULL;
    cr_assert(eq(int, rp_schedule_build(schedule, &s->config, &fresh, NULL), RP_OK), "%s: %s", name,
              rp_test_messages);
    cr_assert(eq(int, rpsim_kept_stage(kept, schedule, &s->config, &program, NULL), RP_OK));
    cr_expect(eq(u64, program->hash, rp_program_hash(fresh)), "%s", name);
    rp_program_destroy(fresh);
    return program;
}

/* Half as many GPUs as stages, if the schedule allows it. */
static void make_for(settings *s, const rp_schedule_type *schedule)
{
    uint32_t of_two = rp_schedule_stages(schedule, 2);
    make(s);
    s->config.gpus = of_two != 0 && of_two < 4 ? 4 : 2;
    if (schedule->separate_backward) {
        s->partition = (rp_partition){3, s->forward, 3, s->backward};
        s->config.gpus = 4; /* six stages do not divide evenly */
    }
}

/* @return 1 if the schedule makes another program of s than of the base, 0 if not, or if it refuses
 * either. */
static uint32_t counts(rpsim_kept *kept, const rp_schedule_type *schedule, const settings *base,
                       const settings *s)
{
    rp_reason reason = {0};
    if (rp_schedule_check(schedule, &base->config, &reason) != RP_OK ||
        rp_schedule_check(schedule, &s->config, &reason) != RP_OK) {
        return 0;
    }
    uint64_t before = expect_same_program(kept, schedule->name, base)->hash;
    return expect_same_program(kept, schedule->name, s)->hash != before ? 1 : 0;
}

#define LEAVE_OUT(type, member)

/* Every value is 0, 1 and one more in turn, with every schedule: some make another program. Only
 * `layers` cannot change alone, which the partition's sums forbid. */
Test(kept, every_setting_counts)
{
    rpsim_kept *kept = NULL;
    cr_assert(eq(int, rpsim_kept_create(&kept), RP_OK));
#define VALUE(type, member_)                                                                       \
    {                                                                                              \
        uint32_t programs = 0;                                                                     \
        for (uint32_t i = 0; i < 3 * rp_schedule_count; i++) {                                     \
            settings base;                                                                         \
            make_for(&base, rp_schedules[i / 3]);                                                  \
            settings s = base; /* shares the base's pointers: nothing writes through them */       \
            s.config.member_ = (type)(i % 3 < 2 ? i % 3 : base.config.member_ + 1u);               \
            programs += counts(kept, rp_schedules[i / 3], &base, &s);                              \
        }                                                                                          \
        cr_expect(programs != 0 || strcmp(#member_, "layers") == 0, #member_ " counts nowhere");   \
    }
    RP_SCHEDULE_SETTINGS(VALUE, LEAVE_OUT)
#undef VALUE
    rpsim_kept_destroy(kept);
}

Test(kept, every_part_of_a_partition_counts)
{
    static uint32_t other_forward[] = {1, 3, 2, 2};
    static uint32_t other_backward[] = {2, 2, 4};
    static const char *const names[] = {"looped-bfs", "roundpipe"};
    rpsim_kept *kept = NULL;
    cr_assert(eq(int, rpsim_kept_create(&kept), RP_OK));
    for (uint32_t i = 0; i < 2; i++) {
        const rp_schedule_type *schedule = rp_schedule_find(names[i]);
        settings base;
        make_for(&base, schedule);
        rp_partition forward = base.partition;
        rp_partition backward = base.partition;
        forward.forward_layers = other_forward;
        backward.backward_layers = other_backward;
        settings s = base;
        s.config.partition = &forward;
        cr_expect(eq(u32, counts(kept, schedule, &base, &s), 1), "%s", names[i]);
        s.config.partition = &backward;
        cr_expect(eq(u32, counts(kept, schedule, &base, &s), i), "%s", names[i]);
    }
    rpsim_kept_destroy(kept);
}

Test(kept, times_count_where_a_schedule_plans_with_them)
{
    settings s;
    rpsim_kept *kept = NULL;
    make(&s);
    s.config.gpus = 4;
    s.config.recompute = RP_RECOMPUTE_NONE;
    cr_assert(eq(int, rpsim_kept_create(&kept), RP_OK));
    uint64_t before = expect_same_program(kept, "zb-auto-2p", &s)->hash;
    for (uint32_t i = 0; i < LAYERS; i++) {
        s.bwd_input_ps[i] = 5; /* nearly all of a backward may wait */
        s.bwd_ps[i] = i < LAYERS / 2 ? 300 : 110;
    }
    uint64_t after = expect_same_program(kept, "zb-auto-2p", &s)->hash;
    cr_expect(after != before);
    rpsim_kept_destroy(kept);
}

/* Other times keep the program; doubled times keep RoundPipe's rounds. */
Test(kept, a_program_is_built_once)
{
    settings s;
    rpsim_kept *kept = NULL;
    cr_assert(eq(int, rpsim_kept_create(&kept), RP_OK));
    static const char *const names[] = {"looped-bfs", "roundpipe"};
    for (int i = 0; i < 2; i++) {
        make(&s);
        if (i == 1) {
            s.partition = (rp_partition){3, s.forward, 3, s.backward};
        }
        const rp_program *before = expect_same_program(kept, names[i], &s)->program;
        for (uint32_t l = 0; l < LAYERS; l++) {
            s.fwd_ps[l] *= 2;
            s.bwd_ps[l] *= 2;
            s.bwd_input_ps[l] *= 2;
        }
        s.costs.head_fwd_ps *= 2;
        s.costs.head_bwd_ps *= 2;
        s.costs.hop_ps *= 2;
        cr_expect(expect_same_program(kept, names[i], &s)->program == before, "%s", names[i]);
        s.config.microbatches = 4;
        (void)expect_same_program(kept, names[i], &s);
    }
    rpsim_kept_destroy(kept);
}

Test(kept, what_cannot_be_built_leaves_nothing)
{
    settings s;
    const rpsim_kept_program *program = NULL;
    rpsim_kept *kept = NULL;
    make(&s);
    cr_assert(eq(int, rpsim_kept_create(&kept), RP_OK));
    (void)expect_same_program(kept, "looped-bfs", &s);
    s.forward[0] = 3; /* more layers than the model's */
    const rp_schedule_type *schedule = rp_schedule_find("looped-bfs");
    cr_expect(eq(int, rpsim_kept_stage(kept, schedule, &s.config, &program, NULL), RP_USAGE));
    s.forward[0] = 2;
    (void)expect_same_program(kept, "looped-bfs", &s);
    rpsim_kept_destroy(kept);
}
