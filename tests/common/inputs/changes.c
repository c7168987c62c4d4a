/* --set equals an edited copy of the file, bit for bit. */
#include "common/store/store.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

TestSuite(changes, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

/* Copies a YAML file with new values of some keys; NULL removes a key. */
static void edit(const char *from, const char *to, const char *const edits[][2], size_t count)
{
    const char *text = rp_test_tool_read(from);
    FILE *file = fopen(to, "w");
    cr_assert(file != NULL);
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        bool replaced = false;
        for (size_t i = 0; i < count; i++) {
            size_t key = strlen(edits[i][0]);
            replaced = replaced || (strncmp(line, edits[i][0], key) == 0 && line[key] == ':');
        }
        if (!replaced) {
            fprintf(file, "%.*s\n", (int)length, line);
        }
        line += length + (line[length] == '\n');
    }
    for (size_t i = 0; i < count; i++) {
        if (edits[i][1] != NULL) {
            fprintf(file, "%s: %s\n", edits[i][0], edits[i][1]);
        }
    }
    cr_assert(eq(int, fclose(file), 0));
}

/* A run's rows without names. */
static json_t *run(const char *format, const char *option)
{
    char line[2048];
    int length = snprintf(line, sizeof line, format, option);
    cr_assert(length > 0 && (size_t)length < sizeof line);
    rp_test_outcome outcome = rp_test_rpsim_well(line);
    json_t *rows = json_loads(outcome.output, 0, NULL);
    cr_assert(json_array_size(rows) > 0, "%s", outcome.output);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        cr_assert(eq(int, json_object_del(row, "platform"), 0));
        (void)json_object_del(row, "costs");
    }
    return rows;
}

typedef struct what_if {
    const char *file;   /* under the traces */
    const char *option; /* to read it */
    const char *set;
    const char *edits[3][2];
    bool at[2]; /* whether it matters at stage fidelity, at hardware fidelity */
} what_if;

/* Times are whole picoseconds and half of a rate is exact, so products can be written out. */
static const what_if what_ifs[] = {
    {"costs/qwen3-1.7b@rtx4090",
     "--costs",
     "costs.fwd_ms=8,costs.hop_ms=2",
     {{"fwd_ms", "8"}, {"hop_ms", "2"}},
     {true, true}},
    {"costs/qwen3-1.7b@rtx4090",
     "--costs",
     "costs.fwd_ms*1.05 --set costs.head_bwd_ms*0.5",
     {{"fwd_ms", "7.80045"}, {"head_bwd_ms", "21.8535"}},
     {true, true}},
    {"costs/qwen3-1.7b@rtx4090",
     "--costs",
     "costs.bwd_ms*2", /* its half is derived */
     {{"bwd_ms", "31.662"}},
     {true, true}},
    {"costs/qwen3-1.7b@rtx4090",
     "--costs",
     "costs.bwd_input_ms=5,costs.bwd_input_ms*2",
     {{"bwd_input_ms", "10"}},
     {true, true}},
    {"platforms/rtx4090x8", "--platform", "platform.gpus=4", {{"gpus", "4"}}, {true, true}},
    {"platforms/rtx4090x8",
     "--platform",
     "platform.link_gb_per_s=16,platform.link_effective_gb_per_s*0.5",
     {{"link_gb_per_s", "16"}, {"link_effective_gb_per_s", "10.485"}},
     {false, true}},
    {"platforms/rtx4090x8",
     "--platform",
     "platform.pcie_gen=3,platform.pcie_lanes=8,platform.link_effective_gb_per_s=7",
     {{"pcie_gen", "3\npcie_lanes: 8"}, {"link_gb_per_s", NULL}, {"link_effective_gb_per_s", "7"}},
     {false, true}},
    {"platforms/rtx4090x8",
     "--platform",
     "platform.gpus_per_root=4,platform.root_gb_per_s=25",
     {{"gpus_per_root", "4"}, {"root_gb_per_s", "25"}},
     {false, true}},
};

/* Intervals are compared, too; their default of 32 draws only with RP_LONG. */
Test(changes, set_gives_what_an_edited_file_gives)
{
    const char *draws = getenv("RP_LONG") != NULL ? "" : " --intervals 4";
    json_t *plain[2] = {NULL, NULL};
    for (size_t i = 0; i < 2 * COUNT(what_ifs); i++) {
        const what_if *w = &what_ifs[i / 2];
        bool hardware = i % 2 == 1;
        char from[512];
        char to[512];
        char format[512];
        char option[1024];
        size_t edits = 0;
        while (edits < COUNT(w->edits) && w->edits[edits][0] != NULL) {
            edits++;
        }
        snprintf(from, sizeof from, "%s/traces/%s.yaml", RP_SOURCE_ROOT, w->file);
        snprintf(to, sizeof to, "%s/edited.yaml", rp_test_tool_folder());
        edit(from, to, w->edits, edits);
        snprintf(format, sizeof format,
                 "--format json --schedule roundpipe,zb-h1 --model qwen3-1.7b --fidelity %s%s %%s",
                 hardware ? "hardware" : "stage", hardware ? draws : "");
        snprintf(option, sizeof option, "%s %s", w->option, to);
        json_t *edited = run(format, option);
        snprintf(option, sizeof option, "--set %s", w->set);
        json_t *set = run(format, option);
        plain[hardware] = plain[hardware] != NULL ? plain[hardware] : run(format, "--seed 0");
        cr_expect(json_equal(edited, set), "%s", w->set);
        cr_expect(eq(int, !json_equal(plain[hardware], set), w->at[hardware]), "%s", w->set);
        json_decref(edited);
        json_decref(set);
    }
    json_decref(plain[0]);
    json_decref(plain[1]);
}

