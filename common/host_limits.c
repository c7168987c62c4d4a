#include "common/host_limits.h"

#include "common/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PATH_SIZE 4096

/* The number after `key` at the beginning of a line of a file; `otherwise` where it is not there.
 */
static uint64_t number_in(const char *path, const char *key, uint64_t otherwise)
{
    char line[256];
    uint64_t value = otherwise;
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0 &&
            sscanf(line + strlen(key), "%" SCNu64, &value) == 1) {
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return value;
}

/* The process's control group, "/a/b"; empty where there is none. */
static void find_group(const char *root, char group[PATH_SIZE])
{
    char path[PATH_SIZE];
    group[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(path, sizeof path, file) != NULL) {
        if (strncmp(path, "0::", 3) == 0) {
            path[strcspn(path, "\n")] = '\0';
            (void)snprintf(group, PATH_SIZE, "%s", path + 3);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* What a group's limit leaves; its inactive pages of files are given back first. */
static uint64_t left_in_group(const char *root, const char *group)
{
    char path[3 * PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/memory.max", root, group);
    uint64_t most = number_in(path, "", UINT64_MAX);
    (void)snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/memory.current", root, group);
    uint64_t used = number_in(path, "", 0);
    (void)snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/memory.stat", root, group);
    uint64_t caches = number_in(path, "inactive_file ", 0);
    used = used > caches ? used - caches : 0;
    return most == UINT64_MAX ? most : most > used ? most - used : 0;
}

uint64_t rp_host_memory_available(const char *root)
{
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    uint64_t kib = number_in(path, "MemAvailable:", UINT64_MAX);
    uint64_t least = kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
    find_group(root, path);
    for (;;) { /* the group, and all above it */
        uint64_t left = left_in_group(root, path);
        least = left < least ? left : least;
        char *last = strrchr(path, '/');
        if (last == NULL) {
            return least;
        }
        *last = '\0';
    }
}

rp_status rp_host_memory_require(uint64_t bytes, const char *what)
{
    uint64_t available = rp_host_memory_available("");
    if (bytes <= available) {
        return RP_OK;
    }
    rp_log_error("%s need%s %.1f GiB of host memory, and %.1f GiB are available", what,
                 what[strlen(what) - 1] == 's' ? "" : "s", (double)bytes * 0x1p-30,
                 (double)available * 0x1p-30);
    return RP_NO_MEMORY;
}
