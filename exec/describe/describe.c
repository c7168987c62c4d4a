#include "exec/describe/describe.h"

#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "common/inputs/detect/detect.h"
#include "exec/describe/host_bench.h"
#include "exec/measure/load.h"
#include "exec/measure/platform.h"

#include <math.h>
#include <string.h>

#define MEASURED_HERE "rpexec --platform-out: read and measured on this machine"

#define GIB 1073741824.0

typedef struct description {
    rp_noted_platform out;
    rp_detected_machine machine;
    rpexec_host_bench bench;
    rpexec_gpu_copies copies;
    rpexec_load load;
    rp_arena *arena;
} description;

static void note(description *d, const char *key, const char *text)
{
    rp_platform_add_note(&d->out, key, text);
}

static rp_status describe_gpus(description *d, FILE *stream)
{
    rp_detected_platform *found = NULL;
    RP_TRY(rp_arena_alloc(d->arena, 1, sizeof *found, &found));
    RP_TRY(rp_detect_gpus(&d->machine, d->copies.up_Bps, d->copies.down_Bps, d->arena, found));
    fputs(found->head, stream);
    d->out = found->out;
    return rp_arena_print(d->arena, &d->out.platform.source,
                          MEASURED_HERE "; the rest as "
                                        "on %s",
                          found->like);
}

static rp_status describe_threads(description *d, FILE *stream)
{
    const rpexec_rates rates = {0};
    const rpexec_link_rates links = {0};
    const rpexec_starts starts = {0};
    const rpexec_machine machine = {0};
    rpexec_host_rates host;
    fprintf(stream,
            "# No GPU (%s): GPUs are threads of this host, as rpexec --backend host runs them.\n",
            d->machine.why_none);
    if (d->machine.topology.gpus > 0) {
        rp_log_warning("hwloc sees %u GPUs of NVIDIA on PCI, but %s: they are not described",
                       d->machine.topology.gpus, d->machine.why_none);
    }
    RP_TRY(rpexec_host_measure(RP_DTYPE_F16, &host));
    const rpexec_platform_of of = {.backend = "host",
                                   .machine = &machine,
                                   .gpus = 1,
                                   .optimizer_threads = host.threads,
                                   .rates = &rates,
                                   .dtype = RP_DTYPE_F16,
                                   .host = &host,
                                   .links = &links,
                                   .starts = &starts};
    RP_TRY(rpexec_platform_make(&of, d->arena, &d->out));
    d->out.platform.optimizer_threads = 0;
    d->out.platform.optimizer_thread_gb_per_s = 0;
    d->out.platform.source = MEASURED_HERE;
    note(d, "gpus", "as many as anybody wants");
    d->out.platform.gemm_efficiency = 1;
    d->out.platform.launch_overhead_us = 1;
    note(d, "gemm_efficiency", "assumed: the rates are measured ones, no peaks");
    note(d, "launch_overhead_us", "assumed: a call");
    return RP_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Keys of the separate rates. */
static const char *const rate_keys[] = {[RPEXEC_HOST_ADAM] = "host_adam_gb_per_s",
                                        [RPEXEC_HOST_REFRESH] = "host_refresh_gb_per_s",
                                        [RPEXEC_HOST_COLLECT] = "host_collect_gb_per_s"};

static void describe_host(description *d)
{
    rp_platform *p = &d->out.platform;
    p->host_memory_gib = rp_platform_rounded(rp_host_memory_physical() / GIB);
    p->host_optimizer_gb_per_s = rp_platform_rounded(1e-9 * d->bench.whole_Bps);
    note(d, "host_memory_gib", "read: the system");
    note(d, "host_optimizer_gb_per_s", "measured: the three passes below together");
    for (size_t pass = 0; pass < RPEXEC_HOST_PASS_COUNT; pass++) {
        *rp_platform_rate(p, rate_keys[pass]) =
            rp_platform_rounded(1e-9 * d->bench.rows[d->bench.row_count - 1].Bps[pass]);
        note(d, rate_keys[pass], "measured: below");
    }
    double pct = rpexec_load_others_pct(&d->load, 0);
    if (pct > RPEXEC_BUSY_PCT) {
        p->recorded_busy_pct = round(pct);
        rp_log_warning("other processes used %.0f %% of the processors meanwhile; the platform is "
                       "marked, and predictions with it are wrong; valid is an idle machine",
                       pct);
    }
}

static void write_rates(const rpexec_host_bench *bench, FILE *stream)
{
    const rpexec_host_row *row = &bench->rows[bench->row_count - 1];
    for (size_t pass = 0; pass < RPEXEC_HOST_PASS_COUNT; pass++) {
        fprintf(stream, "%s: %.4g\n", rate_keys[pass], 1e-9 * row->Bps[pass]);
    }
}

static rp_status describe(description *d, const char *name, FILE *stream)
{
    rpexec_pins *pins = d->machine.gpu_count > 0 ? rpexec_pins_open() : NULL;
    const char *comment = NULL;
    rp_status status = rpexec_host_bench_run(pins, &d->bench);
    if (status == RP_OK && pins != NULL) {
        d->copies = rpexec_pins_copies(pins);
    }
    rpexec_pins_close(pins);
    RP_TRY(status);
    RP_TRY(rp_detect_comment(&d->machine.topology, d->arena, &comment));
    fputs(comment, stream);
    RP_TRY(d->machine.gpu_count > 0 ? describe_gpus(d, stream) : describe_threads(d, stream));
    describe_host(d);
    d->out.platform.name = name;
    rp_platform_write(&d->out.platform, "", d->out.notes, d->out.note_count, stream);
    rpexec_host_bench_write(&d->bench, stream);
    return RP_OK;
}

rp_status rpexec_describe(const char *name, rp_arena *arena, FILE *stream)
{
    description *d = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *d, &d));
    *d = (description){.arena = arena, .load = rpexec_load_begin()};
    RP_TRY(rp_detect_machine(arena, &d->machine));
    return describe(d, name, stream);
}

rp_status rpexec_describe_host(FILE *stream)
{
    rpexec_host_bench bench;
    rpexec_pins *pins = rpexec_pins_open();
    rp_status status = rpexec_host_bench_run(pins, &bench);
    rpexec_pins_close(pins);
    RP_TRY(status);
    rpexec_host_bench_write(&bench, stream);
    fprintf(stream, "host_optimizer_gb_per_s: %.4g\n", 1e-9 * bench.whole_Bps);
    write_rates(&bench, stream);
    return RP_OK;
}
