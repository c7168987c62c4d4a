#include "sim/run/bounds/bounds.h"

#include <stdlib.h>

/* Most ops per GPU that pigeons() counts: more would change the bound too little to matter. */
#define MOST_PIGEONS 64u

/* Layer times, indexed by layer; the head's times are separate. */
typedef struct layer_times {
    int64_t *fwd;
    int64_t *bwd;
    int64_t head_fwd;
    int64_t head_bwd;
} layer_times;

typedef struct state {
    const rpsim_bound_work *work;
    uint32_t layers;
    layer_times *of_size; /* [size_count] */
    layer_times least;    /* each time's least over all sizes */
    layer_times total;    /* each time's sum over all microbatches */
    int64_t *prefix;      /* [layers + 1] least time of the first layers' forwards */
    int64_t *suffix; /* [layers + 1] least time that must follow after the first layers' backward */
    int64_t saved_ps; /* most time that overlapping pairs save */
} state;

static const rpsim_bound_class class_of[RPSIM_BOUND_COUNT] = {
#define CLASS_OF(name, key, of_class, words) RPSIM_BOUND_CLASS_##of_class,
    RPSIM_BOUND_LIST(CLASS_OF)
#undef CLASS_OF
};

static int64_t max_ps(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min_ps(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

rpsim_bound_term rpsim_bounds_term(const rpsim_bounds *bounds, rpsim_bound_class of_class)
{
    int best = RPSIM_BOUND_COUNT;
    for (int t = 0; t < RPSIM_BOUND_COUNT; t++) {
        bool larger = best == RPSIM_BOUND_COUNT || bounds->ps[t] > bounds->ps[best];
        best = class_of[t] == of_class && larger ? t : best;
    }
    return (rpsim_bound_term)best;
}

int64_t rpsim_bounds_of_class(const rpsim_bounds *bounds, rpsim_bound_class of_class)
{
    return bounds->ps[rpsim_bounds_term(bounds, of_class)];
}

int64_t rpsim_bounds_best(const rpsim_bounds *bounds)
{
    int64_t best = 0;
    for (int c = 0; c < RPSIM_BOUND_CLASS_COUNT; c++) {
        best = max_ps(best, rpsim_bounds_of_class(bounds, (rpsim_bound_class)c));
    }
    return best;
}

/* ---- layer times ----------------------------------------------------------------------------- */

static rp_status create_times(uint32_t layers, rp_arena *arena, layer_times *times)
{
    RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &times->fwd));
    return rp_arena_alloc(arena, layers, sizeof(int64_t), &times->bwd);
}

static rp_status read_size(const state *s, const rp_costs *costs, rp_arena *arena,
                           layer_times *times)
{
    int64_t slack = s->work->slack_ps;
    RP_TRY(create_times(s->layers, arena, times));
    for (uint32_t i = 0; i < s->layers; i++) {
        times->fwd[i] = max_ps(0, costs->fwd_ps[i] - slack);
        times->bwd[i] = max_ps(0, costs->bwd_ps[i] - slack);
    }
    times->head_fwd = max_ps(0, costs->head_fwd_ps - slack);
    times->head_bwd = max_ps(0, costs->head_bwd_ps - slack);
    return RP_OK;
}

static void merge(const state *s, const layer_times *times, uint32_t microbatches, bool first,
                  layer_times *least, layer_times *total)
{
    for (uint32_t i = 0; i < s->layers; i++) {
        least->fwd[i] = first ? times->fwd[i] : min_ps(least->fwd[i], times->fwd[i]);
        least->bwd[i] = first ? times->bwd[i] : min_ps(least->bwd[i], times->bwd[i]);
        total->fwd[i] += microbatches * times->fwd[i];
        total->bwd[i] += microbatches * times->bwd[i];
    }
    least->head_fwd = first ? times->head_fwd : min_ps(least->head_fwd, times->head_fwd);
    least->head_bwd = first ? times->head_bwd : min_ps(least->head_bwd, times->head_bwd);
    total->head_fwd += microbatches * times->head_fwd;
    total->head_bwd += microbatches * times->head_bwd;
}

