/* RoundPipe's ranges and the lines of its timer. */
#include "sim/interchange/roundpipe.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/base/units.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- ranges ---------------------------------------------------------------------------------- */

static const struct action {
    const char *range; /* text in the profiler's ranges */
    const char *timer;
    rp_torch_type type;
    bool recompute;
} actions[] = {{"Fwd", "fwd", RP_TORCH_FORWARD, false},
               {"Re", "re", RP_TORCH_FORWARD, true},
               {"Bwd", "bwd", RP_TORCH_BACKWARD, false}};

#define ACTIONS (sizeof actions / sizeof actions[0])

/* Reads a number and moves past it. @return false: no digits, or too large */
static bool take_number(const char **at, uint32_t most, uint32_t *value_out)
{
    uint32_t value = 0;
    const char *begin = *at;
    for (; **at >= '0' && **at <= '9' && value <= most; (*at)++) {
        value = 10 * value + (uint32_t)(**at - '0');
    }
    *value_out = value;
    return *at != begin && value <= most;
}

static bool take_text(const char **at, const char *text)
{
    size_t length = strlen(text);
    bool there = strncmp(*at, text, length) == 0;
    *at += there ? length : 0;
    return there;
}

/* Finds the last "L[", since a model's name stands before it. */
static const char *find_layer(const char *name)
{
    const char *found = NULL;
    for (const char *at = strstr(name, "L["); at != NULL; at = strstr(at + 1, "L[")) {
        found = at;
    }
    return found;
}

uint32_t rpsim_roundpipe_range(const char *name, rpsim_range *range_out)
{
    uint32_t first = 0;
    uint32_t last = 0;
    uint32_t microbatch = 0;
    const char *at = find_layer(name);
    if (at == NULL || !take_text(&at, "L[") || !take_number(&at, RP_MAX_LAYERS, &first)) {
        return UINT32_MAX;
    }
    last = first;
    if (take_text(&at, ", ") && (!take_number(&at, RP_MAX_LAYERS, &last) || last < first)) {
        return UINT32_MAX;
    }
    if (!take_text(&at, "]B[") || !take_number(&at, UINT32_MAX / 16, &microbatch) ||
        !take_text(&at, "]")) {
        return UINT32_MAX;
    }
    for (size_t i = 0; i < ACTIONS; i++) {
        if (strcmp(at, actions[i].range) == 0 &&
            (last == first || actions[i].type == RP_TORCH_BACKWARD)) {
            *range_out = (rpsim_range){.stage = first,
                                       .pair_stage = last == first ? 0 : last,
                                       .type = (uint8_t)actions[i].type,
                                       .recompute = actions[i].recompute};
            return last;
        }
    }
    return UINT32_MAX;
}

static rp_status append(rpsim_ranges *ranges, rpsim_range range)
{
    RP_TRY(
        rp_mem_reserve(&ranges->ranges, ranges->count, &ranges->capacity, sizeof *ranges->ranges));
    ranges->ranges[ranges->count++] = range;
    return RP_OK;
}

/* Shares the backward of `group`, which is a copy because the array may move. */
static rp_status share_group(rpsim_ranges *ranges, rpsim_range group, const double *weights)
{
    double sum = 0;
    uint32_t layers = group.pair_stage - group.stage + 1;
    for (uint32_t i = group.stage; i <= group.pair_stage; i++) {
        sum += weights[i];
    }
    for (uint32_t i = group.stage; i <= group.pair_stage; i++) {
        double part = sum > 0 ? weights[i] / sum : 1.0 / layers;
        RP_TRY(append(ranges, (rpsim_range){.stage = i,
                                            .type = RP_TORCH_BACKWARD,
                                            .ps = (int64_t)llround(part * (double)group.ps)}));
    }
    return RP_OK;
}

rp_status rpsim_roundpipe_share(rpsim_ranges *ranges, rp_arena *arena)
{
    rpsim_range_summary *summaries = NULL;
    uint32_t count = 0;
    double *weights = NULL;
    RP_TRY(rpsim_ranges_summarise(ranges, arena, &summaries, &count));
    RP_TRY(rp_arena_alloc(arena, ranges->stage_count, sizeof *weights, &weights));
    memset(weights, 0, ranges->stage_count * sizeof *weights);
    for (uint32_t i = 0; i < count; i++) { /* recomputes come after forwards and replace them */
        if (summaries[i].type == RP_TORCH_FORWARD) {
            weights[summaries[i].stage] = (double)summaries[i].median_ps;
        }
    }
    uint32_t kept = 0;
    uint32_t read = ranges->count;
    for (uint32_t i = 0; i < read; i++) {
        if (ranges->ranges[i].pair_stage != 0) {
            RP_TRY(share_group(ranges, ranges->ranges[i], weights));
        }
    }
    for (uint32_t i = 0; i < ranges->count; i++) {
        if (ranges->ranges[i].pair_stage == 0) {
            ranges->ranges[kept++] = ranges->ranges[i];
        }
    }
    ranges->count = kept;
    return RP_OK;
}

rp_status rpsim_roundpipe_ends(const rpsim_ranges *ranges, rp_costs *costs)
{
    if (costs->layers < 3) {
        rp_log_error_at(ranges->name, 0,
                        "%" PRIu32
                        " layers, of which the first were the embedding and the last the "
                        "head; valid are three or more, or {ends} none",
                        costs->layers);
        return RP_INPUT;
    }
    int64_t *const lists[] = {costs->fwd_ps, costs->bwd_ps, costs->bwd_input_ps};
    uint32_t last = costs->layers - 1;
    costs->head_fwd_ps = costs->fwd_ps[last];
    costs->head_bwd_ps = costs->bwd_ps[last];
    costs->layers -= 2;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        int64_t first_ps = lists[i][0];
        memmove(lists[i], lists[i] + 1, costs->layers * sizeof *lists[i]);
        lists[i][0] += first_ps;
    }
    return RP_OK;
}

