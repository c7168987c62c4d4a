#include "exec/nodes/nodes.h"

#include "common/base/text.h"

#include <stdlib.h>

uint32_t rpexec_launch_started(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}; /* Open MPI, MPICH */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        uint64_t count = 0;
        if (text != NULL && rp_parse_u64(text, 1, UINT32_MAX, &count)) {
            return (uint32_t)count;
        }
    }
    return 1;
}
