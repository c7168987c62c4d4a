#include "exec/measure/record.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/timeline/timeline_csv.h"
#include "exec/measure/calibrate_operators.h"
#include "exec/measure/platform.h"
#include "exec/measure/predict.h"

#include <errno.h>
#include <math.h>
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
        rp_log_error("{record}: %s cannot be made: %s; valid are folders, and names in one", folder,
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

/* ---- costs ----------------------------------------------------------------------------------- */

static void print_list(FILE *stream, const char *key, const int64_t *ps, uint32_t count)
{
    fprintf(stream, "%s: [", key);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stream, "%s%.9f", i == 0 ? "" : ", ", rp_ps_to_ms(ps[i]));
    }
    fputs("]\n", stream);
}

static void print_costs(const rpexec_recorded *r, const rp_costs *c, double busy_pct, FILE *stream)
{
    fprintf(stream, "name: %s@%s\n", r->model, r->backend);
    fprintf(stream,
            "source: " RPEXEC_MEASURED_IN "%s; medians of ops, the first iteration dropped, split "
            "over layers by FLOP",
            r->conditions);
    if (busy_pct > 0) {
        fprintf(stream, "; beside others, who used %.0f %% of the processors", busy_pct);
    }
    fputc('\n', stream);
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
    fprintf(stream, "dtype: %s\naccumulation: %s\n", rp_dtype_text(r->arithmetic.dtype),
            rp_accumulation_text(r->arithmetic.accumulation));
}

/* ---- the platform ---------------------------------------------------------------------------- */

/* Measurements of links, starts and operators, made separately from the run, except `run`. */
typedef struct calibration {
    rpexec_link_rates links;
    rpexec_starts idle, run; /* idle: with nothing else at work; run: among the run's own ops */
    rpexec_operator_costs operators;
    rpexec_link_fit network;
    rpexec_host_rates host;
    double memory_Bps;
    double siblings_s; /* processors' time of the run's processes that share this process's
                          processors */
} calibration;

/* Tag of messages between processes during a record (exec/processes/processes.h), when nothing else
 * runs.
 */
#define TAG (UINT64_C(1) << 63)

/* Threads that work on the state of the model (state.h). */
static uint32_t optimizer_threads(const rpexec_model *model, const rpexec_host_rates *h)
{
    uint64_t pieces = 0;
    for (uint32_t i = 0; i < model->layer_count; i++) {
        pieces += rpexec_pool_pieces(rpexec_model_trained(model, i, i + 1));
    }
    return pieces < RPEXEC_POOL_LEAST_PIECES ? 1 : rpexec_pool_threads(h->threads);
}

/* @return 0 if other processes used too little to affect the times */
static double busy_pct(const rpexec_recorded *r, double siblings_s)
{
    double pct = r->load != NULL ? rpexec_load_others_pct(r->load, siblings_s) : 0;
    return pct > RPEXEC_BUSY_PCT ? round(pct) : 0;
}

static void warn_busy(double pct)
{
    if (pct > 0) {
        rp_log_warning("{record}: other processes used %.0f %% of the processors meanwhile; the "
                       "record is marked, and predictions with it are wrong; valid for predictions "
                       "are records of idle machines",
                       pct);
    }
}

