/* Root complexes, sockets, DRAM and nodes: closed forms, and random programs on extreme topologies,
 * which must not change a bit. */
#include "tests/support/assertions.h"
#include "tests/support/lowered_bench.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(machine_topology, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* ---- closed forms ---------------------------------------------------------------------------- */

#define GPUS 8u
#define OPS 4u /* of each queue: parameter pieces, or gradients down */

/* Queue 2 * gpu uploads, queue 2 * gpu + 1 downloads, four ops each. */
typedef struct net {
    rp_queue queues[2 * GPUS];
    rp_op ops[2 * GPUS * OPS + 1];
    rp_program program;
    rp_routes routes;
    rp_network *network;
} net;

static void open_net(net *n, const rp_machine *m)
{
    *n = (net){0};
    for (uint32_t q = 0; q < 2 * GPUS; q++) {
        bool down = q % 2 == 1;
        n->queues[q] = (rp_queue){.kind = down ? RP_QUEUE_DOWNLOAD : RP_QUEUE_PARAM_UPLOAD,
                                  .gpu = (uint16_t)(q / 2),
                                  .op_begin = q * OPS,
                                  .op_end = (q + 1) * OPS};
        for (uint32_t i = q * OPS; i < (q + 1) * OPS; i++) {
            n->ops[i].kind = down ? RP_OP_DOWNLOAD_PARAM_GRAD : RP_OP_UPLOAD_PARAMS;
        }
    }
    n->program = (rp_program){.gpu_count = GPUS,
                              .queue_count = 2 * GPUS,
                              .queues = n->queues,
                              .op_count = 2 * GPUS * OPS,
                              .ops = n->ops};
    cr_assert(
        eq(int,
           rp_machine_network(&n->program, m, rp_test_tool_arena(), &n->routes, &n->network, NULL),
           RP_OK));
}

static uint32_t route_of(const net *n, uint32_t op)
{
    return n->routes.of_op != NULL ? n->routes.of_op[op] : n->routes.of_queue[op / OPS];
}

/* Rates of ops that run together, in GB/s. */
static void expect(const rp_machine *m, uint32_t count, const uint32_t *ops, const double *expected)
{
    net n;
    open_net(&n, m);
    for (uint32_t i = 0; i < count; i++) {
        cr_assert(eq(int, rp_network_start(n.network, route_of(&n, ops[i]), 1e9, 0, i), RP_OK));
    }
    for (uint32_t i = 0; i < count; i++) {
        double got = rp_network_rate(n.network, route_of(&n, ops[i])) * 1e-9;
        cr_expect(epsilon_eq(dbl, got, expected[i], 1e-9), "op %u of %u: %g for %g", i, count, got,
                  expected[i]);
    }
    rp_network_destroy(n.network);
}

/* Piece `piece` of an upload to a GPU, and a gradient going down. */
#define UPLOAD(gpu, piece) (2u * (gpu)*OPS + (piece))
#define DOWNLOAD(gpu, piece) ((2u * (gpu) + 1u) * OPS + (piece))
#define EXPECT(machine, ops, rates) expect(machine, sizeof(ops) / sizeof(uint32_t), ops, rates)

static const rp_machine base = {.upload_Bps = 20e9, .download_Bps = 20e9, .host_Bps = 100e9};

/* Two GPUs per switch of 30 GB/s, two switches per root complex of 50 GB/s. */
Test(machine_topology, a_root_complex_is_shared_by_its_switches)
{
    rp_machine m = base;
    m.gpus_per_switch = 2;
    m.switch_Bps = 30e9;
    m.gpus_per_root = 4;
    m.root_Bps = 50e9;
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), UPLOAD(1, 0)}), ((double[]){15, 15}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), UPLOAD(2, 0)}), ((double[]){20, 20}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), UPLOAD(1, 0), UPLOAD(2, 0), UPLOAD(3, 0)}),
           ((double[]){12.5, 12.5, 12.5, 12.5}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), UPLOAD(1, 0), UPLOAD(2, 0)}), ((double[]){15, 15, 20}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), UPLOAD(1, 0), UPLOAD(2, 0), UPLOAD(4, 0)}),
           ((double[]){15, 15, 20, 20}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), DOWNLOAD(1, 0)}), ((double[]){20, 20}));
}

/* Both directions of a link together do 0.75 times their sum, on links of GPUs, switches and root
 * complexes. Either direction may use the other's rest. */
