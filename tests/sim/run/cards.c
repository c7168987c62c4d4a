/* Runs on GPUs of different cards: the ratio of their times, pipelines by hand, memory by card. */
#include "sim/run/card_factors.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Two cards of made-up rates: `full`, and `half` with half of each rate and of the memory. */
static const char *write_card(const char *name, double share)
{
    const char *path = NULL;
    cr_assert(eq(
        int,
        rp_arena_print(rp_test_tool_arena(), &path, "%s/gpus/%s.yaml", rp_test_tool_folder(), name),
        RP_OK));
    FILE *file = fopen(path, "w");
    cr_assert(ne(ptr, file, NULL));
    fprintf(file, "name: %s\nsource: s\nmemory_gb: %g\n", name, share < 0.3 ? 4 : 40 * share);
    fprintf(file, "fp16_tflops_fp16_acc: %g\nfp16_tflops_fp32_acc: %g\nfp32_tflops: %g\n",
            320 * share, 160 * share, 80 * share);
    fprintf(file, "memory_gb_per_s: %g\nmemory_effective_gb_per_s: %g\n", 1000 * share,
            900 * share);
    fprintf(file, "attention_fwd_tflops: %g\nattention_bwd_tflops: %g\ngemm_efficiency: 0.8\n",
            140 * share, 120 * share);
    cr_assert(eq(int, fclose(file), 0));
    return path;
}

static void begin(void)
{
    rp_test_tool_begin();
    (void)mkdir(rp_test_path(rp_test_tool_folder(), "gpus"), 0700);
    (void)setenv("RP_TRACES", rp_test_tool_folder(), 1);
    write_card("full", 1);
    write_card("half", 0.5);
    write_card("small", 0.25);
}

TestSuite(cards, .init = begin, .fini = rp_test_tool_end, .timeout = 120);

/* A platform of these cards; kernels launch in no time, so that all times are rates'. */
static const char *server(const char *list, uint32_t gpus)
{
    static uint32_t number;
    char name[32];
    (void)snprintf(name, sizeof name, "p%u.yaml", number++);
    const char *path = rp_test_path(rp_test_tool_folder(), name);
    FILE *file = fopen(path, "w");
    cr_assert(ne(ptr, file, NULL));
    fprintf(file,
            "name: p\nsource: s\ngpu: full\ngpus: %u\ngpu_list: %s\nlink_gb_per_s: 32\n"
            "link_effective_gb_per_s: 25\npeer_gb_per_s: 0\nhost_optimizer_gb_per_s: 95\n"
            "collective_gb_per_s: 10\nhost_memory_gb: 800\n",
            gpus, list);
    cr_assert(eq(int, fclose(file), 0));
    return path;
}

static rp_test_run run_on(const char *platform, const char *more)
{
    char line[512];
    (void)snprintf(line, sizeof line, "--platform %s %s", platform, more);
    return rp_test_run_line(line);
}

static int64_t first_start(const rp_test_run *r, uint32_t gpu)
{
    int64_t first = INT64_MAX;
    for (uint32_t q = 0; q < r->program->queue_count; q++) {
        const rp_queue *queue = &r->program->queues[q];
        for (uint32_t i = queue->op_begin;
             i < queue->op_end && queue->kind == RP_QUEUE_COMPUTE && queue->gpu == gpu; i++) {
            int64_t start = r->timeline->start_ps[i];
            first = start < first ? start : first;
        }
    }
    return first;
}

/* Ends of a GPU's passes. */
static int64_t last_pass(const rp_test_run *r, uint32_t gpu)
{
    int64_t last = 0;
    for (uint32_t q = 0; q < r->program->queue_count; q++) {
        const rp_queue *queue = &r->program->queues[q];
        for (uint32_t i = queue->op_begin;
             i < queue->op_end && queue->kind == RP_QUEUE_COMPUTE && queue->gpu == gpu; i++) {
            bool pass = rp_op_kind_is_pass((rp_op_kind)r->program->ops[i].kind);
            last = pass && r->timeline->end_ps[i] > last ? r->timeline->end_ps[i] : last;
        }
    }
    return last;
}

static int64_t passes(const rp_test_run *r, uint32_t gpu)
{
    int64_t sum = 0;
    for (uint32_t q = 0; q < r->program->queue_count; q++) {
        const rp_queue *queue = &r->program->queues[q];
        for (uint32_t i = queue->op_begin;
             i < queue->op_end && queue->kind == RP_QUEUE_COMPUTE && queue->gpu == gpu; i++) {
            bool pass = rp_op_kind_is_pass((rp_op_kind)r->program->ops[i].kind);
            sum += pass ? r->timeline->end_ps[i] - r->timeline->start_ps[i] : 0;
        }
    }
    return sum;
}

/* A card with half of all rates takes twice as long, whether times are a roofline or moved from a
 * measured table; a pipeline's slow last stage has no gap from its first forward to its last
 * backward, so the step is the passes of that stage, what comes before and what follows. */
