/* Reads the ranges of a Kineto trace. */
#include "sim/interchange/kineto.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/formats/json_read.h"
#include "sim/interchange/gunzip.h"
#include "sim/interchange/roundpipe.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "PP:"
#define GPU_CATEGORY "gpu_user_annotation"
#define MAX_US (RP_MAX_COST_MS * 1e3)
#define PS_PER_US 1e6

/* The keys of a complete event in the Trace Event Format. A trace's other objects may have any key:
 * the format leaves them to the writer of the trace, and nothing is read from them. */
#define EVENT_KEYS                                                                                 \
    "name, cat, ph, ts, dur, tts, tdur, pid, tid, id, args, cname, sf, stack, esf, estack"

/* A range of the GPU and the call that it belongs to: a call may have work on many streams. */
typedef struct call_range {
    int64_t call; /* External id, or -1 */
    size_t event;
    rpsim_range range;
} call_range;

typedef struct reader {
    const char *name;
    call_range *found; /* counted block */
    uint32_t count;
    uint32_t capacity;
    uint32_t unknown;
    uint32_t stage_count;
    uint32_t roundpipe; /* number of events */
    uint32_t pipeline;
} reader;

void rpsim_ranges_fini(rpsim_ranges *ranges)
{
    rp_mem_release(&ranges->ranges);
    *ranges = (rpsim_ranges){0};
}

static rp_status bad_event(const reader *r, size_t event, const char *name, const char *cause)
{
    rp_log_error_at(r->name, 0,
                    "event %zu (%.64s): %s; valid values are numbers from 0 to %.0f microseconds",
                    event, name, cause, MAX_US);
    return RP_INPUT;
}

