#include "exec/measure/record.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/timeline/timeline_csv.h"
#include "exec/host/cores.h"
#include "exec/host/rates.h"
#include "exec/measure/calibrate_operators.h"
#include "exec/measure/predict.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

rp_status rpexec_record_open(const char *folder, rp_arena *arena, rpexec_record *record)
{
    *record = (rpexec_record){0};
    const struct {
        const char *name;
        rp_output *output;
    } files[] = {{"timeline.csv", &record->timeline},  {"program.txt", &record->program},
                 {"costs.yaml", &record->costs},       {"platform.yaml", &record->platform},
                 {"links.csv", &record->links},        {"starts.csv", &record->starts},
                 {"operators.csv", &record->operators}};
    if (mkdir(folder, 0777) == 0) {
        record->made = folder;
    } else if (errno != EEXIST) {
        rp_log_error("--record: %s cannot be made: %s; valid are folders, and names in one", folder,
                     strerror(errno));
        return RP_INPUT;
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const char *path = NULL;
        RP_TRY(rp_arena_print(arena, &path, "%s/%s", folder, files[i].name));
        RP_TRY(rp_output_open(path, files[i].output));
    }
    return RP_OK;
}

void rpexec_record_fini(rpexec_record *record)
{
    rp_output_discard(&record->timeline);
    rp_output_discard(&record->program);
    rp_output_discard(&record->costs);
    rp_output_discard(&record->platform);
    rp_output_discard(&record->links);
    rp_output_discard(&record->starts);
    rp_output_discard(&record->operators);
    if (record->made != NULL) {
        (void)rmdir(record->made); /* unless there is a record in it */
    }
}

/* ---- costs ------------------------------------------------------------------------------------
 */

static void print_list(FILE *stream, const char *key, const int64_t *ps, uint32_t count)
{
    fprintf(stream, "%s: [", key);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stream, "%s%.9f", i == 0 ? "" : ", ", rp_ps_to_ms(ps[i]));
    }
    fputs("]\n", stream);
}

static void print_costs(const rpexec_recorded *r, const rp_costs *c, FILE *stream)
{
    fprintf(stream, "name: %s@%s\n", r->model, r->backend);
    fprintf(stream,
            "source: " RPEXEC_MEASURED_IN "%s; medians of ops, the first iteration dropped, split "
            "over layers by FLOP\n",
            r->conditions);
    fprintf(stream, "layers: %u\n", c->layers);
    print_list(stream, "fwd_ms", c->fwd_ps, c->layers);
    print_list(stream, "bwd_ms", c->bwd_ps, c->layers);
    print_list(stream, "bwd_input_ms", c->bwd_input_ps, c->layers);
    fprintf(stream,
            "# The loss and its gradient are one pass: its time is where that pass runs.\n");
    fprintf(stream, "head_fwd_ms: %.9f\nhead_bwd_ms: %.9f\n", rp_ps_to_ms(c->head_fwd_ps),
            rp_ps_to_ms(c->head_bwd_ps));
    fprintf(stream, "hop_ms: %.9f\n", rp_ps_to_ms(c->hop_ps));
    fprintf(stream, "microbatch_size: %u\nseq_len: %u\n", c->microbatch_size, c->seq_len);
}

/* ---- the platform -----------------------------------------------------------------------------
 */

/* In GB/s or TFLOP/s; what was not measured as `instead`, and never 0, which means unknown. */
static double giga(double rate, double instead)
{
    double value = rate > 0 ? rate : instead;
    return value < 1e6 ? 1e-3 : 1e-9 * value;
}

static double tera(double rate)
{
    return rate < 1e9 ? 1e-3 : 1e-12 * rate;
}

static void print_topology(const rp_platform *p, FILE *stream)
{
    const struct {
        const char *key;
        uint32_t count;
        const char *rate_key;
        double rate;
    } parts[] = {{"gpus_per_switch", p->gpus_per_switch, "switch_gb_per_s", p->switch_gb_per_s},
                 {"gpus_per_root", p->gpus_per_root, "root_gb_per_s", p->root_gb_per_s}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].count > 0) {
            fprintf(stream, "%s: %u\n%s: %.9g\n", parts[i].key, parts[i].count, parts[i].rate_key,
                    parts[i].rate);
        }
    }
    if (p->sockets > 1) {
        fprintf(stream, "sockets: %u\nintersocket_gb_per_s: %.9g\n", p->sockets,
                p->intersocket_gb_per_s);
    }
    if (p->host_dram_gb_per_s > 0) {
        fprintf(stream, "host_dram_gb_per_s: %.9g\n", p->host_dram_gb_per_s);
    }
}

