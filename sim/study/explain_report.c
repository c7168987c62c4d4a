/* --explain as text: names the causes in words that a person can act on. */
#include "sim/study/explain_report.h"

#include "common/base/units.h"

#include <math.h>
#include <stdlib.h>

/* Least elasticity of a resource that is said to help. */
#define WORTH_SAYING 0.005
#define NAME_SIZE 64

rp_status rpsim_row_explain(rpsim_row *row, rp_arena *arena, rp_reason *reason)
{
    rpsim_explained *explained = NULL;
    rpsim_compute_costs costs;
    rp_machine machine;
    rp_stage_times times;
    const rp_program *program = row->result.program;
    rpsim_explain_case c = {.timeline = row->result.timeline};
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *explained, &explained));
    if (!row->run.stage) {
        RP_TRY(rpsim_hardware_inputs(program, row->run.costs, row->run.model, row->platform,
                                     row->run.decided.seq_len, arena, &costs, &machine, reason));
        c.costs = &costs;
        c.machine = &machine;
    } else {
        RP_TRY(rp_stage_times_compute(program, row->run.costs, arena, &times, reason));
        c.times = &times;
    }
    RP_TRY(rpsim_explain(&c, arena, &explained->explanation, reason));
    RP_TRY(rpsim_explain_sensitivity(&c, arena, &explained->sensitivity, reason));
    row->explained = explained;
    return RP_OK;
}

/* ---- resources ------------------------------------------------------------------------------- */

static const struct {
    const char *key;
    const char *path;   /* words for the critical path */
    const char *blamed; /* words for the resource that GPUs wait for */
} resource_words[RPSIM_RESOURCE_TIMED_COUNT] = {
    [RPSIM_RESOURCE_COMPUTE] = {"compute", "compute", "the compute"},
    [RPSIM_RESOURCE_LINK_UP] = {"link_up", "uploads", "uploads on the link"},
    [RPSIM_RESOURCE_LINK_DOWN] = {"link_down", "downloads", "downloads on the link"},
    [RPSIM_RESOURCE_HOST] = {"host", "host", "the host (optimizer, refresh, collect)"},
    [RPSIM_RESOURCE_PEER] = {"peer", "transfers between GPUs", "transfers between GPUs"},
    [RPSIM_RESOURCE_MEMORY] = {"memory", "memory limits",
                               "the memory limit of two inputs and two stages per GPU"},
    [RPSIM_RESOURCE_DISPATCH] = {"dispatch", "the host's dispatch",
                                 "the host to dispatch (clone modules, launch)"},
};

static rpsim_resource_kind kind_of(uint32_t resource, uint32_t gpus)
{
    uint32_t own = (uint32_t)RPSIM_RESOURCE_HOST;
    return (rpsim_resource_kind)(resource < own * gpus ? resource / gpus
                                                       : own + resource - own * gpus);
}

static const struct {
    const char *one; /* words for a single link; its number follows */
    const char *all;
} shared_words[RP_SHARED_COUNT] = {
#define SHARED_WORDS(name, key, one, all) {one, all},
    RP_SHARED_LIST(SHARED_WORDS)
#undef SHARED_WORDS
};

static bool is_per_gpu(rpsim_resource_kind kind)
{
    return kind < RPSIM_RESOURCE_HOST;
}

/* "uploads on the link of GPU 3" */
static void name_blamed(uint32_t resource, uint32_t gpus, char name[static NAME_SIZE])
{
    rpsim_resource_kind kind = kind_of(resource, gpus);
    if (is_per_gpu(kind)) {
        snprintf(name, NAME_SIZE, "%s of GPU %u", resource_words[kind].blamed, resource % gpus);
    } else {
        snprintf(name, NAME_SIZE, "%s", resource_words[kind].blamed);
    }
}

/* Names a first cause: the single resource, or all resources of its kind if they are alike. */
static void name_cause(const rpsim_first_cause *cause, bool alike, char name[static NAME_SIZE])
{
    if (rpsim_resource_is_shared(cause->kind)) {
        int kind = (int)cause->kind - RPSIM_RESOURCE_TIMED_COUNT;
        if (alike || cause->group_count == 1) {
            snprintf(name, NAME_SIZE, "%s%s", shared_words[kind].all, alike ? " alike" : "");
        } else {
            snprintf(name, NAME_SIZE, "%s %u", shared_words[kind].one, cause->gpu);
        }
    } else if (!is_per_gpu(cause->kind)) {
        snprintf(name, NAME_SIZE, "%s", resource_words[cause->kind].blamed);
    } else if (alike) {
        snprintf(name, NAME_SIZE, "%s of all GPUs alike", resource_words[cause->kind].blamed);
    } else {
        snprintf(name, NAME_SIZE, "%s of GPU %u", resource_words[cause->kind].blamed, cause->gpu);
    }
}

