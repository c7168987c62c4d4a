/* Reads the scenarios of --flows, runs them through the network, and prints the ends of the flows.
 */
#include "sim/rpsim/flows.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/csv.h"
#include "common/formats/json.h"
#include "common/formats/json_read.h"
#include "common/machine/network/network.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#define MAX_FILE_BYTES (256u << 20)
#define NO_FLOW SIZE_MAX

/* The keys src and dst and the results of other programs are not used; they document the origin of
 * a file. */
#define FLOW_KEYS "id, start_s, bytes, route, src, dst, end_exact_s, end_simgrid_s"
#define SCENARIO_KEYS "name, note, link_capacity_Bps, flows, mean_concurrent_flows, max_abs_diff_s"
#define DOCUMENT_KEYS "about, units, scenarios"

/* A flow as it was read; the run adds its end. */
typedef struct flow {
    int64_t id;
    size_t index;
    double bytes;
    double start_s;
    double end_s;
    double exact_s; /* NaN: not given */
    uint32_t link_begin;
    uint32_t link_count;
} flow;

/* Place of a mistake in the file. jansson knows lines only while it parses. */
typedef struct place {
    const char *path;
    const char *scenario;
    size_t flow;
} place;

typedef struct scenario {
    place at;
    const char *name; /* borrowed from the document; NULL: none */
    double *capacities_Bps;
    uint32_t link_count;
    size_t *last_flow; /* [link] index of the last flow read that uses the link, plus 1 */
    flow *flows;
    size_t flow_count;
    uint32_t *links; /* links of all routes, route after route */
    double ticks_per_s;
} scenario;

static rp_status mistake(const place *at, const char *what, const char *valid)
{
    if (at->flow == NO_FLOW) {
        rp_log_error_at(at->path, 0, "scenario %s: %s; valid values are %s", at->scenario, what,
                        valid);
    } else {
        rp_log_error_at(at->path, 0, "scenario %s, flow %zu: %s; valid values are %s", at->scenario,
                        at->flow, what, valid);
    }
    return RP_INPUT;
}

static rp_status check_keys(const place *at, json_t *object, const char *keys)
{
    const char *key = rp_json_unknown_key(object, keys);
    char shown[RP_CSV_SHOW_SIZE];
    char what[80];
    if (key == NULL) {
        return RP_OK;
    }
    snprintf(what, sizeof what, "unknown key \"%s\"", rp_csv_show(key, shown));
    return mistake(at, what, keys);
}

static rp_status read_number(const place *at, const json_t *object, const char *key, double high,
                             double *number_out)
{
    const json_t *value = json_object_get(object, key);
    double number = json_number_value(value);
    if (json_is_number(value) && number >= 0 && number <= high) {
        *number_out = number;
        return RP_OK;
    }
    char what[96];
    char valid[64];
    if (json_is_number(value)) {
        snprintf(what, sizeof what, "\"%s\" is %g", key, number);
    } else {
        snprintf(what, sizeof what, "\"%s\" is %s", key, value != NULL ? "no number" : "missing");
    }
    snprintf(valid, sizeof valid, "numbers from 0 to %g", high);
    return mistake(at, what, valid);
}

/* Reads the capacities in the order of the file, and the index of each name. */
static rp_status read_links(const json_t *object, rp_arena *arena, json_t *indices, scenario *s)
{
    json_t *links = json_object_get(object, "link_capacity_Bps");
    if (!json_is_object(links)) {
        return mistake(&s->at, "\"link_capacity_Bps\" is missing or no object",
                       "objects of link names and bytes per second");
    }
    RP_TRY(rp_arena_alloc(arena, json_object_size(links), sizeof *s->capacities_Bps,
                          &s->capacities_Bps));
    const char *name;
    json_t *value;
    json_object_foreach(links, name, value)
    {
        double capacity = json_number_value(value);
        if (!(capacity >= RP_MIN_CAPACITY && capacity <= RP_MAX_CAPACITY)) {
            char shown[RP_CSV_SHOW_SIZE];
            char what[160];
            snprintf(what, sizeof what, "the capacity of link '%s' is not valid",
                     rp_csv_show(name, shown));
            return mistake(&s->at, what, "numbers from 0.001 to 1e18 bytes per second");
        }
        s->capacities_Bps[s->link_count] = capacity;
        if (json_object_set_new(indices, name, json_integer(s->link_count)) != 0) {
            rp_log_error("%s: no memory for the names of the links", s->at.path);
            return RP_NO_MEMORY;
        }
        s->link_count++;
    }
    return RP_OK;
}