Test(cards, half_of_all_rates_is_twice_the_time)
{
    static const char *const models[] = {"qwen3-0.6b", "llama3.1-8b", "qwen3-1.7b"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char line[128];
        (void)snprintf(line, sizeof line,
                       "--schedule 1f1b --microbatches 8 --iterations 1 --model %s", models[i]);
        rp_test_run fast = run_on(server("full full", 2), line);
        rp_test_run mixed = run_on(server("full half", 2), line);
        cr_assert(eq(ptr, (void *)fast.costs.gpu_factor, NULL));
        cr_assert(ne(ptr, (void *)mixed.costs.gpu_factor, NULL));
        cr_expect(eq(dbl, mixed.costs.gpu_factor[0].pass, 1));
        cr_expect(epsilon_eq(dbl, mixed.costs.gpu_factor[1].pass, 2, 1e-7), "%s", models[i]);
        cr_expect(epsilon_eq(dbl, mixed.costs.gpu_factor[1].update, 2, 1e-12));
        int64_t slow = passes(&mixed, 1);
        cr_expect(epsilon_eq(dbl, (double)slow / (double)passes(&fast, 1), 2, 1e-6));
        cr_expect(eq(i64, passes(&mixed, 0), passes(&fast, 0)));
        cr_expect(eq(i64, last_pass(&mixed, 1) - first_start(&mixed, 1), slow), "%s", models[i]);
        cr_expect(eq(i64, first_start(&mixed, 1), first_start(&fast, 1)));
        cr_expect(eq(i64, last_pass(&mixed, 0) - last_pass(&mixed, 1),
                     last_pass(&fast, 0) - last_pass(&fast, 1)));
        rp_test_run_fini(&fast);
        rp_test_run_fini(&mixed);
    }
}

/* A GPU of the program that stands for a group is as slow as its slowest card. */
Test(cards, groups_wait_for_their_slowest_card)
{
    const char *platform = server("full full half full", 4);
    rp_test_run r =
        run_on(platform, "--schedule 1f1b --model qwen3-1.7b --tensor-parallel 2 --gpus 4");
    cr_assert(eq(u32, r.program->gpu_count, 2));
    cr_expect(eq(dbl, r.costs.gpu_factor[0].pass, 1));
    cr_expect(epsilon_eq(dbl, r.costs.gpu_factor[1].pass, 2, 1e-7));
    rp_test_run_fini(&r);
    r = run_on(platform, "--schedule fsdp --model qwen3-1.7b --gpus 3");
    cr_assert(eq(u32, r.program->gpu_count, 3));
    cr_expect(eq(dbl, r.costs.gpu_factor[1].pass, 1));
    cr_expect(epsilon_eq(dbl, r.costs.gpu_factor[2].pass, 2, 1e-7));
    rp_test_run_fini(&r);
}

/* Bounds hold for every schedule and order of cards. */
Test(cards, no_step_beats_its_bounds)
{
    static const char *const lists[] = {"full half full half", "half full full small"};
    for (int i = 0; i < 2; i++) {
        char line[512];
        (void)snprintf(line, sizeof line,
                       "--platform %s --schedule all --model qwen3-0.6b --intervals off "
                       "--iterations 1 --format json",
                       server(lists[i], 4));
        json_t *rows = rp_test_rpsim_rows(line, "--gpus 4");
        cr_expect(gt(sz, json_array_size(rows), 15));
        for (size_t k = 0; k < json_array_size(rows); k++) {
            const json_t *row = json_array_get(rows, k);
            double bound = rp_test_json_number(row, "lower_bound_ms");
            double step = rp_test_json_number(row, "makespan_ms");
            cr_expect(bound <= step * (1 + 1e-9), "%s: %g of %g",
                      rp_test_json_text(row, "schedule"), bound, step);
        }
        json_decref(rows);
    }
}

/* Slower cards do not slow the host down: where it launches small kernels, a server of both cards
 * is as fast as one of the slower card. */
Test(cards, host_is_as_fast_beside_each_card)
{
    static const char *const platforms[] = {"--platform 4090x4", "--platform 5090x2,4090x2"};
    double steps[2];
    for (int i = 0; i < 2; i++) {
        json_t *rows = rp_test_rpsim_rows("--schedule fsdp-offload --model tiny-moe --stack torch "
                                          "--intervals off --iterations 1 --format json",
                                          platforms[i]);
        steps[i] = rp_test_json_number(json_array_get(rows, 0), "makespan_ms");
        json_decref(rows);
    }
    cr_expect(epsilon_eq(dbl, steps[1] / steps[0], 1, 0.01));
}

/* A limit of power holds for each card: it makes both slower. */
Test(cards, power_limit_is_of_each_card)
{
    static const char *const limits[] = {"", "--power-limit 250"};
    double passes_of[2];
    for (int i = 0; i < 2; i++) {
        char line[256];
        (void)snprintf(line, sizeof line,
                       "--schedule 1f1b --model qwen3-1.7b --stack torch --iterations 1 %s",
                       limits[i]);
        rp_test_run r = run_on("5090x1,4090x1", line);
        passes_of[i] = (double)passes(&r, 1);
        cr_expect(ge(dbl, r.costs.gpu_factor[1].pass, 1));
        rp_test_run_fini(&r);
    }
    cr_expect(gt(dbl, passes_of[1], 1.05 * passes_of[0]));
}

static bool fits(const char *platform, const char *gpus)
{
    char line[512];
    (void)snprintf(line, sizeof line,
                   "--platform %s --schedule fsdp --model qwen3-0.6b --microbatch-size 1",
                   platform);
    char whole[1024];
    (void)snprintf(whole, sizeof whole, "%s --intervals off --iterations 1 --format json", line);
    json_t *rows = rp_test_rpsim_rows(whole, gpus);
    bool yes = json_is_true(json_object_get(json_array_get(rows, 0), "fits"));
    json_decref(rows);
    return yes;
}

/* The small card has 4 GB. */
Test(cards, memory_is_that_of_each_card)
{
    const char *platform = server("full full small", 3);
    cr_expect(fits(platform, "--gpus 2"));
    cr_expect(not(fits(platform, "--gpus 3")));
    cr_expect(fits(server("full full half", 3), "--gpus 3"));
}

/* By its peak the A6000 is the faster card, by its memory the 3090, which is 0.4 % faster here. */
Test(cards, nearly_equal_cards_run)
{
    cr_expect(fits("a6000x1,3090x1", "--gpus 2"));
}
