#include "tests/reference/slow_planner.h"

#include <stdlib.h>

static int64_t sum(const int64_t *values, int begin, int end)
{
    int64_t total = 0;
    for (int i = begin; i < end; i++) {
        total += values[i];
    }
    return total;
}

static int64_t max_of(const int64_t *values, int count, int64_t least)
{
    int64_t most = least;
    for (int i = 0; i < count; i++) {
        most = values[i] > most ? values[i] : most;
    }
    return most;
}

static int64_t scale_of(const slow_plan_input *in)
{
    int64_t scale = max_of(in->f, in->layers, 0);
    return in->mode == SLOW_PLAN_INFER ? scale : max_of(in->b, in->layers, scale);
}

static int64_t limit_of(const slow_plan_input *in, bool *raised_out)
{
    int64_t biggest = max_of(in->mode == SLOW_PLAN_INFER ? in->p : in->q, in->layers, 0);
    *raised_out = 2 * biggest > in->limit;
    return *raised_out ? 2 * biggest : in->limit;
}

/* fits(t, m) of the pseudo-code for the layers begin .. end - 1 */
static bool fits(const slow_plan_input *in, const int64_t *times, const int64_t *bytes, int begin,
                 int end, int64_t cap)
{
    bool raised = false;
    return sum(times, begin, end) <= cap && 2 * sum(bytes, begin, end) <= limit_of(in, &raised);
}

static void pack_under(const slow_plan_input *in, int64_t cap, slow_plan *plan)
{
    int n = in->layers;
    int cut = n;
    if (in->mode == SLOW_PLAN_FUSED) {
        while (cut > 0 && fits(in, in->b, in->q, cut - 1, n, cap)) {
            cut--;
        }
    }
    /* F, in the order of packing: from the deep end */
    int count = 0;
    int packed[SLOW_PLAN_LAYERS][2];
    for (int layer = cut - 1; layer >= 0; layer--) {
        if (count > 0 && fits(in, in->f, in->p, layer, packed[count - 1][1], cap)) {
            packed[count - 1][0] = layer;
        } else {
            packed[count][0] = layer;
            packed[count][1] = layer + 1;
            count++;
        }
    }
    plan->forward_count = count;
    for (int i = 0; i < count; i++) {
        plan->forward[i][0] = packed[count - 1 - i][0];
        plan->forward[i][1] = packed[count - 1 - i][1];
    }
    /* B, in the order of packing: from layer 0 */
    count = 0;
    for (int layer = 0; layer < cut && in->mode != SLOW_PLAN_INFER; layer++) {
        if (count > 0 && fits(in, in->b, in->q, packed[count - 1][0], layer + 1, cap)) {
            packed[count - 1][1] = layer + 1;
        } else {
            packed[count][0] = layer;
            packed[count][1] = layer + 1;
            count++;
        }
    }
    plan->backward_count = 0;
    if (in->mode == SLOW_PLAN_FUSED) {
        plan->backward[0][0] = cut;
        plan->backward[0][1] = n;
        plan->backward_count = 1;
    }
    for (int i = count - 1; i >= 0; i--) {
        plan->backward[plan->backward_count][0] = packed[i][0];
        plan->backward[plan->backward_count][1] = packed[i][1];
        plan->backward_count++;
    }
    plan->cap = cap;
    int64_t stages = plan->forward_count + plan->backward_count;
    plan->cost = (stages > in->min_stages ? stages : in->min_stages) * cap;
    plan->limit = limit_of(in, &plan->raised);
}

static int compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

/* CAPS of the pseudo-code, ascending, with repetitions. The caller frees. */
static int64_t *list_caps(const slow_plan_input *in, int *count_out)
{
    int n = in->layers;
    int64_t scale = scale_of(in);
    int64_t *caps = malloc(sizeof *caps * 2 * (size_t)n * (size_t)n);
    int count = 0;
    if (caps == NULL) {
        abort();
    }
    for (int direction = 0; direction < (in->mode == SLOW_PLAN_INFER ? 1 : 2); direction++) {
        const int64_t *times = direction == 0 ? in->f : in->b;
        for (int begin = 0; begin < n; begin++) {
            int64_t total = 0;
            for (int end = begin + 1; end <= n; end++) {
                total += times[end - 1];
                if (scale <= total && total * in->den <= scale * in->num) {
                    caps[count++] = total;
                }
            }
        }
    }
    qsort(caps, (size_t)count, sizeof *caps, compare);
    *count_out = count;
    return caps;
}

