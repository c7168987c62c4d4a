#include "exec/checkpoint/run_folder.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "exec/checkpoint/weights.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REMOVED ".old-"
#define MOST_NAMES 100u /* names STEM.K that are tried if STEM is taken */

rp_status rpexec_run_folder_failed(const char *path, const char *what)
{
    rp_log_error("%s: %s: %s", path, what, strerror(errno));
    return RP_IO;
}

rp_status rpexec_run_folder_sync(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        return rpexec_run_folder_failed(path, "open");
    }
    int error = fsync(descriptor) != 0 ? errno : 0;
    (void)close(descriptor);
    errno = error;
    return error == 0 ? RP_OK : rpexec_run_folder_failed(path, "fsync");
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool number_of(const char *text, uint64_t *number_out)
{
    return text[0] != '0' && rp_parse_u64(text, 1, UINT64_MAX, number_out);
}

static bool step_of(const char *name, uint64_t *step_out)
{
    size_t length = strlen(RPEXEC_STEP);
    return strncmp(name, RPEXEC_STEP, length) == 0 && number_of(name + length, step_out);
}

/* Names that killed runs leave. */
static bool is_leftover(const char *name)
{
    char stem[NAME_MAX + 1];
    uint64_t number = 0;
    (void)snprintf(stem, sizeof stem, "%s", name);
    char *dot = strrchr(stem, '.');
    if (dot != NULL && dot != stem && number_of(dot + 1, &number)) {
        *dot = '\0';
    }
    bool old = strncmp(stem, REMOVED, strlen(REMOVED)) == 0;
    const char *finished = old ? stem + strlen(REMOVED) : stem + 1;
    return stem[0] == '.' && (strcmp(finished, RPEXEC_BASE) == 0 ||
                              (old ? number_of(finished, &number) : step_of(finished, &number)));
}

/* Names of files in folders that rpexec makes. */
static bool is_own_file(const char *name)
{
    return strcmp(name, RPEXEC_TRAINING) == 0 || rpexec_weights_is_file(name) ||
           rpexec_companion_is_file(name) || rp_output_is_temporary(name);
}

