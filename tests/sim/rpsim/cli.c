/* rpsim's command line: bad lines (tests/bad/commands.tsv), artefacts, --list, --help. */
#include "common/schedule/schedule_type.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define COMMANDS RP_TEST_ROOT "/bad/commands.tsv"
#define SMALL_COSTS RP_TEST_ROOT "/bad/data/good-costs-list.yaml"

TestSuite(cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* ---- bad command lines ----------------------------------------------------------------------- */

/* Each command also asks for outputs: a refused command leaves no file, under any name. */
#define PREFIX "--fidelity stage --trace-out @DIR@/t.json --program-out @DIR@/p.txt"

static rp_test_outcome run_with_outputs(const char *line)
{
    return rp_test_rpsim_after(PREFIX, line);
}

Test(cli, bad_commands_are_refused)
{
    rp_test_refusals(COMMANDS, 60, run_with_outputs);
}

/* Whatever bytes an argument has, a message stays a line that no terminal obeys. */
Test(cli, messages_are_one_short_line)
{
    static const struct {
        const char *schedule;
        const char *shown;
    } cases[] = {
        {"a\nb\tc\rd", "'a\\x0ab\\x09c\\x0dd'"},
        {"\x1b[31mred\x7f", "'\\x1b[31mred\\x7f'"},
        {"\xc2\x9b"
         "31m",
         "'\\xc2\\x9b31m'"}, /* C1 */
        {"\xe2\x80\xae"
         "evil\xe2\x81\xa6",
         "'\\xe2\\x80\\xaeevil\\xe2\\x81\\xa6'"}, /* direction */
        {"\xff\xc0\xaf\xed\xa0\x80\xe2\x80", "'\\xff\\xc0\\xaf\\xed\\xa0\\x80\\xe2\\x80'"},
        {"größe-\xe2\x80\xa6-\xf0\x9f\x98\x80", "'größe-\xe2\x80\xa6-\xf0\x9f\x98\x80'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *arguments[] = {"rpsim", "--schedule", cases[i].schedule, NULL};
        rp_test_outcome result = rp_test_tool_execute(RPSIM_PATH, arguments);
        cr_expect(eq(int, result.status, 2));
        cr_expect(strstr(result.messages, cases[i].shown) != NULL, "%s", result.messages);
        cr_expect(eq(sz, strcspn(result.messages, "\n") + 1, strlen(result.messages)));
    }
    char longest[100000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *arguments[] = {"rpsim", "--schedule", longest, NULL};
    rp_test_outcome result = rp_test_tool_execute(RPSIM_PATH, arguments);
    cr_expect(lt(sz, strlen(result.messages), 1200));
    cr_expect(strncmp(result.messages, "rpsim: --schedule: unknown schedule 'xxx", 40) == 0);
    cr_expect(strstr(result.messages, " bytes) ") != NULL, "%s", result.messages);
    char valid[128];
    snprintf(valid, sizeof valid, "'; valid values are %s, ", rp_schedules[0]->name);
    cr_expect(strstr(result.messages, valid) != NULL, "%s", result.messages);
}

Test(cli, full_output_fails_the_run)
{
    const char *const arguments[] = {
        "sh", "-c", RPSIM_PATH " --schedule gpipe --fidelity stage >/dev/full", NULL};
    rp_test_outcome result = rp_test_tool_execute("/bin/sh", arguments);
    cr_expect(eq(int, result.status, 1));
    cr_expect(strstr(result.messages, "standard output: No space left") != NULL, "%s",
              result.messages);
}

Test(cli, full_trace_fails_the_run)
{
    rp_test_outcome result =
        rp_test_rpsim("--schedule gpipe --fidelity stage --trace-out /dev/full");
    cr_expect(eq(int, result.status, 1));
    cr_expect(strstr(result.messages, "/dev/full: cannot be written: No space left") != NULL, "%s",
              result.messages);
}

Test(cli, read_only_output_is_refused)
{
    if (geteuid() == 0) {
        rp_test_tool_end(); /* a skipped test ends here */
        cr_skip("root may write everything");
    }
    const char *path = rp_test_path(rp_test_tool_folder(), "old.json");
    fclose(fopen(path, "w"));
    cr_assert(eq(int, chmod(path, 0444), 0));
    rp_test_outcome result =
        rp_test_rpsim("--schedule gpipe --fidelity stage --trace-out @DIR@/old.json");
    cr_expect(eq(int, result.status, 2));
    cr_expect(strstr(result.messages, "old.json: cannot be written: Permission denied") != NULL,
              "%s", result.messages);
}

/* ---- everything else ------------------------------------------------------------------------- */

Test(cli, lists_name_what_there_is)
{
    static const char *const expected[][2] = {{"schedules", "interleaved-1f1b "},
                                              {"models", "gpt-oss-20b "},
                                              {"platforms", "rtx4090x8 "},
                                              {"costs", "qwen3-235b@rtx4090 "}};
    for (size_t i = 0; i < COUNT(expected); i++) {
        rp_test_outcome result = rp_test_rpsim_after("--list", expected[i][0]);
        cr_expect(eq(int, result.status, 0));
        cr_expect(strstr(result.output, expected[i][1]) != NULL, "%s", result.output);
    }
    const char *schedules = rp_test_rpsim_well("--list schedules").output;
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        cr_expect(strstr(schedules, rp_schedules[s]->summary) != NULL, "%s", rp_schedules[s]->name);
    }
}

/* --help names every option of the contract, and none that does not exist yet. */
Test(cli, help_names_every_option)
{
    static const char *const options[] = {
        "schedule",   "gpus",      "microbatches",  "microbatch-size", "seq-len",      "model",
        "platform",   "costs",     "partition",     "config",          "fidelity",     "recompute",
        "iterations", "optimizer", "global-batch",  "accumulate",      "grain",        "round",
        "max-seqlen", "jitter",    "replicas",      "slow-gpu",        "seed",         "format",
        "trace-out",  "gantt-out", "program-out",   "program-in",      "db",           "list",
        "check",      "flows",     "torch-csv-out", "torch-csv-in",    "timeline-out", "html-out"};
    const char *help = rp_test_rpsim_well("--help").output;
    size_t known = 0;
    for (size_t i = 0; i < COUNT(options); i++) {
        const char *word = NULL;
        const char *entry = NULL;
        cr_assert(eq(int, rp_arena_print(rp_test_tool_arena(), &word, "--%s", options[i]), RP_OK));
        cr_assert(
            eq(int, rp_arena_print(rp_test_tool_arena(), &entry, "\n  --%s ", options[i]), RP_OK));
        bool exists = strstr(rp_test_rpsim(word).messages, "unknown or incomplete option") == NULL;
        cr_expect(exists == (strstr(help, entry) != NULL), "%s", word);
        known += exists ? 1 : 0;
    }
    cr_expect(ge(sz, known, 24));
    cr_expect(strstr(rp_test_rpsim_well("--version").output, "rpsim ") != NULL);
}

/* A program file gives the same metrics as the run that wrote it. */
static void check_program_file(const char *schedule)
{
    static const char *const keys[] = {
        "makespan_ms",    "bubble_ms",    "fill_ms",      "switch_ms",
        "drain_ms",       "intra_ms",     "ops",          "comm_total_ms",
        "gpus",           "microbatches", "iteration_ms", "lower_bound_ms",
        "comm_exposed_ms"};
    const char *line = NULL;
    rp_status status = rp_arena_print(rp_test_tool_arena(), &line,
                                      "--schedule %s --gpus 4 --recompute wait --program-out "
                                      "@DIR@/p.txt",
                                      schedule);
    cr_assert(eq(int, status, RP_OK));
    json_t *written = rp_test_rpsim_json(line);
    json_t *read = rp_test_rpsim_json("--program-in @DIR@/p.txt");
    const json_t *a = json_array_get(written, 0);
    const json_t *b = json_array_get(read, 0);
    for (size_t k = 0; k < COUNT(keys); k++) {
        cr_expect(eq(dbl, rp_test_json_number(a, keys[k]), rp_test_json_number(b, keys[k])),
                  "%s of %s", keys[k], schedule);
    }
    cr_expect(eq(str, (char *)rp_test_json_text(a, "partition"),
                 (char *)rp_test_json_text(b, "partition")));
    cr_expect(eq(str, (char *)rp_test_json_text(b, "schedule"), (char *)schedule));
    cr_expect(eq(str, (char *)rp_test_json_text(b, "recompute"), "wait"));
    json_decref(written);
    json_decref(read);
}

Test(cli, program_files_run_again)
{
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        if (!rp_is_data_parallel(&rp_schedules[s]->traits)) { /* only at hardware fidelity */
            check_program_file(rp_schedules[s]->name);
        }
    }
}

Test(cli, check_validates_only)
{
    rp_test_outcome result = rp_test_rpsim_well("--schedule all --gpus 4 --fidelity stage --check");
    cr_expect(strncmp(result.output, "valid: ", 7) == 0, "%s", result.output);
    cr_expect(strstr(result.output, "program hash ") != NULL);
    rp_test_rpsim_well("--schedule gpipe --gpus 4 --fidelity stage --program-out @DIR@/p.txt");
    cr_expect(
        strncmp(rp_test_rpsim_well("--program-in @DIR@/p.txt --fidelity stage --check").output,
                "valid: gpipe", 12) == 0);
}

Test(cli, several_models_in_one_call)
{
    json_t *rows = rp_test_rpsim_json("--schedule gpipe,1f1b --model llama3.1-8b,qwen3-32b");
    static const char *const models[] = {"llama3.1-8b", "llama3.1-8b", "qwen3-32b", "qwen3-32b"};
    cr_assert(eq(sz, json_array_size(rows), 4));
    for (size_t i = 0; i < 4; i++) {
        const json_t *row = json_array_get(rows, i);
        cr_expect(eq(str, (char *)rp_test_json_text(row, "model"), (char *)models[i]));
        cr_expect(
            eq(str, (char *)rp_test_json_text(row, "schedule"), i % 2 == 0 ? "gpipe" : "1f1b"));
    }
    json_decref(rows);
}

Test(cli, seed_is_stored)
{
    json_t *rows = rp_test_rpsim_json("--schedule gpipe --seed 4711 --trace-out @DIR@/t.json");
    cr_expect(eq(dbl, rp_test_json_number(json_array_get(rows, 0), "seed"), 4711));
    json_decref(rows);
    const char *trace = rp_test_tool_read(rp_test_path(rp_test_tool_folder(), "t.json"));
    cr_expect(strstr(trace, "\"seed\": \"4711\"") != NULL);
}

Test(cli, all_leaves_out_what_is_not_allowed)
{
    const char *line = "--schedule all --gpus 8 --microbatches 17";
    json_t *rows = rp_test_rpsim_json(line);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        cr_expect(ne(str, (char *)rp_test_json_text(row, "schedule"), "interleaved-1f1b"));
    }
    cr_expect(ge(sz, json_array_size(rows), 8));
    json_decref(rows);
    rp_test_outcome result = rp_test_rpsim_after("--format json --fidelity stage", line);
    const char *warning = strstr(result.messages, "warning: interleaved-1f1b left out: --microb");
    cr_assert(warning != NULL, "%s", result.messages);
    cr_expect(strstr(warning + 1, "warning: interleaved-1f1b") == NULL, "%s", result.messages);
}

Test(cli, costs_without_model)
{
    json_t *rows = rp_test_rpsim_json("--schedule gpipe --gpus 2 --costs " SMALL_COSTS);
    const json_t *row = json_array_get(rows, 0);
    bool none = json_is_null(json_object_get(row, "platform"));
    cr_expect(none);
    cr_expect(
        eq(str, (char *)rp_test_json_text(row, "costs"), (char *)rp_test_json_text(row, "model")));
    json_decref(rows);
}
