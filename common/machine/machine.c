#include "common/machine/machine_internal.h"

/* Copy engines of a GPU. They copy over links 2 * gpu and 2 * gpu + 1. */
enum { ENGINE_UPLOAD, ENGINE_DOWNLOAD };

/* Directions of a shared link, as seen from the GPUs' copy engines. */
enum { UP = ENGINE_UPLOAD, DOWN = ENGINE_DOWNLOAD };

static bool threads_copy(const rp_machine *m)
{
    return m != NULL && m->cores > 0 && m->copies_on_cores;
}

uint32_t rp_copy_engine(const rp_machine *machine, const rp_queue *queue)
{
    if (threads_copy(machine)) {
        return RP_NO_ENGINE;
    }
    uint32_t first = queue->gpu * RP_ENGINES_PER_GPU;
    rp_carrier carrier = rp_queue_kind_carrier((rp_queue_kind)queue->kind);
    return carrier == RP_CARRIER_LINK_UP     ? first + ENGINE_UPLOAD
           : carrier == RP_CARRIER_LINK_DOWN ? first + ENGINE_DOWNLOAD
                                             : RP_NO_ENGINE;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Numbers of the links, in this order: upload and download of each GPU, the bus of each GPU's
 * collectives, the host's link and a link for each kind of host op with its own rate, DRAM of each
 * socket, up and down of each switch, root complex, network adapter and leaf switch, the links from
 * each socket of a node to each socket (those to itself are not used), each GPU's ports to and from
 * its peers, both directions of each GPU, switch and root complex together, and with emulated GPUs
 * the cores. */
typedef struct link_numbers {
    const rp_machine *machine;
    uint32_t gpus;
    uint32_t ranks; /* rp_program_ranks */
    uint32_t homes; /* sockets of all nodes that the program's GPUs are in */
    uint32_t bus;
    uint32_t host;
    uint32_t kinds; /* host ops with a rate of their own, in the order of rp_host_rate */
    uint32_t dram;
    uint32_t switches;
    uint32_t roots;
    uint32_t network; /* adapters, node by node */
    uint32_t leaves;
    uint32_t intersocket;
    uint32_t peers;
    uint32_t both;   /* GPUs, then switches, then root complexes; empty if these are duplex */
    uint32_t cores;  /* all cores of the host, then the most that each queue's threads can use */
    uint32_t bound;  /* single cores that GPUs are bound to */
    uint32_t groups; /* layouts: each GPU's groups; copies on servers: one port */
    uint32_t count;
} link_numbers;

/* The link of a kind of host op that has a rate of its own. */
static uint32_t own_link(const link_numbers *n, rp_op_kind kind)
{
    return n->kinds + rp_op_kinds[kind].host_rate - 1u;
}

static bool is_duplex(const rp_machine *m)
{
    return !(m->duplex > 0 && m->duplex < 1);
}

/* Number of groups that a GPU may be in. */
#define GROUPS 4u

static const rp_queue_kind group_kinds[GROUPS] = {RP_QUEUE_TENSOR, RP_QUEUE_DATA, RP_QUEUE_EXPERT,
                                                  RP_QUEUE_REPLICA};

static link_numbers number_links(const rp_program *program, const rp_machine *m)
{
    uint32_t gpus = program->gpu_count;
    uint32_t sockets = rp_machine_socket_count(m);
    link_numbers n = {.machine = m,
                      .gpus = gpus,
                      .ranks = rp_program_ranks(program),
                      .bus = 2 * gpus,
                      .host = 3 * gpus};
    n.homes = rp_machine_node_count(m, gpus) * sockets;
    n.kinds = n.host + 1;
    n.dram = n.kinds + RP_HOST_RATE_COUNT - 1;
    n.switches = n.dram + n.homes;
    n.roots = n.switches + 2 * rp_machine_shared_count(m, gpus, RP_SHARED_SWITCH);
    n.network = n.roots + 2 * rp_machine_shared_count(m, gpus, RP_SHARED_ROOT);
    uint32_t ports = rp_machine_port_count(m) * rp_machine_shared_count(m, gpus, RP_SHARED_NETWORK);
    n.leaves = n.network + 2 * ports;
    n.intersocket = n.leaves + 2 * rp_machine_shared_count(m, gpus, RP_SHARED_LEAF);
    n.peers =
        n.intersocket + sockets * sockets * rp_machine_shared_count(m, gpus, RP_SHARED_INTERSOCKET);
    n.both = n.peers + (m->peer_Bps > 0 ? 2 * gpus : 0);
    n.cores = n.both + (is_duplex(m) ? 0
                                     : gpus + rp_machine_shared_count(m, gpus, RP_SHARED_SWITCH) +
                                           rp_machine_shared_count(m, gpus, RP_SHARED_ROOT));
    n.bound = n.cores + (m->cores > 0 ? 1 + program->queue_count : 0);
    n.groups = n.bound + (m->cores > 0 ? m->bound_cores : 0);
    uint32_t each = rp_server_copies(&program->traits) > 1 ? 1 : GROUPS * gpus;
    n.count = n.groups + (rp_layout_gpus(&program->traits.layout) > 1 ? each : 0);
    return n;
}

static double shared_scale(const rp_machine *m, rp_shared kind, uint32_t number)
{
    return m->shared_scale[kind] != NULL ? m->shared_scale[kind][number] : 1.0;
}

/* Sets the capacities of `each` links for each number of a kind. */
static void set_shared(const link_numbers *n, rp_shared kind, uint32_t first, uint32_t each,
                       double Bps, double *capacities)
{
    uint32_t count = rp_machine_shared_count(n->machine, n->gpus, kind);
    for (uint32_t i = 0; i < count * each; i++) {
        capacities[first + i] = shared_scale(n->machine, kind, i / each) * Bps;
    }
}

/* Sets the capacities of links for both directions together, after those of the single
 * directions. */
static void set_both(const link_numbers *n, double *capacities)
{
    uint32_t switches = rp_machine_shared_count(n->machine, n->gpus, RP_SHARED_SWITCH);
    uint32_t roots = rp_machine_shared_count(n->machine, n->gpus, RP_SHARED_ROOT);
    const uint32_t first[] = {0, n->switches, n->roots};
    const uint32_t counts[] = {n->gpus, switches, roots};
    uint32_t to = n->both;
    for (size_t kind = 0; !is_duplex(n->machine) && kind < 3; kind++) {
        for (uint32_t i = 0; i < counts[kind]; i++) {
            const double *each = &capacities[first[kind] + 2 * i];
            capacities[to++] = n->machine->duplex * (each[UP] + each[DOWN]);
        }
    }
}

static uint32_t host_threads(const rp_machine *m)
{
    return m->cores > 0 && m->host_threads > 0 ? m->host_threads : 1;
}

static rp_status create_links(const rp_program *program, const link_numbers *n, rp_arena *arena,
                              rp_network **network_out, rp_reason *reason)
{
    const rp_machine *m = n->machine;
    uint32_t sockets = rp_machine_socket_count(m);
    uint32_t ports = rp_machine_port_count(m);
    double *capacities = NULL;
    RP_TRY(rp_arena_alloc(arena, n->count, sizeof(double), &capacities));
    for (uint32_t gpu = 0; gpu < n->gpus; gpu++) {
        double scale = m->link_scale != NULL ? m->link_scale[gpu] : 1.0;
        capacities[2 * gpu + ENGINE_UPLOAD] = scale * rp_machine_upload_Bps(m, gpu);
        capacities[2 * gpu + ENGINE_DOWNLOAD] = scale * rp_machine_download_Bps(m, gpu);
        capacities[n->bus + gpu] = rp_machine_bus_Bps(m, n->ranks);
    }
    capacities[n->host] = m->host_Bps / sockets;
    for (uint32_t i = 0; i < RP_OP_KIND_COUNT; i++) {
        rp_op_kind kind = (rp_op_kind)i;
        if (rp_op_kinds[kind].host_rate != RP_HOST_RATE_SHARED) {
            capacities[own_link(n, kind)] = rp_machine_host_Bps(m, kind) / sockets;
        }
    }
    for (uint32_t home = 0; home < n->homes; home++) {
        capacities[n->dram + home] = m->host_Bps; /* not read unless DRAM is limited */
    }
    for (uint32_t i = n->intersocket; i < n->peers; i++) {
        capacities[i] = m->intersocket_Bps;
    }
    for (uint32_t i = n->peers; i < n->both; i++) {
        capacities[i] = m->peer_Bps;
    }
    for (uint32_t i = n->bound; i < n->groups; i++) {
        capacities[i] = RP_PICOSECONDS;
    }
    for (uint32_t i = n->groups; i < n->count; i++) {
        const rp_machine_group *group =
            rp_machine_group_of(m, group_kinds[(i - n->groups) % GROUPS]);
        double group_Bps = group->gpus != 0 ? group->Bps : rp_machine_bus_Bps(m, n->gpus);
        capacities[i] = m->servers > 1 ? m->network_Bps / n->homes : group_Bps;
    }
    for (uint32_t i = n->cores; i < n->bound; i++) {
        bool on_gpu = i > n->cores &&
                      rp_queue_kind_on_gpu((rp_queue_kind)program->queues[i - n->cores - 1].kind);
        capacities[i] = RP_PICOSECONDS * (i == n->cores ? m->cores : on_gpu ? 1 : host_threads(m));
    }
    set_shared(n, RP_SHARED_DRAM, n->dram, 1, m->dram_Bps / sockets, capacities);
    set_shared(n, RP_SHARED_SWITCH, n->switches, 2, m->switch_Bps, capacities);
    set_shared(n, RP_SHARED_ROOT, n->roots, 2, m->root_Bps, capacities);
    set_shared(n, RP_SHARED_NETWORK, n->network, 2 * ports, m->network_Bps / ports, capacities);
    set_shared(n, RP_SHARED_LEAF, n->leaves, 2, m->leaf_Bps, capacities);
    set_shared(n, RP_SHARED_INTERSOCKET, n->intersocket, sockets * sockets, m->intersocket_Bps,
               capacities);
    set_both(n, capacities);
    return rp_network_create(capacities, n->count, RP_PICOSECONDS, network_out, reason);
}

/* ---- routes ---------------------------------------------------------------------------------- */

/* Most links of a route: PCIe links, switches, root complexes (these three also both directions
 * together), network ports and leaf switches of two GPUs, their ports. */
#define MAX_LINKS 20u

typedef struct route_links {
    uint32_t links[MAX_LINKS];
    uint32_t count;
} route_links;

static void add(route_links *r, uint32_t link)
{
    r->links[r->count++] = link;
}

/* Adds a direction of a PCIe link: links `first` and first + 1 are UP and DOWN of number 0 of the
 * kind.
 */
static void add_direction(const link_numbers *n, uint32_t first, uint32_t number,
                          uint32_t direction, route_links *r)
{
    uint32_t switches = (n->roots - n->switches) / 2;
    add(r, first + 2 * number + direction);
    if (!is_duplex(n->machine)) {
        uint32_t before = first == 0 ? 0 : first == n->switches ? n->gpus : n->gpus + switches;
        add(r, n->both + before + number);
    }
}

/* The link of a direction of a node's adapter. */
static uint32_t port_link(const link_numbers *n, uint32_t node, uint32_t port, uint32_t direction)
{
    return n->network + 2 * (node * rp_machine_port_count(n->machine) + port) + direction;
}

/* Adds the links from a node's adapter to another node's; they cross the spine if their leaf
 * switches differ. */
static void add_network(const link_numbers *n, uint32_t from_node, uint32_t from_port,
                        uint32_t to_node, uint32_t to_port, route_links *r)
{
    add(r, port_link(n, from_node, from_port, DOWN));
    add(r, port_link(n, to_node, to_port, UP));
    if (n->intersocket > n->leaves) {
        uint32_t from = rp_machine_leaf_of(n->machine, from_node, from_port);
        uint32_t to = rp_machine_leaf_of(n->machine, to_node, to_port);
        if (from != to) {
            add(r, n->leaves + 2 * from + DOWN);
            add(r, n->leaves + 2 * to + UP);
        }
    }
}

/* Adds the links between two places that their nodes, or the sockets of a node, have. GPUs at both
 * places use their own adapters. */
static void add_between(const link_numbers *n, uint32_t from_home, uint32_t from_gpu,
                        uint32_t to_home, uint32_t to_gpu, route_links *r)
{
    const rp_machine *m = n->machine;
    uint32_t sockets = rp_machine_socket_count(m);
    uint32_t from_node = from_home / sockets;
    uint32_t to_node = to_home / sockets;
    if (from_node != to_node) {
        add_network(n, from_node, rp_machine_port_of(m, from_gpu), to_node,
                    rp_machine_port_of(m, to_gpu), r);
    } else if (from_home != to_home && n->peers > n->intersocket) {
        uint32_t pair = from_home % sockets * sockets + to_home % sockets;
        add(r, n->intersocket + from_node * sockets * sockets + pair);
    }
}

/* Makes the route between a GPU and the memory of a socket. */
static rp_status route_memory(const link_numbers *n, uint32_t engine, uint32_t home,
                              rp_network *network, uint32_t *route_out)
{
    const rp_machine *m = n->machine;
    uint32_t gpu = engine / RP_ENGINES_PER_GPU;
    uint32_t direction = engine % RP_ENGINES_PER_GPU;
    uint32_t near = rp_machine_home_of(m, n->gpus, gpu);
    route_links r = {{0}, 0};
    add_direction(n, 0, gpu, direction, &r);
    if (m->gpus_per_switch > 0) {
        add_direction(n, n->switches, gpu / m->gpus_per_switch, direction, &r);
    }
    if (m->gpus_per_root > 0) {
        add_direction(n, n->roots, gpu / m->gpus_per_root, direction, &r);
    }
    direction == UP ? add_between(n, home, gpu, near, gpu, &r)
                    : add_between(n, near, gpu, home, gpu, &r);
    if (m->dram_Bps > 0) {
        add(&r, n->dram + home);
    }
    return rp_network_route(network, r.links, r.count, route_out);
}

/* Adds the path of two GPUs over PCIe, which meets at the first bridge above both. */
static void add_pcie(const link_numbers *n, uint32_t from, uint32_t to, route_links *r)
{
    const rp_machine *m = n->machine;
    add_direction(n, 0, from, DOWN, r);
    add_direction(n, 0, to, UP, r);
    if (m->gpus_per_switch > 0 && from / m->gpus_per_switch != to / m->gpus_per_switch) {
        add_direction(n, n->switches, from / m->gpus_per_switch, DOWN, r);
        add_direction(n, n->switches, to / m->gpus_per_switch, UP, r);
    }
    if (m->gpus_per_root > 0 && from / m->gpus_per_root != to / m->gpus_per_root) {
        add_direction(n, n->roots, from / m->gpus_per_root, DOWN, r);
        add_direction(n, n->roots, to / m->gpus_per_root, UP, r);
    }
    add_between(n, rp_machine_home_of(m, n->gpus, from), from, rp_machine_home_of(m, n->gpus, to),
                to, r);
}

static rp_status route_peers(const link_numbers *n, uint32_t from, uint32_t to, rp_network *network,
                             uint32_t *route_out)
{
    route_links r = {{n->peers + 2 * from + DOWN, n->peers + 2 * to + UP}, 2};
    if (!rp_machine_joined(n->machine, from, to)) {
        add_pcie(n, from, to, &r);
    }
    return rp_network_route(network, r.links, r.count, route_out);
}

rp_status rp_machine_peer_route(const rp_program *program, const rp_machine *machine, uint32_t from,
                                uint32_t to, rp_network *network, uint32_t *route_out)
{
    link_numbers n = number_links(program, machine);
    route_links r = {{0}, 0};
    if (machine->peer_Bps > 0 && (machine->peer_pcie || rp_machine_joined(machine, from, to))) {
        return route_peers(&n, from, to, network, route_out);
    }
    add_pcie(&n, from, to, &r);
    return rp_network_route(network, r.links, r.count, route_out);
}

/* Makes the route of a host op. Each socket does its part of every host op, all at the same
 * time. */
static rp_status route_host(const link_numbers *n, uint32_t first, rp_arena *arena,
                            rp_network *network, uint32_t *route_out)
{
    uint32_t *links = NULL;
    uint32_t count = 0;
    RP_TRY(rp_arena_alloc(arena, (size_t)n->homes + 1, sizeof *links, &links));
    links[count++] = first;
    for (uint32_t home = 0; n->machine->dram_Bps > 0 && home < n->homes; home++) {
        links[count++] = n->dram + home;
    }
    return rp_network_route(network, links, count, route_out);
}

/* The link of a queue's collectives. */
static uint32_t bus_of(const link_numbers *n, const rp_queue *queue)
{
    for (uint32_t i = 0; i < GROUPS; i++) {
        if (queue->kind == group_kinds[i]) {
            return n->groups + GROUPS * queue->gpu + i;
        }
    }
    return n->bus + queue->gpu;
}

/* Makes the routes of a group's collective to and from other nodes, for both directions at once:
 * over the adapter of its GPU, and over the uplinks of its leaf switch. */
static rp_status route_group(const link_numbers *n, uint32_t q, const rp_queue *queue,
                             rp_network *network, rp_routes *routes)
{
    const rp_machine *m = n->machine;
    const rp_machine_group *group = rp_machine_group_of(m, (rp_queue_kind)queue->kind);
    routes->network[q] = routes->leaf[q] = RP_NO_ROUTE;
    if (group == NULL || !rp_machine_leaves_node(group)) {
        return RP_OK;
    }
    uint32_t node = rp_machine_node(m, queue->gpu);
    uint32_t port = rp_machine_port_of(m, queue->gpu);
    const uint32_t ports[] = {port_link(n, node, port, UP), port_link(n, node, port, DOWN)};
    RP_TRY(rp_network_route(network, ports, 2, &routes->network[q]));
    if (m->leaf_nodes == 0 || !rp_machine_leaves_leaf(group)) {
        return RP_OK;
    }
    uint32_t leaf = n->leaves + 2 * rp_machine_leaf_of(m, node, port);
    const uint32_t uplinks[] = {leaf + UP, leaf + DOWN};
    return rp_network_route(network, uplinks, 2, &routes->leaf[q]);
}

static rp_status create_routes(const rp_program *program, const link_numbers *n, rp_arena *arena,
                               rp_network *network, rp_routes *routes)
{
    for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        double own = rp_machine_own_host_Bps(n->machine, (rp_op_kind)kind);
        routes->of_kind[kind] = RP_NO_ROUTE;
        if (own > 0 && !(n->machine->cores > 0)) { /* with cores, threads use those */
            uint32_t link = own_link(n, (rp_op_kind)kind);
            RP_TRY(route_host(n, link, arena, network, &routes->of_kind[kind]));
        }
    }
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        uint32_t engine = rp_copy_engine(n->machine, queue);
        uint32_t bus = bus_of(n, queue);
        uint32_t *route = &routes->of_queue[q];
        RP_TRY(route_group(n, q, queue, network, routes));
        if (engine != RP_NO_ENGINE) {
            uint32_t home = rp_machine_home_of(n->machine, n->gpus, queue->gpu);
            RP_TRY(route_memory(n, engine, home, network, route));
        } else if (rp_queue_kind_on_gpu((rp_queue_kind)queue->kind)) {
            RP_TRY(rp_network_route(network, &bus, 1, route));
        } else {
            bool exchanges = queue->kind == RP_QUEUE_NETWORK;
            RP_TRY(route_host(n, exchanges ? n->groups : n->host, arena, network, route));
        }
    }
    return RP_OK;
}