static bool is_folder(int parent, const char *name)
{
    struct stat about;
    return fstatat(parent, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(about.st_mode);
}

/* ---- removal --------------------------------------------------------------------------------- */

/* NULL: it cannot be opened, or is no folder. */
static DIR *open_inside(int parent, const char *name)
{
    int descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *inside = descriptor < 0 ? NULL : fdopendir(descriptor);
    if (inside == NULL && descriptor >= 0) {
        (void)close(descriptor);
    }
    return inside;
}

/* The next entry other than . and .. */
static const char *next_name(DIR *folder)
{
    struct dirent *entry = NULL;
    do {
        entry = readdir(folder);
    } while (entry != NULL &&
             (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    return entry == NULL ? NULL : entry->d_name;
}

/* @param reason_out [REASON] why the folder is not rpexec's own */
#define REASON 320u
static bool is_own_folder(int parent, const char *name, bool checkpoint, char *reason_out)
{
    DIR *inside = open_inside(parent, name);
    bool own = inside != NULL;
    bool trained = false;
    (void)snprintf(reason_out, REASON, "it is no folder that can be read, or a link");
    for (const char *file = own ? next_name(inside) : NULL; own && file != NULL;
         file = next_name(inside)) {
        own = is_own_file(file) && !is_folder(dirfd(inside), file);
        trained |= strcmp(file, RPEXEC_TRAINING) == 0;
        (void)snprintf(reason_out, REASON, "%s is in it", file);
    }
    if (own && checkpoint && !trained) {
        (void)snprintf(reason_out, REASON, RPEXEC_TRAINING " is not in it");
    }
    if (inside != NULL) {
        (void)closedir(inside);
    }
    return own && (trained || !checkpoint);
}

/* Removes a folder, and of its files only rpexec's own. */
static void remove_folder(int parent, const char *name)
{
    DIR *inside = open_inside(parent, name);
    for (const char *file = inside != NULL ? next_name(inside) : NULL; file != NULL;
         file = next_name(inside)) {
        if (is_own_file(file)) {
            (void)unlinkat(dirfd(inside), file, 0);
        }
    }
    if (inside != NULL) {
        (void)closedir(inside);
        (void)unlinkat(parent, name, AT_REMOVEDIR);
    }
}

/* Finds a free name: STEM or STEM.K. */
static bool free_name(int parent, const char *stem, char *name_out)
{
    struct stat about;
    for (uint32_t i = 0; i < MOST_NAMES; i++) {
        (void)snprintf(name_out, NAME_MAX + 1, i == 0 ? "%s" : "%s.%" PRIu32, stem, i);
        if (fstatat(parent, name_out, &about, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) {
            return true;
        }
    }
    return false;
}

/* Renames the folder before removing it: a half-removed folder must not pass for a whole
 * checkpoint. */
static void remove_named(int parent, const char *name)
{
    char stem[NAME_MAX + 1];
    char removed[NAME_MAX + 1];
    uint64_t step = 0;
    (void)snprintf(stem, sizeof stem, REMOVED "%s",
                   step_of(name, &step) ? name + strlen(RPEXEC_STEP) : name);
    if (free_name(parent, stem, removed) && renameat(parent, name, parent, removed) == 0) {
        remove_folder(parent, removed);
    }
}

/* ---- the run's folder ------------------------------------------------------------------------ */

/* Steps of checkpoints, descending. */
typedef struct step_list {
    uint64_t *steps;
    uint32_t count;
} step_list;

static void insert(step_list *l, uint64_t step)
{
    uint32_t at = l->count++;
    for (; at > 0 && l->steps[at - 1] < step; at--) {
        l->steps[at] = l->steps[at - 1];
    }
    l->steps[at] = step;
}

static rp_status list_steps(DIR *folder, rp_arena *arena, step_list *l)
{
    uint32_t most = 0;
    uint64_t step = 0;
    *l = (step_list){0};
    for (const char *name = next_name(folder); name != NULL; name = next_name(folder)) {
        most += step_of(name, &step) ? 1 : 0;
    }
    rewinddir(folder);
    RP_TRY(rp_arena_alloc(arena, most, sizeof *l->steps, &l->steps));
    for (const char *name = next_name(folder); name != NULL; name = next_name(folder)) {
        if (l->count < most && step_of(name, &step) && is_folder(dirfd(folder), name)) {
            insert(l, step);
        }
    }
    rewinddir(folder);
    return RP_OK;
}

static void warn_once(rpexec_checkpoints *c, const char *name, const char *reason)
{
    if (!c->warned) {
        rp_log_warning("{save}: %s/%s is called as rpexec calls what it removes, but %s: it is "
                       "left as it is, and so are others like it",
                       c->folder, name, reason);
    }
    c->warned = true;
}

static void clean_entry(rpexec_checkpoints *c, const step_list *l, int parent, const char *name)
{
    char reason[REASON];
    struct stat about;
    uint64_t step = 0;
    bool old = l->count > c->keep && step_of(name, &step) && step < l->steps[c->keep - 1];
    if (old || is_leftover(name)) {
        if (!is_own_folder(parent, name, old, reason)) {
            warn_once(c, name, reason);
        } else if (old) {
            remove_named(parent, name);
        } else {
            remove_folder(parent, name);
        }
    } else if (rp_output_is_abandoned(name) && /* for instance of a --loss-out */
               fstatat(parent, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode)) {
        (void)unlinkat(parent, name, 0);
    }
}

rp_status rpexec_run_folder_clean(rpexec_checkpoints *c, rp_arena *arena)
{
    step_list l;
    DIR *folder = opendir(c->folder);
    if (folder == NULL) {
        return rpexec_run_folder_failed(c->folder, "opendir");
    }
    rp_status status = list_steps(folder, arena, &l);
    for (const char *name = status == RP_OK ? next_name(folder) : NULL; name != NULL;
         name = next_name(folder)) {
        clean_entry(c, &l, dirfd(folder), name);
    }
    (void)closedir(folder);
    return status;
}

rp_status rpexec_run_folder_newest(const char *path, uint64_t *step_out)
{
    DIR *folder = opendir(path);
    uint64_t step = 0;
    rp_status status = RP_OK;
    *step_out = 0;
    if (folder == NULL) {
        return errno == ENOENT ? RP_OK : rpexec_run_folder_failed(path, "opendir");
    }
    for (const char *name = next_name(folder); name != NULL; name = next_name(folder)) {
        if (step_of(name, &step) && !is_folder(dirfd(folder), name)) {
            rp_log_error("{save}: %s/%s is a file or a link; valid under this name are folders "
                         "that rpexec has saved: move it away",
                         path, name);
            status = RP_INPUT;
        } else if (step_of(name, &step)) {
            *step_out = step > *step_out ? step : *step_out;
        }
    }
    (void)closedir(folder);
    return status;
}

rp_status rpexec_run_folder_make(const char *folder, const char *finished, rp_arena *arena,
                                 const char **path_out)
{
    char stem[NAME_MAX + 1];
    char name[NAME_MAX + 1];
    int parent = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(stem, sizeof stem, ".%s", finished);
    bool made = parent >= 0 && free_name(parent, stem, name) && mkdirat(parent, name, 0777) == 0;
    rp_status status = made ? RP_OK : rpexec_run_folder_failed(folder, "mkdir");
    if (parent >= 0) {
        (void)close(parent);
    }
    RP_TRY(status);
    return rp_arena_print(arena, path_out, "%s/%s", folder, name);
}

static bool is_free(int parent, const char *folder, const char *name)
{
    char reason[REASON];
    struct stat about;
    uint64_t step = 0;
    bool there = fstatat(parent, name, &about, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there || is_own_folder(parent, name, step_of(name, &step), reason)) {
        return true;
    }
    rp_log_error("{save}: %s/%s is in the way, and %s; valid under this name is what rpexec saves: "
                 "move it away",
                 folder, name, reason);
    return false;
}

bool rpexec_run_folder_is_free(const char *folder, const char *name)
{
    int parent = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_right = parent < 0 || is_free(parent, folder, name); /* writing there fails */
    if (parent >= 0) {
        (void)close(parent);
    }
    return is_right;
}

rp_status rpexec_run_folder_finish(const char *folder, const char *unfinished, const char *name,
                                   rp_arena *arena)
{
    const char *finished = NULL;
    int parent = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) {
        return rpexec_run_folder_failed(folder, "open");
    }
    bool is_right = is_free(parent, folder, name);
    if (is_right) {
        remove_named(parent, name);
    }
    (void)close(parent);
    RP_TRY(rp_arena_print(arena, &finished, "%s/%s", folder, name));
    if (!is_right) {
        return RP_IO;
    }
    if (rename(unfinished, finished) != 0) {
        return rpexec_run_folder_failed(finished, "rename");
    }
    return rpexec_run_folder_sync(folder);
}
