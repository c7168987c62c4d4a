/* The library's typed interface gives the results of command lines, and refuses impossible
 * requests. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "sim/library/rpsim.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(library, .timeout = 120);

static void expect_freed(void)
{
    cr_expect(eq(sz, rp_mem_live_bytes(), 0));
}

static json_t *parse(char *text)
{
    json_error_t error;
    cr_assert(text != NULL, "%s", rp_last_error());
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    cr_assert(root != NULL, "%s", error.text);
    rp_free_json(text);
    return root;
}

static json_t *rows_of(int argc, const char *const *argv)
{
    char *text = NULL;
    cr_assert(eq(int, rp_run_json(argc, argv, &text), RP_CODE_OK), "%s", rp_last_error());
    return parse(text);
}

static json_t *rows_of_simulation(const rp_simulation *simulation)
{
    char *text = NULL;
    cr_assert(eq(int, rp_simulation_json(simulation, &text), RP_CODE_OK), "%s", rp_last_error());
    return parse(text);
}

static rp_input *load(rp_kind kind, const char *name)
{
    rp_input *input = NULL;
    cr_assert(eq(int, rp_input_load(kind, name, &input), RP_CODE_OK), "%s", rp_last_error());
    return input;
}

static rp_simulation *simulate(const rp_settings *settings)
{
    rp_simulation *simulation = NULL;
    cr_assert(eq(int, rp_simulation_prepare(settings, &simulation), RP_CODE_OK), "%s",
              rp_last_error());
    cr_assert(eq(int, rp_simulation_run(simulation), RP_CODE_OK), "%s", rp_last_error());
    return simulation;
}

static void expect_refused(rp_code code, const char *needle)
{
    cr_expect(eq(int, code, RP_CODE_BAD_INPUT), "%s", needle);
    cr_expect(strstr(rp_last_error(), needle) != NULL, "no '%s' in: %s", needle, rp_last_error());
    cr_expect(strchr(rp_last_error(), '\n') == NULL, "%s", rp_last_error());
}

/* ---- results --------------------------------------------------------------------------------- */

static void expect_number(const rp_simulation *s, uint32_t index, const char *key,
                          const json_t *value)
{
    double number = 0;
    cr_assert(eq(int, rp_simulation_number(s, index, key, &number), RP_CODE_OK), "%s", key);
    if (json_is_number(value)) {
        cr_expect(number == json_number_value(value), "%s: %.17g", key, number);
    } else if (json_is_boolean(value)) {
        cr_expect(eq(int, (int)number, (int)json_is_true(value)), "%s", key);
    } else if (!json_is_array(value)) {
        cr_expect(isnan(number), "%s: %.17g", key, number);
    }
}

static void expect_text(const rp_simulation *s, uint32_t index, const char *key,
                        const json_t *value)
{
    const char *text = "none";
    cr_assert(eq(int, rp_simulation_text(s, index, key, &text), RP_CODE_OK), "%s", key);
    const char *expected = json_string_value(value);
    bool same = expected == NULL ? text == NULL : text != NULL && strcmp(text, expected) == 0;
    cr_expect(same, "%s: %s", key, text != NULL ? text : "NULL");
}