/* ---- ops that differ from their queue -------------------------------------------------------- */

/* The GPU whose download an upload waits for; without such a wait, the upload's own GPU. */
static uint32_t writer_of(const rp_program *p, uint32_t op, uint32_t gpu)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        const rp_queue *queue = &p->queues[rp_program_queue_of(p, rp_wait_op(p->waits[w]))];
        if (!rp_wait_is_control(p->waits[w]) && queue->kind == RP_QUEUE_DOWNLOAD) {
            return queue->gpu;
        }
    }
    return gpu;
}

static uint32_t home_of_op(const rp_program *p, const link_numbers *n, const rp_queue *queue,
                           uint32_t op)
{
    bool parameters = rp_op_kind_moves_parameters((rp_op_kind)p->ops[op].kind);
    if (parameters && !n->machine->local_memory) {
        return (op - queue->op_begin + queue->gpu) % n->homes;
    }
    uint32_t gpu =
        parameters || queue->kind == RP_QUEUE_DOWNLOAD ? queue->gpu : writer_of(p, op, queue->gpu);
    return rp_machine_home_of(n->machine, n->gpus, gpu);
}

static rp_status route_op(const rp_program *p, const link_numbers *n, uint32_t q, uint32_t op,
                          rp_network *network, rp_routes *routes)
{
    const rp_queue *queue = &p->queues[q];
    uint32_t engine = rp_copy_engine(n->machine, queue);
    if (engine != RP_NO_ENGINE && n->homes > 1) {
        return route_memory(n, engine, home_of_op(p, n, queue, op), network, &routes->of_op[op]);
    }
    if (!rp_op_kind_sends(p->ops[op].kind)) { /* a SEND's route is set with its RECV */
        routes->of_op[op] = rp_route_of_kind(routes, q, (rp_op_kind)p->ops[op].kind);
    }
    for (uint32_t w = p->ops[op].wait_begin;
         rp_op_kind_receives(p->ops[op].kind) && w < p->ops[op + 1].wait_begin; w++) {
        uint32_t send = rp_wait_op(p->waits[w]);
        if (rp_op_kind_sends(p->ops[send].kind)) {
            uint32_t from = p->queues[rp_program_queue_of(p, send)].gpu;
            RP_TRY(route_peers(n, from, queue->gpu, network, &routes->of_op[send]));
        }
    }
    return RP_OK;
}

