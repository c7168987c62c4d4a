#include "common/inputs/detect/detect.h"

#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/inputs/changes.h"
#include "common/inputs/data.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#define GIB 1073741824.0
#define MOST_BYTES ((size_t)64 << 10) /* most bytes of a platform file that is written here */
/* The shipped platform from which software properties and shares of peaks are assumed. */
#define USUAL "rtx4090x8"
#define LINK_EFFICIENCY                                                                            \
    0.655 /* share of nominal: RTX 4090, PCIe 4 x16 (traces/platforms/rtx4090x8.yaml) */
#define INTERSOCKET 40.0 /* GB/s: three UPI links of 20.8 GB/s, of which two thirds are reached */
#define SAME_MEMORY 0.03 /* relative difference below which two sizes mean the same memory */

typedef struct description {
    rp_noted_platform *out;
    const rp_detected_machine *machine;
    double up_Bps;
    double down_Bps;
    rp_arena *arena;
} description;

/* ---- a GPU that is known, or like one -------------------------------------------------------- */

/* Turns "NVIDIA GeForce RTX 4090" into rtx4090. */
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

/* @return whether the list `names`, separated by commas, contains the product. */
static bool is_named(const char *names, const char *product)
{
    size_t length = strlen(product);
    for (const char *at = names; at != NULL && *(at += strspn(at, " ,")) != '\0';) {
        size_t word = strcspn(at, ",");
        if (word == length && strncmp(at, product, length) == 0) {
            return true;
        }
        at += word;
    }
    return false;
}

static bool is_gpu(const rp_platform *p, const char *product)
{
    char text[64];
    char own[64];
    shorten(p->gpu, text, sizeof text);
    shorten(product, own, sizeof own);
    return is_named(p->gpu_names, product) || strcmp(text, own) == 0;
}

/* Finds the shipped platform of this GPU; of several the platform with the nearest number of
 * GPUs. */
static rp_status find_known(const char *product, uint32_t gpus, rp_arena *arena, rp_platform *known,
                            bool *found_out)
{
    const char **names = NULL;
    uint32_t count = 0;
    *found_out = false;
    RP_TRY(rp_data_list("platforms", arena, &names, &count));
    for (uint32_t i = 0; i < count; i++) {
        rp_platform p;
        RP_TRY(rp_platform_read(names[i], NULL, arena, &p, NULL));
        bool nearer = !*found_out || apart(p.gpus, gpus) < apart(known->gpus, gpus);
        if (nearer && is_gpu(&p, product)) {
            *found_out = true;
            *known = p;
        }
    }
    return *found_out ? RP_OK : rp_platform_read(USUAL, NULL, arena, known, NULL);
}

/* Dense fp16 FLOP with fp32 accumulation, per clock and core, by compute capability. With fp16
 * accumulation consumer chips do twice as many. Source: NVIDIA's architecture white papers. */
static void assume_peaks(const rp_gpu_facts *gpu, rp_platform *p)
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
    p->fp16_tflops_fp32_acc = rp_platform_rounded(tflops > 0 ? tflops : 100);
    p->fp16_tflops_fp16_acc = factor * p->fp16_tflops_fp32_acc;
    p->fp32_tflops = rp_platform_rounded(2e-6 * gpu->cores * gpu->clock_mhz);
    p->attention_fwd_tflops *= p->fp16_tflops_fp16_acc / before;
    p->attention_bwd_tflops *= p->fp16_tflops_fp16_acc / before;
}

/* Values that were measured or set on the known platform count as moved on this machine. */
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
    rp_platform_add_note(d->out, key, text);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static double gib_of(const rp_gpu_facts *gpu)
{
    return rp_platform_rounded(gpu->memory_bytes / GIB);
}

static double lanes_of(const rp_gpu_facts *gpu)
{
    return gpu->pcie_lanes;
}

static double link_of(const rp_gpu_facts *gpu)
{
    return ldexp(0.25, (int)gpu->pcie_gen - 1) * gpu->pcie_lanes; /* 8 Gb/s and lane in PCIe 3 */
}

/* Lists a value of each GPU, if NVML gives it for all and they differ.
 * @param least_out the least value; otherwise GPU 0's */
