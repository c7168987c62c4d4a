/* rpsim --flows: golden scenarios (exact rational arithmetic, shared/golden), input, output,
 * mistakes. */
#include "sim/rpsim/flows.h"
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN RP_TEST_ROOT "/golden/contention.json"
#define TOLERANCE_S 1e-11 /* ten picoseconds */

static char messages[2048];
static const char *path;

static void begin(void)
{
    rp_test_tool_begin();
    cr_assert(eq(int,
                 rp_arena_print(rp_test_tool_arena(), &path, "%s/f.json", rp_test_tool_folder()),
                 RP_OK));
}

TestSuite(flows, .init = begin, .fini = rp_test_tool_end, .timeout = 120);

/* Output of --flows for a file; NULL if refused (with `messages`). */
static json_t *solve_file(const char *name)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    rp_log_capture_end();
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rpsim_flows_run(name, rp_test_tool_arena(), stream);
    rp_log_capture_end();
    fclose(stream);
    json_t *result = NULL;
    if (status == RP_OK) {
        result = json_loads(text, 0, NULL);
        cr_assert(ne(ptr, result, NULL), "no JSON: %s", text);
        cr_expect(eq(sz, strlen(messages), 0), "%s", messages);
    } else {
        cr_expect(eq(int, status, RP_INPUT));
        cr_expect(eq(sz, length, 0), "output in spite of a mistake: %s", text);
    }
    free(text);
    return result;
}

static json_t *solve(const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    return solve_file(path);
}

static double end_s(const json_t *flows, size_t index)
{
    return json_number_value(json_object_get(json_array_get(flows, index), "end_s"));
}

static void compare_scenario(const json_t *golden, const json_t *result)
{
    const char *name = rp_test_json_text(golden, "name");
    cr_expect(eq(int, strcmp(name, rp_test_json_text(result, "name")), 0));
    const json_t *expected = json_object_get(golden, "flows");
    const json_t *actual = json_object_get(result, "flows");
    cr_assert(eq(sz, json_array_size(actual), json_array_size(expected)), "%s", name);
    double worst_s = 0;
    for (size_t i = 0; i < json_array_size(expected); i++) {
        const json_t *flow = json_array_get(expected, i);
        double exact_s = rp_test_json_number(flow, "end_exact_s");
        cr_assert(gt(dbl, exact_s, 0));
        worst_s = fmax(worst_s, fabs(end_s(actual, i) - exact_s));
        cr_expect(eq(dbl, rp_test_json_number(flow, "id"),
                     rp_test_json_number(json_array_get(actual, i), "id")));
    }
    cr_expect(lt(dbl, worst_s, TOLERANCE_S), "%s", name);
    cr_expect(eq(dbl, worst_s, rp_test_json_number(result, "max_abs_diff_s")), "%s", name);
    cr_log_info("%s: %.3g s", name, worst_s);
}

Test(flows, golden_scenarios)
{
    json_t *golden = json_load_file(GOLDEN, 0, NULL);
    json_t *result = solve_file(GOLDEN);
    const json_t *scenarios = json_object_get(golden, "scenarios");
    cr_assert(ge(sz, json_array_size(scenarios), 5));
    const json_t *results = json_object_get(result, "scenarios");
    cr_assert(eq(sz, json_array_size(results), json_array_size(scenarios)));
    for (size_t i = 0; i < json_array_size(scenarios); i++) {
        compare_scenario(json_array_get(scenarios, i), json_array_get(results, i));
    }
    json_decref(result);
    json_decref(golden);
}

/* A file may hold a single scenario (cli.md). */
Test(flows, one_scenario_is_a_file_too)
{
    json_t *golden = json_load_file(GOLDEN, 0, NULL);
    const json_t *scenarios = json_object_get(golden, "scenarios");
    for (size_t i = 0; i < json_array_size(scenarios); i++) {
        cr_assert(eq(int, json_dump_file(json_array_get(scenarios, i), path, 0), 0));
        json_t *result = solve_file(path);
        compare_scenario(json_array_get(scenarios, i), result);
        json_decref(result);
    }
    json_decref(golden);
}