static rp_status read_times(state *s, rp_arena *arena)
{
    const rpsim_bound_work *w = s->work;
    s->layers = w->sizes[0].costs->layers;
    RP_TRY(rp_arena_alloc(arena, w->size_count, sizeof(layer_times), &s->of_size));
    RP_TRY(create_times(s->layers, arena, &s->least));
    RP_TRY(create_times(s->layers, arena, &s->total));
    for (uint32_t k = 0; k < w->size_count; k++) {
        RP_TRY(read_size(s, w->sizes[k].costs, arena, &s->of_size[k]));
        merge(s, &s->of_size[k], w->sizes[k].microbatches, k == 0, &s->least, &s->total);
    }
    RP_TRY(rp_arena_alloc(arena, (size_t)s->layers + 1, sizeof(int64_t), &s->prefix));
    RP_TRY(rp_arena_alloc(arena, (size_t)s->layers + 1, sizeof(int64_t), &s->suffix));
    for (uint32_t i = 0; i < s->layers; i++) {
        int64_t after = s->least.bwd[i];
        after += w->recompute == RP_RECOMPUTE_WAIT ? s->least.fwd[i] : 0;
        s->prefix[i + 1] = s->prefix[i] + s->least.fwd[i];
        s->suffix[i + 1] = w->splits ? 0 : s->suffix[i] + after;
    }
    /* A pair saves a part of its shorter op, never more than the same part of its forward. */
    int64_t forwards = s->total.head_fwd;
    for (uint32_t i = 0; i < s->layers; i++) {
        forwards += s->total.fwd[i];
    }
    s->saved_ps = w->overlap_saving > 0 ? (int64_t)(w->overlap_saving * (double)forwards) + 1 : 0;
    return RP_OK;
}

static uint32_t microbatches(const state *s)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < s->work->size_count; k++) {
        count += s->work->sizes[k].microbatches;
    }
    return count;
}

/* ---- any schedule of the same work ----------------------------------------------------------- */

/* `count` items of equal length. */
typedef struct items {
    int64_t ps;
    uint64_t count;
} items;

static int longest_first(const void *a, const void *b)
{
    int64_t left = ((const items *)a)->ps;
    int64_t right = ((const items *)b)->ps;
    return (left < right) - (left > right);
}

/* The sum of the `wanted` shortest among the `among` longest items. */
static int64_t shortest_of(const items *list, uint64_t among, uint64_t wanted)
{
    uint32_t at = 0;
    int64_t sum = 0;
    while (list[at].count < among) {
        among -= list[at++].count;
    }
    for (;; among = list[--at].count) {
        uint64_t take = wanted < among ? wanted : among;
        sum += (int64_t)take * list[at].ps;
        wanted -= take;
        if (wanted == 0) {
            return sum;
        }
    }
}

static int64_t pigeons(items *list, uint32_t count, uint32_t gpus)
{
    uint64_t all = 0;
    int64_t best = 0;
    qsort(list, count, sizeof *list, longest_first);
    for (uint32_t i = 0; i < count; i++) {
        all += list[i].count;
    }
    for (uint64_t q = 0; q < MOST_PIGEONS && q * gpus < all; q++) {
        best = max_ps(best, shortest_of(list, q * gpus + 1, q + 1));
    }
    return best;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b > 0 ? 1 : 0);
}

/* The WORK term. Runs with overlapping pairs or split backwards get no pigeonhole bound: a pair may
 * take less time than its two ops. */
static rp_status bound_work(const state *s, rp_arena *arena, int64_t *ps_out)
{
    const rpsim_bound_work *w = s->work;
    items *list = NULL;
    uint32_t count = 0;
    *ps_out = ceil_div(w->busy_ps, w->gpus);
    if (w->overlap_saving > 0 || w->splits) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, (size_t)w->size_count * (2 * s->layers + 2), sizeof *list, &list));
    for (uint32_t k = 0; k < w->size_count; k++) {
        const layer_times *t = &s->of_size[k];
        uint64_t of = w->sizes[k].microbatches;
        for (uint32_t i = 0; i < s->layers; i++) {
            list[count++] = (items){t->fwd[i], of};
            list[count++] = (items){t->bwd[i], of};
        }
        list[count++] = (items){t->head_fwd, of};
        list[count++] = (items){t->head_bwd, of};
    }
    *ps_out = max_ps(*ps_out, pigeons(list, count, w->gpus));
    return RP_OK;
}

/* The time of a microbatch's forwards before its backward. Early pre-work (the forward of the head
 * and of the layers fused with it) waits for nothing; the result is the least over the number of
 * fused layers. */
static int64_t forward_path(const state *s, const layer_times *t)
{
    const rpsim_bound_work *w = s->work;
    bool early = w->separate_backward && w->recompute == RP_RECOMPUTE_EARLY;
    int64_t before = 0;
    int64_t pre = t->head_fwd;
    for (uint32_t i = 0; i < s->layers; i++) {
        before += t->fwd[i];
    }
    int64_t best = early ? max_ps(before, pre) : before + pre;
    for (uint32_t i = s->layers; early && i-- > 0;) {
        before -= t->fwd[i];
        pre += t->fwd[i];
        best = min_ps(best, max_ps(before, pre));
    }
    return best;
}