static rp_status read_route(const json_t *route, const json_t *indices, scenario *s, flow *f)
{
    if (!json_is_array(route)) {
        return mistake(&s->at, "\"route\" is missing or no list", "lists of link names");
    }
    for (size_t i = 0; i < json_array_size(route); i++) {
        const char *name = json_string_value(json_array_get(route, i));
        const json_t *index = name != NULL ? json_object_get(indices, name) : NULL;
        char shown[RP_CSV_SHOW_SIZE];
        char what[160];
        if (index == NULL) {
            snprintf(what, sizeof what, "route: '%s' is no link",
                     rp_csv_show(name != NULL ? name : "(no text)", shown));
            return mistake(&s->at, what, "the names in \"link_capacity_Bps\"");
        }
        uint32_t link = (uint32_t)json_integer_value(index);
        if (s->last_flow[link] == f->index + 1) {
            snprintf(what, sizeof what, "route: link '%s' comes twice", rp_csv_show(name, shown));
            return mistake(&s->at, what, "routes that use a link once");
        }
        s->last_flow[link] = f->index + 1;
        s->links[f->link_begin + f->link_count++] = link;
    }
    return RP_OK;
}

static rp_status read_flow(json_t *object, const json_t *indices, scenario *s, flow *f)
{
    *f = (flow){.id = (int64_t)s->at.flow,
                .index = s->at.flow,
                .exact_s = NAN,
                .link_begin = f->link_begin};
    if (!json_is_object(object)) {
        return mistake(&s->at, "it is no object", "objects with \"route\", \"bytes\", \"start_s\"");
    }
    RP_TRY(check_keys(&s->at, object, FLOW_KEYS));
    const json_t *id = json_object_get(object, "id");
    if (id != NULL && !json_is_integer(id)) {
        return mistake(&s->at, "\"id\" is no integer", "integers");
    }
    f->id = id != NULL ? (int64_t)json_integer_value(id) : f->id;
    RP_TRY(read_number(&s->at, object, "bytes", RP_MAX_FLOW_BYTES, &f->bytes));
    if (json_object_get(object, "start_s") != NULL) {
        RP_TRY(read_number(&s->at, object, "start_s", RPSIM_MAX_FLOWS_S, &f->start_s));
    }
    if (json_object_get(object, "end_exact_s") != NULL) {
        RP_TRY(read_number(&s->at, object, "end_exact_s", RPSIM_MAX_FLOWS_S, &f->exact_s));
    }
    return read_route(json_object_get(object, "route"), indices, s, f);
}

static rp_status read_flows(const json_t *object, const json_t *indices, rp_arena *arena,
                            scenario *s)
{
    const json_t *flows = json_object_get(object, "flows");
    if (!json_is_array(flows)) {
        return mistake(&s->at, "\"flows\" is missing or no list", "lists of flows");
    }
    s->flow_count = json_array_size(flows);
    size_t hops = 0;
    for (size_t i = 0; i < s->flow_count; i++) {
        hops += json_array_size(json_object_get(json_array_get(flows, i), "route"));
    }
    RP_TRY(rp_arena_alloc(arena, s->flow_count, sizeof *s->flows, &s->flows));
    RP_TRY(rp_arena_alloc(arena, hops, sizeof *s->links, &s->links));
    RP_TRY(rp_arena_alloc(arena, s->link_count, sizeof *s->last_flow, &s->last_flow));
    uint32_t link_begin = 0;
    for (size_t i = 0; i < s->flow_count; i++) {
        s->at.flow = i;
        s->flows[i].link_begin = link_begin;
        RP_TRY(read_flow(json_array_get(flows, i), indices, s, &s->flows[i]));
        link_begin += s->flows[i].link_count;
    }
    s->at.flow = NO_FLOW;
    return RP_OK;
}

