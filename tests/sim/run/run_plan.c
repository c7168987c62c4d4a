/* The plan for a run's sequence length. */
#include "sim/run/run_plan.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "sim/rppredict/prediction.h"
#include "tests/support/assertions.h"
#include "tests/support/hand_run.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <string.h>

static rp_arena *arena;
static rp_model model;
static rp_costs costs;
static rp_platform platform;

static void begin(void)
{
    rp_test_tool_begin();
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", arena, &model), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", arena, &costs), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", arena, &platform), RP_OK));
}

static void end(void)
{
    rp_arena_destroy(arena);
    rp_test_tool_end();
}

TestSuite(run_plan, .init = begin, .fini = end, .timeout = 60);

static int64_t distance(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

/* At its measured sizes a table stays, except for a picosecond and the loss, whose two chunks of
 * 4096 tokens move 10 V h + 20 t h bytes (sim/model.md section 2). */
Test(run_plan, the_tables_own_sizes_change_nothing)
{
    rp_costs run;
    cr_assert(eq(int,
                 rpsim_run_costs(&costs, &model, &platform, costs.microbatch_size, costs.seq_len,
                                 arena, &run, NULL),
                 RP_OK));
    for (uint32_t i = 0; i < costs.layers; i++) {
        cr_expect(le(i64, distance(run.fwd_ps[i], costs.fwd_ps[i]), 1));
        cr_expect(le(i64, distance(run.bwd_ps[i], costs.bwd_ps[i]), 1));
    }
    cr_expect(le(i64, distance(run.head_fwd_ps, costs.head_fwd_ps), 1));
    double bytes = 10.0 * model.vocab * model.hidden + 20.0 * 8192 * model.hidden;
    int64_t chunks_ps = (int64_t)(1e3 * bytes / platform.memory_effective_gb_per_s);
    cr_expect(le(i64, distance(run.head_bwd_ps, costs.head_bwd_ps + chunks_ps), 2));
}

/* With the same tokens in longer sequences a layer's forward grows by its attention, 2 H h s FLOP
 * per token at the platform's rate; the head's does not (sim/model.md section 2, term 1). */
Test(run_plan, attention_grows_with_the_length)
{
    rp_costs run;
    cr_assert(
        eq(int, rpsim_run_costs(&costs, &model, &platform, 1, 8192, arena, &run, NULL), RP_OK));
    double more = 2.0 * (8192 - 2048) * model.heads * model.head_dim * 8192 /
                  (platform.attention_fwd_tflops * 1e12);
    cr_expect(epsilon_eq(dbl, 1e-12 * (double)(run.fwd_ps[3] - costs.fwd_ps[3]), more, 1e-9));
    cr_expect(le(i64, distance(run.head_fwd_ps, costs.head_fwd_ps), 1));
}

static const char *plan_at(uint32_t seq_len)
{
    rp_partition partition;
    const char *text = NULL;
    rp_resolved run = rp_test_hand_run("roundpipe", &model, &costs, NULL, 8, 10);
    run.decided.seq_len = seq_len;
    cr_assert(eq(int, rpsim_run_plan(&run, &platform, arena, &partition, NULL, NULL), RP_OK));
    cr_assert(eq(int, rp_partition_text(&partition, arena, &text), RP_OK));
    return text;
}

/* At 2048 tokens the head takes as long as almost three layers, and a backward stage has three. If
 * attention dominates, no stage can hold two layers (2 > 1.1), and all are equal. */
Test(run_plan, long_sequences_have_another_plan)
{
    cr_expect(eq(int, strcmp(strchr(plan_at(2048), '|'), "|0,1,3,3,3,3,3,3,3,3,3"), 0));
    const char *stage = strchr(plan_at(262144), '|');
    for (uint32_t i = 0; i < model.layers; i++) {
        stage = strstr(stage, i == 0 ? "|" : ",");
        cr_assert(ne(ptr, (void *)stage, NULL));
        stage++;
        cr_expect(stage[0] == '0' || stage[0] == '1', "%s", stage);
    }
}

static char *partition_of(const char *line)
{
    rp_test_outcome outcome = rp_test_rpsim_after("--format json --gpus 4 --iterations 2", line);
    json_error_t error;
    cr_assert(eq(int, outcome.status, 0), "%s: %s", line, outcome.messages);
    json_t *rows = json_loads(outcome.output, 0, &error);
    const char *text = NULL;
    const char *found = rp_test_json_text(json_array_get(rows, 0), "partition");
    cr_assert(eq(int, rp_arena_copy_text(arena, found, strlen(found), &text), RP_OK));
    json_decref(rows);
    return (char *)text;
}

/* --partition auto plans for --seq-len, and --max-seqlen for the length found; published and even
 * partitions stay. */
Test(run_plan, command_line)
{
    static const char roundpipe[] = "--schedule roundpipe --microbatches 4 --microbatch-size 1 ";
    char line[256];
    snprintf(line, sizeof line, "%s--partition auto --seq-len 2048", roundpipe);
    char *planned = partition_of(line);
    snprintf(line, sizeof line, "%s--partition auto --max-seqlen", roundpipe);
    char *longest = partition_of(line);
    cr_expect(ne(str, planned, longest));
    snprintf(line, sizeof line, "%s--partition paper --seq-len 2048", roundpipe);
    char *published = partition_of(line);
    snprintf(line, sizeof line, "%s--partition paper --max-seqlen", roundpipe);
    cr_expect(eq(str, published, partition_of(line)));
}