/* The CHAIN term. Recompute that waits is on the path; its amount is the run's own work less
 * forwards and backwards. */
static int64_t bound_chain(const state *s)
{
    const rpsim_bound_work *w = s->work;
    int64_t best = 0;
    int64_t work = s->total.head_fwd + s->total.head_bwd;
    for (uint32_t i = 0; i < s->layers; i++) {
        work += s->total.fwd[i] + s->total.bwd[i];
    }
    for (uint32_t k = 0; k < w->size_count; k++) {
        const layer_times *t = &s->of_size[k];
        const rp_costs *costs = w->sizes[k].costs;
        int64_t path = forward_path(s, t) + t->head_bwd;
        for (uint32_t i = 0; i < s->layers; i++) {
            int64_t input = max_ps(0, costs->bwd_input_ps[i] - 2 * w->slack_ps);
            path += w->splits && i > 0 ? min_ps(input, t->bwd[i]) : t->bwd[i];
        }
        best = max_ps(best, path);
    }
    bool known = w->size_count == 1 && w->recompute == RP_RECOMPUTE_WAIT && w->slack_ps == 0;
    if (known && w->overlap_saving == 0) {
        best += (w->busy_ps - work) / microbatches(s);
    }
    return best;
}

/* ---- any schedule with the same semantics ---------------------------------------------------- */

/* Adds two parts of a lower bound. On overflow the second part is left out, which leaves a lower
 * bound. */
static int64_t add_ps(int64_t sum, int64_t more)
{
    int64_t result = 0;
    return __builtin_add_overflow(sum, more, &result) ? sum : result;
}

/* head(k) and tail(k) of bounds.h are prefix[j] and suffix[j] with j hops each. */
typedef struct ramps {
    uint32_t forward_most;  /* heads are cut after this many layers */
    uint32_t backward_most; /* tails are cut after so many: a fused layer recomputes nothing */
    uint32_t without;       /* GPUs whose head is 0 in any case */
} ramps;

static int64_t head_of(const state *s, const ramps *r, uint32_t gpu)
{
    if (gpu < r->without) {
        return 0;
    }
    uint32_t j = (gpu - r->without) / s->work->rounds;
    return s->prefix[j < r->forward_most ? j : r->forward_most] + j * s->work->hop_ps;
}

static int64_t tail_of(const state *s, const ramps *r, uint32_t gpu)
{
    uint32_t j = gpu / s->work->rounds;
    return s->work->splits
               ? 0
               : s->suffix[j < r->backward_most ? j : r->backward_most] + j * s->work->hop_ps;
}

/* The least of (work + heads + tails) / n over n, the number of GPUs that work. */
static int64_t area(const state *s, const ramps *r, int64_t work_ps, uint32_t most_gpus)
{
    int64_t sum = work_ps;
    int64_t best = INT64_MAX;
    for (uint32_t k = 0; k < most_gpus; k++) {
        sum = add_ps(sum, add_ps(head_of(s, r, k), tail_of(s, r, k)));
        best = min_ps(best, ceil_div(sum, (int64_t)k + 1));
    }
    return best;
}

/* The work of a pipeline's layer: both directions of all microbatches. */
static int64_t layer_work(const state *s, uint32_t layer)
{
    int64_t recompute = rp_recompute_has_ops(s->work->recompute) ? s->total.fwd[layer] : 0;
    return s->total.fwd[layer] + recompute + s->total.bwd[layer];
}

/* True if all layers, each of which takes at least `unit_ps`, can be done by `end_ps`. */
static bool layers_fit(const state *s, const ramps *r, int64_t unit_ps, uint32_t gpus,
                       int64_t end_ps)
{
    uint64_t fit = 0;
    for (uint32_t k = 0; k < gpus; k++) {
        int64_t room = end_ps - add_ps(head_of(s, r, k), tail_of(s, r, k));
        fit += room > 0 ? (uint64_t)(room / unit_ps) : 0;
    }
    return fit >= s->layers;
}