static double real(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void expect_same(double a, double b, const char *key)
{
    cr_expect(a == b || (isnan(a) && isnan(b)), "%s: %.17g and %.17g", key, a, b);
}

static void expect_result(const rp_simulation *s, uint32_t index, const json_t *row)
{
    rp_result r = RP_RESULT_INIT;
    cr_assert(eq(int, rp_simulation_result(s, index, &r), RP_CODE_OK), "%s", rp_last_error());
    const json_t *fits = json_object_get(row, "fits");
    const json_t *peaks = json_object_get(row, "peak_gpu_bytes");
    rp_answer answer = json_is_null(fits)   ? RP_ANSWER_UNKNOWN
                       : json_is_true(fits) ? RP_ANSWER_YES
                                            : RP_ANSWER_NO;
    cr_expect(
        eq(str, (char *)r.schedule, (char *)json_string_value(json_object_get(row, "schedule"))));
    cr_expect(eq(str, (char *)r.model, (char *)json_string_value(json_object_get(row, "model"))));
    cr_expect(
        eq(str, (char *)r.partition, (char *)json_string_value(json_object_get(row, "partition"))));
    cr_expect(eq(int, r.fits, answer));
    cr_expect(eq(int, r.oom_reason == NULL, json_is_null(json_object_get(row, "oom_reason"))));
    expect_same(r.tokens_per_s, real(row, "tokens_per_s"), "tokens_per_s");
    expect_same(r.iteration_ms, real(row, "iteration_ms"), "iteration_ms");
    expect_same(r.makespan_ms, real(row, "makespan_ms"), "makespan_ms");
    expect_same(r.bubble_pct, real(row, "bubble_pct"), "bubble_pct");
    expect_same(r.lower_bound_ms, real(row, "lower_bound_ms"), "lower_bound_ms");
    cr_expect(eq(u32, r.gpus, (uint32_t)real(row, "gpus")));
    cr_expect(eq(int, r.peak_gpu_bytes == NULL, json_is_null(peaks)));
    for (uint32_t g = 0; r.peak_gpu_bytes != NULL && g < r.gpus; g++) {
        cr_expect(
            eq(u64, r.peak_gpu_bytes[g], (uint64_t)json_integer_value(json_array_get(peaks, g))));
    }
}

static void expect_rows(const rp_settings *settings, int argc, const char *const *argv)
{
    size_t index = 0;
    json_t *row = NULL;
    rp_simulation *s = simulate(settings);
    json_t *expected = rows_of(argc, argv);
    json_t *rows = rows_of_simulation(s);
    cr_expect(eq(int, json_equal(rows, expected), 1), "%s", argv[1]);
    cr_assert(eq(sz, rp_simulation_count(s), json_array_size(expected)));
    json_array_foreach(expected, index, row)
    {
        const char *key = NULL;
        json_t *value = NULL;
        expect_result(s, (uint32_t)index, row);
        json_object_foreach(row, key, value)
        {
            expect_number(s, (uint32_t)index, key, value);
            expect_text(s, (uint32_t)index, key, value);
        }
    }
    json_decref(rows);
    json_decref(expected);
    rp_simulation_free(s);
}

Test(library, settings_give_what_the_same_options_give)
{
    static const char *const small[] = {"--schedule", "roundpipe,1f1b", "--intervals", "off"};
    static const char *const large[] = {"--schedule",
                                        "zero-infinity,gpipe",
                                        "--model",
                                        "llama3.1-8b",
                                        "--platform",
                                        "a800x8",
                                        "--gpus",
                                        "4",
                                        "--seq-len",
                                        "4096",
                                        "--optimizer",
                                        "sync",
                                        "--dtype",
                                        "fp16",
                                        "--accumulation",
                                        "fp32",
                                        "--iterations",
                                        "4",
                                        "--microbatch-size",
                                        "2",
                                        "--intervals",
                                        "5",
                                        "--seed",
                                        "3"};
    static const char *const stage[] = {
        "--schedule",  "zb-h1", "--fidelity",  "stage", "--costs",        "qwen3-1.7b@rtx4090",
        "--recompute", "none",  "--partition", "even",  "--microbatches", "12",
        "--gpus",      "4"};
    static const char *const more[] = {"--partition", "even"};
    rp_input *model = load(RP_KIND_MODEL, "llama3.1-8b");
    rp_input *platform = load(RP_KIND_PLATFORM, "a800x8");
    rp_input *costs = load(RP_KIND_COSTS, "qwen3-1.7b@rtx4090");
    rp_settings s = RP_SETTINGS_INIT;
    s.schedule = "roundpipe,1f1b";
    expect_rows(&s, 4, small);

    s = (rp_settings)RP_SETTINGS_INIT;
    s.schedule = "zero-infinity,gpipe";
    s.model = model;
    s.platform = platform;
    s.gpus = 4;
    s.seq_len = 4096;
    s.optimizer = "sync";
    s.dtype = "fp16";
    s.accumulation = "fp32";
    s.iterations = 4;
    s.microbatch_size = 2;
    s.intervals = 5;
    s.seed = 3;
    expect_rows(&s, sizeof large / sizeof large[0], large);

    s = (rp_settings)RP_SETTINGS_INIT;
    s.schedule = "zb-h1";
    s.fidelity = "stage";
    s.costs = costs;
    s.recompute = "none";
    s.microbatches = 12;
    s.gpus = 4;
    s.options = more;
    s.option_count = 2;
    expect_rows(&s, sizeof stage / sizeof stage[0], stage);
    rp_input_free(model);
    rp_input_free(platform);
    rp_input_free(costs);
    expect_freed();
}

Test(library, a_simulation_outlives_its_inputs)
{
    rp_settings s = RP_SETTINGS_INIT;
    rp_simulation *simulation = NULL;
    rp_result result = RP_RESULT_INIT;
    rp_input *model = load(RP_KIND_MODEL, "qwen3-8b");
    s.schedule = "gpipe";
    s.model = model;
    cr_assert(eq(int, rp_simulation_prepare(&s, &simulation), RP_CODE_OK), "%s", rp_last_error());
    rp_input_free(model);
    cr_assert(eq(int, rp_simulation_run(simulation), RP_CODE_OK), "%s", rp_last_error());
    cr_assert(eq(int, rp_simulation_result(simulation, 0, &result), RP_CODE_OK));
    cr_expect(eq(str, (char *)result.model, "qwen3-8b"));
    rp_simulation_free(simulation);
    expect_freed();
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static void expect_fact(const rp_input *input, const char *key, double expected)
{
    double number = 0;
    cr_expect(eq(int, rp_input_number(input, key, &number), RP_CODE_OK), "%s", rp_last_error());
    cr_expect(eq(dbl, number, expected), "%s", key);
}

/* Shapes of Qwen3-8B from its config.json and model card. An RTX 4090 reads 1008 GB/s by its
 * datasheet; the table sums its file's 28 layers of 7.429 ms and 22.0655 ms for the head. */
Test(library, inputs_say_what_their_files_say)
{
    rp_input *model = load(RP_KIND_MODEL, "qwen3-8b");
    rp_input *platform = load(RP_KIND_PLATFORM, "rtx4090x8");
    rp_input *costs = load(RP_KIND_COSTS, "qwen3-1.7b@rtx4090");
    double number = 0;
    cr_expect(eq(str, (char *)rp_input_name(model), "qwen3-8b"));
    cr_expect(eq(int, rp_input_kind(costs), RP_KIND_COSTS));
    expect_fact(model, "layers", 36);
    expect_fact(model, "hidden", 4096);
    expect_fact(model, "vocab", 151936);
    cr_assert(eq(int, rp_input_number(model, "parameters", &number), RP_CODE_OK));
    cr_expect(number > 8.15e9 && number < 8.25e9);
    expect_fact(platform, "gpus", 8);
    expect_fact(platform, "memory_gb_per_s", 1008);
    expect_fact(costs, "layers", 28);
    cr_assert(eq(int, rp_input_number(costs, "fwd_ms", &number), RP_CODE_OK));
    cr_expect(fabs(number - (28 * 7.429 + 22.0655)) < 1e-6, "%.9g", number);
    expect_refused(rp_input_number(platform, "memory", &number), "memory_gb");
    cr_expect(isnan(number));
    expect_refused(rp_input_number(NULL, "layers", &number), "not NULL");
    cr_expect(rp_input_name(NULL) == NULL);
    cr_expect(eq(int, rp_input_kind(NULL), RP_KIND_SCHEDULE));
    rp_input_free(model);
    rp_input_free(platform);
    rp_input_free(costs);
    rp_input_free(NULL);
    expect_freed();
}

Test(library, inputs_that_are_none_are_refused)
{
    rp_input *input = (rp_input *)&input;
    expect_refused(rp_input_load(RP_KIND_MODEL, "qwen3-8", &input), "qwen3-8b");
    cr_expect(input == NULL);
    expect_refused(rp_input_load(RP_KIND_PLATFORM, "/nowhere/a.yaml", &input), "/nowhere/a.yaml");
    expect_refused(rp_input_load(RP_KIND_SCHEDULE, "gpipe", &input), "no input");
    expect_refused(rp_input_load(RP_KIND_MODEL, NULL, &input), "not NULL");
    expect_refused(rp_input_load(RP_KIND_MODEL, "qwen3-8b", NULL), "not NULL");
    expect_freed();
}

Test(library, names_are_those_of_lists)
{
    static const rp_kind kinds[] = {RP_KIND_MODEL, RP_KIND_PLATFORM, RP_KIND_COSTS,
                                    RP_KIND_SCHEDULE};
    static const char *const known[] = {"qwen3-1.7b", "rtx4090x8", "qwen3-1.7b@rtx4090",
                                        "roundpipe"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        char **names = NULL;
        uint32_t count = 0;
        bool found = false;
        cr_assert(eq(int, rp_names(kinds[k], &names, &count), RP_CODE_OK), "%s", rp_last_error());
        for (uint32_t i = 0; i < count; i++) {
            found = found || strcmp(names[i], known[k]) == 0;
        }
        cr_expect(found, "%s", known[k]);
        cr_expect(names[count] == NULL);
        rp_free_names(names);
    }
    char **names = NULL;
    uint32_t count = 1;
    expect_refused(rp_names((rp_kind)9, &names, &count), "rp_kind");
    cr_expect(names == NULL && count == 0);
    rp_free_names(NULL);
    expect_freed();
}

/* ---- timelines ------------------------------------------------------------------------------- */

static const rp_timed_op *ops_of(rp_simulation *s, uint32_t *count_out)
{
    const rp_timed_op *ops = NULL;
    cr_assert(eq(int, rp_simulation_ops(s, 0, &ops, count_out), RP_CODE_OK), "%s", rp_last_error());
    return ops;
}

/* Every op starts after the op that it waited for. At stage fidelity only ops and hops take time,
 * so the chain from the last op back to the beginning has no gaps.
 * @param hop_ms below 0: hardware fidelity */
static void expect_chain(const rp_timed_op *ops, uint32_t count, double hop_ms)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t before = ops[i].waited_for;
        cr_assert(ops[i].start_ms <= ops[i].end_ms);
        cr_assert(before == RP_NO_OP || (before < count && ops[before].end_ms <= ops[i].start_ms),
                  "op %u", i);
        last = ops[i].end_ms > ops[last].end_ms ? i : last;
    }
    for (; ops[last].waited_for != RP_NO_OP; last = ops[last].waited_for) {
        double gap_ms = ops[last].start_ms - ops[ops[last].waited_for].end_ms;
        bool moves = ops[last].gpu != ops[ops[last].waited_for].gpu;
        cr_assert(hop_ms < 0 || fabs(gap_ms - (moves ? hop_ms : 0)) < 1e-6, "op %u: %g", last,
                  gap_ms);
    }
    cr_expect(hop_ms < 0 || ops[last].start_ms == 0, "op %u: %g", last, ops[last].start_ms);
}

