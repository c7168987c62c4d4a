/* A schedule written as CSV and read gives the same program and timeline, in every dialect; and
 * rpsim --torch-csv-in. */
#include "common/base/log.h"
#include "common/schedule/build.h"
#include "common/timeline/timeline.h"
#include "common/torch/torch_csv.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

TestSuite(torch_csv_import, .init = rp_test_log_begin, .fini = rp_test_log_end);

/* The same actions in the same cells. */
static void check_cells(const rp_torch_csv *a, const rp_torch_csv *b)
{
    cr_assert(eq(u32, a->rank_count, b->rank_count));
    cr_assert(eq(int, a->legacy, b->legacy));
    for (uint32_t r = 0; r <= a->rank_count; r++) {
        cr_assert(eq(u32, a->row_begin[r], b->row_begin[r]));
    }
    for (uint32_t i = 0; i < a->row_begin[a->rank_count]; i++) {
        const rp_torch_action *x = &a->actions[i];
        const rp_torch_action *y = &b->actions[i];
        cr_assert(x->stage == y->stage && x->microbatch == y->microbatch && x->type == y->type &&
                      x->column == y->column && x->overlaps_next == y->overlaps_next,
                  "action %u", i);
    }
}

/* Writes `csv` as text and reads it. */
static rp_torch_csv through_text(const rp_torch_csv *csv)
{
    char *bytes = NULL;
    size_t length = 0;
    rp_torch_csv again;
    FILE *stream = open_memstream(&bytes, &length);
    rp_torch_csv_print(csv, stream);
    fclose(stream);
    cr_assert(eq(int, rp_torch_csv_parse("written", bytes, length, rp_test_arena, &again), RP_OK),
              "%s", rp_test_messages);
    free(bytes);
    cr_assert(eq(int, rp_torch_csv_check(&again, rp_test_arena), RP_OK), "%s", rp_test_messages);
    check_cells(csv, &again);
    return again;
}

static void check_same(const rpsim_result *direct, const rp_schedule_config *config,
                       const rp_torch_csv *csv)
{
    rpsim_result imported;
    rp_torch_csv read = through_text(csv);
    rp_schedule_config given = *config;
    rp_schedule_type schedule = rp_torch_csv_schedule;
    schedule.traits = direct->program->traits; /* not in the format */
    given.orders = &read;
    cr_assert(eq(int, rpsim_case_run(&schedule, &given, &imported, NULL), RP_OK), "%s",
              rp_test_messages);
    cr_expect(eq(u64, rp_program_hash(imported.program), rp_program_hash(direct->program)), "%s",
              direct->program->schedule);
    cr_expect(eq(u64, rp_timeline_hash(imported.timeline), rp_timeline_hash(direct->timeline)),
              "%s", direct->program->schedule);
    rpsim_result_fini(&imported);
}

static const rp_torch_lowering lowerings[] = {
    {RP_TORCH_RECEIVES_ASAP, false},
    {RP_TORCH_RECEIVES_ASAP, true},
    {RP_TORCH_RECEIVES_JUST_IN_TIME, false},
    {RP_TORCH_RECEIVES_JUST_IN_TIME, true},
};

static bool has_pairs(const rp_torch_csv *csv)
{
    for (uint32_t i = 0; i < csv->row_begin[csv->rank_count]; i++) {
        if (csv->actions[i].overlaps_next) {
            return true;
        }
    }
    return false;
}

