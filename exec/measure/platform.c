#include "exec/measure/platform.h"

#include "common/base/host_limits.h"
#include "exec/host/cores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GPUs are threads: a machine has as many as anybody wants. */
#define EMULATED_GPUS 64u

/* GPUs that get less together than alone share something: a tenth is no chance. Parts of a device
 * share its link in any case. */
#define SHARED 0.9

/* As many digits as a file has. */
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

/* Otherwise copies are work of threads. */
static bool has_links(const rpexec_platform_of *of)
{
    return of->machine->limited || on_gpus(of);
}

/* Pieces copied for the measurement show a link's rate better than the run's own transfers. */
static void prefer_links(const rpexec_link_rates *links, rpexec_rates *m)
{
    double *const rates[RPEXEC_WAY_COUNT] = {[RPEXEC_WAY_UP] = &m->upload_Bps,
                                             [RPEXEC_WAY_DOWN] = &m->download_Bps,
                                             [RPEXEC_WAY_PEER] = &m->peer_Bps};
    for (int way = 0; way < RPEXEC_WAY_COUNT; way++) {
        double Bps = links->fits[way][RPEXEC_BESIDE_NOTHING].Bps;
        *rates[way] = Bps > 0 ? Bps : *rates[way];
    }
}

/* Rates that nothing has shown, as threads alone have them. */
static void complete(const rpexec_platform_of *of, rpexec_rates *m)
{
    const rpexec_host_rates *h = of->host;
    double *const either[] = {&m->upload_Bps, &m->download_Bps};
    double copies = of->machine->limited ? of->machine->machine.upload_Bps : h->copy_Bps;
    for (size_t i = 0; i < 2; i++) {
        *either[i] = *either[i] > 0 ? *either[i] : *either[1 - i] > 0 ? *either[1 - i] : copies;
    }
    if (!has_links(of)) {
        m->peer_Bps = m->peer_Bps > 0 ? m->peer_Bps : h->copy_Bps;
        m->collective_Bps = m->collective_Bps > 0 ? m->collective_Bps : h->collective_Bps;
        m->forward_flops = m->forward_flops > 0 ? m->forward_flops : h->flops;
        m->backward_flops = m->backward_flops > 0 ? m->backward_flops : h->flops;
    }
    m->update_Bps = m->update_Bps > 0 ? m->update_Bps : h->update_Bps;
}

static double fitted(const rpexec_link_rates *links, rpexec_way way, rpexec_beside beside)
{
    return giga(links->fits[way][beside].Bps);
}

/* Of one GPU alone, and rates of both directions at once; those of all GPUs at once are for the
 * reader alone. */
static rp_status set_alone(const rpexec_link_rates *l, rp_arena *arena, rp_noted_platform *p)
{
    const rpexec_way up = RPEXEC_WAY_UP, down = RPEXEC_WAY_DOWN;
    const char *text = NULL;
    double latency_s = (l->fits[up][RPEXEC_BESIDE_NOTHING].overhead_s +
                        l->fits[down][RPEXEC_BESIDE_NOTHING].overhead_s) /
                       2;
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
    if (both > 0 && both < alone) {
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

/* Rate of all GPUs together, if they copy at once; the sum of their links where that was not
 * measured. */
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
        double Bps = measured ? all_Bps : alone_Bps; /* of a device's parts */
        p->platform.gpus_per_switch = of->gpus;
        p->platform.switch_gb_per_s = short_of(p->platform.link_gb_per_s * Bps / alone_Bps);
        rp_platform_add_note(p, "gpus_per_switch",
                             of->sharing_gpus > 1 ? "parts of one device"
                                                  : "all GPUs at once get less");
    } else if (given->name != NULL) {
        set_topology(given, &p->platform);
    }
}

static rp_status set_links(const rpexec_platform_of *of, const rpexec_rates *m, rp_arena *arena,
                           rp_noted_platform *p)
{
    const rp_platform *given = &of->machine->platform;
    double alone_Bps = (m->upload_Bps + m->download_Bps) / 2;
    double peer = m->peer_Bps > 0 ? giga(m->peer_Bps) : 0;
    double up = giga(m->upload_Bps);
    double down = giga(m->download_Bps);
    double nominal = given->name != NULL ? given->link_gb_per_s : giga(alone_Bps);
    nominal = nominal < up ? up : nominal;
    nominal = nominal < down ? down : nominal;
    nominal = !of->machine->limited && nominal < peer ? peer : nominal;
    p->platform.link_gb_per_s = nominal;
    p->platform.link_effective_gb_per_s = giga(alone_Bps);
    if (has_links(of)) {
        p->platform.upload_gb_per_s = up;
        p->platform.download_gb_per_s = down;
        RP_TRY(set_alone(of->links, arena, p));
    } else {
        const char *text = NULL;
        RP_TRY(rp_arena_print(arena, &text, "measured: up %.9g, down %.9g", up, down));
        rp_platform_add_note(p, "link_effective_gb_per_s", text);
    }
    p->platform.peer = peer > 0 ? "pcie" : "none";
    p->platform.peer_gb_per_s = peer < nominal ? peer : nominal;
    p->platform.collective_gb_per_s = m->collective_Bps > 0 ? giga(m->collective_Bps) : 0;
    set_shared(of, alone_Bps, p);
    return RP_OK;
}

