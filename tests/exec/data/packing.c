/* Training on packed documents and on rows of a table, padded or with labels, against transformers
 * on PyTorch (tests/golden/tokens: losses.csv by losses.py, padded.csv by padded.py): losses of
 * AdamW steps to 1e-5. */
#include "common/formats/csv.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN RP_TEST_ROOT "/golden/"
#define STEPS 6u

TestSuite(exec_data_packing, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* @param first index of the case's first row @param line command line whose losses must be the
 * case's */
static void compare(const rp_csv *golden, uint32_t first, const char *line)
{
    rp_test_outcome run = rp_test_tool_run(RPEXEC_PATH, "rpexec", line);
    cr_assert(eq(int, run.status, 0), "%s: %s", line, run.messages);
    cr_expect(eq(sz, strlen(run.messages), 0), "%s: %s", line, run.messages);
    const char *text = rp_test_tool_read(rp_test_tool_expand("@DIR@/losses.csv", 16));
    rp_csv losses = rp_test_tool_table("losses.csv", text, ',');
    for (uint32_t i = 0; i < STEPS; i++) {
        double expected = strtod(rp_test_tool_cell(golden, first + i, "loss"), NULL);
        double loss = strtod(rp_test_tool_cell(&losses, i, "loss"), NULL);
        cr_expect(fabs(loss - expected) <= 1e-5 * expected, "%s: step %u: %.9g, not %.9g", line,
                  i + 1, loss, expected);
    }
}

/* @param first index of the case's first row */
static void expect_losses(const rp_csv *golden, uint32_t first, const char *schedule)
{
    const char *line = NULL;
    const char *sequences = rp_test_tool_cell(golden, first, "sequences");
    bool even = strtoul(sequences, NULL, 10) % 2 == 0;
    bool joined = strcmp(rp_test_tool_cell(golden, first, "joined"), "1") == 0;
    (void)rp_arena_print(rp_test_tool_arena(), &line,
                         "--weights " GOLDEN "decoders/llama --data " GOLDEN "tokens/%s --seq-len "
                         "%s --schedule %s --gpus %d --microbatches %s --steps 6 --lr 0.01 "
                         "--loss-out @DIR@/losses.csv%s",
                         rp_test_tool_cell(golden, first, "data"),
                         rp_test_tool_cell(golden, first, "seq_len"), schedule, even ? 2 : 1,
                         sequences, joined ? " --join-documents" : "");
    compare(golden, first, line);
}

Test(exec_data_packing, losses_are_those_of_pytorch)
{
    const char *text = rp_test_tool_read(GOLDEN "tokens/losses.csv");
    rp_csv golden = rp_test_tool_table("losses.csv", text, ',');
    static const char *const schedules[] = {"roundpipe", "zb1p", "fsdp"};
    cr_assert(eq(u32, golden.rows, 5 * STEPS));
    for (uint32_t first = 0; first < golden.rows; first += STEPS) {
        for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
            expect_losses(&golden, first, schedules[i]);
        }
    }
}

/* Makes a folder with the weights of decoders/llama, and a config.json that has the padding token.
 */
static void make_model(const char *padding)
{
    const char *command = NULL;
    (void)rp_arena_print(rp_test_tool_arena(), &command,
                         "rm -rf %s/m && mkdir %s/m && cp " GOLDEN
                         "decoders/llama/model.safetensors "
                         "%s/m && sed 's/\"pad_token_id\": null/\"pad_token_id\": %s/' " GOLDEN
                         "decoders/llama/config.json > %s/m/config.json",
                         rp_test_tool_folder(), rp_test_tool_folder(), rp_test_tool_folder(),
                         strcmp(padding, "none") == 0 ? "null" : padding, rp_test_tool_folder());
    cr_assert(eq(int, system(command), 0)); // NOLINT(cert-env33-c)
}

/* A step trains on twelve rows, in microbatches of any size: the mean is over all labels of the
 * step. --seq-len 12 trains like 11, since the last token has no label. RP_LONG=1 tries every pair.
 */
Test(exec_data_packing, padding_is_not_learned)
{
    const char *text = rp_test_tool_read(GOLDEN "tokens/padded.csv");
    rp_csv golden = rp_test_tool_table("padded.csv", text, ',');
    static const char *const works[] = {
        "--seq-len 11 --schedule roundpipe --gpus 2 --microbatches 12",
        "--seq-len 12 --schedule fsdp --gpus 2 --microbatches 4 --microbatch-size 3",
        "--seq-len 12 --schedule 1f1b --gpus 2 --microbatches 6 --accumulate 2",
        "--seq-len 11 --schedule zb1p --gpus 4 --data-parallel 2 --microbatches 6"};
    const char *long_run = getenv("RP_LONG");
    bool all = long_run != NULL && strcmp(long_run, "1") == 0;
    cr_assert(eq(u32, golden.rows, 8 * STEPS));
    for (uint32_t first = 0; first < golden.rows; first += STEPS) {
        make_model(rp_test_tool_cell(&golden, first, "padding"));
        for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
            const char *line = NULL;
            (void)rp_arena_print(rp_test_tool_arena(), &line,
                                 "--weights @DIR@/m --data " GOLDEN "tokens/%s %s --steps 6 --lr "
                                 "0.01 --loss-out @DIR@/losses.csv",
                                 rp_test_tool_cell(&golden, first, "data"), works[i]);
            if (all || i == first / STEPS % 4) {
                compare(&golden, first, line);
            }
        }
    }
}
