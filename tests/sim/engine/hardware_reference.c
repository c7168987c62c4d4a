/* The engine of hardware fidelity against a slow, simple engine (tests/reference/slow_hardware.h):
 * random lowered programs on random machines, every start and end equal to the picosecond. */
#include "tests/reference/slow_hardware.h"
#include "tests/support/assertions.h"
#include "tests/support/lowered_bench.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>

TestSuite(hardware_reference, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 500);

#define GPUS RP_TEST_BENCH_GPUS

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PROGRAMS 20u
#else
#define PROGRAMS 150u
#endif

#define MAX_NODES 2
#define MAX_SOCKETS 4

/* Numbers of the reference's links. */
enum {
    UP = 0, /* of each GPU, from the host */
    DOWN = GPUS,
    SWITCH_UP = 2 * GPUS, /* at most one per GPU */
    SWITCH_DOWN = 3 * GPUS,
    ROOT_UP = 4 * GPUS,
    ROOT_DOWN = 5 * GPUS,
    OUT = 6 * GPUS, /* to peers */
    IN = 7 * GPUS,
    HOST = 8 * GPUS,
    OWN,            /* of Adam, refresh and collection with rates of their own */
    DRAM = OWN + 3, /* of each socket of each node */
    NET_OUT = DRAM + MAX_NODES * MAX_SOCKETS,
    NET_IN = NET_OUT + MAX_NODES,
    BETWEEN = NET_IN + MAX_NODES, /* of each node, from each socket to each */
    LINKS = BETWEEN + MAX_NODES * MAX_SOCKETS * MAX_SOCKETS
};

static double draw_Bps(rp_random *random)
{
    return 1e9 * rp_random_between(random, 1, 60) + 7.0 * rp_random_between(random, 0, 1000000);
}

static void draw_machine(rp_random *random, rp_machine *m)
{
    static const uint32_t groups[] = {0, 1, 2, 4};
    uint32_t nodes = rp_random_between(random, 1, MAX_NODES);
    uint32_t largest = nodes == 1 ? 3 : 2; /* of `groups`, within a node */
    *m = (rp_machine){.upload_Bps = draw_Bps(random),
                      .download_Bps = draw_Bps(random),
                      .host_Bps = draw_Bps(random),
                      .peer_Bps = draw_Bps(random),
                      .peer_pcie = true};
    m->gpus_per_node = GPUS / nodes;
    m->network_Bps = draw_Bps(random);
    m->sockets = groups[rp_random_between(random, 1, 3)];
    m->intersocket_Bps = rp_random_between(random, 0, 1) == 0 ? 0 : draw_Bps(random);
    m->gpus_per_switch = groups[rp_random_between(random, 0, largest)];
    m->switch_Bps = draw_Bps(random);
    m->gpus_per_root = rp_random_between(random, 0, 1) == 0 ? 0 : groups[largest];
    m->root_Bps = draw_Bps(random);
    m->dram_Bps = rp_random_between(random, 0, 1) == 0 ? 0 : draw_Bps(random);
    m->nvlink_gpus = groups[rp_random_between(random, 0, largest)];
    m->adam_Bps = rp_random_between(random, 0, 1) == 0 ? 0 : draw_Bps(random);
    m->refresh_Bps = rp_random_between(random, 0, 1) == 0 ? 0 : draw_Bps(random);
    m->collect_Bps = rp_random_between(random, 0, 1) == 0 ? 0 : draw_Bps(random);
    m->copy_latency_ps = rp_random_between(random, 0, 1) * INT64_C(1234567);
    m->op_gap_ps = rp_random_between(random, 0, 1) * INT64_C(765432);
    m->op_wake_ps = rp_random_between(random, 0, 1) * INT64_C(3456789);
}

static void draw_times(rp_random *random, int64_t *ps, uint32_t stages)
{
    for (uint32_t i = 0; i < stages * RP_OP_KIND_COUNT; i++) {
        uint64_t most = UINT64_C(20000000000);
        ps[i] = ps[i] > 0 ? (int64_t)(rp_random_next(random) % most) : 0;
    }
}

