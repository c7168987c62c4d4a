/* Layouts of the search: copies of a pipeline, GPUs that share a layer, number of servers. Copies
 * of synchronous runs share the optimizer (ZeRO 1), which takes no more time and less memory than
 * optimizers of their own; GPUs that share a layer also share the tokens between layers (sequence
 * parallelism), or not. At first a single schedule stands for all; the other schedules are tried in
 * the layouts that can still win. */
#include "common/base/log.h"
#include "common/inputs/types/stored.h"
#include "common/machine/platform_machine.h"
#include "sim/rpadvise/search_internal.h"
#include "sim/run/memory/memory.h"

#include <math.h>
#include <string.h>

#define MOST_EXPANDED 12u     /* number of layouts and sizes in which all schedules are tried */
#define GRADIENT_BYTES 2.0    /* bytes of a parameter's gradient */
#define VALUE_BYTES 2.0       /* bytes of a weight */
#define LAYER_REDUCES 4.0     /* all-reduces of a layer, forward and backward */
#define RECOMPUTE_REDUCES 2.0 /* further all-reduces in a recompute */
#define USUAL_SCHEDULE "1f1b" /* stands for the others while many layouts are tried */
#define STEP_PARTS 4u         /* each step here may use 1 / STEP_PARTS of the rest of the budget */

typedef struct facts {
    rp_arena *arena; /* scratch */
    const rp_model *model;
    double Bps;       /* largest rate of a collective through a GPU */
    double gpu_bytes; /* bytes of a GPU's memory */
    double work_s;    /* seconds of work for a token, on all GPUs together; 0: not known */
    double best;      /* largest estimate of a family, in tokens/s */
    const rp_schedule_type *usual;
} facts;

static bool is_resident(const rp_schedule_type *schedule)
{
    return schedule->traits.placement == RP_PLACEMENT_RESIDENT;
}

static uint32_t schedule_count(const rpadvise_search *s)
{
    return s->options->schedule_count != 0 ? s->options->schedule_count : rp_schedule_count;
}

static const rp_schedule_type *schedule_at(const rpadvise_search *s, uint32_t index)
{
    const rpadvise_options *o = s->options;
    return o->schedule_count != 0 ? rp_schedule_find(o->schedules[index]) : rp_schedules[index];
}

/* @return the schedule that stands for the others: 1F1B, or the first that can be combined with
 * layouts */
static const rp_schedule_type *find_usual(const rpadvise_search *s)
{
    const rp_schedule_type *first = NULL;
    for (uint32_t i = 0; i < schedule_count(s); i++) {
        const rp_schedule_type *schedule = schedule_at(s, i);
        if (is_resident(schedule) && strcmp(schedule->name, USUAL_SCHEDULE) == 0) {
            return schedule;
        }
        first = first == NULL && is_resident(schedule) ? schedule : first;
    }
    return first;
}

/* Reads model and server from a run on a single GPU, which is prepared but not run. */
static rp_status read_inputs(const rpadvise_search *s, facts *f, rpsim_study *study,
                             rp_reason *reason)
{
    const rpadvise_manner manner = {.iterations = 1, .free_batch = true};
    rpadvise_candidate one =
        rpadvise_candidate_of(s->bench->work, rp_schedule_find(USUAL_SCHEDULE));
    rpsim_setup *setup = NULL;
    one.run.gpus = 1;
    one.run.nodes = one.run.nodes != 0 ? 1 : 0;
    one.run.microbatches = 1;
    RP_TRY(rpadvise_candidate_setup(s->bench->work, &one, &manner, f->arena, &setup, reason));
    RP_TRY(rpsim_study_prepare(setup, f->arena, study, reason));
    const rpsim_row *row = &study->rows[0];
    const rp_machine machine = rp_machine_of(row->platform);
    f->model = row->run.model;
    f->Bps = machine.collective_Bps > 0 ? machine.collective_Bps : machine.upload_Bps;
    f->gpu_bytes =
        (double)rpsim_memory_limits_of(row->platform, &row->run.schedule->traits, 1).gpu_bytes;
    return RP_OK;
}

/* Takes the results of the families so far: the best estimate, and the least work of a token. */
static void take_families(const rpadvise_search *s, facts *f)
{
    for (uint32_t i = 0; i < s->family_count; i++) {
        const rpadvise_outcome *o = &s->families[i].at_n;
        f->best = fmax(f->best, s->families[i].estimate);
        bool whole = rpadvise_alike(&s->families[i].candidate) == 1 &&
                     rpadvise_fewer_nodes(s, &s->families[i].candidate) == 0;
        if (o->ran && whole && o->work_s > 0) {
            double work_s = o->work_s * s->gpus / ((double)o->batch * o->seq_len);
            f->work_s = f->work_s > 0 ? fmin(f->work_s, work_s) : work_s;
        }
    }
}

