/* The planner: golden examples, the independent slow reference (tests/reference/slow_planner.c) on
 * random instances, exhaustive search on small instances, the paper's stage counts, bad inputs. */
#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "sim/rpplan/instance.h"
#include "tests/reference/slow_planner.h"
#include "tests/support/assertions.h"
#include "tests/support/random_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN RP_TEST_ROOT "/golden/partition.json"
#define MAX_CAPS 40000

static rp_arena *arena;

static void begin(void)
{
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(planner, .init = begin, .fini = end, .timeout = 480);

/* ---- golden examples (shared/golden/partition.json, checked against the library) ------------- */

static void expect_integer(const json_t *expected, const char *key, int64_t value, const char *name)
{
    bool is_integer = json_is_integer(json_object_get(expected, key));
    cr_expect(is_integer, "%s: %s", name, key);
    cr_expect(eq(i64, json_integer_value(json_object_get(expected, key)), value), "%s: %s", name,
              key);
}

static void expect_stages(const json_t *expected, const char *key, const rp_interval *stages,
                          uint32_t count, const char *name)
{
    const json_t *list = json_object_get(expected, key);
    cr_assert(eq(sz, json_array_size(list), count), "%s: %s", name, key);
    for (uint32_t i = 0; i < count; i++) {
        const json_t *stage = json_array_get(list, i);
        cr_expect(eq(i64, json_integer_value(json_array_get(stage, 0)), stages[i].begin));
        cr_expect(eq(i64, json_integer_value(json_array_get(stage, 1)), stages[i].end), "%s: %s %u",
                  name, key, i);
    }
}

static void expect_candidates(const json_t *expected, const rp_plan_input *input, const char *name)
{
    rp_plan_candidate *list = NULL;
    uint32_t count = 0;
    cr_assert(eq(int, rp_plan_candidates(input, arena, &list, &count, NULL), RP_OK));
    const json_t *wanted = json_object_get(expected, "candidates");
    cr_assert(eq(sz, json_array_size(wanted), count), "%s", name);
    for (uint32_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(wanted, i);
        cr_expect(eq(i64, json_integer_value(json_array_get(item, 0)), list[i].cap), "%s", name);
        cr_expect(eq(i64, json_integer_value(json_array_get(item, 1)), list[i].stages), "%s", name);
        cr_expect(eq(i64, json_integer_value(json_array_get(item, 2)), list[i].cost), "%s", name);
    }
}

static void expect_plan(const json_t *expected, const rp_plan_input *input, const char *name)
{
    rp_plan plan;
    cr_assert(eq(int, rp_plan_make(input, arena, &plan, NULL), RP_OK), "%s", name);
    expect_stages(expected, "fwd_plan", plan.forward, plan.forward_count, name);
    expect_stages(expected, "bwd_plan", plan.backward, plan.backward_count, name);
    expect_integer(expected, "max_stage_workload", plan.max_stage_workload, name);
    expect_integer(expected, "total_stages", plan.total_stages, name);
    expect_integer(expected, "cost", plan.cost, name);
    expect_integer(expected, "effective_memory_limit", (int64_t)plan.effective_memory_limit, name);
    bool raised = json_is_true(json_object_get(expected, "limit_raised"));
    cr_expect(eq(int, raised, plan.limit_raised), "%s", name);
    expect_candidates(expected, input, name);
    cr_expect(eq(sz, json_object_size(expected), 8), "%s: a field nobody compares", name);
}

Test(planner, golden_examples)
{
    json_error_t error;
    json_t *root = json_load_file(GOLDEN, 0, &error);
    cr_assert(root != NULL, "%s", error.text);
    rpplan_instances instances;
    cr_assert(eq(int, rpplan_instances_load(GOLDEN, arena, &instances), RP_OK));
    const json_t *examples = json_object_get(root, "examples");
    cr_assert(eq(u32, instances.count, 12));
    cr_assert(eq(sz, json_array_size(examples), 12));
    for (uint32_t i = 0; i < instances.count; i++) {
        const json_t *example = json_array_get(examples, i);
        expect_plan(json_object_get(example, "expected"), &instances.inputs[i],
                    json_string_value(json_object_get(example, "name")));
    }
    json_decref(root);
}

/* ---- random instances ------------------------------------------------------------------------ */

/* With RP_LONG=1 the acceptance's number. */
static uint32_t instances(void)
{
    return getenv("RP_LONG") != NULL ? 4000 : 1000;
}

/* Counts awkward cases; a test that never meets them proves little. */
typedef struct coverage {
    uint32_t modes[3];
    uint32_t raised;
    uint32_t binding;
    uint32_t not_first;
    uint32_t min_stages;
    uint32_t all_fused;
    uint32_t ties;
    uint32_t long_lists;
} coverage;

/* Both forms of one instance. */
typedef struct instance {
    slow_plan_input slow;
    rp_plan_input input;
    int64_t f[SLOW_PLAN_LAYERS], b[SLOW_PLAN_LAYERS];
    uint64_t p[SLOW_PLAN_LAYERS], q[SLOW_PLAN_LAYERS];
} instance;

static const uint32_t tolerances[][2] = {{1, 1},    {11, 10}, {5, 4}, {15, 10},
                                         {131, 97}, {2, 1},   {4, 1}, {1100000, 1000000}};

/* Coarse times make ties; a heavy head makes all else small. */
static void draw_times(rp_random *random, slow_plan_input *in)
{
    static const uint32_t ranges[] = {1, 3, 10, 100, 100000};
    uint32_t most = ranges[rp_random_between(random, 0, 4)];
    uint32_t least = rp_random_between(random, 0, 1) == 0 ? 0 : most / 2;
    bool alike = rp_random_between(random, 0, 3) == 0;
    for (int i = 0; i < in->layers; i++) {
        in->f[i] = rp_random_between(random, least, most);
        in->b[i] = in->f[i] + rp_random_between(random, least, 2 * most);
        if (alike && i > 0) {
            in->f[i] = in->f[0];
            in->b[i] = in->b[0];
        }
    }
    if (rp_random_between(random, 0, 2) == 0) {
        uint32_t factor = rp_random_between(random, 1, 12);
        in->f[0] = 0;
        in->f[in->layers - 1] = (int64_t)factor * most;
        in->b[in->layers - 1] = 3 * (int64_t)factor * most;
    }
    if (rp_random_between(random, 0, 9) == 0) {
        in->b[0] = 0; /* forward longer than backward: odd but allowed */
    }
}

/* Memory regimes: none binds, a few layers fit, a layer does not fit, practically no limit, zero.
 */
static void draw_bytes(rp_random *random, slow_plan_input *in)
{
    uint32_t most = rp_random_between(random, 0, 1) == 0 ? 7 : 1000000;
    int64_t total = 0;
    for (int i = 0; i < in->layers; i++) {
        in->p[i] = rp_random_between(random, 0, most);
        in->q[i] = in->p[i] + (rp_random_between(random, 0, 4) == 0 ? 0 : in->p[i]);
        total += in->q[i];
    }
    const int64_t limits[] = {3 * total,        total, total / 3, total / (in->layers + 1),
                              (int64_t)1 << 40, 0};
    in->limit = limits[rp_random_between(random, 0, 5)] + rp_random_between(random, 0, 3);
}

static void draw(rp_random *random, int most_layers, instance *c)
{
    slow_plan_input *in = &c->slow;
    uint32_t tolerance = rp_random_between(random, 0, sizeof tolerances / sizeof tolerances[0] - 1);
    *in = (slow_plan_input){.mode = (slow_plan_mode)rp_random_between(random, 0, 2),
                            .layers = (int)rp_random_between(random, 1, (uint32_t)most_layers),
                            .min_stages = rp_random_between(random, 1, 24),
                            .num = tolerances[tolerance][0],
                            .den = tolerances[tolerance][1]};
    draw_times(random, in);
    draw_bytes(random, in);
    for (int i = 0; i < in->layers; i++) {
        c->f[i] = in->f[i];
        c->b[i] = in->b[i];
        c->p[i] = (uint64_t)in->p[i];
        c->q[i] = (uint64_t)in->q[i];
    }
    static const rp_plan_mode modes[] = {RP_PLAN_INFER, RP_PLAN_TRAIN, RP_PLAN_FUSED};
    bool infer = in->mode == SLOW_PLAN_INFER;
    c->input = (rp_plan_input){.mode = modes[in->mode],
                               .layers = (uint32_t)in->layers,
                               .fwd_time = c->f,
                               .bwd_time = infer ? NULL : c->b,
                               .fwd_bytes = c->p,
                               .bwd_bytes = infer ? NULL : c->q,
                               .memory_limit = (uint64_t)in->limit,
                               .min_stages = (uint32_t)in->min_stages,
                               .tolerance_num = (uint32_t)in->num,
                               .tolerance_den = (uint32_t)in->den};
}

/* The plan in the reference's form. */
static slow_plan plan_of(const instance *c, rp_arena *own)
{
    rp_plan plan;
    slow_plan result = {0};
    cr_assert(eq(int, rp_plan_make(&c->input, own, &plan, NULL), RP_OK));
    result.forward_count = (int)plan.forward_count;
    result.backward_count = (int)plan.backward_count;
    for (uint32_t i = 0; i < plan.forward_count; i++) {
        result.forward[i][0] = (int)plan.forward[i].begin;
        result.forward[i][1] = (int)plan.forward[i].end;
    }
    for (uint32_t i = 0; i < plan.backward_count; i++) {
        result.backward[i][0] = (int)plan.backward[i].begin;
        result.backward[i][1] = (int)plan.backward[i].end;
    }
    result.cap = plan.max_stage_workload;
    result.cost = plan.cost;
    result.limit = (int64_t)plan.effective_memory_limit;
    result.raised = plan.limit_raised;
    cr_expect(eq(u32, plan.total_stages, plan.forward_count + plan.backward_count));
    return result;
}

static bool same_stages(int (*left)[2], int (*right)[2], int count)
{
    return memcmp(left, right, (size_t)count * sizeof *left) == 0;
}

static void check_candidates(const instance *c, const slow_plan *best, uint32_t number,
                             rp_arena *own, coverage *covered)
{
    static int64_t caps[MAX_CAPS];
    static int stages[MAX_CAPS];
    rp_plan_candidate *list = NULL;
    uint32_t count = 0;
    int wanted = slow_plan_caps(&c->slow, MAX_CAPS, caps, stages);
    cr_assert(le(int, wanted, MAX_CAPS));
    cr_assert(eq(int, rp_plan_candidates(&c->input, own, &list, &count, NULL), RP_OK));
    cr_assert(eq(int, (int)count, wanted), "instance %u", number);
    uint32_t as_cheap = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t paid = stages[i] > c->slow.min_stages ? stages[i] : c->slow.min_stages;
        cr_assert(eq(i64, list[i].cap, caps[i]), "instance %u", number);
        cr_assert(eq(int, (int)list[i].stages, stages[i]), "instance %u", number);
        cr_assert(eq(i64, list[i].cost, paid * caps[i]), "instance %u", number);
        as_cheap += list[i].cost == best->cost ? 1 : 0;
    }
    covered->ties += as_cheap > 1 ? 1 : 0;
    covered->not_first += best->cap != list[0].cap ? 1 : 0;
}

