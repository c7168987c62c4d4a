/* Yardsticks of speeds: the ledger's errors in answers, and the speed limit. */
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/stacks/ledger.h"
#include "common/roofline/roofline.h"
#include "sim/study/columns.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(yardsticks, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 240);

/* ---- the ledger ------------------------------------------------------------------------------ */

#define HEADER "file,row,stack,class,error_pct,role,note\n"

static const char *in_folder(const char *name)
{
    return rp_test_tool_expand(name, strlen(name));
}

/* Makes this the ledger of runs from here on. */
static void use_ledger(const char *text)
{
    char folders[512];
    FILE *file = fopen(in_folder("@DIR@/ledger.csv"), "w");
    cr_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    (void)snprintf(folders, sizeof folders, "%s:%s/traces", rp_test_tool_folder(), RP_SOURCE_ROOT);
    setenv("RP_TRACES", folders, 1);
}

static void check_error(rp_ledger_error got, uint32_t rows, double mean_pct, double worst_pct)
{
    cr_expect(eq(u32, got.rows, rows));
    cr_expect(epsilon_eq(dbl, got.mean_pct, mean_pct, 1e-9), "%g", got.mean_pct);
    cr_expect(eq(dbl, got.worst_pct, worst_pct));
}

Test(yardsticks, errors_of_a_stack_and_class)
{
    rp_ledger ledger;
    use_ledger(HEADER "a.csv,1,torch,ada/resident/full,-3,test,\n"
                      "a.csv,2,torch,ada/resident/full,8.5,listed,\"lacks, say, fp8\"\n"
                      "a.csv,3,torch,ada/resident/full,50,sets,\n"
                      "a.csv,4,torch,ada/resident/full,,listed,not run\n"
                      "a.csv,5,torch,ada/offloaded/full,20,test,\n"
                      "a.csv,6,deepspeed,ada/resident/full,70,test,\n");
    cr_assert(eq(int, rp_ledger_read(rp_test_tool_arena(), &ledger), RP_OK));
    cr_expect(eq(u32, ledger.count, 4));
    rp_ledger_error resident = rp_ledger_error_of(&ledger, "torch", "ada/resident/full");
    rp_ledger_error offloaded = rp_ledger_error_of(&ledger, "torch", "ada/offloaded/full");
    check_error(resident, 2, 5.75, 8.5);
    check_error(offloaded, 1, 20, 20);
    check_error(rp_ledger_error_both(resident, offloaded), 3, 10.5, 20);
    check_error(rp_ledger_error_of(&ledger, "torch", "ada/resident/adapters"), 0, 0, 0);
    check_error(rp_ledger_error_of(&ledger, "torch", NULL), 0, 0, 0);
}

/* A class is what a row of the shipped ledger says; an architecture that nobody knows has none. */
Test(yardsticks, classes_of_runs)
{
    const char *of_class = "";
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_ledger_class("hopper", false, false, arena, &of_class), RP_OK));
    cr_expect(eq(str, (char *)of_class, "hopper/resident/full"));
    cr_assert(eq(int, rp_ledger_class("ada", true, true, arena, &of_class), RP_OK));
    cr_expect(eq(str, (char *)of_class, "ada/offloaded/adapters"));
    cr_assert(eq(int, rp_ledger_class(NULL, false, false, arena, &of_class), RP_OK));
    cr_expect(eq(ptr, (void *)of_class, NULL));
}

#define RUN "--model tiny --platform h100x8 --gpus 2 --seq-len 256 --iterations 1 --intervals off "

static void refuses(const char *ledger, const char *message)
{
    use_ledger(ledger);
    rp_test_outcome bad = rp_test_rpsim(RUN "--schedule 1f1b --stack torch");
    cr_expect(eq(int, bad.status, 2));
    cr_expect(strstr(bad.messages, message) != NULL, "%s", bad.messages);
    cr_expect(eq(int, rp_test_rpsim(RUN "--schedule 1f1b").status, 0), "not read without --stack");
}

Test(yardsticks, broken_ledgers)
{
    refuses(HEADER "a.csv,1,torch,ada/resident/full,1,test,\na.csv,2,torch,ada/resident/full,x,"
                   "test,\n",
            "ledger.csv:3: row 3, column 5: 'error_pct' is 'x'");
    refuses(HEADER "a.csv,1,torch,ada/resident/full,1,best,\n",
            "ledger.csv:2: row 2, column 6: role 'best'; valid values are test, listed and sets");
    refuses("stack,class,role\n", "error_pct");
    cr_assert(eq(int, unlink(in_folder("@DIR@/ledger.csv")), 0));
    cr_assert(eq(int, symlink("nowhere", in_folder("@DIR@/ledger.csv")), 0));
    rp_test_outcome missing = rp_test_rpsim(RUN "--schedule 1f1b --stack torch");
    cr_expect(eq(int, missing.status, 2));
    cr_expect(strstr(missing.messages, "ledger.csv") != NULL, "%s", missing.messages);
}