static rp_status print_platform(const rpexec_recorded *r, const rpexec_rates *rates,
                                const calibration *c, const rpexec_plan *plan, rp_arena *arena,
                                double *busy_pct_out, FILE *stream)
{
    rp_noted_platform p;
    const rpexec_platform_of of = {
        .backend = r->backend,
        .machine = r->machine,
        .gpus = r->site->gpus,
        .sharing_gpus = r->sharing_gpus,
        .gpu_bytes = r->site->gpu_bytes,
        .bound = r->site->bound,
        .optimizer_threads = optimizer_threads(plan->model, &c->host),
        .rates = rates,
        .dtype = plan->model->dtype,
        .host = &c->host,
        .links = &c->links,
        .starts = &c->idle,
        .memory_Bps = c->memory_Bps,
        .attention_fwd_flops = rpexec_operators_attention(&c->operators, false),
        .attention_bwd_flops = rpexec_operators_attention(&c->operators, true),
        .network = &c->network,
        .servers = r->processes != NULL ? rpexec_processes_count(r->processes) : 1,
        .share = rpexec_load_share(r->processes)};
    RP_TRY(rpexec_platform_make(&of, arena, &p));
    *busy_pct_out = p.platform.recorded_busy_pct = busy_pct(r, c->siblings_s);
    rp_platform_write(&p.platform, "", p.notes, p.note_count, stream);
    return RP_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* GPUs can copy to each other, as threads or as devices (directly or over the host), unless the
 * links are limited and the machine has none between GPUs. */
static bool has_peers(const rpexec_recorded *r)
{
    return !r->machine->limited || r->machine->machine.peer_Bps > 0;
}

/* Waits until all processes are here, so that they begin a measurement together. */
static rp_status meet(const rpexec_recorded *r)
{
    return r->processes != NULL ? rpexec_processes_meet(r->processes) : RP_OK;
}

static rp_status calibrate(const rpexec_plan *plan, const rp_timeline *timeline, uint32_t skip,
                           const rpexec_recorded *r, rp_arena *arena, calibration *c)
{
    RP_TRY(meet(r));
    RP_TRY(rpexec_calibrate_links(r->site, has_peers(r), arena, &c->links));
    RP_TRY(meet(r));
    RP_TRY(rpexec_calibrate_starts(r->site, arena, &c->idle));
    RP_TRY(rpexec_starts_of_run(plan, timeline, skip, arena, &c->run));
    RP_TRY(meet(r));
    RP_TRY(rpexec_calibrate_memory(r->site, arena, &c->memory_Bps));
    RP_TRY(meet(r));
    RP_TRY(rpexec_calibrate_operators(r->site, rp_program_has(plan->program, rp_op_kind_is_update),
                                      arena, &c->operators));
    RP_TRY(rpexec_calibrate_network(r->processes, arena, &c->network));
    RP_TRY(meet(r));
    RP_TRY(rpexec_host_measure(plan->model->dtype, &c->host));
    return r->load != NULL ? rpexec_load_siblings(r->load, r->processes, TAG, &c->siblings_s)
                           : RP_OK;
}

/* For a run that does not split its backwards, the parts take the shares of their operators' times,
 * not of their FLOP: attention, which only the input part has, is further from the peak than
 * products are. */
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

/* A sum begins when the last process has come: layers take as long as in the slowest process. */
static rp_status take_slowest(rpexec_processes *processes, rp_costs *costs)
{
    int64_t *const lists[] = {costs->fwd_ps, costs->bwd_ps, costs->bwd_input_ps,
                              &costs->head_fwd_ps, &costs->head_bwd_ps};
    const uint32_t counts[] = {costs->layers, costs->layers, costs->layers, 1, 1};
    double all[RPEXEC_MAX_PROCESSES];
    double own_ps = (double)(costs->head_fwd_ps + costs->head_bwd_ps);
    uint32_t slowest = 0;
    if (processes == NULL) {
        return RP_OK;
    }
    for (uint32_t i = 0; i < costs->layers; i++) {
        own_ps += (double)(costs->fwd_ps[i] + costs->bwd_ps[i]);
    }
    RP_TRY(rpexec_processes_gather(processes, TAG, own_ps, all));
    for (uint32_t i = 1; i < rpexec_processes_count(processes); i++) {
        slowest = all[i] > all[slowest] ? i : slowest;
    }
    for (size_t list = 0; list < sizeof lists / sizeof lists[0]; list++) {
        for (uint32_t i = 0; i < counts[list]; i++) {
            RP_TRY(rpexec_processes_gather(processes, TAG, (double)lists[list][i], all));
            lists[list][i] = (int64_t)all[slowest]; /* exact below 2^53 */
        }
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
    double busy = 0;
    RP_TRY(calibrate(plan, timeline, skip, recorded, arena, &c));
    RP_TRY(split_backward(flops, &c.operators, arena, &proportions));
    RP_TRY(rpexec_measure(plan, timeline, &proportions, skip, arena, &costs, &rates));
    RP_TRY(take_slowest(recorded->processes, &costs));
    if (record->timeline.stream == NULL) {
        return RP_OK;
    }
    RP_TRY(print_platform(recorded, &rates, &c, plan, arena, &busy, record->platform.stream));
    print_costs(recorded, &costs, busy, record->costs.stream);
    warn_busy(busy);
    rpexec_links_write(&c.links, record->links.stream);
    rpexec_starts_write(&c.idle, &c.run, record->starts.stream);
    rpexec_operators_write(&c.operators, &costs, record->operators.stream);
    rp_timeline_write_csv(timeline, record->timeline.stream);
    rp_program_write(plan->program, record->program.stream);
    return RP_OK;
}
