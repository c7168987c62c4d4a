/* Model, platform, schedule, GPUs, sequence length, partition and recompute combine freely at
 * hardware fidelity: each case of a walk, a walk per kind of GPU, runs within the roofline and its
 * own lower bounds, or is refused with a reason. Other tests run single paths. */
#include "common/base/hash.h"
#include "common/inputs/data.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/platform.h"
#include "common/schedule/schedule_type.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/platform_file.h"
#include "tests/support/random_case.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(combine, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 500);

#define MAX_PLATFORMS 64u

typedef struct walk {
    rp_random random;
    const char **models;
    uint32_t model_count;
    const char *platforms[MAX_PLATFORMS];
    uint32_t platform_count;
    uint32_t ran, too_big, refused;
    char line[512];
} walk;

static uint32_t pick(walk *w, uint32_t count)
{
    return (uint32_t)rp_random_between(&w->random, 0, count - 1);
}

/* All shipped platforms of a GPU, and PCIe 3 to 5 with every way to reach a peer, on 64 GPUs in one
 * server or in eight. */
static void find_platforms(walk *w, const char *gpu, const char *base)
{
    static const char *const peers[] = {
        "peer_gb_per_s: 0\npeer: none\nnvlink_gpus: -",
        "peer_gb_per_s: 16\npeer: pcie\nnvlink_gpus: -",
        "peer_gb_per_s: 300\npeer: nvlink\nnvlink_gpus: -",
        "peer_gb_per_s: 56.25\npeer: nvlink\nnvlink_gpus: 2",
    };
    const char **names = NULL;
    uint32_t count = 0;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_data_list("platforms", arena, &names, &count), RP_OK));
    for (uint32_t i = 0; i < count; i++) {
        rp_platform platform;
        cr_assert(eq(int, rp_platform_load(names[i], arena, &platform), RP_OK));
        if (strcmp(platform.gpu, gpu) == 0) {
            w->platforms[w->platform_count++] = names[i];
        }
    }
    cr_assert(gt(u32, w->platform_count, 0));
    for (uint32_t i = 0; i < 12; i++) {
        char name[64];
        char lines[512];
        snprintf(name, sizeof name, "%s-%u", gpu, i);
        snprintf(lines, sizeof lines,
                 "name: %s\ngpus: 64\nlink_gb_per_s: -\npcie_gen: %u\npcie_lanes: "
                 "16\nlink_effective_gb_per_s: 0\nlink_efficiency: 0.655\n%s\n%s",
                 name, 3 + i / 4, peers[i % 4],
                 i % 2 == 0 ? "" : "nodes: 8\nnetwork_gb_per_s: 12.5\n");
        w->platforms[w->platform_count++] = rp_test_platform_file(base, name, lines);
    }
}

/* Every number of a result is finite and at least 0. */
static void check_numbers(const walk *w, const json_t *value)
{
    size_t index = 0;
    const char *key = NULL;
    json_t *item = NULL;
    json_object_foreach((json_t *)value, key, item)
    {
        check_numbers(w, item);
    }
    json_array_foreach(value, index, item)
    {
        check_numbers(w, item);
    }
    if (json_is_number(value)) {
        double number = json_number_value(value);
        cr_expect(number >= 0 && isfinite(number), "rpsim %s: %g", w->line, number);
    }
}

static void check_row(walk *w, const json_t *row, const rp_model *model,
                      const rp_platform *platform)
{
    double tokens = rp_test_json_number(row, "global_batch") * rp_test_json_number(row, "seq_len");
    double gpus = rp_test_json_number(row, "gpus");
    double flop = rp_test_training_flop(model, tokens, rp_test_json_number(row, "seq_len"));
    double least_ms = 1e3 * flop / (gpus * 1e12 * platform->fp16_tflops_fp16_acc);
    bool steady = json_is_number(json_object_get(row, "iteration_ms"));
    double took_ms = rp_test_json_number(row, steady ? "iteration_ms" : "makespan_ms");
    cr_expect(ge(dbl, took_ms, least_ms), "rpsim %s", w->line);
    if (steady) {
        double rate = rp_test_json_number(row, "tokens_per_s");
        cr_expect(epsilon_eq(dbl, rate, 1e3 * tokens / took_ms, 1e-6 * rate), "rpsim %s", w->line);
    }
    double makespan_ms = rp_test_json_number(row, "makespan_ms");
    double exposed_ms = rp_test_json_number(row, "comm_exposed_ms");
    double bound_ms = rp_test_json_number(row, "lower_bound_ms");
    cr_expect(le(dbl, bound_ms, makespan_ms * (1 + 1e-9)), "rpsim %s", w->line);
    cr_expect(le(dbl, rp_test_json_number(row, "lower_bound_any_ms"), bound_ms), "rpsim %s",
              w->line);
    cr_expect(le(dbl, exposed_ms, gpus * makespan_ms), "rpsim %s", w->line);
    double bubble = rp_test_json_number(row, "bubble_pct");
    cr_expect(bubble >= 0 && bubble <= 100, "rpsim %s: bubble %g %%", w->line, bubble);
    const json_t *fits = json_object_get(row, "fits");
    const char *reason = rp_test_json_text(row, "oom_reason");
    bool said = reason != NULL && strstr(reason, "bytes") != NULL;
    bool known = json_is_boolean(fits);
    bool explained = json_is_false(fits) ? said : reason == NULL;
    cr_expect(known, "rpsim %s: whether it fits is unknown", w->line);
    cr_expect(explained, "rpsim %s: %s", w->line, reason != NULL ? reason : "no reason");
    w->too_big += json_is_false(fits);
    const json_t *peaks = json_object_get(row, "peak_gpu_bytes");
    cr_expect(eq(dbl, (double)json_array_size(peaks), gpus), "rpsim %s", w->line);
    check_numbers(w, row);
}

