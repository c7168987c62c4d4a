/* A schedule CSV's side-car: written and read, it gives the same program; wrong side-cars are
 * refused. */
#include "sim/interchange/torch_sidecar.h"
#include "common/base/log.h"
#include "common/schedule/build.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static rp_arena *arena;
static char messages[4096];

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    rp_log_capture_begin(messages, sizeof messages);
}

static void again(void)
{
    rp_log_capture_end();
    rp_log_capture_begin(messages, sizeof messages);
}

static void end(void)
{
    rp_log_capture_end();
    rp_test_end(arena);
}

TestSuite(torch_sidecar, .init = begin, .fini = end);

/* Two forward and three backward stages on two ranks. */
#define NAME "{\"x-rpsim-schedule\": 2, \"schedule\": \"mine\", \"recompute\": \"wait\", "
#define PLACED "\"placement\": \"offload\", \"versions\": \"one\", "
#define HEAD NAME PLACED "\"traits\": [\"one-dispatcher\"], "
#define SIZES "\"microbatches\": 1, \"layers\": 4, "
#define FORWARD "\"forward_layers\": [[0, 2], [2, 4]], "
#define BACKWARD "\"backward_layers\": [[4, 4], [2, 4], [0, 2]], "
#define RANKS "\"ranks\": [[0, 2, 4], [1, 3]]}"
#define ROWS "0F0,2B0,4B0\n1F0,3B0\n"

static rp_status read_both(const char *json, const char *rows, rpsim_sidecar *sidecar)
{
    rp_torch_csv csv;
    again();
    RP_TRY(rpsim_sidecar_read("x.json", json, strlen(json), arena, sidecar));
    cr_assert(eq(int, rp_torch_csv_parse("s.csv", rows, strlen(rows), arena, &csv), RP_OK), "%s",
              messages);
    rpsim_sidecar_apply(sidecar, &csv);
    RP_TRY(rp_torch_csv_check(&csv, arena));
    return rpsim_sidecar_check(sidecar, &csv, arena);
}

Test(torch_sidecar, is_read)
{
    rpsim_sidecar s;
    const rp_schedule_type *schedule = NULL;
    const char *json = HEAD SIZES FORWARD BACKWARD RANKS;
    cr_assert(eq(int, read_both(json, ROWS, &s), RP_OK), "%s", messages);
    cr_expect(eq(str, (char *)s.schedule, "mine"));
    cr_expect(eq(int, s.recompute, RP_RECOMPUTE_WAIT));
    cr_expect(eq(u32, s.partition.forward_count, 2));
    cr_expect(eq(u32, s.partition.backward_count, 3));
    cr_expect(eq(u32, s.partition.forward_layers[1], 2));
    cr_expect(eq(u32, s.partition.backward_layers[0], 0));
    cr_assert(eq(int, rpsim_sidecar_schedule(&s, arena, &schedule), RP_OK));
    cr_expect(schedule->separate_backward);
    cr_expect(eq(int, schedule->traits.placement, RP_PLACEMENT_OFFLOAD));
    cr_expect(schedule->traits.one_dispatcher);
    cr_expect(not(schedule->traits.communicator));
}

