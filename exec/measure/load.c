#define _GNU_SOURCE /* sched_getaffinity, cpu_set_t */
#include "exec/measure/load.h"

#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LEAST_S 0.2 /* 20 ticks */

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Ticks of idling and of waiting for a disk are not busy. The ticks of user include those of
 * guest. */
static double busy_ticks(const cpu_set_t *allowed, unsigned *processors_out)
{
    char line[512];
    double ticks = 0;
    *processors_out = 0;
    FILE *stream = fopen("/proc/stat", "r");
    while (stream != NULL && fgets(line, sizeof line, stream) != NULL) {
        unsigned cpu = 0;
        unsigned long long t[8] = {0};
        int read = sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu %llu", &cpu, &t[0], &t[1],
                          &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]);
        if (read == 9 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, allowed)) {
            ticks += (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]);
            (*processors_out)++;
        }
    }
    if (stream != NULL) {
        (void)fclose(stream);
    }
    return ticks;
}

rpexec_load rpexec_load_begin(void)
{
    rpexec_load load = {.busy_s = -1};
    struct timespec now;
    struct rusage own;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    load.wall_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    if (sched_getaffinity(getpid(), sizeof allowed, &allowed) != 0 ||
        getrusage(RUSAGE_SELF, &own) != 0) {
        return load;
    }
    load.own_s = seconds(own.ru_utime) + seconds(own.ru_stime);
    double ticks = busy_ticks(&allowed, &load.processors);
    load.busy_s = load.processors > 0 ? ticks / (double)sysconf(_SC_CLK_TCK) : -1;
    return load;
}

double rpexec_load_share(const rpexec_processes *processes)
{
    const rpexec_load now = rpexec_load_begin();
    double online = (double)sysconf(_SC_NPROCESSORS_ONLN);
    double wanted = 0;
    for (uint32_t i = 0; processes != NULL && i < rpexec_processes_count(processes); i++) {
        wanted += rpexec_processes_is_beside(processes, i) ? now.processors : 0;
    }
    return online > 0 && wanted > online ? online / wanted : 1;
}

rp_status rpexec_load_siblings(const rpexec_load *begin, rpexec_processes *processes, uint64_t tag,
                               double *seconds_out)
{
    double used_s[RPEXEC_MAX_PROCESSES];
    const rpexec_load end = rpexec_load_begin();
    *seconds_out = 0;
    if (processes == NULL) {
        return RP_OK;
    }
    RP_TRY(rpexec_processes_gather(processes, tag, end.own_s - begin->own_s, used_s));
    bool shares = rpexec_load_share(processes) < 1;
    for (uint32_t i = 0; shares && i < rpexec_processes_count(processes); i++) {
        bool sibling =
            i != rpexec_processes_rank(processes) && rpexec_processes_is_beside(processes, i);
        *seconds_out += sibling ? used_s[i] : 0;
    }
    return RP_OK;
}

double rpexec_load_others_pct(const rpexec_load *begin, double siblings_s)
{
    const rpexec_load end = rpexec_load_begin();
    double wall_s = end.wall_s - begin->wall_s;
    if (begin->busy_s < 0 || end.busy_s < 0 || wall_s < LEAST_S) {
        return 0;
    }
    double others_s = end.busy_s - begin->busy_s - (end.own_s - begin->own_s) - siblings_s;
    double pct = 100 * others_s / (wall_s * end.processors);
    return pct < 0 ? 0 : pct > 100 ? 100 : pct;
}