static double percent(int64_t part_ps, double whole_ps)
{
    return whole_ps > 0 ? 100.0 * (double)part_ps / whole_ps : 0.0;
}

/* ---- where the time goes --------------------------------------------------------------------- */

typedef struct ranked {
    int64_t ps;
    uint32_t index;
} ranked;

static int by_time(const void *a, const void *b)
{
    const ranked *left = a;
    const ranked *right = b;
    if (left->ps != right->ps) {
        return left->ps < right->ps ? 1 : -1;
    }
    return (left->index > right->index) - (left->index < right->index);
}

static void write_shares(const rpsim_explanation *e, FILE *stream)
{
    static const char *const words[] = {
#define SHARE_WORDS(name, key, text) text,
        RPSIM_SHARE_LIST(SHARE_WORDS)
#undef SHARE_WORDS
    };
    ranked order[RPSIM_SHARE_COUNT];
    double gpu_time_ps = (double)e->makespan_ps * e->gpus;
    for (uint32_t s = 0; s < RPSIM_SHARE_COUNT; s++) {
        order[s] = (ranked){e->share_ps[s], s};
    }
    qsort(order, RPSIM_SHARE_COUNT, sizeof order[0], by_time);
    for (uint32_t i = 0; i < RPSIM_SHARE_COUNT && order[i].ps > 0; i++) {
        fprintf(stream, "  %8.3f %%  %s\n", percent(order[i].ps, gpu_time_ps),
                words[order[i].index]);
    }
}

static int64_t idle_of(const rpsim_explanation *e, uint32_t gpu)
{
    const int64_t *share_ps = e->gpu_share_ps[gpu];
    return e->makespan_ps - share_ps[RPSIM_SHARE_FORWARD] - share_ps[RPSIM_SHARE_BACKWARD] -
           share_ps[RPSIM_SHARE_RECOMPUTE] - share_ps[RPSIM_SHARE_UPDATE];
}

static void write_first_cause(const rpsim_explained *x, FILE *stream)
{
    const rpsim_explanation *e = &x->explanation;
    rpsim_first_cause cause = rpsim_explain_first_cause(e, &x->sensitivity);
    if (cause.kind == RPSIM_RESOURCE_KIND_COUNT) {
        fputs("First cause: none; nothing that is modelled takes time.\n", stream);
        return;
    }
    char name[NAME_SIZE];
    bool several = cause.group_count > 1;
    bool alike = several && !cause.stands_out;
    name_cause(&cause, alike, name);
    fprintf(stream, "First cause: %s; 1 %% faster, the step is %.2f %% shorter", name,
            alike ? cause.group_elasticity : cause.elasticity);
    if (several && !alike) {
        fprintf(stream, is_per_gpu(cause.kind) ? " (that of all GPUs: %.2f %%)" : " (all: %.2f %%)",
                cause.group_elasticity);
    }
    fputs(".\n", stream);
}

static void write_most_blamed(const rpsim_explanation *e, FILE *stream)
{
    uint32_t most = rpsim_explain_most_blamed(e);
    int64_t ends_ps = e->share_ps[RPSIM_SHARE_FILL] + e->share_ps[RPSIM_SHARE_DRAIN];
    int64_t waits_ps = 0;
    for (uint32_t r = 0; r < rpsim_resource_count(e->gpus); r++) {
        waits_ps += e->blame_ps[r];
    }
    if (most != UINT32_MAX) {
        char name[NAME_SIZE];
        name_blamed(most, e->gpus, name);
        fprintf(stream,
                "Between ops, GPUs wait most for %s: %.3f %% of all GPU time, %.1f %% of the "
                "waiting.\n",
                name, percent(e->blame_ps[most], (double)e->makespan_ps * e->gpus),
                percent(e->blame_ps[most], (double)waits_ps));
    }
    if (ends_ps > waits_ps) {
        fputs("Fill and drain cost more than all waiting between ops: more microbatches, or more "
              "steps without a barrier, would help.\n",
              stream);
    }
}