/* A schedule of a size, in all dialects and recompute modes. @return whether it is allowed */
static bool round_trip(const rp_schedule_type *schedule, uint32_t gpus, uint32_t microbatches,
                       uint32_t iterations, rp_recompute recompute)
{
    rp_costs costs;
    rp_partition partition;
    rpsim_result direct;
    rp_torch_csv csv;
    uint32_t layers = 4 * gpus;
    rp_test_equal_costs(rp_test_arena, layers, 1000, 2100, &costs);
    costs.hop_ps = 130;
    costs.head_fwd_ps = 700;
    costs.head_bwd_ps = 1500;
    if (rp_partition_even(schedule, &costs, gpus, 0, rp_test_arena, &partition, NULL) != RP_OK) {
        return false;
    }
    rp_schedule_config config = {.gpus = gpus,
                                 .microbatches = microbatches,
                                 .iterations = 1,
                                 .round = gpus,
                                 .recompute = recompute,
                                 .layers = layers,
                                 .partition = &partition,
                                 .boundary_bytes = 4096,
                                 .costs = &costs};
    if (rpsim_case_run(schedule, &config, &direct, NULL) != RP_OK) {
        return false;
    }
    cr_assert(eq(int, rp_torch_csv_of_program(direct.program, false, rp_test_arena, &csv), RP_OK),
              "%s", rp_test_messages);
    check_same(&direct, &config, &csv);
    csv.legacy = !has_pairs(&csv);
    check_same(&direct, &config, &csv);
    for (size_t k = 0; k < COUNT(lowerings); k++) {
        rp_torch_csv lowered;
        cr_assert(eq(int, rp_torch_csv_lower(&csv, &lowerings[k], rp_test_arena, &lowered), RP_OK));
        lowered.legacy = false;
        check_same(&direct, &config, &lowered);
        lowered.legacy = !lowerings[k].waits && !has_pairs(&csv);
        check_same(&direct, &config, &lowered);
    }
    csv.legacy = false;
    rpsim_result_fini(&direct);
    if (iterations > 1) { /* the file has a single iteration, repeated by the importer */
        config.iterations = iterations;
        cr_assert(eq(int, rpsim_case_run(schedule, &config, &direct, NULL), RP_OK), "%s",
                  rp_test_messages);
        check_same(&direct, &config, &csv);
        rpsim_result_fini(&direct);
    }
    return true;
}

/* Half of the sizes with each schedule; RP_LONG: all. */
Test(torch_csv_import, every_schedule_comes_back)
{
    bool all = getenv("RP_LONG") != NULL;
    static const uint32_t gpus[] = {1, 2, 3, 4, 8, 16};
    static const uint32_t per_gpu[] = {1, 2, 4};
    uint32_t checked = 0;
    for (uint32_t t = 0; t < rp_schedule_count; t++) {
        const rp_schedule_type *schedule = rp_schedules[t];
        if (schedule->separate_backward || rp_is_data_parallel(&schedule->traits)) {
            continue;
        }
        uint32_t before = checked;
        for (size_t i = 0; i < COUNT(gpus) * COUNT(per_gpu); i++) {
            uint32_t n = gpus[i % COUNT(gpus)];
            if (!all && n > 1 && (i + t) % 2 != 0) {
                continue;
            }
            uint32_t m = n * per_gpu[i / COUNT(gpus)];
            rp_recompute recompute = (rp_recompute)(i % RP_RECOMPUTE_COUNT);
            checked += round_trip(schedule, n, m, n == 2 ? 3 : 1, recompute) ? 1 : 0;
        }
        cr_expect(ge(u32, checked, before + (all ? 4 : 2)), "%s", schedule->name);
    }
    cr_expect(ge(u32, checked, 6 * COUNT(gpus) * COUNT(per_gpu) / (all ? 2 : 4)));
}

