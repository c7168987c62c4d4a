/* Collectives between servers, by ring, trees and hierarchically: closed forms (Thakur,
 * Rabenseifner, Gropp 2005; Sanders, Speck, Träff 2009), alone, over an oversubscribed spine and
 * beside other traffic. Programs have an op per GPU; a GPU that stands for all takes as long. */
#include "common/machine/machine.h"
#include "sim/engine/hardware_engine.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>

TestSuite(collectives, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

#define GPUS 32u
#define OF_NODE 4u
#define NODES (GPUS / OF_NODE)
#define BUS 200e9
#define NET 40e9 /* of a node */
#define BYTES 3.2e9
#define LATENCY_US 8.0
#define NEAR_US 3.0
#define FAR_US 14.0

static rp_machine machine_of(uint32_t adapters, uint32_t leaf_nodes, bool rails, double over)
{
    return (rp_machine){.upload_Bps = 50e9,
                        .download_Bps = 50e9,
                        .host_Bps = 100e9,
                        .collective_Bps = BUS,
                        .collective_latency_ps = (int64_t)(LATENCY_US * 1e6),
                        .collective_hop_ps = (int64_t)(NEAR_US * 1e6),
                        .network_hop_ps = (int64_t)(FAR_US * 1e6),
                        .gpus_per_node = OF_NODE,
                        .network_Bps = NET,
                        .adapters = adapters,
                        .leaf_nodes = leaf_nodes,
                        .rails = rails,
                        .leaf_Bps = leaf_nodes * NET / (rails ? adapters : 1) / over,
                        .peer_Bps = BUS,
                        .nvlink_gpus = OF_NODE,
                        .peer_pcie = true};
}

/* An all-reduce per GPU of `gpus`, and boundary tensors between GPUs. */
typedef struct traffic {
    bool reduces;
    uint32_t send_count;
    uint32_t from[GPUS];
    uint32_t to[GPUS];
    double sent;
} traffic;

static void simulate(const rp_machine *m, const rp_layout *layout, uint32_t gpus, double reduced,
                     const traffic *t, double *reduce_s, double *send_s)
{
    rp_arena *arena = rp_test_tool_arena();
    uint32_t sends = t->send_count;
    rp_queue *queues = NULL;
    rp_op *ops = NULL;
    rp_wait *waits = NULL;
    uint64_t *bytes = NULL;
    uint32_t reduces = t->reduces ? gpus : 0;
    uint32_t count = reduces + 2 * sends;
    cr_assert(eq(int, rp_arena_alloc(arena, count, sizeof *queues, &queues), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, count + 1, sizeof *ops, &ops), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, sends + 1, sizeof *waits, &waits), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, count, sizeof *bytes, &bytes), RP_OK));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = i < reduces ? 0 : (i - reduces) / 2;
        bool send = i >= reduces && (i - reduces) % 2 == 0;
        rp_queue_kind kind = i < reduces ? RP_QUEUE_DATA : send ? RP_QUEUE_PEER : RP_QUEUE_RECEIVE;
        uint32_t gpu = i < reduces ? i : send ? t->from[k] : t->to[k];
        queues[i] = (rp_queue){
            .kind = (uint16_t)kind, .gpu = (uint16_t)gpu, .op_begin = i, .op_end = i + 1};
        ops[i].kind = i < reduces ? RP_OP_ALL_REDUCE : send ? RP_OP_SEND : RP_OP_RECV;
        ops[i].wait_begin = i < reduces ? 0 : k;
        bytes[i] = (uint64_t)(i < reduces ? reduced : t->sent);
        if (i >= reduces && !send) {
            waits[k] = i - 1;
        }
    }
    ops[count].wait_begin = sends;
    rp_program program = {.gpu_count = gpus,
                          .queue_count = count,
                          .queues = queues,
                          .op_count = count,
                          .ops = ops,
                          .op_bytes = bytes,
                          .wait_count = sends,
                          .waits = waits};
    program.traits.layout = *layout;
    rpsim_compute_costs costs = {0};
    rp_timeline *timeline = NULL;
    cr_assert(eq(int, rpsim_hardware_run(&program, &costs, m, &timeline, NULL), RP_OK));
    for (uint32_t i = 0; i < reduces; i++) {
        reduce_s[i] = 1e-12 * (double)timeline->end_ps[i];
    }
    *send_s = sends != 0 ? 1e-12 * (double)timeline->end_ps[reduces] : 0;
    rp_timeline_destroy(timeline);
}

/* Time of an all-reduce of BYTES by groups of all `gpus` GPUs, in their own program and with a GPU
 * that stands for all. */
