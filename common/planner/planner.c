/* Greedy packing under a cap, and the search for the best cap.
 *
 * The rules try as caps all sums of contiguous windows between `scale`, the time of the longest
 * layer, and `top`, the tolerance times `scale`. This code searches all integers in [scale, top]
 * instead and finds the same plan: let S(cap) be the number of stages that greedy packing needs. A
 * larger cap never needs more stages. If S(cap) < S(cap - 1), some group fits into cap but not into
 * cap - 1, so cap is a window sum; scale is also a window sum (a single layer). Any other cap needs
 * as many stages as the cap below it and costs more. Hence the cheapest integer, the smallest of
 * equals, is a window sum. Since S is monotone, bisection finds it: between two caps of equal S no
 * cap is better, and between two others no cap is cheaper than (stages at the upper end) * (lower
 * end + 1). */
#include "common/planner/planner.h"

#include "common/base/reason.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Sums over the first 0, 1, … n layers. */
typedef struct lane {
    int64_t *time;
    uint64_t *bytes;
} lane;

/* Numbers of stages under a cap. */
typedef struct packing {
    int64_t cap;
    uint32_t cut; /* mode fused: first layer of the fused stage; other modes: number of layers */
    uint32_t forward;
    uint32_t backward;
} packing;

typedef struct planner {
    const rp_plan_input *input;
    lane forward;
    lane backward; /* empty for infer */
    uint64_t limit;
    uint64_t stage_limit;
    bool limit_raised;
    int64_t scale;
    int64_t top;
    packing best;
    int64_t best_cost;
} planner;

const char *rp_plan_mode_text(rp_plan_mode mode)
{
    switch (mode) {
#define MODE_TEXT(name, text, meaning)                                                             \
    case name:                                                                                     \
        return text;
        RP_PLAN_MODE_LIST(MODE_TEXT)
#undef MODE_TEXT
    }
    return "?";
}

bool rp_plan_mode_parse(const char *text, rp_plan_mode *mode_out)
{
#define MODE_PARSE(name, own, meaning)                                                             \
    if (strcmp(text, own) == 0) {                                                                  \
        *mode_out = name;                                                                          \
        return true;                                                                               \
    }
    RP_PLAN_MODE_LIST(MODE_PARSE)
#undef MODE_PARSE
    return false;
}

/* ---- input ----------------------------------------------------------------------------------- */

static const char *origin(const rp_plan_input *input)
{
    return input->name != NULL ? input->name : "planner";
}

static rp_status check_numbers(const rp_plan_input *input, rp_reason *reason)
{
    if (input->layers < 1 || input->layers > RP_PLAN_MAX_LAYERS) {
        return rp_refuse_at(reason, RP_INPUT, origin(input), 0,
                            "%" PRIu32 " layers; valid values are 1 to %u", input->layers,
                            RP_PLAN_MAX_LAYERS);
    }
    if (input->min_stages < 1) {
        return rp_refuse_at(reason, RP_INPUT, origin(input), 0,
                            "at least 0 stages; valid values are 1 and more");
    }
    if (input->tolerance_den < 1 || input->tolerance_num < input->tolerance_den) {
        return rp_refuse_at(reason, RP_INPUT, origin(input), 0,
                            "tolerance %" PRIu32 "/%" PRIu32
                            " is below 1; valid values are 1 and more",
                            input->tolerance_num, input->tolerance_den);
    }
    return RP_OK;
}

static rp_status too_large(const rp_plan_input *input, const char *what, rp_reason *reason)
{
    return rp_refuse_at(
        reason, RP_INPUT, origin(input), 0,
        "the %s of all layers together are too large; valid are sums up to %" PRId64, what,
        INT64_MAX);
}