/* Chooses the finest ticks in which the scenario's times can be counted. The last flow to end has,
 * at every instant, a full link on its route, so it ends at the latest when each of its links has
 * carried all its bytes. */
static rp_status choose_ticks(rp_arena *arena, scenario *s)
{
    double *work_s;
    RP_TRY(rp_arena_alloc(arena, s->link_count, sizeof *work_s, &work_s));
    for (size_t i = 0; i < s->flow_count; i++) {
        const flow *f = &s->flows[i];
        for (uint32_t k = 0; k < f->link_count; k++) {
            uint32_t link = s->links[f->link_begin + k];
            work_s[link] += f->bytes / s->capacities_Bps[link];
        }
    }
    double longest_s = 0;
    double latest_s = 0;
    for (size_t i = 0; i < s->flow_count; i++) {
        const flow *f = &s->flows[i];
        double sum_s = 0;
        for (uint32_t k = 0; k < f->link_count; k++) {
            sum_s += work_s[s->links[f->link_begin + k]];
        }
        longest_s = sum_s > longest_s ? sum_s : longest_s;
        latest_s = f->start_s > latest_s ? f->start_s : latest_s;
    }
    if (latest_s + longest_s > RPSIM_MAX_FLOWS_S) {
        return mistake(&s->at, "it could take longer than 1e6 s",
                       "bytes and capacities that give shorter times");
    }
    s->ticks_per_s = 1e15;
    while ((latest_s + longest_s) * s->ticks_per_s > 4e18) {
        s->ticks_per_s /= 10;
    }
    return RP_OK;
}

static int compare_starts(const void *a, const void *b)
{
    const flow *left = *(const flow *const *)a;
    const flow *right = *(const flow *const *)b;
    if (left->start_s != right->start_s) {
        return left->start_s < right->start_s ? -1 : 1;
    }
    return left->index < right->index ? -1 : 1;
}

static rp_status run_network(const scenario *s, flow **order, rp_network *network)
{
    for (size_t i = 0; i < s->flow_count; i++) {
        const flow *f = order[i];
        uint32_t route = 0;
        RP_TRY(rp_network_route(network, &s->links[f->link_begin], f->link_count, &route));
        int64_t now_ticks = (int64_t)llround(f->start_s * s->ticks_per_s);
        RP_TRY(rp_network_start(network, route, f->bytes, now_ticks, f->index));
    }
    rp_completion done;
    while (rp_network_pop(network, rp_network_next(network), &done)) {
        s->flows[done.tag].end_s = (double)done.time_ticks / s->ticks_per_s;
    }
    return RP_OK;
}

static rp_status solve(rp_arena *arena, scenario *s)
{
    RP_TRY(choose_ticks(arena, s));
    flow **order;
    RP_TRY(rp_arena_alloc(arena, s->flow_count, sizeof *order, &order));
    for (size_t i = 0; i < s->flow_count; i++) {
        order[i] = &s->flows[i];
    }
    qsort(order, s->flow_count, sizeof *order, compare_starts);
    rp_network *network = NULL;
    RP_TRY(rp_network_create(s->capacities_Bps, s->link_count, s->ticks_per_s, &network, NULL));
    rp_status status = run_network(s, order, network);
    rp_network_destroy(network);
    return status;
}