/* Checks the object `ledger` of a row. @param rows 0: it is null */
static void check_ledger(const json_t *row, int rows, double mean_pct, double worst_pct)
{
    const json_t *ledger = json_object_get(row, "ledger");
    cr_assert(ne(ptr, (void *)ledger, NULL));
    cr_expect(eq(int, json_is_null(ledger), rows == 0));
    cr_expect(eq(dbl, rp_test_json_number(ledger, "rows"), rows));
    cr_expect(eq(dbl, rp_test_json_number(ledger, "mean_pct"), mean_pct));
    cr_expect(eq(dbl, rp_test_json_number(ledger, "worst_pct"), worst_pct));
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) {
        count++;
    }
    return count;
}

/* Rows have errors of their own class, with the host's optimizer as offloaded; the table has one
 * sentence for all its rows. */
Test(yardsticks, answers_have_the_errors)
{
    use_ledger(HEADER "a.csv,1,torch,hopper/resident/full,-4,test,\n"
                      "a.csv,2,torch,hopper/resident/full,8,listed,\n"
                      "a.csv,3,torch,hopper/offloaded/full,30,test,\n"
                      "a.csv,4,megatron,ada/resident/full,1,test,\n"
                      "a.csv,5,torch,hopper/resident/adapters,-2,test,\n");
#define THREE RUN "--schedule 1f1b,roundpipe,zero-offload "
    json_t *rows = rp_test_rpsim_rows("--format json", THREE "--stack torch");
    check_ledger(json_array_get(rows, 0), 2, 6, 8);
    check_ledger(json_array_get(rows, 1), 1, 30, 30);
    check_ledger(json_array_get(rows, 2), 1, 30, 30);
    json_decref(rows);
    const char *table = rp_test_rpsim_well(THREE "--stack torch").output;
    cr_expect(eq(int, count_of(table, "measured run"), 1), "%s", table);
    cr_expect(strstr(table, "3 measured runs of torch on such cards: 14 % off on the mean, 30 % at "
                            "worst") != NULL,
              "%s", table);
    table = rp_test_rpsim_well(RUN "--schedule 1f1b --lora-rank 8 --stack torch").output;
    cr_expect(strstr(table, "  1 measured run of torch on such a card: 2 % off "
                            "(traces/ledger.csv)\n") != NULL,
              "%s", table);
    table = rp_test_rpsim_well(THREE "--stack megatron").output;
    cr_expect(
        eq(int,
           count_of(table,
                    "  no run of this stack on such a card that has set no constant is known\n"),
           1),
        "%s", table);
    /* Without --stack a schedule has its own software, if nobody has measured the model. */
    table = rp_test_rpsim_well(THREE).output;
    cr_expect(strstr(table, "  rows differ in software, too (column stack: deepspeed, or none); "
                            "--stack NAME gives all the same\n") != NULL,
              "%s", table);
    cr_expect(eq(int, count_of(table, "such"), 1), "%s", table);
    table = rp_test_rpsim_well(RUN "--schedule 1f1b,roundpipe").output;
    cr_expect(eq(int, count_of(table, "such"), 0), "%s", table);
    table = rp_test_rpsim_well("--model qwen3-1.7b --platform h100x8 --gpus 2 --seq-len 256 "
                               "--iterations 1 --intervals off --schedule 1f1b,zero-offload")
                .output; /* an RTX 4090's times, moved */
    cr_expect(eq(int, count_of(table, "such") + count_of(table, "software"), 0), "%s", table);
}

Test(yardsticks, advice_has_the_errors)
{
    use_ledger(HEADER "a.csv,1,torch,hopper/resident/full,-4,test,\n"
                      "a.csv,2,torch,hopper/resident/full,8,listed,\n");
#define ADVISE                                                                                     \
    "--model tiny --platform h100x8 --gpus 2 --seq-len 256 --schedule 1f1b,gpipe --budget 40 "     \
    "--stack torch"
    rp_test_outcome said = rp_test_tool_run(RPADVISE_PATH, "rpadvise", ADVISE);
    cr_expect(eq(int, said.status, 0), "%s", said.messages);
    cr_expect(eq(int, count_of(said.output, "measured runs of torch"), 1), "%s", said.output);
    said = rp_test_tool_run(RPADVISE_PATH, "rpadvise", ADVISE " --format json");
    json_t *rows = json_loads(said.output, 0, NULL);
    check_ledger(json_array_get(rows, 0), 2, 6, 8);
    cr_expect(gt(dbl, rp_test_json_number(json_array_get(rows, 0), "speed_limit_tokens_per_s"), 0));
    json_decref(rows);
    use_ledger("");
    said = rp_test_tool_run(RPADVISE_PATH, "rpadvise", ADVISE);
    cr_expect(eq(int, said.status, 2));
    cr_expect(strstr(said.messages, "ledger.csv:1") != NULL, "%s", said.messages);
}