static rp_status sum_lane(const rp_plan_input *input, const int64_t *time, const uint64_t *bytes,
                          rp_arena *arena, lane *lane_out, rp_reason *reason)
{
    size_t count = (size_t)input->layers + 1;
    RP_TRY(rp_arena_alloc(arena, count, sizeof(int64_t), &lane_out->time));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint64_t), &lane_out->bytes));
    for (uint32_t i = 0; i < input->layers; i++) {
        if (time[i] < 0) {
            return rp_refuse_at(reason, RP_INPUT, origin(input), 0,
                                "layer %" PRIu32 " takes %" PRId64 "; valid times are 0 and more",
                                i, time[i]);
        }
        if (time[i] > INT64_MAX - lane_out->time[i]) {
            return too_large(input, "times", reason);
        }
        if (bytes[i] > (uint64_t)INT64_MAX - lane_out->bytes[i]) {
            return too_large(input, "bytes", reason);
        }
        lane_out->time[i + 1] = lane_out->time[i] + time[i];
        lane_out->bytes[i + 1] = lane_out->bytes[i] + bytes[i];
    }
    return RP_OK;
}

/* The largest integer that is at most value * num / den; INT64_MAX if that is too large. */
static int64_t scaled(int64_t value, uint32_t num, uint32_t den)
{
    int64_t whole = 0;
    int64_t rest = (int64_t)((uint64_t)(value % den) * num / den); /* both below 2^32 */
    if (__builtin_mul_overflow(value / den, (int64_t)num, &whole) ||
        __builtin_add_overflow(whole, rest, &whole)) {
        return INT64_MAX;
    }
    return whole;
}

static void set_memory(planner *p)
{
    const rp_plan_input *input = p->input;
    const uint64_t *bytes = input->mode == RP_PLAN_INFER ? input->fwd_bytes : input->bwd_bytes;
    uint64_t biggest = 0;
    for (uint32_t i = 0; i < input->layers; i++) {
        biggest = bytes[i] > biggest ? bytes[i] : biggest;
    }
    p->limit_raised = 2 * biggest > input->memory_limit;
    p->limit = p->limit_raised ? 2 * biggest : input->memory_limit;
    p->stage_limit = p->limit / 2; /* 2 m <= limit */
}

static rp_status set_caps(planner *p, rp_reason *reason)
{
    const rp_plan_input *input = p->input;
    bool infer = input->mode == RP_PLAN_INFER;
    for (uint32_t i = 0; i < input->layers; i++) {
        p->scale = input->fwd_time[i] > p->scale ? input->fwd_time[i] : p->scale;
        if (!infer && input->bwd_time[i] > p->scale) {
            p->scale = input->bwd_time[i];
        }
    }
    int64_t longest = p->forward.time[input->layers]; /* no window is longer */
    if (!infer && p->backward.time[input->layers] > longest) {
        longest = p->backward.time[input->layers];
    }
    p->top = scaled(p->scale, input->tolerance_num, input->tolerance_den);
    p->top = longest < p->top ? longest : p->top;
    uint32_t stages = infer ? input->layers : 2 * input->layers;
    stages = stages > input->min_stages ? stages : input->min_stages;
    int64_t cost = 0;
    if (__builtin_mul_overflow(p->top, (int64_t)stages, &cost)) {
        return rp_refuse_at(reason, RP_INPUT, origin(input), 0,
                            "%" PRIu32 " stages of up to %" PRId64 " are too long; valid are times "
                            "whose product with the stages is up to %" PRId64,
                            stages, p->top, INT64_MAX);
    }
    return RP_OK;
}

static rp_status planner_init(const rp_plan_input *input, rp_arena *arena, planner *p,
                              rp_reason *reason)
{
    *p = (planner){.input = input};
    RP_TRY(check_numbers(input, reason));
    RP_TRY(sum_lane(input, input->fwd_time, input->fwd_bytes, arena, &p->forward, reason));
    if (input->mode != RP_PLAN_INFER) {
        RP_TRY(sum_lane(input, input->bwd_time, input->bwd_bytes, arena, &p->backward, reason));
    }
    set_memory(p);
    return set_caps(p, reason);
}

/* ---- packing --------------------------------------------------------------------------------- */

static bool fits(const planner *p, const lane *l, uint32_t begin, uint32_t end, int64_t cap)
{
    return l->time[end] - l->time[begin] <= cap &&
           l->bytes[end] - l->bytes[begin] <= p->stage_limit;
}

static uint32_t fused_cut(const planner *p, int64_t cap)
{
    uint32_t layers = p->input->layers;
    uint32_t cut = layers;
    if (p->input->mode == RP_PLAN_FUSED) {
        while (cut > 0 && fits(p, &p->backward, cut - 1, layers, cap)) {
            cut--;
        }
    }
    return cut;
}

