/* Boundary tensors between GPUs: closed forms, the stage engine, and the validator. */
#include "common/base/log.h"
#include "sim/run/case.h"
#include "tests/support/assertions.h"
#include "tests/support/lowered_bench.h"
#include "tests/support/platform_file.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(peers, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

#define MS INT64_C(1000000000)

static const rp_machine nvlink = {.upload_Bps = 20e9,
                                  .download_Bps = 20e9,
                                  .host_Bps = 100e9,
                                  .peer_Bps = 100e9,
                                  .nvlink_gpus = RP_TEST_BENCH_GPUS,
                                  .peer_pcie = true};

static int64_t makespan_of(const rp_timeline *t)
{
    int64_t last = 0;
    for (uint32_t i = 0; i < t->program->op_count; i++) {
        bool compute = rp_op_kind_class((rp_op_kind)t->program->ops[i].kind) == RP_CLASS_COMPUTE;
        last = compute && t->end_ps[i] > last ? t->end_ps[i] : last;
    }
    return last;
}

static int64_t run_ps(rp_test_bench *b, const rp_machine *m)
{
    b->machine = *m;
    rp_test_bench_run(b);
    return makespan_of(b->timeline);
}

static uint32_t count_kind(const rp_program *p, rp_op_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        count += p->ops[i].kind == kind;
    }
    return count;
}

/* A microbatch through 4 GPUs and back: 48 ms of compute, 3 boundaries of 1 GB each way. */
static void make_row(rp_test_bench *b, uint32_t peer_gpus, const uint32_t *groups)
{
    rp_test_bench_make(b, "gpipe", 1, 1, false);
    b->c->config.recompute = RP_RECOMPUTE_NONE;
    rp_test_bench_sizes(b, 1000000000, 0);
    b->lower.sizes.input_bytes = 0;
    b->lower.peer_gpus = peer_gpus;
    b->lower.peer_groups = groups;
    rp_test_bench_lower(b);
    cr_assert(eq(int, rp_program_check(b->program), RP_OK));
}

Test(peers, a_row_of_gpus)
{
    rp_test_bench b;
    make_row(&b, UINT32_MAX, NULL);
    cr_expect(eq(u32, count_kind(b.program, RP_OP_SEND), 6));
    cr_expect(eq(u32, count_kind(b.program, RP_OP_RECV), 6));
    cr_expect(eq(u32, count_kind(b.program, RP_OP_DOWNLOAD_ACT), 0));
    cr_expect(eq(i64, run_ps(&b, &nvlink), (48 + 6 * 10) * MS)); /* 100 GB/s */
    rp_machine m = nvlink;
    m.nvlink_gpus = 0; /* PCIe: the port exceeds the link of 20 GB/s */
    cr_expect(eq(i64, run_ps(&b, &m), (48 + 6 * 50) * MS));
    m.gpus_per_switch = 2; /* 1 to 2 and back pass two uplinks; others none */
    m.switch_Bps = 10e9;
    cr_expect(eq(i64, run_ps(&b, &m), (48 + 4 * 50 + 2 * 100) * MS));
    m.gpus_per_switch = 0;
    m.gpus_per_root = 2;
    m.root_Bps = 5e9;
    cr_expect(eq(i64, run_ps(&b, &m), (48 + 4 * 50 + 2 * 200) * MS));
    m.gpus_per_root = 0;
    m.sockets = 2; /* DRAM is not used */
    m.dram_Bps = 2e9;
    m.intersocket_Bps = 4e9;
    cr_expect(eq(i64, run_ps(&b, &m), (48 + 4 * 50 + 2 * 250) * MS));
    m = nvlink; /* two nodes: NVLink within, the network between */
    m.nvlink_gpus = m.gpus_per_node = 2;
    m.network_Bps = 2e9;
    cr_expect(eq(i64, run_ps(&b, &m), (48 + 4 * 10 + 2 * 500) * MS));
    rp_test_bench_fini(&b);
}

/* Bridged pairs: 0 - 1 and 2 - 3 over NVLink, 1 - 2 down and up through the host. */
Test(peers, bridged_pairs)
{
    rp_test_bench b;
    make_row(&b, 2, NULL);
    rp_machine m = nvlink;
    m.nvlink_gpus = 2;
    m.peer_pcie = false;
    cr_expect(eq(u32, count_kind(b.program, RP_OP_SEND), 4));
    cr_expect(eq(u32, count_kind(b.program, RP_OP_DOWNLOAD_ACT), 1));
    cr_expect(eq(u32, count_kind(b.program, RP_OP_DOWNLOAD_GRAD), 1));
    cr_expect(eq(i64, run_ps(&b, &m), (48 + 4 * 10 + 2 * 100) * MS));
    rp_test_bench_fini(&b);
}

