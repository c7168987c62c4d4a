/* A run as a value: open decisions, and the same run from its program. */
#include "common/compile/compile.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/roofline/roofline.h"
#include "common/run/resolve.h"
#include "common/schedule/even.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

static rp_arena *arena;
static rp_model model;
static rp_costs costs;

static void begin(void)
{
    rp_platform platform;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", arena, &platform), RP_OK));
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", arena, &model), RP_OK));
    const rp_roof roof = {&platform, {RP_DTYPE_F16, RP_ACCUMULATION_USUAL}, NULL};
    cr_assert(eq(int, rp_find_costs(&model, &roof, 1, 128, arena, &costs, NULL), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(decided, .init = begin, .fini = end);

/* RoundPipe's evaluation has two microbatches per GPU; PyTorch's FSDP checkpoints every layer
 * (apply_activation_checkpointing), pipelines a stage. */
Test(decided, what_a_run_leaves_open_is_decided)
{
    rp_run run = RP_RUN_INIT;
    run.gpus = 8;
    run.layout.tensor_parallel = 2;
    run.nodes = 3;
    run.layout.data_parallel = 3;
    rp_run_decide(&run, rp_schedule_find("1f1b"));
    cr_expect(eq(u32, rp_run_places(&run), 4));
    cr_expect(eq(u32, run.microbatches, 8));
    cr_expect(eq(u32, run.microbatch_size, 1));
    cr_expect(eq(u32, run.accumulate, 1));
    cr_expect(not(run.layer_grain));
    cr_expect(eq(int, run.recomputes[0], RP_RECOMPUTE_WAIT));

    rp_run sharded = RP_RUN_INIT;
    sharded.gpus = 4;
    rp_run_decide(&sharded, rp_schedule_find("fsdp"));
    cr_expect(sharded.layer_grain);
}

Test(decided, what_is_decided_stays)
{
    rp_run run = {.gpus = 4,
                  .microbatches = 3,
                  .microbatch_size = 5,
                  .accumulate = 7,
                  .grain_given = true,
                  .recomputes = {RP_RECOMPUTE_EARLY},
                  .recompute_count = 1};
    const rp_run before = run;
    rp_run_decide(&run, rp_schedule_find("fsdp"));
    cr_expect(eq(int, memcmp(&run, &before, sizeof run), 0));
}

static rp_program *compile(const rp_resolved *run)
{
    rp_program *program = NULL;
    cr_assert(eq(int, rp_compile(run, &program, NULL), RP_OK), "%s", run->schedule->name);
    return program;
}

/* A program states its whole run, from which the same program is made. */
Test(decided, a_program_says_its_run)
{
    static const char *const names[] = {"roundpipe", "1f1b", "zbv", "fsdp", "zero3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const rp_schedule_type *schedule = rp_schedule_find(names[i]);
        rp_run run = RP_RUN_INIT;
        rp_partition partition;
        run.gpus = 4;
        run.accumulate = 2;
        run.microbatch_size = 3;
        run.seq_len = 128;
        run.iterations = 2;
        rp_run_decide(&run, schedule);
        rp_resolved first = rp_resolved_of_run(&run, schedule, &model);
        first.costs = &costs;
        rp_program *program = compile(&first);
        rp_resolved again = rp_resolved_of_program(program, 2);
        cr_expect(not(again.stage));
        cr_assert(eq(int, rp_partition_of_program(program, arena, &partition), RP_OK));
        again.schedule = schedule;
        again.model = &model;
        again.costs = &costs;
        again.decided.seq_len = 128;
        again.partition = &partition;
        rp_program *same = compile(&again);
        cr_expect(eq(u64, rp_program_hash(same), rp_program_hash(program)), "%s", names[i]);

        const rp_run open = {.hardware = true, .dtype = RP_DTYPE_F32};
        const rp_run told = rp_run_of_program(program, 2, &open);
        cr_expect(eq(u32, told.gpus, run.gpus), "%s", names[i]);
        cr_expect(eq(u32, told.accumulate, run.accumulate), "%s", names[i]);
        cr_expect(eq(u32, told.microbatches, run.microbatches), "%s", names[i]);
        cr_expect(eq(u32, told.microbatch_size, run.microbatch_size), "%s", names[i]);
        cr_expect(eq(int, told.dtype, run.dtype), "%s", names[i]);
        cr_expect(eq(int, told.recomputes[0], run.recomputes[0]), "%s", names[i]);
        cr_expect(eq(int, told.layer_grain, run.layer_grain), "%s", names[i]);
        rp_program_destroy(same);
        rp_program_destroy(program);
    }
}

/* Values are equal if and only if their texts are. */
Test(decided, partitions_are_equal_as_their_texts_are)
{
    static const char *const texts[] = {"3,3,4", "3,3,3", "3,3", "3,3|0,3,3", "3,3|3,3", "|6"};
    rp_partition partitions[6];
    for (size_t i = 0; i < 6; i++) {
        cr_assert(eq(int, rp_partition_parse(NULL, texts[i], arena, &partitions[i], NULL), RP_OK));
        for (size_t k = 0; k <= i; k++) {
            cr_expect(eq(int, rp_partition_equal(&partitions[i], &partitions[k]), i == k),
                      "%s and %s", texts[i], texts[k]);
        }
    }
}

/* A program's row takes missing values from the run's row. */
Test(decided, a_row_of_a_program_takes_what_the_runs_row_has)
{
    const rp_option *of_run = rp_run_row("seq-len");
    rp_option row = {.name = "seq-len", .most = 4096, .help = "tokens"};
    rp_run_complete_row(&row, 1000);
    cr_expect(eq(int, row.kind, RP_OPTION_U32));
    cr_expect(eq(u64, row.to.offset, of_run->to.offset + 1000));
    cr_expect(row.binary);
    cr_expect(eq(dbl, row.most, 4096));
    cr_expect(eq(str, row.argument, "S"));
    cr_expect(eq(str, row.help, "tokens"));
    rp_option twice = row;
    rp_run_complete_row(&twice, 1000);
    cr_expect(eq(u64, twice.to.offset, row.to.offset));
}