static rp_status list_each(const description *d, double (*value_of)(const rp_gpu_facts *),
                           rp_config_numbers *list, double *least_out)
{
    const rp_detected_machine *m = d->machine;
    bool differ = false;
    *least_out = value_of(&m->gpus[0]);
    RP_TRY(rp_arena_alloc(d->arena, m->gpu_count, sizeof *list->values, &list->values));
    double least = *least_out;
    for (uint32_t i = 0; i < m->gpu_count; i++) {
        list->values[i] = value_of(&m->gpus[i]);
        differ |= list->values[i] != *least_out;
        least = fmin(least, list->values[i]);
    }
    list->count = differ && least > 0 ? m->gpu_count : 0;
    *least_out = list->count > 0 ? least : *least_out;
    return RP_OK;
}

/* Lists lanes, or rates where generations differ; the efficiency of the first GPU's link holds for
 * all. */
static rp_status list_links(description *d)
{
    rp_platform *p = &d->out->platform;
    double least = 0;
    double lanes = 0;
    RP_TRY(list_each(d, link_of, &p->each.link_gb_per_s, &least));
    if (p->each.link_gb_per_s.count == 0) {
        return RP_OK;
    }
    for (uint32_t i = 0; i < d->machine->gpu_count; i++) {
        uint32_t each = d->machine->gpus[i].pcie_lanes;
        bool same = d->machine->gpus[i].pcie_gen == p->pcie_gen && (each & (each - 1)) == 0;
        p->pcie_gen = same ? p->pcie_gen : 0;
    }
    if (p->pcie_gen > 0) {
        RP_TRY(list_each(d, lanes_of, &p->each.pcie_lanes, &lanes));
        p->pcie_lanes = (uint32_t)lanes;
    } else {
        note(d, "link_gb_per_s", "read: NVML");
    }
    if (p->link_effective_gb_per_s > 0) {
        p->link_efficiency = rp_platform_rounded(p->link_effective_gb_per_s / p->link_gb_per_s);
        note(d, "link_efficiency", "measured: pinned copies of 256 MiB, first GPU");
    }
    p->link_effective_gb_per_s = p->upload_gb_per_s = p->download_gb_per_s = 0;
    if (p->peer_access != RP_PEER_NVLINK) {
        p->collective_gb_per_s =
            rp_platform_rounded(p->collective_gb_per_s * least / p->link_gb_per_s);
        note(d, "collective_gb_per_s", "moved: by the ratio of the links, the slowest");
    }
    p->link_gb_per_s = least;
    return RP_OK;
}

static rp_status set_memory(description *d, const rp_gpu_facts *gpu)
{
    rp_platform *p = &d->out->platform;
    double gb = 1e-9 * gpu->memory_bytes;
    double nominal = p->memory_gb_per_s;
    if (gb > 0) {
        bool same = fabs(gb / p->memory_gb - 1) < SAME_MEMORY;
        p->memory_gib = rp_platform_rounded(gpu->memory_bytes / GIB);
        p->usable_memory_gb = same ? fmin(p->usable_memory_gb, gb) : 0;
        RP_TRY(list_each(d, gib_of, &p->each.memory_gib, &p->memory_gib));
        bool known = p->gpu_list != NULL;
        for (uint32_t i = 0; i < d->machine->gpu_count; i++) {
            known &= d->machine->gpus[i].memory_bytes > 0;
        }
        p->each.memory_gib.count = known ? d->machine->gpu_count : p->each.memory_gib.count;
        bool alike = p->each.memory_gib.count == 0 && p->gpu_list == NULL;
        p->usable_memory_gb = alike ? p->usable_memory_gb : 0;
        note(d, "memory_gib", "read: NVML");
    }
    if (gpu->memory_gb_per_s > 0) {
        p->memory_gb_per_s = rp_platform_rounded(gpu->memory_gb_per_s);
        p->memory_effective_gb_per_s =
            rp_platform_rounded(p->memory_effective_gb_per_s * p->memory_gb_per_s / nominal);
        note(d, "memory_gb_per_s", "read: NVML, bus width and clock");
        note(d, "memory_effective_gb_per_s", "moved: the share of nominal of the platform above");
    }
    return RP_OK;
}