/* Packs layers cut - 1 … 0 into groups. `last` points to the last interval of an array with room
 * for all groups, or is NULL. */
static uint32_t pack_forward(const planner *p, uint32_t cut, int64_t cap, rp_interval *last)
{
    uint32_t count = 0;
    for (uint32_t end = cut; end > 0; count++) {
        uint32_t begin = end - 1;
        while (begin > 0 && fits(p, &p->forward, begin - 1, end, cap)) {
            begin--;
        }
        if (last != NULL) {
            *(last - count) = (rp_interval){begin, end};
        }
        end = begin;
    }
    return count;
}

/* Packs layers 0 … cut - 1 into groups, whose order is reversed, too; `last` as for
 * pack_forward. */
static uint32_t pack_backward(const planner *p, uint32_t cut, int64_t cap, rp_interval *last)
{
    uint32_t count = 0;
    for (uint32_t begin = 0; begin < cut; count++) {
        uint32_t end = begin + 1;
        while (end < cut && fits(p, &p->backward, begin, end + 1, cap)) {
            end++;
        }
        if (last != NULL) {
            *(last - count) = (rp_interval){begin, end};
        }
        begin = end;
    }
    return count;
}

static packing pack(const planner *p, int64_t cap)
{
    packing packed = {.cap = cap, .cut = fused_cut(p, cap)};
    packed.forward = pack_forward(p, packed.cut, cap, NULL);
    if (p->input->mode != RP_PLAN_INFER) {
        packed.backward = pack_backward(p, packed.cut, cap, NULL);
        packed.backward += packed.cut < p->input->layers ? 1 : 0;
    }
    return packed;
}

/* ---- search ---------------------------------------------------------------------------------- */

static uint32_t stages_of(const packing *packed)
{
    return packed->forward + packed->backward;
}

/* Stages that the cost counts: at least min_stages. */
static uint32_t paid_stages(const planner *p, const packing *packed)
{
    uint32_t stages = stages_of(packed);
    return stages > p->input->min_stages ? stages : p->input->min_stages;
}

static bool is_better(const planner *p, int64_t cost, int64_t cap)
{
    return cost < p->best_cost || (cost == p->best_cost && cap < p->best.cap);
}

static packing try_cap(planner *p, int64_t cap)
{
    packing packed = pack(p, cap);
    int64_t cost = paid_stages(p, &packed) * cap;
    if (is_better(p, cost, cap)) {
        p->best = packed;
        p->best_cost = cost;
    }
    return packed;
}

/* Tries caps between two tried caps that may be better. At most 63 calls deep. */
static void search_between(planner *p, const packing *low, const packing *high)
{
    if (high->cap - low->cap < 2 || paid_stages(p, low) == paid_stages(p, high)) {
        return;
    }
    if (!is_better(p, paid_stages(p, high) * (low->cap + 1), low->cap + 1)) {
        return;
    }
    packing middle = try_cap(p, low->cap + (high->cap - low->cap) / 2);
    search_between(p, low, &middle);
    search_between(p, &middle, high);
}

static void search(planner *p)
{
    packing low = pack(p, p->scale);
    p->best = low;
    p->best_cost = paid_stages(p, &low) * low.cap;
    packing high = try_cap(p, p->top);
    search_between(p, &low, &high);
}