Test(library, timelines_have_every_op_and_its_cause)
{
    double hop_ms = 0;
    uint32_t count = 0;
    rp_input *costs = load(RP_KIND_COSTS, "qwen3-1.7b@rtx4090");
    rp_settings s = RP_SETTINGS_INIT;
    rp_result result = RP_RESULT_INIT;
    s.schedule = "gpipe";
    s.fidelity = "stage";
    s.keep_timeline = 1;
    cr_assert(eq(int, rp_input_number(costs, "hop_ms", &hop_ms), RP_CODE_OK));
    rp_simulation *simulation = simulate(&s);
    const rp_timed_op *ops = ops_of(simulation, &count);
    expect_chain(ops, count, hop_ms);
    cr_assert(eq(int, rp_simulation_result(simulation, 0, &result), RP_CODE_OK));
    double end_ms = 0;
    double busy_ms = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rp_timed_op *before = ops[i].waited_for != RP_NO_OP ? &ops[ops[i].waited_for] : NULL;
        end_ms = fmax(end_ms, ops[i].end_ms);
        busy_ms += ops[i].end_ms - ops[i].start_ms;
        if (strcmp(ops[i].kind, "F") == 0 && ops[i].microbatch == 0 && ops[i].stage > 0) {
            cr_assert(before != NULL);
            cr_expect(eq(u32, before->stage, ops[i].stage - 1));
            cr_expect(eq(str, (char *)ops[i].meaning, "forward"));
        }
    }
    cr_expect(fabs(end_ms - result.makespan_ms) < 1e-6);
    cr_expect(fabs(100 - 100 * busy_ms / (result.makespan_ms * result.gpus) - result.bubble_pct) <
              1e-6);
    rp_simulation_free(simulation);

    s.schedule = "roundpipe";
    s.fidelity = NULL;
    s.iterations = 2;
    simulation = simulate(&s);
    ops = ops_of(simulation, &count);
    expect_chain(ops, count, -1);
    cr_expect(eq(u32, ops[count - 1].iteration, 1));
    rp_simulation_free(simulation);
    rp_input_free(costs);
    expect_freed();
}

