/** @file topology.h  This machine's sockets, memory and PCI tree, as hwloc has them
 * (topology_absent.c where this was built without it).
 */
#pragma once

#include <stdint.h>

/** 0: not known. */
typedef struct rp_topology {
    uint32_t sockets;
    uint32_t nodes; /**< of memory (NUMA) */
    uint32_t cores;
    uint32_t processors;
    double memory_bytes;
    uint32_t gpus;            /**< display and 3D controllers of NVIDIA on PCI */
    uint32_t gpus_per_switch; /**< that share a root port, where all do and equally many; else 0 */
    double link_gb_per_s; /**< of the slowest of them as it runs now, which saving power lowers */
} rp_topology;

/** Reads it. HWLOC_XMLFILE in the environment names another machine's, as hwloc has it. */
rp_topology rp_topology_read(void);
