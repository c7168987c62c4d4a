/* Free memory and processors, from files as Linux writes them. */
#include "common/base/host_limits.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MIB (UINT64_C(1) << 20)

static char root[] = "/tmp/rp_host_limits_XXXXXX";

static void put(const char *path, const char *text)
{
    char whole[256];
    int length = snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *at = whole + strlen(root) + 1; *at != '\0'; at++) {
        if (*at == '/') {
            *at = '\0';
            cr_assert(mkdir(whole, 0700) == 0 || errno == EEXIST);
            *at = '/';
        }
    }
    FILE *file = length < (int)sizeof whole ? fopen(whole, "w") : NULL;
    cr_assert(file != NULL);
    cr_assert(fputs(text, file) >= 0);
    cr_assert(fclose(file) == 0);
}

Test(host_limits, least_of_machine_and_groups)
{
    cr_assert(mkdtemp(root) != NULL);
    cr_expect(eq(u64, rp_host_memory_available(root), UINT64_MAX));
    put("proc/meminfo", "MemTotal:       8388608 kB\nMemAvailable:    1048576 kB\n");
    cr_expect(eq(u64, rp_host_memory_available(root), 1024 * MIB));
    put("proc/self/cgroup", "1:name=systemd:/other\n0::/jobs/one\n");
    cr_expect(eq(u64, rp_host_memory_available(root), 1024 * MIB));
    put("sys/fs/cgroup/jobs/one/memory.max", "max\n");
    put("sys/fs/cgroup/jobs/memory.max", "734003200\n");     /* 700 MiB */
    put("sys/fs/cgroup/jobs/memory.current", "419430400\n"); /* 400 MiB, */
    put("sys/fs/cgroup/jobs/memory.stat",
        "anon 1\nfile 2\ninactive_file 104857600\n"); /* including 100 of caches */
    cr_expect(eq(u64, rp_host_memory_available(root), 400 * MIB));
    put("sys/fs/cgroup/jobs/one/memory.max", "104857600\n");
    cr_expect(eq(u64, rp_host_memory_available(root), 100 * MIB));
    put("sys/fs/cgroup/jobs/one/memory.current", "209715200\n"); /* above the limit */
    cr_expect(eq(u64, rp_host_memory_available(root), 0));
}

Test(host_limits, processor_time_of_groups)
{
    cr_assert(mkdtemp(root) != NULL);
    cr_expect(not(rp_host_processors_limited(root)));
    put("proc/self/cgroup", "4:memory:/other\n2:cpu,cpuacct:/old/job\n0::/jobs/one\n");
    put("sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/old/job/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/other/cpu.max", "100000 100000\n"); /* not this process's group */
    cr_expect(not(rp_host_processors_limited(root)));
    put("sys/fs/cgroup/jobs/cpu.max", "150000 100000\n");
    cr_expect(rp_host_processors_limited(root));
    put("sys/fs/cgroup/jobs/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
    cr_expect(rp_host_processors_limited(root));
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    cr_expect(not(rp_host_processors_limited(root)));
    put("sys/fs/cgroup/unified/cpu.max", "50000 100000\n"); /* a container's root */
    cr_expect(rp_host_processors_limited(root));
}

Test(host_limits, this_machine)
{
    cr_expect(eq(int, rp_host_memory_require(1, "A byte"), RP_OK));
    cr_expect(eq(int, rp_host_memory_require(UINT64_MAX - 1, "Nobody's arrays"), RP_NO_MEMORY));
}