/* Only GPUs 2 and 3 of four are bridged. A hop that is not goes down and up through the host. */
Test(peers, a_single_bridge)
{
    rp_test_bench b;
    const uint32_t groups[] = {0, 1, 2, 2};
    make_row(&b, 1, groups);
    cr_expect(eq(u32, count_kind(b.program, RP_OP_SEND), 2));
    cr_expect(eq(u32, count_kind(b.program, RP_OP_DOWNLOAD_ACT), 2));
    rp_machine m = nvlink;
    m.peer_pcie = false;
    m.listed = m.gpus_per_node = 4;
    for (uint32_t gpu = 0; gpu < 4; gpu++) {
        m.each[gpu] = (rp_machine_gpu){1, 1, groups[gpu]};
    }
    cr_expect(eq(i64, run_ps(&b, &m), (48 + 2 * 10 + 4 * 100) * MS));
    rp_test_bench_fini(&b);
}

/* All hops go through the host, and the last GPU's link has half the rate: its hop takes 50 ms on
 * one link and 100 ms on the other. */
Test(peers, a_slot_with_half_the_lanes)
{
    rp_test_bench b;
    make_row(&b, 0, NULL);
    rp_machine m = nvlink;
    m.peer_Bps = 0;
    m.upload_Bps = m.download_Bps = 10e9; /* the least */
    m.listed = m.gpus_per_node = 4;
    for (uint32_t gpu = 0; gpu < 4; gpu++) {
        double share = gpu < 3 ? 2 : 1;
        m.each[gpu] = (rp_machine_gpu){share, share, gpu};
    }
    cr_expect(eq(i64, run_ps(&b, &m), (48 + 4 * 100 + 2 * 150) * MS));
    rp_test_bench_fini(&b);
}

Test(peers, unreachable_gpus_are_refused)
{
    rp_test_bench b;
    make_row(&b, UINT32_MAX, NULL);
    rp_machine machines[2] = {nvlink, nvlink};
    machines[0].peer_Bps = 0;
    machines[1].nvlink_gpus = 2;
    machines[1].peer_pcie = false;
    for (size_t i = 0; i < 2; i++) {
        char message[512];
        rp_timeline *t = NULL;
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rpsim_hardware_run(b.program, &b.costs, &machines[i], &t, NULL);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_INPUT));
        cr_expect(ne(ptr, strstr(message, "receives from GPU"), NULL), "%s", message);
    }
    rp_test_bench_fini(&b);
}

/* GPUs never meet on a port, and a hop of 1 ms ends before the next unit's. A SEND then equals a
 * hop of the stage engine, which has no links. */
Test(peers, without_contention_a_send_is_a_hop)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs"};
    for (uint32_t i = 0; i < 4 * 4 * 3; i++) {
        rp_test_bench b;
        rp_test_bench_make(&b, schedules[i % 4], 4 * (i / 4 % 4 + 1), 1, false);
        rp_random_case *c = b.c;
        c->config.recompute = i / 16 == 0 ? RP_RECOMPUTE_NONE : RP_RECOMPUTE_WAIT;
        c->config.gpus = 2;
        c->costs.hop_ps = MS;
        cr_assert(eq(int,
                     rp_partition_even(c->schedule, &c->costs, 2, i % 4 < 2 ? 2 : 4 * (1 + i / 32),
                                       rp_test_tool_arena(), &c->partition, NULL),
                     RP_OK));
        rp_test_bench_sizes(&b, 100000000, 0);
        b.lower.sizes.input_bytes = 0;
        b.lower.peer_gpus = UINT32_MAX;
        rp_test_bench_lower(&b);
        rpsim_result stage;
        cr_assert(eq(int, rpsim_case_run(c->schedule, &c->config, &stage, NULL), RP_OK));
        cr_expect(eq(i64, run_ps(&b, &nvlink), stage.metrics.makespan_ps), "%s, case %u",
                  schedules[i % 4], i);
        rpsim_result_fini(&stage);
        rp_test_bench_fini(&b);
    }
}

/* Random pipelines: programs are valid, attributions sum (rpsim_explain fails otherwise), ports are
 * never exceeded, empty tensors take no time. */
