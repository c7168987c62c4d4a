/* Lower bounds at hardware fidelity: never above any schedule's makespan on any machine. */
#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "sim/run/run_bounds.h"
#include "tests/support/assertions.h"
#include "tests/support/hand_run.h"
#include "tests/support/random_case.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>

static rp_arena *arena;

static void begin(void)
{
    rp_test_tool_begin();
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_arena_destroy(arena);
    rp_test_tool_end();
}

TestSuite(bounds_hardware, .init = begin, .fini = end, .timeout = 300);

typedef struct server {
    rp_model model;
    rp_costs costs;
    rp_platform platform;
} server;

static void load(server *s)
{
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", arena, &s->model), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", arena, &s->costs), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", arena, &s->platform), RP_OK));
}

/* Draws all that the bounds depend on, and more. */
static void draw_server(rp_random *random, server *s)
{
    rp_platform *p = &s->platform;
    double slow = 1.0 / rp_random_between(random, 1, 30);
    p->link_effective_gb_per_s = p->link_gb_per_s * slow;
    p->gpus_per_switch = rp_random_between(random, 0, 2) * 2;
    p->switch_gb_per_s = p->link_gb_per_s / rp_random_between(random, 1, 3);
    p->gpus_per_root = rp_random_between(random, 0, 1) * 4;
    p->root_gb_per_s = p->link_gb_per_s;
    p->sockets = rp_random_between(random, 1, 2);
    p->intersocket_gb_per_s = rp_random_between(random, 0, 1) * 5;
    p->host_dram_gb_per_s = rp_random_between(random, 0, 1) * 60;
    p->host_optimizer_gb_per_s = rp_random_between(random, 5, 200);
    p->usable_memory_gb = rp_random_between(random, 1, 3) * 25;
    p->launch_queue_depth = rp_random_between(random, 0, 1) * 1000;
    if (rp_random_between(random, 0, 2) == 0) {
        p->peer_access = RP_PEER_PCIE;
        p->peer_gb_per_s = p->link_gb_per_s * slow;
    }
}

static rp_status run_on(const rp_schedule_type *schedule, const server *s, uint32_t gpus,
                        rp_random *random, rpsim_result *result)
{
    rp_partition partition;
    rp_resolved run = rp_test_hand_run(schedule->name, &s->model, &s->costs, &partition, gpus,
                                       gpus * rp_random_between(random, 1, 3));
    run.decided.layer_grain = rp_random_between(random, 0, 1) == 1;
    run.decided.seq_len = 512u << rp_random_between(random, 0, 3);
    if (schedule->separate_backward) {
        run.decided.accumulate = rp_random_between(random, 1, 3);
        run.decided.microbatches = rp_random_between(random, 1, 10);
    }
    uint32_t all = rp_resolved_microbatches(&run);
    run.global_batch = all + rp_random_between(random, 0, 3 * all);
    uint32_t exactly = rp_schedule_stages(schedule, gpus);
    RP_TRY(rp_partition_even(schedule, &s->costs, gpus, exactly, arena, &partition, NULL));
    run.recompute = (rp_recompute)rp_random_between(random, 0, 2);
    run.decided.asynchronous = rp_random_between(random, 0, 3) == 0;
    return rpsim_hardware_case_run(&run, &s->platform, 0, result, NULL);
}

