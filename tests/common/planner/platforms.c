/* Plans from computed cost tables: every model on every platform, as rpplan prints them, against
 * the slow reference, and as used by rpsim --partition auto. */
#include "common/inputs/load/platforms.h"
#include "common/inputs/data.h"
#include "common/inputs/load/models.h"
#include "common/planner/planner.h"
#include "common/roofline/roofline.h"
#include "sim/run/run_plan.h"
#include "tests/reference/slow_planner.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(planner_platforms, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

static json_t *run_rpplan(const char *model, const char *platform)
{
    json_error_t error;
    const char *const arguments[] = {"rpplan", "--model", model,      "--platform", platform,
                                     "--gpus", "1",       "--format", "json",       NULL};
    rp_test_outcome result = rp_test_tool_execute(RPPLAN_PATH, arguments);
    cr_assert(result.status == 0, "%s on %s: %s", model, platform, result.messages);
    json_t *root = json_loads(result.output, JSON_REJECT_DUPLICATES, &error);
    cr_assert(root != NULL, "%s on %s: %s", model, platform, error.text);
    return root;
}

/* planner.md 1 and executor.md 1.9, coded again: fp16 weights and gradients, the backward with its
 * recompute, 0.6 of the GPU memory, tolerance 1.1. */
static void describe(const rp_model *model, const rp_costs *costs, const rp_platform *platform,
                     slow_plan_input *in)
{
    int head = (int)model->layers + 1;
    *in = (slow_plan_input){.mode = SLOW_PLAN_FUSED,
                            .layers = head + 1,
                            .limit =
                                INT64_C(1000000000) * (int64_t)ceil(platform->memory_gib) / 5 * 3,
                            .min_stages = 1,
                            .num = 11,
                            .den = 10};
    int64_t table = (int64_t)model->embedding_parameters;
    int64_t trained = model->lora_rank == 0 ? 1 : 0;
    for (int i = 1; i < head; i++) {
        in->f[i] = costs->fwd_ps[i - 1];
        in->b[i] = costs->fwd_ps[i - 1] + costs->bwd_ps[i - 1];
        in->p[i] = 2 * (int64_t)rp_model_held_layer(model);
        in->q[i] = in->p[i] + 2 * (int64_t)rp_model_trainable_layer(model);
    }
    in->f[head] = costs->head_fwd_ps;
    in->b[head] = costs->head_fwd_ps + costs->head_bwd_ps;
    in->p[0] = 2 * table;
    in->q[0] = in->p[0] + trained * 2 * table;
    in->p[head] = 2 * (table + (int64_t)model->hidden);
    in->q[head] = in->p[head] * (1 + trained);
}

static void expect_stages(const json_t *plan, const char *key, int stages[][2], int count,
                          const char *name)
{
    const json_t *list = json_object_get(plan, key);
    cr_assert(eq(sz, json_array_size(list), (size_t)count), "%s: %s", name, key);
    for (int i = 0; i < count; i++) {
        const json_t *stage = json_array_get(list, (size_t)i);
        for (size_t k = 0; k < 2; k++) {
            cr_expect(eq(i64, json_integer_value(json_array_get(stage, k)), stages[i][k]), "%s: %s",
                      name, key);
        }
    }
}

static void expect_plan(const char *model_name, const char *platform_name)
{
    char name[128];
    rp_model model;
    rp_platform platform;
    rp_costs costs;
    slow_plan_input input;
    slow_plan plan;
    rp_arena *arena = rp_test_tool_arena();
    snprintf(name, sizeof name, "%s on %s", model_name, platform_name);
    cr_assert(eq(int, rp_model_load(model_name, arena, &model), RP_OK));
    cr_assert(eq(int, rp_platform_load(platform_name, arena, &platform), RP_OK));
    const rp_roof roof = {&platform, {RP_DTYPE_F16, RP_ACCUMULATION_USUAL}, NULL};
    cr_assert(eq(int, rp_find_costs(&model, &roof, 4, 2048, arena, &costs, NULL), RP_OK));
    describe(&model, &costs, &platform, &input);
    slow_plan_make(&input, &plan);
    json_t *printed = run_rpplan(model_name, platform_name);
    cr_expect(eq(str, (char *)rp_test_json_text(printed, "costs"), (char *)costs.name), "%s", name);
    expect_stages(printed, "fwd_plan", plan.forward, plan.forward_count, name);
    expect_stages(printed, "bwd_plan", plan.backward, plan.backward_count, name);
    cr_expect(eq(i64, json_integer_value(json_object_get(printed, "cost")), plan.cost), "%s", name);
    bool raised = json_is_true(json_object_get(printed, "limit_raised"));
    cr_expect(eq(int, raised, plan.raised), "%s", name);

    char line[256];
    snprintf(line, sizeof line,
             "--schedule roundpipe --model %s --platform %s --gpus 1 --microbatches 2 --partition "
             "auto --intervals off --format csv",
             model_name, platform_name);
    rp_csv rows = rp_test_tool_table("rpsim", rp_test_rpsim_well(line).output, ',');
    rp_partition partition; /* only a run's head computes its loss in chunks */
    rp_costs of_run;
    const char *text = NULL;
    cr_assert(
        eq(int, rpsim_run_costs(&costs, &model, &platform, 4, 2048, arena, &of_run, NULL), RP_OK));
    cr_assert(eq(int,
                 rpsim_table_plan(&of_run, &model, rp_plan_default_limit(&platform), 1, arena,
                                  &partition, NULL, NULL),
                 RP_OK));
    cr_assert(eq(int, rp_partition_text(&partition, arena, &text), RP_OK));
    cr_expect(eq(str, (char *)rp_test_tool_cell(&rows, 0, "partition"), (char *)text), "%s", name);
    json_decref(printed);
}

Test(planner_platforms, every_model_on_every_platform)
{
    const char **models = NULL;
    const char **platforms = NULL;
    uint32_t model_count = 0;
    uint32_t platform_count = 0;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_data_list("models", arena, &models, &model_count), RP_OK));
    cr_assert(eq(int, rp_data_list("platforms", arena, &platforms, &platform_count), RP_OK));
    cr_assert(ge(u32, model_count, 12));
    cr_assert(ge(u32, platform_count, 7));
    uint32_t step = getenv("RP_LONG") != NULL ? 1 : 4;
    for (uint32_t m = 0; m < model_count; m++) {
        for (uint32_t p = m % step; p < platform_count; p += step) {
            expect_plan(models[m], platforms[p]);
        }
    }
}

/* The table names the source of its times: measured, moved from another GPU, or a roofline. */
Test(planner_platforms, the_source_of_times_is_said)
{
    static const struct {
        const char *model;
        const char *platform;
        const char *text;
    } cases[] = {{"qwen3-1.7b", "rtx4090x8", "qwen3-1.7b@rtx4090,"},
                 {"qwen3-1.7b", "h100x8", "qwen3-1.7b@h100 (moved from rtx4090),"},
                 {"qwen3-8b", "h100x8", "qwen3-8b@h100 (roofline),"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const arguments[] = {"rpplan",     "--model",         cases[i].model,
                                         "--platform", cases[i].platform, NULL};
        rp_test_outcome result = rp_test_tool_execute(RPPLAN_PATH, arguments);
        cr_expect(eq(int, result.status, 0), "%s", result.messages);
        cr_expect(strncmp(result.output, cases[i].text, strlen(cases[i].text)) == 0, "%s",
                  result.output);
        cr_expect(strstr(result.output, "\ntimes of 4 sequences of 2048 tokens: ") != NULL, "%s",
                  result.output);
    }
}