/* Half of the pipelines offload what their forwards save. */
static void draw_offload(rp_random *random, rp_test_bench *b)
{
    bool hosted = b->c->schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
    uint64_t **tapes = &b->lower.sizes.tape_bytes;
    cr_assert(
        eq(int,
           rp_arena_alloc(rp_test_tool_arena(), RP_TEST_BENCH_LAYERS + 2, sizeof(uint64_t), tapes),
           RP_OK));
    for (uint32_t i = 0; i < RP_TEST_BENCH_LAYERS + 2; i++) {
        (*tapes)[i] =
            b->lower.sizes.boundary_bytes + 10037ull * rp_random_between(random, 1, 10000);
    }
    b->lower.offload_activations = !hosted && rp_random_between(random, 0, 1) == 1;
    b->lower.grain = rp_random_between(random, 0, 1) == 1 ? RP_GRAIN_LAYER : RP_GRAIN_STAGE;
    if (b->lower.offload_activations && rp_random_between(random, 0, 1) == 1) {
        b->c->config.recompute = RP_RECOMPUTE_NONE;
    }
}

/* With such sizes and times hardly any two events coincide by chance. */
static void draw_bench(rp_random *random, rp_test_bench *b)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1", "interleaved-1f1b",
                                            "roundpipe"};
    uint32_t which = rp_random_between(random, 0, 4);
    rp_test_bench_make(b, schedules[which], rp_random_between(random, 4, 8),
                       rp_random_between(random, 1, 2), rp_random_between(random, 0, 1) == 1);
    rp_test_bench_sizes(b, 1000003ull * rp_random_between(random, 1, 100), 0);
    for (uint32_t i = 0; i < RP_TEST_BENCH_LAYERS + 2; i++) {
        b->lower.sizes.weight_bytes[i] = 10007ull * rp_random_between(random, 1, 10000);
        b->lower.sizes.gradient_bytes[i] = 10009ull * rp_random_between(random, 1, 10000);
        b->lower.sizes.parameters[i] = 1009ull * rp_random_between(random, 1, 10000);
    }
    b->lower.peer_gpus = rp_random_between(random, 0, 1) == 0 ? 0 : UINT32_MAX;
    draw_offload(random, b);
    rp_test_bench_lower(b);
    draw_times(random, b->costs.ps, b->program->stage_count);
    draw_times(random, b->costs.layer_ps, b->costs.layer_count);
    draw_machine(random, &b->machine);
}

static void add(slow_hardware_op *op, uint32_t link)
{
    op->links[op->link_count++] = (int)link;
}

static bool apart(uint32_t per_group, uint32_t a, uint32_t b)
{
    return per_group > 0 && a / per_group != b / per_group;
}

/* Sockets are numbered through all nodes. */
static uint32_t socket_of(const rp_machine *m, uint32_t gpu)
{
    uint32_t gpus = m->gpus_per_node;
    uint32_t per_socket = gpus > m->sockets ? gpus / m->sockets : 1;
    return gpu / gpus * m->sockets + gpu % gpus / per_socket;
}

static uint32_t socket_count(const rp_machine *m)
{
    return GPUS / m->gpus_per_node * m->sockets;
}

static void add_way(const rp_machine *m, uint32_t from, uint32_t to, slow_hardware_op *op)
{
    uint32_t node = from / m->sockets;
    if (node != to / m->sockets) {
        add(op, NET_OUT + node);
        add(op, NET_IN + to / m->sockets);
    } else if (from != to && m->intersocket_Bps > 0) {
        uint32_t pair = from % m->sockets * MAX_SOCKETS + to % m->sockets;
        add(op, BETWEEN + node * MAX_SOCKETS * MAX_SOCKETS + pair);
    }
}

/* Parameters and gradients alternate between sockets; all else is at the GPU that wrote it. */
static uint32_t memory_of(const rp_test_bench *b, uint32_t number, const rp_queue *queue)
{
    const rp_program *p = b->program;
    const rp_machine *m = &b->machine;
    rp_op_kind kind = (rp_op_kind)p->ops[number].kind;
    if (kind == RP_OP_UPLOAD_PARAMS || kind == RP_OP_UPLOAD_PARAM_GRAD ||
        kind == RP_OP_DOWNLOAD_PARAM_GRAD) {
        return (queue->gpu + number - queue->op_begin) % socket_count(m);
    }
    uint32_t writer = queue->gpu;
    for (uint32_t w = p->ops[number].wait_begin; w < p->ops[number + 1].wait_begin; w++) {
        const rp_queue *from = &p->queues[rp_program_queue_of(p, rp_wait_op(p->waits[w]))];
        bool written = from->kind == RP_QUEUE_DOWNLOAD && !rp_wait_is_control(p->waits[w]);
        writer = written && queue->kind == RP_QUEUE_ACT_UPLOAD ? from->gpu : writer;
    }
    return socket_of(m, writer);
}

