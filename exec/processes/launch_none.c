/* For builds without MPI: a run of a single process, or an error if several were started. */
#include "exec/processes/processes.h"

#include "common/base/log.h"

rp_status rpexec_launch_find(uint32_t patience_s, rpexec_launch *launch_out)
{
    (void)patience_s;
    uint32_t count = rpexec_launch_started();
    *launch_out = (rpexec_launch){.count = 1};
    if (count > 1) {
        rp_log_error("%u processes were started for one run, and this rpexec was built without "
                     "MPI; valid is one, or a build where MPI is found (Debian: libopenmpi-dev, "
                     "openmpi-bin)",
                     count);
        return RP_USAGE;
    }
    return RP_OK;
}
