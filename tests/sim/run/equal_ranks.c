/* Ranks of sharded systems that do the same are simulated once: every number is that of a run with
 * all ranks, to the picosecond. Without RP_LONG a sixth of the pairs of schedules and runs. */
#include "sim/run/hardware_case.h"
#include "tests/support/assertions.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(equal_ranks, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 600);

static const char *const schedules[] = {"fsdp",         "fsdp-offload",  "zero2",      "zero3",
                                        "zero-offload", "zero-infinity", "megatron-tp"};

/* A run, and the GPUs that are enough for it. */
typedef struct scene {
    uint32_t block;
    const char *line;
} scene;

static const scene scenes[] = {
    {1, "--platform h100x8 --gpus 2 --microbatches 2"},
    {1, "--platform h100x8 --microbatches 24 --recompute none"},
    {1, "--platform h100x8 --gpus 4 --microbatches 8 --model qwen3-1.7b-lora"},
    {1, "--platform rtx4090x8 --microbatches 16 --seq-len 4096 --dtype bf16"},
    {1, "--platform a100-40x8 --nodes 2 --microbatches 32 --microbatch-size 2"},
    {1, "--platform a100-80x8-hdr --nodes 2 --gpus 8 --microbatches 16 --accumulate 2"},
    {1, "--platform rtx4090x8 --set platform.sockets=2,platform.intersocket_gb_per_s=20"},
    {1, "--platform rtx4090x8 --grain stage --recompute early --set "
        "platform.duplex_efficiency=0.7"},
    {2, "--platform rtx4090x8 --set platform.gpus_per_switch=2,platform.switch_gb_per_s=24"},
    {4, "--platform rtx4090x8 --set platform.gpus_per_switch=2,platform.switch_gb_per_s=40,"
        "platform.gpus_per_root=4,platform.root_gb_per_s=50,platform.duplex_efficiency=0.8"},
    {8, "--platform h100x8 --nodes 2 --microbatches 16 --set platform.host_dram_gb_per_s=150,"
        "platform.sockets=2,platform.intersocket_gb_per_s=20"},
    {8, "--platform a100-80x8-hdr --nodes 2 --microbatches 32 --iterations 3 --set "
        "platform.host_dram_gb_per_s=60,platform.gpus_per_switch=2,platform.switch_gb_per_s=30"},
};

/* Runs in which ranks differ, or blocks of them. */
static const char *const unequal[] = {
    "--platform h100x8 --gpus 4 --microbatches 8 --global-batch 15",
    "--platform h100x8 --gpus 1 --microbatches 4",
    "--platform rtx5090x1,rtx4090x1",
    "--platform rtx4090x8 --gpus 6 --set platform.gpus_per_switch=4,platform.switch_gb_per_s=24",
    "--platform rtx4090x8 --set platform.host_dram_gb_per_s=100",
};

static rp_status run_line(const char *schedule, const char *line, unsigned without,
                          rpsim_study *study, rpsim_result *result)
{
    char text[512];
    snprintf(text, sizeof text, "--intervals off --schedule %s %s", schedule, line);
    rp_test_study(text, study);
    return rpsim_hardware_case_run(&study->rows[0].run, study->rows[0].platform, without, result,
                                   NULL);
}

static void expect_equal(const rpsim_result *one, const rpsim_result *all, const char *what)
{
    size_t peaks = all->memory.gpu_count * sizeof(uint64_t);
    cr_expect(one->period_ps == all->period_ps, "%s: %.0f and %.0f ps", what, one->period_ps,
              all->period_ps);
    cr_expect(eq(i64, one->metrics.makespan_ps, all->metrics.makespan_ps), "%s", what);
    cr_expect(eq(int, memcmp(&one->metrics, &all->metrics, sizeof one->metrics), 0), "%s", what);
    cr_expect(eq(int, memcmp(&one->bounds, &all->bounds, sizeof one->bounds), 0), "%s", what);
    cr_expect(epsilon_eq(dbl, one->gpu_flop, all->gpu_flop, 1e-12 * all->gpu_flop), "%s", what);
    cr_expect(eq(dbl, one->peak_flops_per_s, all->peak_flops_per_s), "%s", what);
    cr_assert(eq(u32, one->memory.gpu_count, all->memory.gpu_count), "%s", what);
    cr_expect(eq(int, memcmp(one->memory.peak_gpu_bytes, all->memory.peak_gpu_bytes, peaks), 0),
              "%s", what);
    cr_expect(eq(u64, one->memory.peak_host_bytes, all->memory.peak_host_bytes), "%s", what);
    cr_expect(eq(int, one->memory.fits, all->memory.fits), "%s", what);
    cr_expect(eq(str, (char *)one->memory.oom_reason, (char *)all->memory.oom_reason), "%s", what);
}