static double all_reduce_s(rp_machine m, uint32_t gpus, rp_collectives algorithm)
{
    const rp_layout layout = {.data_parallel = gpus, .collectives = algorithm};
    const traffic all = {.reduces = true};
    double whole_s[GPUS];
    double folded_s = 0;
    double unused = 0;
    rp_machine folded = m;
    cr_assert(eq(int, rp_machine_fold(&folded, &layout, 1, NULL), RP_OK));
    m.tensor = folded.tensor;
    m.data = folded.data;
    double ring = 2 * (gpus - 1.0) / gpus * BYTES;
    simulate(&m, &layout, gpus, ring, &all, whole_s, &unused);
    simulate(&folded, &layout, 1, ring, &all, &folded_s, &unused);
    for (uint32_t i = 0; i < gpus; i++) {
        cr_expect(eq(dbl, whole_s[i], folded_s), "GPU %u", i);
    }
    return folded_s;
}

#define EXPECT_S(got, expected) cr_expect(epsilon_eq(dbl, got, expected, 1e-11), "%.12g", got)

Test(collectives, rings)
{
    rp_machine m = machine_of(1, 0, false, 1);
    double n = OF_NODE; /* in a node: 2 (n - 1) / n of the bytes, 2 (n - 1) hops */
    EXPECT_S(all_reduce_s(m, OF_NODE, RP_COLLECTIVES_RING),
             2 * (n - 1) / n * BYTES / BUS + 1e-6 * (LATENCY_US + 2 * (n - 1) * NEAR_US));
    n = GPUS; /* over all nodes, at the rate of a node's network */
    double hops = 2 * ((NODES - 1) * FAR_US + (n - NODES) * NEAR_US);
    double ring_s = 2 * (n - 1) / n * BYTES / NET + 1e-6 * (LATENCY_US + hops);
    EXPECT_S(all_reduce_s(m, GPUS, RP_COLLECTIVES_RING), ring_s);
    m.adapters = OF_NODE; /* each carries a part */
    EXPECT_S(all_reduce_s(m, GPUS, RP_COLLECTIVES_RING), ring_s);
    m.network_Bps = 8 * NET; /* the GPU's own traffic limits */
    EXPECT_S(all_reduce_s(m, GPUS, RP_COLLECTIVES_RING),
             2 * (n - 1) / n * BYTES / BUS + 1e-6 * (LATENCY_US + hops));
}

Test(collectives, trees)
{
    rp_machine m = machine_of(OF_NODE, 0, false, 1);
    EXPECT_S(all_reduce_s(m, OF_NODE, RP_COLLECTIVES_TREE),
             2 * BYTES / BUS + 1e-6 * (LATENCY_US + 2 * 2 * NEAR_US));
    double depth = 2 * 3 * FAR_US + 2 * 2 * NEAR_US; /* of 8 nodes, of 4 GPUs */
    EXPECT_S(all_reduce_s(m, GPUS, RP_COLLECTIVES_TREE),
             2 * BYTES / NET + 1e-6 * (LATENCY_US + depth));
    /* as a ring of two nodes does, they exchange a half twice */
    EXPECT_S(all_reduce_s(m, 2 * OF_NODE, RP_COLLECTIVES_TREE),
             BYTES / NET + 1e-6 * (LATENCY_US + 2 * FAR_US + 2 * 2 * NEAR_US));
    EXPECT_S(all_reduce_s(m, 2, RP_COLLECTIVES_TREE), all_reduce_s(m, 2, RP_COLLECTIVES_RING));
}

Test(collectives, hierarchical)
{
    rp_machine m = machine_of(OF_NODE, 0, false, 1);
    double k = OF_NODE;
    double near_s = (k - 1) / k * BYTES / BUS + 1e-6 * (LATENCY_US + (k - 1) * NEAR_US);
    double far_s =
        2 * (NODES - 1.0) / NODES * BYTES / NET + 1e-6 * (LATENCY_US + 2 * (NODES - 1) * FAR_US);
    EXPECT_S(all_reduce_s(m, GPUS, RP_COLLECTIVES_HIERARCHICAL), 2 * near_s + far_s);
    EXPECT_S(all_reduce_s(m, OF_NODE, RP_COLLECTIVES_HIERARCHICAL),
             all_reduce_s(m, OF_NODE, RP_COLLECTIVES_RING));
}

/* Below a leaf switch are two nodes. A ring passes its uplinks once, so they limit it only if they
 * have less bandwidth than a node. */
