/* Counts of intervals on made-up cells, and no leaks of predictions (rp_test_tool_end checks). The
 * accuracy reached is a gate of checks.figures_10, which has rppredict's report. */
#include "sim/rppredict/prediction.h"
#include "common/base/log.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/published.h"
#include "sim/rppredict/run.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(prediction, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

/* Ten cells at their p50, some then moved out, in groups that count or do not. */
Test(prediction, calibration_counts)
{
    rpsim_cell cells[12];
    rpsim_prediction prediction = {.cells = cells, .count = 12};
    rpsim_calibration c;
    for (uint32_t i = 0; i < 12; i++) {
        cells[i] = (rpsim_cell){.group = i == 10   ? "baselines-set"
                                         : i == 11 ? "async"
                                                   : "baselines",
                                .framework = "zero2",
                                .model = "llama3.1-8b",
                                .known = true,
                                .measured_tokens_per_s = i == 0   ? 80
                                                         : i == 1 ? 130
                                                         : i == 2 ? 131
                                                                  : 100,
                                .range = {.p10 = 90, .p50 = 100, .p90 = 110}};
    }
    cr_assert(eq(int, rpsim_prediction_calibrate(&prediction, rp_test_tool_arena(), &c), RP_OK));
    cr_expect(eq(u32, c.cells, 10));
    cr_expect(eq(u32, c.inside, 7));
    cr_expect(eq(u32, c.below, 1));
    cr_expect(epsilon_eq(dbl, c.dense_width_pct, 20, 1e-9));
}

static void write_table(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", rp_test_tool_folder(), name);
    FILE *file = fopen(path, "w");
    cr_assert(ne(ptr, file, NULL));
    fputs(text, file);
    cr_assert(eq(int, fclose(file), 0));
}

static rp_status predict(const char *throughput, rpsim_prediction *prediction_out)
{
    write_table("throughput_4090.csv", throughput);
    write_table("scaling_4090.csv", "gpus\n");
    return rpsim_predict(rp_test_tool_folder(), 4, rp_test_tool_arena(), prediction_out);
}

/* A cell that fits, with drawn inputs, and a cell that does not. The rates are made up. */
Test(prediction, of_cells_leaves_no_memory)
{
    rpsim_prediction prediction;
    cr_assert(eq(int,
                 predict("framework,model,tokens_per_s\n"
                         "fsdp-zero3,qwen3-1.7b,1000\n"
                         "megatron-pp,llama3.1-8b,1000\n"
                         "megatron-pp,qwen3-32b,OOM\n",
                         &prediction),
                 RP_OK));
    cr_assert(eq(u32, prediction.count, 2));
    cr_expect(prediction.cells[0].fits && prediction.cells[0].range.p10 > 0);
    cr_expect(not(prediction.cells[1].fits || prediction.cells[1].range.p10 > 0));
    cr_expect(isnan(prediction.cells[1].error_pct));
}

Test(prediction, that_is_refused_leaves_no_memory)
{
    rpsim_prediction prediction;
    char messages[4096];
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = predict("framework,model,tokens_per_s\n"
                               "fsdp-zero3,qwen3-1.7b,1000\n"
                               "fsdp-zero3,qwen3-1.8b,1000\n",
                               &prediction);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_USAGE));
    cr_expect(ne(ptr, strstr(messages, "unknown model 'qwen3-1.8b'"), NULL), "%s", messages);
}

/* Refused while cells are answered: a table of 28 layers for a model of 32. */
Test(prediction, that_fails_leaves_no_memory)
{
    rp_costs costs;
    rp_platform platform;
    rpsim_answer answers[2];
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", arena, &costs), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", arena, &platform), RP_OK));
    const rp_resolved run = {.schedule = rp_schedule_find(rp_published_schedule("fsdp-zero3")),
                             .gpus = 8,
                             .decided.seq_len = 2048,
                             .global_batch = 16,
                             .decided.microbatches = 8,
                             .decided.accumulate = 1};
    rpsim_question questions[2] = {{.framework = "fsdp-zero3", .model = "qwen3-1.7b", .run = run},
                                   {.framework = "fsdp-zero3", .model = "llama3.1-8b", .run = run}};
    questions[0].run.decided.iterations = 1;
    questions[1].run.costs = &costs;
    char messages[1024];
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rpsim_answer_all(&platform, questions, 2, answers);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_INPUT));
    cr_expect(ne(ptr, strstr(messages, "28 layers, model llama3.1-8b 32"), NULL), "%s", messages);
}
