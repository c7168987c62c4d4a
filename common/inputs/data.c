#define _GNU_SOURCE /* dladdr1 */
#include "common/inputs/data.h"

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/formats/config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".yaml"
#define TRACES "traces"
#define NAMES_AT_ONCE 64
#define MOST_LEVELS 6 /* from a Python module in lib/python3/dist-packages to the prefix */

#ifndef RP_DATA_FOLDER
#define RP_DATA_FOLDER "share/rpsim"
#endif

const rp_data_kind rp_data_models = {.folder = "models",
                                     .setting = "{model}",
                                     .noun = "model",
                                     .files = "a file NAME" SUFFIX ", a config.json or its folder"};
const rp_data_kind rp_data_platforms = {.folder = "platforms",
                                        .setting = "{platform}",
                                        .noun = "platform",
                                        .files = "a file NAME" SUFFIX};
const rp_data_kind rp_data_gpus = {
    .folder = "gpus", .setting = "gpu", .noun = "GPU", .files = "a file NAME" SUFFIX};
const rp_data_kind rp_data_stacks = {
    .folder = "stacks", .setting = "{stack}", .noun = "stack", .files = "a file NAME" SUFFIX};
const rp_data_kind rp_data_costs = {
    .folder = "costs", .setting = "{costs}", .noun = "cost table", .files = "a file NAME" SUFFIX};

/* ---- places ---------------------------------------------------------------------------------- */

static char shipped[PATH_MAX]; /* empty: not there */
static pthread_once_t shipped_once = PTHREAD_ONCE_INIT;

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Folder of the file that this code was loaded from: of the library, or of the program that it is
 * linked into. The program's own entry has no name. */
static bool find_own_folder(char path[PATH_MAX])
{
    Dl_info info;
    void *entry = NULL;
    if (dladdr1(shipped, &info, &entry, RTLD_DL_LINKMAP) == 0 || entry == NULL ||
        ((const struct link_map *)entry)->l_name[0] == '\0') {
        const char *program = rp_process_folder();
        if (program != NULL) {
            strcpy(path, program);
        }
        return program != NULL;
    }
    if (realpath(((const struct link_map *)entry)->l_name, path) == NULL) {
        return false;
    }
    *strrchr(path, '/') = '\0';
    return true;
}

/* Looks for share/rpsim in the folder and in those above it: PREFIX/bin, PREFIX/lib and deeper
 * folders have PREFIX/share/rpsim above them, and a build folder has a share/rpsim of links. */
static void find_shipped(void)
{
    static const char below[] = "/" RP_DATA_FOLDER;
    static const char traces[] = "/" TRACES;
    char path[PATH_MAX];
    bool found = find_own_folder(path);
    for (int level = 0; found && level < MOST_LEVELS; level++) {
        char *end = path + strlen(path);
        if ((size_t)(end - path) + sizeof below + sizeof traces > sizeof path) {
            return;
        }
        strcpy(stpcpy(end, below), traces);
        if (is_folder(path)) {
            end[sizeof below - 1] = '\0';
            strcpy(shipped, path);
            return;
        }
        *end = '\0';
        char *slash = strrchr(path, '/');
        found = slash != NULL;
        if (found) {
            *slash = '\0';
        }
    }
}

const char *rp_data_shipped(void)
{
    const char *chosen = getenv("RP_DATA");
    if (chosen != NULL && *chosen != '\0') {
        return chosen;
    }
    pthread_once(&shipped_once, find_shipped);
    return *shipped != '\0' ? shipped : NULL;
}

static rp_status refuse_no_data(void)
{
    rp_log_error("no data files were found: there is no " RP_DATA_FOLDER "/" TRACES
                 " in the folder of the program, nor above it; install it together with its data, "
                 "or set RP_DATA to the folder with " TRACES "/");
    return RP_INPUT;
}

/* Walks through the folders of RP_TRACES: `rest` begins as getenv("RP_TRACES") and ends empty. */
typedef struct overlays {
    const char *rest;
    const char *folder; /* in the arena; NULL: there are no more */
} overlays;

static rp_status next_overlay(overlays *o, rp_arena *arena)
{
    o->folder = NULL;
    while (o->rest != NULL && *o->rest != '\0' && o->folder == NULL) {
        size_t length = strcspn(o->rest, ":");
        if (length > 0) {
            RP_TRY(rp_arena_copy_text(arena, o->rest, length, &o->folder));
        }
        o->rest += length + (o->rest[length] == ':' ? 1 : 0);
    }
    if (o->folder != NULL && !is_folder(o->folder)) {
        rp_log_error("RP_TRACES: '%s' is no folder; valid values are folders, separated by ':', "
                     "with files as models/NAME.yaml, platforms/NAME.yaml or costs/NAME.yaml",
                     o->folder);
        return RP_INPUT;
    }
    return RP_OK;
}

