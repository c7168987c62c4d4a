/* Workers are the other ranks of an MPI job. Rank 0 sends them the text of the experiment file,
 * which each parses itself; then points go out and outcomes come back as messages of bytes. A point
 * may take any time, so rank 0 and each worker exchange signs of life. A rank that is silent for
 * too long, because it was stopped or has lost its network, is named and ends the job. */
#include "common/base/log.h"
#include "exec/processes/guard.h"
#include "experiments/crew.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TAG_BEGIN = 1, TAG_POINTS, TAG_OUTCOME, TAG_END, TAG_ALIVE };

#define USUAL_PATIENCE_S (2 * RPSWEEP_WATCHDOG_S) /* before the options are known */

struct rpsweep_crew {
    rp_arena *arena;
    int ranks; /* rank 0 included */
};

static bool initialised;
static int own_rank;
static int rank_count;
static uint32_t patience_s = USUAL_PATIENCE_S;
static double *heard_s; /* [rank] time of its last message */
static double looked_s; /* time of this rank's last look for signs */
static double signed_s; /* time of the last sign that this rank has given */
static bool lost;       /* another rank is silent */

/* ---- signs of life --------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Sends a message. MPI waits for ever, so a guard ends the process after patience_s. */
static void send(const void *bytes, int count, MPI_Datatype type, int to, int tag)
{
    static char what[64];
    (void)snprintf(what, sizeof what, "rank %d of %d has taken nothing", to, rank_count);
    rpexec_guard_begin(patience_s, what);
    MPI_Send(bytes, count, type, to, tag, MPI_COMM_WORLD);
    rpexec_guard_end();
}

/* Workers talk with rank 0, and not with each other. */
static bool talks_to(int rank)
{
    return own_rank == 0 ? rank != 0 : rank == 0;
}

void rpsweep_mpi_alive(void)
{
    double now = now_s();
    double period = patience_s < 8 ? patience_s / 8.0 : 1;
    if (!initialised || rank_count < 2 || now - signed_s < period) {
        return;
    }
    signed_s = now;
    for (int rank = 0; rank < rank_count; rank++) {
        if (talks_to(rank)) {
            send(NULL, 0, MPI_BYTE, rank, TAG_ALIVE);
        }
    }
}

static bool look_for(int from, int tag, MPI_Status *status)
{
    int there = 0;
    MPI_Iprobe(from, tag, MPI_COMM_WORLD, &there, status);
    if (there) {
        heard_s[status->MPI_SOURCE] = now_s();
    }
    return there != 0;
}

/* Receives signs, sends its own, and finds out which ranks are silent. A rank that was busy or
 * stopped for long could hear nobody meanwhile, so it counts the others as heard. */
static rp_status exchange_signs(void)
{
    MPI_Status status;
    double now = now_s();
    for (int rank = 0; now - looked_s > patience_s / 4.0 && rank < rank_count; rank++) {
        heard_s[rank] = now;
    }
    looked_s = now;
    while (look_for(MPI_ANY_SOURCE, TAG_ALIVE, &status)) {
        MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, TAG_ALIVE, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    }
    rpsweep_mpi_alive();
    for (int rank = 0; rank < rank_count && !lost; rank++) {
        if (talks_to(rank) && now - heard_s[rank] > patience_s) {
            rp_log_error("rank %d of %d has been silent for %u s: this sweep ends", rank,
                         rank_count, patience_s);
            lost = true;
        }
    }
    return lost ? RP_LOST : RP_OK;
}

/* Waits for a message for at most `most_s`. MPI cannot wait for a limited time, so it is asked
 * again and again, less often the longer nothing comes. */
static rp_status await(int from, int tag, double most_s, MPI_Status *status, bool *there_out)
{
    double until = now_s() + most_s;
    *there_out = false;
    for (long nap_ns = 1000; !*there_out; nap_ns = nap_ns < 1000000 ? 2 * nap_ns : nap_ns) {
        *there_out = look_for(from, tag, status);
        if (!*there_out) {
            RP_TRY(exchange_signs());
            if (now_s() > until) {
                return RP_OK;
            }
            nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
        }
    }
    return RP_OK;
}

static rp_status await_long(int from, int tag, MPI_Status *status)
{
    for (bool there = false; !there;) {
        RP_TRY(await(from, tag, 3600, status, &there));
    }
    return RP_OK;
}

/* The processes of a rank are no ranks themselves: with these variables rpexec would look for the
 * other ranks. */
static void leave_environment(void)
{
    (void)unsetenv("OMPI_COMM_WORLD_SIZE");
    (void)unsetenv("PMI_SIZE");
}

