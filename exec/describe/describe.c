#include "exec/describe/describe.h"

#include "common/base/log.h"
#include "common/inputs/changes.h"
#include "common/inputs/data.h"
#include "exec/describe/host_bench.h"
#include "exec/describe/topology.h"
#include "exec/measure/load.h"
#include "exec/measure/platform.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define GIB 1073741824.0
/* The shipped platform whose software is assumed, and whose shares of a peak. */
#define USUAL "rtx4090x8"
#define LINK_EFFICIENCY                                                                            \
    0.655                /* of nominal: RTX 4090, PCIe 4 x16 (traces/platforms/rtx4090x8.yaml) */
#define INTERSOCKET 40.0 /* three UPI links of 20.8 GB/s, two thirds of which are reached */
#define SAME_MEMORY 0.03 /* two statements of one memory differ by less */

typedef struct description {
    rpexec_measured_platform out;
    rpexec_topology topology;
    rpexec_gpu_facts gpus[RPEXEC_GPUS_MOST];
    uint32_t gpu_count;
    const char *why_none;
    rpexec_host_bench bench;
    rpexec_gpu_copies copies;
    rpexec_load load;
    rp_arena *arena;
} description;

static double digits4(double value)
{
    double scale = value > 0 ? pow(10, 3 - floor(log10(value))) : 1;
    return round(value * scale) / scale;
}

/* ---- a GPU that is known, or like one ----------------------------------------------------------
 */

/* "NVIDIA GeForce RTX 4090" is rtx4090. */
static void shorten(const char *name, char *text, size_t size)
{
    size_t length = 0;
    const char *at = strstr(name, "GeForce ");
    at = at != NULL ? at + strlen("GeForce ") : name;
    at = strncmp(at, "NVIDIA ", 7) == 0 ? at + 7 : at;
    for (; *at != '\0' && length + 1 < size; at++) {
        unsigned char c = (unsigned char)*at;
        if (isalnum(c)) {
            text[length++] = (char)tolower(c);
        }
    }
    text[length] = '\0';
}

