#include "sim/study/ranking.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "sim/study/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- refusals -------------------------------------------------------------------------------- */

rp_status rpsim_study_refuse(rpsim_study *study, const char *schedule, const char *model,
                             const char *reason, bool warn)
{
    for (uint32_t i = 0; i < study->refusal_count; i++) {
        const rpsim_refusal *other = &study->refusals[i];
        if (strcmp(other->schedule_name, schedule) == 0 && strcmp(other->model_name, model) == 0) {
            return RP_OK;
        }
    }
    if (warn && !study->setup->quiet) {
        rp_log_warning("%s left out: %s", schedule, reason);
    }
    rpsim_refusal *refusal = &study->refusals[study->refusal_count++];
    *refusal = (rpsim_refusal){.schedule_name = schedule, .model_name = model};
    return rp_arena_copy_text(study->arena, reason, strlen(reason), &refusal->reason);
}

/* ---- order ----------------------------------------------------------------------------------- */

bool rpsim_row_may_fit(const rpsim_row *row)
{
    return !row->memory.known || row->memory.fits;
}

bool rpsim_row_is_ahead(const rpsim_row *a, const rpsim_row *b)
{
    if (rpsim_row_may_fit(a) != rpsim_row_may_fit(b)) {
        return rpsim_row_may_fit(a);
    }
    if (a->max_seqlen != b->max_seqlen) {
        return a->max_seqlen > b->max_seqlen;
    }
    double tokens_a = rpsim_row_tokens_per_s(a);
    double tokens_b = rpsim_row_tokens_per_s(b);
    return tokens_a > tokens_b || (!isnan(tokens_a) && isnan(tokens_b));
}

static uint32_t place_of_mode(const rpsim_setup *o, rp_recompute recompute)
{
    for (uint32_t i = 0; i < o->run.recompute_count; i++) {
        if (o->run.recomputes[i] == recompute) {
            return i;
        }
    }
    return (uint32_t)recompute; /* wait before early, if no option gives the order */
}

static bool same_model(const rpsim_row *a, const rpsim_row *b)
{
    return a->run.costs == b->run.costs && strcmp(a->model_name, b->model_name) == 0;
}

/* True if `a` belongs before `b`, both rows of the same model. */
static bool before(const rpsim_setup *o, const rpsim_row *a, const rpsim_row *b)
{
    uint32_t place_a = place_of_mode(o, a->run.recompute);
    uint32_t place_b = place_of_mode(o, b->run.recompute);
    if (place_a != place_b) {
        return place_a < place_b;
    }
    if (rpsim_row_may_fit(a) != rpsim_row_may_fit(b)) {
        return rpsim_row_may_fit(a);
    }
    double tokens_a = rpsim_row_tokens_per_s(a);
    double tokens_b = rpsim_row_tokens_per_s(b);
    return tokens_a > tokens_b || (!isnan(tokens_a) && isnan(tokens_b));
}

/* Sets the ranks. Equal rows share a rank; the next rank counts all rows before it. */
static void set_ranks(rpsim_study *study)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        rpsim_row *row = &study->rows[i];
        const rpsim_row *above = i > 0 ? row - 1 : NULL;
        bool first =
            above == NULL || !same_model(above, row) || above->run.recompute != row->run.recompute;
        uint32_t place = 1;
        for (uint32_t k = i; !first && k-- > 0 && same_model(&study->rows[k], row) &&
                             study->rows[k].run.recompute == row->run.recompute;) {
            place++;
        }
        bool equal = !first && !(rpsim_row_tokens_per_s(above) > rpsim_row_tokens_per_s(row));
        bool unknown = isnan(rpsim_row_tokens_per_s(row));
        row->rank = !rpsim_row_may_fit(row) || unknown ? 0 : equal ? above->rank : place;
    }
}

void rpsim_study_rank(rpsim_study *study)
{
    for (uint32_t i = 1; i < study->row_count; i++) {
        rpsim_row row = study->rows[i];
        uint32_t at = i;
        while (at > 0 && same_model(&study->rows[at - 1], &row) &&
               before(study->setup, &row, &study->rows[at - 1])) {
            study->rows[at] = study->rows[at - 1];
            at--;
        }
        study->rows[at] = row;
    }
    set_ranks(study);
}

/* True if a row belongs to the table. With --max-seqlen rows of a table have different sequence
 * lengths. */
static bool belongs(const rpsim_study *study, const rpsim_row *first, const rpsim_row *row)
{
    return rpsim_row_same_group(first, row) ||
           (study->setup->run.max_seqlen && strcmp(first->model_name, row->model_name) == 0);
}