static void cover(const instance *c, const slow_plan *plan, coverage *covered)
{
    int stages = plan->forward_count + plan->backward_count;
    covered->modes[c->slow.mode]++;
    covered->raised += plan->raised ? 1 : 0;
    covered->min_stages += stages < c->slow.min_stages ? 1 : 0;
    covered->all_fused += c->slow.mode == SLOW_PLAN_FUSED && plan->forward_count == 0 ? 1 : 0;
    covered->long_lists += c->slow.layers > 150 ? 1 : 0;
    slow_plan_input unlimited = c->slow;
    slow_plan other;
    unlimited.limit = (int64_t)1 << 60;
    slow_plan_make(&unlimited, &other);
    covered->binding += other.forward_count + other.backward_count != stages ? 1 : 0;
}

static void check_instance(const instance *c, uint32_t number, coverage *covered)
{
    rp_arena *own = NULL;
    slow_plan expected;
    cr_assert(eq(int, rp_arena_create(&own), RP_OK));
    slow_plan plan = plan_of(c, own);
    slow_plan_make(&c->slow, &expected);
    cr_assert(eq(i64, plan.cap, expected.cap), "instance %u, %d layers", number, c->slow.layers);
    cr_assert(eq(i64, plan.cost, expected.cost), "instance %u", number);
    cr_assert(eq(i64, plan.limit, expected.limit), "instance %u", number);
    cr_assert(eq(int, plan.raised, expected.raised), "instance %u", number);
    cr_assert(eq(int, plan.forward_count, expected.forward_count), "instance %u", number);
    cr_assert(eq(int, plan.backward_count, expected.backward_count), "instance %u", number);
    cr_assert(same_stages(plan.forward, expected.forward, plan.forward_count), "%u", number);
    cr_assert(same_stages(plan.backward, expected.backward, plan.backward_count), "%u", number);
    cr_assert(slow_plan_is_valid(&c->slow, &plan), "instance %u", number);
    cover(c, &plan, covered);
    check_candidates(c, &plan, number, own, covered);
    rp_arena_destroy(own);
}