Test(changes, computed_times_follow_the_platform)
{
    static const char *const edits[][2] = {{"memory_gb_per_s", "900"}, {"gemm_efficiency", "0.5"}};
    char from[512];
    char to[512];
    char option[1024];
    const char *format = "--format json --schedule roundpipe --model qwen3-8b %s";
    snprintf(from, sizeof from, "%s/traces/platforms/a800x8.yaml", RP_SOURCE_ROOT);
    snprintf(to, sizeof to, "%s/edited.yaml", rp_test_tool_folder());
    edit(from, to, edits, COUNT(edits));
    snprintf(option, sizeof option, "--platform %s", to);
    json_t *edited = run(format, option);
    json_t *set = run(format, "--platform a800x8 --set "
                              "platform.memory_gb_per_s=900,platform.gemm_efficiency=0.5");
    json_t *plain = run(format, "--platform a800x8");
    cr_expect(json_equal(edited, set));
    cr_expect(not(json_equal(plain, set)));
    json_decref(edited);
    json_decref(set);
    json_decref(plain);
}

/* Lists: each number is multiplied, or a number replaces all. */
Test(changes, lists_are_multiplied_or_replaced)
{
    static const char *const twice[][2] = {{"fwd_ms", "[2, 4, 3, 3]"}};
    static const char *const half[][2] = {{"fwd_ms", "[1, 2, 1.5, 1.5]"}};
    static const char *const one[][2] = {{"fwd_ms", "2.5"}};
    const char *from = RP_TEST_ROOT "/bad/data/good-costs-list.yaml";
    char path[3][512];
    char format[768];
    const char *const names[] = {"twice", "half", "one"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s.yaml", rp_test_tool_folder(), names[i]);
        edit(from, path[i], i == 0 ? twice : i == 1 ? half : one, 1);
    }
    const char *const sets[] = {"costs.fwd_ms*2", "costs.fwd_ms=2.5"};
    const char *const same[] = {path[0], path[2]};
    for (size_t i = 0; i < 2; i++) {
        snprintf(format, sizeof format,
                 "--format json --schedule gpipe --gpus 2 --fidelity stage --costs %s --set %%s",
                 i == 0 ? path[1] : path[0]);
        json_t *set = run(format, sets[i]);
        snprintf(format, sizeof format,
                 "--format json --schedule gpipe --gpus 2 --fidelity stage --costs %s %%s",
                 same[i]);
        json_t *edited = run(format, "--seed 0");
        cr_expect(json_equal(edited, set), "%s", sets[i]);
        json_decref(set);
        json_decref(edited);
    }
}

/* Results must not be taken for the plain platform's or table's. */
Test(changes, results_name_the_changes)
{
    rp_test_outcome table = rp_test_rpsim_well(
        "--schedule gpipe --fidelity stage --set costs.hop_ms=3 --set platform.memory_gb*2");
    cr_expect(strstr(table.output, " on rtx4090x8 with memory_gb*2 (") != NULL, "%s", table.output);
    cr_expect(strstr(table.output, "times of qwen3-1.7b@rtx4090 with hop_ms=3\n") != NULL, "%s",
              table.output);

    rp_store *store = NULL;
    rp_store_run *runs = NULL;
    uint32_t count = 0;
    char path[512];
    (void)rp_test_rpsim_well(
        "--schedule gpipe --set costs.fwd_ms*2,platform.gpus=4 --db @DIR@/s.db");
    snprintf(path, sizeof path, "%s/s.db", rp_test_tool_folder());
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    cr_assert(eq(int, rp_store_read_runs(store, 0, rp_test_tool_arena(), &runs, &count), RP_OK));
    rp_store_close(store);
    cr_assert(eq(u32, count, 1));
    cr_expect(eq(str, (char *)runs[0].platform, "rtx4090x8 with gpus=4"));
    cr_expect(eq(str, (char *)runs[0].costs, "qwen3-1.7b@rtx4090 with fwd_ms*2"));
    const char *set = "\"set\":\"costs.fwd_ms*2,platform.gpus=4\"";
    cr_expect(strstr(runs[0].config_json, set) != NULL, "%s", runs[0].config_json);
}