/* PyTorch's schedule classes and our schedules write the same cells (tests/golden/torch). */
Test(torch_csv_import, orders_of_pytorch)
{
    static const struct {
        const char *schedule;
        const char *file;
        uint32_t gpus, stages, microbatches;
    } cases[] = {
        {"interleaved-1f1b", "interleaved-1f1b-p2v2m4", 2, 4, 4},
        {"interleaved-1f1b", "interleaved-1f1b-p4v2m8", 4, 8, 8},
        {"interleaved-1f1b", "interleaved-1f1b-p4v3m4", 4, 12, 4},
        {"looped-bfs", "loopedbfs-p2v2m3", 2, 4, 3},
        {"looped-bfs", "loopedbfs-p4v2m8", 4, 8, 8},
        {"zb-h1", "zb1p-p4v1m8", 4, 4, 8},
        {"zb1p", "zb1p-p4v1m8", 4, 4, 8},
        {"zb1p", "zb1p-p4v2m8", 4, 8, 8},
        {"zbv", "zbv-p4v2m8", 4, 8, 8},
        {"dualpipev", "dualpipev-p2v2m4", 2, 4, 4},
        {"dualpipev", "dualpipev-p4v2m10", 4, 8, 10},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_costs costs;
        rp_partition partition;
        rp_program *program = NULL;
        rp_torch_csv ours;
        rp_torch_csv theirs;
        rp_text text = {0};
        const char *path = NULL;
        const rp_schedule_type *schedule = rp_schedule_find(cases[i].schedule);
        cr_assert(schedule != NULL, "%s", cases[i].schedule);
        rp_test_equal_costs(rp_test_arena, cases[i].stages, 1000, 2000, &costs);
        cr_assert(eq(int,
                     rp_partition_even(schedule, &costs, cases[i].gpus, cases[i].stages,
                                       rp_test_arena, &partition, NULL),
                     RP_OK));
        rp_schedule_config config = {.gpus = cases[i].gpus,
                                     .microbatches = cases[i].microbatches,
                                     .iterations = 1,
                                     .layers = cases[i].stages,
                                     .partition = &partition,
                                     .costs = &costs};
        cr_assert(eq(int, rp_schedule_build(schedule, &config, &program, NULL), RP_OK), "%s",
                  rp_test_messages);
        cr_assert(eq(int, rp_torch_csv_of_program(program, false, rp_test_arena, &ours), RP_OK),
                  "%s", rp_test_messages);
        rp_program_destroy(program);
        cr_assert(eq(int,
                     rp_arena_print(rp_test_arena, &path,
                                    RP_TEST_ROOT "/golden/torch/%s.compute.csv", cases[i].file),
                     RP_OK));
        cr_assert(eq(int, rp_text_read_file(path, SIZE_MAX, &text), RP_OK), "%s", rp_test_messages);
        cr_assert(eq(int, rp_torch_csv_parse(path, text.bytes, text.length, rp_test_arena, &theirs),
                     RP_OK),
                  "%s", rp_test_messages);
        rp_text_fini(&text);
        cr_assert(eq(u32, ours.rank_count, theirs.rank_count));
        uint32_t count = ours.row_begin[ours.rank_count];
        cr_assert(eq(u32, count, theirs.row_begin[theirs.rank_count]));
        for (uint32_t k = 0; k < count; k++) {
            const rp_torch_action *a = &ours.actions[k];
            const rp_torch_action *b = &theirs.actions[k];
            cr_assert(a->stage == b->stage && a->microbatch == b->microbatch &&
                          a->type == b->type && a->overlaps_next == b->overlaps_next,
                      "%s, action %u", path, k);
        }
    }
}

/* ---- rpsim --torch-csv-in; bad command lines are in tests/bad/commands.tsv ------------------- */

TestSuite(torch_csv_import_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end);

static double makespan(const char *line, const char *schedule)
{
    json_t *runs = rp_test_rpsim_json(line);
    const json_t *run = json_array_get(runs, 0);
    double ms = rp_test_json_number(run, "makespan_ms");
    cr_expect(eq(str, (char *)rp_test_json_text(run, "schedule"), (char *)schedule));
    json_decref(runs);
    return ms;
}

Test(torch_csv_import_cli, runs_a_file)
{
    const char *from = "--schedule interleaved-1f1b --gpus 4 --microbatches 8 --stages 8 "
                       "--recompute early --torch-csv-out @DIR@/s.csv --torch-csv-dialect lowered";
    double exported = makespan(from, "interleaved-1f1b");
    double imported = makespan("--torch-csv-in @DIR@/s.csv --recompute early", "torch-csv");
    cr_expect(gt(dbl, exported, 0));
    cr_expect(eq(dbl, imported, exported));
    rp_test_rpsim_well("--torch-csv-in @DIR@/s.csv --fidelity hardware --recompute wait");
    rp_test_rpsim_well("--torch-csv-in @DIR@/s.csv --check");
    rp_test_rpsim_well("--torch-csv-in @DIR@/s.csv --recompute all --partition "
                       "4,4,4,4,4,4,4,0 --iterations 2 --optimizer async --fidelity stage");
}