static double physical_memory_gb(void)
{
    return 1e-9 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* Measurements of links, starts and operators, beside the run but for `run`. */
typedef struct calibration {
    rpexec_link_rates links;
    rpexec_starts idle, run; /* in nothing else, and among the run's own ops */
    rpexec_operator_costs operators;
} calibration;

static bool on_gpus(const rpexec_recorded *r)
{
    return r->site->gpu_bytes != 0;
}

/* Otherwise copies are work of threads. */
static bool has_links(const rpexec_recorded *r)
{
    return r->machine->limited || on_gpus(r);
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
static void complete(const rpexec_recorded *r, const rpexec_host_rates *h, rpexec_rates *m)
{
    double *const either[] = {&m->upload_Bps, &m->download_Bps};
    double copies = r->machine->limited ? r->machine->machine.upload_Bps : h->copy_Bps;
    for (size_t i = 0; i < 2; i++) {
        *either[i] = *either[i] > 0 ? *either[i] : *either[1 - i] > 0 ? *either[1 - i] : copies;
    }
    if (!has_links(r)) {
        m->peer_Bps = m->peer_Bps > 0 ? m->peer_Bps : h->copy_Bps;
        m->collective_Bps = m->collective_Bps > 0 ? m->collective_Bps : h->collective_Bps;
    }
    m->update_Bps = m->update_Bps > 0 ? m->update_Bps : h->update_Bps;
}

/* That work on the state of the model (state.h). */
static uint32_t optimizer_threads(const rpexec_model *model, const rpexec_host_rates *h)
{
    uint64_t pieces = 0;
    for (uint32_t i = 0; i < model->layer_count; i++) {
        pieces += rpexec_pool_pieces(rpexec_model_trained(model, i, i + 1));
    }
    return pieces < RPEXEC_POOL_LEAST_PIECES ? 1 : rpexec_pool_threads(h->threads);
}

static double fitted(const rpexec_link_rates *links, rpexec_way way, rpexec_beside beside)
{
    return giga(links->fits[way][beside].Bps, 0);
}

/* Rates of both directions at once; those of all GPUs at once are for the reader alone. */
static void print_together(const rpexec_link_rates *l, FILE *stream)
{
    const rpexec_way up = RPEXEC_WAY_UP, down = RPEXEC_WAY_DOWN;
    double alone = fitted(l, up, RPEXEC_BESIDE_NOTHING) + fitted(l, down, RPEXEC_BESIDE_NOTHING);
    double both = fitted(l, up, RPEXEC_BESIDE_BACK) + fitted(l, down, RPEXEC_BESIDE_BACK);
    fprintf(stream, "# Both directions at once: up %.9g, down %.9g.\n",
            fitted(l, up, RPEXEC_BESIDE_BACK), fitted(l, down, RPEXEC_BESIDE_BACK));
    if (both > 0 && both < alone) {
        fprintf(stream, "duplex_efficiency: %.9g\n", both > alone / 2 ? both / alone : 0.5);
    }
    if (l->fits[up][RPEXEC_BESIDE_ALL].Bps > 0) {
        fprintf(stream,
                "# All GPUs at once, each: up %.9g, down %.9g; both directions: up %.9g, down "
                "%.9g.\n",
                fitted(l, up, RPEXEC_BESIDE_ALL), fitted(l, down, RPEXEC_BESIDE_ALL),
                fitted(l, up, RPEXEC_BESIDE_ALL_BACK), fitted(l, down, RPEXEC_BESIDE_ALL_BACK));
    }
}

/* Of one GPU alone. */
static void print_alone(const rpexec_link_rates *l, double up, double down, FILE *stream)
{
    double latency_s = (l->fits[RPEXEC_WAY_UP][RPEXEC_BESIDE_NOTHING].overhead_s +
                        l->fits[RPEXEC_WAY_DOWN][RPEXEC_BESIDE_NOTHING].overhead_s) /
                       2;
    fprintf(stream,
            "# One GPU alone (links.csv).\nupload_gb_per_s: %.9g\ndownload_gb_per_s: %.9g\n", up,
            down);
    fprintf(stream, "copy_latency_us: %.9g\n", 1e6 * latency_s);
    print_together(l, stream);
}

/* Rate of all GPUs together, if they copy at once; the sum of their links where that was not
 * measured. */
static double together_Bps(const rpexec_recorded *r, const rpexec_link_rates *l, double alone_Bps)
{
    double up_Bps = l->fits[RPEXEC_WAY_UP][RPEXEC_BESIDE_ALL].Bps;
    double down_Bps = l->fits[RPEXEC_WAY_DOWN][RPEXEC_BESIDE_ALL].Bps;
    double each_Bps = up_Bps > 0 && down_Bps > 0 ? (up_Bps + down_Bps) / 2 : alone_Bps;
    return r->site->gpus * each_Bps;
}

/* GPUs that get less together than alone share something: a tenth is no chance. Parts of a device
 * share its link in any case. */
#define SHARED 0.9

static void print_shared(const rpexec_recorded *r, const rpexec_link_rates *l, double nominal,
                         double alone_Bps, FILE *stream)
{
    const rp_platform *given = &r->machine->platform;
    uint32_t gpus = r->site->gpus;
    double all_Bps = together_Bps(r, l, alone_Bps);
    bool measured = l->fits[RPEXEC_WAY_UP][RPEXEC_BESIDE_ALL].Bps > 0;
    bool shared =
        on_gpus(r) && given->name == NULL && gpus > 1 && all_Bps < SHARED * gpus * alone_Bps;
    if (r->sharing_gpus > 1 || shared) {
        double Bps = measured ? all_Bps : alone_Bps; /* of a device's parts */
        fprintf(stream, "# %s\ngpus_per_switch: %u\nswitch_gb_per_s: %.9g\n",
                r->sharing_gpus > 1 ? "Parts of one device." : "All GPUs at once get less.", gpus,
                nominal * Bps / alone_Bps);
    } else {
        print_topology(given, stream);
    }
}

static void print_links(const rpexec_recorded *r, const rpexec_rates *m, const calibration *c,
                        FILE *stream)
{
    const rp_platform *given = &r->machine->platform;
    double alone_Bps = (m->upload_Bps + m->download_Bps) / 2;
    double effective = giga(alone_Bps, 0);
    double peer = m->peer_Bps > 0 ? giga(m->peer_Bps, 0) : 0;
    double up = giga(m->upload_Bps, 0);
    double down = giga(m->download_Bps, 0);
    double nominal = given->name != NULL ? given->link_gb_per_s : effective;
    nominal = nominal < up ? up : nominal;
    nominal = nominal < down ? down : nominal;
    nominal = !r->machine->limited && nominal < peer ? peer : nominal;
    fprintf(stream, "link_gb_per_s: %.9g\nlink_effective_gb_per_s: %.9g\n", nominal, effective);
    if (has_links(r)) {
        print_alone(&c->links, up, down, stream);
    } else {
        fprintf(stream, "# Up %.9g, down %.9g: medians of the longest transfers.\n", up, down);
    }
    fprintf(stream, "peer: %s\npeer_gb_per_s: %.9g\n", peer > 0 ? "pcie" : "none",
            peer < nominal ? peer : nominal);
    if (m->collective_Bps > 0) {
        fprintf(stream, "collective_gb_per_s: %.9g\n", giga(m->collective_Bps, 0));
    }
    print_shared(r, &c->links, nominal, alone_Bps, stream);
}

/* Waking a thread of an idle machine takes tens of microseconds at most. */
#define BUSY_S 1e-3

/* One key stands for all changes of queues, be they of one GPU or of two. */
static void print_starts(const rpexec_starts *s, FILE *stream)
{
    double wake_s = s->far_count > 0 ? (s->wake_s + s->far_s) / 2 : s->wake_s;
    fprintf(stream, "# Ops that do nothing (starts.csv).\nop_gap_us: %.9g\nop_wake_us: %.9g\n",
            1e6 * (s->gap_s > 0 ? s->gap_s : 0), 1e6 * wake_s);
    if (wake_s > BUSY_S) {
        fputs("# So long a time says that others used the processors, too: predictions want the "
              "record "
              "of an idle machine.\n",
              stream);
    }
}

/* GPUs are threads: a machine has as many as anybody wants. */
#define EMULATED_GPUS 64u

static rp_status print_platform(const rpexec_recorded *r, const rpexec_rates *measured,
                                const calibration *c, const rpexec_plan *plan, FILE *stream)
{
    const rp_platform *given = &r->machine->platform;
    rpexec_host_rates h;
    rpexec_rates m = *measured;
    RP_TRY(rpexec_host_measure(plan->model->dtype, &h));
    if (has_links(r)) {
        prefer_links(&c->links, &m);
    }
    complete(r, &h, &m);
    uint32_t threads = optimizer_threads(plan->model, &h);
    double host = m.host_Bps > 0 ? m.host_Bps : rpexec_host_Bps(&h, threads);
    double flops = tera(m.forward_flops);
    fprintf(stream, "name: %s\n", r->backend);
    fprintf(stream, "source: \"measured by rpexec on %s\"\n",
            given->name != NULL ? given->name : "links as fast as memory");
    fprintf(stream, "gpu: %s\ngpus: %u\n", r->backend,
            given->name != NULL   ? given->gpus
            : r->sharing_gpus > 0 ? r->sharing_gpus
            : on_gpus(r)          ? r->site->gpus
                                  : EMULATED_GPUS);
    fprintf(stream, "# FLOP/s of a layer's forward; matrix products and attention together.\n");
    fprintf(stream, "fp16_tflops_fp16_acc: %.9g\nfp16_tflops_fp32_acc: %.9g\n", flops, flops);
    fprintf(stream, "attention_fwd_tflops: %.9g\nattention_bwd_tflops: %.9g\n", flops,
            tera(m.backward_flops));
    fprintf(stream, "memory_gb: %.9g\n",
            on_gpus(r) ? 1e-9 * (double)r->site->gpu_bytes : physical_memory_gb());
    fprintf(stream, "host_memory_gb: %.9g\n", physical_memory_gb());
    fprintf(stream, "# Of Adam on GPUs.\n");
    fprintf(stream, "memory_gb_per_s: %.9g\nmemory_effective_gb_per_s: %.9g\n",
            giga(m.update_Bps, 0), giga(m.update_Bps, 0));
    fprintf(stream, "# Of the host's threads together.\n");
    fprintf(stream, "optimizer_threads: %u\noptimizer_thread_gb_per_s: %.9g\n", threads,
            giga(host, 0) / threads);
    print_links(r, &m, c, stream);
    print_starts(&c->idle, stream);
    if (on_gpus(r)) {
        return RP_OK; /* GPUs compute themselves */
    }
    fprintf(stream, "# What all threads do together over what one does alone.\n");
    fprintf(stream, "host_cores: %.9g\ncopies: %s\n", h.cores,
            r->machine->limited ? "links" : "cores");
    if (r->site->bound) {
        fprintf(stream, "bound_cores: %u\n", rpexec_host_cores());
    }
    return RP_OK;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

/* GPUs reach each other: threads with memory of their own do, and devices with or without help. */
static bool has_peers(const rpexec_recorded *r)
{
    return !r->machine->limited || r->machine->machine.peer_Bps > 0;
}

static bool updates_on_gpus(const rp_program *p)
{
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (p->ops[i].kind == RP_OP_UPDATE) {
            return true;
        }
    }
    return false;
}

static rp_status calibrate(const rpexec_plan *plan, const rp_timeline *timeline, uint32_t skip,
                           const rpexec_recorded *r, rp_arena *arena, calibration *c)
{
    RP_TRY(rpexec_calibrate_links(r->site, has_peers(r), arena, &c->links));
    RP_TRY(rpexec_calibrate_starts(r->site, arena, &c->idle));
    RP_TRY(rpexec_starts_of_run(plan, timeline, skip, arena, &c->run));
    return rpexec_calibrate_operators(r->site, updates_on_gpus(plan->program), arena,
                                      &c->operators);
}

/* Attention, which the weight part has none of, is further from the peak than products are: of a
 * run that does not split its backwards, the parts are as long as their operators, not as their
 * FLOP. */
static rp_status split_backward(const rp_costs *flops, const rpexec_operator_costs *operators,
                                rp_arena *arena, rp_costs *proportions_out)
{
    double share = rpexec_operators_input_share(operators);
    *proportions_out = *flops;
    if (!(share > 0)) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, flops->layers, sizeof(int64_t), &proportions_out->bwd_input_ps));
    for (uint32_t i = 0; i < flops->layers; i++) {
        proportions_out->bwd_input_ps[i] = (int64_t)(share * (double)flops->bwd_ps[i]);
    }
    return RP_OK;
}

