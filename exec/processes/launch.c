#include "common/base/text.h"
#include "exec/processes/processes_internal.h"

#include <stdlib.h>

const char *const rpexec_launch_variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};

uint32_t rpexec_launch_started(void)
{
    for (const char *const *name = rpexec_launch_variables; *name != NULL; name++) {
        const char *text = getenv(*name);
        uint64_t count = 0;
        if (text != NULL && rp_parse_u64(text, 1, UINT32_MAX, &count)) {
            return (uint32_t)count;
        }
    }
    return 1;
}
