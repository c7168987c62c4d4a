/* From decisions to a program's values: omitted sizes, batches, published runs, refusals. */
#include "common/run/resolve.h"
#include "common/formats/csv.h"
#include "common/inputs/data.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/timeline/metrics.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

static rp_platform platform;
static rp_model model;
static rp_costs costs;
static rp_run_inputs inputs;

static void begin(void)
{
    rp_test_log_begin();
    cr_assert(eq(int, rp_platform_load("rtx4090x8", rp_test_arena, &platform), RP_OK));
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", rp_test_arena, &costs), RP_OK));
    inputs = (rp_run_inputs){
        .platform = &platform, .costs = &costs, .model = &model, .recorded_name = model.name};
}

TestSuite(resolve, .init = begin, .fini = rp_test_log_end, .timeout = 60);

static rp_resolved resolved(const rp_run *run, const char *schedule)
{
    rp_resolved r;
    rp_reason reason = {0};
    rp_status status =
        rp_resolve(run, &inputs, rp_schedule_find(schedule), RP_RECOMPUTE_WAIT, &r, &reason);
    cr_assert(eq(int, status, RP_OK), "%s", reason.text);
    return r;
}

Test(resolve, microbatches_are_2_n)
{
    static const struct {
        uint32_t gpus, nodes, tensor, data, stages_gpus;
    } cases[] = {{0, 0, 0, 0, 8}, {4, 0, 0, 0, 4}, {1, 0, 0, 0, 1}, {0, 0, 2, 0, 4},
                 {0, 0, 2, 4, 1}, {6, 0, 1, 3, 2}, {8, 2, 0, 2, 8}}; /* of servers, the platform has
                                                                        all GPUs */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_run run = RP_RUN_INIT;
        run.gpus = cases[i].gpus;
        run.nodes = cases[i].nodes;
        run.layout.tensor_parallel = cases[i].tensor;
        run.layout.data_parallel = cases[i].data;
        platform.gpus = cases[i].nodes != 0 ? 8 * cases[i].nodes : 8;
        for (int hardware = 0; hardware < 2; hardware++) {
            run.hardware = hardware != 0;
            const rp_resolved r = resolved(&run, "1f1b");
            cr_expect(eq(u32, r.gpus, cases[i].stages_gpus), "%zu", i);
            cr_expect(eq(u32, r.decided.microbatches, 2 * cases[i].stages_gpus), "%zu", i);
            cr_expect(eq(u32, r.decided.accumulate, 1), "%zu", i);
            cr_expect(eq(u32, r.global_batch, r.decided.microbatches * costs.microbatch_size),
                      "%zu", i);
        }
    }
}

Test(resolve, sizes_that_are_left_out_are_the_tables)
{
    rp_run run = RP_RUN_INIT;
    cr_expect(eq(u32, resolved(&run, "1f1b").decided.seq_len, costs.seq_len));
    cr_expect(eq(u32, resolved(&run, "1f1b").decided.iterations, RP_STEADY_ITERATIONS));
    inputs.usual_iterations = 3;
    cr_expect(eq(u32, resolved(&run, "1f1b").decided.iterations, 3));
    cr_expect(not(resolved(&run, "1f1b").decided.layer_grain));
    cr_expect(resolved(&run, "fsdp").decided.layer_grain);
    run.grain_given = true; /* by stage */
    cr_expect(not(resolved(&run, "fsdp").decided.layer_grain));
    run.hardware = false;
    cr_expect(eq(u32, resolved(&run, "roundpipe").decided.iterations, 1));
    cr_expect(eq(u32, resolved(&run, "roundpipe").decided.round, 8));
    run.asynchronous = true;
    cr_expect(eq(u32, resolved(&run, "roundpipe").decided.iterations, RP_STEADY_ITERATIONS));
    run.seq_len = 512;
    run.microbatch_size = 3;
    run.microbatches = 5;
    const rp_resolved r = resolved(&run, "roundpipe");
    cr_expect(r.stage && r.decided.seq_len == 512 && r.global_batch == 15);
}

Test(resolve, batches_are_shared_by_copies)
{
    rp_run run = RP_RUN_INIT;
    run.layout.data_parallel = 4;
    run.microbatches = 2;
    run.accumulate = 3;
    cr_expect(eq(u32, resolved(&run, "1f1b").global_batch, 6 * costs.microbatch_size));
    run.global_batch = 44;
    cr_expect(eq(u32, resolved(&run, "1f1b").global_batch, 11));
}