/* @return tokens per second that no pipeline of this layout can exceed: each GPU does its part of
 * the work and then its all-reduces of boundary tensors */
static double ceiling_of(const rpadvise_search *s, const facts *f, const rpadvise_candidate *c)
{
    double tensor = c->run.layout.tensor_parallel != 0 ? c->run.layout.tensor_parallel : 1;
    double places = rpadvise_places(s, c);
    double again = rp_recompute_has_ops(c->run.recomputes[0]) ? RECOMPUTE_REDUCES : 0;
    double moved = (LAYER_REDUCES + again) * f->model->layers / places * 2 * f->model->hidden;
    double reduce_s = 2 * (tensor - 1) / tensor * moved / f->Bps;
    return rpadvise_copies(c) / (f->work_s / (places * tensor) + reduce_s);
}

/* @return true if weights, gradients and optimizer fit when they are cut equally: the average over
 * GPUs cannot be less */
static bool has_room(const rpadvise_search *s, const facts *f, uint32_t places, uint32_t tensor,
                     uint32_t copies)
{
    const rp_types *types = &s->given->types;
    const uint64_t many = 4096; /* of a matrix with as many rows and columns */
    rp_stored frozen = rp_stored_matrix((rp_frozen)types->frozen, many, many, 2);
    double states = (double)rp_states_bytes((rp_states)types->states, many) / (double)many;
    double master = types->master == RP_MASTER_F32 ? 4 : 0; /* bf16 may be the weights */
    double trained = VALUE_BYTES + GRADIENT_BYTES + (master + states) / copies;
    double each =
        f->model->lora_rank != 0 ? (double)frozen.values / (double)(many * many) : trained;
    return each * (double)f->model->total_parameters / ((double)places * tensor) <= f->gpu_bytes;
}

static rp_status cuts_equally(const facts *f, uint32_t tensor, bool *cuts_out)
{
    rp_reason unread;
    rp_model rank;
    const rp_layout layout = {.tensor_parallel = tensor};
    rp_status status = rp_model_cut(f->model, &layout, f->arena, &rank, &unread);
    *cuts_out = status == RP_OK;
    return status == RP_NO_MEMORY ? status : RP_OK;
}

static rp_status look_at(const rpadvise_search *s, const facts *f, const rpadvise_candidate *c,
                         bool *possible_out)
{
    uint32_t places = rpadvise_places(s, c);
    uint32_t copies = rpadvise_copies(c);
    uint32_t tensor = c->run.layout.tensor_parallel != 0 ? c->run.layout.tensor_parallel : 1;
    bool splits = s->given->global_batch % copies == 0 && rpadvise_target(s, c) > 0;
    *possible_out = places > 0 && places <= f->model->layers && splits &&
                    has_room(s, f, places, tensor, copies);
    return *possible_out ? cuts_equally(f, tensor, possible_out) : RP_OK;
}

/* Adds the families of the usual schedule in a layout, with each kind of recompute and without, and
 * with sequence parallelism and without. */
static rp_status add_usual(rpadvise_search *s, const facts *f, rpadvise_candidate c)
{
    static const rp_recompute modes[] = {RP_RECOMPUTE_NONE, RP_RECOMPUTE_WAIT,
                                         RP_RECOMPUTE_SELECTIVE};
    size_t count = s->bench->selective ? 3 : 2;
    size_t ways = c.run.layout.tensor_parallel != 0 ? 2 : 1;
    c.run.layout.zero = rpadvise_zero(&c);
    for (size_t i = 0; i < ways * count; i++) {
        c.run.recomputes[0] = modes[i / ways];
        c.run.layout.sequence_parallel = i % ways == 1;
        if (ceiling_of(s, f, &c) < f->best) {
            s->pruned++;
            continue;
        }
        rpadvise_family family = rpadvise_family_of(s, &c);
        RP_TRY(rpadvise_families_add(s, &family, 1));
    }
    return RP_OK;
}

/* Adds all layouts for a number of servers. */
static rp_status add_layouts(rpadvise_search *s, const facts *f, uint32_t nodes)
{
    rpadvise_candidate c = rpadvise_candidate_of(s->bench->work, f->usual);
    c.run.nodes = nodes;
    uint32_t gpus = rpadvise_places(s, &c);
    for (uint32_t tensor = 1; tensor <= gpus; tensor++) {
        for (uint32_t data = 1; gpus % tensor == 0 && data <= gpus / tensor; data++) {
            c.run.layout.tensor_parallel = tensor > 1 ? tensor : 0;
            c.run.layout.data_parallel = data > 1 ? data : 0;
            bool other = tensor * data > 1 || rpadvise_fewer_nodes(s, &c) != 0;
            bool possible = other && gpus / tensor % data == 0;
            if (possible) {
                RP_TRY(look_at(s, f, &c, &possible));
            }
            if (possible) {
                RP_TRY(add_usual(s, f, c));
            }
        }
    }
    return RP_OK;
}