Test(planner, random_instances_equal_the_reference)
{
    const uint32_t count = instances();
    rp_random random = {20260427};
    coverage covered = {0};
    static instance c;
    for (uint32_t i = 0; i < count; i++) {
        draw(&random, i % 4 == 0 ? 200 : i % 4 == 1 ? 60 : 12, &c);
        check_instance(&c, i, &covered);
    }
    for (int mode = 0; mode < 3; mode++) {
        cr_expect(gt(u32, covered.modes[mode], count / 5));
    }
    cr_expect(gt(u32, covered.raised, count / 20));
    cr_expect(gt(u32, covered.binding, count / 20));
    cr_expect(gt(u32, covered.not_first, count / 20));
    cr_expect(gt(u32, covered.min_stages, count / 20));
    cr_expect(gt(u32, covered.all_fused, count / 100));
    cr_expect(ge(u32, covered.ties, count / 100));
    cr_expect(gt(u32, covered.long_lists, count / 40));
}

/* Under every cap greedy packing needs the fewest stages of all cuts. */
Test(planner, greedy_is_minimal)
{
    rp_random random = {7};
    static instance c;
    for (uint32_t i = 0; i < instances() / 10; i++) {
        draw(&random, 8, &c);
        int64_t caps[256];
        int stages[256];
        int count = slow_plan_caps(&c.slow, 256, caps, stages);
        cr_assert(le(int, count, 256));
        for (int k = 0; k < count; k++) {
            cr_assert(eq(int, stages[k], slow_plan_fewest_stages(&c.slow, caps[k])), "instance %u",
                      i);
        }
    }
}

