/* Workers are the other ranks of an MPI job. They are sent the experiment file's text and parse it
 * themselves; then points go out and outcomes come back as messages of bytes. */
#include "common/base/log.h"
#include "experiments/crew.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TAG_BEGIN = 1, TAG_POINTS, TAG_OUTCOME, TAG_END };

struct rpsweep_crew {
    rp_arena *arena;
    int ranks; /* rank 0 included */
};

static bool initialised;

/* A rank's own processes are no ranks: rpexec would look for the others. */
static void leave_environment(void)
{
    (void)unsetenv("OMPI_COMM_WORLD_SIZE");
    (void)unsetenv("PMI_SIZE");
}

/* ---- a worker ---------------------------------------------------------------------------------
 */

/* A message of any length from rank 0; its bytes live in `arena`. */
static rp_status receive_bytes(int tag, rp_arena *arena, char **bytes_out, int *length_out)
{
    MPI_Status status;
    MPI_Probe(0, tag, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, length_out);
    RP_TRY(rp_arena_alloc(arena, (size_t)*length_out + 1, 1, bytes_out));
    MPI_Recv(*bytes_out, *length_out, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return RP_OK;
}

/* Data that a worker needs: the experiment's file, and where rpexec is. */
static rp_status read_beginning(const char *bytes, int length, rp_arena *arena,
                                rpsweep_experiment *experiment, const char **rpexec_out)
{
    const char *file = NULL;
    const char *text = NULL;
    size_t at = 0;
    RP_TRY(rp_store_text_unpack(bytes, (size_t)length, &at, arena, &file));
    RP_TRY(rp_store_text_unpack(bytes, (size_t)length, &at, arena, &text));
    RP_TRY(rp_store_text_unpack(bytes, (size_t)length, &at, arena, rpexec_out));
    return rpsweep_experiment_parse(file, text, strlen(text), arena, experiment);
}

/* Outcome of one of the points that the process was given, in their order. */
static rp_status take_outcome(rpsweep_crew *process, uint64_t number, rp_text *message,
                              bool *has_ended_out)
{
    uint32_t worker = UINT32_MAX;
    const char *cause = NULL;
    while (worker == UINT32_MAX) {
        RP_TRY(rpsweep_crew_processes.next(process, 1000, &worker, message, &cause));
    }
    *has_ended_out = message->length == 0;
    rpsweep_outcome crash = {.number = number, .failure = cause};
    return *has_ended_out ? rpsweep_outcome_pack(&crash, message) : RP_OK;
}

static rp_status run_chunk(rpsweep_crew *process, const uint64_t *numbers, uint32_t count,
                           rp_text *message)
{
    RP_TRY(rpsweep_crew_processes.give(process, 0, numbers, count));
    for (uint32_t i = 0; i < count; i++) {
        bool has_ended = false;
        RP_TRY(take_outcome(process, numbers[i], message, &has_ended));
        MPI_Send(message->bytes, (int)message->length, MPI_BYTE, 0, TAG_OUTCOME, MPI_COMM_WORLD);
        if (has_ended && i + 1 < count) { /* the rest goes to the process that has replaced it */
            RP_TRY(rpsweep_crew_processes.give(process, 0, numbers + i + 1, count - i - 1));
        }
    }
    return RP_OK;
}

/* Each rank has a process of its own run its points: a point that crashes would otherwise end the
 * whole job. The process never calls MPI, so that it may be forked after MPI_Init. */
static rp_status run_points(const rpsweep_experiment *experiment, const char *rpexec)
{
    rpsweep_crew_config config = {.experiment = experiment, .rpexec = rpexec, .jobs = 1};
    rpsweep_crew *process = NULL;
    rp_text text = {0};
    RP_TRY(rpsweep_crew_processes.open(&config, &process));
    rp_status status = RP_OK;
    while (status == RP_OK) {
        uint64_t numbers[RPSWEEP_CHUNK];
        int count = 0;
        MPI_Status from;
        MPI_Recv(numbers, RPSWEEP_CHUNK, MPI_UINT64_T, 0, TAG_POINTS, MPI_COMM_WORLD, &from);
        MPI_Get_count(&from, MPI_UINT64_T, &count);
        if (count == 0) {
            break; /* the sweep has ended */
        }
        status = run_chunk(process, numbers, (uint32_t)count, &text);
    }
    rp_text_fini(&text);
    rpsweep_crew_processes.close(process);
    return status;
}

static rp_status work(rp_arena *arena)
{
    char *bytes = NULL;
    int length = 0;
    rpsweep_experiment experiment;
    const char *rpexec = NULL;
    RP_TRY(receive_bytes(TAG_BEGIN, arena, &bytes, &length));
    if (length > 0) { /* otherwise there is no sweep: bad usage, --help */
        RP_TRY(read_beginning(bytes, length, arena, &experiment, &rpexec));
        RP_TRY(run_points(&experiment, rpexec));
    }
    MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_END, MPI_COMM_WORLD);
    return RP_OK;
}

/* ---- rank 0 -----------------------------------------------------------------------------------
 */

static bool begun;

static rp_status pack_beginning(const rpsweep_crew_config *config, rp_text *text)
{
    RP_TRY(rp_store_text_pack(config->experiment->file, text));
    RP_TRY(rp_store_text_pack(config->experiment->text, text));
    return rp_store_text_pack(config->rpexec, text);
}