Test(torch_sidecar, bad_ones_are_refused)
{
    static const struct {
        const char *json;
        const char *rows;
        const char *message;
    } cases[] = {
        {"", ROWS, "x.json:1: "},
        {"[]", ROWS, "not an object; valid is an object with the keys x-rpsim-schedule"},
        {"{\"a\": 1}", ROWS, "unknown key 'a'; valid keys are x-rpsim-schedule"},
        {"{\"schedule\": \"a\", \"schedule\": \"b\"}", ROWS, "duplicate object key"},
        {"{\"schedule\": \"mine\"}", ROWS, "'x-rpsim-schedule' is missing or not valid; valid"},
        {"{\"x-rpsim-schedule\": 3}", ROWS, "valid values are integers from 1 to 2"},
        {"{\"x-rpsim-schedule\": 1}", ROWS,
         "version 1 does not say where weights are and how the software runs; valid is version 2"},
        {NAME "\"placement\": \"sharded\"}", ROWS,
         "'placement' is missing or not valid; valid values are \"resident\" and \"offload\""},
        {NAME "\"placement\": \"offload\"}", ROWS, "'versions' is missing or not valid"},
        {NAME PLACED "\"traits\": 1}", ROWS, "'traits' is missing or not valid; valid is a list"},
        {NAME PLACED "\"traits\": [\"overlap\"]}", ROWS, "'traits' is missing or not valid"},
        {"{\"x-rpsim-schedule\": 2}", ROWS, "'schedule' is missing or not valid; valid are names"},
        {"{\"x-rpsim-schedule\": 2, \"schedule\": \"a b\"}", ROWS, "'schedule' is missing or not"},
        {"{\"x-rpsim-schedule\": 2, \"schedule\": \"a\", \"recompute\": \"late\"}", ROWS,
         "'recompute' is missing or not valid; valid values are \"none\", \"wait\", \"early\", "
         "\"selective\""},
        {HEAD "\"microbatches\": 0}", ROWS, "'microbatches' is missing or not valid"},
        {HEAD "\"microbatches\": 1}", ROWS, "'layers' is missing or not valid"},
        {HEAD SIZES BACKWARD RANKS, ROWS, "'forward_layers' is missing or not valid"},
        {HEAD SIZES "\"forward_layers\": [[0, 2], [3, 4]], " BACKWARD RANKS, ROWS,
         "'forward_layers' is missing or not valid; valid are pairs of layers such as"},
        {HEAD SIZES "\"forward_layers\": [[0, 2], [2, 5]], " BACKWARD RANKS, ROWS,
         "'forward_layers' is missing or not valid"},
        {HEAD SIZES "\"forward_layers\": [[0, 2], [2]], " BACKWARD RANKS, ROWS,
         "'forward_layers' is missing or not valid"},
        {HEAD SIZES FORWARD "\"backward_layers\": [[2, 4]], " RANKS, ROWS,
         "'backward_layers' is missing or not valid; valid are null, or pairs of layers"},
        {HEAD SIZES FORWARD "\"backward_layers\": [], " RANKS, ROWS,
         "'backward_layers' is missing or not valid"},
        {HEAD SIZES FORWARD RANKS, ROWS, "'backward_layers' is missing or not valid"},
        {HEAD SIZES FORWARD BACKWARD "\"ranks\": [[0, 4, 2], [1, 3]]}", ROWS,
         "'ranks' is missing or not valid; valid are one list of ascending stages per rank"},
        {HEAD SIZES FORWARD BACKWARD "\"ranks\": [[0, 2, 5], [1, 3]]}", ROWS,
         "'ranks' is missing or not valid"},
        {HEAD SIZES FORWARD BACKWARD "\"ranks\": [[0, 2], [1, 3, 4]]}", ROWS,
         "'ranks' lists other stages for rank 0 than row 1 of s.csv has"},
        {HEAD SIZES FORWARD BACKWARD "\"ranks\": [[0, 2, 4]]}", ROWS, "1 ranks, and s.csv has 2"},
        {HEAD "\"microbatches\": 2, \"layers\": 4, " FORWARD BACKWARD RANKS, ROWS,
         "2 microbatches, and s.csv has 1"},
        {HEAD SIZES FORWARD BACKWARD RANKS, "0F0,2B0\n1F0,3B0\n", "5 stages, and s.csv has 4"},
        /* The CSV contradicts the side-car's stages. */
        {HEAD SIZES FORWARD BACKWARD RANKS, "0F0,2F0,4B0\n1F0,3B0\n",
         "s.csv:1: row 1, column 3: 4B0 is of stage 4, and stage 2 has 0 backwards"},
        {HEAD SIZES FORWARD BACKWARD RANKS, "0F0,2B0,2F0,4B0\n1F0,3B0\n",
         "s.csv:1: row 1, column 3: 2F0 is not what its stage has; valid are F of stages below 2"},
        {HEAD SIZES FORWARD BACKWARD RANKS, "0F0,2B0,4B0\n1F0,3B0,3B0\n",
         "s.csv:2: row 2, column 3: 3B0 comes a second time"},
        {HEAD SIZES FORWARD BACKWARD RANKS, "0F0,(0F0;2B0)OVERLAP_F_B,4B0\n1F0,3B0\n",
         "s.csv:1: row 1, column 2: 0F0 is not what its stage has"},
        {HEAD SIZES FORWARD BACKWARD RANKS, "0F0,4B0,2B0\n1F0,3B0\n",
         "row 1, column 2: 4B0 never starts, a deadlock: it waits for 3B0 (row 2, column 2), which "
         "stands behind 3B0 (column 2), which waits for 2B0 (row 1, column 3)"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rpsim_sidecar s;
        rp_status status = read_both(cases[i].json, cases[i].rows, &s);
        cr_expect(eq(int, status, RP_INPUT), "%s", cases[i].json);
        cr_expect(strstr(messages, cases[i].message) != NULL, "%s: %s", cases[i].json, messages);
        cr_expect(strstr(messages, "valid ") != NULL, "%s", messages);
    }
}

/* Separate forward and backward stages on several ranks: the cells read are those written. */
static bool cells_come_back(const rp_schedule_type *type, uint32_t gpus, uint32_t microbatches)
{
    rp_costs costs;
    rp_partition partition;
    rp_program *program = NULL;
    rp_torch_csv csv;
    rp_torch_csv read;
    char *bytes = NULL;
    size_t length = 0;
    uint32_t layers = 3 * gpus + 1;
    again();
    rp_test_equal_costs(arena, layers, 1000, 2100, &costs);
    if (rp_partition_even(type, &costs, gpus, layers, arena, &partition, NULL) != RP_OK) {
        return false;
    }
    rp_schedule_config config = {.gpus = gpus,
                                 .microbatches = microbatches,
                                 .iterations = 1,
                                 .round = gpus,
                                 .recompute = RP_RECOMPUTE_WAIT,
                                 .layers = layers,
                                 .partition = &partition,
                                 .costs = &costs};
    if (rp_schedule_build(type, &config, &program, NULL) != RP_OK) {
        return false;
    }
    cr_assert(eq(int, rp_torch_csv_of_program(program, true, arena, &csv), RP_OK), "%s", messages);
    FILE *stream = open_memstream(&bytes, &length);
    rp_torch_csv_print(&csv, stream);
    fclose(stream);
    cr_assert(eq(int, rp_torch_csv_parse("written", bytes, length, arena, &read), RP_OK), "%s",
              messages);
    free(bytes);
    read.separate = csv.separate;
    read.forward_count = csv.forward_count;
    cr_assert(eq(int, rp_torch_csv_check(&read, arena), RP_OK), "%s", messages);
    uint32_t count = csv.row_begin[csv.rank_count];
    cr_assert(eq(u32, read.row_begin[read.rank_count], count));
    for (uint32_t i = 0; i < count; i++) {
        const rp_torch_action *x = &csv.actions[i];
        const rp_torch_action *y = &read.actions[i];
        cr_assert(x->stage == y->stage && x->microbatch == y->microbatch && x->type == y->type &&
                      x->column == y->column,
                  "%s, action %u", type->name, i);
    }
    rp_program_destroy(program);
    return true;
}

Test(torch_sidecar, cells_of_all_schedules_with_separate_backward)
{
    static const uint32_t gpus[] = {1, 2, 3, 4, 8};
    for (uint32_t t = 0; t < rp_schedule_count; t++) {
        uint32_t checked = 0;
        for (size_t i = 0; rp_schedules[t]->separate_backward && i < 3 * COUNT(gpus); i++) {
            uint32_t n = gpus[i % COUNT(gpus)];
            uint32_t m = n * (1 + (uint32_t)(i / COUNT(gpus))) + (i / COUNT(gpus) == 1 ? 1 : 0);
            checked += cells_come_back(rp_schedules[t], n, m) ? 1 : 0;
        }
        cr_expect(ge(u32, checked, rp_schedules[t]->separate_backward ? 10 : 0), "%s",
                  rp_schedules[t]->name);
    }
}

/* ---- rpsim; bad command lines are in tests/bad/commands.tsv ---------------------------------- */

TestSuite(torch_sidecar_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end);

static const char *file(const char *name)
{
    const char *path = NULL;
    rp_status status =
        rp_arena_print(rp_test_tool_arena(), &path, "%s/%s", rp_test_tool_folder(), name);
    cr_assert(eq(int, status, RP_OK));
    return rp_test_tool_read(path);
}

/* With its side-car a schedule gives the same program, byte for byte, at both fidelities. */
Test(torch_sidecar_cli, the_same_program_comes_back)
{
    static const struct {
        const char *schedule; /* as exported */
        const char *beside;   /* options that no file has */
    } cases[] = {
        {"roundpipe --fidelity stage", "--fidelity stage"},
        {"roundpipe --fidelity stage --recompute wait --gpus 4 --microbatches 10",
         "--fidelity stage"},
        {"roundpipe --fidelity stage --round 3 --partition auto", "--fidelity stage"},
        {"roundpipe --iterations 1", "--iterations 1"},
        {"roundpipe-overlap --fidelity stage", "--fidelity stage"},
        {"mobius --gpus 4 --iterations 1", "--iterations 1"},
        {"megatron-pp --gpus 4 --iterations 1", "--iterations 1"},
        {"zbv --gpus 4 --fidelity stage --recompute early", "--fidelity stage"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *out = NULL;
        const char *in = NULL;
        rp_arena *texts = rp_test_tool_arena();
        cr_assert(eq(int,
                     rp_arena_print(texts, &out,
                                    "--schedule %s --torch-csv-out @DIR@/s.csv --torch-sidecar "
                                    "@DIR@/x-s.json --allow-multi-rank-stages --program-out "
                                    "@DIR@/a.txt",
                                    cases[i].schedule),
                     RP_OK));
        cr_assert(eq(int,
                     rp_arena_print(texts, &in,
                                    "--torch-csv-in @DIR@/s.csv --torch-sidecar @DIR@/x-s.json "
                                    "--allow-multi-rank-stages --program-out @DIR@/b.txt %s",
                                    cases[i].beside),
                     RP_OK));
        rp_test_rpsim_well(out);
        rp_test_rpsim_well(in);
        cr_expect(eq(str, (char *)file("a.txt"), (char *)file("b.txt")), "%s", cases[i].schedule);
    }
}

Test(torch_sidecar_cli, is_needed_for_stages_on_several_ranks)
{
    rp_test_rpsim_well("--schedule roundpipe --fidelity stage --torch-csv-out @DIR@/s.csv "
                       "--torch-sidecar @DIR@/x-s.json --allow-multi-rank-stages");
    rp_test_outcome refused = rp_test_rpsim("--torch-csv-in @DIR@/s.csv --torch-sidecar "
                                            "@DIR@/x-s.json --fidelity stage");
    cr_expect(eq(int, refused.status, 2));
    cr_expect(strstr(refused.messages, "valid with --allow-multi-rank-stages") != NULL, "%s",
              refused.messages);
    refused = rp_test_rpsim("--torch-csv-in @DIR@/s.csv --fidelity stage");
    cr_expect(eq(int, refused.status, 2));
}