/* ---- the paper's models ---------------------------------------------------------------------- */

static rp_plan plan_model(const char *model_name, bool limited, rp_partition *partition)
{
    const char *table = NULL;
    rp_model model;
    rp_platform platform;
    rp_costs costs;
    rp_plan_input input;
    rp_plan plan;
    cr_assert(eq(int, rp_arena_print(arena, &table, "%s@rtx4090", model_name), RP_OK));
    cr_assert(eq(int, rp_model_load(model_name, arena, &model), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", arena, &platform), RP_OK));
    cr_assert(eq(int, rp_costs_load(table, arena, &costs), RP_OK));
    cr_assert(eq(int, rp_plan_input_from_costs(&costs, &model, arena, &input), RP_OK));
    input.min_stages = 8;
    if (limited) {
        input.memory_limit = rp_plan_default_limit(&platform);
        cr_assert(eq(u64, input.memory_limit, UINT64_C(14400000000))); /* 0.6 * 24 GB */
    }
    cr_assert(eq(int, rp_plan_make(&input, arena, &plan, NULL), RP_OK));
    cr_assert(eq(int, rp_plan_partition(&plan, costs.layers, arena, partition), RP_OK));
    return plan;
}

/* planner.md 3: counts of stages that agree with published partitions. */
Test(planner, published_stage_counts)
{
    static const struct {
        const char *model;
        bool limited;
    } cases[] = {{"qwen3-1.7b", false},
                 {"qwen3-1.7b", true},
                 {"llama3.1-8b", false},
                 {"llama3.1-8b", true},
                 {"qwen3-235b", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_partition published;
        rp_partition planned;
        bool found = false;
        rp_plan plan = plan_model(cases[i].model, cases[i].limited, &planned);
        rp_text table = {0};
        const char *path = RP_SOURCE_ROOT "/paper-figures/published/partitions.csv";
        cr_assert(eq(int, rp_text_read_file(path, 1u << 20, &table), RP_OK));
        cr_assert(eq(int,
                     rp_partition_find(path, table.bytes, table.length, "roundpipe", cases[i].model,
                                       arena, &published, &found),
                     RP_OK));
        rp_text_fini(&table);
        cr_assert(found);
        cr_expect(eq(u32, plan.forward_count, published.forward_count), "%s", cases[i].model);
        cr_expect(eq(u32, plan.backward_count, published.backward_count), "%s", cases[i].model);
        cr_expect(eq(u32, planned.backward_layers[0], 0), "%s: the head alone", cases[i].model);
    }
}

/* planner.md 3: counts that differ from the published. */
Test(planner, counts_that_differ_from_the_published)
{
    rp_partition partition;
    cr_expect(eq(u32, plan_model("gpt-oss-20b", false, &partition).forward_count, 4));
    cr_expect(eq(u32, plan_model("gpt-oss-20b", true, &partition).forward_count, 7));
    cr_expect(eq(u32, partition.forward_layers[0], 0), "the embedding alone");
    cr_expect(eq(u32, plan_model("qwen3-32b", false, &partition).forward_count, 16));
}

/* Sizes: golden example qwen3_1p7b_4090 lists the bytes of the model's layers. */
Test(planner, bytes_of_layers)
{
    rp_model model;
    rp_costs costs;
    rp_plan_input input;
    rpplan_instances golden;
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", arena, &model), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", arena, &costs), RP_OK));
    cr_assert(eq(int, rp_plan_input_from_costs(&costs, &model, arena, &input), RP_OK));
    cr_assert(eq(int, rpplan_instances_load(GOLDEN, arena, &golden), RP_OK));
    const rp_plan_input *wanted = &golden.inputs[10];
    cr_assert(eq(u32, input.layers, wanted->layers));
    for (uint32_t i = 0; i < input.layers; i++) {
        cr_expect(eq(u64, input.fwd_bytes[i], wanted->fwd_bytes[i]), "layer %u", i);
        cr_expect(eq(u64, input.bwd_bytes[i], wanted->bwd_bytes[i]), "layer %u", i);
    }
}