/* 2024's dialect names the full backward BW, the input's gradient B. */
Test(torch_csv_import_cli, writes_the_legacy_dialect)
{
    static const struct {
        const char *line;
        const char *rows;
    } cases[] = {
        {"--schedule gpipe --gpus 2 --microbatches 1 --torch-csv-dialect legacy",
         "0F0,0BW0\n1F0,1BW0\n"},
        {"--schedule gpipe --gpus 2 --microbatches 1 --torch-csv-dialect lowered-legacy",
         "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0BW0,0REDUCE_GRAD,0RESHARD\n"
         "1UNSHARD,1RECV_F0,1F0,1BW0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n"},
        {"--schedule zb-h1 --gpus 1 --microbatches 2 --recompute none --torch-csv-dialect legacy",
         "0F0,0B0,0W0,0F1,0B1,0W1\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *line = NULL;
        const char *path = NULL;
        rp_arena *texts = rp_test_tool_arena();
        cr_assert(eq(int,
                     rp_arena_print(texts, &line, "%s --torch-csv-out @DIR@/l.csv", cases[i].line),
                     RP_OK));
        rp_test_rpsim_well(line);
        cr_assert(eq(int, rp_arena_print(texts, &path, "%s/l.csv", rp_test_tool_folder()), RP_OK));
        cr_expect(eq(str, (char *)rp_test_tool_read(path), (char *)cases[i].rows));
        rp_test_rpsim_well("--torch-csv-in @DIR@/l.csv --check");
    }
}

Test(torch_csv_import_cli, identity_on_the_cells)
{
    const char *first = NULL;
    const char *second = NULL;
    rp_arena *texts = rp_test_tool_arena();
    rp_test_rpsim_well("--schedule 1f1b --gpus 3 --microbatches 5 --fidelity stage "
                       "--torch-csv-out @DIR@/a.csv");
    rp_test_rpsim_well("--torch-csv-in @DIR@/a.csv --fidelity stage --torch-csv-out @DIR@/b.csv");
    cr_assert(eq(int, rp_arena_print(texts, &first, "%s/a.csv", rp_test_tool_folder()), RP_OK));
    cr_assert(eq(int, rp_arena_print(texts, &second, "%s/b.csv", rp_test_tool_folder()), RP_OK));
    cr_expect(eq(str, (char *)rp_test_tool_read(first), (char *)rp_test_tool_read(second)));
}

/* A schedule lowered by PyTorch 2.9 takes as long as lowered today. */
Test(torch_csv_import_cli, rows_that_end_gathered)
{
    static const char *const names[] = {"interleaved-1f1b-p2v2m4", "zb1p-p4v1m8", "zbv-p4v2m8"};
    for (size_t i = 0; i < COUNT(names); i++) {
        double ms[2];
        static const char *const forms[] = {"asap-2.9", "asap-no-waits"};
        for (size_t f = 0; f < 2; f++) {
            const char *line = NULL;
            cr_assert(eq(int,
                         rp_arena_print(rp_test_tool_arena(), &line,
                                        "--torch-csv-in " RP_TEST_ROOT "/golden/torch/%s.%s.csv "
                                        "--intervals off",
                                        names[i], forms[f]),
                         RP_OK));
            ms[f] = makespan(line, "torch-csv");
        }
        cr_expect(gt(dbl, ms[0], 0));
        cr_expect(eq(dbl, ms[0], ms[1]), "%s", names[i]);
    }
}

/* A forward and a backward of the same stage are a pair in PyTorch (tests/golden/torch): its file
 * comes back, and the pair saves its share of the shorter op (schedules.md 4). */
Test(torch_csv_import_cli, overlaps_within_a_stage)
{
    const char *read = "--torch-csv-in " RP_TEST_ROOT "/golden/torch/pairs-p2v1m4.compute.csv "
                       "--fidelity stage ";
    const char *line = NULL;
    const char *path = NULL;
    rp_arena *texts = rp_test_tool_arena();
    cr_assert(eq(int, rp_arena_print(texts, &line, "%s--torch-csv-out @DIR@/p.csv", read), RP_OK));
    rp_test_rpsim_well(line);
    cr_assert(eq(int, rp_arena_print(texts, &path, "%s/p.csv", rp_test_tool_folder()), RP_OK));
    cr_expect(eq(str, (char *)rp_test_tool_read(path),
                 "0F0,0F1,(0F2;0B0)OVERLAP_F_B,(0F3;0B1)OVERLAP_F_B,0B2,0B3\n"
                 "1F0,(1F1;1B0)OVERLAP_F_B,(1F2;1B1)OVERLAP_F_B,(1F3;1B2)OVERLAP_F_B,1B3\n"));
    const char *one = "--torch-csv-in " RP_TEST_ROOT "/bad/torch/good-overlap-stage.csv --model "
                      "qwen3-1.7b --fidelity stage --recompute none --set costs.head_fwd_ms=0 "
                      "--set costs.head_bwd_ms=0 --set costs.fwd_ms=2 --set costs.bwd_ms=5";
    cr_expect(epsilon_eq(dbl, makespan(one, "torch-csv"), 28 * 14, 1e-9));
    cr_assert(
        eq(int, rp_arena_print(texts, &line, "%s --set costs.overlap_saving=0.25", one), RP_OK));
    cr_expect(epsilon_eq(dbl, makespan(line, "torch-csv"), 28 * 13.5, 1e-9));
}
