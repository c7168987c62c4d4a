/* --documents and --padding: sequences that are packed of documents. */
#include "tests/support/assertions.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(packing, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

static double number(const char *options, const char *key)
{
    char line[512];
    snprintf(line, sizeof line, "--intervals off --seq-len 8192 --microbatches 4 %s", options);
    return rp_test_row_number(line, key);
}

#define FSDP "--schedule fsdp --platform h100x8 --gpus 2 --microbatch-size 2 "

/* Padding takes time and is no output; documents as long as sequences change nothing. */
Test(packing, padding_takes_time)
{
    static const char *const lines[] = {FSDP, FSDP "--stack torch ",
                                        "--schedule 1f1b --platform rtx4090x8 --gpus 2 "};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char padded[256];
        char whole[256];
        snprintf(padded, sizeof padded, "%s--padding 0.25", lines[i]);
        snprintf(whole, sizeof whole, "%s--documents 8k", lines[i]);
        double speed = number(lines[i], "tokens_per_s");
        cr_expect(epsilon_eq(dbl, number(padded, "tokens_per_s"), 0.75 * speed, 1e-9 * speed), "%s",
                  lines[i]);
        cr_expect(eq(dbl, number(padded, "iteration_ms"), number(lines[i], "iteration_ms")));
        cr_expect(eq(dbl, number(whole, "tokens_per_s"), speed), "%s", lines[i]);
    }
}

/* FLOP that a step executes: 4 H h per pair in a forward and a recompute, 2.5 times as many in a
 * backward (sim/model.md section 3); 16 heads of 128 in 28 layers. */
Test(packing, executed_flop_follow_the_pairs)
{
    double whole = number(FSDP, "tflops_per_gpu") * number(FSDP, "iteration_ms");
    double packed = number(FSDP "--documents 512", "tflops_per_gpu") *
                    number(FSDP "--documents 512", "iteration_ms");
    double pairs = (8192.0 * 8192 - 16 * 512.0 * 512) / 2;
    double less = 28 * 4.5 * 4 * 16 * 128 * pairs * 4; /* four sequences of a GPU */
    cr_expect(epsilon_eq(dbl, 1e9 * (whole - packed), less, 1e-9 * 1e9 * whole));
}

/* The time that is less is the attention's: of measured tables by the platform's rates, of stacks
 * by theirs. A single GPU does nothing else. */
Test(packing, times_follow_the_pairs)
{
    static const char *const stacks[] = {"", "--stack torch", "--stack nanotron"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        double ms[4];
        static const char *const lengths[] = {"8192", "4096", "2048", "1024"};
        for (size_t k = 0; k < 4; k++) {
            char line[256];
            snprintf(line, sizeof line,
                     "--schedule 1f1b --platform h100x8 --gpus 1 --documents %s %s", lengths[k],
                     stacks[i]);
            ms[k] = number(line, "iteration_ms");
        }
        cr_expect(gt(dbl, ms[0], 1.05 * ms[3]), "%s", stacks[i]);
        /* halves of the pairs, and as many diagonal blocks */
        double half = (ms[0] - ms[1]) / (ms[1] - ms[2]);
        cr_expect(epsilon_eq(dbl, half, 2, 1e-6), "%s: %g", stacks[i], half);
        half = (ms[1] - ms[2]) / (ms[2] - ms[3]);
        cr_expect(epsilon_eq(dbl, half, 2, 1e-6), "%s: %g", stacks[i], half);
    }
}
