/* Adapters on some of the linear layers, made and trained by PEFT (tests/golden/subsets/make.py):
 * losses of AdamW steps to 1e-5, under schedules of every kind, also across a checkpoint that is
 * saved and read. A plain run tries a single schedule for each set of layers, RP_LONG=1 all. */
#include "common/formats/csv.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN RP_TEST_ROOT "/golden/"
#define STEPS 5u

TestSuite(exec_subsets, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

static const char *print(const char *format, const char *a, const char *b, const char *c)
{
    const char *text = NULL;
    cr_assert(eq(int, rp_arena_print(rp_test_tool_arena(), &text, format, a, b, c), RP_OK));
    return text;
}

/* @param first index of the table's row with which the run begins @param count number of its steps
 */
static void train(const rp_csv *golden, uint32_t first, uint32_t count, const char *line)
{
    rp_test_outcome run = rp_test_tool_run(RPEXEC_PATH, "rpexec", line);
    cr_assert(eq(int, run.status, 0), "%s: %s", line, run.messages);
    const char *text = rp_test_tool_read(rp_test_tool_expand("@DIR@/losses.csv", 16));
    rp_csv losses = rp_test_tool_table("losses.csv", text, ',');
    for (uint32_t i = 0; i < count; i++) {
        double expected = strtod(rp_test_tool_cell(golden, first + i, "loss"), NULL);
        double loss = strtod(rp_test_tool_cell(&losses, i, "loss"), NULL);
        cr_expect(fabs(loss - expected) <= 1e-5 * expected, "%s: step %u: %.9g, not %.9g", line,
                  i + 1, loss, expected);
    }
}

static void check(const rp_csv *golden, uint32_t first, const char *work)
{
    const char *name = rp_test_tool_cell(golden, first, "name");
    const char *base = rp_test_tool_cell(golden, first, "base");
    const char *folder = rp_test_tool_folder();
    cr_assert(eq(int,
                 system(print("cd %s && rm -rf a out && cp -r " GOLDEN "subsets/%s a && " // NOLINT
                              "sed -i 's|\"BASE\"|\"" GOLDEN "%s\"|' a/adapter_config.json",
                              folder, name, base)),
                 0));
#define RUN                                                                                        \
    "--data " GOLDEN "subsets/rows.npy --seq-len 12 --microbatches 8 --lr 0.01 --loss-out "        \
    "@DIR@/losses.csv %s "
    train(golden, first, STEPS - 1,
          print(RUN "--weights @DIR@/a --steps 4 --save @DIR@/out%s%s", work, "", ""));
    train(golden, first + STEPS - 1, 1,
          print(RUN "--weights @DIR@/out/step-4 --steps 1%s%s", work, "", ""));
}

Test(exec_subsets, adapters_on_some_layers_train_as_peft_trains_them)
{
    static const char *const works[] = {
        "--schedule roundpipe --gpus 2", "--schedule fsdp --gpus 2",
        "--schedule 1f1b --gpus 2",      "--schedule megatron-tp --gpus 2",
        "--schedule zb1p --gpus 4",      "--schedule zero-offload --gpus 2"};
    const char *long_run = getenv("RP_LONG");
    bool all = long_run != NULL && strcmp(long_run, "1") == 0;
    const char *text = rp_test_tool_read(GOLDEN "subsets/losses.csv");
    rp_csv golden = rp_test_tool_table("losses.csv", text, ',');
    cr_assert(eq(u32, golden.rows, 9 * STEPS));
    for (uint32_t first = 0; first < golden.rows; first += STEPS) {
        for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
            if (all || i == first / STEPS % 6) {
                check(&golden, first, works[i]);
            }
        }
    }
}
