/* Processes that mpirun has started. MPI gives them their ranks and the addresses of the others;
 * after that they use their own connections, so that a lost process is noticed and rates can be
 * limited. */
#include "exec/processes/processes.h"

#include "common/base/log.h"
#include "exec/processes/guard.h"

#include <mpi.h>

static uint32_t patience_s;

static rp_status exchange(const void *own, size_t bytes, void *all_out)
{
    rpexec_guard_begin(patience_s, "MPI_Allgather: not all processes of this run have come");
    int error =
        MPI_Allgather(own, (int)bytes, MPI_BYTE, all_out, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    rpexec_guard_end();
    if (error != MPI_SUCCESS) {
        rp_log_error("MPI_Allgather: error %d", error);
        return RP_TOOL;
    }
    return RP_OK;
}

static void end(void)
{
    rpexec_guard_begin(patience_s, "MPI_Finalize: not all processes of this run have come");
    (void)MPI_Finalize();
    rpexec_guard_end();
}

rp_status rpexec_launch_find(uint32_t patience, rpexec_launch *launch_out)
{
    int rank = 0;
    int count = 1;
    *launch_out = (rpexec_launch){.count = 1};
    if (rpexec_launch_started() < 2) { /* avoids the time of MPI_Init */
        return RP_OK;
    }
    patience_s = patience;
    rpexec_guard_launcher();
    rpexec_guard_begin(patience_s, "MPI_Init: not all processes of this run have come");
    int error = MPI_Init(NULL, NULL);
    rpexec_guard_end();
    if (error != MPI_SUCCESS) {
        rp_log_error("MPI_Init failed; valid is mpirun of the MPI that rpexec was built with");
        return RP_TOOL;
    }
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &count);
    *launch_out = (rpexec_launch){
        .rank = (uint32_t)rank, .count = (uint32_t)count, .exchange = exchange, .end = end};
    if (count < 2) {
        end();
        rp_log_error("mpirun is of another MPI than rpexec was built with; valid is that one");
        return RP_USAGE;
    }
    if ((uint32_t)count > RPEXEC_MAX_PROCESSES) {
        end();
        rp_log_error("%d processes were started; valid are up to %u", count, RPEXEC_MAX_PROCESSES);
        return RP_USAGE;
    }
    return RP_OK;
}
