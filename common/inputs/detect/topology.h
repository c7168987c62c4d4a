/** @file topology.h  This machine's sockets, memory and PCI tree, as hwloc reports them
 * (topology_absent.c in builds without hwloc).
 */
#pragma once

#include <stdint.h>

/** The machine; a member of 0 is not known. */
typedef struct rp_topology {
    uint32_t sockets;
    uint32_t nodes; /**< memory (NUMA) nodes */
    uint32_t cores;
    uint32_t processors;
    double memory_bytes;
    uint32_t gpus;            /**< display and 3D controllers of NVIDIA on PCI */
    uint32_t gpus_per_switch; /**< GPUs below each root port, if every port has equally many and
                                 more than one; otherwise 0 */
    double link_gb_per_s;     /**< rate of the slowest GPU's link as it runs now, which power saving
                                 lowers */
} rp_topology;

/** Reads this machine's topology; hwloc reads another machine's from the file that HWLOC_XMLFILE in
 * the environment names. */
rp_topology rp_topology_read(void);