/* The least time in which all work is done if every GPU has whole layers. */
static int64_t whole_layers(const state *s, const ramps *r, uint32_t gpus)
{
    int64_t unit = INT64_MAX;
    for (uint32_t i = 0; i < s->layers; i++) {
        unit = min_ps(unit, layer_work(s, i));
    }
    if (unit <= 0 || s->saved_ps > 0) {
        return 0;
    }
    int64_t low = 0; /* too early */
    int64_t high = 0;
    if (__builtin_mul_overflow(unit, (int64_t)s->layers, &high)) {
        return 0;
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        bool fits = layers_fit(s, r, unit, gpus, middle);
        low = fits ? low : middle;
        high = fits ? middle : high;
    }
    return high;
}

static rp_status pipeline_pigeons(const state *s, rp_arena *arena, int64_t *ps_out)
{
    items *list = NULL;
    RP_TRY(rp_arena_alloc(arena, s->layers, sizeof *list, &list));
    for (uint32_t i = 0; i < s->layers; i++) {
        list[i] = (items){layer_work(s, i), 1};
    }
    *ps_out = s->saved_ps > 0 ? 0 : pigeons(list, s->layers, s->work->gpus);
    return RP_OK;
}

static rp_status bound_pipeline(const state *s, rp_arena *arena, int64_t *ps_out)
{
    /* Only a GPU with a layer, or with just the head, ever works. */
    uint32_t most = s->work->gpus < s->layers + 1 ? s->work->gpus : s->layers + 1;
    ramps r = {.forward_most = s->layers, .backward_most = s->layers};
    int64_t work = s->total.head_fwd + s->total.head_bwd - s->saved_ps;
    for (uint32_t i = 0; i < s->layers; i++) {
        work += layer_work(s, i);
    }
    RP_TRY(pipeline_pigeons(s, arena, ps_out));
    *ps_out = max_ps(*ps_out, area(s, &r, work, most));
    *ps_out = max_ps(*ps_out, whole_layers(s, &r, s->work->gpus));
    return RP_OK;
}

/* The least work, for a microbatch, of a backward stage whose recompute takes more than half of all
 * forwards before the head; INT64_MAX if there is no such stage. */
static int64_t long_stage(const state *s, uint32_t unfused)
{
    int64_t best = INT64_MAX;
    for (uint32_t k = 0; k < s->work->size_count; k++) {
        const int64_t *fwd = s->of_size[k].fwd;
        int64_t all = 0;
        for (uint32_t i = 0; i < unfused; i++) {
            all += fwd[i];
        }
        uint32_t begin = 0;
        int64_t inside = 0;
        int64_t work = 0;
        for (uint32_t end = 0; end < unfused; end++) {
            inside += fwd[end];
            work += s->least.fwd[end] + s->least.bwd[end];
            while (2 * (inside - fwd[begin]) > all) {
                inside -= fwd[begin];
                work -= s->least.fwd[begin] + s->least.bwd[begin];
                begin++;
            }
            best = 2 * inside > all ? min_ps(best, work) : best;
        }
    }
    return best;
}

static uint32_t cut_head(const state *s, uint32_t unfused)
{
    uint32_t most = 0;
    while (most < unfused && 2 * s->prefix[most + 1] <= s->prefix[unfused]) {
        most++;
    }
    return most;
}

static int64_t transfer_ps(double bytes, double Bps)
{
    return Bps > 0 ? (int64_t)(bytes / Bps * 1e12) : 0;
}

/* The LINKS term. Layers are numbered 0 to layers + 1 as in rp_sizes; a fused layer's weights go up
 * once per round. */
static int64_t links(const state *s, uint32_t unfused)
{
    const rpsim_bound_work *w = s->work;
    if (w->bytes == NULL) {
        return 0;
    }
    double up = 0;
    double down = 0;
    for (uint32_t i = 0; i < s->layers + 2; i++) {
        bool twice = w->separate_backward && i <= unfused;
        up += (double)w->rounds * (twice ? 2.0 : 1.0) * (double)w->bytes->weight_bytes[i];
        up += w->gradients_up ? (double)(w->rounds - 1) * (double)w->bytes->gradient_bytes[i] : 0;
        down += (double)w->rounds * (double)w->bytes->gradient_bytes[i];
    }
    /* The end of a transfer is rounded to the nearest picosecond. */
    int64_t slack = s->work->slack_ps * (int64_t)(s->layers + 2);
    int64_t ps = max_ps(transfer_ps(up, w->upload_Bps), transfer_ps(down, w->download_Bps));
    return max_ps(0, ps - ps / 1000000000 - slack);
}