Test(collectives, rings_over_an_oversubscribed_spine)
{
    double n = GPUS;
    double hops = 2 * ((NODES - 1) * FAR_US + (n - NODES) * NEAR_US);
    for (int rails = 0; rails < 2; rails++) {
        for (double over = 1; over < 17; over *= 2) {
            rp_machine m = machine_of(OF_NODE, 2, rails, over);
            double rate = over > 2 ? 2 * NET / over : NET;
            EXPECT_S(all_reduce_s(m, GPUS, RP_COLLECTIVES_RING),
                     2 * (n - 1) / n * BYTES / rate + 1e-6 * (LATENCY_US + hops));
        }
    }
}

static traffic sends(uint32_t count, uint32_t distance, uint32_t turn)
{
    traffic t = {.send_count = count, .sent = 1e9};
    for (uint32_t i = 0; i < count; i++) {
        t.from[i] = i;
        t.to[i] = (i + distance) / OF_NODE * OF_NODE + (i + turn) % OF_NODE;
    }
    return t;
}

static double send_s(rp_machine m, const traffic *t)
{
    const rp_layout none = {0};
    double unused = 0;
    double got = 0;
    simulate(&m, &none, GPUS, 0, t, &unused, &got);
    return got;
}

/* Everybody below a leaf switch sends to the next, so the uplinks' total over the oversubscription
 * is the limit. It does not matter within the switch, nor on rails to the same adapter. */
Test(collectives, an_oversubscribed_spine_divides_the_bandwidth)
{
    double each = NET / OF_NODE;
    traffic leaf = sends(2 * OF_NODE, 2 * OF_NODE, 0);
    traffic node = sends(OF_NODE, OF_NODE, 0);
    traffic turned = sends(OF_NODE, OF_NODE, 1);
    for (double over = 1; over < 9; over *= 2) {
        rp_machine m = machine_of(OF_NODE, 2, false, over);
        EXPECT_S(send_s(m, &leaf), 1e9 / each * over);
        EXPECT_S(send_s(m, &node), 1e9 / each);
        EXPECT_S(send_s(m, &turned), 1e9 / each);
        m = machine_of(OF_NODE, 2, true, over);
        EXPECT_S(send_s(m, &leaf), 1e9 / each * over);
        EXPECT_S(send_s(m, &node), 1e9 / each);
        /* another rail: of the leaf switch's two adapters only this sends over the uplinks */
        EXPECT_S(send_s(m, &turned), 1e9 / each * (over > 2 ? over / 2 : 1));
    }
    rp_machine one = machine_of(1, 2, false, 1); /* the sender has all of the single adapter */
    traffic single = sends(1, OF_NODE, 0);
    EXPECT_S(send_s(one, &single), 1e9 / NET);
    one.adapters = OF_NODE;
    EXPECT_S(send_s(one, &single), 1e9 / each);
}

/* GPU 0 sends a boundary tensor to the next node's first GPU while the ring passes both. Each has
 * half of the shared adapters until it has arrived. */
Test(collectives, rings_share_adapters_with_boundary_tensors)
{
    const rp_layout layout = {.data_parallel = GPUS};
    rp_machine m = machine_of(OF_NODE, 0, false, 1);
    rp_machine folded = m;
    cr_assert(eq(int, rp_machine_fold(&folded, &layout, 1, NULL), RP_OK));
    m.tensor = folded.tensor;
    m.data = folded.data;
    m.collective_latency_ps = m.collective_hop_ps = m.network_hop_ps = 0;
    traffic t = sends(1, OF_NODE, 0);
    double each = NET / OF_NODE;
    double ring = 8e9; /* through an adapter */
    double reduced_s[GPUS];
    double sent_s = 0;
    t.reduces = true;
    t.sent = ring / 2;
    simulate(&m, &layout, GPUS, ring * OF_NODE, &t, reduced_s, &sent_s);
    EXPECT_S(sent_s, 2 * t.sent / each);
    EXPECT_S(reduced_s[0], (ring + t.sent) / each);
    EXPECT_S(reduced_s[OF_NODE], (ring + t.sent) / each);
    EXPECT_S(reduced_s[1], ring / each);
    m.adapters = 1; /* the node's four GPUs and the tensor share it */
    simulate(&m, &layout, GPUS, ring * OF_NODE, &t, reduced_s, &sent_s);
    EXPECT_S(sent_s, t.sent / (NET / (OF_NODE + 1)));
    EXPECT_S(reduced_s[0], (OF_NODE * ring + t.sent) / NET);
    EXPECT_S(reduced_s[1], (OF_NODE * ring + t.sent) / NET);
    EXPECT_S(reduced_s[2 * OF_NODE], ring / each);
}