Test(yardsticks, null_without_a_stack)
{
    json_t *rows = rp_test_rpsim_rows("--format json", RUN "--schedule 1f1b");
    const json_t *row = json_array_get(rows, 0);
    check_ledger(row, 0, 0, 0);
    bool none = json_is_null(json_object_get(row, "speed_limit_tokens_per_s"));
    cr_expect(none);
    json_decref(rows);
}

/* ---- the speed limit ------------------------------------------------------------------------- */

/* The limit is that of whole layers on all GPUs, whoever shares them, and adds up what the stack
 * `ideal` takes for each microbatch. */
Test(yardsticks, limit_adds_up)
{
    rp_model model;
    rp_platform platform;
    double time_s = 0;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_model_load("qwen3-0.6b", arena, &model), RP_OK));
    cr_assert(eq(int, rp_platform_load("h100x8", arena, &platform), RP_OK));
    const rp_roof roof = {&platform, {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, NULL};
    cr_assert(eq(int, rp_ideal_s(&model, &roof, 2, 1024, arena, &time_s, NULL), RP_OK));
    static const char *const layouts[] = {
        "--gpus 4 --schedule 1f1b", "--gpus 4 --schedule 1f1b --tensor-parallel 2",
        "--gpus 4 --schedule 1f1b --data-parallel 2 --stack torch",
        "--gpus 4 --schedule fsdp --recompute wait"};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        char before[256];
        (void)snprintf(before, sizeof before,
                       "--format json --model qwen3-0.6b --platform h100x8 --dtype bf16 --seq-len "
                       "1024 --microbatch-size 2 --iterations 1 --intervals off%s",
                       strstr(layouts[i], "--stack") == NULL ? " --stack nanotron" : "");
        json_t *rows = rp_test_rpsim_rows(before, layouts[i]);
        double limit = rp_test_json_number(json_array_get(rows, 0), "speed_limit_tokens_per_s");
        cr_expect(epsilon_eq(dbl, limit, 4 * 2048 / time_s, 1e-6 * limit), "%s: %g", layouts[i],
                  limit);
        json_decref(rows);
    }
}

/* A pipeline of one GPU in the stack `ideal` is as fast as the limit but for its optimizer step,
 * also with microbatches of other sizes than the table's 4 sequences. */
Test(yardsticks, ideal_runs_come_near)
{
    static const char *const works[] = {
        "--model qwen3-0.6b --global-batch 256", "--model qwen3-0.6b --global-batch 2048",
        "--model qwen3-0.6b --global-batch 100", "--model gpt-oss-20b --global-batch 2048"};
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        json_t *rows = rp_test_rpsim_rows("--schedule 1f1b --platform h100x8 --gpus 1 "
                                          "--microbatches 64 --recompute none --stack ideal "
                                          "--iterations 2 --intervals off --format json",
                                          works[i]);
        const json_t *row = json_array_get(rows, 0);
        double share = rp_test_json_number(row, "tokens_per_s") /
                       rp_test_json_number(row, "speed_limit_tokens_per_s");
        cr_expect(gt(dbl, share, 0.9), "%s: %g", works[i], share);
        cr_expect(le(dbl, share, 1), "%s: %g", works[i], share);
        json_decref(rows);
    }
}

static void no_row_is_faster(const char *line)
{
    json_t *rows = rp_test_rpsim_rows(
        "--schedule all --gpus 4 --microbatches 8 --iterations 2 --intervals off --format json",
        line);
    cr_expect(gt(sz, json_array_size(rows), 10), "%s", line);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double speed = rp_test_json_number(row, "tokens_per_s");
        cr_expect(ge(dbl, rp_test_json_number(row, "speed_limit_tokens_per_s"), speed), "%s: %s",
                  line, rp_test_json_text(row, "schedule"));
    }
    json_decref(rows);
}

Test(yardsticks, no_schedule_of_any_stack_is_faster)
{
    static const char *const stacks[] = {"roundpipe", "torch",    "torch-compile",
                                         "deepspeed", "megatron", "nanotron",
                                         "llmq",      "rpexec",   "ideal"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        char line[128];
        (void)snprintf(line, sizeof line, "--model %s --platform %s --seq-len 1024 --stack %s",
                       i % 2 == 0 ? "qwen3-0.6b" : "gpt-oss-20b",
                       i % 4 < 2 ? "h100x8" : "rtx4090x8", stacks[i]);
        no_row_is_faster(line);
    }
}

/* Tables have the column where it is asked for, as a share. */
Test(yardsticks, share_of_the_limit)
{
    const char *line = RUN "--schedule 1f1b --stack torch";
    cr_expect(eq(int, count_of(rp_test_rpsim_well(line).output, "limit"), 0));
    rp_test_outcome asked =
        rp_test_rpsim_after(line, "--columns tokens_per_s,speed_limit_tokens_per_s,peak_share_pct");
    cr_expect(strstr(asked.output, "limit %") != NULL, "%s", asked.output);
}
