#define _GNU_SOURCE /* pipe2 */
#include "common/base/process.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ERROR_TEXT_SIZE 2000

static char own_folder[PATH_MAX]; /* empty: not known */
static pthread_once_t own_folder_once = PTHREAD_ONCE_INIT;

static void find_own_folder(void)
{
    ssize_t length = readlink("/proc/self/exe", own_folder, sizeof own_folder - 1);
    own_folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own_folder, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

const char *rp_process_folder(void)
{
    pthread_once(&own_folder_once, find_own_folder);
    return *own_folder != '\0' ? own_folder : NULL;
}

static rp_status refuse(const char *what)
{
    rp_log_error("%s: %s", what, strerror(errno));
    return RP_IO;
}

/* Runs in the child, with async-signal-safe calls only; returns only if the program cannot be
 * started.
 */
static void become(const rp_process *process, int output, int errors)
{
    int input = process->input != NULL ? fileno(process->input) : open("/dev/null", O_RDONLY);
    output = output >= 0 ? output : open("/dev/null", O_WRONLY);
    if (lseek(input, 0, SEEK_SET) < 0 || dup2(input, STDIN_FILENO) < 0 ||
        dup2(output, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0) {
        return;
    }
    /* exec takes char *const for historical reasons but does not change the strings */
    execvp(process->argv[0], (char *const *)(void *)process->argv);
}

static rp_status wait_for(const rp_process *process, pid_t child, FILE *errors)
{
    int status;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return refuse(process->argv[0]);
        }
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return RP_OK;
    }
    char text[ERROR_TEXT_SIZE];
    rewind(errors);
    size_t length = fread(text, 1, sizeof text - 1, errors);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' ')) {
        length--;
    }
    text[length] = '\0';
    rp_log_error("%s failed (%s %d): %s", process->argv[0],
                 WIFEXITED(status) ? "exit status" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                 length > 0 ? text : "it gave no reason");
    return RP_TOOL;
}

/* The pipe `report` closes by itself when the child becomes the program; otherwise it brings the
 * errno. */
static rp_status start(const rp_process *process, int output, FILE *errors, pid_t *child_out)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) {
        return refuse("a pipe cannot be made");
    }
    *child_out = fork();
    if (*child_out == 0) {
        become(process, output, fileno(errors));
        int error = errno;
        ssize_t written = write(report[1], &error, sizeof error);
        _exit(written == (ssize_t)sizeof error ? 127 : 126);
    }
    int fork_error = errno;
    close(report[1]);
    int error = 0;
    ssize_t got = 0;
    if (*child_out > 0) {
        do {
            got = read(report[0], &error, sizeof error);
        } while (got < 0 && errno == EINTR);
    }
    close(report[0]);
    if (*child_out < 0) {
        errno = fork_error;
        return refuse("a process cannot be made");
    }
    if (got != (ssize_t)sizeof error) {
        return RP_OK;
    }
    (void)waitpid(*child_out, NULL, 0);
    rp_log_error("%s cannot be run: %s; install it (package %s)", process->argv[0], strerror(error),
                 process->package);
    return RP_TOOL;
}

/* Reads to the end even if the output fails: the process must not block on its pipe. */
static void copy_output(int from, FILE *to)
{
    char block[16384];
    ssize_t got = 0;
    while ((got = read(from, block, sizeof block)) > 0 || (got < 0 && errno == EINTR)) {
        if (got > 0 && !ferror(to)) {
            (void)fwrite(block, 1, (size_t)got, to);
        }
    }
}

static rp_status run(const rp_process *process, FILE *errors)
{
    int ends[2] = {-1, -1};
    if (process->input != NULL && (fflush(process->input) != 0 || ferror(process->input))) {
        return refuse("a temporary file cannot be written");
    }
    if (process->output != NULL && pipe2(ends, O_CLOEXEC) != 0) {
        return refuse("a pipe cannot be made");
    }
    pid_t child = -1;
    rp_status status = start(process, ends[1], errors, &child);
    if (process->output != NULL) {
        close(ends[1]);
        if (status == RP_OK) {
            copy_output(ends[0], process->output);
        }
        close(ends[0]);
    }
    return status == RP_OK ? wait_for(process, child, errors) : status;
}

rp_status rp_process_run(const rp_process *process)
{
    FILE *errors = tmpfile();
    if (errors == NULL) {
        return refuse("a temporary file cannot be made");
    }
    rp_status status = run(process, errors);
    fclose(errors);
    return status;
}