static void set_link(description *d, const rp_gpu_facts *gpu)
{
    rp_platform *p = &d->out->platform;
    uint32_t gen = gpu->pcie_gen;
    uint32_t lanes = gpu->pcie_lanes;
    double before = p->link_gb_per_s;
    if (gen == 0 || lanes == 0) {
        return;
    }
    p->pcie_gen = gen >= 3 && gen <= 5 && (lanes & (lanes - 1)) == 0 ? gen : 0;
    p->pcie_lanes = lanes;
    p->link_gb_per_s = ldexp(0.25, (int)gen - 1) * lanes; /* 8 Gb/s and lane in PCIe 3 */
    note(d, p->pcie_gen > 0 ? "pcie_gen" : "link_gb_per_s", "read: NVML");
    note(d, "pcie_lanes", "read: NVML");
    if (p->peer_access != RP_PEER_NVLINK && p->link_gb_per_s != before) {
        p->collective_gb_per_s =
            rp_platform_rounded(p->collective_gb_per_s * p->link_gb_per_s / before);
        note(d, "collective_gb_per_s", "moved: by the ratio of the links");
    }
    p->link_effective_gb_per_s = p->upload_gb_per_s = p->download_gb_per_s = 0;
    if (d->up_Bps > 0 && d->down_Bps > 0) {
        p->upload_gb_per_s = fmin(rp_platform_rounded(1e-9 * d->up_Bps), p->link_gb_per_s);
        p->download_gb_per_s = fmin(rp_platform_rounded(1e-9 * d->down_Bps), p->link_gb_per_s);
        p->link_effective_gb_per_s = (p->upload_gb_per_s + p->download_gb_per_s) / 2;
        note(d, "link_effective_gb_per_s", "measured: pinned copies of 256 MiB, first GPU");
        note(d, "upload_gb_per_s", "measured");
        note(d, "download_gb_per_s", "measured");
    } else {
        p->link_efficiency = LINK_EFFICIENCY;
        note(d, "link_efficiency", "assumed: no copies were measured");
    }
}

/* Rate of all NVLinks of a GPU per direction. A link has 50 GB/s since Blackwell, 25 before
 * (NVIDIA's white papers on NVLink 3, 4 and 5; bridges of GA102 have less, but their platforms are
 * known). */
static double nvlink_gb_per_s(const rp_gpu_facts *gpu)
{
    return gpu->nvlinks * (gpu->major >= 10 ? 50.0 : 25.0);
}

/* Describes GPUs without an NVLink that is up, though their platform has NVLink. */
static void set_unlinked(description *d)
{
    rp_platform *p = &d->out->platform;
    if (p->peer_access == RP_PEER_NVLINK && p->nvlink_gpus == 0) {
        p->collective_gb_per_s = rp_platform_rounded(LINK_EFFICIENCY * p->link_gb_per_s);
        note(d, "collective_gb_per_s", "assumed: a share of the PCIe link, as there is no NVLink");
    }
    p->nvlink_gpus = 0;
    if (p->peer_access == RP_PEER_PCIE) {
        p->peer_gb_per_s = fmin(p->peer_gb_per_s, p->link_gb_per_s);
        note(d, "peer_gb_per_s", "assumed: the driver lets such GPUs reach each other over PCIe");
        return;
    }
    p->peer = "none";
    p->peer_gb_per_s = 0;
    note(d, "peer_gb_per_s", "read: NVML has no NVLink up; access over PCIe is not asked for");
}

static void set_peers(description *d, const rp_gpu_facts *gpu)
{
    rp_platform *p = &d->out->platform;
    if (gpu->nvlinks == 0) {
        set_unlinked(d);
        return;
    }
    if (p->peer_access != RP_PEER_NVLINK) {
        p->peer = "nvlink";
        p->peer_gb_per_s = nvlink_gb_per_s(gpu);
        note(d, "peer_gb_per_s", "read: links that NVML has up, nominal");
    }
    bool whole = p->nvlink_gpus > 0 && d->machine->gpu_count % p->nvlink_gpus == 0;
    p->nvlink_gpus = whole ? p->nvlink_gpus : 0;
}

static void set_tree(description *d)
{
    rp_platform *p = &d->out->platform;
    const rp_topology *t = &d->machine->topology;
    p->nodes = 0;
    p->network_gb_per_s = p->host_dram_gb_per_s = 0;
    p->gpus_per_root = p->sockets = 0;
    p->root_gb_per_s = p->intersocket_gb_per_s = 0;
    p->gpus_per_switch = 0;
    p->switch_gb_per_s = 0;
    if (t->gpus == d->machine->gpu_count && t->gpus_per_switch > 0) {
        p->gpus_per_switch = t->gpus_per_switch;
        p->switch_gb_per_s = p->link_gb_per_s;
        note(d, "gpus_per_switch", "read: hwloc, GPUs behind one root port");
        note(d, "switch_gb_per_s", "assumed: a link's own rate");
    }
    if (t->sockets > 1 && d->machine->gpu_count % t->sockets == 0) {
        p->sockets = t->sockets;
        p->intersocket_gb_per_s = INTERSOCKET;
        note(d, "sockets", "read: hwloc");
        note(d, "intersocket_gb_per_s", "assumed");
    }
}

