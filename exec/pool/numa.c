#define _GNU_SOURCE /* sched_getaffinity */
#include "exec/pool/numa.h"

#include <hwloc.h>
#include <sched.h>
#include <string.h>

static void note(hwloc_const_cpuset_t of_node, const cpu_set_t *allowed, rpexec_numa_node *node)
{
    *node = (rpexec_numa_node){0};
    for (int cpu = hwloc_bitmap_first(of_node); cpu >= 0; cpu = hwloc_bitmap_next(of_node, cpu)) {
        uint32_t number = (uint32_t)cpu;
        if (number < RPEXEC_NUMA_PROCESSORS && number < CPU_SETSIZE && CPU_ISSET(number, allowed)) {
            node->mask[number / 64] |= UINT64_C(1) << number % 64;
            node->processors++;
        }
    }
}

/* Nodes of the same processors (memory of several kinds) count as a single node. */
static uint32_t list(hwloc_topology_t topology, const cpu_set_t *allowed, rpexec_numa_node *nodes)
{
    uint32_t count = 0;
    hwloc_obj_t object = NULL;
    while (count < RPEXEC_MAX_NUMA_NODES &&
           (object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != NULL) {
        bool again = false;
        note(object->cpuset, allowed, &nodes[count]);
        for (uint32_t i = 0; i < count; i++) {
            again |= memcmp(nodes[i].mask, nodes[count].mask, sizeof nodes[i].mask) == 0;
        }
        count += nodes[count].processors > 0 && !again ? 1 : 0;
    }
    return count;
}

uint32_t rpexec_numa_find(rpexec_numa_node *nodes_out)
{
    cpu_set_t allowed;
    hwloc_topology_t topology;
    uint32_t count = 0;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        hwloc_topology_init(&topology) != 0) {
        return 0;
    }
    if (hwloc_topology_load(topology) == 0) {
        count = list(topology, &allowed, nodes_out);
    }
    hwloc_topology_destroy(topology);
    return count;
}