Test(bounds_hardware, no_schedule_beats_them)
{
    static const char *const keys[] = {
#define BOUND_KEY(name, key, of_class, words) key,
        RPSIM_BOUND_LIST(BOUND_KEY)
#undef BOUND_KEY
    };
    rp_random random = {99};
    uint32_t runs[64] = {0};
    uint32_t limited = 0;                   /* runs with a bound by memory */
    uint32_t best[RPSIM_BOUND_COUNT] = {0}; /* how often a term sets its class's bound */
    cr_assert(lt(u32, rp_schedule_count, 64));
    for (uint32_t i = 0; i < 24; i++) {
        server s;
        load(&s);
        draw_server(&random, &s);
        for (uint32_t k = 0; k < rp_schedule_count; k++) {
            char message[1024];
            rpsim_result result;
            rp_log_capture_begin(message, sizeof message);
            rp_status status =
                run_on(rp_schedules[k], &s, rp_random_between(&random, 1, 8), &random, &result);
            rp_log_capture_end();
            if (status != RP_OK) {
                continue;
            }
            runs[k]++;
            limited += result.bounds.ps[RPSIM_BOUND_MEMORY] > 0;
            for (int t = 0; t < RPSIM_BOUND_COUNT; t++) {
                cr_expect(le(i64, result.bounds.ps[t], result.metrics.makespan_ps),
                          "case %u, %s: %s", i, rp_schedules[k]->name, keys[t]);
            }
            for (int c = 0; c < RPSIM_BOUND_CLASS_COUNT; c++) {
                best[rpsim_bounds_term(&result.bounds, (rpsim_bound_class)c)]++;
            }
            cr_expect(eq(i64, rpsim_bounds_best(&result.bounds), result.metrics.lower_bound_ps));
            rpsim_result_fini(&result);
        }
    }
    for (uint32_t k = 0; k < rp_schedule_count; k++) {
        cr_expect(gt(u32, runs[k], 5), "%s", rp_schedules[k]->name);
    }
    cr_expect(gt(u32, limited, 100));
    /* The average MEMORY is below OPS or TRANSFERS in all these cases. */
    for (int t = 0; t < RPSIM_BOUND_COUNT; t++) {
        bool needed = t != RPSIM_BOUND_CHAIN && t != RPSIM_BOUND_LINKS && t != RPSIM_BOUND_MEMORY;
        cr_expect(gt(u32, best[t] + (needed ? 0 : 1), 0), "%s never counts", keys[t]);
    }
}

/* A GPU with a very slow link: uploads take most of the step. */
Test(bounds_hardware, links_are_tight)
{
    server s;
    rp_random random = {7};
    load(&s);
    s.platform.link_effective_gb_per_s = 0.05;
    for (uint32_t i = 0; i < 4; i++) {
        rpsim_result result;
        cr_assert(eq(int, run_on(rp_schedule_find("roundpipe"), &s, 1, &random, &result), RP_OK));
        double transfers = (double)result.bounds.ps[RPSIM_BOUND_TRANSFERS];
        cr_expect(gt(dbl, transfers, 0.7 * (double)result.metrics.makespan_ps));
        cr_expect(
            gt(i64, result.bounds.ps[RPSIM_BOUND_LINKS], 2 * result.bounds.ps[RPSIM_BOUND_WORK]));
        rpsim_result_fini(&result);
    }
}

/* Runs whose loss holds the logits of all tokens: with a small vocabulary it takes less time than
 * the loss in chunks of RoundPipe's library, whose time once stood in the bounds of every run. */
Test(bounds_hardware, the_loss_is_the_runs_own)
{
    static const char *const lines[] = {
        "--schedule zero3 --model small --platform rtx5090x8 --gpus 3 --seq-len 32768 "
        "--microbatches 3 --partition even --recompute none",
        "--schedule megatron-pp --model tiny --platform h200x8 --gpus 1 --seq-len 32768 "
        "--microbatches 1 --partition even",
        "--schedule megatron-pp --model small --platform rtx4090x64 --gpus 1 --seq-len 32768 "
        "--microbatches 2 --global-batch 36 --dtype fp32",
        "--schedule megatron-pp --model mpt-125m --platform h200 --gpus 1 --seq-len 2048 "
        "--microbatches 1 --microbatch-size 16 --accumulate 2 --recompute all",
        "--schedule zero2 --model small --platform h200x8 --gpus 1 --seq-len 8192 "
        "--microbatches 1 --microbatch-size 16 --recompute none",
        "--schedule fsdp-offload --model tiny --platform h100x8 --gpus 1 --seq-len 8192 "
        "--microbatches 2 --microbatch-size 16 --recompute none --dtype bf16",
        "--schedule mobius --model small --platform a100-40x8 --gpus 1 --seq-len 32768 "
        "--microbatches 1 --global-batch 31 --recompute all --grain layer",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        json_t *rows = rp_test_rpsim_rows("--format json --intervals off", lines[i]);
        size_t k = 0;
        const json_t *row = NULL;
        json_array_foreach(rows, k, row)
        {
            double makespan_ms = rp_test_json_number(row, "makespan_ms");
            double bound_ms = rp_test_json_number(row, "lower_bound_ms");
            cr_expect(le(dbl, bound_ms, makespan_ms), "rpsim %s", lines[i]);
            cr_expect(gt(dbl, bound_ms, 0.9 * makespan_ms), "rpsim %s", lines[i]);
        }
        json_decref(rows);
    }
}
