/* For builds without hwloc: the kernel places threads. */
#include "exec/pool/numa.h"

uint32_t rpexec_numa_find(rpexec_numa_node *nodes_out)
{
    (void)nodes_out;
    return 0;
}