/* ---- the timer ------------------------------------------------------------------------------- */

#define RECORD "  new record: "
#define ESTIMATE " ms  new estimate: "

typedef struct timer {
    const char *name;
    size_t line;
    uint32_t layers; /* number of layers in an update; 0: the first update goes on */
    uint32_t next;   /* layer within the update */
    size_t action;
    uint32_t updates[ACTIONS];
    uint32_t first[ACTIONS]; /* range of the first update's layer 0 */
} timer;

static rp_status refuse(const timer *t, const char *cause)
{
    rp_log_error_at(t->name, t->line,
                    "%s; valid are lines as RoundPipe's timer prints them, 'Layer 3 fwd  new "
                    "record: 1.234 ms  new estimate: 1.300 ms', each update with all layers from "
                    "0 on",
                    cause);
    return RP_INPUT;
}

/* Ends an update: all updates must have the same number of layers. */
static rp_status end_update(timer *t)
{
    if (t->layers != 0 && t->next != t->layers) {
        return refuse(t, "an update before this line has other layers than the first");
    }
    t->layers = t->next;
    t->next = 0;
    return RP_OK;
}

static rp_status take_record(timer *t, uint32_t layer, size_t action, double ms,
                             rpsim_ranges *ranges)
{
    if (t->next > 0 && (layer == 0 || action != t->action)) {
        RP_TRY(end_update(t));
    }
    if (layer != t->next || (t->layers != 0 && layer >= t->layers)) {
        return refuse(t, "a layer out of order");
    }
    if (layer == 0 && t->updates[action]++ == 0) {
        t->first[action] = ranges->count;
    }
    t->next = layer + 1;
    t->action = action;
    ranges->stage_count = layer >= ranges->stage_count ? layer + 1 : ranges->stage_count;
    return append(ranges, (rpsim_range){.stage = layer,
                                        .type = (uint8_t)actions[action].type,
                                        .recompute = actions[action].recompute,
                                        .ps = (int64_t)llround(ms * 1e9)});
}

/* Reads the number before the text `behind`. */
static bool take_ms(const char **at, const char *behind, double *ms_out)
{
    char number[64];
    const char *end = strstr(*at, behind);
    size_t length = end != NULL ? (size_t)(end - *at) : 0;
    if (length == 0 || length >= sizeof number) {
        return false;
    }
    memcpy(number, *at, length);
    number[length] = '\0';
    *at = end + strlen(behind);
    return rp_parse_double(number, 0, RP_MAX_COST_MS, ms_out);
}

static rp_status read_line(timer *t, const char *line, rpsim_ranges *ranges)
{
    const char *at = NULL;
    uint32_t layer = 0;
    double ms = 0;
    if (strstr(line, RECORD) == NULL) {
        return RP_OK;
    }
    for (const char *word = strstr(line, "Layer "); word != NULL;
         word = strstr(word + 1, "Layer ")) {
        at = word; /* the last one: the log may have other text before */
    }
    if (at == NULL || !take_text(&at, "Layer ") || !take_number(&at, RP_MAX_LAYERS, &layer) ||
        !take_text(&at, " ")) {
        return refuse(t, "a record without a layer");
    }
    for (size_t i = 0; i < ACTIONS; i++) {
        if (take_text(&at, actions[i].timer)) {
            if (!take_text(&at, RECORD) || !take_ms(&at, ESTIMATE, &ms) ||
                strstr(at, " ms") == NULL) {
                return refuse(t, "a record without a time");
            }
            return take_record(t, layer, i, ms, ranges);
        }
    }
    return refuse(t, "a record of neither fwd, re nor bwd");
}

static void drop_first_updates(const timer *t, rpsim_ranges *ranges)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ranges->count; i++) {
        bool first = false;
        for (size_t a = 0; a < ACTIONS; a++) {
            first = first || (t->updates[a] > 1 && i >= t->first[a] && i < t->first[a] + t->layers);
        }
        if (!first) {
            ranges->ranges[kept++] = ranges->ranges[i];
        }
    }
    ranges->count = kept;
}

rp_status rpsim_roundpipe_timer(const char *name, const char *text, size_t length,
                                rpsim_ranges *ranges)
{
    timer t = {.name = name};
    rp_text line = {0};
    rp_status status = RP_OK;
    for (size_t begin = 0; begin < length && status == RP_OK;) {
        const char *newline = memchr(text + begin, '\n', length - begin);
        size_t end = newline != NULL ? (size_t)(newline - text) : length;
        line.length = 0;
        t.line++;
        status = rp_text_append(&line, text + begin, end - begin);
        status = status == RP_OK ? read_line(&t, line.bytes, ranges) : status;
        begin = end + 1;
    }
    rp_text_fini(&line);
    RP_TRY(status);
    if (ranges->count == 0) {
        t.line = 0;
        return refuse(&t, "no line of the timer (ModelTimer.VERBOSE = True prints them)");
    }
    RP_TRY(end_update(&t));
    for (size_t a = 0; a < ACTIONS; a++) {
        if (t.updates[a] == 1) {
            rp_log_warning("%s: one update of %s only, the one with start-up in it", name,
                           actions[a].timer);
        }
    }
    drop_first_updates(&t, ranges);
    ranges->name = name;
    ranges->on_gpu = ranges->roundpipe = ranges->timer = true;
    return RP_OK;
}
