#include "exec/measure/platform.h"

#include "common/base/host_limits.h"
#include "exec/host/cores.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Emulated GPUs are threads, so a machine has as many as a run asks for. */
#define EMULATED_GPUS 64u

/* GPUs that are slower together than alone by more than a tenth share a link. Parts of a device
 * share its link in any case. */
#define SHARED 0.9

/* Rounds a value to the digits that the file shows. */
static double short_of(double value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%.9g", value);
    return strtod(digits, NULL);
}

/* In GB/s or TFLOP/s; never 0, which means unknown. */
static double giga(double rate)
{
    return rate < 1e6 ? 1e-3 : short_of(1e-9 * rate);
}

static double tera(double rate)
{
    return rate < 1e9 ? 1e-3 : short_of(1e-12 * rate);
}

static bool on_gpus(const rpexec_platform_of *of)
{
    return of->gpu_bytes != 0;
}

/* Without links, copies are work of threads. */
static bool has_links(const rpexec_platform_of *of)
{
    return of->machine->limited || on_gpus(of);
}

/* ---- sources of rates ------------------------------------------------------------------------ */

/* A rate, 0 if it is not known, and the note that names its source. The first word of the note
 * counts (common/inputs/write/platform_write.h): a rate is "assumed" if no trial and no op of that
 * kind has measured it. */
typedef struct source {
    double per_s;
    const char *note;
} source;

static source first_known(const source *sources, size_t count)
{
    size_t i = 0;
    while (i + 1 < count && !(sources[i].per_s > 0)) {
        i++;
    }
    return sources[i].per_s > 0 ? sources[i] : (source){0, NULL};
}

#define FIRST_KNOWN(...)                                                                           \
    first_known((const source[]){__VA_ARGS__},                                                     \
                sizeof((const source[]){__VA_ARGS__}) / sizeof(source))

static bool is_measured(source s)
{
    return s.per_s > 0 && strncmp(s.note, "measured", strlen("measured")) == 0;
}

static void note(rp_noted_platform *p, const char *key, source s)
{
    if (s.note != NULL) {
        rp_platform_add_note(p, key, s.note);
    }
}

/* The rate of a thread, for GPUs that are threads and whose copies are not limited; otherwise 0. */
static double of_thread(const rpexec_platform_of *of, double per_s)
{
    return has_links(of) ? 0 : per_s;
}

/* Pieces copied for the measurement show a link's rate better than the run's own transfers; copies
 * by threads profit from caches, so there the run's own transfers come first. */
static source copies_of(const rpexec_platform_of *of, rpexec_way way, double of_run_Bps)
{
    const source run = {of_run_Bps, "measured: the run's longest transfers"};
    const source pieces = {of->links->fits[way][RPEXEC_BESIDE_NOTHING].Bps,
                           "measured: one GPU alone (links.csv)"};
    const source thread = {of_thread(of, of->host->copy_Bps), "measured: copies of one thread"};
    return has_links(of) ? FIRST_KNOWN(pieces, run) : FIRST_KNOWN(run, thread);
}

/* The rate of a link in a direction. If nothing has been copied, it is the rate of the emulated
 * link, of the other direction, or of a thread. */
static source link_of(const rpexec_platform_of *of, rpexec_way way, const double *of_run_Bps)
{
    rpexec_way back = way == RPEXEC_WAY_UP ? RPEXEC_WAY_DOWN : RPEXEC_WAY_UP;
    const rp_machine *m = &of->machine->machine;
    double limit_Bps = !of->machine->limited  ? 0
                       : way == RPEXEC_WAY_UP ? m->upload_Bps
                                              : m->download_Bps;
    return FIRST_KNOWN(
        copies_of(of, way, of_run_Bps[way]), {limit_Bps, "assumed: as the emulated link has it"},
        {copies_of(of, back, of_run_Bps[back]).per_s, "assumed: as the other direction"},
        {of->host->copy_Bps, "assumed: as one thread copies"});
}

/* ---- links ----------------------------------------------------------------------------------- */

static double fitted(const rpexec_link_rates *links, rpexec_way way, rpexec_beside beside)
{
    return giga(links->fits[way][beside].Bps);
}

/* Sets the values of a single GPU, with the rates of both directions at once. Rates of all GPUs at
 * once are only notes for the reader. */