uint32_t rpsim_study_order(const rpsim_study *study, uint32_t begin, uint32_t *order_out)
{
    const rpsim_row *rows = study->rows;
    uint32_t count = 0;
    while (begin + count < study->row_count && belongs(study, &rows[begin], &rows[begin + count])) {
        uint32_t at = count;
        for (; at > 0 && !study->setup->all_schedules &&
               rpsim_row_is_ahead(&rows[begin + count], &rows[order_out[at - 1]]);
             at--) {
            order_out[at] = order_out[at - 1];
        }
        order_out[at] = begin + count++;
    }
    return count;
}

/* ---- flips ----------------------------------------------------------------------------------- */

static double standing_of(const rpsim_study *study, const rpsim_row *like, rp_recompute recompute,
                          const char *schedule)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        if (strcmp(row->model_name, like->model_name) == 0 && row->run.recompute == recompute &&
            strcmp(row->schedule_name, schedule) == 0) {
            return rpsim_row_may_fit(row) ? rpsim_row_tokens_per_s(row) : 0;
        }
    }
    return 0;
}

/* Changes the price of transfers: multiplies the hop, or divides the rates of all links on the way
 * to the host. */
static rp_status scale_transfers(rpsim_study *study, double factor)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        rpsim_row *row = &study->rows[i];
        rp_costs *costs = NULL;
        rp_platform *platform = NULL;
        RP_TRY(rp_arena_alloc(study->arena, 1, sizeof *costs, &costs));
        RP_TRY(rp_arena_alloc(study->arena, 1, sizeof *platform, &platform));
        *costs = *row->run.costs;
        costs->hop_ps = (int64_t)((double)costs->hop_ps * factor + 0.5);
        *platform = *row->platform;
        platform->link_gb_per_s /= factor;
        platform->link_effective_gb_per_s /= factor;
        platform->upload_gb_per_s /= factor;
        platform->download_gb_per_s /= factor;
        platform->switch_gb_per_s /= factor;
        platform->root_gb_per_s /= factor;
        row->platform = !row->run.stage ? platform : row->platform;
        row->run.costs = !row->run.stage ? row->run.costs : costs;
    }
    return RP_OK;
}

/* Difference of a study from the study asked for. */
typedef struct change {
    const char *what;
    const char *partition;    /* NULL: unchanged */
    rp_recompute recompute;   /* mode of the rows that are compared */
    double transfers;         /* factor on the price of transfers; 0: unchanged */
    bool other_optimizer;     /* changes between an optimizer with and without a barrier */
    uint32_t microbatch_size; /* 0: unchanged */
    uint32_t microbatches;    /* 0: unchanged */
} change;

static rp_status run_changed(const rpsim_study *study, const rpsim_row *like, const change *c,
                             rpsim_comparison *comparison)
{
    rpsim_setup setup = *study->setup;
    setup.quiet = setup.unreported = true;
    setup.what = c->what;
    setup.explain = false;
    setup.jitter_given = false;
    setup.intervals = 0;
    for (uint32_t i = 0; i < study->setup->model_count; i++) {
        if (strcmp(study->setup->models[i], like->model_name) == 0) { /* else all: it is a file */
            setup.models = &study->setup->models[i];
            setup.model_count = 1;
        }
    }
    setup.run.recomputes[0] = c->recompute;
    setup.run.recompute_count = 1;
    setup.run.partition = c->partition != NULL ? c->partition : setup.run.partition;
    setup.run.asynchronous = setup.run.asynchronous != c->other_optimizer;
    setup.run.optimizer_given = setup.run.optimizer_given || c->other_optimizer;
    setup.run.microbatch_size =
        c->microbatch_size != 0 ? c->microbatch_size : setup.run.microbatch_size;
    setup.run.microbatches = c->microbatches != 0 ? c->microbatches : setup.run.microbatches;
    setup.keep = setup.hashes = false;
    rpsim_study changed;
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rpsim_study_prepare(&setup, arena, &changed, NULL);
    if (status == RP_OK && c->transfers != 0) {
        status = scale_transfers(&changed, c->transfers);
    }
    for (uint32_t i = 0; i < changed.row_count; i++) {
        changed.rows[i].without = RPSIM_WITHOUT_STEP; /* standings need only the period */
    }
    if (status == RP_OK) {
        status = rpsim_study_run(&changed, NULL);
    }
    bool none = status == RP_USAGE || status == RP_INPUT; /* their standings stay 0 */
    rpsim_flip *flip = &comparison->flips[comparison->flip_count];
    for (uint32_t i = 0; i < comparison->count && status == RP_OK; i++) {
        flip->standings[i].tokens_per_s =
            standing_of(&changed, like, c->recompute, flip->standings[i].schedule);
    }
    rpsim_study_fini(&changed);
    rp_arena_destroy(arena);
    return none ? RP_OK : status;
}