/* ---- edges ----------------------------------------------------------------------------------- */

static rp_plan_input small_input(const int64_t *times, const uint64_t *bytes, uint32_t layers)
{
    return (rp_plan_input){.mode = RP_PLAN_TRAIN,
                           .layers = layers,
                           .fwd_time = times,
                           .bwd_time = times,
                           .fwd_bytes = bytes,
                           .bwd_bytes = bytes,
                           .memory_limit = RP_PLAN_UNLIMITED,
                           .min_stages = 1,
                           .tolerance_num = 11,
                           .tolerance_den = 10};
}

static void expect_refused(const rp_plan_input *input, const char *cause)
{
    char message[512] = "";
    rp_plan plan;
    rp_plan_candidate *list = NULL;
    uint32_t count = 0;
    rp_log_capture_begin(message, sizeof message);
    cr_expect(eq(int, rp_plan_make(input, arena, &plan, NULL), RP_INPUT), "%s", cause);
    rp_log_capture_end();
    cr_expect(strstr(message, cause) != NULL, "%s: %s", cause, message);
    cr_expect(strstr(message, "; valid ") != NULL, "%s", message);
    rp_log_capture_begin(message, sizeof message);
    cr_expect(eq(int, rp_plan_candidates(input, arena, &list, &count, NULL), RP_INPUT), "%s",
              cause);
    rp_log_capture_end();
}

