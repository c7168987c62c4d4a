#include "common/base/host_limits.h"

#include "common/base/log.h"
#include "common/base/reason.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <sys/resource.h>
#include <unistd.h>

#define PATH_SIZE 4096

#define ALWAYS_ALLOWED 64e6 /* bytes; a run that takes less ends sooner than the check would */

/* The number after `key` at the beginning of a line of a file; `otherwise` if no line has it.
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

/* The process's control group, "/a/b"; empty if there is none.
 * @param hierarchy of /proc/self/cgroup: "0::" of version 2, ":cpu:" of a controller of version 1
 */
static void find_group(const char *root, const char *hierarchy, char group[PATH_SIZE])
{
    char path[PATH_SIZE];
    group[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(path, sizeof path, file) != NULL) {
        const char *found = strstr(path, hierarchy);
        if (found != NULL && (found == path || hierarchy[0] == ':')) {
            path[strcspn(path, "\n")] = '\0';
            (void)snprintf(group, PATH_SIZE, "%s", found + strlen(hierarchy));
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* Bytes that a group's limit leaves; its inactive file pages count as free, as the kernel reclaims
 * them first. */
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

/* Bytes that the limit of the process's address space (ulimit -v) leaves. */
static uint64_t left_of_address_space(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return UINT64_MAX;
    }
    uint64_t used = number_in("/proc/self/status", "VmSize:", 0) * 1024;
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t rp_host_memory_available(const char *root)
{
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    uint64_t kib = number_in(path, "MemAvailable:", UINT64_MAX);
    uint64_t least = kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
    uint64_t left = left_of_address_space();
    least = left < least ? left : least;
    find_group(root, "0::", path);
    for (;;) { /* the group, and all above it */
        left = left_in_group(root, path);
        least = left < least ? left : least;
        char *last = strrchr(path, '/');
        if (last == NULL) {
            return least;
        }
        *last = '\0';
    }
}

double rp_host_memory_physical(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

rp_status rp_host_memory_require(uint64_t bytes, const char *what)
{
    uint64_t available = rp_host_memory_available("");
    if (bytes <= available) {
        return RP_OK;
    }
    rp_log_error("%s need%s %.3f GiB of host memory, and %.3f GiB are available", what,
                 what[strlen(what) - 1] == 's' ? "" : "s", (double)bytes * 0x1p-30,
                 (double)available * 0x1p-30);
    return RP_NO_MEMORY;
}

rp_status rp_host_memory_allow(double bytes, const char *what, const char *valid, rp_reason *reason)
{
    if (bytes < ALWAYS_ALLOWED) {
        return RP_OK;
    }
    double available = (double)rp_host_memory_available("");
    if (bytes <= available) {
        return RP_OK;
    }
    return rp_refuse(reason, RP_USAGE,
                     "%s would take about %.1f GiB of this machine's memory, and %.1f GiB are "
                     "available; valid are %s",
                     what, bytes * 0x1p-30, available * 0x1p-30, rp_log_spell(valid).text);
}

/* ---- processors ------------------------------------------------------------------------------ */

/* True if `file` holds a number in the group's folder under `mount` or in a folder above it. */
static bool has_number(const char *root, const char *mount, char *group, const char *file)
{
    for (;;) {
        char path[3 * PATH_SIZE];
        (void)snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s/%s", root, mount, group, file);
        /* "max 100000" and -1 mean no limit */
        uint64_t quota = number_in(path, "", UINT64_MAX);
        if (quota < INT64_MAX) {
            return true;
        }
        char *last = strrchr(group, '/');
        if (last == NULL) {
            return false;
        }
        *last = '\0';
    }
}

bool rp_host_processors_limited(const char *root)
{
    static const char *const mounts[] = {"", "/unified"}; /* version 2 beside version 1 */
    static const char *const old[][2] = {
        {":cpu:", "/cpu"}, {":cpu,cpuacct:", "/cpu,cpuacct"}, {":cpuacct,cpu:", "/cpuacct,cpu"}};
    char group[PATH_SIZE];
    for (size_t i = 0; i < sizeof mounts / sizeof mounts[0]; i++) {
        find_group(root, "0::", group);
        if (has_number(root, mounts[i], group, "cpu.max")) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) {
        find_group(root, old[i][0], group);
        if (has_number(root, old[i][1], group, "cpu.cfs_quota_us")) {
            return true;
        }
    }
    return false;
}
