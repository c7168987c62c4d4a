#include "common/inputs/detect/topology.h"

#include <hwloc.h>

#define NVIDIA 0x10de
#define DISPLAY 0x03 /* PCI class */
#define PORTS 256u

static uint32_t count_of(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology, type);
    return count > 0 ? (uint32_t)count : 0;
}

/* The bridge directly below the host bridge: a root port, or the uplink of a switch. */
static hwloc_obj_t root_port(hwloc_obj_t device)
{
    hwloc_obj_t port = NULL;
    for (hwloc_obj_t at = device->parent; at != NULL && at->type == HWLOC_OBJ_BRIDGE;
         at = at->parent) {
        port = at->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? at : port;
    }
    return port;
}

static void read_gpus(hwloc_topology_t topology, rp_topology *t)
{
    hwloc_obj_t ports[PORTS];
    uint32_t behind[PORTS] = {0};
    uint32_t port_count = 0;
    for (hwloc_obj_t device = hwloc_get_next_pcidev(topology, NULL); device != NULL;
         device = hwloc_get_next_pcidev(topology, device)) {
        const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
        if (pci->vendor_id != NVIDIA || pci->class_id >> 8 != DISPLAY) {
            continue;
        }
        double rate = (double)pci->linkspeed;
        t->gpus++;
        t->link_gb_per_s =
            t->link_gb_per_s == 0 || rate < t->link_gb_per_s ? rate : t->link_gb_per_s;
        hwloc_obj_t port = root_port(device);
        uint32_t at = 0;
        while (at < port_count && ports[at] != port) {
            at++;
        }
        if (port != NULL && at < PORTS) {
            ports[at] = port;
            behind[at]++;
            port_count = at == port_count ? port_count + 1 : port_count;
        }
    }
    uint32_t each = port_count > 0 ? behind[0] : 0;
    for (uint32_t i = 0; i < port_count; i++) {
        each = behind[i] == each ? each : 0;
    }
    t->gpus_per_switch = each > 1 ? each : 0;
}

rp_topology rp_topology_read(void)
{
    rp_topology t = {0};
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) {
        return t;
    }
    if (hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
        hwloc_topology_load(topology) == 0) {
        t.sockets = count_of(topology, HWLOC_OBJ_PACKAGE);
        t.nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
        t.cores = count_of(topology, HWLOC_OBJ_CORE);
        t.processors = count_of(topology, HWLOC_OBJ_PU);
        t.memory_bytes = (double)hwloc_get_root_obj(topology)->total_memory;
        read_gpus(topology, &t);
    }
    hwloc_topology_destroy(topology);
    return t;
}