/* Names the card of each GPU, where products differ and all are known, with a file of their own.
 * @param base_out the first GPU of the fastest card; 0 without a list
 * @param list_out NULL: no list */
static rp_status list_cards(const rp_detected_machine *machine, rp_arena *arena, uint32_t *base_out,
                            const char **list_out)
{
    const char *list = "";
    double peak = 0;
    uint32_t base = 0;
    bool differ = false;
    bool all = true;
    for (uint32_t i = 0; i < machine->gpu_count && all; i++) {
        rp_platform known;
        const char *path = NULL;
        const char *name = machine->gpus[i].name;
        RP_TRY(find_known(name, machine->gpu_count, arena, &known, &all));
        RP_TRY(all ? rp_data_find(&rp_data_gpus, known.gpu, arena, &path, &all) : RP_OK);
        RP_TRY(rp_arena_print(arena, &list, "%s%s%s", list, i > 0 ? " " : "", known.gpu));
        base = known.fp16_tflops_fp32_acc > peak ? i : base;
        peak = fmax(peak, known.fp16_tflops_fp32_acc);
        differ |= strcmp(name, machine->gpus[0].name) != 0;
    }
    *base_out = all && differ ? base : 0;
    *list_out = all && differ ? list : NULL;
    return RP_OK;
}

static bool products_differ(const rp_detected_machine *machine)
{
    for (uint32_t i = 1; i < machine->gpu_count; i++) {
        if (strcmp(machine->gpus[i].name, machine->gpus[0].name) != 0) {
            return true;
        }
    }
    return false;
}

/* Warns of GPUs that differ from the first: their peaks are taken for those of GPU 0. */
static void warn_of_others(const rp_detected_machine *machine)
{
    const char *name = machine->gpus[0].name;
    for (uint32_t i = 1; i < machine->gpu_count; i++) {
        if (strcmp(machine->gpus[i].name, name) != 0) {
            rp_log_warning("GPU %u is another than GPU 0: %s, %s; but for memory and links all are "
                           "described as GPU 0",
                           i, machine->gpus[i].name, name);
        }
    }
}

static rp_status assume_gpu(description *d, const rp_gpu_facts *gpu)
{
    rp_platform *p = &d->out->platform;
    char *text = NULL;
    RP_TRY(rp_arena_alloc(d->arena, sizeof gpu->name, 1, &text));
    shorten(gpu->name, text, sizeof gpu->name);
    p->gpu = *text != '\0' ? text : "gpu";
    p->gpu_names = NULL;
    assume_peaks(gpu, p);
    note(d, "fp16_tflops_fp16_acc", "assumed: cores, clock and generation, as NVML has them");
    note(d, "fp32_tflops", "assumed: two FLOP per clock and core");
    note(d, "attention_fwd_tflops", "assumed: the 4090's share of its peak");
    note(d, "attention_bwd_tflops", "assumed: likewise");
    return RP_OK;
}

rp_status rp_detect_gpus(const rp_detected_machine *machine, double up_Bps, double down_Bps,
                         rp_arena *arena, rp_detected_platform *platform_out)
{
    uint32_t base = 0;
    const char *list = NULL;
    RP_TRY(products_differ(machine) ? list_cards(machine, arena, &base, &list) : RP_OK);
    const rp_gpu_facts *gpu = &machine->gpus[base];
    *platform_out = (rp_detected_platform){0};
    rp_platform *p = &platform_out->out.platform;
    description d = {&platform_out->out, machine, up_Bps, down_Bps, arena};
    bool found = false;
    RP_TRY(find_known(gpu->name, machine->gpu_count, arena, p, &found));
    RP_TRY(move_provenance(arena, p));
    platform_out->like = p->name;
    RP_TRY(rp_arena_print(arena, &platform_out->head,
                          "# %u x %s%s. %s: values without a word are those of platform %s.\n",
                          machine->gpu_count, gpu->name, list != NULL ? " and others" : "",
                          found ? "The GPU is known" : "The GPU is not known", p->name));
    RP_TRY(found ? RP_OK : assume_gpu(&d, gpu));
    if (list == NULL) {
        warn_of_others(machine);
    } else {
        p->gpu_list = list;
        note(&d, "gpu_list", "read: NVML");
    }
    p->gpus = machine->gpu_count;
    note(&d, "gpus", "read: NVML");
    p->optimizer_threads = 0;
    p->optimizer_thread_gb_per_s = 0;
    RP_TRY(set_memory(&d, gpu));
    set_link(&d, gpu);
    RP_TRY(list_links(&d));
    set_peers(&d, gpu);
    set_tree(&d);
    return RP_OK;
}

