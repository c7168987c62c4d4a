/* Built without MPI: a job has a single process. */
#include "experiments/crew.h"

const rpsweep_crew_type *const rpsweep_crew_mpi = NULL;

rp_status rpsweep_mpi_begin(int argc, char **argv, bool *is_mpi_out, bool *is_worker_out)
{
    (void)argc;
    (void)argv;
    *is_mpi_out = *is_worker_out = false;
    return RP_OK;
}

void rpsweep_mpi_end(void)
{
}

void rpsweep_mpi_alive(void)
{
}