static bool is_action(const char *name)
{
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

/* @return false: the range does not compute */
static bool parse_action(reader *r, const char *name, rpsim_range *range_out)
{
    rp_torch_action parts[2];
    uint32_t count = rp_torch_action_parse(name + strlen(PREFIX), parts);
    if (count == 0) {
        r->unknown++;
        return false;
    }
    bool next = parts[0].type == RP_TORCH_SEND_F || parts[0].type == RP_TORCH_RECV_B;
    uint32_t last = parts[0].stage + (next ? 1 : 0);
    last = count == 2 && parts[1].stage > last ? parts[1].stage : last;
    r->stage_count = last >= r->stage_count ? last + 1 : r->stage_count;
    *range_out = (rpsim_range){.stage = parts[0].stage,
                               .pair_stage = count == 2 ? parts[1].stage : 0,
                               .type = parts[0].type,
                               .pair = count == 2};
    return rp_torch_type_computes((rp_torch_type)parts[0].type);
}

static rp_status add_event(reader *r, size_t index, json_t *event, const char *name)
{
    const char *key = rp_json_unknown_key(event, EVENT_KEYS);
    if (key != NULL) {
        rp_log_error_at(r->name, 0, "event %zu (%.64s): unknown key '%.64s'; valid values are %s",
                        index, name, key, EVENT_KEYS);
        return RP_INPUT;
    }
    rpsim_range range;
    if (is_action(name)) {
        if (!parse_action(r, name, &range)) {
            return RP_OK;
        }
        r->pipeline++;
    } else {
        uint32_t last = rpsim_roundpipe_range(name, &range);
        r->stage_count = last >= r->stage_count ? last + 1 : r->stage_count;
        r->roundpipe++;
    }
    const json_t *duration = json_object_get(event, "dur");
    double us = json_number_value(duration);
    if (!json_is_number(duration)) {
        return bad_event(r, index, name,
                         duration == NULL ? "'dur' is missing" : "'dur' is no number");
    }
    if (!(us >= 0 && us <= MAX_US)) {
        return bad_event(r, index, name, "'dur' is out of range");
    }
    const json_t *call = json_object_get(json_object_get(event, "args"), "External id");
    bool known =
        json_is_number(call) && json_number_value(call) >= 0 && json_number_value(call) < 1e15;
    RP_TRY(rp_mem_reserve(&r->found, r->count, &r->capacity, sizeof *r->found));
    range.ps = (int64_t)llround(us * PS_PER_US);
    r->found[r->count++] =
        (call_range){.call = known ? (int64_t)json_number_value(call) : -1, index, range};
    return RP_OK;
}

/* Collects the ranges of the GPU, or all other ranges. */
static rp_status collect_ranges(reader *r, const json_t *events, bool on_gpu)
{
    size_t index = 0;
    json_t *event = NULL;
    json_array_foreach(events, index, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const char *category = json_string_value(json_object_get(event, "cat"));
        rpsim_range unused;
        bool range = name != NULL && phase != NULL && strcmp(phase, "X") == 0 &&
                     (is_action(name) || rpsim_roundpipe_range(name, &unused) != UINT32_MAX);
        bool gpu = category != NULL && strcmp(category, GPU_CATEGORY) == 0;
        if (range && gpu == on_gpu) {
            RP_TRY(add_event(r, index, event, name));
        }
    }
    return RP_OK;
}

static int compare_calls(const void *a, const void *b)
{
    const call_range *x = a;
    const call_range *y = b;
    if (x->call != y->call) {
        return x->call < y->call ? -1 : 1;
    }
    return x->event < y->event ? -1 : x->event > y->event;
}

static bool same_action(const rpsim_range *a, const rpsim_range *b)
{
    return a->stage == b->stage && a->type == b->type && a->pair == b->pair &&
           a->recompute == b->recompute && a->pair_stage == b->pair_stage;
}

/* Moves the ranges found into `ranges`; for a call on several streams only the longest. */
static rp_status take_over(reader *r, bool on_gpu, rpsim_ranges *ranges)
{
    if (on_gpu) {
        qsort(r->found, r->count, sizeof *r->found, compare_calls);
    }
    for (uint32_t i = 0; i < r->count; i++) {
        rpsim_range range = r->found[i].range;
        while (on_gpu && r->found[i].call >= 0 && i + 1 < r->count &&
               r->found[i + 1].call == r->found[i].call &&
               same_action(&r->found[i + 1].range, &range)) {
            i++;
            range.ps = r->found[i].range.ps > range.ps ? r->found[i].range.ps : range.ps;
        }
        RP_TRY(rp_mem_reserve(&ranges->ranges, ranges->count, &ranges->capacity,
                              sizeof *ranges->ranges));
        ranges->ranges[ranges->count++] = range;
    }
    ranges->on_gpu = on_gpu;
    ranges->roundpipe = r->roundpipe > 0;
    ranges->stage_count =
        r->stage_count > ranges->stage_count ? r->stage_count : ranges->stage_count;
    ranges->name = ranges->name == NULL ? r->name : ranges->name;
    return RP_OK;
}

static rp_status read_events(reader *r, const json_t *events, rpsim_ranges *ranges)
{
    bool on_gpu = true;
    RP_TRY(collect_ranges(r, events, true));
    if (r->count == 0) {
        on_gpu = false;
        r->unknown = 0;
        RP_TRY(collect_ranges(r, events, false));
    }
    if (r->count == 0) {
        rp_log_error_at(r->name, 0,
                        "none of its %zu events is a range such as PP:2F0; valid are traces of "
                        "steps of PyTorch's pipeline schedules with several stages per rank, or "
                        "of its schedule runtime, and traces with RoundPipe's ranges, L[2]B[0]Fwd",
                        json_array_size(events));
        return RP_INPUT;
    }
    bool other = ranges->name != NULL && ranges->roundpipe != (r->roundpipe > 0);
    if (other || (r->roundpipe > 0 && r->pipeline > 0)) {
        rp_log_error_at(r->name, 0,
                        "ranges of PyTorch's pipelines (PP:2F0) and of RoundPipe (L[2]B[0]Fwd); "
                        "valid are traces with one of the two");
        return RP_INPUT;
    }
    if (ranges->name != NULL && ranges->on_gpu != on_gpu) {
        rp_log_error_at(r->name, 0,
                        "its ranges are measured on the %s, those of %s are not; valid are traces "
                        "of one run",
                        on_gpu ? "GPU" : "CPU", ranges->name);
        return RP_INPUT;
    }
    ranges->unknown += r->unknown;
    return take_over(r, on_gpu, ranges);
}

static rp_status read_json(const char *name, const char *text, size_t length, rpsim_ranges *ranges)
{
    json_error_t error;
    reader r = {.name = name};
    /* Addresses in Kineto's arguments may exceed an int64. */
    size_t flags = JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES;
    json_t *root = json_loadb(text, length, flags, &error);
    if (root == NULL) {
        rp_log_error_at(name, error.line > 0 ? (size_t)error.line : 1,
                        "column %d: %s; valid is a Chrome trace in JSON, as "
                        "torch.profiler's export_chrome_trace writes it",
                        error.column > 0 ? error.column : 1, error.text);
        return RP_INPUT;
    }
    const json_t *events = json_is_array(root) ? root : json_object_get(root, "traceEvents");
    rp_status status = RP_INPUT;
    if (json_is_array(events)) {
        status = read_events(&r, events, ranges);
    } else {
        rp_log_error_at(name, 1,
                        "no list of events; valid is an object with \"traceEvents\", or "
                        "a list");
    }
    rp_mem_release(&r.found);
    json_decref(root);
    return status;
}

rp_status rpsim_kineto_read(const char *name, const char *text, size_t length, rpsim_ranges *ranges)
{
    rp_text expanded = {0};
    if (!rpsim_is_gzip(text, length)) {
        return read_json(name, text, length, ranges);
    }
    rp_status status = rpsim_gunzip(name, text, length, &expanded);
    if (status == RP_OK) {
        status =
            read_json(name, expanded.bytes != NULL ? expanded.bytes : "", expanded.length, ranges);
    }
    rp_text_fini(&expanded);
    return status;
}