/* A dangling link counts as there: opening it then names the error. */
static bool is_there(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

rp_status rp_data_file(const char *relative, rp_arena *arena, const char **path_out,
                       bool *found_out)
{
    overlays o = {.rest = getenv("RP_TRACES")};
    *path_out = NULL;
    *found_out = false;
    RP_TRY(next_overlay(&o, arena));
    while (o.folder != NULL) {
        RP_TRY(rp_arena_print(arena, path_out, "%s/%s", o.folder, relative));
        *found_out = is_there(*path_out);
        if (*found_out) {
            return RP_OK;
        }
        RP_TRY(next_overlay(&o, arena));
    }
    const char *root = rp_data_shipped();
    if (root == NULL) {
        return *path_out != NULL ? RP_OK : refuse_no_data();
    }
    RP_TRY(rp_arena_print(arena, path_out, "%s/" TRACES "/%s", root, relative));
    *found_out = is_there(*path_out);
    return RP_OK;
}

rp_status rp_data_read_file(const char *relative, size_t most, rp_arena *arena,
                            const char **path_out, rp_text *bytes_out)
{
    bool found = false;
    RP_TRY(rp_data_file(relative, arena, path_out, &found));
    return rp_text_read_file(*path_out, most, bytes_out);
}

rp_status rp_data_read_csv(const char *relative, rp_arena *arena, rp_csv *table_out)
{
    const char *path = NULL;
    bool found = false;
    RP_TRY(rp_data_file(relative, arena, &path, &found));
    return rp_csv_read_file(path, arena, table_out);
}

/* ---- names ----------------------------------------------------------------------------------- */

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
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (entry->d_name[0] == '.' || !ends_in_suffix(entry->d_name)) {
            continue;
        }
        if (*count % NAMES_AT_ONCE == 0) {
            RP_TRY(rp_mem_resize(names, (*count + NAMES_AT_ONCE) * sizeof **names));
        }
        size_t length = strlen(entry->d_name) - strlen(SUFFIX);
        RP_TRY(rp_arena_copy_text(arena, entry->d_name, length, &(*names)[*count]));
        ++*count;
    }
    return RP_OK;
}

static rp_status keep_names(rp_arena *arena, const char **names, uint32_t *count,
                            const char ***names_out)
{
    uint32_t kept = 0;
    RP_TRY(rp_arena_alloc(arena, *count, sizeof *names, names_out));
    if (*count > 0) {
        qsort(names, *count, sizeof *names, compare_names);
    }
    for (uint32_t i = 0; i < *count; i++) {
        if (kept == 0 || strcmp((*names_out)[kept - 1], names[i]) != 0) {
            (*names_out)[kept++] = names[i];
        }
    }
    *count = kept;
    return RP_OK;
}

static rp_status read_folder(const char *root, const char *folder, bool required, rp_arena *arena,
                             const char ***names, uint32_t *count)
{
    const char *path;
    RP_TRY(rp_arena_print(arena, &path, "%s/%s", root, folder));
    DIR *stream = opendir(path);
    if (stream == NULL && (required || errno != ENOENT)) {
        rp_status refusal = errno == ENOMEM ? RP_NO_MEMORY : RP_INPUT;
        rp_log_error_at(path, 0, "cannot be read: %s", strerror(errno));
        return refusal;
    }
    rp_status status = RP_OK;
    if (stream != NULL) {
        status = read_names(stream, arena, names, count);
        closedir(stream);
    }
    return status;
}

static rp_status read_folders(const char *kind, rp_arena *arena, const char ***names,
                              uint32_t *count)
{
    const char *root = rp_data_shipped();
    const char *traces = NULL;
    overlays o = {.rest = getenv("RP_TRACES")};
    RP_TRY(next_overlay(&o, arena));
    if (o.folder == NULL && root == NULL) {
        return refuse_no_data();
    }
    while (o.folder != NULL) {
        RP_TRY(read_folder(o.folder, kind, false, arena, names, count));
        RP_TRY(next_overlay(&o, arena));
    }
    if (root == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_arena_print(arena, &traces, "%s/" TRACES, root));
    return read_folder(traces, kind, true, arena, names, count);
}

rp_status rp_data_list(const char *kind, rp_arena *arena, const char ***names_out,
                       uint32_t *count_out)
{
    const char **names = NULL;
    *count_out = 0;
    rp_status status = read_folders(kind, arena, &names, count_out);
    if (status == RP_OK) {
        status = keep_names(arena, names, count_out, names_out);
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
        rp_log_error("%s: unknown %s '%.80s'%s%s%s; valid values are %sor the path of %s",
                     rp_log_spell(kind->setting).text, kind->noun, name,
                     nearest ? ", did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "",
                     list.bytes ? list.bytes : "", kind->files);
        status = RP_INPUT;
    }
    rp_text_fini(&list);
    return status;
}

/* Opens the file by its name instead of listing the folders, since thousands of short runs ask for
 * it. */
rp_status rp_data_find(const rp_data_kind *kind, const char *name, rp_arena *arena,
                       const char **path_out, bool *found_out)
{
    const char *relative = NULL;
    RP_TRY(rp_arena_print(arena, &relative, "%s/%s" SUFFIX, kind->folder, name));
    RP_TRY(rp_data_file(relative, arena, path_out, found_out));
    *found_out = *found_out && name[0] != '\0' && name[0] != '.';
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
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    size_t length = strlen(base);
    length -= ends_in_suffix(base) ? strlen(SUFFIX) : 0;
    bool named = length <= most && rp_config_is_name(base, length);
    return named ? rp_arena_copy_text(arena, base, length, name_out)
                 : rp_arena_copy_text(arena, otherwise, strlen(otherwise), name_out);
}