/* Bytes per second of a kind's transfers and host ops, if a thread does them. */
static double Bps_of(const rp_machine *m, rp_op_kind kind)
{
#define RATE(name, category, node, rate) [RP_WAY_##name] = m->rate,
    const double of_way[] = {RP_OP_WAY_LIST(RATE)};
    bool collective = rp_op_kind_class(kind) == RP_CLASS_COLLECTIVE;
    bool host = rp_op_kind_class(kind) == RP_CLASS_HOST;
    return collective ? m->collective_Bps
           : host     ? rp_machine_host_Bps(m, kind)
                      : of_way[rp_op_kinds[kind].way];
}

/* Makes the routes of the work of threads: compute and host ops other than those of a network's
 * port, and copies unless links carry them. */
static rp_status route_cores(const rp_program *p, const link_numbers *n, rp_arena *arena,
                             rp_network *network, rp_routes *routes)
{
    const rp_machine *m = n->machine;
    RP_TRY(rp_arena_alloc(arena, p->queue_count, sizeof(uint32_t), &routes->cores));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        bool on_gpu = rp_queue_kind_on_gpu((rp_queue_kind)p->queues[q].kind);
        bool bound = on_gpu && m->bound_cores > 0;
        uint32_t core = bound ? p->queues[q].gpu % m->bound_cores : 0;
        const uint32_t links[] = {n->cores, n->cores + 1 + q, n->bound + core};
        RP_TRY(rp_network_route(network, links, bound ? 3 : 2, &routes->cores[q]));
        bool port = p->queues[q].kind == RP_QUEUE_NETWORK;
        if (!port && (!on_gpu || m->copies_on_cores)) {
            routes->of_queue[q] = routes->cores[q];
        }
    }
    for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        rp_op_class class = rp_op_kind_class((rp_op_kind)kind);
        bool copies = class == RP_CLASS_TRANSFER || class == RP_CLASS_COLLECTIVE;
        double Bps = Bps_of(m, (rp_op_kind)kind);
        bool port = rp_op_kind_uses_port((rp_op_kind)kind);
        if (!port && (class == RP_CLASS_HOST || (copies && m->copies_on_cores)) && Bps > 0) {
            routes->core_ps_per_byte[kind] = RP_PICOSECONDS / Bps;
        }
    }
    return RP_OK;
}

