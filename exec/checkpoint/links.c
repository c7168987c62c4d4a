#include "exec/checkpoint/links.h"

#include "common/base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Removes the last part of an absolute path; "/" becomes "". */
static void leave(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

static bool is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

/* Both paths are absolute and without links, so a `blobs` that is itself a link is not followed. */
static bool is_inside(const char *target, char *folder)
{
    bool inside = is_below(target, folder);
    leave(folder);
    leave(folder);
    size_t length = strlen(folder);
    return inside || (is_below(target, folder) && is_below(target + length, "/blobs"));
}

rp_status rpexec_links_check(const char *path)
{
    char folder[PATH_MAX];
    char whole[PATH_MAX];
    char target[PATH_MAX];
    struct stat about;
    if (lstat(path, &about) != 0 || !S_ISLNK(about.st_mode) || realpath(path, target) == NULL) {
        return RP_OK;
    }
    const char *slash = strrchr(path, '/');
    int length = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
    (void)snprintf(folder, sizeof folder, "%.*s", length, slash == NULL ? "." : path);
    if (realpath(folder, whole) == NULL) {
        rp_log_error("%s: realpath: %s", folder, strerror(errno));
        return RP_INPUT;
    }
    if (is_inside(target, whole)) {
        return RP_OK;
    }
    rp_log_error("%s: a link to %s; valid are files, and links to what is in the same folder or in "
                 "../../blobs, as Hugging Face's cache has them: put a copy there",
                 path, target);
    return RP_INPUT;
}
