/* The reader of rpsim --flows. In an accepted file the ends of flows obey the links, and are the
 * same if the file lists its flows in reverse. */
#include "sim/rpsim/flows.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends are rounded to ticks of a picosecond or less and printed as the nearest double. */
#define SLACK_S 1e-12
#define SLACK 1e-9 /* relative error: rates and service are doubles */

/* @return the output of --flows, or NULL if it refuses; the caller calls json_decref */
static json_t *solve(const char *bytes, size_t length, rp_status *status_out)
{
    rp_arena *arena = NULL;
    fuzz_require(rp_arena_create(&arena) == RP_OK, "an arena");
    char *text = NULL;
    size_t text_length = 0;
    FILE *stream = open_memstream(&text, &text_length);
    fuzz_require(stream != NULL, "a stream in memory");
    *status_out = rpsim_flows_solve(FUZZ_FILE, bytes, length, arena, stream);
    fclose(stream);
    json_t *result = NULL;
    if (*status_out == RP_OK) {
        result = json_loadb(text, text_length, JSON_REJECT_DUPLICATES, NULL);
        fuzz_require(json_is_object(result), "the output is a JSON object");
    } else {
        fuzz_require(text_length == 0, "a refusal prints nothing");
    }
    free(text);
    rp_arena_destroy(arena);
    return result;
}

static size_t scenario_count(const json_t *document)
{
    const json_t *list = json_object_get(document, "scenarios");
    return json_is_array(list) ? json_array_size(list) : 1;
}

static json_t *scenario_at(const json_t *document, size_t index)
{
    json_t *list = json_object_get(document, "scenarios");
    return json_is_array(list) ? json_array_get(list, index) : (json_t *)document;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* @return the capacity of the narrowest link on a flow's route, in bytes per second; infinite if
 * the route has no links */
static double narrowest(const json_t *flow, const json_t *capacities)
{
    double least = INFINITY;
    size_t index;
    json_t *name;
    json_array_foreach(json_object_get(flow, "route"), index, name)
    {
        least = fmin(least, number_of(capacities, json_string_value(name)));
    }
    return least;
}

static bool uses(const json_t *flow, const char *link)
{
    size_t index;
    json_t *name;
    json_array_foreach(json_object_get(flow, "route"), index, name)
    {
        if (strcmp(json_string_value(name), link) == 0) {
            return true;
        }
    }
    return false;
}

/* A link must not carry more than its capacity between its first start and its last end. */
static void check_link(const char *link, double capacity, const json_t *flows, const json_t *ends)
{
    double bytes = 0;
    double first_s = INFINITY;
    double last_s = 0;
    for (size_t i = 0; i < json_array_size(flows); i++) {
        const json_t *flow = json_array_get(flows, i);
        if (uses(flow, link)) {
            bytes += number_of(flow, "bytes");
            first_s = fmin(first_s, number_of(flow, "start_s"));
            last_s = fmax(last_s, number_of(json_array_get(ends, i), "end_s"));
        }
    }
    double most = bytes > 0 ? capacity * (last_s - first_s + SLACK_S) : 0;
    fuzz_require(bytes <= most + SLACK * (bytes + capacity * last_s), "links carry what they can");
}

static void check_scenario(const json_t *scenario, const json_t *result)
{
    const json_t *capacities = json_object_get(scenario, "link_capacity_Bps");
    const json_t *flows = json_object_get(scenario, "flows");
    const json_t *ends = json_object_get(result, "flows");
    fuzz_require(json_array_size(flows) == json_array_size(ends), "every flow ends");
    for (size_t i = 0; i < json_array_size(flows); i++) {
        const json_t *flow = json_array_get(flows, i);
        double end_s = number_of(json_array_get(ends, i), "end_s");
        double start_s = number_of(flow, "start_s");
        double least_s = number_of(flow, "bytes") / narrowest(flow, capacities);
        fuzz_require(isfinite(end_s) && end_s >= start_s - SLACK_S, "ends do not precede starts");
        fuzz_require(end_s >= (start_s + least_s) * (1 - SLACK) - SLACK_S,
                     "no flow is faster than its narrowest link");
    }
    const char *link;
    json_t *capacity;
    json_object_foreach((json_t *)capacities, link, capacity)
    {
        check_link(link, json_number_value(capacity), flows, ends);
    }
}

/* Reverses the flows of every scenario. */
static void reverse(json_t *document)
{
    for (size_t i = 0; i < scenario_count(document); i++) {
        json_t *scenario = scenario_at(document, i);
        const json_t *flows = json_object_get(scenario, "flows");
        json_t *reversed = json_array();
        for (size_t k = json_array_size(flows); k-- > 0;) {
            json_array_append(reversed, json_array_get(flows, k));
        }
        json_object_set_new(scenario, "flows", reversed);
    }
}

static void check_reversed(json_t *document, const json_t *result)
{
    reverse(document);
    char *text = json_dumps(document, JSON_REAL_PRECISION(17));
    fuzz_require(text != NULL, "what was read can be written");
    rp_status status;
    json_t *again = solve(text, strlen(text), &status);
    fuzz_require(status == RP_OK, "flows may stand in reverse");
    for (size_t i = 0; i < scenario_count(document); i++) {
        const json_t *ends = json_object_get(scenario_at(result, i), "flows");
        const json_t *reversed = json_object_get(scenario_at(again, i), "flows");
        size_t count = json_array_size(ends);
        for (size_t k = 0; k < count; k++) {
            double end_s = number_of(json_array_get(ends, k), "end_s");
            double again_s = number_of(json_array_get(reversed, count - 1 - k), "end_s");
            fuzz_require(end_s == again_s, "the order of flows in the file does not matter");
        }
    }
    json_decref(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    rp_status status;
    json_t *result = solve((const char *)data, size, &status);
    if (status != RP_OK) {
        fuzz_require_refusal(status, "scenario ");
        return fuzz_end();
    }
    fuzz_require(fuzz_log()[0] == '\0', "success is silent");
    json_t *document = json_loadb((const char *)data, size, 0, NULL);
    for (size_t i = 0; i < scenario_count(document); i++) {
        check_scenario(scenario_at(document, i), scenario_at(result, i));
    }
    check_reversed(document, result);
    json_decref(document);
    json_decref(result);
    return fuzz_end();
}