/* Takes a flip's standings from the study's own rows if they include its recompute mode; false if
 * not. */
static bool read_rows(const rpsim_study *study, const rpsim_row *like, const change *c,
                      rpsim_comparison *comparison)
{
    bool found = false;
    rpsim_flip *flip = &comparison->flips[comparison->flip_count];
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        found = found || (same_model(row, like) && row->run.recompute == c->recompute);
    }
    for (uint32_t i = 0; found && i < comparison->count; i++) {
        flip->standings[i].tokens_per_s =
            standing_of(study, like, c->recompute, flip->standings[i].schedule);
    }
    return found;
}

static rp_status add_flip(const rpsim_study *study, const rpsim_row *like, const change *c,
                          rpsim_comparison *comparison)
{
    rpsim_flip *flip = &comparison->flips[comparison->flip_count];
    flip->what = c->what;
    RP_TRY(
        rp_arena_alloc(study->arena, comparison->count, sizeof *flip->standings, &flip->standings));
    for (uint32_t i = 0; i < comparison->count; i++) {
        flip->standings[i].schedule = comparison->standings[i].schedule;
    }
    bool other_mode = c->recompute != comparison->recompute; /* is the only change */
    if (!other_mode || !read_rows(study, like, c, comparison)) {
        RP_TRY(run_changed(study, like, c, comparison));
    }
    comparison->flip_count++;
    return RP_OK;
}

static bool has_standing(const rpsim_comparison *comparison, const char *schedule)
{
    for (uint32_t i = 0; i < comparison->count; i++) {
        if (strcmp(comparison->standings[i].schedule, schedule) == 0) {
            return true;
        }
    }
    return false;
}

static rp_status collect(const rpsim_study *study, uint32_t first, rpsim_comparison *comparison)
{
    const rpsim_row *like = &study->rows[first];
    RP_TRY(rp_arena_alloc(study->arena, study->row_count - first + study->refusal_count,
                          sizeof(rpsim_standing), &comparison->standings));
    for (uint32_t i = first; i < study->row_count && same_model(like, &study->rows[i]) &&
                             study->rows[i].run.recompute == like->run.recompute;
         i++) {
        comparison->standings[comparison->count++] = (rpsim_standing){
            .schedule = study->rows[i].schedule_name,
            .tokens_per_s =
                rpsim_row_may_fit(&study->rows[i]) ? rpsim_row_tokens_per_s(&study->rows[i]) : 0};
    }
    for (uint32_t i = 0; i < study->refusal_count; i++) {
        const rpsim_refusal *refusal = &study->refusals[i];
        if (strcmp(refusal->model_name, like->model_name) == 0 &&
            !has_standing(comparison, refusal->schedule_name)) {
            comparison->standings[comparison->count++] =
                (rpsim_standing){.schedule = refusal->schedule_name};
        }
    }
    return RP_OK;
}

/* Adds a flip with another number of sequences per microbatch in a step of the same batch. The
 * batch stays because a smaller step would lose by its optimizer, which is a different question. */
static rp_status add_size(const rpsim_study *study, const rpsim_row *like, uint32_t size,
                          rpsim_comparison *comparison)
{
    uint64_t unit = (uint64_t)size * like->run.decided.accumulate;
    uint64_t microbatches = like->run.global_batch / unit;
    if (like->run.global_batch % unit != 0 || microbatches > RP_MAX_MICROBATCHES) {
        return RP_OK;
    }
    if (microbatches > rp_resolved_microbatches(&like->run) &&
        microbatches * like->run.gpus > RPSIM_FLIP_JOBS) {
        comparison->untried_size = size;
        return RP_OK;
    }
    change c = {.recompute = comparison->recompute,
                .microbatch_size = size,
                .microbatches = (uint32_t)microbatches};
    RP_TRY(rp_arena_print(study->arena, &c.what, "microbatch size %u", size));
    return add_flip(study, like, &c, comparison);
}

/* Adds flips of settings that no schedule chooses. At stage fidelity a microbatch always has the
 * table's size, and with --config paper each schedule has settings of its own. */
