/* Files that appear under their name only when they are complete; declared in text.h. */
#include "common/base/mem.h"
#include "common/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY_TRIES 1000
/* Prefix of a temporary file's name, which goes on with the process's number and a count. */
#define TEMPORARY_PREFIX ".rp-"
#define TEMPORARY_SUFFIX ".tmp"

/* ---- files that a signal must not leave ------------------------------------------------------ */

/* More than any program has open; files beyond it stay if a signal ends the program. */
#define MOST_TEMPORARIES 64

static _Atomic(const char *) temporaries[MOST_TEMPORARIES];
static _Atomic pid_t owner;
static atomic_bool leaving; /* a signal ends this process */

static void note_temporary(const char *path)
{
    pid_t before = atomic_exchange(&owner, getpid());
    /* A child inherits the list, but the files belong to its parent. */
    for (size_t i = 0; before != 0 && before != getpid() && i < MOST_TEMPORARIES; i++) {
        atomic_store(&temporaries[i], NULL);
    }
    for (size_t i = 0; i < MOST_TEMPORARIES; i++) {
        const char *free_place = NULL;
        if (atomic_compare_exchange_strong(&temporaries[i], &free_place, path)) {
            return;
        }
    }
}

static void forget_temporary(const char *path)
{
    for (size_t i = 0; path != NULL && i < MOST_TEMPORARIES; i++) {
        const char *own = path;
        if (atomic_compare_exchange_strong(&temporaries[i], &own, NULL)) {
            return;
        }
    }
}

static void release_temporary(rp_output *output)
{
    forget_temporary(output->temporary_path);
    rp_mem_release(&output->temporary_path);
}