Test(machine_topology, directions_slow_each_other)
{
    rp_machine m = base;
    m.duplex = 0.75;
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0)}), ((double[]){20}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), DOWNLOAD(1, 0)}), ((double[]){20, 20}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), DOWNLOAD(0, 0)}), ((double[]){15, 15}));
    m.download_Bps = 10e9; /* both: 22.5 */
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), DOWNLOAD(0, 0)}), ((double[]){12.5, 10}));
    m.download_Bps = 20e9;
    m.gpus_per_switch = 2;
    m.switch_Bps = 30e9; /* both: 45 */
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), UPLOAD(1, 0)}), ((double[]){15, 15}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), DOWNLOAD(1, 0)}), ((double[]){20, 20}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), UPLOAD(1, 0), DOWNLOAD(0, 0), DOWNLOAD(1, 0)}),
           ((double[]){11.25, 11.25, 11.25, 11.25}));
    m.gpus_per_root = 4;
    m.root_Bps = 24e9; /* both: 36 */
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), DOWNLOAD(2, 0)}), ((double[]){18, 18}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), DOWNLOAD(2, 0), UPLOAD(4, 0), DOWNLOAD(5, 0)}),
           ((double[]){18, 18, 18, 18}));
    m.duplex = 1;
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), DOWNLOAD(2, 0)}), ((double[]){20, 20}));
}

/* Over PCIe a GPU that sends and receives uses both directions of its link. */
Test(machine_topology, peers_slow_each_other)
{
    net n;
    uint32_t route[2];
    rp_machine m = base;
    m.duplex = 0.6;
    open_net(&n, &m);
    for (uint32_t i = 0; i < 2; i++) { /* 0 to 1, 1 to 2 */
        cr_assert(
            eq(int, rp_machine_peer_route(&n.program, &m, i, i + 1, n.network, &route[i]), RP_OK));
        cr_assert(eq(int, rp_network_start(n.network, route[i], 1e9, 0, i), RP_OK));
    }
    cr_expect(epsilon_eq(dbl, rp_network_rate(n.network, route[0]) * 1e-9, 12, 1e-9));
    cr_expect(epsilon_eq(dbl, rp_network_rate(n.network, route[1]) * 1e-9, 12, 1e-9));
    rp_network_destroy(n.network);
}

/* Two sockets of four GPUs, with 12 GB/s between them. Pieces of GPU 0 alternate between socket 0
 * and 1, of GPU 1 between 1 and 0. */
Test(machine_topology, weights_are_interleaved_over_sockets)
{
    rp_machine m = base;
    m.sockets = 2;
    m.intersocket_Bps = 12e9;
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0)}), ((double[]){20}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 1)}), ((double[]){12}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(1, 0)}), ((double[]){12}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(4, 0)}), ((double[]){12}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(4, 1)}), ((double[]){20}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 1), UPLOAD(1, 0), UPLOAD(2, 2)}), ((double[]){6, 6, 20}));
    /* the other direction: GPUs of socket 1 read socket 0, GPUs of socket 0 write socket 1 */
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 1), UPLOAD(4, 0)}), ((double[]){12, 12}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(4, 0), DOWNLOAD(0, 1)}), ((double[]){6, 6}));
    m.local_memory = true;
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 1), UPLOAD(1, 0), UPLOAD(4, 0)}), ((double[]){20, 20, 20}));
}

/* Two sockets have 30 GB/s of DRAM each, for all GPUs; links between sockets are wide. */
Test(machine_topology, dram_belongs_to_a_socket)
{
    rp_machine m = base;
    m.sockets = 2;
    m.dram_Bps = 60e9;
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), UPLOAD(2, 0)}), ((double[]){15, 15}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), UPLOAD(2, 1)}), ((double[]){20, 20}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0), UPLOAD(4, 0), DOWNLOAD(2, 2)}),
           ((double[]){10, 10, 10}));
    cr_expect(eq(u32, rp_machine_shared_count(&m, GPUS, RP_SHARED_DRAM), 2));
    cr_expect(eq(u32, rp_machine_shared_count(&m, GPUS, RP_SHARED_INTERSOCKET), 0));
}

/* Two nodes of four GPUs, ports of 9 GB/s: reading node 1 from node 0 uses node 1's port out and
 * node 0's port in. Three nodes: both ports limit. */