rp_status rpexec_record_commit(rpexec_record *record)
{
    rp_output *const outputs[] = {&record->timeline, &record->program, &record->costs,
                                  &record->platform, &record->links,   &record->starts,
                                  &record->operators};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        RP_TRY(rp_output_commit(outputs[i]));
    }
    return RP_OK;
}

rp_status rpexec_record_write(const rpexec_plan *plan, const rp_timeline *timeline,
                              const rp_costs *flops, uint32_t skip, const rpexec_recorded *recorded,
                              rp_arena *arena, rpexec_record *record)
{
    rp_costs costs;
    rpexec_rates rates;
    rp_costs proportions;
    calibration c = {0};
    RP_TRY(calibrate(plan, timeline, skip, recorded, arena, &c));
    RP_TRY(split_backward(flops, &c.operators, arena, &proportions));
    RP_TRY(rpexec_measure(plan, timeline, &proportions, skip, arena, &costs, &rates));
    print_costs(recorded, &costs, record->costs.stream);
    RP_TRY(print_platform(recorded, &rates, &c, plan, record->platform.stream));
    rpexec_links_write(&c.links, record->links.stream);
    rpexec_starts_write(&c.idle, &c.run, record->starts.stream);
    rpexec_operators_write(&c.operators, &costs, record->operators.stream);
    RP_TRY(rp_timeline_write_csv(timeline, record->timeline.stream));
    return rp_program_write(plan->program, record->program.stream);
}
