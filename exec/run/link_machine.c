#include "exec/run/link_machine.h"

#include "common/base/log.h"
#include "common/inputs/load/platforms.h"

static rp_status take_platform(const char *name, uint32_t gpus, rp_arena *arena, rpexec_machine *m)
{
    RP_TRY(rp_platform_load(name, arena, &m->platform));
    uint32_t most = rp_platform_usual_gpus(&m->platform);
    if (gpus > most) {
        rp_log_error("{gpus}: %s has %u GPUs; valid are 1 to %u, or a platform file with more",
                     m->platform.name, most, most);
        return RP_USAGE;
    }
    m->machine = rp_machine_of(&m->platform);
    m->machine.cores = 0; /* a recorded platform's cores: here the threads are real */
    return RP_OK;
}

rp_status rpexec_machine_load(const char *platform, double link_gb_per_s, uint32_t gpus,
                              rp_arena *arena, rpexec_machine *machine_out)
{
    rpexec_machine m = {.limited = platform != NULL || link_gb_per_s > 0};
    if (platform != NULL) {
        RP_TRY(take_platform(platform, gpus, arena, &m));
    }
    if (link_gb_per_s > 0) {
        m.machine.upload_Bps = m.machine.download_Bps = 1e9 * link_gb_per_s;
        for (uint32_t gpu = 0; gpu < m.machine.listed; gpu++) {
            m.machine.each[gpu].upload = m.machine.each[gpu].download = 1;
        }
    }
    if (m.limited && !(m.machine.upload_Bps > 0)) {
        rp_log_error("{platform}: %s has no link_effective_gb_per_s or link_efficiency; valid are "
                     "platform files with one of them, or {link_gb_per_s}",
                     m.platform.name);
        return RP_INPUT;
    }
    /* Host ops and collectives are real work here: nothing flows over the host's links. */
    m.machine.host_Bps = m.machine.host_Bps > 0 ? m.machine.host_Bps : m.machine.upload_Bps;
    *machine_out = m;
    return RP_OK;
}
