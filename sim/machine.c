#include "sim/machine.h"

#include "common/log.h"

/* Copy engines of a GPU; links 2 * gpu and 2 * gpu + 1 are what they copy over. */
enum { ENGINE_UPLOAD, ENGINE_DOWNLOAD };

uint32_t rpsim_copy_engine(const rp_queue *queue)
{
    uint32_t first = queue->gpu * RPSIM_ENGINES_PER_GPU;
    switch ((rp_queue_kind)queue->kind) {
    case RP_QUEUE_PARAM_UPLOAD:
    case RP_QUEUE_ACT_UPLOAD:
        return first + ENGINE_UPLOAD;
    case RP_QUEUE_DOWNLOAD:
        return first + ENGINE_DOWNLOAD;
    case RP_QUEUE_COMPUTE:
    case RP_QUEUE_PEER:
    case RP_QUEUE_DISPATCH:
    case RP_QUEUE_OPTIMIZER:
    case RP_QUEUE_KIND_COUNT:
        break;
    }
    return RPSIM_NO_ENGINE;
}

/* Numbers of the links, in this order: upload and download of each GPU, the bus of each GPU's
 * collectives, then the host's, then up and down of each switch, as seen from the GPUs' copy
 * engines. */
typedef struct link_numbers {
    uint32_t bus;
    uint32_t host;
    uint32_t collect;
    uint32_t dram;
    uint32_t switches;
    uint32_t count;
} link_numbers;

static link_numbers number_links(const rp_program *program, const rpsim_machine *m)
{
    uint32_t gpus = program->gpu_count;
    link_numbers n = {.bus = 2 * gpus, .host = 3 * gpus};
    n.collect = n.host + 1;
    n.dram = n.host + 2;
    n.switches = n.host + 3;
    n.count = n.switches;
    if (m->gpus_per_switch > 0) {
        n.count += 2 * ((gpus - 1) / m->gpus_per_switch + 1);
    }
    return n;
}

static rp_status create_links(const rp_program *program, const rpsim_machine *m,
                              const link_numbers *n, rp_arena *arena, rpsim_network **network_out)
{
    double *capacities = NULL;
    RP_TRY(rp_arena_alloc(arena, n->count, sizeof(double), &capacities));
    for (uint32_t gpu = 0; gpu < program->gpu_count; gpu++) {
        double scale = m->link_scale != NULL ? m->link_scale[gpu] : 1.0;
        capacities[2 * gpu + ENGINE_UPLOAD] = scale * m->upload_Bps;
        capacities[2 * gpu + ENGINE_DOWNLOAD] = scale * m->download_Bps;
        capacities[n->bus + gpu] = m->collective_Bps > 0 ? m->collective_Bps : m->upload_Bps;
    }
    capacities[n->host] = m->host_Bps;
    capacities[n->collect] = m->collect_Bps > 0 ? m->collect_Bps : m->host_Bps;
    capacities[n->dram] = m->dram_Bps > 0 ? m->dram_Bps : m->host_Bps;
    for (uint32_t i = n->switches; i < n->count; i++) {
        capacities[i] = m->switch_Bps;
    }
    return rpsim_network_create(capacities, n->count, RPSIM_PICOSECONDS, network_out);
}

static rp_status route_queue(const rp_queue *queue, const rpsim_machine *m, const link_numbers *n,
                             rpsim_network *network, uint32_t *route_out)
{
    uint32_t links[3];
    uint32_t count = 0;
    if (queue->kind == RP_QUEUE_PEER) {
        links[count++] = n->bus + queue->gpu;
        return rpsim_network_route(network, links, count, route_out);
    }
    uint32_t engine = rpsim_copy_engine(queue);
    links[count++] = engine != RPSIM_NO_ENGINE ? engine : n->host;
    if (engine != RPSIM_NO_ENGINE && m->gpus_per_switch > 0) {
        uint32_t direction = engine % RPSIM_ENGINES_PER_GPU;
        links[count++] = n->switches + 2 * (queue->gpu / m->gpus_per_switch) + direction;
    }
    if (m->dram_Bps > 0) {
        links[count++] = n->dram;
    }
    return rpsim_network_route(network, links, count, route_out);
}

static rp_status create_routes(const rp_program *program, const rpsim_machine *m,
                               const link_numbers *n, rpsim_network *network, rpsim_routes *routes)
{
    const uint32_t collect[2] = {m->collect_Bps > 0 ? n->collect : n->host, n->dram};
    RP_TRY(rpsim_network_route(network, collect, m->dram_Bps > 0 ? 2 : 1, &routes->collect));
    for (uint32_t q = 0; q < program->queue_count; q++) {
        RP_TRY(route_queue(&program->queues[q], m, n, network, &routes->of_queue[q]));
    }
    return RP_OK;
}

rp_status rpsim_machine_network(const rp_program *program, const rpsim_machine *machine,
                                rp_arena *arena, rpsim_routes *routes_out,
                                rpsim_network **network_out)
{
    *network_out = NULL;
    link_numbers numbers = number_links(program, machine);
    rpsim_network *network = NULL;
    RP_TRY(rp_arena_alloc(arena, program->queue_count, sizeof(uint32_t), &routes_out->of_queue));
    RP_TRY(create_links(program, machine, &numbers, arena, &network));
    rp_status status = create_routes(program, machine, &numbers, network, routes_out);
    if (status != RP_OK) {
        rpsim_network_destroy(network);
        return status;
    }
    *network_out = network;
    return RP_OK;
}

/* Point-to-point transfers between peers are not modelled; collectives need a rate. */
static rp_status check_queue(const rp_program *program, const rpsim_machine *machine,
                             uint32_t index)
{
    const rp_queue *queue = &program->queues[index];
    for (uint32_t i = queue->op_begin; queue->kind == RP_QUEUE_PEER && i < queue->op_end; i++) {
        rp_op_kind kind = (rp_op_kind)program->ops[i].kind;
        if (rp_op_kind_class(kind) != RP_CLASS_COLLECTIVE || !(machine->collective_Bps > 0)) {
            rp_log_error(
                "hardware fidelity: queue %u has %s ops; valid are programs whose boundaries "
                "go through the host, and collectives on platforms that say "
                "collective_gb_per_s",
                index, rp_op_kind_text(kind));
            return RP_INPUT;
        }
    }
    return RP_OK;
}

rp_status rpsim_machine_check(const rp_program *program, const rpsim_machine *machine)
{
    for (uint32_t q = 0; q < program->queue_count; q++) {
        RP_TRY(check_queue(program, machine, q));
    }
    return RP_OK;
}