Test(peers, random_pipelines)
{
    rp_random random = {3090};
    uint32_t compared = 0;
    for (uint32_t i = 0; i < 300; i++) {
        rp_test_bench b = {.c = malloc(sizeof *b.c)};
        rp_random_case_draw(&random, 400, b.c);
        if (b.c->schedule->separate_backward) {
            free(b.c);
            continue;
        }
        b.c->config.recompute = i % 2 == 0 ? RP_RECOMPUTE_NONE : b.c->config.recompute;
        b.c->config.iterations = 1;
        b.c->costs.hop_ps = 0;
        uint64_t bytes = i % 3 == 0 ? 0 : rp_random_between(&random, 1, 400000000);
        rp_test_bench_sizes(&b, bytes, 0);
        b.lower.peer_gpus = i % 5 == 0 ? 2 : UINT32_MAX;
        rp_test_bench_lower(&b);
        cr_assert(eq(int, rp_program_check(b.program), RP_OK), "case %u", i);
        rp_machine m = nvlink;
        m.nvlink_gpus = i % 5 == 0 ? 2 : i % 7 == 0 ? 0 : 4096;
        int64_t took = run_ps(&b, &m);
        const rp_timeline *t = b.timeline;
        for (uint32_t k = 0; k < b.program->op_count; k++) {
            double least_ps = (double)b.program->op_bytes[k] / m.peer_Bps * 1e12;
            if (b.program->ops[k].kind == RP_OP_SEND) {
                cr_assert(ge(dbl, (double)(t->end_ps[k] - t->start_ps[k]) + 1, least_ps));
            } else if (b.program->ops[k].kind == RP_OP_RECV) {
                cr_assert(eq(i64, t->end_ps[k], t->start_ps[k]), "case %u", i);
            }
        }
        rpsim_explain_case given = {.timeline = t, .costs = &b.costs, .machine = &b.machine};
        rpsim_explanation e;
        cr_assert(eq(int, rpsim_explain(&given, rp_test_tool_arena(), &e, NULL), RP_OK), "case %u",
                  i);
        if (bytes == 0 && i % 2 == 0) {
            rpsim_result stage;
            cr_assert(eq(int, rpsim_case_run(b.c->schedule, &b.c->config, &stage, NULL), RP_OK));
            cr_assert(eq(i64, took, stage.metrics.makespan_ps), "case %u", i);
            rpsim_result_fini(&stage);
            compared++;
        }
        rp_test_bench_fini(&b);
    }
    cr_expect(gt(u32, compared, 20));
}

/* 50 MB over ports of 5 GB/s take 10 ms, a stage's forward 4 ms, its backward with recompute 12:
 * transfers between GPUs are the first cause, links to the host none. */
Test(peers, slow_ports_are_the_first_cause)
{
    rp_test_bench b;
    rp_test_bench_make(&b, "1f1b", 16, 1, false);
    rp_test_bench_sizes(&b, 200000000, 0);
    b.lower.sizes.input_bytes = 0;
    b.lower.peer_gpus = UINT32_MAX;
    rp_test_bench_lower(&b);
    b.machine = nvlink;
    b.machine.peer_Bps = 8e9;
    rpsim_sensitivity s;
    rpsim_first_cause cause = rp_test_bench_cause(&b, NULL, &s);
    cr_expect(eq(int, cause.kind, RPSIM_RESOURCE_PEER));
    cr_expect(lt(dbl, fabs(s.links), 0.001));
    cr_expect(lt(dbl, fabs(s.peer + s.compute - 1), 0.02), "%g + %g", s.peer, s.compute);
    rp_test_bench_fini(&b);
}

/* Schedules without resident weights send boundary tensors to the host or gather them, whether GPUs
 * reach each other or not, by the same program. Each pipeline with resident weights sends. */
Test(peers, only_resident_pipelines_send)
{
    const char *with = rp_test_platform_file("rtx4090x8", "with-peers",
                                             "peer: nvlink\npeer_gb_per_s: 100\nnvlink_gpus: -");
    uint32_t same = 0;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const char *programs[2];
        for (size_t k = 0; k < 2; k++) {
            char line[512];
            snprintf(line, sizeof line,
                     "--schedule %s --gpus 2 --microbatches 8 --iterations 1 --platform %s "
                     "--program-out @DIR@/program.txt",
                     rp_schedules[i]->name, k == 0 ? "rtx4090x8" : with);
            rp_test_rpsim_well(line);
            const char *path = "@DIR@/program.txt";
            programs[k] = rp_test_tool_read(rp_test_tool_expand(path, strlen(path)));
        }
        bool alike = strcmp(programs[0], programs[1]) == 0;
        bool resident = rp_schedules[i]->traits.placement == RP_PLACEMENT_RESIDENT;
        cr_expect(eq(int, alike, !resident), "%s", rp_schedules[i]->name);
        same += alike;
    }
    cr_expect(ge(u32, same, 8)); /* RoundPipe, Mobius, ZeRO, FSDP, Megatron-TP */
}