static void route_copy(const rp_test_bench *b, uint32_t number, const rp_queue *queue, bool up,
                       slow_hardware_op *op)
{
    const rp_machine *m = &b->machine;
    uint32_t gpu = queue->gpu;
    uint32_t memory = memory_of(b, number, queue);
    uint32_t near = socket_of(m, gpu);
    op->engine = (int)(2 * gpu + (up ? 0 : 1));
    add(op, (up ? UP : DOWN) + gpu);
    if (m->gpus_per_switch > 0) {
        add(op, (up ? SWITCH_UP : SWITCH_DOWN) + gpu / m->gpus_per_switch);
    }
    if (m->gpus_per_root > 0) {
        add(op, (up ? ROOT_UP : ROOT_DOWN) + gpu / m->gpus_per_root);
    }
    add_way(m, up ? memory : near, up ? near : memory, op);
    if (m->dram_Bps > 0) {
        add(op, DRAM + memory);
    }
}

static void route_peers(const rp_machine *m, uint32_t from, uint32_t to, slow_hardware_op *op)
{
    add(op, OUT + from);
    add(op, IN + to);
    if (m->nvlink_gpus > 0 && !apart(m->nvlink_gpus, from, to)) {
        return;
    }
    add(op, DOWN + from);
    add(op, UP + to);
    if (apart(m->gpus_per_switch, from, to)) {
        add(op, SWITCH_DOWN + from / m->gpus_per_switch);
        add(op, SWITCH_UP + to / m->gpus_per_switch);
    }
    if (apart(m->gpus_per_root, from, to)) {
        add(op, ROOT_DOWN + from / m->gpus_per_root);
        add(op, ROOT_UP + to / m->gpus_per_root);
    }
    add_way(m, socket_of(m, from), socket_of(m, to), op);
}

/* All sockets do their parts at the same time. */
static void route_host(const rp_machine *m, rp_op_kind kind, slow_hardware_op *op)
{
    const double own[] = {m->adam_Bps, m->refresh_Bps, m->collect_Bps};
    uint32_t which = kind == RP_OP_OPTIMIZER ? 0 : kind == RP_OP_REFRESH ? 1 : 2;
    op->bytes /= socket_count(m);
    add(op, own[which] > 0 ? OWN + which : HOST);
    for (uint32_t socket = 0; m->dram_Bps > 0 && socket < socket_count(m); socket++) {
        add(op, DRAM + socket);
    }
}

/* The GPU whose RECV waits for a SEND. */
static uint32_t receiver(const rp_program *p, uint32_t send)
{
    for (uint32_t i = 0; i < p->op_count; i++) {
        for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
            if (p->ops[i].kind == RP_OP_RECV && rp_wait_op(p->waits[w]) == send) {
                return p->queues[rp_program_queue_of(p, i)].gpu;
            }
        }
    }
    cr_assert_fail("no RECV for %" PRIu32, send);
    return 0;
}

