/* Training on packed documents and on rows of a table, against transformers on PyTorch
 * (tests/golden/tokens/losses.csv, by losses.py): losses of AdamW steps to 1e-5. */
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

/* @param first of the case's rows */
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
    rp_test_outcome run = rp_test_tool_run(RPEXEC_PATH, "rpexec", line);
    cr_assert(eq(int, run.status, 0), "%s: %s", line, run.messages);
    const char *text = rp_test_tool_read(rp_test_tool_expand("@DIR@/losses.csv", 16));
    rp_csv losses = rp_test_tool_table("losses.csv", text, ',');
    for (uint32_t i = 0; i < STEPS; i++) {
        double expected = strtod(rp_test_tool_cell(golden, first + i, "loss"), NULL);
        double loss = strtod(rp_test_tool_cell(&losses, i, "loss"), NULL);
        cr_expect(fabs(loss - expected) <= 1e-5 * expected, "%s: step %u: %.9g, not %.9g", line,
                  i + 1, loss, expected);
    }
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