static rp_status open_crew(const rpsweep_crew_config *config, rpsweep_crew **crew_out)
{
    rp_arena *arena = NULL;
    rp_text text = {0};
    *crew_out = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof **crew_out, crew_out);
    if (status == RP_OK) {
        status = pack_beginning(config, &text);
    }
    if (status != RP_OK) {
        rp_text_fini(&text);
        rp_arena_destroy(arena);
        *crew_out = NULL;
        return status;
    }
    (*crew_out)->arena = arena;
    MPI_Comm_size(MPI_COMM_WORLD, &(*crew_out)->ranks);
    for (int rank = 1; rank < (*crew_out)->ranks; rank++) {
        MPI_Send(text.bytes, (int)text.length, MPI_BYTE, rank, TAG_BEGIN, MPI_COMM_WORLD);
    }
    begun = true;
    rp_text_fini(&text);
    return RP_OK;
}

static uint32_t crew_size(const rpsweep_crew *crew)
{
    return (uint32_t)crew->ranks - 1;
}

static rp_status give(rpsweep_crew *crew, uint32_t worker, const uint64_t *numbers, uint32_t count)
{
    (void)crew;
    MPI_Send(numbers, (int)count, MPI_UINT64_T, (int)worker + 1, TAG_POINTS, MPI_COMM_WORLD);
    return RP_OK;
}

/* MPI cannot wait for a time: it is asked again and again, less often the longer nothing comes. */
static rp_status next(rpsweep_crew *crew, int wait_ms, uint32_t *worker_out, rp_text *message,
                      const char **cause_out)
{
    (void)crew;
    MPI_Status status;
    int there = 0;
    *worker_out = UINT32_MAX;
    *cause_out = NULL;
    for (long waited_ns = 0, nap_ns = 1000; !there && waited_ns < wait_ms * 1000000L;) {
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_OUTCOME, MPI_COMM_WORLD, &there, &status);
        if (!there) {
            nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
            waited_ns += nap_ns;
            nap_ns = nap_ns < 1000000 ? 2 * nap_ns : nap_ns;
        }
    }
    if (!there) {
        return RP_OK;
    }
    int length = 0;
    MPI_Get_count(&status, MPI_BYTE, &length);
    char *bytes = NULL;
    RP_TRY(rp_mem_resize(&bytes, (size_t)length));
    MPI_Recv(bytes, length, MPI_BYTE, status.MPI_SOURCE, TAG_OUTCOME, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    message->length = 0;
    rp_status appended = rp_text_append(message, bytes, (size_t)length);
    rp_mem_release(&bytes);
    *worker_out = (uint32_t)status.MPI_SOURCE - 1;
    return appended;
}

static void close_crew(rpsweep_crew *crew)
{
    if (crew != NULL) {
        rp_arena_destroy(crew->arena);
    }
}

static const rpsweep_crew_type ranks = {
    .open = open_crew, .size = crew_size, .give = give, .next = next, .close = close_crew};
const rpsweep_crew_type *const rpsweep_crew_mpi = &ranks;

/* ---- begin and end ----------------------------------------------------------------------------
 */

/* Set by Open MPI's mpirun, and by PMI for MPICH and Slurm's srun. Without them nobody else is
 * there, and starting MPI would only cost time. */
static bool launched_by_mpi(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (getenv(names[i]) != NULL) {
            return true;
        }
    }
    return false;
}

rp_status rpsweep_mpi_begin(bool *is_mpi_out, bool *is_worker_out)
{
    int rank = 0;
    int size = 1;
    *is_mpi_out = *is_worker_out = false;
    if (!launched_by_mpi()) {
        return RP_OK;
    }
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS) {
        rp_log_error("MPI_Init failed");
        return RP_TOOL;
    }
    initialised = true;
    leave_environment();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    *is_mpi_out = rank == 0 && size > 1;
    *is_worker_out = rank != 0;
    if (rank == 0) {
        return RP_OK;
    }
    rp_arena *arena = NULL;
    rp_status status = rp_arena_create(&arena);
    status = status == RP_OK ? work(arena) : status;
    rp_arena_destroy(arena);
    if (status != RP_OK) {
        MPI_Abort(MPI_COMM_WORLD, rp_status_exit(status));
    }
    return status;
}

/* Of a sweep that was stopped or has failed, workers still send what they had begun: it is taken
 * and dropped, since a message that nobody takes blocks its sender. */
static void drain(int workers)
{
    char *bytes = NULL;
    while (workers > 0) {
        MPI_Status status;
        int length = 0;
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &length);
        if (rp_mem_resize(&bytes, (size_t)length + 1) != RP_OK) {
            MPI_Abort(MPI_COMM_WORLD, rp_status_exit(RP_NO_MEMORY));
        }
        MPI_Recv(bytes, length, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        workers -= status.MPI_TAG == TAG_END ? 1 : 0;
    }
    rp_mem_release(&bytes);
}

void rpsweep_mpi_end(void)
{
    int rank = 0;
    int size = 1;
    if (!initialised) {
        return;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int other = 1; rank == 0 && other < size; other++) {
        /* No points, or no sweep at all: it can go. */
        MPI_Send(NULL, 0, MPI_BYTE, other, begun ? TAG_POINTS : TAG_BEGIN, MPI_COMM_WORLD);
    }
    drain(rank == 0 ? size - 1 : 0);
    MPI_Finalize();
}