/* ---- misuse ---------------------------------------------------------------------------------- */

Test(library, calls_at_the_wrong_time_are_refused)
{
    rp_settings s = RP_SETTINGS_INIT;
    rp_simulation *simulation = NULL;
    rp_result result = RP_RESULT_INIT;
    const rp_timed_op *ops = NULL;
    uint32_t count = 1;
    double number = 0;
    char *json = (char *)&json;
    s.schedule = "gpipe";
    s.iterations = 1;
    cr_assert(eq(int, rp_simulation_prepare(&s, &simulation), RP_CODE_OK));
    cr_expect(eq(u32, rp_simulation_count(simulation), 0));
    expect_refused(rp_simulation_result(simulation, 0, &result), "after rp_simulation_run");
    expect_refused(rp_simulation_json(simulation, &json), "after rp_simulation_run");
    cr_expect(json == NULL);
    cr_assert(eq(int, rp_simulation_run(simulation), RP_CODE_OK));
    expect_refused(rp_simulation_run(simulation), "once");
    cr_expect(eq(u32, rp_simulation_count(simulation), 1));
    expect_refused(rp_simulation_result(simulation, 1, &result), "0 to 0");
    expect_refused(rp_simulation_number(simulation, 0, "tokens", &number), "tokens_per_s");
    expect_refused(rp_simulation_ops(simulation, 0, &ops, &count), "keep_timeline");
    cr_expect(ops == NULL && count == 0);
    result.size = 0;
    expect_refused(rp_simulation_result(simulation, 0, &result), "RP_RESULT_INIT");
    rp_simulation_free(simulation);
    rp_simulation_free(NULL);
    expect_refused(rp_simulation_run(NULL), "no simulation");
    expect_freed();
}