/* Ids default to places, starts to 0; the file's order is not that in time. */
Test(flows, defaults_and_order)
{
    json_t *result = solve("{\"link_capacity_Bps\":{\"a\":1e9,\"b\":2},\"flows\":["
                           "{\"route\":[\"a\"],\"bytes\":1e9,\"start_s\":2},"
                           "{\"route\":[\"a\"],\"bytes\":1000000000,\"id\":-7},"
                           "{\"route\":[],\"bytes\":5,\"start_s\":0.125},"
                           "{\"route\":[\"b\",\"a\"],\"bytes\":0,\"start_s\":4}]}");
    cr_expect(eq(ptr, json_object_get(result, "name"), NULL));
    cr_expect(eq(ptr, json_object_get(result, "max_abs_diff_s"), NULL));
    const json_t *flows = json_object_get(result, "flows");
    cr_expect(eq(dbl, end_s(flows, 0), 3));
    cr_expect(eq(dbl, end_s(flows, 1), 1));
    cr_expect(eq(dbl, end_s(flows, 2), 0.125));
    cr_expect(eq(dbl, end_s(flows, 3), 4));
    cr_expect(eq(dbl, rp_test_json_number(json_array_get(flows, 0), "id"), 0));
    cr_expect(eq(dbl, rp_test_json_number(json_array_get(flows, 1), "id"), -7));
    json_decref(result);
}

/* Ten days have coarser ticks, still within 1e-11 of the scenario. */
Test(flows, long_scenarios)
{
    json_t *result = solve("{\"link_capacity_Bps\":{\"a\":3},\"flows\":["
                           "{\"route\":[\"a\"],\"bytes\":1e6,\"start_s\":500000},"
                           "{\"route\":[\"a\"],\"bytes\":1e5,\"start_s\":500000}]}");
    const json_t *flows = json_object_get(result, "flows");
    cr_expect(epsilon_eq(dbl, end_s(flows, 0), 500000 + 1.1e6 / 3, 1e-9));
    cr_expect(epsilon_eq(dbl, end_s(flows, 1), 500000 + 2e5 / 3, 1e-9));
    json_decref(result);
}

Test(flows, empty_scenarios)
{
    json_t *result = solve("{\"link_capacity_Bps\":{},\"flows\":[]}");
    cr_expect(eq(sz, json_array_size(json_object_get(result, "flows")), 0));
    json_decref(result);
    result = solve("{\"scenarios\":[]}");
    cr_expect(eq(sz, json_array_size(json_object_get(result, "scenarios")), 0));
    json_decref(result);
}

#define LINKS "\"link_capacity_Bps\":{\"a\":1e9,\"b\":1e9}"
#define ONE_FLOW(flow) "{\"name\":\"s\"," LINKS ",\"flows\":[" flow "]}"