Test(machine_topology, nodes_read_each_other_over_the_network)
{
    rp_machine m = base;
    m.gpus_per_node = 4;
    m.network_Bps = 9e9;
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 0)}), ((double[]){20}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 1)}), ((double[]){9}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 1), UPLOAD(1, 0), UPLOAD(2, 1)}), ((double[]){3, 3, 3}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 1), UPLOAD(4, 0)}), ((double[]){9, 9}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 1), DOWNLOAD(4, 0)}), ((double[]){4.5, 4.5}));
    m.gpus_per_node = 3; /* homes 0, 1, 2; GPU 0 reads node 1, GPU 3 (of node 1) node 2 */
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 1), UPLOAD(3, 2)}), ((double[]){9, 9}));
    EXPECT(&m, ((uint32_t[]){UPLOAD(0, 1), UPLOAD(6, 1)}), ((double[]){4.5, 4.5}));
}

/* ---- random programs ------------------------------------------------------------------------- */

static uint64_t run_hash(rp_test_bench *b, const rp_machine *m)
{
    b->machine = *m;
    rp_test_bench_run(b);
    return rp_timeline_hash(b->timeline);
}

/* Links wide enough for all traffic change no bit. With any number of sockets host work is split
 * equally. */
Test(machine_topology, wide_links_change_nothing)
{
    rp_random random = {4090};
    uint32_t slower[3] = {0};
    for (uint32_t i = 0; i < 120; i++) {
        rp_test_bench b = {.c = malloc(sizeof *b.c)};
        rp_random_case_draw(&random, 400, b.c);
        if (b.c->schedule->separate_backward) {
            b.c->config.round = RP_ROUND_ALL;
        }
        rp_test_bench_sizes(&b, rp_random_between(&random, 0, 400000000), 30000000u * (i % 7));
        rp_test_bench_lower(&b);
        uint32_t gpus = b.program->gpu_count;
        uint64_t plain = run_hash(&b, &base);
        rp_machine wide = base;
        wide.gpus_per_root = (gpus + 1) / 2;
        wide.root_Bps = wide.intersocket_Bps = wide.network_Bps = 21e9 * gpus;
        wide.sockets = 2;
        cr_assert(eq(u64, run_hash(&b, &wide), plain), "case %u: two sockets", i);
        wide.gpus_per_node = gpus;
        wide.local_memory = true;
        cr_assert(eq(u64, run_hash(&b, &wide), plain), "case %u: local memory", i);
        if (gpus % 2 == 0) { /* two nodes with half of the host's rate each */
            wide.gpus_per_node = gpus / 2;
            wide.host_Bps = base.host_Bps / 2;
            cr_assert(eq(u64, run_hash(&b, &wide), plain), "case %u: two nodes", i);
        }
        const double narrow_Bps = 1e9;
        rp_machine narrow[3] = {base, base, base};
        narrow[0].gpus_per_root = gpus;
        narrow[0].root_Bps = narrow_Bps;
        narrow[1].dram_Bps = narrow_Bps;
        narrow[2].sockets = 2;
        narrow[2].intersocket_Bps = narrow_Bps;
        for (uint32_t k = 0; k < 3; k++) {
            slower[k] += run_hash(&b, &narrow[k]) != plain;
        }
        rp_test_bench_fini(&b);
    }
    cr_expect(gt(u32, slower[0], 60));
    cr_expect(gt(u32, slower[1], 60));
    cr_expect(gt(u32, slower[2], 40));
}

/* Host ops take as long on any number of sockets. DRAM below the host's rate limits them, and a
 * simultaneous DMA takes its share. */
Test(machine_topology, host_ops_share_dram_with_transfers)
{
    rp_test_bench b;
    rp_test_bench_make(&b, "roundpipe", 4, 1, false);
    rp_test_bench_sizes(&b, 1000, 1000);
    for (uint32_t i = 0; i < RP_TEST_BENCH_LAYERS + 2; i++) {
        b.lower.sizes.parameters[i] = 1000000000;
    }
    rp_test_bench_lower(&b);
    for (uint32_t sockets = 1; sockets <= 3; sockets++) {
        b.machine = base;
        b.machine.sockets = sockets;
        b.machine.dram_Bps = 50e9;
        rp_test_bench_run(&b);
        for (uint32_t i = 0; i < b.program->op_count; i++) {
            if (b.program->ops[i].kind == RP_OP_OPTIMIZER) { /* 18 x 32 GB at 50 GB/s */
                int64_t took = b.timeline->end_ps[i] - b.timeline->start_ps[i];
                cr_expect(le(i64, llabs(took - INT64_C(11520000000000)), 20000), "%u sockets",
                          sockets);
            }
        }
    }
    rp_test_bench_fini(&b);
}