void rp_output_remove_temporaries(void)
{
    atomic_store(&leaving, true);
    for (size_t i = 0; getpid() == atomic_load(&owner) && i < MOST_TEMPORARIES; i++) {
        const char *path = atomic_load(&temporaries[i]);
        if (path != NULL) {
            (void)unlink(path);
        }
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

static rp_status refuse(const char *path, int error)
{
    rp_log_error_at(path, 0, "cannot be written: %s", strerror(error));
    return RP_INPUT;
}

static rp_status copy_text(const char *text, char **copy_out)
{
    size_t size = strlen(text) + 1;
    *copy_out = NULL;
    RP_TRY(rp_mem_resize(copy_out, size));
    memcpy(*copy_out, text, size);
    return RP_OK;
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* /dev/fd/1 may lead to a regular file that the shell opened: replacing it would lose other output
   to that file. Devices and pipes cannot be replaced at all. */
static bool is_written_directly(const char *path, bool exists, const struct stat *status)
{
    return starts_with(path, "/dev/") || starts_with(path, "/proc/") ||
           (exists && !S_ISREG(status->st_mode));
}

/* Opens the path itself; never waits for the reader of a FIFO. */
static rp_status open_directly(rp_output *output, bool fifo)
{
    int flags = O_WRONLY | O_CLOEXEC;
    int descriptor = open(output->path, fifo ? flags | O_NONBLOCK : flags);
    if (descriptor < 0 && fifo && errno == ENXIO) {
        rp_log_error_at(output->path, 0,
                        "cannot be written: nobody reads from this FIFO; valid "
                        "are files, and FIFOs that are open for reading");
        return RP_INPUT;
    }
    if (descriptor < 0 || (fifo && fcntl(descriptor, F_SETFL, flags) != 0)) {
        int error = errno;
        if (descriptor >= 0) {
            close(descriptor);
        }
        return refuse(output->path, error);
    }
    output->stream = fdopen(descriptor, "w");
    if (!output->stream) {
        int error = errno;
        close(descriptor);
        return refuse(output->path, error);
    }
    return RP_OK;
}

/* Makes the names itself: mkstemp creates files of mode 0600 under any umask. */
static rp_status create_temporary(rp_output *output, int *descriptor_out)
{
    static atomic_uint next;
    const char *slash = strrchr(output->path, '/');
    size_t folder_length = slash ? (size_t)(slash - output->path) + 1 : 0;
    size_t size = folder_length + 64;
    int error = 0;
    RP_TRY(rp_mem_resize(&output->temporary_path, size));
    for (unsigned tries = 0; tries < TEMPORARY_TRIES; tries++) {
        snprintf(output->temporary_path, size, "%.*s" TEMPORARY_PREFIX "%ld-%u" TEMPORARY_SUFFIX,
                 (int)folder_length, output->path, (long)getpid(), atomic_fetch_add(&next, 1));
        int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
        note_temporary(output->temporary_path);
        *descriptor_out = open(output->temporary_path, flags, 0666);
        if (*descriptor_out >= 0) {
            /* A signal's handler in another thread may have looked before the file existed. */
            if (atomic_load(&leaving)) {
                (void)unlink(output->temporary_path);
            }
            return RP_OK;
        }
        error = errno;
        forget_temporary(output->temporary_path);
        if (error != EEXIST) {
            break;
        }
    }
    rp_mem_release(&output->temporary_path);
    return refuse(output->path, error);
}

static rp_status open_temporary(rp_output *output, bool exists, const struct stat *status)
{
    int descriptor;
    if (exists && access(output->path, W_OK) != 0) {
        return refuse(output->path, errno);
    }
    RP_TRY(create_temporary(output, &descriptor));
    if (exists) {
        (void)fchmod(descriptor, status->st_mode & 0777); /* a replaced file keeps its mode */
    }
    output->stream = fdopen(descriptor, "w");
    if (!output->stream) {
        int error = errno;
        close(descriptor);
        unlink(output->temporary_path);
        release_temporary(output);
        return refuse(output->path, error);
    }
    return RP_OK;
}

static rp_status open_path(const char *path, rp_output *output)
{
    struct stat status;
    bool exists = stat(path, &status) == 0;
    if (*path == '\0') {
        return refuse("(empty name)", ENOENT);
    }
    if (exists && S_ISDIR(status.st_mode)) {
        return refuse(path, EISDIR);
    }
    if (is_written_directly(path, exists, &status)) {
        RP_TRY(copy_text(path, &output->path));
        return open_directly(output, exists && S_ISFIFO(status.st_mode));
    }
    char resolved[PATH_MAX]; /* a link is followed: its target is replaced */
    bool linked = exists && realpath(path, resolved) != NULL;
    RP_TRY(copy_text(linked ? resolved : path, &output->path));
    return open_temporary(output, exists, &status);
}

rp_status rp_output_open(const char *path, rp_output *output_out)
{
    *output_out = (rp_output){0};
    if (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0) {
        output_out->stream = stdout;
        return copy_text(path, &output_out->path);
    }
    rp_status status = open_path(path, output_out);
    if (status != RP_OK) {
        rp_output_discard(output_out);
    }
    return status;
}

static int flush_error(FILE *stream)
{
    bool failed_before = ferror(stream) != 0;
    errno = 0;
    int failed = fflush(stream);
    if (failed_before && failed == 0) { /* to learn the lost errno */
        clearerr(stream);
        failed = fputc('\n', stream) == EOF || fflush(stream) != 0;
    }
    if (failed != 0 || failed_before) {
        return errno != 0 ? errno : EIO;
    }
    return 0;
}

/* Some file systems cannot sync; this is not a failure to write. */
static int sync_error(FILE *stream)
{
    if (fsync(fileno(stream)) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS) {
        return 0;
    }
    return errno;
}

/* A name outlives a loss of power once its folder is on disk. A folder that cannot be synced is no
 * failure: the file is as safe as the system makes it. */
static void sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (length >= sizeof folder) {
        return;
    }
    memcpy(folder, slash == NULL ? "." : path, slash == NULL ? 1 : length);
    folder[slash == NULL ? 1 : length] = '\0';
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        (void)fsync(descriptor);
        (void)close(descriptor);
    }
}

/* @return the process that writes an unfinished output of this name; 0: not such a name */
static pid_t process_of(const char *name)
{
    uint64_t process = 0;
    char number[24];
    size_t prefix = strlen(TEMPORARY_PREFIX);
    size_t length = strlen(name);
    if (strncmp(name, TEMPORARY_PREFIX, prefix) != 0 || length < strlen(TEMPORARY_SUFFIX) ||
        strcmp(name + length - strlen(TEMPORARY_SUFFIX), TEMPORARY_SUFFIX) != 0) {
        return 0;
    }
    size_t digits = strcspn(name + prefix, "-");
    if (digits >= sizeof number) {
        return 0;
    }
    memcpy(number, name + prefix, digits);
    number[digits] = '\0';
    return rp_parse_u64(number, 1, INT32_MAX, &process) ? (pid_t)process : 0;
}

bool rp_output_is_temporary(const char *name)
{
    return process_of(name) != 0;
}

bool rp_output_is_abandoned(const char *name)
{
    pid_t process = process_of(name);
    return process != 0 && kill(process, 0) != 0 && errno == ESRCH;
}

static int close_error(rp_output *output)
{
    FILE *stream = output->stream;
    output->stream = NULL;
    if (stream == stdout) {
        return 0;
    }
    return fclose(stream) == 0 ? 0 : errno;
}

rp_status rp_output_commit(rp_output *output)
{
    int error = flush_error(output->stream);
    if (error == 0 && output->temporary_path) {
        error = sync_error(output->stream);
    }
    int closing = close_error(output);
    error = error != 0 ? error : closing;
    if (error == 0 && output->temporary_path) {
        error = rename(output->temporary_path, output->path) == 0 ? 0 : errno;
        if (error == 0) {
            release_temporary(output); /* discard has nothing left to remove */
            sync_folder_of(output->path);
        }
    }
    if (error != 0) {
        const char *name = strcmp(output->path, "-") == 0 ? "stdout" : output->path;
        rp_log_error_at(name, 0, "cannot be written: %s", strerror(error));
    }
    rp_output_discard(output);
    return error == 0 ? RP_OK : RP_IO;
}

void rp_output_discard(rp_output *output)
{
    if (output->stream && output->stream != stdout) {
        (void)fclose(output->stream);
    }
    output->stream = NULL;
    if (output->temporary_path) {
        unlink(output->temporary_path);
    }
    release_temporary(output);
    rp_mem_release(&output->path);
}