static rp_status set_alone(const rpexec_link_rates *l, rp_arena *arena, rp_noted_platform *p)
{
    const rpexec_way up = RPEXEC_WAY_UP, down = RPEXEC_WAY_DOWN;
    const char *text = NULL;
    double latency_s = (l->fits[up][RPEXEC_BESIDE_NOTHING].overhead_s +
                        l->fits[down][RPEXEC_BESIDE_NOTHING].overhead_s) /
                       2;
    if (!(l->fits[up][RPEXEC_BESIDE_BACK].Bps > 0 && l->fits[down][RPEXEC_BESIDE_BACK].Bps > 0)) {
        return RP_OK; /* there was not enough memory */
    }
    p->platform.copy_latency_us = short_of(1e6 * latency_s);
    double alone = fitted(l, up, RPEXEC_BESIDE_NOTHING) + fitted(l, down, RPEXEC_BESIDE_NOTHING);
    double both = fitted(l, up, RPEXEC_BESIDE_BACK) + fitted(l, down, RPEXEC_BESIDE_BACK);
    RP_TRY(rp_arena_print(arena, &text,
                          "measured: one GPU alone (links.csv); both directions at once: %.9g",
                          fitted(l, up, RPEXEC_BESIDE_BACK)));
    rp_platform_add_note(p, "upload_gb_per_s", text);
    RP_TRY(rp_arena_print(arena, &text, "measured: the same, %.9g",
                          fitted(l, down, RPEXEC_BESIDE_BACK)));
    rp_platform_add_note(p, "download_gb_per_s", text);
    if (both < alone) {
        p->platform.duplex_efficiency = short_of(both > alone / 2 ? both / alone : 0.5);
    }
    if (l->fits[up][RPEXEC_BESIDE_ALL].Bps > 0) {
        RP_TRY(rp_arena_print(
            arena, &text,
            "measured: all GPUs at once, each: up %.9g, down %.9g; both directions: up "
            "%.9g, down %.9g",
            fitted(l, up, RPEXEC_BESIDE_ALL), fitted(l, down, RPEXEC_BESIDE_ALL),
            fitted(l, up, RPEXEC_BESIDE_ALL_BACK), fitted(l, down, RPEXEC_BESIDE_ALL_BACK)));
        rp_platform_add_note(p, "link_effective_gb_per_s", text);
    }
    return RP_OK;
}

static void set_topology(const rp_platform *given, rp_platform *p)
{
    p->gpus_per_switch = given->gpus_per_switch;
    p->switch_gb_per_s = given->switch_gb_per_s;
    p->gpus_per_root = given->gpus_per_root;
    p->root_gb_per_s = given->root_gb_per_s;
    p->sockets = given->sockets > 1 ? given->sockets : 0;
    p->intersocket_gb_per_s = given->intersocket_gb_per_s;
    p->host_dram_gb_per_s = given->host_dram_gb_per_s;
}

/* Rate of all GPUs together that copy at once; if that was not measured, the sum of their links. */
static double together_Bps(const rpexec_platform_of *of, double alone_Bps)
{
    double up_Bps = of->links->fits[RPEXEC_WAY_UP][RPEXEC_BESIDE_ALL].Bps;
    double down_Bps = of->links->fits[RPEXEC_WAY_DOWN][RPEXEC_BESIDE_ALL].Bps;
    double each_Bps = up_Bps > 0 && down_Bps > 0 ? (up_Bps + down_Bps) / 2 : alone_Bps;
    return of->gpus * each_Bps;
}

static void set_shared(const rpexec_platform_of *of, double alone_Bps, rp_noted_platform *p)
{
    const rp_platform *given = &of->machine->platform;
    double all_Bps = together_Bps(of, alone_Bps);
    bool measured = of->links->fits[RPEXEC_WAY_UP][RPEXEC_BESIDE_ALL].Bps > 0;
    bool shared = on_gpus(of) && given->name == NULL && of->gpus > 1 &&
                  all_Bps < SHARED * of->gpus * alone_Bps;
    if (of->sharing_gpus > 1 || shared) {
        double Bps = measured ? all_Bps : alone_Bps; /* if not measured, GPUs are parts of a
                                                        device */
        p->platform.gpus_per_switch = of->gpus;
        p->platform.switch_gb_per_s = short_of(p->platform.link_gb_per_s * Bps / alone_Bps);
        rp_platform_add_note(p, "gpus_per_switch",
                             of->sharing_gpus > 1 ? "parts of one device"
                                                  : "all GPUs at once get less");
    } else if (given->name != NULL) {
        set_topology(given, &p->platform);
    }
}

