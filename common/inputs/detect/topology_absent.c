/* Built without hwloc. */
#include "common/inputs/detect/topology.h"

rp_topology rp_topology_read(void)
{
    return (rp_topology){0};
}