void slow_plan_make(const slow_plan_input *input, slow_plan *plan_out)
{
    int count = 0;
    int64_t *caps = list_caps(input, &count);
    bool nothing = true;
    for (int i = 0; i < count; i++) {
        if (i > 0 && caps[i] == caps[i - 1]) {
            continue; /* the pseudo-code calls this harmless; it only saves time here */
        }
        slow_plan plan;
        pack_under(input, caps[i], &plan);
        if (nothing || plan.cost < plan_out->cost) {
            *plan_out = plan;
            nothing = false;
        }
    }
    free(caps);
    if (nothing) {
        abort();
    }
}

int slow_plan_caps(const slow_plan_input *input, int most, int64_t *caps_out, int *stages_out)
{
    int count = 0;
    int kept = 0;
    int64_t *caps = list_caps(input, &count);
    for (int i = 0; i < count; i++) {
        if (i > 0 && caps[i] == caps[i - 1]) {
            continue;
        }
        if (kept < most) {
            slow_plan plan;
            pack_under(input, caps[i], &plan);
            caps_out[kept] = caps[i];
            stages_out[kept] = plan.forward_count + plan.backward_count;
        }
        kept++;
    }
    free(caps);
    return kept;
}

/* The fewest stages for layers 0 .. end - 1 over all 2^(end-1) ways to cut them; -1: no way fits.
 */
static int fewest_cuts(const slow_plan_input *in, const int64_t *times, const int64_t *bytes,
                       int end, int64_t cap)
{
    if (end == 0) {
        return 0;
    }
    int fewest = -1;
    for (unsigned cuts = 0; cuts < 1u << (end - 1); cuts++) { /* bit i: cut after layer i */
        int stages = 0;
        int begin = 0;
        bool all_fit = true;
        for (int i = 0; i < end; i++) {
            if (i == end - 1 || (cuts >> i & 1u) != 0) {
                all_fit = all_fit && fits(in, times, bytes, begin, i + 1, cap);
                begin = i + 1;
                stages++;
            }
        }
        if (all_fit && (fewest < 0 || stages < fewest)) {
            fewest = stages;
        }
    }
    return fewest;
}

int slow_plan_fewest_stages(const slow_plan_input *input, int64_t cap)
{
    int n = input->layers;
    if (input->mode == SLOW_PLAN_INFER) {
        return fewest_cuts(input, input->f, input->p, n, cap);
    }
    if (input->mode == SLOW_PLAN_TRAIN) {
        return fewest_cuts(input, input->f, input->p, n, cap) +
               fewest_cuts(input, input->b, input->q, n, cap);
    }
    int fewest = -1;
    for (int cut = 0; cut < n; cut++) {
        if (!fits(input, input->b, input->q, cut, n, cap)) {
            continue;
        }
        int stages = 1 + fewest_cuts(input, input->f, input->p, cut, cap) +
                     fewest_cuts(input, input->b, input->q, cut, cap);
        fewest = fewest < 0 || stages < fewest ? stages : fewest;
    }
    return fewest;
}

static bool forward_is_valid(const slow_plan_input *in, const slow_plan *plan, int cut)
{
    int next = 0;
    for (int i = 0; i < plan->forward_count; i++) {
        const int *stage = plan->forward[i];
        if (stage[0] != next || stage[1] <= stage[0] ||
            !fits(in, in->f, in->p, stage[0], stage[1], plan->cap)) {
            return false;
        }
        next = stage[1];
    }
    return next == cut;
}

bool slow_plan_is_valid(const slow_plan_input *input, const slow_plan *plan)
{
    int cut = input->layers;
    if (input->mode == SLOW_PLAN_FUSED) {
        cut = plan->backward_count > 0 ? plan->backward[0][0] : -1;
    }
    if (!forward_is_valid(input, plan, cut)) {
        return false;
    }
    if (input->mode == SLOW_PLAN_INFER) {
        return plan->backward_count == 0;
    }
    int behind = input->layers;
    for (int i = 0; i < plan->backward_count; i++) {
        const int *stage = plan->backward[i];
        if (stage[1] != behind || stage[1] <= stage[0] ||
            !fits(input, input->b, input->q, stage[0], stage[1], plan->cap)) {
            return false;
        }
        behind = stage[0];
    }
    return behind == 0;
}