rp_status rp_plan_make(const rp_plan_input *input, rp_arena *arena, rp_plan *plan_out,
                       rp_reason *reason)
{
    planner p;
    RP_TRY(planner_init(input, arena, &p, reason));
    search(&p);
    const packing *best = &p.best;
    *plan_out = (rp_plan){.forward_count = best->forward,
                          .backward_count = best->backward,
                          .max_stage_workload = best->cap,
                          .total_stages = stages_of(best),
                          .cost = p.best_cost,
                          .effective_memory_limit = p.limit,
                          .limit_raised = p.limit_raised};
    RP_TRY(rp_arena_alloc(arena, best->forward, sizeof(rp_interval), &plan_out->forward));
    RP_TRY(rp_arena_alloc(arena, best->backward, sizeof(rp_interval), &plan_out->backward));
    if (best->forward > 0) {
        pack_forward(&p, best->cut, best->cap, plan_out->forward + best->forward - 1);
    }
    if (best->backward > 0) {
        pack_backward(&p, best->cut, best->cap, plan_out->backward + best->backward - 1);
        if (best->cut < input->layers) {
            plan_out->backward[0] = (rp_interval){best->cut, input->layers};
        }
    }
    return RP_OK;
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* Visits the windows of an array with scale <= sum <= top; both ends only move forward. Writes
 * their sums if `sums` is not NULL; stops counting above RP_PLAN_MAX_WINDOWS. */
static uint32_t visit_windows(const planner *p, const int64_t *time, int64_t *sums)
{
    uint32_t layers = p->input->layers;
    uint32_t first = 1;  /* first end of a window that is long enough */
    uint32_t behind = 1; /* first end of a window that is too long */
    uint64_t count = 0;
    for (uint32_t begin = 0; begin < layers; begin++) {
        first = first > begin ? first : begin + 1;
        while (first <= layers && time[first] - time[begin] < p->scale) {
            first++;
        }
        behind = behind > first ? behind : first;
        while (behind <= layers && time[behind] - time[begin] <= p->top) {
            behind++;
        }
        for (uint32_t end = first; sums != NULL && end < behind; end++) {
            sums[count + end - first] = time[end] - time[begin];
        }
        count += behind - first;
        if (count > RP_PLAN_MAX_WINDOWS) {
            return RP_PLAN_MAX_WINDOWS + 1;
        }
    }
    return (uint32_t)count;
}

static int compare_sums(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Sorts the sums, drops repetitions and returns the number of different sums. */
static uint32_t sort_unique(int64_t *sums, uint32_t count)
{
    qsort(sums, count, sizeof *sums, compare_sums);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || sums[kept - 1] != sums[i]) {
            sums[kept++] = sums[i];
        }
    }
    return kept;
}

/* Fills list[low + 1 … high - 1]: if both ends have equally many stages, all caps between them
 * do. */
static void fill_between(const planner *p, rp_plan_candidate *list, uint32_t low, uint32_t high)
{
    if (high - low < 2) {
        return;
    }
    if (list[low].stages == list[high].stages) {
        for (uint32_t i = low + 1; i < high; i++) {
            list[i].stages = list[low].stages;
        }
        return;
    }
    uint32_t middle = low + (high - low) / 2;
    packing packed = pack(p, list[middle].cap);
    list[middle].stages = stages_of(&packed);
    fill_between(p, list, low, middle);
    fill_between(p, list, middle, high);
}

static void fill_list(const planner *p, rp_plan_candidate *list, uint32_t count)
{
    packing low = pack(p, list[0].cap);
    packing high = pack(p, list[count - 1].cap);
    list[0].stages = stages_of(&low);
    list[count - 1].stages = stages_of(&high);
    fill_between(p, list, 0, count - 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t least = p->input->min_stages;
        list[i].cost = (list[i].stages > least ? list[i].stages : least) * list[i].cap;
    }
}

rp_status rp_plan_candidates(const rp_plan_input *input, rp_arena *arena,
                             rp_plan_candidate **candidates_out, uint32_t *count_out,
                             rp_reason *reason)
{
    planner p;
    *candidates_out = NULL;
    *count_out = 0;
    RP_TRY(planner_init(input, arena, &p, reason));
    bool infer = input->mode == RP_PLAN_INFER;
    uint32_t forward = visit_windows(&p, p.forward.time, NULL);
    uint32_t backward = infer ? 0 : visit_windows(&p, p.backward.time, NULL);
    if (forward + backward > RP_PLAN_MAX_WINDOWS) {
        return RP_OK;
    }
    int64_t *sums = NULL;
    RP_TRY(rp_arena_alloc(arena, forward + backward, sizeof *sums, &sums));
    visit_windows(&p, p.forward.time, sums);
    if (!infer) {
        visit_windows(&p, p.backward.time, sums + forward);
    }
    uint32_t count = sort_unique(sums, forward + backward);
    RP_TRY(rp_arena_alloc(arena, count, sizeof **candidates_out, candidates_out));
    for (uint32_t i = 0; i < count; i++) {
        (*candidates_out)[i].cap = sums[i];
    }
    fill_list(&p, *candidates_out, count);
    *count_out = count;
    return RP_OK;
}
