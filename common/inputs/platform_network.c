/* Servers of a platform, and the network that connects them. */
#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/inputs/changes.h"
#include "common/inputs/platform.h"
#include "common/program/limits.h"

/* Adapters share a server's GPUs and network; leaf switches and the spine join adapters. */
rp_status rp_platform_check_network(const char *name, const size_t *lines, const rp_platform *p,
                                    rp_reason *reason)
{
    uint32_t of_node = p->gpus / p->nodes;
    const struct {
        rp_platform_key key;
        bool wrong;
        const char *valid;
    } rules[] = {
        {RP_PLATFORM_adapters, p->adapters > 1 && !(p->network_gb_per_s > 0),
         "a 'network_gb_per_s' of all adapters of a server together"},
        {RP_PLATFORM_adapters, of_node % p->adapters != 0,
         "GPUs of a server that are a multiple of it"},
        {RP_PLATFORM_leaf_nodes, p->leaf_nodes != 0 && !(p->network_gb_per_s > 0),
         "a 'network_gb_per_s', of which leaf switches have a part"},
        {RP_PLATFORM_rails, p->rails && p->leaf_nodes == 0,
         "a 'leaf_nodes', servers below a leaf switch"},
        {RP_PLATFORM_rails, p->rails && p->adapters < 2,
         "two 'adapters' or more, one for each rail"},
        {RP_PLATFORM_spine_oversubscription, p->spine_oversubscription > 1 && p->leaf_nodes == 0,
         "a 'leaf_nodes', servers below a leaf switch"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (rules[i].wrong) {
            return rp_refuse_at(reason, RP_INPUT, name, lines[rules[i].key],
                                "'%s' needs %s; valid values are those of files with both",
                                rp_platform_schema.fields[rules[i].key].key, rules[i].valid);
        }
    }
    return RP_OK;
}

rp_status rp_platform_set_nodes(rp_platform *p, uint32_t nodes, uint32_t gpus, rp_reason *reason)
{
    const char *cause = p->nodes > 1 ? "the file has 'nodes' of its own; valid with platform files "
                                       "of one server"
                        : nodes > 1 && !(p->network_gb_per_s > 0)
                            ? "the file has no 'network_gb_per_s'; valid with platform files that "
                              "say what connects servers"
                            : NULL;
    uint32_t of_server = gpus != 0 ? gpus : rp_platform_usual_gpus(p);
    const uint32_t groups[] = {
        p->gpus_per_switch, p->gpus_per_root, p->nvlink_first != NULL ? 0 : p->nvlink_gpus,
        p->sockets > 1 ? p->gpus / p->sockets : 0, p->adapters > 1 ? p->gpus / p->adapters : 0};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (nodes > 1 && groups[i] != 0 && of_server % groups[i] != 0) {
            cause = "GPUs of a server share links in groups that {gpus} would cut; valid are "
                    "multiples of a group";
        }
    }
    if (of_server > rp_platform_usual_gpus(p)) {
        cause = "{gpus} counts per server, which has fewer; valid are those of the platform file";
    }
    if ((uint64_t)nodes * of_server > RP_MAX_GPUS) {
        cause = "valid are at most 4096 GPUs in all";
    }
    if (cause != NULL) {
        return rp_refuse(reason, RP_USAGE, "{nodes}: %u servers of %s: %s", nodes, p->name,
                         rp_log_spell(cause).text);
    }
    bool whole = p->adapters <= 1 || of_server * p->adapters < p->gpus;
    uint32_t adapters = whole ? p->adapters : p->adapters * of_server / p->gpus;
    p->network_gb_per_s *= (double)adapters / p->adapters; /* adapters of the used GPUs */
    p->adapters = adapters;
    p->gpus = nodes * of_server;
    p->used_gpus = 0;
    p->nodes = nodes;
    return RP_OK;
}
