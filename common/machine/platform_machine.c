#include "common/machine/platform_machine.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/base/text.h"
#include "common/base/units.h"

/* Rate of host work: the sum of the threads' rates, limited by the platform's rate of all
 * threads. */
static double host_bytes_per_s(const rp_platform *platform, double gb_per_s)
{
    double threads = 1e9 * platform->optimizer_threads * platform->optimizer_thread_gb_per_s;
    double all = 1e9 * gb_per_s;
    bool limited = threads > 0 && (threads < all || !(all > 0));
    return limited ? threads : all;
}

/* Rate of a kind of host work; 0: it has no rate of its own. */
static double own_bytes_per_s(const rp_platform *platform, double gb_per_s)
{
    return gb_per_s > 0 ? host_bytes_per_s(platform, gb_per_s) : 0;
}

double rp_link_bytes_per_s(const rp_platform *platform)
{
    bool measured = platform->link_effective_gb_per_s > 0;
    return 1e9 * (measured ? platform->link_effective_gb_per_s
                           : platform->link_gb_per_s * platform->link_efficiency);
}

double rp_peer_bytes_per_s(const rp_platform *platform)
{
    double share = platform->link_efficiency > 0 ? platform->link_efficiency : 1;
    return 1e9 * platform->peer_gb_per_s * share;
}

static double network_Bps(const rp_platform *p)
{
    return 1e9 * p->network_gb_per_s * (p->network_efficiency > 0 ? p->network_efficiency : 1);
}

/* Rate of a leaf switch's uplinks: the most that its adapters can send, over the
 * oversubscription. */
static double leaf_bytes_per_s(const rp_platform *p)
{
    double of_node = network_Bps(p) / (p->rails ? p->adapters : 1);
    return p->leaf_nodes == 0 ? 0 : p->leaf_nodes * of_node / p->spine_oversubscription;
}

/* Lists the GPUs of a node, if they differ. */
static void list_gpus(const rp_platform *p, rp_machine *m)
{
    const rp_config_numbers *link =
        p->link_effective_gb_per_s > 0 ? &p->each.link_effective_gb_per_s : &p->each.link_gb_per_s;
    const rp_config_numbers *up = p->upload_gb_per_s > 0 ? &p->each.upload_gb_per_s : link;
    const rp_config_numbers *down = p->download_gb_per_s > 0 ? &p->each.download_gb_per_s : link;
    if (!rp_platform_lists(p)) {
        return;
    }
    m->listed = m->gpus_per_node;
    for (uint32_t gpu = 0; gpu < m->listed; gpu++) {
        uint32_t successive = m->nvlink_gpus > 0 ? gpu / m->nvlink_gpus * m->nvlink_gpus : gpu;
        m->each[gpu] = (rp_machine_gpu){
            .upload = rp_platform_share(up, gpu),
            .download = rp_platform_share(down, gpu),
            .first = p->nvlink_first != NULL ? p->nvlink_first[gpu] : successive,
        };
    }
}

rp_machine rp_machine_of(const rp_platform *p)
{
    double link_Bps = rp_link_bytes_per_s(p);
    double nominal_gb_per_s = p->link_gb_per_s;
    uint32_t of_node = p->gpus / p->nodes;
    bool nvlink = p->peer_access == RP_PEER_NVLINK;
    rp_machine m = {.upload_Bps = p->upload_gb_per_s > 0 ? 1e9 * p->upload_gb_per_s : link_Bps,
                    .download_Bps =
                        p->download_gb_per_s > 0 ? 1e9 * p->download_gb_per_s : link_Bps,
                    .host_Bps = host_bytes_per_s(p, p->host_optimizer_gb_per_s),
                    .adam_Bps = own_bytes_per_s(p, p->host_adam_gb_per_s),
                    .refresh_Bps = own_bytes_per_s(p, p->host_refresh_gb_per_s),
                    .collect_Bps = own_bytes_per_s(p, p->host_collect_gb_per_s),
                    .dram_Bps = 1e9 * p->host_dram_gb_per_s,
                    .copy_latency_ps = rp_ms_to_ps(1e-3 * p->copy_latency_us),
                    .op_gap_ps = rp_ms_to_ps(1e-3 * p->op_gap_us),
                    .op_wake_ps = rp_ms_to_ps(1e-3 * p->op_wake_us),
                    .collective_latency_ps = rp_ms_to_ps(1e-3 * p->collective_latency_us),
                    .collective_hop_ps = rp_ms_to_ps(1e-3 * p->collective_hop_us),
                    .network_hop_ps = rp_ms_to_ps(1e-3 * p->network_hop_us),
                    .collective_Bps = 1e9 * p->collective_gb_per_s,
                    .collective_part_Bps = 1e9 * p->collective_part_gb_per_s,
                    .duplex = p->duplex_efficiency,
                    .gpus_per_switch = p->gpus_per_switch,
                    .switch_Bps = p->switch_gb_per_s * link_Bps / nominal_gb_per_s,
                    .gpus_per_root = p->gpus_per_root,
                    .root_Bps = p->root_gb_per_s * link_Bps / nominal_gb_per_s,
                    .gpus_per_node = of_node,
                    .sockets = p->sockets,
                    .intersocket_Bps = 1e9 * p->intersocket_gb_per_s,
                    .network_Bps = network_Bps(p),
                    .adapters = p->adapters,
                    .leaf_nodes = p->leaf_nodes,
                    .rails = p->rails,
                    .leaf_Bps = leaf_bytes_per_s(p),
                    .peer_Bps = rp_peer_bytes_per_s(p),
                    .cores = p->host_cores,
                    .bound_cores = p->bound_cores,
                    .copies_on_cores = p->copies_on_cores,
                    .host_threads = p->optimizer_threads,
                    .nvlink_gpus = !nvlink               ? 0
                                   : p->nvlink_gpus != 0 ? p->nvlink_gpus
                                                         : of_node,
                    .peer_pcie = p->peer_access != RP_PEER_NONE && rp_platform_joins_all(p)};
    list_gpus(p, &m);
    return m;
}

uint32_t rp_peer_gpus(const rp_platform *platform)
{
    if (platform->peer_access == RP_PEER_NONE) {
        return 0;
    }
    return platform->nvlink_gpus != 0        ? platform->nvlink_gpus
           : rp_platform_joins_all(platform) ? UINT32_MAX
                                             : 1;
}

rp_status rp_platform_need(const rp_platform *platform, const rp_needed_rate *needed, size_t count,
                           const char *why, rp_reason *reason)
{
    rp_text missing = {0};
    rp_status status = RP_OK;
    for (size_t i = 0; i < count && status == RP_OK; i++) {
        if (!(needed[i].value > 0)) {
            status = rp_text_print(&missing, "%s%s", missing.length > 0 ? ", no " : "no ",
                                   needed[i].keys);
        }
    }
    if (status == RP_OK && missing.length > 0) {
        status =
            rp_refuse(reason, RP_INPUT,
                      "{platform}: %s has %s, %s; valid are platform files with a positive value",
                      platform->name, missing.bytes, why);
    }
    rp_text_fini(&missing);
    return status;
}