/* ---- the machine ----------------------------------------------------------------------------- */

rp_status rp_detect_machine(rp_arena *arena, rp_detected_machine *machine_out)
{
    const char *why = NULL;
    machine_out->topology = rp_topology_read();
    machine_out->gpu_count = rp_gpus_read(machine_out->gpus, &why);
    machine_out->why_none = NULL;
    return machine_out->gpu_count > 0
               ? RP_OK
               : rp_arena_print(arena, &machine_out->why_none, "%s", why != NULL ? why : "no GPU");
}

rp_status rp_detect_comment(const rp_topology *t, rp_arena *arena, const char **lines_out)
{
    return t->processors > 0
               ? rp_arena_print(
                     arena, lines_out,
                     "# hwloc: %u sockets, %u NUMA nodes, %u cores, %u processors, %.1f GiB of "
                     "memory, %u GPUs on PCI.\n",
                     t->sockets, t->nodes, t->cores, t->processors, t->memory_bytes / GIB, t->gpus)
               : rp_arena_print(arena, lines_out,
                                "# Built without hwloc, or it does not know this machine: sockets "
                                "and PCI skipped.\n");
}

static rp_status refuse_machine(const rp_detected_machine *machine)
{
    char seen[64] = "";
    if (machine->topology.gpus > 0) {
        snprintf(seen, sizeof seen, ", though hwloc sees %u GPUs of NVIDIA on PCI",
                 machine->topology.gpus);
    }
    rp_log_error("{platform} detect: no GPU of NVIDIA answers (%s)%s; valid are machines whose "
                 "nvidia-smi lists GPUs, and elsewhere platform files: names of rpsim --list "
                 "platforms, or a path (rpexec --platform-out F describes processors as GPUs)",
                 machine->why_none, seen);
    return RP_USAGE;
}

rp_status rp_detect_write(const char *name, rp_arena *arena, FILE *stream)
{
    rp_detected_machine *machine = NULL;
    rp_detected_platform *found = NULL;
    const char *comment = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *machine, &machine));
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *found, &found));
    RP_TRY(rp_detect_machine(arena, machine));
    if (machine->gpu_count == 0) {
        return refuse_machine(machine);
    }
    RP_TRY(rp_detect_gpus(machine, 0, 0, arena, found));
    RP_TRY(rp_detect_comment(&machine->topology, arena, &comment));
    rp_platform *p = &found->out.platform;
    p->name = name;
    RP_TRY(rp_arena_print(arena, &p->source,
                          "%s: read on this machine, nothing measured; the rest as on %s",
                          rp_log_spell("{platform} detect").text, found->like));
    p->host_memory_gib = rp_platform_rounded(rp_host_memory_physical() / GIB);
    rp_platform_add_note(&found->out, "host_memory_gib", "read: the system");
    fputs(comment, stream);
    rp_platform_write(p, found->head, found->out.notes, found->out.note_count, stream);
    return RP_OK;
}

static rp_status detect_text(rp_arena *arena, rp_text *text)
{
    char *bytes = NULL;
    RP_TRY(rp_arena_alloc(arena, MOST_BYTES, 1, &bytes));
    FILE *stream = fmemopen(bytes, MOST_BYTES, "w");
    if (stream == NULL) {
        rp_log_error("out of memory: a platform file of this machine");
        return RP_NO_MEMORY;
    }
    rp_status status = rp_detect_write(RP_PLATFORM_DETECT, arena, stream);
    bool whole = fclose(stream) == 0;
    RP_TRY(status);
    return whole ? rp_text_append(text, bytes, strlen(bytes)) : rp_broken();
}

rp_status rp_detect_text(rp_arena *arena, rp_text *text_out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static rp_text text; /* kept until the process ends */
    (void)pthread_mutex_lock(&lock);
    rp_status status = text.length > 0 ? RP_OK : detect_text(arena, &text);
    (void)pthread_mutex_unlock(&lock);
    return status == RP_OK ? rp_text_append(text_out, text.bytes, text.length) : status;
}