static void fill_op(const rp_test_bench *b, uint32_t number, slow_hardware_op *op)
{
    const rp_program *p = b->program;
    uint32_t q = rp_program_queue_of(p, number);
    const rp_queue *queue = &p->queues[q];
    *op = (slow_hardware_op){.queue = (int)q, .engine = SLOW_NO_ENGINE, .compute_ps = -1};
    op->bytes = (double)p->op_bytes[number];
    switch ((rp_queue_kind)queue->kind) {
    case RP_QUEUE_COMPUTE:
        op->compute_ps = rpsim_op_ps(&b->costs, p, number);
        break;
    case RP_QUEUE_PARAM_UPLOAD:
    case RP_QUEUE_ACT_UPLOAD:
    case RP_QUEUE_SAVED_UPLOAD:
        route_copy(b, number, queue, true, op);
        break;
    case RP_QUEUE_DOWNLOAD:
    case RP_QUEUE_SAVED_DOWNLOAD:
        route_copy(b, number, queue, false, op);
        break;
    case RP_QUEUE_PEER:
        route_peers(&b->machine, queue->gpu, receiver(p, number), op);
        break;
    case RP_QUEUE_RECEIVE:
        op->bytes = 0;
        break;
    case RP_QUEUE_OPTIMIZER:
        route_host(&b->machine, (rp_op_kind)p->ops[number].kind, op);
        break;
    case RP_QUEUE_DISPATCH:
    case RP_QUEUE_TENSOR:
    case RP_QUEUE_DATA:
    case RP_QUEUE_EXPERT:
    case RP_QUEUE_REPLICA:
    case RP_QUEUE_NETWORK:
    case RP_QUEUE_KIND_COUNT:
        cr_assert_fail("a queue that these programs do not have");
    }
}

static void fill_capacities(const rp_machine *m, double *capacities)
{
    for (uint32_t i = 0; i < LINKS; i++) {
        double of_group[] = {m->upload_Bps, m->download_Bps, m->switch_Bps, m->switch_Bps,
                             m->root_Bps,   m->root_Bps,     m->peer_Bps,   m->peer_Bps};
        const double own[] = {m->adam_Bps, m->refresh_Bps, m->collect_Bps};
        capacities[i] = i < HOST      ? of_group[i / GPUS]
                        : i == HOST   ? m->host_Bps / m->sockets
                        : i < DRAM    ? own[i - OWN] / m->sockets
                        : i < NET_OUT ? m->dram_Bps / m->sockets
                        : i < BETWEEN ? m->network_Bps
                                      : m->intersocket_Bps;
    }
}

static slow_hardware_op *run_slow(const rp_test_bench *b)
{
    const rp_program *p = b->program;
    slow_hardware_op *ops = calloc(p->op_count, sizeof *ops);
    int *waits = calloc(p->wait_count + 1, sizeof *waits);
    for (uint32_t w = 0; w < p->wait_count; w++) {
        waits[w] = (int)rp_wait_op(p->waits[w]);
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        fill_op(b, i, &ops[i]);
        ops[i].waits = &waits[p->ops[i].wait_begin];
        ops[i].wait_count = (int)(p->ops[i + 1].wait_begin - p->ops[i].wait_begin);
    }
    double capacities[LINKS];
    fill_capacities(&b->machine, capacities);
    slow_hardware h = {.ops = ops,
                       .op_count = (int)p->op_count,
                       .latency_ps = b->machine.copy_latency_ps,
                       .gap_ps = b->machine.op_gap_ps,
                       .wake_ps = b->machine.op_wake_ps,
                       .capacities_Bps = capacities,
                       .link_count = LINKS};
    cr_assert(eq(int, slow_hardware_run(&h), h.op_count));
    free(waits);
    return ops;
}

Test(hardware_reference, every_start_and_end)
{
    rp_random random = {2026};
    uint64_t all_ops = 0;
    uint32_t with_peers = 0;
    uint32_t with_saved = 0;
    for (uint32_t i = 0; i < PROGRAMS; i++) {
        rp_test_bench b;
        draw_bench(&random, &b);
        rp_test_bench_run(&b);
        slow_hardware_op *slow = run_slow(&b);
        bool peers = false;
        for (uint32_t op = 0; op < b.program->op_count; op++) {
            cr_assert(eq(i64, b.timeline->start_ps[op], slow[op].start_ps), "program %u, op %u", i,
                      op);
            cr_assert(eq(i64, b.timeline->end_ps[op], slow[op].end_ps), "program %u, op %u", i, op);
            peers = peers || b.program->ops[op].kind == RP_OP_SEND;
        }
        all_ops += b.program->op_count;
        with_peers += peers ? 1 : 0;
        with_saved += rp_program_has(b.program, rp_op_kind_moves_saved) ? 1 : 0;
        free(slow);
        rp_test_bench_fini(&b);
    }
    cr_log_info("%" PRIu64 " ops, %u of %u programs with peers", all_ops, with_peers, PROGRAMS);
    cr_expect(gt(u32, with_peers, PROGRAMS / 8));
    cr_expect(gt(u32, with_saved, PROGRAMS / 8));
}