/* Draws from the schedule's name and the case's number alone: a new schedule leaves the others'
 * cases as they are. */
static void run_case(walk *w, const char *schedule, uint64_t number)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 7, 8, 16, 63, 64};
    static const uint32_t lengths[] = {128, 512, 1000, 2048, 8192, 32768};
    static const char *const partitions[] = {"", " --partition even", " --partition auto"};
    static const char *const modes[] = {"",
                                        "",
                                        "",
                                        " --recompute none",
                                        " --recompute wait",
                                        " --optimizer async",
                                        " --accumulate 2",
                                        " --grain layer"};
    w->random.state = rp_hash_add(rp_hash_add_text(RP_HASH_SEED, schedule), number);
    const char *model_name = w->models[pick(w, w->model_count)];
    const char *platform_name = w->platforms[pick(w, w->platform_count)];
    rp_model model;
    rp_platform platform;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_model_load(model_name, arena, &model), RP_OK));
    cr_assert(eq(int, rp_platform_load(platform_name, arena, &platform), RP_OK));
    uint32_t gpus = counts[pick(w, 10)];
    bool odd = pick(w, 8) == 0;
    snprintf(w->line, sizeof w->line,
             "--schedule %s --model %s --platform %s --gpus %u --seq-len %u --microbatches %u "
             "--iterations %u%s%s",
             schedule, model_name, platform_name, gpus, lengths[pick(w, 6)],
             odd ? 1 + pick(w, 20) : gpus * (1 + pick(w, 2)), gpus <= 4 ? 16u : 1u,
             partitions[pick(w, 3)], modes[pick(w, 8)]);
    rp_test_outcome outcome = rp_test_rpsim_after("--format json --intervals off", w->line);
    if (outcome.status == 2) {
        bool silent = outcome.output[0] == '\0';
        cr_expect(silent && strstr(outcome.messages, "valid") != NULL, "rpsim %s: %s", w->line,
                  outcome.messages);
        w->refused++;
        return;
    }
    cr_assert(outcome.status == 0, "rpsim %s: exit %d: %s", w->line, outcome.status,
              outcome.messages);
    json_error_t error;
    json_t *rows = json_loads(outcome.output, JSON_REJECT_DUPLICATES, &error);
    cr_assert(rows != NULL && json_array_size(rows) == 1, "rpsim %s: %s", w->line, error.text);
    check_row(w, json_array_get(rows, 0), &model, &platform);
    json_decref(rows);
    w->ran++;
}

/* A walk that is refused everywhere or nowhere, or always fits, tests nothing. */
static void walk_all(const char *gpu, const char *base, uint64_t number)
{
    walk w = {0};
    find_platforms(&w, gpu, base);
    cr_assert(
        eq(int, rp_data_list("models", rp_test_tool_arena(), &w.models, &w.model_count), RP_OK));
    uint32_t cases_per_schedule = getenv("RP_LONG") != NULL ? 3 : 1;
    for (uint32_t i = 0; i < cases_per_schedule * rp_schedule_count; i++) {
        uint32_t of_schedule = i / rp_schedule_count;
        run_case(&w, rp_schedules[i % rp_schedule_count]->name, 10 * number + of_schedule);
    }
    cr_expect(ge(u32, w.ran, rp_schedule_count / 3));
    cr_expect(gt(u32, w.refused, 0));
    cr_expect(gt(u32, w.too_big, 0));
    cr_expect(lt(u32, w.too_big, w.ran));
}

Test(combine, rtx3090)
{
    walk_all("rtx3090", "rtx3090x8", 1);
}

Test(combine, rtx4090)
{
    walk_all("rtx4090", "rtx4090x8", 2);
}

Test(combine, rtx5090)
{
    walk_all("rtx5090", "rtx5090x8", 3);
}

Test(combine, a800)
{
    walk_all("a800", "a800x8", 4);
}

Test(combine, h100)
{
    walk_all("h100", "h100x8", 5);
}

Test(combine, h200)
{
    walk_all("h200", "h200x8", 6);
}
