/** @file numa.h  NUMA nodes of this machine, as far as this process may use their processors. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** Most nodes that are distinguished, and most processors. */
#define RPEXEC_MAX_NUMA_NODES 64u
#define RPEXEC_NUMA_PROCESSORS 1024u

typedef struct rpexec_numa_node {
    uint32_t processors;                        /**< processors that the process may use, at least
                                                     1 */
    uint64_t mask[RPEXEC_NUMA_PROCESSORS / 64]; /**< bits of these processors, by the system's
                                                     numbers */
} rpexec_numa_node;

/**
 * Finds the nodes whose processors the calling thread may use. Asks hwloc if the build has it
 * (numa_absent.c otherwise).
 * @param nodes_out [RPEXEC_MAX_NUMA_NODES]
 * @return number of nodes; 0 if they are not known
 */
uint32_t rpexec_numa_find(rpexec_numa_node *nodes_out);