/* Adds families with layer grain where the usual schedule does not fit with recompute: keeping only
 * the input of each layer may fit. */
static rp_status add_layer_grain(rpadvise_search *s, uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; i < end; i++) {
        const rpadvise_family *f = &s->families[i];
        bool wants = f->at_n.ran && !f->at_n.fits && f->candidate.run.microbatch_size == 1 &&
                     rp_recompute_has_ops(f->candidate.run.recomputes[0]);
        if (wants) {
            rpadvise_candidate c = f->candidate;
            c.run.layer_grain = true;
            rpadvise_family family = rpadvise_family_of(s, &c);
            RP_TRY(rpadvise_families_add(s, &family, 1));
        }
    }
    return RP_OK;
}

/* Adds the other schedules, and the asynchronous optimizer, with the settings of a family of the
 * usual schedule. */
static rp_status add_others(rpadvise_search *s, const facts *f, const rpadvise_candidate *like)
{
    for (uint32_t i = 0; i < schedule_count(s); i++) {
        for (int late = 0; late < 2; late++) {
            rpadvise_candidate c = *like;
            c.schedule = schedule_at(s, i);
            c.run.asynchronous = late != 0;
            c.run.layout.zero = rpadvise_zero(&c);
            bool other = c.schedule != f->usual || c.run.asynchronous;
            if (is_resident(c.schedule) && other && !rpadvise_is_double(s, &c) &&
                rpadvise_wants_mode(s, c.schedule, c.run.asynchronous)) {
                rpadvise_family family = rpadvise_family_of(s, &c);
                RP_TRY(rpadvise_families_add(s, &family, 1));
            }
        }
    }
    return RP_OK;
}

/* Tries the other schedules like the families of [begin, end) that fit and whose ceiling is not
 * below the best estimate, best first. */
static rp_status expand(rpadvise_search *s, const facts *f, uint32_t begin, uint32_t end)
{
    bool *done = NULL;
    RP_TRY(rp_arena_alloc(f->arena, end - begin + 1, sizeof *done, &done));
    for (uint32_t k = 0; k < MOST_EXPANDED; k++) {
        uint32_t best = end;
        for (uint32_t i = begin; i < end; i++) {
            const rpadvise_family *one = &s->families[i];
            bool ahead = best == end || one->estimate > s->families[best].estimate;
            bool open = one->at_n.fits && !done[i - begin];
            if (open && ahead && ceiling_of(s, f, &one->candidate) >= f->best) {
                best = i;
            }
        }
        if (best == end) {
            break;
        }
        done[best - begin] = true;
        const rpadvise_candidate like = s->families[best].candidate; /* the array may move */
        RP_TRY(add_others(s, f, &like));
    }
    return RP_OK;
}

static rp_status measure(rpadvise_search *s, facts *f)
{
    uint32_t first = s->family_count;
    for (uint32_t nodes = s->given->nodes; nodes > 1; nodes /= 2) { /* fewer servers come later */
        uint32_t begin = s->family_count;
        take_families(s, f);
        RP_TRY(add_layouts(s, f, nodes));
        RP_TRY(rpadvise_families_probe(s, begin, f->best, STEP_PARTS, true));
    }
    uint32_t begin = s->family_count;
    take_families(s, f);
    RP_TRY(add_layouts(s, f, rpadvise_least(s->given->nodes, 1)));
    RP_TRY(rpadvise_families_probe(s, begin, f->best, STEP_PARTS, true));
    begin = s->family_count;
    RP_TRY(add_layer_grain(s, first, begin));
    take_families(s, f);
    RP_TRY(rpadvise_families_probe(s, begin, f->best, STEP_PARTS, true));
    begin = s->family_count;
    take_families(s, f);
    RP_TRY(expand(s, f, first, begin));
    return rpadvise_families_probe(s, begin, f->best, STEP_PARTS, false);
}

rp_status rpadvise_layouts_measure(rpadvise_search *s)
{
    facts f = {.usual = find_usual(s)};
    rpsim_study study = {0};
    if (f.usual == NULL || (s->gpus == 1 && s->given->nodes < 2)) {
        return RP_OK;
    }
    RP_TRY(rp_arena_create(&f.arena));
    rp_reason unread;
    bool before = rp_log_mute_warnings(true); /* warnings were given when the inputs were checked */
    rp_status status = read_inputs(s, &f, &study, &unread);
    rp_log_mute_warnings(before);
    bool refused = status == RP_USAGE || status == RP_INPUT;
    if (status == RP_OK) {
        status = measure(s, &f);
    }
    rpsim_study_fini(&study);
    rp_arena_destroy(f.arena);
    return refused ? RP_OK : status;
}