static const struct {
    const char *text;
    const char *cause;
    const char *valid;
} mistakes[] = {
    {"", "f.json:1: ", "JSON objects"},
    {"{\n\"flows\": [\n,]}", "f.json:3: ", "JSON objects"},
    {"{\"flows\":1,\n\"flows\":2}", "f.json:2: duplicate object key", "JSON objects"},
    {"{\"flows\":[]} x", "f.json:1: end of file expected", "JSON objects"},
    {"[1]", "scenario 0: it is no object", "\"link_capacity_Bps\" and \"flows\""},
    {"{\"scenarios\":[7]}", "scenario 0: it is no object", "\"link_capacity_Bps\""},
    {"{}", "scenario 0: \"link_capacity_Bps\" is missing", "link names and bytes per second"},
    {"{\"name\":\"n\",\"link_capacity_Bps\":{}}", "scenario 'n': \"flows\" is missing", "flows"},
    {"{\"link_capacity_Bps\":{\"a\":0},\"flows\":[]}", "capacity of link 'a'", "0.001 to 1e18"},
    {"{\"link_capacity_Bps\":{\"a\":-1},\"flows\":[]}", "capacity of link 'a'", "0.001 to 1e18"},
    {"{\"link_capacity_Bps\":{\"a\":\"1\"},\"flows\":[]}", "capacity of link 'a'", "0.001 to 1e18"},
    {ONE_FLOW("5"), "scenario 's', flow 0: it is no object", "\"route\", \"bytes\""},
    {ONE_FLOW("{\"route\":[]}"), "flow 0: \"bytes\" is missing", "numbers from 0 to 1e+18"},
    {ONE_FLOW("{\"bytes\":-1}"), "flow 0: \"bytes\" is -1", "numbers from 0 to 1e+18"},
    {ONE_FLOW("{\"bytes\":\"1\"}"), "flow 0: \"bytes\" is no number", "numbers from 0"},
    {ONE_FLOW("{\"bytes\":1e300}"), "flow 0: \"bytes\" is 1e+300", "numbers from 0"},
    {ONE_FLOW("{\"bytes\":1}"), "flow 0: \"route\" is missing", "lists of link names"},
    {ONE_FLOW("{\"bytes\":1,\"route\":\"a\"}"), "\"route\" is missing or no list", "lists of"},
    {ONE_FLOW("{\"bytes\":1,\"route\":[\"c\"]}"), "route: 'c' is no link", "the names in"},
    {ONE_FLOW("{\"bytes\":1,\"route\":[3]}"), "route: '(no text)' is no link", "the names in"},
    {ONE_FLOW("{\"bytes\":1,\"route\":[\"a\",\"b\",\"a\"]}"), "link 'a' comes twice", "once"},
    {ONE_FLOW("{\"bytes\":1,\"route\":[],\"id\":1.5}"), "\"id\" is no integer", "integers"},
    {ONE_FLOW("{\"bytes\":1,\"route\":[],\"start_s\":-1}"), "\"start_s\" is -1", "from 0 to 1e+06"},
    {ONE_FLOW("{\"bytes\":1,\"route\":[],\"start_s\":null}"), "\"start_s\" is no number", "from 0"},
    {ONE_FLOW("{\"bytes\":1,\"route\":[],\"end_exact_s\":{}}"), "\"end_exact_s\" is no", "from 0"},
    {ONE_FLOW("{\"bytes\":1,\"route\":[],\"strat_s\":1}"), "flow 0: unknown key \"strat_s\"",
     "id, start_s, bytes"},
    {"{\"names\":\"s\"," LINKS ",\"flows\":[]}", "0: unknown key \"names\"", "name, note"},
    {"{\"scenarios\":[],\"flows\":[]}", "f.json: unknown key \"flows\"", "about, units"},
    {"{\"scenarios\":{},\"flows\":[]}", "0: unknown key \"scenarios\"", "name, note"},
    {ONE_FLOW("{\"bytes\":1,\"bytes\":1,\"route\":[]}"), "duplicate object key", "JSON objects"},
    {ONE_FLOW("{\"bytes\":1e16,\"route\":[\"a\"]}"), "longer than 1e6 s", "shorter times"},
    {"{\"scenarios\":[" ONE_FLOW("{\"bytes\":1,\"route\":[]}") "," ONE_FLOW(
         "{\"bytes\":1,\"route\":[]},{\"bytes\":true}") "]}",
     "scenario 's', flow 1: \"bytes\" is no number", "numbers"},
};

Test(flows, mistakes_are_refused)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        json_t *result = solve(mistakes[i].text);
        cr_assert(eq(ptr, result, NULL), "accepted: %s", mistakes[i].text);
        const char *valid = strstr(messages, "; valid values are ");
        cr_assert(ne(ptr, (void *)valid, NULL), "%s: %s", mistakes[i].text, messages);
        cr_expect(strstr(messages, mistakes[i].cause) != NULL, "%s: %s", mistakes[i].text,
                  messages);
        cr_expect(strstr(valid, mistakes[i].valid) != NULL, "%s: %s", mistakes[i].text, messages);
        cr_expect(strncmp(messages, path, strlen(path)) == 0, "%s", messages);
    }
}

Test(flows, as_a_command)
{
    rp_test_outcome good = rp_test_rpsim_well("--flows " GOLDEN);
    cr_expect(strstr(good.output, "\"g1_shared_uplink\"") != NULL);
    rp_test_outcome bad = rp_test_rpsim("--flows @DIR@/none.json");
    cr_expect(eq(int, bad.status, 2));
    cr_expect(eq(sz, strlen(bad.output), 0));
    cr_expect(strstr(bad.messages, "none.json") != NULL);
    rp_test_outcome missing = rp_test_rpsim("--flows");
    cr_expect(eq(int, missing.status, 2));
}