static rp_status read_and_solve(const char *path, json_t *object, size_t index, rp_arena *arena,
                                scenario *s)
{
    s->at = (place){path, NULL, NO_FLOW};
    s->name = json_string_value(json_object_get(object, "name"));
    if (s->name != NULL) {
        char shown[RP_CSV_SHOW_SIZE];
        RP_TRY(rp_arena_print(arena, &s->at.scenario, "'%s'", rp_csv_show(s->name, shown)));
    } else {
        RP_TRY(rp_arena_print(arena, &s->at.scenario, "%zu", index));
    }
    if (!json_is_object(object)) {
        return mistake(&s->at, "it is no object",
                       "objects with \"link_capacity_Bps\" and \"flows\"");
    }
    RP_TRY(check_keys(&s->at, object, SCENARIO_KEYS));
    json_t *indices = json_object();
    if (indices == NULL) {
        rp_log_error("%s: no memory for the names of the links", path);
        return RP_NO_MEMORY;
    }
    rp_status status = read_links(object, arena, indices, s);
    if (status == RP_OK) {
        status = read_flows(object, indices, arena, s);
    }
    json_decref(indices);
    return status == RP_OK ? solve(arena, s) : status;
}

static void print_scenario(rp_json *json, const scenario *s)
{
    double difference_s = -1;
    rp_json_begin_object(json);
    if (s->name != NULL) {
        rp_json_member_string(json, "name", s->name);
    }
    rp_json_key(json, "flows");
    rp_json_begin_array(json);
    for (size_t i = 0; i < s->flow_count; i++) {
        const flow *f = &s->flows[i];
        rp_json_begin_object(json);
        rp_json_member_int(json, "id", f->id);
        rp_json_member_double(json, "end_s", f->end_s);
        rp_json_end_object(json);
        difference_s = fmax(difference_s, fabs(f->end_s - f->exact_s)); /* fmax ignores NaN */
    }
    rp_json_end_array(json);
    if (difference_s >= 0) {
        rp_json_member_double(json, "max_abs_diff_s", difference_s);
    }
    rp_json_end_object(json);
}

static rp_status run_document(const char *path, json_t *document, rp_arena *arena, FILE *stream)
{
    const json_t *list = json_object_get(document, "scenarios");
    bool many = json_is_array(list);
    size_t count = many ? json_array_size(list) : 1;
    const char *unknown = many ? rp_json_unknown_key(document, DOCUMENT_KEYS) : NULL;
    if (unknown != NULL) {
        rp_log_error_at(path, 0, "unknown key \"%s\"; valid values are " DOCUMENT_KEYS, unknown);
        return RP_INPUT;
    }
    scenario *scenarios;
    RP_TRY(rp_arena_alloc(arena, count, sizeof *scenarios, &scenarios));
    for (size_t i = 0; i < count; i++) {
        json_t *object = many ? json_array_get(list, i) : document;
        RP_TRY(read_and_solve(path, object, i, arena, &scenarios[i]));
    }
    rp_json json;
    rp_json_begin_document(&json, stream, many ? 2 : 0);
    if (many) {
        rp_json_begin_object(&json);
        rp_json_key(&json, "scenarios");
        rp_json_begin_array(&json);
    }
    for (size_t i = 0; i < count; i++) {
        print_scenario(&json, &scenarios[i]);
    }
    if (many) {
        rp_json_end_array(&json);
        rp_json_end_object(&json);
    }
    rp_json_end_document(&json);
    return RP_OK;
}

rp_status rpsim_flows_solve(const char *name, const char *bytes, size_t length, rp_arena *arena,
                            FILE *stream)
{
    json_t *document = NULL;
    RP_TRY(rp_json_parse(name, bytes, length,
                         "valid values are JSON objects with \"link_capacity_Bps\" and "
                         "\"flows\", or with \"scenarios\"",
                         &document));
    rp_status status = run_document(name, document, arena, stream);
    json_decref(document);
    return status;
}

rp_status rpsim_flows_run(const char *path, rp_arena *arena, FILE *stream)
{
    rp_text text = {0};
    RP_TRY(rp_text_read_file(path, MAX_FILE_BYTES, &text));
    rp_status status = rpsim_flows_solve(path, text.bytes, text.length, arena, stream);
    rp_text_fini(&text);
    return status;
}