static uint32_t apart(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

/* The shipped platform whose GPU's name the GPU's own begins with; of several the longest, and of
 * one GPU's the one with about as many. */
static rp_status find_known(const char *gpu, uint32_t gpus, rp_arena *arena, rp_platform *known,
                            bool *found_out)
{
    const char **names = NULL;
    uint32_t count = 0;
    size_t longest = 0;
    RP_TRY(rp_data_list("platforms", arena, &names, &count));
    for (uint32_t i = 0; i < count; i++) {
        rp_platform p;
        char text[64];
        RP_TRY(rp_platform_load(names[i], arena, &p));
        shorten(p.gpu, text, sizeof text);
        size_t length = strlen(text);
        bool nearer = length == longest && apart(p.gpus, gpus) < apart(known->gpus, gpus);
        if ((length > longest || nearer) && strncmp(gpu, text, length) == 0) {
            longest = length;
            *known = p;
        }
    }
    *found_out = longest > 0;
    return *found_out ? RP_OK : rp_platform_load(USUAL, arena, known);
}

/* Dense fp16 with fp32 accumulation, FLOP per clock and core, by compute capability; twice as many
 * with fp16 accumulation where the chip is a consumer's. NVIDIA's architecture white papers. */
static void assume_peaks(const rpexec_gpu_facts *gpu, rp_platform *p)
{
    static const struct {
        uint32_t capability;
        double flop_per_core;
        double fp16_factor;
    } chips[] = {{80, 32, 1}, {86, 4, 2}, {89, 4, 2}, {90, 32, 1}, {100, 64, 1}, {120, 4, 2}};
    uint32_t capability = 10 * gpu->major + gpu->minor;
    double flop = 4;
    double factor = 2;
    for (size_t i = 0; i < sizeof chips / sizeof chips[0]; i++) {
        if (capability >= chips[i].capability) {
            flop = chips[i].flop_per_core;
            factor = chips[i].fp16_factor;
        }
    }
    double tflops = 1e-6 * flop * gpu->cores * gpu->clock_mhz;
    double before = p->fp16_tflops_fp16_acc;
    p->fp16_tflops_fp32_acc = digits4(tflops > 0 ? tflops : 100);
    p->fp16_tflops_fp16_acc = factor * p->fp16_tflops_fp32_acc;
    p->attention_fwd_tflops *= p->fp16_tflops_fp16_acc / before;
    p->attention_bwd_tflops *= p->fp16_tflops_fp16_acc / before;
}

/* Values that were measured or set there are moved here. */
static rp_status move_provenance(rp_arena *arena, rp_platform *p)
{
    uint8_t *kinds = NULL;
    size_t count = rp_platform_schema.field_count;
    RP_TRY(rp_arena_alloc(arena, count, sizeof *kinds, &kinds));
    for (size_t i = 0; i < count; i++) {
        kinds[i] = p->provenance[i] == RP_ASSUMED ? RP_ASSUMED : RP_MOVED;
    }
    p->provenance = kinds;
    return RP_OK;
}

static void note(description *d, const char *key, const char *text)
{
    rpexec_platform_note(&d->out, key, text);
}

/* ---- with GPUs --------------------------------------------------------------------------------
 */

static void set_memory(description *d, const rpexec_gpu_facts *gpu)
{
    rp_platform *p = &d->out.platform;
    double gb = 1e-9 * gpu->memory_bytes;
    double nominal = p->memory_gb_per_s;
    if (gb > 0) {
        bool same = fabs(gb / p->memory_gb - 1) < SAME_MEMORY;
        p->memory_gib = digits4(gpu->memory_bytes / GIB);
        p->usable_memory_gb = same ? fmin(p->usable_memory_gb, gb) : 0;
        note(d, "memory_gib", "read: NVML");
    }
    if (gpu->memory_gb_per_s > 0) {
        p->memory_gb_per_s = digits4(gpu->memory_gb_per_s);
        p->memory_effective_gb_per_s *= p->memory_gb_per_s / nominal;
        note(d, "memory_gb_per_s", "read: NVML, bus width and clock");
        note(d, "memory_effective_gb_per_s", "moved: the share of nominal of the platform above");
    }
}

static void set_link(description *d, const rpexec_gpu_facts *gpu)
{
    rp_platform *p = &d->out.platform;
    uint32_t gen = gpu->pcie_gen;
    uint32_t lanes = gpu->pcie_lanes;
    if (gen == 0 || lanes == 0) {
        return;
    }
    p->pcie_gen = gen >= 3 && gen <= 5 && (lanes & (lanes - 1)) == 0 ? gen : 0;
    p->pcie_lanes = lanes;
    p->link_gb_per_s = ldexp(0.25, (int)gen - 1) * lanes; /* 8 Gb/s and lane in PCIe 3 */
    note(d, p->pcie_gen > 0 ? "pcie_gen" : "link_gb_per_s", "read: NVML");
    note(d, "pcie_lanes", "read: NVML");
    p->link_effective_gb_per_s = p->upload_gb_per_s = p->download_gb_per_s = 0;
    if (d->copies.up_Bps > 0 && d->copies.down_Bps > 0) {
        p->upload_gb_per_s = fmin(digits4(1e-9 * d->copies.up_Bps), p->link_gb_per_s);
        p->download_gb_per_s = fmin(digits4(1e-9 * d->copies.down_Bps), p->link_gb_per_s);
        p->link_effective_gb_per_s = (p->upload_gb_per_s + p->download_gb_per_s) / 2;
        note(d, "link_effective_gb_per_s", "measured: pinned copies of 256 MiB, first GPU");
        note(d, "upload_gb_per_s", "measured");
        note(d, "download_gb_per_s", "measured");
    } else {
        p->link_efficiency = LINK_EFFICIENCY;
        note(d, "link_efficiency", "assumed: no copies were measured");
    }
}

static void set_peers(description *d, const rpexec_gpu_facts *gpu)
{
    rp_platform *p = &d->out.platform;
    bool nvlink = gpu->nvlinks > 0;
    if (nvlink && p->peer_access != RP_PEER_NVLINK) {
        p->peer = "nvlink";
        p->peer_gb_per_s = gpu->nvlinks * (gpu->major >= 10 ? 50.0 : 25.0);
        note(d, "peer_gb_per_s", "read: links that NVML has up, nominal");
    } else if (!nvlink) {
        p->peer = "none";
        p->peer_gb_per_s = 0;
        p->nvlink_gpus = 0;
        note(d, "peer_gb_per_s", "read: NVML has no NVLink up; access over PCIe is not asked for");
    }
    p->nvlink_gpus =
        d->gpu_count % (p->nvlink_gpus > 0 ? p->nvlink_gpus : 1) == 0 ? p->nvlink_gpus : 0;
}

static void set_tree(description *d)
{
    rp_platform *p = &d->out.platform;
    const rpexec_topology *t = &d->topology;
    p->nodes = 0;
    p->network_gb_per_s = p->host_dram_gb_per_s = 0;
    p->gpus_per_root = p->sockets = 0;
    p->root_gb_per_s = p->intersocket_gb_per_s = 0;
    p->gpus_per_switch = 0;
    p->switch_gb_per_s = 0;
    if (t->gpus == d->gpu_count && t->gpus_per_switch > 0) {
        p->gpus_per_switch = t->gpus_per_switch;
        p->switch_gb_per_s = p->link_gb_per_s;
        note(d, "gpus_per_switch", "read: hwloc, GPUs behind one root port");
        note(d, "switch_gb_per_s", "assumed: a link's own rate");
    }
    if (t->sockets > 1 && d->gpu_count % t->sockets == 0) {
        p->sockets = t->sockets;
        p->intersocket_gb_per_s = INTERSOCKET;
        note(d, "sockets", "read: hwloc");
        note(d, "intersocket_gb_per_s", "assumed");
    }
}

static rp_status describe_gpus(description *d, FILE *stream)
{
    const rpexec_gpu_facts *gpu = &d->gpus[0];
    rp_platform *p = &d->out.platform;
    bool found = false;
    char *text = NULL;
    const char *as = NULL;
    RP_TRY(rp_arena_alloc(d->arena, sizeof gpu->name, 1, &text));
    shorten(gpu->name, text, sizeof gpu->name);
    RP_TRY(find_known(text, d->gpu_count, d->arena, p, &found));
    RP_TRY(move_provenance(d->arena, p));
    fprintf(stream, "# %u x %s. %s: values without a word are those of platform %s.\n",
            d->gpu_count, gpu->name, found ? "The GPU is known" : "The GPU is not known", p->name);
    RP_TRY(rp_arena_print(d->arena, &as, "%s", p->name));
    if (!found) {
        p->gpu = *text != '\0' ? text : "gpu";
        assume_peaks(gpu, p);
        note(d, "fp16_tflops_fp16_acc", "assumed: cores, clock and generation, as NVML has them");
        note(d, "attention_fwd_tflops", "assumed: the 4090's share of its peak");
        note(d, "attention_bwd_tflops", "assumed: likewise");
    }
    for (uint32_t i = 1; i < d->gpu_count; i++) {
        if (strcmp(d->gpus[i].name, gpu->name) != 0) {
            rp_log_warning("GPU %u is another than GPU 0: %s, %s; all are described as GPU 0", i,
                           d->gpus[i].name, gpu->name);
        }
    }
    p->gpus = d->gpu_count;
    note(d, "gpus", "read: NVML");
    RP_TRY(rp_arena_print(d->arena, &p->source,
                          "rpexec --platform-out: read and measured on this "
                          "machine; the rest as on %s",
                          as));
    p->optimizer_threads = 0;
    p->optimizer_thread_gb_per_s = 0;
    set_memory(d, gpu);
    set_link(d, gpu);
    set_peers(d, gpu);
    set_tree(d);
    return RP_OK;
}

/* ---- without GPUs -----------------------------------------------------------------------------
 */

static rp_status describe_threads(description *d, FILE *stream)
{
    const rpexec_rates rates = {0};
    const rpexec_link_rates links = {0};
    const rpexec_starts starts = {0};
    const rpexec_machine machine = {0};
    rpexec_host_rates host;
    fprintf(stream,
            "# No GPU (%s): GPUs are threads of this host, as rpexec --backend host runs them.\n",
            d->why_none);
    if (d->topology.gpus > 0) {
        rp_log_warning("hwloc sees %u GPUs of NVIDIA on PCI, but %s: they are not described",
                       d->topology.gpus, d->why_none);
    }
    RP_TRY(rpexec_host_measure(RP_DTYPE_F16, &host));
    const rpexec_platform_of of = {.backend = "host",
                                   .machine = &machine,
                                   .gpus = 1,
                                   .optimizer_threads = host.threads,
                                   .rates = &rates,
                                   .host = &host,
                                   .links = &links,
                                   .starts = &starts};
    RP_TRY(rpexec_platform_make(&of, d->arena, &d->out));
    d->out.platform.optimizer_threads = 0;
    d->out.platform.optimizer_thread_gb_per_s = 0;
    d->out.platform.source = "rpexec --platform-out: read and measured on this machine";
    note(d, "gpus", "as many as anybody wants");
    d->out.platform.gemm_efficiency = 1;
    d->out.platform.launch_overhead_us = 1;
    note(d, "gemm_efficiency", "assumed: the rates are measured ones, no peaks");
    note(d, "launch_overhead_us", "assumed: a call");
    return RP_OK;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

/* Keys of the separate rates. */
static const char *const rate_keys[] = {[RPEXEC_HOST_ADAM] = "host_adam_gb_per_s",
                                        [RPEXEC_HOST_REFRESH] = "host_refresh_gb_per_s",
                                        [RPEXEC_HOST_COLLECT] = "host_collect_gb_per_s"};

static void describe_host(description *d)
{
    rp_platform *p = &d->out.platform;
    p->host_memory_gib = digits4(rpexec_physical_memory() / GIB);
    p->host_optimizer_gb_per_s = digits4(1e-9 * d->bench.whole_Bps);
    note(d, "host_memory_gib", "read: the system");
    note(d, "host_optimizer_gb_per_s", "measured: the three passes below together");
    for (size_t pass = 0; pass < RPEXEC_HOST_PASS_COUNT; pass++) {
        *rp_platform_rate(p, rate_keys[pass]) =
            digits4(1e-9 * d->bench.rows[d->bench.row_count - 1].Bps[pass]);
        note(d, rate_keys[pass], "measured: below");
    }
    double pct = rpexec_load_others_pct(&d->load);
    if (pct > RPEXEC_BUSY_PCT) {
        p->recorded_busy_pct = round(pct);
        rp_log_warning("other processes used %.0f %% of the processors meanwhile; the platform is "
                       "marked, and predictions with it are wrong; valid is an idle machine",
                       pct);
    }
}

static void write_topology(const rpexec_topology *t, FILE *stream)
{
    if (t->processors > 0) {
        fprintf(stream,
                "# hwloc: %u sockets, %u NUMA nodes, %u cores, %u processors, %.1f GiB of memory, "
                "%u GPUs on PCI.\n",
                t->sockets, t->nodes, t->cores, t->processors, t->memory_bytes / GIB, t->gpus);
    } else {
        fputs("# Built without hwloc, or it does not know this machine: sockets and PCI skipped.\n",
              stream);
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
    rpexec_pins *pins = d->gpu_count > 0 ? rpexec_pins_open() : NULL;
    rp_status status = rpexec_host_bench_run(pins, &d->bench);
    if (status == RP_OK && pins != NULL) {
        d->copies = rpexec_pins_copies(pins);
    }
    rpexec_pins_close(pins);
    RP_TRY(status);
    write_topology(&d->topology, stream);
    RP_TRY(d->gpu_count > 0 ? describe_gpus(d, stream) : describe_threads(d, stream));
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
    d->topology = rpexec_topology_read();
    const char *why = NULL;
    d->gpu_count = rpexec_gpus_read(d->gpus, &why);
    if (d->gpu_count == 0) {
        RP_TRY(rp_arena_print(arena, &d->why_none, "%s", why));
    }
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
