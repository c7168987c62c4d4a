/* Built without hwloc. */
#include "exec/describe/topology.h"

rpexec_topology rpexec_topology_read(void)
{
    return (rpexec_topology){0};
}
