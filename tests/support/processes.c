#include "tests/support/processes.h"

#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES 1024u
#define EXCHANGES 2u

typedef struct rp_test_shared {
    uint32_t count;
    atomic_uint said[EXCHANGES]; /* number of processes that have written their part */
    atomic_bool left;            /* a process has left and never will */
    atomic_bool held;            /* the last exchange waits */
    unsigned char bytes[EXCHANGES][RP_TEST_PROCESSES][MOST_BYTES];
} rp_test_shared;

/* The shared memory and this process's place in it, in a child. */
static rp_test_shared *ours;
static uint32_t our_rank;
static uint32_t our_exchange;

double rp_test_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static rp_status exchange(const void *own, size_t bytes, void *all_out)
{
    uint32_t number = our_exchange++;
    if (bytes > MOST_BYTES || number >= EXCHANGES) {
        return RP_TOOL;
    }
    memcpy(ours->bytes[number][our_rank], own, bytes);
    atomic_fetch_add(&ours->said[number], 1);
    bool last = number + 1 == EXCHANGES;
    while (atomic_load(&ours->said[number]) < ours->count || (last && atomic_load(&ours->held))) {
        if (atomic_load(&ours->left)) {
            return RP_TOOL;
        }
        nap();
    }
    for (uint32_t i = 0; i < ours->count; i++) {
        memcpy((unsigned char *)all_out + i * bytes, ours->bytes[number][i], bytes);
    }
    return RP_OK;
}

static void end(void)
{
}

static const char *file_of(const rp_test_processes *p, uint32_t rank)
{
    const char *path = NULL;
    (void)rp_arena_print(rp_test_tool_arena(), &path, "%s/messages.%u", p->folder, rank);
    return path;
}

static void become(const rp_test_processes *p, uint32_t rank, rp_test_process_work work,
                   void *context)
{
    const rpexec_launch launch = {
        .rank = rank, .count = p->count, .exchange = exchange, .end = end};
    int messages = open(file_of(p, rank), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ours = p->shared;
    our_rank = rank;
    our_exchange = 0;
    if (messages < 0 || dup2(messages, STDERR_FILENO) < 0) {
        _exit(99);
    }
    _exit(work(&launch, context));
}

void rp_test_processes_start(uint32_t count, rp_test_process_work work, void *context, bool held,
                             rp_test_processes *processes_out)
{
    static uint32_t runs;
    rp_test_processes p = {.count = count, .began_s = rp_test_now_s()};
    void *memory =
        mmap(NULL, sizeof *p.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(memory != MAP_FAILED && count <= RP_TEST_PROCESSES);
    p.shared = memory;
    p.shared->count = count;
    atomic_store(&p.shared->held, held);
    (void)rp_arena_print(rp_test_tool_arena(), &p.folder, "%s/run.%u", rp_test_tool_folder(),
                         runs++);
    const char *command = NULL;
    (void)rp_arena_print(rp_test_tool_arena(), &command, "mkdir -p '%s'", p.folder);
    cr_assert(eq(int, system(command), 0));
    (void)fflush(NULL);
    for (uint32_t i = 0; i < count; i++) {
        p.children[i] = fork();
        cr_assert(p.children[i] >= 0);
        if (p.children[i] == 0) {
            become(&p, i, work, context);
        }
    }
    *processes_out = p;
}

void rp_test_processes_await(rp_test_processes *p)
{
    double until = rp_test_now_s() + 60;
    while (atomic_load(&p->shared->said[EXCHANGES - 1]) < p->count) {
        cr_assert(rp_test_now_s() < until, "not all processes listen");
        nap();
    }
}

void rp_test_processes_release(rp_test_processes *p)
{
    atomic_store(&p->shared->held, false);
}

void rp_test_process_leaves(void)
{
    atomic_store(&ours->left, true);
}

/* ---- ports ----------------------------------------------------------------------------------- */

/* @return true if a process has the socket of this inode open */
static bool has_socket(pid_t process, unsigned long inode)
{
    char folder[64];
    char wanted[64];
    bool has = false;
    (void)snprintf(folder, sizeof folder, "/proc/%d/fd", (int)process);
    (void)snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *descriptors = opendir(folder);
    for (const struct dirent *e; descriptors != NULL && (e = readdir(descriptors)) != NULL;) {
        char path[400];
        char target[64] = "";
        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        has = has || strcmp(target, wanted) == 0;
    }
    if (descriptors != NULL) {
        (void)closedir(descriptors);
    }
    return has;
}

uint16_t rp_test_process_port(const rp_test_processes *p, uint32_t rank, uint32_t *ip_out)
{
    char path[64];
    char line[512];
    unsigned port = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/net/tcp", (int)p->children[rank]);
    FILE *file = fopen(path, "r");
    cr_assert(file != NULL);
    while (port == 0 && fgets(line, sizeof line, file) != NULL) {
        unsigned ip = 0;
        unsigned at = 0;
        unsigned state = 0;
        unsigned long inode = 0;
        int fields = sscanf(line, " %*u: %8X:%4X %*8X:%*4X %2X %*s %*s %*s %*u %*u %lu", &ip, &at,
                            &state, &inode);
        if (fields == 4 && state == 0x0a && has_socket(p->children[rank], inode)) {
            port = at;
            *ip_out = ip;
        }
    }
    (void)fclose(file);
    return (uint16_t)port;
}

/* ---- ends ------------------------------------------------------------------------------------ */

void rp_test_processes_wait(rp_test_processes *p, double limit_s, rp_test_process_end *ends_out)
{
    uint32_t running = p->count;
    enum { RUNS, STOPPED, ENDED } are[RP_TEST_PROCESSES] = {RUNS};
    while (running > 0) {
        bool late = rp_test_now_s() - p->began_s > limit_s;
        uint32_t stopped = 0;
        for (uint32_t i = 0; i < p->count; i++) {
            int state = 0;
            if (are[i] == ENDED ||
                waitpid(p->children[i], &state, WNOHANG | WUNTRACED | WCONTINUED) <= 0) {
                stopped += are[i] == STOPPED ? 1 : 0;
                continue;
            }
            are[i] = WIFSTOPPED(state) ? STOPPED : WIFCONTINUED(state) ? RUNS : ENDED;
            stopped += are[i] == STOPPED ? 1 : 0;
            if (are[i] == ENDED) {
                running--;
                ends_out[i] = (rp_test_process_end){.status = WIFEXITED(state) ? WEXITSTATUS(state)
                                                                               : -WTERMSIG(state),
                                                    .seconds = rp_test_now_s() - p->began_s,
                                                    .messages = rp_test_tool_read(file_of(p, i))};
            }
        }
        for (uint32_t i = 0; i < p->count && (late || stopped == running); i++) {
            if (are[i] != ENDED) {
                (void)kill(p->children[i], SIGKILL);
            }
        }
        nap();
    }
    (void)munmap(p->shared, sizeof *p->shared);
    p->shared = NULL;
}

bool rp_test_processes_said(const rp_test_process_end *ends, uint32_t count, const char *text)
{
    bool said = false;
    for (uint32_t i = 0; i < count; i++) {
        said = said || strstr(ends[i].messages, text) != NULL;
    }
    return said;
}