static void compare(const char *schedule, const char *line, uint32_t block)
{
    rpsim_study study;
    rpsim_result all;
    rpsim_result one;
    cr_assert(eq(int, run_line(schedule, line, 0, &study, &all), RP_OK), "%s %s", schedule, line);
    cr_assert(eq(int,
                 rpsim_hardware_case_run(&study.rows[0].run, study.rows[0].platform,
                                         RPSIM_WITHOUT_EQUAL_RANKS, &one, NULL),
                 RP_OK),
              "%s %s", schedule, line);
    cr_expect(eq(u32, all.program->ranks, 0));
    cr_expect(eq(u32, one.program->ranks, block != 0 ? all.program->gpu_count : 0), "%s %s",
              schedule, line);
    cr_expect(eq(u32, one.program->gpu_count, block != 0 ? block : all.program->gpu_count), "%s %s",
              schedule, line);
    expect_equal(&one, &all, line);
    rpsim_result_fini(&one);
    rpsim_result_fini(&all);
    rpsim_study_fini(&study);
}

Test(equal_ranks, one_rank_gives_the_numbers_of_all)
{
    bool all = getenv("RP_LONG") != NULL;
    size_t count = sizeof scenes / sizeof scenes[0];
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        for (size_t k = 0; k < count; k++) {
            if (all || (i + k) % 6 == 0) {
                compare(schedules[i], scenes[k].line, scenes[k].block);
            }
        }
    }
}

Test(equal_ranks, options_of_some_schedules_change_nothing_about_it)
{
    compare("fsdp", "--platform h100x8 --gpus 3 --reduce-each microbatch --reduce-dtype fp32", 1);
    compare("fsdp", "--platform h100x8 --nodes 2 --stack torch --seq-len 8192", 1);
    compare("zero3", "--platform a100-80x8 --stack deepspeed --model llama3.1-8b-lora", 1);
    compare("fsdp",
            "--platform rtx4090x8 --offload-activations --set platform.gpus_per_switch=2,"
            "platform.switch_gb_per_s=24",
            2);
    compare("fsdp", "--platform h100x8 --nodes 2 --offload-activations --recompute none", 1);
    compare("fsdp", "--platform h100x8 --gpus 4 --stack torch --recompute selective", 1);
    compare("zero2", "--platform h100x8 --nodes 3 --gpus 5 --microbatches 30", 1);
    compare("fsdp", "--platform rtx4090x8 --model llama3.1-70b", 1); /* does not fit */
}

Test(equal_ranks, ranks_that_differ_are_simulated_each)
{
    for (size_t i = 0; i < sizeof unequal / sizeof unequal[0]; i++) {
        compare("zero3", unequal[i], 0);
    }
}

/* The closed form of sim/model.md: with 4,096 GPUs, each with a microbatch, nothing but the ring is
 * longer than with 8. */
Test(equal_ranks, thousands_of_ranks_need_the_memory_of_one)
{
    rpsim_study study;
    rpsim_result result;
    cr_assert(
        eq(int,
           run_line("fsdp", "--platform h100x8 --nodes 512 --microbatches 4096 --iterations 2",
                    RPSIM_WITHOUT_EQUAL_RANKS, &study, &result),
           RP_OK));
    cr_expect(eq(u32, result.program->gpu_count, 1));
    cr_expect(eq(u32, result.memory.gpu_count, 4096));
    cr_expect(eq(i64, result.metrics.busy_ps + result.metrics.bubble_ps,
                 4096 * result.metrics.makespan_ps));
    rpsim_result_fini(&result);
    rpsim_study_fini(&study);
}
