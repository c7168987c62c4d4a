/* rpplan's command line, and rpsim --partition auto. */
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define GOLDEN RP_TEST_ROOT "/golden/partition.json"

TestSuite(planner_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

/* Runs rpplan with words separated by single blanks. */
static rp_test_outcome run(const char *line)
{
    return rp_test_tool_run(RPPLAN_PATH, "rpplan", line);
}

static json_t *run_json(const char *line)
{
    json_error_t error;
    rp_test_outcome result = run(line);
    cr_assert(result.status == 0, "%s: %s", line, result.messages);
    json_t *root = json_loads(result.output, JSON_REJECT_DUPLICATES, &error);
    cr_assert(root != NULL, "%s: %s: %s", line, error.text, result.output);
    return root;
}

static rp_test_outcome run_shell(const char *command)
{
    const char *const arguments[] = {"sh", "-c", command, NULL};
    return rp_test_tool_execute("/bin/sh", arguments);
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(rp_test_path(rp_test_tool_folder(), name), "w");
    cr_assert(file != NULL);
    fputs(text, file);
    fclose(file);
}

/* ---- instances ------------------------------------------------------------------------------- */

static json_t *golden(void)
{
    json_error_t error;
    json_t *root = json_load_file(GOLDEN, 0, &error);
    cr_assert(root != NULL, "%s", error.text);
    return root;
}

Test(planner_cli, golden_file)
{
    json_t *root = golden();
    json_t *plans = run_json("--instance " GOLDEN);
    const json_t *examples = json_object_get(root, "examples");
    cr_assert(eq(sz, json_array_size(plans), json_array_size(examples)));
    for (size_t i = 0; i < json_array_size(plans); i++) {
        const json_t *expected = json_object_get(json_array_get(examples, i), "expected");
        cr_expect(json_equal(json_array_get(plans, i), expected), "example %zu", i);
    }
    json_decref(plans);
    json_decref(root);
}

/* A whole example, or its input, by option, argument, standard input, or in a list. */
Test(planner_cli, ways_to_give_an_instance)
{
    json_t *root = golden();
    const json_t *example = json_array_get(json_object_get(root, "examples"), 4);
    const json_t *input = json_object_get(example, "input");
    cr_assert(
        eq(int, json_dump_file(example, rp_test_path(rp_test_tool_folder(), "e.json"), 0), 0));
    cr_assert(eq(int, json_dump_file(input, rp_test_path(rp_test_tool_folder(), "i.json"), 0), 0));
    const char *ways[] = {"--instance @DIR@/e.json", "@DIR@/e.json", "@DIR@/i.json",
                          "--format json @DIR@/i.json"};
    for (size_t i = 0; i < COUNT(ways); i++) {
        json_t *plan = run_json(ways[i]);
        cr_expect(json_equal(plan, json_object_get(example, "expected")), "%s", ways[i]);
        json_decref(plan);
    }
    const char *command = RPPLAN_PATH " - <@DIR@/i.json";
    rp_test_outcome piped = run_shell(rp_test_tool_expand(command, strlen(command)));
    cr_expect(eq(str, (char *)piped.output, (char *)run("@DIR@/i.json").output));
    command = "(echo '['; cat @DIR@/i.json; echo ']') >@DIR@/l.json";
    run_shell(rp_test_tool_expand(command, strlen(command)));
    json_t *list = run_json("@DIR@/l.json");
    cr_expect(json_equal(json_array_get(list, 0), json_object_get(example, "expected")));
    json_decref(list);
    json_decref(root);
}

#define LISTS "'fwd_time':[1,2],'bwd_time':[3,4],'fwd_bytes':[5,6],'bwd_bytes':[7,8],"
#define REST "'memory_limit':100,'min_stages':1,'threshold_num':11,'threshold_den':10}"
#define MODE "{'mode':'fused',"

/* Writes `text` to a file, with double quotes for single ones. */
static void write_quoted(const char *text)
{
    char quoted[1024];
    cr_assert(lt(sz, strlen(text), sizeof quoted));
    strcpy(quoted, text);
    for (char *c = quoted; *c != '\0'; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    write_file("x.json", quoted);
}

Test(planner_cli, bad_instances_are_refused)
{
    static const struct {
        const char *text;
        const char *cause; /* after the folder */
    } cases[] = {
        {"", "/x.json:1: "},
        {"{\n\n'mode' 3}", "/x.json:3: "},
        {"{'mode':'fused',\n'mode':'infer'}", "/x.json:2: duplicate"},
        {MODE LISTS "\n\n\n" REST "x", "/x.json:4: "},
        {"{'mode':99999999999999999999}", "/x.json:1: too big integer"},
        {"3", "/x.json:1: "},
        {"[3]", "/x.json: example 0: not an object"},
        {"{'input':[]}", "/x.json: not an object"},
        {"{'input':{}}", "/x.json: 'mode' is missing"},
        {MODE REST, "/x.json: 'fwd_time' is missing"},
        {MODE LISTS "'limit':3," REST, "/x.json: unknown key 'limit'"},
        {"{'mode':'training'," LISTS REST, "/x.json: 'mode' is not valid"},
        {MODE "'fwd_time':[1,-2],'bwd_time':[3,4],'fwd_bytes':[5,6],'bwd_bytes':[7,8]," REST,
         "/x.json: 'fwd_time' of layer 1 is not valid"},
        {MODE "'fwd_time':[1,2.5],'bwd_time':[3,4],'fwd_bytes':[5,6],'bwd_bytes':[7,8]," REST,
         "/x.json: 'fwd_time' of layer 1 is not valid"},
        {MODE "'fwd_time':[],'bwd_time':[],'fwd_bytes':[],'bwd_bytes':[]," REST,
         "/x.json: 'fwd_time' is not a list of layers"},
        {MODE "'fwd_time':[1,2],'bwd_time':[3],'fwd_bytes':[5,6],'bwd_bytes':[7,8]," REST,
         "/x.json: 'bwd_time' is not a list of as many layers"},
        {MODE LISTS "'memory_limit':-1,'min_stages':1,'threshold_num':11,'threshold_den':10}",
         "/x.json: 'memory_limit' is not valid"},
        {MODE LISTS "'memory_limit':9,'min_stages':0,'threshold_num':11,'threshold_den':10}",
         "/x.json: 'min_stages' is not valid"},
        {MODE LISTS "'memory_limit':9,'min_stages':1,'threshold_num':9,'threshold_den':10}",
         "/x.json: tolerance 9/10 is below 1"},
        {"{'examples':[{'name':'one','input':" MODE LISTS REST "},{'name':'two','input':3}]}",
         "/x.json: example 1 (two): not an object"},
        {"{'examples':[],'mode':'infer'}", "/x.json: unknown key 'mode'"},
        {"[{'input':" MODE LISTS REST ",'mode':'infer'}]",
         "/x.json: example 0: unknown key 'mode'"},
        {"{'input':" MODE LISTS REST ",'inputs':3}", "/x.json: unknown key 'inputs'"},
        {MODE "'fwd_time':[9223372036854775807,2],'bwd_time':[3,4],'fwd_bytes':[5,6],"
              "'bwd_bytes':[7,8]," REST,
         "/x.json: the times of all layers together are too large"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_quoted(cases[i].text);
        rp_test_outcome result = run("@DIR@/x.json");
        cr_expect(eq(int, result.status, 2), "%s: %s", cases[i].text, result.messages);
        cr_expect(eq(str, (char *)result.output, ""), "%s", cases[i].text);
        cr_expect(strstr(result.messages, cases[i].cause) != NULL, "%s: %s", cases[i].text,
                  result.messages);
        cr_expect(strstr(result.messages, "; valid ") != NULL, "%s", result.messages);
    }
}

/* null is no limit; infer needs no backward lists; an empty list has no instances. */
Test(planner_cli, unusual_instances)
{
    write_quoted("{'mode':'infer','fwd_time':[1,2],'fwd_bytes':[5,6],'memory_limit':null,"
                 "'min_stages':1,'threshold_num':3,'threshold_den':2}");
    json_t *plan = run_json("@DIR@/x.json");
    cr_expect(json_object_get(plan, "effective_memory_limit") == json_null());
    cr_expect(eq(dbl, rp_test_json_number(plan, "cost"), 3.0)); /* [0,2) under cap 3, or 2 * 2 */
    cr_expect(eq(sz, json_array_size(json_object_get(plan, "bwd_plan")), 0));
    json_decref(plan);
    write_file("x.json", "[]");
    plan = run_json("@DIR@/x.json");
    bool empty = json_is_array(plan) && json_array_size(plan) == 0;
    cr_expect(empty);
    json_decref(plan);
    write_quoted(MODE LISTS "'memory_limit':0,'min_stages':1,'threshold_num':11,"
                            "'threshold_den':10}");
    rp_test_outcome result = run("@DIR@/x.json");
    cr_expect(eq(int, result.status, 0));
    cr_expect(strstr(result.messages, "raised to 16 bytes") != NULL, "%s", result.messages);
}

/* ---- cost tables ----------------------------------------------------------------------------- */

Test(planner_cli, bad_usage_is_refused)
{
    static const struct {
        const char *line;
        const char *cause;
        const char *valid;
    } cases[] = {
        {"--mode both", "--mode: 'both' is not valid", "fused, train, infer"},
        {"--tolerance 0.9", "--tolerance: '0.9' is not valid", "from 1 to 1000"},
        {"--tolerance 1,1", "--tolerance: '1,1' is not valid", "such as 1.1"},
        {"--tolerance 1.", "--tolerance: '1.' is not valid", "such as 1.1"},
        {"--tolerance 1.0000001", "--tolerance: ", "at most 6 decimals"},
        {"--tolerance ''", "--tolerance: ''", "from 1 to 1000"},
        {"--tolerance 99999999999999999999", "--tolerance: ", "from 1 to 1000"},
        {"--gpus 0", "--gpus: '0' is not valid", "integers from 1 to 4096"},
        {"--memory-limit -1", "--memory-limit: '-1' is not valid", "none, bytes"},
        {"--memory-limit 1.5", "--memory-limit: '1.5' is not valid", "none, bytes"},
        {"--memory-limit 1gb", "--memory-limit: '1gb' is not valid", "MB, GB, TB"},
        {"--memory-limit GB", "--memory-limit: 'GB' is not valid", "14.1GB"},
        {"--memory-limit 9999999999GB", "--memory-limit: ", "14.1GB"},
        {"--memory-limit 99999999999999999999999", "--memory-limit: ", "14.1GB"},
        {"--format xml", "--format: 'xml' is not valid", "table, json"},
        {"--model none-such", "none-such", "qwen3-1.7b"},
        {"--platform none-such", "none-such", "rtx4090x8"},
        {"--costs none-such", "none-such", "qwen3-1.7b@rtx4090"},
        {"--costs qwen3-1.7b@h200", "qwen3-1.7b@h200", "qwen3-1.7b@rtx4090"},
        {"--model qwen3-1.7b --costs llama3.1-8b@rtx4090", "has 32 layers", "same model"},
        {"--costs qwen3-1.7b@rtx4090 --memory-limit 3GB", "no sizes are known", "none"},
        {"--modle x", "--modle: unknown", "did you mean --mode"},
        {"--model", "--model: the value is missing", "--help"},
        {"a.json b.json", "'b.json'", "one instance"},
        {"a.json --gpus 3", "--instance: ", "--format json only"},
        {"a.json --format table", "--instance: ", "--format json only"},
        {"a.json --instance b.json", "'a.json'", "one instance"},
        {"@DIR@/none.json", "none.json", ""},
        {"@DIR@", "", ""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_test_outcome result = run(cases[i].line);
        cr_expect(eq(int, result.status, 2), "%s: %s", cases[i].line, result.messages);
        cr_expect(eq(str, (char *)result.output, ""), "%s", cases[i].line);
        cr_expect(strstr(result.messages, cases[i].cause) != NULL, "%s: %s", cases[i].line,
                  result.messages);
        cr_expect(strstr(result.messages, cases[i].valid) != NULL, "%s: %s", cases[i].line,
                  result.messages);
    }
}

/* Example qwen3_1p7b_4090 of the golden file without the embedding's time: 4 + 11 stages. */
Test(planner_cli, plan_of_a_model)
{
    json_t *plan = run_json("--model qwen3-1.7b --platform rtx4090x8 --gpus 8 --format json");
    cr_expect(eq(dbl, rp_test_json_number(plan, "total_stages"), 15));
    cr_expect(eq(dbl, rp_test_json_number(plan, "gpus"), 8));
    cr_expect(eq(dbl, rp_test_json_number(plan, "tolerance"), 1.1));
    cr_expect(eq(dbl, rp_test_json_number(plan, "memory_limit"), 14.4e9));
    cr_expect(eq(str, (char *)rp_test_json_text(plan, "mode"), "fused"));
    cr_expect(eq(str, (char *)rp_test_json_text(plan, "time_unit"), "ps"));
    rp_test_outcome table = run("--model qwen3-1.7b --platform rtx4090x8 --gpus 8");
    cr_expect(strstr(table.output, "4 forward + 11 backward") != NULL, "%s", table.output);
    cr_expect(strstr(table.output, rp_test_json_text(plan, "partition")) != NULL);
    json_t *again = run_json("--format json");
    cr_expect(json_equal(plan, again), "nothing given: the same");
    json_decref(again);
    json_decref(plan);
}

static double limit_of(const char *limit)
{
    char line[128];
    snprintf(line, sizeof line, "--format json --memory-limit %s", limit);
    json_t *plan = run_json(line);
    double bytes = rp_test_json_number(plan, "memory_limit");
    json_decref(plan);
    return bytes;
}

Test(planner_cli, memory_limits)
{
    cr_expect(eq(dbl, limit_of("14100000000"), 14.1e9));
    cr_expect(eq(dbl, limit_of("14.1GB"), 14.1e9));
    cr_expect(eq(dbl, limit_of("0.0141TB"), 14.1e9));
    cr_expect(eq(dbl, limit_of("14100.000000MB"), 14.1e9));
    cr_expect(eq(dbl, limit_of("14100000000B"), 14.1e9));
    cr_expect(eq(dbl, limit_of("12.5GiB"), 12.5 * 1073741824.0));
    cr_expect(
        eq(dbl, limit_of("0.999999999TiB"), 1099511626676.0)); /* floor of 2^40 * 0.999999999 */
    cr_expect(eq(dbl, limit_of("none"), 0), "null");
    cr_expect(eq(dbl, limit_of("0"), 0));
}

/* A raised limit gives a warning; modes and tolerance have their effect. */
Test(planner_cli, options_change_the_plan)
{
    rp_test_outcome raised = run("--model qwen3-235b");
    cr_expect(eq(int, raised.status, 0));
    cr_expect(strstr(raised.messages, "warning: qwen3-235b@rtx4090: half of the memory") != NULL);
    cr_expect(strstr(raised.output, "raised") != NULL);
    json_t *infer = run_json("--mode infer --format json");
    json_t *train = run_json("--mode train --format json");
    json_t *loose = run_json("--tolerance 2.5 --format json");
    json_t *unknown = run_json("--costs qwen3-1.7b@rtx4090 --format json");
    cr_expect(eq(sz, json_array_size(json_object_get(infer, "bwd_plan")), 0));
    const json_t *last = json_array_get(json_object_get(train, "bwd_plan"), 0);
    cr_expect(eq(dbl, (double)json_integer_value(json_array_get(last, 1)), 30.0));
    cr_expect(lt(dbl, rp_test_json_number(loose, "total_stages"), 15.0));
    cr_expect(json_object_get(unknown, "memory_limit") == json_null());
    cr_expect(json_object_get(unknown, "model") == json_null());
    json_decref(infer);
    json_decref(train);
    json_decref(loose);
    json_decref(unknown);
}

Test(planner_cli, help_version_and_full_output)
{
    rp_test_outcome help = run("--help");
    static const char *const options[] = {"--model",  "--platform",     "--costs",    "--gpus",
                                          "--mode",   "--memory-limit", "--instance", "--tolerance",
                                          "--format", "--version"};
    for (size_t i = 0; i < COUNT(options); i++) {
        cr_expect(strstr(help.output, options[i]) != NULL, "%s", options[i]);
    }
    cr_expect(eq(int, help.status, 0));
    cr_expect(strncmp(run("--version").output, "rpplan ", 7) == 0);
    rp_test_outcome full = run_shell(RPPLAN_PATH " >/dev/full");
    cr_expect(eq(int, full.status, 1));
    cr_expect(strstr(full.messages, "standard output: No space left") != NULL, "%s", full.messages);
}

/* ---- rpsim --partition auto ------------------------------------------------------------------ */

static const char *partition_of(const char *line, json_t **rows_out)
{
    *rows_out = rp_test_rpsim_json(line);
    return rp_test_json_text(json_array_get(*rows_out, 0), "partition");
}

Test(planner_cli, rpsim_takes_the_plan)
{
    static const char *const models[] = {"qwen3-1.7b", "llama3.1-8b", "gpt-oss-20b"};
    for (size_t i = 0; i < COUNT(models); i++) {
        char line[160];
        json_t *rows = NULL;
        snprintf(line, sizeof line, "--model %s --gpus 4 --format json", models[i]);
        json_t *plan = run_json(line);
        snprintf(line, sizeof line,
                 "--schedule roundpipe --fidelity stage --model %s --gpus 4 "
                 "--partition auto",
                 models[i]);
        const char *partition = partition_of(line, &rows);
        cr_expect(eq(str, (char *)partition, (char *)rp_test_json_text(plan, "partition")));
        json_decref(rows);
        json_decref(plan);
    }
}

Test(planner_cli, pipelines_get_the_even_partition)
{
    static const char *const schedules[] = {"gpipe", "interleaved-1f1b"};
    for (size_t i = 0; i < COUNT(schedules); i++) {
        char line[128];
        json_t *rows[2] = {NULL};
        const char *partitions[2] = {NULL};
        for (int k = 0; k < 2; k++) {
            snprintf(line, sizeof line, "--schedule %s --fidelity stage --partition %s",
                     schedules[i], k == 0 ? "auto" : "even");
            partitions[k] = partition_of(line, &rows[k]);
        }
        cr_expect(eq(str, (char *)partitions[0], (char *)partitions[1]));
        json_decref(rows[0]);
        json_decref(rows[1]);
    }
}

/* Without a model sizes are unknown: no limit, and no separate stage for the embedding. */
Test(planner_cli, rpsim_without_a_model)
{
    json_t *rows = NULL;
    const char *partition = partition_of("--schedule roundpipe --fidelity stage --costs "
                                         "gpt-oss-20b@rtx4090 --partition auto",
                                         &rows);
    cr_expect(strncmp(partition, "6,6,6,6|0,", 10) == 0, "%s", partition);
    json_decref(rows);
}
