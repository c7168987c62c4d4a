#include "exec/record.h"

#include "common/log.h"
#include "common/timeline_csv.h"
#include "common/units.h"
#include "exec/host/rates.h"

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
    } files[] = {{"timeline.csv", &record->timeline},
                 {"program.txt", &record->program},
                 {"costs.yaml", &record->costs},
                 {"platform.yaml", &record->platform}};
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
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
            "source: measured by rpexec; medians of ops, the first iteration dropped, split over "
            "layers by FLOP\n");
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

/* Rates that the run has not shown, as threads alone have them. */
static void complete(const rpexec_recorded *r, const rpexec_host_rates *h, rpexec_rates *m)
{
    double *const either[] = {&m->upload_Bps, &m->download_Bps};
    double copies = r->machine->limited ? r->machine->machine.upload_Bps : h->copy_Bps;
    for (size_t i = 0; i < 2; i++) {
        *either[i] = *either[i] > 0 ? *either[i] : *either[1 - i] > 0 ? *either[1 - i] : copies;
    }
    if (!r->machine->limited && r->gpu_bytes == 0) {
        m->peer_Bps = m->peer_Bps > 0 ? m->peer_Bps : h->copy_Bps;
        m->collective_Bps = m->collective_Bps > 0 ? m->collective_Bps : h->collective_Bps;
    }
    m->update_Bps = m->update_Bps > 0 ? m->update_Bps : h->update_Bps;
}

/* That Adam takes for all layers of the model. */
static uint32_t optimizer_threads(const rpexec_model *model, const rpexec_host_rates *h)
{
    uint64_t pieces = 0;
    for (uint32_t i = 0; i < model->layer_count; i++) {
        pieces += rpexec_adam_pieces(rpexec_model_trained(model, i, i + 1));
    }
    return pieces < RPEXEC_ADAM_LEAST_PIECES ? 1 : h->threads;
}

static void print_links(const rpexec_recorded *r, const rpexec_rates *m, FILE *stream)
{
    const rp_platform *given = &r->machine->platform;
    double effective = giga((m->upload_Bps + m->download_Bps) / 2, 0);
    double peer = m->peer_Bps > 0 ? giga(m->peer_Bps, 0) : 0;
    double nominal = given->name != NULL ? given->link_gb_per_s : effective;
    nominal = nominal < effective ? effective : nominal;
    nominal = !r->machine->limited && nominal < peer ? peer : nominal;
    fprintf(stream, "# Up %.9g, down %.9g: medians of the longest transfers.\n",
            giga(m->upload_Bps, 0), giga(m->download_Bps, 0));
    fprintf(stream, "link_gb_per_s: %.9g\nlink_effective_gb_per_s: %.9g\n", nominal, effective);
    fprintf(stream, "peer: %s\npeer_gb_per_s: %.9g\n", peer > 0 ? "pcie" : "none",
            peer < nominal ? peer : nominal);
    if (m->collective_Bps > 0) {
        fprintf(stream, "collective_gb_per_s: %.9g\n", giga(m->collective_Bps, 0));
    }
    if (r->sharing_gpus > 1) {
        fprintf(stream, "# Parts of one device.\ngpus_per_switch: %u\nswitch_gb_per_s: %.9g\n",
                r->sharing_gpus, effective);
    } else {
        print_topology(given, stream);
    }
}

/* GPUs are threads: a machine has as many as anybody wants. */
#define EMULATED_GPUS 64u

static rp_status print_platform(const rpexec_recorded *r, const rpexec_rates *measured,
                                const rpexec_plan *plan, FILE *stream)
{
    const rp_platform *given = &r->machine->platform;
    rpexec_host_rates h;
    rpexec_rates m = *measured;
    RP_TRY(rpexec_host_measure(&h));
    complete(r, &h, &m);
    uint32_t threads = optimizer_threads(plan->model, &h);
    double host = m.host_Bps > 0 ? m.host_Bps : threads * h.update_Bps;
    double flops = tera(m.forward_flops);
    fprintf(stream, "name: %s\n", r->backend);
    fprintf(stream, "source: \"measured by rpexec on %s\"\n",
            given->name != NULL ? given->name : "links as fast as memory");
    fprintf(stream, "gpu: %s\ngpus: %u\n", r->backend,
            given->name != NULL   ? given->gpus
            : r->sharing_gpus > 0 ? r->sharing_gpus
                                  : EMULATED_GPUS);
    fprintf(stream, "# FLOP/s of a layer's forward; matrix products and attention together.\n");
    fprintf(stream, "fp16_tflops_fp16_acc: %.9g\nfp16_tflops_fp32_acc: %.9g\n", flops, flops);
    fprintf(stream, "attention_fwd_tflops: %.9g\nattention_bwd_tflops: %.9g\n", flops,
            tera(m.backward_flops));
    fprintf(stream, "memory_gb: %.9g\n",
            r->gpu_bytes != 0 ? 1e-9 * (double)r->gpu_bytes : physical_memory_gb());
    fprintf(stream, "# Of Adam on GPUs.\n");
    fprintf(stream, "memory_gb_per_s: %.9g\nmemory_effective_gb_per_s: %.9g\n",
            giga(m.update_Bps, 0), giga(m.update_Bps, 0));
    fprintf(stream, "# Of the host's threads together.\n");
    fprintf(stream, "optimizer_threads: %u\noptimizer_thread_gb_per_s: %.9g\n", threads,
            giga(host, 0) / threads);
    print_links(r, &m, stream);
    if (r->gpu_bytes != 0) {
        return RP_OK; /* GPUs compute themselves */
    }
    fprintf(stream, "# What all threads do together over what one does alone.\n");
    fprintf(stream, "host_cores: %.9g\ncopies: %s\n", h.cores,
            r->machine->limited ? "links" : "cores");
    return RP_OK;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

rp_status rpexec_record_write(const rpexec_plan *plan, const rp_timeline *timeline,
                              const rp_costs *flops, uint32_t skip, const rpexec_recorded *recorded,
                              rp_arena *arena, rpexec_record *record)
{
    rp_costs costs;
    rpexec_rates rates;
    RP_TRY(rpexec_measure(plan, timeline, flops, skip, arena, &costs, &rates));
    print_costs(recorded, &costs, record->costs.stream);
    RP_TRY(print_platform(recorded, &rates, plan, record->platform.stream));
    RP_TRY(rp_timeline_write_csv(timeline, record->timeline.stream));
    RP_TRY(rp_program_write(plan->program, record->program.stream));
    RP_TRY(rp_output_commit(&record->timeline));
    RP_TRY(rp_output_commit(&record->program));
    RP_TRY(rp_output_commit(&record->costs));
    return rp_output_commit(&record->platform);
}