/* ---- a worker -------------------------------------------------------------------------------- */

/* Receives a message of any length from rank 0; its bytes live in `arena`. */
static rp_status receive_bytes(int tag, rp_arena *arena, char **bytes_out, int *length_out)
{
    MPI_Status status;
    RP_TRY(await_long(0, tag, &status));
    MPI_Get_count(&status, MPI_BYTE, length_out);
    RP_TRY(rp_arena_alloc(arena, (size_t)*length_out + 1, 1, bytes_out));
    MPI_Recv(*bytes_out, *length_out, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return RP_OK;
}

/* Reads the data that a worker needs: the experiment's file and the path of rpexec. */
static rp_status read_beginning(const char *bytes, int length, rp_arena *arena,
                                rpsweep_experiment *experiment, const char **rpexec_out)
{
    const char *file = NULL;
    const char *text = NULL;
    size_t at = sizeof patience_s;
    if ((size_t)length < at) {
        return rp_broken();
    }
    memcpy(&patience_s, bytes, sizeof patience_s);
    RP_TRY(rp_store_text_unpack(bytes, (size_t)length, &at, arena, &file));
    RP_TRY(rp_store_text_unpack(bytes, (size_t)length, &at, arena, &text));
    RP_TRY(rp_store_text_unpack(bytes, (size_t)length, &at, arena, rpexec_out));
    return rpsweep_experiment_parse(file, text, strlen(text), arena, experiment);
}

/* Takes the outcome of the next of the points that the process was given. */
static rp_status take_outcome(rpsweep_crew *process, uint64_t number, rp_text *message,
                              bool *has_ended_out)
{
    uint32_t worker = UINT32_MAX;
    const char *cause = NULL;
    while (worker == UINT32_MAX) {
        RP_TRY(rpsweep_crew_processes.next(process, 100, &worker, message, &cause));
        RP_TRY(exchange_signs());
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
        send(message->bytes, (int)message->length, MPI_BYTE, 0, TAG_OUTCOME);
        if (has_ended && i + 1 < count) { /* its successor gets the rest */
            RP_TRY(rpsweep_crew_processes.give(process, 0, numbers + i + 1, count - i - 1));
        }
    }
    return RP_OK;
}

/* Each rank runs its points in a process of its own, because a point that crashes in the rank
 * itself would end the whole job. The process never calls MPI, so that it may be forked after
 * MPI_Init. */
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
        status = await_long(0, TAG_POINTS, &from);
        if (status != RP_OK) {
            break;
        }
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
    if (length > 0) { /* 0 if there is no sweep: bad usage, --help */
        RP_TRY(read_beginning(bytes, length, arena, &experiment, &rpexec));
        RP_TRY(run_points(&experiment, rpexec));
    }
    send(NULL, 0, MPI_BYTE, 0, TAG_END);
    return RP_OK;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static bool begun;

static rp_status pack_beginning(const rpsweep_crew_config *config, rp_text *text)
{
    patience_s = config->patience_s;
    RP_TRY(rp_text_append(text, (const char *)&patience_s, sizeof patience_s));
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
    (*crew_out)->ranks = rank_count;
    for (int rank = 1; rank < (*crew_out)->ranks; rank++) {
        send(text.bytes, (int)text.length, MPI_BYTE, rank, TAG_BEGIN);
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
    send(numbers, (int)count, MPI_UINT64_T, (int)worker + 1, TAG_POINTS);
    return RP_OK;
}

static rp_status next(rpsweep_crew *crew, int wait_ms, uint32_t *worker_out, rp_text *message,
                      const char **cause_out)
{
    (void)crew;
    MPI_Status status;
    bool there = false;
    *worker_out = UINT32_MAX;
    *cause_out = NULL;
    RP_TRY(await(MPI_ANY_SOURCE, TAG_OUTCOME, 1e-3 * wait_ms, &status, &there));
    RP_TRY(there ? exchange_signs() : RP_OK); /* outcomes may come without a pause */
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

/* ---- begin and end --------------------------------------------------------------------------- */

/* Open MPI's mpirun sets these variables, and PMI does for MPICH and Slurm's srun. Without them
 * there are no other ranks, and starting MPI would only cost time. */
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

/* Ends the job with this status. */
static void give_up(rp_status status)
{
    rpexec_guard_begin(patience_s, "MPI_Abort: the job has not ended");
    MPI_Abort(MPI_COMM_WORLD, rp_status_exit(status));
}

/* Joins the command line without the program's name into a line, which a shell would mostly read in
 * the same way. */
static rp_status join_words(int argc, char **argv, rp_text *line)
{
    for (int i = 1; i < argc; i++) {
        RP_TRY(rp_text_print(line, "%s%s", i > 1 ? " " : "", argv[i]));
    }
    return rp_text_print(line, "%s", "");
}

/* Workers take experiment and options from rank 0, so a rank with another command line is refused.
 */
static rp_status compare_lines(const rp_text *own)
{
    int length = (int)own->length;
    char *first = NULL;
    MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
    rp_status status = rp_mem_resize(&first, (size_t)length + 1);
    if (status != RP_OK) {
        give_up(status); /* the other ranks wait in the broadcast */
    }
    memcpy(first, own->bytes, own_rank == 0 ? own->length : 0);
    MPI_Bcast(first, length, MPI_BYTE, 0, MPI_COMM_WORLD);
    first[length] = '\0';
    int same = strcmp(first, own->bytes) == 0;
    if (!same) {
        rp_log_error("rank %d was started with '%s', rank 0 with '%s'; valid is one command line "
                     "for all ranks",
                     own_rank, own->bytes, first);
    }
    rp_mem_release(&first);
    MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return same ? RP_OK : RP_USAGE;
}

static rp_status agree(int argc, char **argv)
{
    rp_text own = {0};
    rp_status status = join_words(argc, argv, &own);
    if (status != RP_OK) {
        give_up(status);
    }
    rpexec_guard_begin(patience_s, "not all ranks have said what they were started with");
    status = compare_lines(&own);
    rpexec_guard_end();
    rp_text_fini(&own);
    return status;
}

rp_status rpsweep_mpi_begin(int argc, char **argv, bool *is_mpi_out, bool *is_worker_out)
{
    *is_mpi_out = *is_worker_out = false;
    if (!launched_by_mpi()) {
        return RP_OK;
    }
    rpexec_guard_launcher();
    rpexec_guard_begin(patience_s, "MPI_Init: not all ranks have come");
    int error = MPI_Init(NULL, NULL);
    rpexec_guard_end();
    if (error != MPI_SUCCESS) {
        rp_log_error("MPI_Init failed");
        return RP_TOOL;
    }
    leave_environment();
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    RP_TRY(rp_mem_resize(&heard_s, (size_t)rank_count * sizeof *heard_s));
    rp_status agreed = agree(argc, argv);
    if (agreed != RP_OK) {
        rp_mem_release(&heard_s);
        MPI_Finalize();
        *is_worker_out = own_rank != 0;
        return agreed;
    }
    looked_s = signed_s = 0; /* silence is measured from the first look on */
    initialised = true;
    *is_mpi_out = own_rank == 0 && rank_count > 1;
    *is_worker_out = own_rank != 0;
    if (own_rank == 0) {
        return RP_OK;
    }
    rp_arena *arena = NULL;
    rp_status status = rp_arena_create(&arena);
    status = status == RP_OK ? work(arena) : status;
    rp_arena_destroy(arena);
    if (status != RP_OK) {
        give_up(status);
    }
    return status;
}

/* After a sweep was stopped or has failed, workers still send the outcomes of points that they had
 * begun. These are received and dropped, since a message that nobody receives blocks its sender. */
static rp_status drain(int workers)
{
    char *bytes = NULL;
    rp_status status = RP_OK;
    while (workers > 0 && status == RP_OK) {
        MPI_Status from;
        int length = 0;
        status = await_long(MPI_ANY_SOURCE, MPI_ANY_TAG, &from);
        if (status == RP_OK) {
            MPI_Get_count(&from, MPI_BYTE, &length);
            status = rp_mem_resize(&bytes, (size_t)length + 1);
        }
        if (status == RP_OK) {
            MPI_Recv(bytes, length, MPI_BYTE, from.MPI_SOURCE, from.MPI_TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            workers -= from.MPI_TAG == TAG_END ? 1 : 0;
        }
    }
    rp_mem_release(&bytes);
    return status;
}

void rpsweep_mpi_end(void)
{
    if (!initialised) {
        return;
    }
    for (int other = 1; own_rank == 0 && !lost && other < rank_count; other++) {
        /* No points, or no sweep at all: the worker can end. */
        send(NULL, 0, MPI_BYTE, other, begun ? TAG_POINTS : TAG_BEGIN);
    }
    rp_status status = lost ? RP_LOST : drain(own_rank == 0 ? rank_count - 1 : 0);
    if (status != RP_OK) {
        give_up(status);
    }
    initialised = false;
    rp_mem_release(&heard_s);
    rpexec_guard_begin(patience_s, "MPI_Finalize: not all ranks have come");
    MPI_Finalize();
    rpexec_guard_end();
}