/* A caller in C sets settings and types no option. */
Test(library, messages_name_settings_by_their_keys)
{
    static const char *const sizes[] = {"--schedule", "gpipe", "--microbatches", "3000000"};
    static const char *const lists[] = {"--schedule", "gpipe", "--partition", "3,3"};
    char *text = NULL;
    rp_log_set_program(NULL);
    expect_refused(rp_run_json(4, lists, &text), "partition: gpipe has");
    cr_expect(strstr(rp_last_error(), "--") == NULL, "%s", rp_last_error());
    expect_refused(rp_run_json(4, sizes, &text), "microbatches");
}

Test(library, settings_that_cannot_be_are_refused_in_the_words_of_rpsim)
{
    static const char *const list[] = {"--list", "models"};
    static const char *const flows[] = {"--flows", "f.json"};
    static const char *const none[] = {NULL};
    rp_simulation *simulation = (rp_simulation *)&simulation;
    rp_input *costs = load(RP_KIND_COSTS, "qwen3-1.7b@rtx4090");
    rp_settings s = RP_SETTINGS_INIT;
    expect_refused(rp_simulation_prepare(&s, &simulation), "--schedule");
    cr_expect(simulation == NULL);
    s.schedule = "gpip";
    expect_refused(rp_simulation_prepare(&s, &simulation), "unknown schedule 'gpip'");
    s.schedule = "gpipe";
    s.gpus = 9;
    expect_refused(rp_simulation_prepare(&s, &simulation), "--gpus: rtx4090x8 has 8 GPUs");
    s.gpus = 0;
    s.model = costs;
    expect_refused(rp_simulation_prepare(&s, &simulation), "another kind");
    s.model = NULL;
    s.options = list;
    s.option_count = 2;
    expect_refused(rp_simulation_prepare(&s, &simulation), "--list");
    s.options = flows;
    s.schedule = NULL;
    expect_refused(rp_simulation_prepare(&s, &simulation), "--flows");
    s.options = none;
    s.option_count = 1;
    expect_refused(rp_simulation_prepare(&s, &simulation), "NULL");
    s.size = sizeof s + 8;
    expect_refused(rp_simulation_prepare(&s, &simulation), "RP_SETTINGS_INIT");
    expect_refused(rp_simulation_prepare(NULL, &simulation), "RP_SETTINGS_INIT");
    expect_refused(rp_simulation_prepare(&s, NULL), "not NULL");
    rp_input_free(costs);
    expect_freed();
}