/* As evenly as possible over calls, then over microbatches. */
Test(resolve, batch_splits)
{
    static const struct {
        uint32_t batch, calls, microbatches;
    } cases[] = {{512, 4, 10}, {40, 4, 10}, {41, 4, 10}, {7, 1, 7}, {100, 3, 7}, {4096, 1, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const rp_resolved r = {.global_batch = cases[i].batch,
                               .decided.accumulate = cases[i].calls,
                               .decided.microbatches = cases[i].microbatches};
        uint32_t *sequences = NULL;
        uint32_t units = r.decided.accumulate * r.decided.microbatches;
        uint32_t total = 0;
        cr_assert(eq(int, rp_resolved_split(&r, rp_test_arena, &sequences, NULL), RP_OK));
        for (uint32_t call = 0; call < r.decided.accumulate; call++) {
            uint32_t of_call = 0;
            for (uint32_t m = 0; m < r.decided.microbatches; m++) {
                uint32_t size = sequences[call * r.decided.microbatches + m];
                cr_expect(size == r.global_batch / units || size == r.global_batch / units + 1);
                of_call += size;
            }
            cr_expect(of_call == r.global_batch / r.decided.accumulate ||
                      of_call == r.global_batch / r.decided.accumulate + 1);
            total += of_call;
        }
        cr_expect(eq(u32, total, r.global_batch), "%zu", i);
    }
}

static const char *cell_of(const rp_csv *csv, uint32_t row, const char *column)
{
    uint32_t at = 0;
    cr_assert(eq(int, rp_csv_column(csv, column, &at), RP_OK));
    return rp_csv_cell(csv, row, at);
}

static uint32_t number_of(const rp_csv *csv, uint32_t row, const char *column)
{
    return (uint32_t)strtoul(cell_of(csv, row, column), NULL, 10);
}

static void expect_rows(const char *file, bool longest)
{
    rp_csv csv;
    cr_assert(eq(int, rp_data_read_csv(file, rp_test_arena, &csv), RP_OK));
    cr_assert(gt(u32, csv.rows, 10));
    for (uint32_t row = 0; row < csv.rows; row++) {
        rp_run run = RP_RUN_INIT;
        run.config_paper = true;
        run.max_seqlen = longest;
        run.asynchronous = strcmp(cell_of(&csv, row, "optimizer"), "async") == 0;
        run.optimizer_given = true;
        inputs.recorded_name = cell_of(&csv, row, "model");
        const rp_resolved r = resolved(&run, cell_of(&csv, row, "schedule"));
        cr_expect(eq(u32, r.global_batch, number_of(&csv, row, "global_batch")), "%u", row);
        cr_expect(eq(u32, r.decided.microbatches, number_of(&csv, row, "microbatches")), "%u", row);
        cr_expect(eq(u32, r.decided.accumulate, number_of(&csv, row, "calls")), "%u", row);
        cr_expect(eq(int, r.decided.asynchronous, run.asynchronous), "%u", row);
        const char *sets = cell_of(&csv, row, "sets");
        const char *gpus = strchr(sets, '@');
        cr_expect(eq(int, r.sets_constant, sets[0] != '\0'), "%u", row);
        cr_expect(eq(u32, r.sets_gpus, gpus != NULL ? (uint32_t)atoi(gpus + 1) : 0), "%u", row);
        if (longest) {
            bool layer = strcmp(cell_of(&csv, row, "grain"), "layer") == 0;
            cr_expect(eq(int, r.decided.layer_grain, layer), "%u", row);
            cr_expect(eq(u32, r.sequence_slices, number_of(&csv, row, "sequence_slices")));
        }
    }
}

Test(resolve, published_runs_are_the_tables_rows)
{
    expect_rows("configs/paper.csv", false);
    expect_rows("configs/paper_seqlen.csv", true);
}

Test(resolve, published_runs_may_be_changed)
{
    rp_run run = RP_RUN_INIT;
    run.config_paper = true;
    const rp_resolved published = resolved(&run, "roundpipe");
    cr_expect(published.decided.asynchronous);
    run.microbatches = 2;
    run.accumulate = 3;
    run.global_batch = 60;
    const rp_resolved r = resolved(&run, "roundpipe");
    cr_expect(r.decided.asynchronous && r.decided.microbatches == 2 && r.decided.accumulate == 3 &&
              r.global_batch == 60);
}

/* At hardware fidelity a round's length determines its start; at stage fidelity the start is given.
 */
Test(resolve, view_is_what_the_schedule_sees)
{
    rp_partition partition = {0};
    rp_resolved r = {.model = &model,
                     .costs = &costs,
                     .gpus = 8,
                     .decided.accumulate = 3,
                     .decided.microbatches = 10,
                     .last_microbatches = 4,
                     .decided.iterations = 2,
                     .decided.round = RP_ROUND_ALL,
                     .decided.asynchronous = true,
                     .recompute = RP_RECOMPUTE_EARLY,
                     .partition = &partition,
                     .boundary_bytes = 77};
    rp_schedule_config view = rp_resolved_view(&r);
    cr_expect(eq(u32, view.gpus, 8));
    cr_expect(eq(u32, view.microbatches, 24));
    cr_expect(eq(u32, view.call_microbatches, 10));
    cr_expect(eq(u32, view.iterations, 2));
    cr_expect(eq(u32, view.round, 10));
    cr_expect(eq(int, view.round_start, RP_ROUND_START_ROTATE));
    cr_expect(eq(u32, view.layers, model.layers));
    cr_expect(view.asynchronous && view.recompute == RP_RECOMPUTE_EARLY);
    cr_expect(view.partition == &partition && view.costs == &costs && view.boundary_bytes == 77);
    r.decided.round = 5;
    view = rp_resolved_view(&r);
    cr_expect(view.round == 5 && view.round_start == RP_ROUND_START_FREE_FIRST);
    r.stage = true;
    r.decided.round = RP_ROUND_ALL;
    r.decided.round_start = RP_ROUND_START_FREE_FIRST;
    r.layers = 3;
    view = rp_resolved_view(&r);
    cr_expect(eq(u32, view.round, RP_ROUND_ALL));
    cr_expect(eq(int, view.round_start, RP_ROUND_START_FREE_FIRST));
    cr_expect(eq(u32, view.layers, 3));
}

static void expect_refusal(const rp_run *run, const char *schedule, const char *subject,
                           const char *text)
{
    rp_resolved r;
    rp_reason reason = {0};
    rp_status status =
        rp_resolve(run, &inputs, rp_schedule_find(schedule), RP_RECOMPUTE_WAIT, &r, &reason);
    cr_expect(eq(int, status, RP_USAGE), "%s", text);
    cr_expect(eq(int, reason.status, RP_USAGE), "%s", text);
    cr_expect(eq(str, reason.subject, (char *)(uintptr_t)subject), "%s", text);
    cr_expect(strstr(reason.text, text) != NULL, "%s", reason.text);
    cr_expect(eq(str, rp_test_messages, ""));
}

/* Nothing is logged if the caller collects reasons. */
Test(resolve, refusals_are_reasons)
{
    rp_run batch = RP_RUN_INIT;
    batch.microbatches = 10;
    batch.accumulate = 4;
    batch.global_batch = 39;
    expect_refusal(&batch, "1f1b", "global_batch", "valid values are 40 and more");
    batch.layout.data_parallel = 4;
    expect_refusal(&batch, "1f1b", "global_batch", "valid are multiples of 4");
    rp_run calls = RP_RUN_INIT;
    calls.microbatches = RP_MAX_MICROBATCHES;
    calls.accumulate = 2;
    expect_refusal(&calls, "1f1b", "accumulate", "2 calls of");
    rp_run paper = RP_RUN_INIT;
    paper.config_paper = true;
    expect_refusal(&paper, "gpipe", "config", "lists no run of gpipe with qwen3-1.7b");
    paper.max_seqlen = true;
    expect_refusal(&paper, "gpipe", "config", "valid values are roundpipe qwen3-1.7b async");
    inputs.recorded_name = "";
    expect_refusal(&paper, "roundpipe", "config", "lists no run of roundpipe with");
    uint32_t *sequences = NULL;
    rp_reason reason = {0};
    const rp_resolved few = {.global_batch = 5, .decided.accumulate = 2, .decided.microbatches = 3};
    cr_expect(eq(int, rp_resolved_split(&few, rp_test_arena, &sequences, &reason), RP_USAGE));
    cr_expect(eq(str, reason.subject, "global_batch"));
    cr_expect(eq(str, rp_test_messages, ""));
    /* Logged without a collector. */
    cr_expect(eq(int, rp_resolved_split(&few, rp_test_arena, &sequences, NULL), RP_USAGE));
    cr_expect(strstr(rp_test_messages, "valid values are 6 and more") != NULL);
}