static rp_status set_links(const rpexec_platform_of *of, rp_arena *arena, rp_noted_platform *p)
{
    const rp_platform *given = &of->machine->platform;
    const double of_run_Bps[] = {[RPEXEC_WAY_UP] = of->rates->upload_Bps,
                                 [RPEXEC_WAY_DOWN] = of->rates->download_Bps,
                                 [RPEXEC_WAY_PEER] = of->rates->peer_Bps};
    const source ways[] = {[RPEXEC_WAY_UP] = link_of(of, RPEXEC_WAY_UP, of_run_Bps),
                           [RPEXEC_WAY_DOWN] = link_of(of, RPEXEC_WAY_DOWN, of_run_Bps),
                           [RPEXEC_WAY_PEER] =
                               copies_of(of, RPEXEC_WAY_PEER, of_run_Bps[RPEXEC_WAY_PEER])};
    const source collective = FIRST_KNOWN(
        {of->rates->collective_Bps, "measured: the run's collectives"},
        {of_thread(of, of->host->collective_Bps), "measured: a rank's work, one thread"});
    double alone_Bps = (ways[RPEXEC_WAY_UP].per_s + ways[RPEXEC_WAY_DOWN].per_s) / 2;
    double peer = ways[RPEXEC_WAY_PEER].per_s > 0 ? giga(ways[RPEXEC_WAY_PEER].per_s) : 0;
    double up = giga(ways[RPEXEC_WAY_UP].per_s);
    double down = giga(ways[RPEXEC_WAY_DOWN].per_s);
    double nominal = given->name != NULL ? given->link_gb_per_s : giga(alone_Bps);
    nominal = nominal < up ? up : nominal;
    nominal = nominal < down ? down : nominal;
    nominal = !of->machine->limited && nominal < peer ? peer : nominal;
    p->platform.link_gb_per_s = nominal;
    p->platform.link_effective_gb_per_s = giga(alone_Bps);
    const char *text = NULL;
    bool measured = is_measured(ways[RPEXEC_WAY_UP]) && is_measured(ways[RPEXEC_WAY_DOWN]);
    RP_TRY(rp_arena_print(arena, &text, "%s: up %.9g, down %.9g", measured ? "measured" : "assumed",
                          up, down));
    rp_platform_add_note(p, "link_effective_gb_per_s", text);
    if (has_links(of)) {
        p->platform.upload_gb_per_s = up;
        p->platform.download_gb_per_s = down;
        note(p, "upload_gb_per_s", ways[RPEXEC_WAY_UP]);
        note(p, "download_gb_per_s", ways[RPEXEC_WAY_DOWN]);
        RP_TRY(set_alone(of->links, arena, p));
    }
    p->platform.peer = peer > 0 ? "pcie" : "none";
    p->platform.peer_gb_per_s = peer <= nominal ? peer : nominal;
    note(p, "peer_gb_per_s", ways[RPEXEC_WAY_PEER]);
    if (peer > nominal) {
        rp_platform_add_note(p, "peer_gb_per_s", "assumed: no faster than the link");
    }
    p->platform.collective_gb_per_s = collective.per_s > 0 ? giga(collective.per_s) : 0;
    note(p, "collective_gb_per_s", collective);
    set_shared(of, alone_Bps, p);
    return RP_OK;
}

/* The overhead of a sum is divided by its number of hops, those of a ring
 * (rp_machine_exchange_ps). */
static void set_network(const rpexec_platform_of *of, rp_noted_platform *p)
{
    if (of->network == NULL || !(of->network->Bps > 0)) {
        return;
    }
    p->platform.network_gb_per_s = giga(of->network->Bps);
    p->platform.network_hop_us =
        short_of(1e6 * of->network->overhead_s / (2.0 * (of->servers - 1)));
    rp_platform_add_note(p, "network_gb_per_s", "measured: sums over the processes, unlimited");
    rp_platform_add_note(p, "network_hop_us", "measured: likewise");
}

/* A single key stands for all changes of queues, within a GPU and between two. */
static void set_starts(const rpexec_starts *s, rp_noted_platform *p)
{
    double wake_s = s->far_count > 0 ? (s->wake_s + s->far_s) / 2 : s->wake_s;
    p->platform.op_gap_us = short_of(1e6 * (s->gap_s > 0 ? s->gap_s : 0));
    p->platform.op_wake_us = short_of(1e6 * wake_s);
    rp_platform_add_note(p, "op_gap_us", "measured: ops that do nothing (starts.csv)");
    rp_platform_add_note(p, "op_wake_us", "measured: likewise");
}

/* ---- GPUs and the host ----------------------------------------------------------------------- */

