/* Processes of a run that stop, are killed, are slow, or are strangers: the processes that end, the
 * time until they end, and the messages. */
#include "exec/processes/processes.h"
#include "tests/support/assertions.h"
#include "tests/support/processes.h"
#include "tests/support/run_tool.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 3u
#define PATIENCE_S 1u
#define LARGE ((uint64_t)48 << 20)

TestSuite(exec_processes_endings, .init = rp_test_tool_begin, .fini = rp_test_tool_end,
          .timeout = 120);

static void sleep_ms(long ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- processes that are stopped, killed or slow ---------------------------------------------- */

typedef struct scenario {
    const char *name;
    rp_status (*work)(rpexec_processes *processes, uint32_t rank);
    rp_status others;    /* status of the other processes */
    const char *message; /* some process prints it; NULL: no process prints anything */
    double least_s;
    double most_s; /* generous, for a busy machine */
} scenario;

static float values[LARGE / sizeof(float)];

static rp_status meet_when_one_stops(rpexec_processes *processes, uint32_t rank)
{
    if (rank == 1) {
        (void)raise(SIGSTOP);
    }
    return rpexec_processes_meet(processes);
}

static rp_status share_when_root_stops(rpexec_processes *processes, uint32_t rank)
{
    if (rank == 1) {
        (void)raise(SIGSTOP);
    }
    return rpexec_processes_share(processes, 1, values, sizeof values);
}

/* The array is larger than a socket's buffer, so the root waits in the middle of it. */
static rp_status share_when_one_stops(rpexec_processes *processes, uint32_t rank)
{
    if (rank == 1) {
        (void)raise(SIGSTOP);
    }
    return rpexec_processes_share(processes, 0, values, sizeof values);
}

static rp_status sum_when_one_stops(rpexec_processes *processes, uint32_t rank)
{
    if (rank == 1) {
        (void)raise(SIGSTOP);
    }
    return rpexec_processes_all_reduce(processes, 0, RP_DTYPE_F32, LARGE / sizeof(float), values);
}

/* No process waits for the stopped process in a call. */
static rp_status work_when_one_stops(rpexec_processes *processes, uint32_t rank)
{
    if (rank == 1) {
        (void)raise(SIGSTOP);
    }
    for (uint32_t i = 0; i < 1500 && !rpexec_processes_failed(processes); i++) {
        sleep_ms(10);
    }
    return rpexec_processes_failed(processes) ? RP_LOST : RP_OK;
}

static rp_status meet_when_one_is_killed(rpexec_processes *processes, uint32_t rank)
{
    if (rank == 1) {
        (void)raise(SIGKILL);
    }
    return rpexec_processes_meet(processes);
}

/* Each waits for another, as if only a single process evaluated. */
static rp_status wait_for_each_other(rpexec_processes *processes, uint32_t rank)
{
    double all[PROCESSES];
    return rank == 1 ? rpexec_processes_gather(processes, 7, 1, all)
                     : rpexec_processes_meet(processes);
}

/* Process 1 works for longer than the patience, like a process that loads or saves: there is no
 * limit. */
static rp_status meet_one_that_works(rpexec_processes *processes, uint32_t rank)
{
    sleep_ms(rank == 1 ? 1600 * PATIENCE_S : 0);
    return rpexec_processes_meet(processes);
}

/* An array that a working process does not take yet does not count against it. */
static rp_status share_with_one_that_works(rpexec_processes *processes, uint32_t rank)
{
    sleep_ms(rank == 1 ? (getenv("RP_LONG") != NULL ? 9000 : 1600 * PATIENCE_S) : 0);
    RP_TRY(rpexec_processes_share(processes, 0, values, sizeof values));
    return rpexec_processes_meet(processes);
}

static rp_status meet_one_that_pauses(rpexec_processes *processes, uint32_t rank)
{
    pid_t own = getpid();
    if (rank == 1 && fork() == 0) {
        sleep_ms(400 * PATIENCE_S);
        (void)kill(own, SIGCONT);
        _exit(0);
    }
    if (rank == 1) {
        (void)raise(SIGSTOP);
    }
    return rpexec_processes_meet(processes);
}

/* All processes have their results, and process 1 does not end. */
static rp_status end_when_one_stops(rpexec_processes *processes, uint32_t rank)
{
    RP_TRY(rpexec_processes_meet(processes));
    if (rank == 1) {
        (void)raise(SIGSTOP);
    }
    return RP_OK;
}

/* Process 1 has more to do than the others, and they wait for it. */
static rp_status end_late(rpexec_processes *processes, uint32_t rank)
{
    RP_TRY(rpexec_processes_meet(processes));
    sleep_ms(rank == 1 ? 1600 * PATIENCE_S : 0);
    return RP_OK;
}

#define SILENT                                                                                     \
    "process 1 of 3 has been silent for 1 s and has not come to the end of step 7: this run ends"

static const scenario scenarios[] = {
    {"meet, stopped", meet_when_one_stops, RP_LOST, SILENT, 1, 15},
    {"share, root stopped", share_when_root_stops, RP_LOST, SILENT, 1, 15},
    {"share, stopped", share_when_one_stops, RP_LOST, SILENT, 1, 15},
    {"sum, stopped", sum_when_one_stops, RP_LOST, SILENT, 1, 15},
    {"work, stopped", work_when_one_stops, RP_LOST, SILENT, 1, 15},
    {"meet, killed", meet_when_one_is_killed, RP_LOST, "process 1 of 3 is gone: this run ends", 0,
     15},
    {"each waits", wait_for_each_other, RP_LOST,
     "has not come to the end of step 7 for 1 s: this run ends", 1, 15},
    {"meet, works", meet_one_that_works, RP_OK, NULL, 1.6, 30},
    {"share, works", share_with_one_that_works, RP_OK, NULL, 1.6, 30},
    {"end, stopped", end_when_one_stops, RP_LOST, SILENT, 1, 15},
    {"end, works", end_late, RP_OK, NULL, 1.6, 30},
    {"meet, pauses", meet_one_that_pauses, RP_OK, NULL, 0.4, 15},
};
#define SCENARIOS (sizeof scenarios / sizeof scenarios[0])

static int take_part(const rpexec_launch *launch, void *context)
{
    const scenario *s = context;
    const rpexec_processes_config config = {.build = "test", .patience_s = PATIENCE_S};
    rpexec_processes *processes = NULL;
    rp_status status = rpexec_processes_open(launch, &config, &processes);
    if (status == RP_OK) {
        rpexec_processes_note_step(processes, 7);
        status = s->work(processes, launch->rank);
    }
    rp_status left = rpexec_processes_close(processes, status == RP_OK);
    return (int)(status == RP_OK ? left : status);
}

/* All scenarios run at the same time, since they mostly sleep. */
Test(exec_processes_endings, silence_and_death_end_a_run_and_work_does_not)
{
    rp_test_processes runs[SCENARIOS];
    rp_test_process_end ends[PROCESSES];
    for (uint32_t i = 0; i < SCENARIOS; i++) {
        scenario s = scenarios[i];
        rp_test_processes_start(PROCESSES, take_part, &s, false, &runs[i]);
    }
    for (uint32_t i = 0; i < SCENARIOS; i++) {
        const scenario *s = &scenarios[i];
        rp_test_processes_wait(&runs[i], 60, ends);
        for (uint32_t rank = 0; rank < PROCESSES; rank++) {
            bool victim = rank == 1 && s->others != RP_OK;
            cr_expect(victim || ends[rank].status == (int)s->others, "%s: process %u: %d, %s",
                      s->name, rank, ends[rank].status, ends[rank].messages);
            cr_expect(victim ||
                          (ends[rank].seconds >= s->least_s && ends[rank].seconds <= s->most_s),
                      "%s: process %u: %g s", s->name, rank, ends[rank].seconds);
        }
        cr_expect(s->message != NULL ? rp_test_processes_said(ends, PROCESSES, s->message)
                                     : ends[0].messages[0] == '\0',
                  "%s: %s", s->name, ends[0].messages);
        cr_expect(not(rp_test_processes_said(ends, PROCESSES, "invariant")), "%s", s->name);
    }
}

/* ---- strangers ------------------------------------------------------------------------------- */

#define STRANGERS 300u

/* Connects and sends half a greeting, something else, or nothing. */
static int come_as_stranger(const struct sockaddr_in *at, uint32_t number)
{
    static const unsigned char bytes[4096] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert(s >= 0);
    (void)connect(s, (const struct sockaddr *)at, sizeof *at);
    size_t count = number % 4 == 0 ? 12 : number % 4 == 1 ? sizeof bytes : 0;
    if (count != 0) {
        (void)send(s, bytes, count, MSG_NOSIGNAL);
    }
    return s;
}

/* Connects again and again, and sends byte by byte, until the processes are gone or half a minute
 * is over. */
static pid_t drip(const struct sockaddr_in *at)
{
    pid_t child = fork();
    cr_assert(child >= 0);
    if (child != 0) {
        return child;
    }
    for (uint32_t round = 0; round < 300; round++) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        bool there = s >= 0 && connect(s, (const struct sockaddr *)at, sizeof *at) == 0;
        for (uint32_t i = 0; there && i < 3; i++) {
            there = send(s, "x", 1, MSG_NOSIGNAL) == 1;
            sleep_ms(30);
        }
        (void)close(s);
    }
    _exit(0);
}

