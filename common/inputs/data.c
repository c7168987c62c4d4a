#include "common/inputs/data.h"

#include "common/base/log.h"
#include "common/formats/config.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".yaml"

#ifndef RP_SOURCE_ROOT
#define RP_SOURCE_ROOT "."
#endif

const rp_data_kind rp_data_models = {.folder = "models", .option = "--model", .noun = "model"};
const rp_data_kind rp_data_platforms = {
    .folder = "platforms", .option = "--platform", .noun = "platform"};
const rp_data_kind rp_data_costs = {.folder = "costs", .option = "--costs", .noun = "cost table"};

static char installed_root[PATH_MAX]; /* empty: not installed */
static pthread_once_t installed_once = PTHREAD_ONCE_INIT;

static void find_installed_root(void)
{
    static const char below[] = "/../share/roundpipe/traces";
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof below);
    if (length <= 0) {
        return;
    }
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash) {
        return;
    }
    memcpy(slash, below, sizeof below);
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        memcpy(installed_root, path, strlen(path) + 1);
    }
}

const char *rp_data_root(void)
{
    const char *chosen = getenv("RP_TRACES");
    if (chosen && *chosen) {
        return chosen;
    }
    pthread_once(&installed_once, find_installed_root);
    return *installed_root ? installed_root : RP_SOURCE_ROOT "/traces";
}

static bool ends_in_suffix(const char *name)
{
    size_t length = strlen(name);
    size_t suffix = strlen(SUFFIX);
    return length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Appends the data files of a folder to a heap block that the caller releases. */
static rp_status read_names(DIR *folder, rp_arena *arena, const char ***names, uint32_t *count)
{
    uint32_t capacity = 0;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (entry->d_name[0] == '.' || !ends_in_suffix(entry->d_name)) {
            continue;
        }
        if (*count == capacity) {
            capacity = capacity ? capacity * 2 : 32;
            RP_TRY(rp_mem_resize(names, capacity * sizeof **names));
        }
        size_t length = strlen(entry->d_name) - strlen(SUFFIX);
        RP_TRY(rp_arena_copy_text(arena, entry->d_name, length, &(*names)[*count]));
        ++*count;
    }
    return RP_OK;
}

static rp_status keep_names(rp_arena *arena, const char **names, uint32_t count,
                            const char ***names_out)
{
    RP_TRY(rp_arena_alloc(arena, count, sizeof *names, names_out));
    if (count > 0) {
        memcpy(*names_out, names, count * sizeof *names);
        qsort(*names_out, count, sizeof *names, compare_names);
    }
    return RP_OK;
}

rp_status rp_data_list(const char *kind, rp_arena *arena, const char ***names_out,
                       uint32_t *count_out)
{
    const char *path;
    RP_TRY(rp_arena_print(arena, &path, "%s/%s", rp_data_root(), kind));
    DIR *folder = opendir(path);
    if (!folder) {
        rp_log_error_at(path, 0,
                        "cannot be read: %s; valid values of RP_TRACES are folders with "
                        "models/, platforms/, costs/ and partitions/",
                        strerror(errno));
        return RP_INPUT;
    }
    const char **names = NULL;
    *count_out = 0;
    rp_status status = read_names(folder, arena, &names, count_out);
    closedir(folder);
    if (status == RP_OK) {
        status = keep_names(arena, names, *count_out, names_out);
    }
    rp_mem_release(&names);
    return status;
}

static bool is_path(const char *name_or_path)
{
    return strchr(name_or_path, '/') || ends_in_suffix(name_or_path);
}

static rp_status refuse_name(const rp_data_kind *kind, const char *name, const char **names,
                             uint32_t count)
{
    rp_text list = {0};
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < count && status == RP_OK; i++) {
        status = rp_text_print(&list, "%s, ", names[i]);
    }
    if (status == RP_OK) {
        const char *nearest = rp_text_nearest(name, names, count);
        rp_log_error("%s: unknown %s '%.80s'%s%s%s; valid values are %sor the path of a file %s",
                     kind->option, kind->noun, name, nearest ? ", did you mean '" : "",
                     nearest ? nearest : "", nearest ? "'?" : "", list.bytes ? list.bytes : "",
                     "NAME" SUFFIX);
        status = RP_INPUT;
    }
    rp_text_fini(&list);
    return status;
}

/* One look instead of a walk through the folder: thousands of short runs ask. Names that the list
 * leaves out are not found, and what is not there at once may be a link that leads nowhere. */
static bool is_there(const char *name, const char *path)
{
    return name[0] != '\0' && name[0] != '.' && access(path, F_OK) == 0;
}

rp_status rp_data_find(const rp_data_kind *kind, const char *name, rp_arena *arena,
                       const char **path_out, bool *found_out)
{
    const char **names;
    uint32_t count;
    RP_TRY(rp_arena_print(arena, path_out, "%s/%s/%s" SUFFIX, rp_data_root(), kind->folder, name));
    *found_out = is_there(name, *path_out);
    if (*found_out) {
        return RP_OK;
    }
    RP_TRY(rp_data_list(kind->folder, arena, &names, &count));
    for (uint32_t i = 0; i < count && !*found_out; i++) {
        *found_out = strcmp(names[i], name) == 0;
    }
    return RP_OK;
}

rp_status rp_data_path(const rp_data_kind *kind, const char *name_or_path, rp_arena *arena,
                       const char **path_out)
{
    if (is_path(name_or_path)) {
        return rp_arena_copy_text(arena, name_or_path, strlen(name_or_path), path_out);
    }
    const char **names;
    uint32_t count;
    bool found = false;
    RP_TRY(rp_data_find(kind, name_or_path, arena, path_out, &found));
    if (found) {
        return RP_OK;
    }
    RP_TRY(rp_data_list(kind->folder, arena, &names, &count));
    return refuse_name(kind, name_or_path, names, count);
}

rp_status rp_data_read(const rp_data_kind *kind, const char *name_or_path, rp_arena *arena,
                       const char **path_out, rp_text *bytes_out)
{
    RP_TRY(rp_data_path(kind, name_or_path, arena, path_out));
    return rp_text_read_file(*path_out, RP_CONFIG_MAX_BYTES, bytes_out);
}

rp_status rp_data_check_name(const char *name_or_path, const char *path, const char *own_name)
{
    if (is_path(name_or_path) || strcmp(name_or_path, own_name) == 0) {
        return RP_OK;
    }
    rp_log_error_at(path, 0,
                    "the file calls itself '%s'; valid values of its key 'name' are its "
                    "file name, '%s'",
                    own_name, name_or_path);
    return RP_INPUT;
}

rp_status rp_data_name_of(const char *path, size_t most, const char *otherwise, rp_arena *arena,
                          const char **name_out)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-@";
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    size_t length = strlen(base);
    length -= ends_in_suffix(base) ? strlen(SUFFIX) : 0;
    bool named =
        strcmp(path, "-") != 0 && length > 0 && length <= most && strspn(base, allowed) >= length;
    return named ? rp_arena_copy_text(arena, base, length, name_out)
                 : rp_arena_copy_text(arena, otherwise, strlen(otherwise), name_out);
}
