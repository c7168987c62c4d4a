/* Selective recompute from the command line: FLOP, memory and the order of modes, by closed forms
 * of a layer. */
#include "common/inputs/load/models.h"
#include "common/inputs/stacks/sizes.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(selective, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 240);

typedef struct answer {
    double flop; /* of a GPU, in a step */
    double bytes;
    double time_s;
} answer;

static answer ask(const char *before, const char *mode)
{
    char line[512];
    snprintf(line, sizeof line, "%s --recompute %s", before, mode);
    json_t *rows = rp_test_rpsim_rows("--format json --intervals off --iterations 1", line);
    const json_t *row = json_array_get(rows, 0);
    const json_t *peaks = json_object_get(row, "peak_gpu_bytes");
    const answer a = {.bytes = json_number_value(json_array_get(peaks, 0)),
                      .time_s = 1e-3 * rp_test_json_number(row, "iteration_ms")};
    answer with = a;
    with.flop = 1e12 * rp_test_json_number(row, "tflops_per_gpu") * a.time_s;
    cr_expect(eq(str, (char *)rp_test_json_text(row, "recompute"), (char *)mode));
    json_decref(rows);
    return with;
}

/* llama3.1-8b: h = q, k, I; 32 layers on two GPUs, of which GPU 0 has no head; a microbatch of
 * 16,384 tokens. */
#define H 4096.0
#define K 1024.0
#define F 14336.0
#define TOKENS 16384.0
#define LAYERS 32.0
#define OF_GPU 16.0

#define SIZES                                                                                      \
    " --model llama3.1-8b --gpus 2 --microbatch-size 1 --seq-len 16384 --dtype bf16 --platform "   \
    "h100x8"
#define PIPELINE "--schedule 1f1b --partition 16,16 --microbatches 1" SIZES

/* torchtitan's policy runs the products of k, o and up again and keeps 8 h + 2 k + 2 I bytes per
 * token with a float per head; of one layer at a time the whole tape is there. */
Test(selective, every_second_product)
{
    const char *line = "--stack torch " PIPELINE;
    const answer none = ask(line, "none");
    const answer some = ask(line, "selective");
    const answer all = ask(line, "wait");
    rp_model m;
    rp_sizes sizes;
    rp_stack torch;
    cr_assert(eq(int, rp_model_load("llama3.1-8b", rp_test_tool_arena(), &m), RP_OK));
    cr_assert(
        eq(int, rp_sizes_of_model(&m, 16384, RP_DTYPE_BF16, rp_test_tool_arena(), &sizes), RP_OK));
    cr_assert(eq(int, rp_stack_load("torch", rp_test_tool_arena(), &torch), RP_OK));
    rp_stack_set_sizes(&torch, &m, 16384, &sizes);
    double again = OF_GPU * TOKENS * 2 * (H * K + H * H + H * F);
    double kept = TOKENS * (8 * H + 2 * K + 2 * F + 4 * 32);
    double rebuilt = (double)sizes.tape_bytes[1] - kept;
    cr_expect(epsilon_eq(dbl, some.flop - none.flop, again, 1e-6 * none.flop));
    cr_expect(eq(dbl, none.bytes - some.bytes, (OF_GPU - 1) * rebuilt));
    cr_expect(none.time_s < some.time_s && some.time_s < all.time_s);
}

/* Megatron's runs attention alone again: T^2 h * 2 FLOP of each layer. Fused, it saves a
 * float per token and head of all layers but the one that is differentiated. */
Test(selective, core_attention)
{
    const char *line = "--stack megatron " PIPELINE;
    const answer none = ask(line, "none");
    const answer some = ask(line, "selective");
    const answer all = ask(line, "wait");
    double again = OF_GPU * 2 * TOKENS * TOKENS * H;
    cr_expect(epsilon_eq(dbl, some.flop - none.flop, again, 1e-6 * none.flop));
    cr_expect(eq(dbl, none.bytes - some.bytes, (OF_GPU - 1) * TOKENS * 4 * 32));
    cr_expect(none.time_s < some.time_s && some.time_s < all.time_s);
}

/* Without a stack: attention, norms and the activation of a measured table's layers; the norms'
 * 2 x 8 h and the activation's 4 I bytes per token are made again. FSDP's two GPUs have 32 layers
 * of a microbatch each, and their peak at the loss. */
Test(selective, without_a_stack)
{
    static const char *const lines[] = {PIPELINE, "--schedule fsdp --microbatches 2" SIZES};
    for (size_t i = 0; i < 2; i++) {
        const answer none = ask(lines[i], "none");
        const answer some = ask(lines[i], "selective");
        const answer all = ask(lines[i], "wait");
        double layers = i == 0 ? OF_GPU : LAYERS;
        double rebuilt = (i == 0 ? layers - 1 : layers) * TOKENS * (16 * H + 4 * F);
        double again = layers * 2 * TOKENS * TOKENS * H;
        cr_expect(epsilon_eq(dbl, some.flop - none.flop, again, 1e-6 * none.flop), "%zu", i);
        cr_expect(eq(dbl, none.bytes - some.bytes, rebuilt), "%zu", i);
        cr_expect(none.time_s < some.time_s && some.time_s < all.time_s, "%zu", i);
    }
}

/* A program keeps its mode: what rpsim writes it reads again, with the same answer. */
Test(selective, program_has_the_mode)
{
    const char *sizes = "--model qwen3-1.7b --stack torch --platform h100x8 --seq-len 1024";
    char line[512];
    snprintf(line, sizeof line,
             "--schedule 1f1b --gpus 2 --microbatches 4 --iterations 1 --recompute selective %s "
             "--dtype bf16 "
             "--program-out @DIR@/p.txt",
             sizes);
    json_t *made = rp_test_rpsim_rows("--format json --intervals off", line);
    snprintf(line, sizeof line, "--program-in @DIR@/p.txt %s", sizes);
    json_t *read = rp_test_rpsim_rows("--format json --intervals off", line);
    cr_expect(eq(dbl, rp_test_json_number(json_array_get(made, 0), "makespan_ms"),
                 rp_test_json_number(json_array_get(read, 0), "makespan_ms")));
    json_decref(made);
    json_decref(read);
    rp_test_outcome refused = rp_test_rpsim("--program-in @DIR@/p.txt --model qwen3-1.7b --stack "
                                            "nanotron --platform h100x8");
    cr_expect(eq(int, refused.status, 2));
    cr_expect(strstr(refused.messages, "stack nanotron") != NULL);
}