static rp_status create_op_routes(const rp_program *p, const link_numbers *n, rp_arena *arena,
                                  rp_network *network, rp_routes *routes)
{
    if (threads_copy(n->machine) || (n->homes == 1 && !rp_program_has(p, rp_op_kind_sends))) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), &routes->of_op));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            RP_TRY(route_op(p, n, q, i, network, routes));
        }
    }
    return RP_OK;
}

rp_status rp_machine_network(const rp_program *program, const rp_machine *machine, rp_arena *arena,
                             rp_routes *routes_out, rp_network **network_out, rp_reason *reason)
{
    *network_out = NULL;
    link_numbers numbers = number_links(program, machine);
    rp_network *network = NULL;
    uint32_t nodes = rp_machine_node_count(machine, numbers.ranks);
    *routes_out = (rp_routes){.homes = nodes * rp_machine_socket_count(machine),
                              .host_threads = host_threads(machine)};
    RP_TRY(rp_arena_alloc(arena, program->queue_count, sizeof(uint32_t), &routes_out->of_queue));
    RP_TRY(rp_arena_alloc(arena, program->queue_count, sizeof(uint32_t), &routes_out->network));
    RP_TRY(rp_arena_alloc(arena, program->queue_count, sizeof(uint32_t), &routes_out->leaf));
    RP_TRY(create_links(program, &numbers, arena, &network, reason));
    rp_status status = create_routes(program, &numbers, arena, network, routes_out);
    if (status == RP_OK && machine->cores > 0) {
        status = route_cores(program, &numbers, arena, network, routes_out);
    }
    if (status == RP_OK) {
        status = create_op_routes(program, &numbers, arena, network, routes_out);
    }
    if (status != RP_OK) {
        rp_network_destroy(network);
        return status;
    }
    *network_out = network;
    return RP_OK;
}
