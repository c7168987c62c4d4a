/* The processors of this machine: a backend that is always there. */
#include "common/base/log.h"
#include "exec/host/driver.h"
#include "exec/run/backend.h"

#include <errno.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static rp_status host_probe(const rpexec_probe *probe)
{
    struct utsname system;
    if (uname(&system) != 0) {
        rp_log_error("uname: %s", strerror(errno));
        return RP_TOOL;
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1) {
        rp_log_error("sysconf(_SC_NPROCESSORS_ONLN) reports no processor");
        return RP_TOOL;
    }
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    rpexec_device device = {
        .index = 0,
        .name = system.machine,
        .detail = system.sysname,
        .units = (uint32_t)cores,
        .unit_name = "cores",
        .memory_bytes = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0,
    };
    probe->device(probe->context, &device);
    return RP_OK;
}

static const rpexec_driver_type *host_driver(void)
{
    return &rpexec_host_driver;
}

const rpexec_backend_type rpexec_backend_host = {
    .name = "host",
    .summary = "the processors of this machine",
    .source = "POSIX sysconf",
    .probe = host_probe,
    .driver = host_driver,
};