static void write_worst(const rpsim_explanation *e, FILE *stream)
{
    uint32_t idlest = 0;
    int64_t total_ps = 0;
    for (uint32_t gpu = 0; gpu < e->gpus; gpu++) {
        total_ps += idle_of(e, gpu);
        idlest = idle_of(e, gpu) > idle_of(e, idlest) ? gpu : idlest;
    }
    double average = percent(total_ps, (double)e->makespan_ps * e->gpus);
    double most = percent(idle_of(e, idlest), (double)e->makespan_ps);
    if (most - average < 0.1) {
        fprintf(stream, "All GPUs are idle alike, for %.3f %% of the run.", average);
    } else {
        fprintf(stream, "Worst GPU: %u is idle for %.3f %% of the run (all on average %.3f %%).",
                idlest, most, average);
    }
    uint32_t worst = UINT32_MAX;
    int64_t most_ps = 0;
    for (uint32_t gpu = 0; gpu < e->gpus; gpu++) {
        int64_t ps = e->blame_ps[rpsim_resource(RPSIM_RESOURCE_LINK_UP, gpu, e->gpus)] +
                     e->blame_ps[rpsim_resource(RPSIM_RESOURCE_LINK_DOWN, gpu, e->gpus)];
        if (ps > most_ps) {
            most_ps = ps;
            worst = gpu;
        }
    }
    if (worst != UINT32_MAX) {
        fprintf(stream, " Worst link: that of GPU %u, for which GPUs wait %.3f %% of their time.",
                worst, percent(most_ps, (double)e->makespan_ps * e->gpus));
    }
    fputc('\n', stream);
}

/* ---- critical path --------------------------------------------------------------------------- */

static void write_path_line(const rpsim_explanation *e, uint32_t kind, FILE *stream)
{
    uint32_t gpus = is_per_gpu((rpsim_resource_kind)kind) ? e->gpus : 1;
    int64_t sum_ps = 0;
    uint32_t most = 0;
    const int64_t *path_ps = &e->path_ps[rpsim_resource((rpsim_resource_kind)kind, 0, e->gpus)];
    for (uint32_t i = 0; i < gpus; i++) {
        sum_ps += path_ps[i];
        most = path_ps[i] > path_ps[most] ? i : most;
    }
    if (sum_ps == 0) {
        return;
    }
    fprintf(stream, "  %8.3f %%  %s", percent(sum_ps, (double)e->makespan_ps),
            resource_words[kind].path);
    if (gpus > 1) {
        fprintf(stream, ", most on GPU %u (%.3f %%)", most,
                percent(path_ps[most], (double)e->makespan_ps));
    }
    fputc('\n', stream);
}

static void write_path(const rpsim_explanation *e, FILE *stream)
{
    fprintf(stream, "Critical path: %u pieces, together the makespan of %.3f ms:\n",
            e->segment_count, rp_ps_to_ms(e->makespan_ps));
    for (uint32_t kind = 0; kind < RPSIM_RESOURCE_TIMED_COUNT; kind++) {
        write_path_line(e, kind, stream);
    }
}

/* ---- remedies -------------------------------------------------------------------------------- */

typedef struct remedy {
    const char *text;
    double elasticity;
} remedy;

static int by_elasticity(const void *a, const void *b)
{
    double left = ((const remedy *)a)->elasticity;
    double right = ((const remedy *)b)->elasticity;
    return (left < right) - (left > right);
}

/* Names the GPU whose resource of a kind helps most, unless the first cause has already named
 * it. */
static void write_single(const rpsim_explained *x, rpsim_resource_kind kind, const char *words,
                         const double *elasticity_of, uint32_t count, FILE *stream)
{
    rpsim_first_cause cause = rpsim_explain_first_cause(&x->explanation, &x->sensitivity);
    bool links = cause.kind == RPSIM_RESOURCE_LINK_UP || cause.kind == RPSIM_RESOURCE_LINK_DOWN;
    bool named = kind == RPSIM_RESOURCE_LINK_UP ? links : cause.kind == kind;
    if (named || elasticity_of == NULL || count < 2) {
        return;
    }
    uint32_t best = 0;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        best = elasticity_of[i] > elasticity_of[best] ? i : best;
        sum += elasticity_of[i];
    }
    bool stands_out = elasticity_of[best] * count > RPSIM_STANDS_OUT * sum;
    if (elasticity_of[best] > WORTH_SAYING && stands_out) {
        fprintf(stream, "Of single %s %u: 1 %% faster, the step is %.2f %% shorter.\n", words, best,
                elasticity_of[best]);
    }
}