/* As if compiled with fewer members. */
Test(library, settings_of_an_older_header_are_understood)
{
    rp_settings s = RP_SETTINGS_INIT;
    memset(&s, 0xff, sizeof s);
    s.size = offsetof(rp_settings, model);
    s.schedule = "gpipe";
    rp_simulation *simulation = simulate(&s);
    cr_expect(eq(u32, rp_simulation_count(simulation), 1));
    rp_simulation_free(simulation);
    expect_freed();
}

Test(library, arguments_that_are_none_are_refused)
{
    static const char *const none[] = {"--schedule", NULL};
    char *json = (char *)&json;
    expect_refused((rp_code)rp_run_json(2, none, &json), "NULL");
    cr_expect(json == NULL);
    expect_refused((rp_code)rp_run_json(-1, none, &json), "argc");
    expect_refused((rp_code)rp_run_json(1, NULL, &json), "argc");
    expect_refused((rp_code)rp_run_json(1, none, NULL), "json_out");
    rp_free_json(NULL);
    expect_freed();
}

Test(library, messages_are_those_of_the_last_call)
{
    static const char *const bad[] = {"--schedule", "gpip"};
    static const char *const fast = "costs.fwd_ms*0.1,costs.bwd_ms*0.1"; /* faster than any GPU */
    const char *const warned[] = {"--schedule", "gpipe", "--set", fast, "--intervals", "off"};
    char *json = NULL;
    expect_refused((rp_code)rp_run_json(2, bad, &json), "unknown schedule");
    cr_expect(eq(str, (char *)rp_last_warnings(), ""));
    cr_assert(eq(int, rp_run_json(6, warned, &json), RP_CODE_OK));
    rp_free_json(json);
    cr_expect(eq(str, (char *)rp_last_error(), ""));
    cr_expect(strncmp(rp_last_warnings(), "cost table qwen3-1.7b", 21) == 0, "%s",
              rp_last_warnings());
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", RP_VERSION_MAJOR, RP_VERSION_MINOR, RP_VERSION_PATCH);
    cr_expect(eq(str, (char *)rp_version(), text));
    expect_freed();
}