/* A ring has as many hops as the sum takes through each port (rp_machine_exchange_ps). */
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

/* One key stands for all changes of queues, be they of one GPU or of two. */
static void set_starts(const rpexec_starts *s, rp_noted_platform *p)
{
    double wake_s = s->far_count > 0 ? (s->wake_s + s->far_s) / 2 : s->wake_s;
    p->platform.op_gap_us = short_of(1e6 * (s->gap_s > 0 ? s->gap_s : 0));
    p->platform.op_wake_us = short_of(1e6 * wake_s);
    rp_platform_add_note(p, "op_gap_us", "measured: ops that do nothing (starts.csv)");
    rp_platform_add_note(p, "op_wake_us", "measured: likewise");
}

/* Keys that no note has said anything about. */
static void note_measured(rp_noted_platform *out)
{
    static const char *const keys[] = {
        "attention_fwd_tflops",      "attention_bwd_tflops",      "memory_gb_per_s",
        "optimizer_thread_gb_per_s", "memory_effective_gb_per_s", "link_effective_gb_per_s",
        "upload_gb_per_s",           "download_gb_per_s",         "peer_gb_per_s",
        "collective_gb_per_s",
    };
    uint32_t count = out->note_count;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        uint32_t n = 0;
        while (n < count && strcmp(out->notes[n].key, keys[i]) != 0) {
            n++;
        }
        if (n == count && *rp_platform_rate(&out->platform, keys[i]) > 0) {
            rp_platform_add_note(out, keys[i], "measured");
        }
    }
}

rp_status rpexec_platform_make(const rpexec_platform_of *of, rp_arena *arena,
                               rp_noted_platform *out)
{
    const rp_platform *given = &of->machine->platform;
    rpexec_rates m = *of->rates;
    *out = (rp_noted_platform){0};
    rp_platform *p = &out->platform;
    if (has_links(of)) {
        prefer_links(of->links, &m);
    }
    complete(of, &m);
    double host = m.host_Bps > 0 ? m.host_Bps : rpexec_host_Bps(of->host, of->optimizer_threads);
    p->name = p->gpu = of->backend;
    RP_TRY(rp_arena_print(arena, &p->source, "measured by rpexec on %s",
                          given->name != NULL ? given->name : "links as fast as memory"));
    p->gpus = given->name != NULL    ? given->gpus
              : of->sharing_gpus > 0 ? of->sharing_gpus
              : on_gpus(of)          ? of->gpus
                                     : EMULATED_GPUS;
    p->fp16_tflops_fp16_acc = p->fp16_tflops_fp32_acc = tera(m.forward_flops);
    p->attention_fwd_tflops = tera(m.forward_flops);
    p->attention_bwd_tflops = tera(m.backward_flops);
    rp_platform_add_note(out, "fp16_tflops_fp16_acc",
                         of->rates->forward_flops > 0 || on_gpus(of)
                             ? "of a layer's forward; matrix products and attention together"
                             : "matrix products of one thread");
    p->host_memory_gb = short_of(1e-9 * rp_host_memory_physical());
    p->memory_gb = on_gpus(of) ? short_of(1e-9 * (double)of->gpu_bytes) : p->host_memory_gb;
    p->memory_gb_per_s = p->memory_effective_gb_per_s = giga(m.update_Bps);
    rp_platform_add_note(out, "memory_gb_per_s", "measured: Adam on GPUs");
    p->optimizer_threads = of->optimizer_threads;
    p->optimizer_thread_gb_per_s = short_of(giga(host) / of->optimizer_threads);
    rp_platform_add_note(out, "optimizer_threads", "of the host, together");
    RP_TRY(set_links(of, &m, arena, out));
    set_network(of, out);
    if (of->starts->wake_count > 0) {
        set_starts(of->starts, out);
    }
    note_measured(out);
    if (on_gpus(of)) {
        return RP_OK; /* GPUs compute themselves */
    }
    bool shared = of->share > 0 && of->share < 1;
    p->host_cores = short_of(of->host->cores * (shared ? of->share : 1));
    rp_platform_add_note(out, "host_cores",
                         shared ? "measured: all threads of a process together over one alone, "
                                  "which it shares with the other processes"
                                : "measured: all threads together over one alone");
    p->copies = of->machine->limited ? "links" : "cores";
    p->bound_cores = of->bound ? rpexec_host_cores() : 0;
    return RP_OK;
}