static void write_remedies(const rpsim_explained *x, FILE *stream)
{
    const rpsim_sensitivity *s = &x->sensitivity;
    remedy remedies[5 + RP_SHARED_COUNT] = {
        {"host-to-GPU links", s->links},
        {"GPUs", s->compute},
        {"host memory (optimizer, refresh, collect)", s->host},
        {"dispatch by the host", s->dispatch},
        {isnan(s->links) ? "hops" : "transfers between GPUs", s->peer}};
    for (uint32_t k = 0; k < RP_SHARED_COUNT; k++) {
        remedies[5 + k].text = shared_words[k].all;
        remedies[5 + k].elasticity = s->shared[k];
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++) {
        if (!isnan(remedies[i].elasticity)) {
            remedies[count++] = remedies[i];
        }
    }
    qsort(remedies, count, sizeof remedies[0], by_elasticity);
    fputs("What would help: ", stream);
    uint32_t useful = 0;
    for (; useful < count && remedies[useful].elasticity >= WORTH_SAYING; useful++) {
        fprintf(stream, "%s%.2f %% with 1 %% faster %s",
                useful == 0 ? "the step is shorter by " : ", ", remedies[useful].elasticity,
                remedies[useful].text);
    }
    for (uint32_t i = useful; i < count; i++) {
        const char *before = i > useful ? " or " : useful > 0 ? "; not faster " : "not faster ";
        fprintf(stream, "%s%s", before, remedies[i].text);
    }
    fputs(".\n", stream);
    uint32_t gpus = x->explanation.gpus;
    write_single(x, RPSIM_RESOURCE_COMPUTE, "GPUs, GPU", s->compute_of, gpus, stream);
    write_single(x, RPSIM_RESOURCE_LINK_UP, "links, that of GPU", s->link_of, gpus, stream);
    for (int k = 0; k < RP_SHARED_COUNT; k++) {
        write_single(x, rpsim_resource_of_shared((rp_shared)k), shared_words[k].one,
                     s->shared_of[k], s->shared_count[k], stream);
    }
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void write_bounds(const rpsim_row *row, FILE *stream)
{
    static const char *const classes[] = {
#define CLASS_WORDS(name, words) words,
        RPSIM_BOUND_CLASS_LIST(CLASS_WORDS)
#undef CLASS_WORDS
    };
    static const char *const terms[] = {
#define TERM_WORDS(name, key, of_class, words) words,
        RPSIM_BOUND_LIST(TERM_WORDS)
#undef TERM_WORDS
    };
    double makespan_ps = (double)row->result.metrics.makespan_ps;
    fprintf(stream, "Lower bounds of one step, which takes %.3f ms:\n",
            makespan_ps / (double)RP_PS_PER_MS);
    for (int c = 0; c < RPSIM_BOUND_CLASS_COUNT; c++) {
        rpsim_bound_term term = rpsim_bounds_term(&row->result.bounds, (rpsim_bound_class)c);
        int64_t ps = row->result.bounds.ps[term];
        if (ps > 0) {
            fprintf(stream, "  %12.3f ms  %s: %s; the step takes %.2f %% more\n", rp_ps_to_ms(ps),
                    classes[c], terms[term], 100.0 * (makespan_ps / (double)ps - 1.0));
        }
    }
}

void rpsim_explain_write(const rpsim_study *study, FILE *stream)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        if (row->explained == NULL) {
            continue;
        }
        const rpsim_explanation *e = &row->explained->explanation;
        fprintf(stream,
                "\n%s, %s, recompute %s: where the time of %u GPUs goes in %.3f ms (steps: %u; "
                "one: %.3f ms)\n",
                row->model_name, row->schedule_name, rp_recompute_text(row->run.recompute), e->gpus,
                rp_ps_to_ms(e->makespan_ps), row->run.decided.iterations,
                row->explained->sensitivity.step_ps / (double)RP_PS_PER_MS);
        write_shares(e, stream);
        write_first_cause(row->explained, stream);
        write_most_blamed(e, stream);
        write_worst(e, stream);
        write_path(e, stream);
        write_remedies(row->explained, stream);
        write_bounds(row, stream);
    }
}