static rp_status just_meet(rpexec_processes *processes, uint32_t rank)
{
    (void)rank;
    return rpexec_processes_meet(processes);
}

/* The strangers connect first, more of them than the queue of connections holds, and some go on
 * coming. The run must not spend its patience on each idle stranger. */
Test(exec_processes_endings, strangers_delay_nobody)
{
    int strangers[STRANGERS];
    pid_t dripping[2] = {0};
    rp_test_processes run;
    rp_test_process_end ends[PROCESSES];
    scenario s = {"strangers", just_meet, RP_OK, NULL, 0, 0};
    rp_test_processes_start(PROCESSES, take_part, &s, true, &run);
    rp_test_processes_await(&run);
    for (uint32_t rank = 0; rank < 2; rank++) { /* no process connects to the last rank */
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        uint32_t ip = 0;
        at.sin_port = htons(rp_test_process_port(&run, rank, &ip));
        cr_assert(at.sin_port != 0);
        cr_expect(eq(u32, ip, htonl(INADDR_LOOPBACK)), "all are on one machine");
        for (uint32_t i = 0; i < STRANGERS / 2; i++) {
            strangers[rank * (STRANGERS / 2) + i] = come_as_stranger(&at, i);
        }
        dripping[rank] = drip(&at);
    }
    double begin = rp_test_now_s() - run.began_s;
    rp_test_processes_release(&run);
    rp_test_processes_wait(&run, begin + 60, ends);
    for (uint32_t rank = 0; rank < PROCESSES; rank++) {
        cr_expect(eq(int, ends[rank].status, RP_OK), "%s", ends[rank].messages);
        cr_expect(ends[rank].seconds - begin < 15, "process %u: %g s", rank,
                  ends[rank].seconds - begin);
    }
    for (uint32_t i = 0; i < STRANGERS; i++) {
        (void)close(strangers[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        (void)kill(dripping[i], SIGKILL);
        cr_assert(eq(int, waitpid(dripping[i], NULL, 0), dripping[i]));
    }
}

/* ---- processes that do not connect, or are of another build ---------------------------------- */

/* The process is stopped after it listens and before any process connects: the kernel takes the
 * calls for it. */
Test(exec_processes_endings, who_does_not_connect_is_named)
{
    rp_test_processes run;
    rp_test_process_end ends[PROCESSES];
    scenario s = {"stopped at once", just_meet, RP_TOOL, NULL, 0, 0};
    rp_test_processes_start(PROCESSES, take_part, &s, true, &run);
    rp_test_processes_await(&run);
    (void)kill(run.children[1], SIGSTOP);
    rp_test_processes_release(&run);
    rp_test_processes_wait(&run, 60, ends);
    cr_expect(eq(int, ends[0].status, RP_TOOL));
    cr_expect(eq(int, ends[2].status, RP_TOOL));
    cr_expect(rp_test_processes_said(&ends[0], 1, "process 1 of 3, on ") &&
                  rp_test_processes_said(&ends[0], 1, "did not connect within 1 s"),
              "%s", ends[0].messages);
    cr_expect(rp_test_processes_said(&ends[2], 1, "did not answer within 1 s"), "%s",
              ends[2].messages);
}

static int run_another_build(const rpexec_launch *launch, void *context)
{
    const rpexec_processes_config config = {.build = launch->rank == 2 ? "build b" : "build a"};
    rpexec_processes *processes = NULL;
    (void)context;
    rp_status status = rpexec_processes_open(launch, &config, &processes);
    (void)rpexec_processes_close(processes, true);
    return (int)status;
}

Test(exec_processes_endings, other_builds_are_refused_by_name)
{
    rp_test_processes run;
    rp_test_process_end ends[PROCESSES];
    rp_test_processes_start(PROCESSES, run_another_build, NULL, false, &run);
    rp_test_processes_wait(&run, 60, ends);
    for (uint32_t rank = 0; rank < PROCESSES; rank++) {
        cr_expect(eq(int, ends[rank].status, RP_USAGE));
    }
    cr_expect(rp_test_processes_said(ends, 1, "process 0 of 3 is build a, process 2 is build b"),
              "%s", ends[0].messages);
}