static void set_compute(const rpexec_platform_of *of, rp_noted_platform *out)
{
    rp_platform *p = &out->platform;
    const rpexec_rates *m = of->rates;
    const rpexec_host_rates *h = of->host;
    const source layer = FIRST_KNOWN(
        {m->forward_flops, "no peak: products and attention of the fastest pass of the run"},
        {of_thread(of, h->flops), "matrix products of one thread"});
    const source forward =
        FIRST_KNOWN({of->attention_fwd_flops, "measured: attention alone (operators.csv)"},
                    {m->forward_flops, "assumed: as all of a layer's forward"},
                    {layer.per_s, "assumed: as matrix products of one thread"});
    const source backward =
        FIRST_KNOWN({of->attention_bwd_flops, "measured: attention alone (operators.csv)"},
                    {m->backward_flops, "assumed: as all of a layer's backward"},
                    {layer.per_s, "assumed: as matrix products of one thread"});
    /* the fastest measured rate stands for the peak */
    double most = fmax(fmax(m->most_flops, layer.per_s), fmax(forward.per_s, backward.per_s));
    p->fp16_tflops_fp16_acc = p->fp16_tflops_fp32_acc = tera(most);
    p->fp32_tflops = of->dtype == RP_DTYPE_F32 ? p->fp16_tflops_fp32_acc : 0;
    p->attention_fwd_tflops = tera(forward.per_s);
    p->attention_bwd_tflops = tera(backward.per_s);
    note(out, "fp16_tflops_fp16_acc", layer);
    note(out, "attention_fwd_tflops", forward);
    note(out, "attention_bwd_tflops", backward);
}

static void set_memory(const rpexec_platform_of *of, rp_noted_platform *out)
{
    rp_platform *p = &out->platform;
    const source memory =
        FIRST_KNOWN({of->memory_Bps, "measured: Adam on all GPUs at once"},
                    {on_gpus(of) ? 0 : of->host->update_Bps, "measured: Adam of one thread"});
    p->host_memory_gb = short_of(1e-9 * rp_host_memory_physical());
    p->memory_gb = on_gpus(of) ? short_of(1e-9 * (double)of->gpu_bytes) : p->host_memory_gb;
    p->memory_gb_per_s = giga(memory.per_s);
    p->memory_effective_gb_per_s = memory.per_s > 0 ? p->memory_gb_per_s : 0;
    rp_platform_add_note(out, "memory_gb_per_s",
                         memory.per_s > 0 ? memory.note
                                          : "assumed: there was no room to measure it");
    note(out, "memory_effective_gb_per_s", memory);
}

static void set_host(const rpexec_platform_of *of, rp_noted_platform *out)
{
    const source passes =
        FIRST_KNOWN({of->rates->host_Bps, "measured: the run's own passes"},
                    {rpexec_host_Bps(of->host, of->optimizer_threads), "measured: all threads"});
    out->platform.optimizer_threads = of->optimizer_threads;
    out->platform.optimizer_thread_gb_per_s = short_of(giga(passes.per_s) / of->optimizer_threads);
    rp_platform_add_note(out, "optimizer_threads", "of the host, together");
    note(out, "optimizer_thread_gb_per_s", passes);
}

static void set_cores(const rpexec_platform_of *of, rp_noted_platform *out)
{
    bool shared = of->share > 0 && of->share < 1;
    out->platform.host_cores = short_of(of->host->cores * (shared ? of->share : 1));
    rp_platform_add_note(out, "host_cores",
                         shared ? "measured: all threads of a process together over one alone, "
                                  "which it shares with the other processes"
                                : "measured: all threads together over one alone");
    out->platform.copies = of->machine->limited ? "links" : "cores";
    out->platform.bound_cores = of->bound ? rpexec_host_cores() : 0;
}

rp_status rpexec_platform_make(const rpexec_platform_of *of, rp_arena *arena,
                               rp_noted_platform *out)
{
    const rp_platform *given = &of->machine->platform;
    *out = (rp_noted_platform){0};
    rp_platform *p = &out->platform;
    p->name = p->gpu = of->backend;
    RP_TRY(rp_arena_print(arena, &p->source, "measured by rpexec on %s",
                          given->name != NULL ? given->name : "links as fast as memory"));
    p->gpus = given->name != NULL    ? given->gpus
              : of->sharing_gpus > 0 ? of->sharing_gpus
              : on_gpus(of)          ? of->gpus
                                     : EMULATED_GPUS;
    set_compute(of, out);
    set_memory(of, out);
    set_host(of, out);
    RP_TRY(set_links(of, arena, out));
    set_network(of, out);
    if (of->starts->wake_count > 0) {
        set_starts(of->starts, out);
    }
    if (!on_gpus(of)) { /* GPUs need none of the host's cores to compute */
        set_cores(of, out);
    }
    return RP_OK;
}