Test(planner, bad_inputs_are_refused)
{
    static const int64_t times[] = {5, INT64_MAX / 4, 7};
    static const int64_t negative[] = {5, -1, 7};
    static const int64_t long_times[] = {INT64_MAX, 1, 0};
    static const uint64_t bytes[] = {1, 2, 3};
    static const uint64_t many_bytes[] = {INT64_MAX, 1, 0};
    const rp_plan_input good = small_input(times, bytes, 2);
    rp_plan_input bad = good;
    bad.layers = 0;
    expect_refused(&bad, "0 layers");
    bad.layers = RP_PLAN_MAX_LAYERS + 1;
    expect_refused(&bad, "65539 layers");
    bad = good;
    bad.min_stages = 0;
    expect_refused(&bad, "0 stages");
    bad = good;
    bad.tolerance_num = 9;
    expect_refused(&bad, "tolerance 9/10");
    bad.tolerance_den = 0;
    expect_refused(&bad, "tolerance 9/0");
    bad = good;
    bad.min_stages = 5;
    expect_refused(&bad, "too long");
    bad = small_input(negative, bytes, 3);
    expect_refused(&bad, "layer 1 takes -1");
    bad = small_input(long_times, bytes, 3);
    expect_refused(&bad, "times of all layers");
    bad = small_input(times, many_bytes, 3);
    expect_refused(&bad, "bytes of all layers");
}

/* Numbers at the ends of their ranges never overflow (the sanitizers check). */
Test(planner, extreme_numbers)
{
    static const int64_t longest[] = {INT64_MAX};
    static const uint64_t biggest[] = {INT64_MAX};
    rp_plan_input input = small_input(longest, biggest, 1);
    rp_plan plan;
    input.mode = RP_PLAN_INFER;
    input.memory_limit = 0; /* an ordinary limit: raised */
    input.tolerance_num = UINT32_MAX;
    input.tolerance_den = 1;
    cr_assert(eq(int, rp_plan_make(&input, arena, &plan, NULL), RP_OK));
    cr_expect(eq(i64, plan.cost, INT64_MAX));
    cr_expect(eq(u32, plan.forward_count, 1));
    cr_expect(eq(u64, plan.effective_memory_limit, 2 * (uint64_t)INT64_MAX));
    cr_expect(plan.limit_raised);
    static const int64_t zeros[3] = {0};
    static const uint64_t nothing[3] = {0};
    input = small_input(zeros, nothing, 3);
    input.memory_limit = 0;
    cr_assert(eq(int, rp_plan_make(&input, arena, &plan, NULL), RP_OK));
    cr_expect(eq(i64, plan.cost, 0));
    cr_expect(eq(u32, plan.total_stages, 2));
    cr_expect(not(plan.limit_raised));
}

/* The most layers allowed, with many that fit a window; all fields by hand. */
Test(planner, longest_list)
{
    uint32_t layers = RP_PLAN_MAX_LAYERS;
    int64_t *times = NULL;
    uint64_t *bytes = NULL;
    cr_assert(eq(int, rp_arena_alloc(arena, layers, sizeof *times, &times), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, layers, sizeof *bytes, &bytes), RP_OK));
    for (uint32_t i = 0; i < layers; i++) {
        times[i] = i + 1 == layers ? 10000 : 1; /* groups of up to 10000, and the head alone */
    }
    rp_plan_input input = small_input(times, bytes, layers);
    rp_plan plan;
    rp_plan_candidate *list = NULL;
    uint32_t count = 0;
    cr_assert(eq(int, rp_plan_make(&input, arena, &plan, NULL), RP_OK));
    /* 65537 times 1 and once 10000, in caps up to 11000. Six groups never hold all layers of 1, so
     * they take seven and the head an eighth, unless seven hold all: 75537 <= 7 * 10791. */
    cr_expect(eq(u32, plan.total_stages, 14));
    cr_expect(eq(i64, plan.max_stage_workload, 10791));
    cr_expect(eq(i64, plan.cost, 14 * INT64_C(10791)));
    cr_assert(eq(int, rp_plan_candidates(&input, arena, &list, &count, NULL), RP_OK));
    cr_expect(list == NULL && count == 0, "half a billion windows");
}
