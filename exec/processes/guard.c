#define _GNU_SOURCE /* memmem, syscall */
#include "exec/processes/guard.h"

#include "common/base/log.h"
#include "common/cli/interrupt.h"
#include "exec/processes/processes_internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_MS 200

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *expected; /* event that must come in time, for the message; NULL: none */
static uint32_t allowed_s;
static int64_t until_ns;
static pid_t launcher;        /* 0: no launcher is watched */
static int launcher_end = -1; /* a pidfd, readable when the launcher has ended; -1: the kernel has
                                 none */

/* ---- the launcher of this process ------------------------------------------------------------ */

/* @return true where a process's environment, as it was at its start, has one of the variables */
static bool has_rank(pid_t process)
{
    char path[64];
    char text[4096];
    bool has = false;
    size_t kept = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)process);
    FILE *file = fopen(path, "r");
    for (size_t got = 0; file != NULL && !has;) {
        got = fread(text + kept, 1, sizeof text - kept, file);
        if (got == 0) {
            break;
        }
        size_t length = kept + got;
        for (const char *const *name = rpexec_launch_variables; *name != NULL; name++) {
            has = has || memmem(text, length, *name, strlen(*name)) != NULL;
        }
        kept = length < 64 ? length : 64; /* a name may be cut */
        memmove(text, text + length - kept, kept);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return has;
}

static pid_t parent_of(pid_t process)
{
    char path[64];
    char line[512];
    int parent = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "r");
    if (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *end = strrchr(line, ')'); /* end of the process's name */
        if (end == NULL || sscanf(end, ") %*c %d", &parent) != 1) {
            parent = 0;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return parent;
}

static pid_t find_launcher(void)
{
    pid_t process = getppid();
    while (process > 1 && has_rank(process)) {
        process = parent_of(process);
    }
    return process;
}

/* ---- the thread that watches ----------------------------------------------------------------- */

static void look_at_time(void)
{
    pthread_mutex_lock(&lock);
    bool late = expected != NULL && rpexec_processes_now_ns() > until_ns;
    if (late) {
        rp_log_error("%s within %u s: this process ends", expected, allowed_s);
        _exit(1);
    }
    pthread_mutex_unlock(&lock);
}

static bool launcher_is_gone(void)
{
    struct pollfd end = {.fd = launcher_end, .events = POLLIN};
    if (launcher_end >= 0) {
        return poll(&end, 1, 0) == 1;
    }
    return kill(launcher, 0) != 0 && errno == ESRCH;
}

static void *look(void *context)
{
    (void)context;
    for (;;) {
        (void)poll(NULL, 0, LOOK_MS);
        look_at_time();
        pthread_mutex_lock(&lock);
        bool gone = launcher > 0 && launcher_is_gone();
        if (gone) {
            rp_log_error("process %d, which has started this one, is gone", (int)launcher);
            launcher = 0;
            if (rp_interrupt_signal() == 0) { /* a second signal would end the process at once */
                (void)kill(getpid(), SIGTERM);
            }
        }
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Starts the thread, which ends with the process and handles no signals. */
static void start(void)
{
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, look, NULL) == 0) {
        (void)pthread_detach(thread);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void rpexec_guard_launcher(void)
{
    pthread_mutex_lock(&lock);
    launcher = find_launcher();
    launcher_end = (int)syscall(SYS_pidfd_open, launcher, 0);
    pthread_mutex_unlock(&lock);
    (void)pthread_once(&once, start);
}

void rpexec_guard_begin(uint32_t seconds, const char *what)
{
    pthread_mutex_lock(&lock);
    expected = seconds != 0 ? what : NULL;
    allowed_s = seconds;
    until_ns = rpexec_processes_now_ns() + seconds * INT64_C(1000000000);
    pthread_mutex_unlock(&lock);
    (void)pthread_once(&once, start);
}

void rpexec_guard_end(void)
{
    pthread_mutex_lock(&lock);
    expected = NULL;
    pthread_mutex_unlock(&lock);
}