static rp_status add_settings(const rpsim_study *study, const rpsim_row *like,
                              rpsim_comparison *comparison)
{
    const rpsim_setup *o = study->setup;
    const change optimizer = {.what = o->run.asynchronous ? "optimizer sync" : "optimizer async",
                              .recompute = comparison->recompute,
                              .other_optimizer = true};
    if (o->run.asynchronous ||
        o->run.iterations != 1) { /* without a barrier a single iteration has no period */
        RP_TRY(add_flip(study, like, &optimizer, comparison));
    }
    uint32_t size = (uint32_t)rpsim_row_microbatch_size(like);
    if (o->run.hardware && size != 1) {
        RP_TRY(add_size(study, like, 1, comparison));
    }
    return o->run.hardware && size != 0 ? add_size(study, like, 2 * size, comparison) : RP_OK;
}

/* If the partition was searched for, only flips of the partition are run: a search under every
 * other assumption would take too long. */
rp_status rpsim_comparison_make(const rpsim_study *study, uint32_t first,
                                rpsim_comparison *comparison_out)
{
    const rpsim_row *like = &study->rows[first];
    const rpsim_setup *o = study->setup;
    rp_recompute mode = like->run.recompute;
    bool tuned = rp_run_is_tuned(&o->run);
    *comparison_out =
        (rpsim_comparison){.model_name = like->model_name, .recompute = mode, .first = first};
    RP_TRY(collect(study, first, comparison_out));
    if (!tuned && !o->run.config_paper) {
        RP_TRY(add_settings(study, like, comparison_out));
    }
    const char *even = tuned ? "even" : NULL;
    const change changes[] = {
        {.what = "recompute none", .partition = even, .recompute = RP_RECOMPUTE_NONE},
        {.what = "recompute wait", .partition = even, .recompute = RP_RECOMPUTE_WAIT},
        {.what = "recompute early", .partition = even, .recompute = RP_RECOMPUTE_EARLY},
        {.what = "partition even", .partition = "even", .recompute = mode},
        {.what = "partition auto", .partition = "auto", .recompute = mode},
        {.what = o->run.hardware ? "host links twice as fast" : "hops for half the time",
         .recompute = mode,
         .transfers = 0.5},
        {.what = o->run.hardware ? "host links half as fast" : "hops for twice the time",
         .recompute = mode,
         .transfers = 2},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const change *c = &changes[i];
        bool same_partition = c->partition != NULL && o->run.partition != NULL &&
                              strcmp(c->partition, o->run.partition) == 0;
        bool same_mode = c->partition == NULL && c->transfers == 0 && c->recompute == mode;
        bool free = !o->run.hardware && c->transfers != 0 && like->run.costs->hop_ps == 0;
        bool searched = tuned && (c->transfers != 0 || c->recompute != mode);
        if (!same_partition && !same_mode && !searched && !free) {
            RP_TRY(add_flip(study, like, c, comparison_out));
        }
    }
    return RP_OK;
}

/* ---- reversals ------------------------------------------------------------------------------- */

static double lesser(const rpsim_reversal *r)
{
    return r->lead < r->loss ? r->lead : r->loss;
}

static int largest_first(const void *a, const void *b)
{
    const rpsim_reversal *left = a;
    const rpsim_reversal *right = b;
    double difference = lesser(right) - lesser(left);
    if (difference != 0) {
        return difference > 0 ? 1 : -1;
    }
    return left->ahead != right->ahead
               ? (left->ahead > right->ahead) - (left->ahead < right->ahead)
               : (left->behind > right->behind) - (left->behind < right->behind);
}

uint32_t rpsim_flip_reversals(const rpsim_comparison *c, const rpsim_flip *flip,
                              rpsim_reversal *reversals_out, uint32_t *pairs_out)
{
    uint32_t count = 0;
    *pairs_out = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        for (uint32_t k = i + 1; k < c->count; k++) {
            double was[2] = {c->standings[i].tokens_per_s, c->standings[k].tokens_per_s};
            double is[2] = {flip->standings[i].tokens_per_s, flip->standings[k].tokens_per_s};
            if (!(was[0] > 0 && was[1] > 0 && is[0] > 0 && is[1] > 0)) {
                continue;
            }
            ++*pairs_out;
            uint32_t lead = was[0] >= was[1] ? 0 : 1;
            if (was[lead] > was[1 - lead] && is[lead] < is[1 - lead]) {
                reversals_out[count++] =
                    (rpsim_reversal){lead == 0 ? i : k, lead == 0 ? k : i,
                                     was[lead] / was[1 - lead] - 1, is[1 - lead] / is[lead] - 1};
            }
        }
    }
    qsort(reversals_out, count, sizeof *reversals_out, largest_first);
    return count;
}