/* The bound with the last layers fused into the head's stage. */
static int64_t with_fused(const state *s, uint32_t fused)
{
    const rpsim_bound_work *w = s->work;
    uint32_t unfused = s->layers - fused;
    uint32_t homes = w->rounds < w->gpus ? w->rounds : w->gpus; /* GPUs that run the head's stage */
    int64_t size = ceil_div(microbatches(s), homes);
    bool early = w->recompute == RP_RECOMPUTE_EARLY;
    int64_t pre = s->least.head_fwd;
    int64_t head = s->least.head_fwd + s->least.head_bwd;
    int64_t work = s->total.head_fwd + s->total.head_bwd;
    for (uint32_t i = 0; i < s->layers; i++) {
        bool is_fused = i >= unfused;
        pre += is_fused ? s->least.fwd[i] : 0;
        head += is_fused ? s->least.fwd[i] + s->least.bwd[i] : 0;
        bool again = !is_fused && rp_recompute_has_ops(w->recompute);
        work += s->total.bwd[i] + (again ? 2 : 1) * s->total.fwd[i];
    }
    ramps r = {.forward_most = unfused, .backward_most = unfused};
    int64_t longest = INT64_MAX;
    if (early) {
        int64_t stage = long_stage(s, unfused);
        longest = stage == INT64_MAX ? stage : size * stage;
        r.forward_most = cut_head(s, unfused);
        r.without = 2 * pre > s->prefix[unfused] ? homes : 0;
    }
    int64_t best = area(s, &r, work, w->gpus);
    best = min_ps(best, max_ps(longest, ceil_div(work, w->gpus)));
    int64_t before = early ? max_ps(0, s->prefix[unfused] - pre) : s->prefix[unfused];
    return max_ps(best, before + size * head + s->suffix[unfused]);
}

/* The RAMP and LINKS terms: each is the least over the number of fused layers. Without recompute
 * this number does not change the work, but it changes the work of the GPU with the head's
 * stage. */
static void bound_rounds(const state *s, int64_t *ramp_out, int64_t *links_out)
{
    *ramp_out = INT64_MAX;
    *links_out = INT64_MAX;
    for (uint32_t fused = 0; fused <= s->layers; fused++) {
        int64_t link_ps = links(s, s->layers - fused);
        *links_out = min_ps(*links_out, link_ps);
        *ramp_out = min_ps(*ramp_out, max_ps(with_fused(s, fused), link_ps));
    }
}

/* The HOST term. The optimizer needs all gradients, and the last gradients have to be collected
 * before it. */
static int64_t bound_host(const state *s, int64_t compute_ps)
{
    const rpsim_bound_work *w = s->work;
    double parameters = 0;
    double least = 0;
    for (uint32_t i = 0; i < s->layers + 2; i++) {
        double of = (double)w->bytes->parameters[i];
        parameters += of;
        least = of > 0 && (least == 0 || of < least) ? of : least;
    }
    const rp_step_bytes *step = &w->bytes->step;
    int64_t ps = transfer_ps(parameters * step->adam, w->adam_Bps);
    ps += w->asynchronous ? 0 : transfer_ps(parameters * step->refresh, w->refresh_Bps);
    ps += transfer_ps(least * step->collect, w->collect_Bps);
    return compute_ps + max_ps(0, ps - ps / 1000000000 - (int64_t)(s->layers + 4));
}

static rp_status bound_same(const state *s, rp_arena *arena, rpsim_bounds *bounds)
{
    if (s->work->rounds == 0) {
        return RP_OK;
    }
    if (s->work->separate_backward) {
        bound_rounds(s, &bounds->ps[RPSIM_BOUND_RAMP], &bounds->ps[RPSIM_BOUND_LINKS]);
    } else {
        RP_TRY(bound_pipeline(s, arena, &bounds->ps[RPSIM_BOUND_RAMP]));
        bounds->ps[RPSIM_BOUND_LINKS] = links(s, 0);
    }
    if (s->work->bytes != NULL) {
        int64_t compute = max_ps(bounds->ps[RPSIM_BOUND_RAMP], bounds->ps[RPSIM_BOUND_CHAIN]);
        bounds->ps[RPSIM_BOUND_HOST] = bound_host(s, compute);
    }
    return RP_OK;
}

rp_status rpsim_bounds_of_work(const rpsim_bound_work *work, rpsim_bounds *bounds_out)
{
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    state s = {.work = work};
    rp_status status = read_times(&s, arena);
    if (status == RP_OK) {
        status = bound_work(&s, arena, &bounds_out->ps[RPSIM_BOUND_WORK]);
    }
    if (status == RP_OK) {
        bounds_out->ps[RPSIM_BOUND_CHAIN] = bound_chain(&s);
        status = bound_same(&s, arena, bounds_out);
    }
    rp_arena_destroy(arena);
    return status;
}
