/* Times in the software of a stack, against figures by hand. */
#include "common/inputs/data.h"
#include "common/inputs/load/models.h"
#include "common/roofline/roofline.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(stack, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

/* 200 TFLOP/s; 100 W beyond idle at 1 pJ per FLOP are 100 TFLOP/s; memory of 1 TB/s. */
static const rp_platform gpu = {.fp16_tflops_fp16_acc = 400,
                                .fp16_tflops_fp32_acc = 200,
                                .memory_gb_per_s = 1000,
                                .gemm_efficiency = 0.5,
                                .product_share = 0.8,
                                .idle_power_w = 50,
                                .power_limit_w = 150,
                                .product_pj = 1,
                                .flash2_fwd_share = 0.4,
                                .flash2_bwd_share = 0.2,
                                .cudnn_fwd_share = 0.5,
                                .cudnn_bwd_share = 0.3};

static rp_stack plain(void)
{
    return (rp_stack){.attention = "flash2",
                      .memory_share = 0.5,
                      .norm_fwd_bytes = 4,
                      .norm_bwd_bytes = 10,
                      .attention_bwd_bytes = 20,
                      .accumulation_bytes = 6,
                      .host_us_per_launch = 10,
                      .launches_fwd = 20,
                      .launches_bwd = 40};
}

static double time_s(const rp_operator *op, rp_pass pass, const rp_platform *on,
                     const rp_stack *stack)
{
    const rp_kernel_run run = {.roof = {on, {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, stack},
                               .seq_len = 1280};
    return rp_stack_s(op, pass, &run);
}

static void check_s(double got_s, double expected_s)
{
    cr_expect(epsilon_eq(dbl, got_s, expected_s, 1e-9 * expected_s), "%g", got_s);
}

/* A product takes its share of the peak until power is the limit. */
Test(stack, power_limits_products)
{
    const rp_stack stack = plain();
    rp_operator op = {.unit = RP_UNIT_GEMM};
    op.work[RP_PASS_FORWARD].flops = 1e12;
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 1e12 / 100e12);
    rp_platform cool = gpu;
    cool.power_limit_w = 1050;
    check_s(time_s(&op, RP_PASS_FORWARD, &cool, &stack), 1e12 / (0.8 * 200e12));
    cool.product_share = 0; /* a card whose file is older: as without a stack */
    check_s(time_s(&op, RP_PASS_FORWARD, &cool, &stack), 1e12 / (0.5 * 200e12));
    op.work[RP_PASS_FORWARD].traffic = 1e12; /* at 0.5 of 1 TB/s */
    check_s(time_s(&op, RP_PASS_FORWARD, &cool, &stack), 2);
}

/* Heads of 128 reach the kernel's share, of 64 0.8 of it; blocks of 128 on the diagonal are
 * computed whole, a tenth of the pairs of 1,280 tokens more. */
Test(stack, attention_by_kernel_and_head)
{
    rp_stack stack = plain();
    rp_operator op = {.unit = RP_UNIT_ATTENTION, .elements = 1e6, .head_dim = 128};
    op.work[RP_PASS_FORWARD].flops = op.work[RP_PASS_BACKWARD_INPUT].flops = 1e12;
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 1.1 * 1e12 / 80e12);
    check_s(time_s(&op, RP_PASS_BACKWARD_INPUT, &gpu, &stack),
            1.1 * 1e12 / 40e12 + 20 * 1e6 / 500e9);
    op.head_dim = 64;
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 1.1 * 1e12 / 64e12);
    stack.attention = "cudnn";
    op.head_dim = 256; /* no faster than 128; power allows 100 TFLOP/s */
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 1.1 * 1e12 / 100e12);
    stack.attention_fwd_share = 0.1;
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 1.1 * 1e12 / 20e12);
}

Test(stack, passes_by_bytes_per_value)
{
    const rp_stack stack = plain();
    rp_operator op = {.unit = RP_UNIT_VECTOR, .vector = RP_VECTOR_NORM, .elements = 1e9};
    op.work[RP_PASS_FORWARD].traffic = 34e9; /* eager PyTorch's, which the stack replaces */
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 4e9 / 500e9);
    check_s(time_s(&op, RP_PASS_BACKWARD_INPUT, &gpu, &stack), 10e9 / 500e9);
    cr_expect(eq(dbl, time_s(&op, RP_PASS_BACKWARD_WEIGHT, &gpu, &stack), 0));
    rp_platform slow = gpu; /* its kernels reach 400 GB/s, less than half of 1 TB/s */
    slow.memory_effective_gb_per_s = 400;
    check_s(time_s(&op, RP_PASS_FORWARD, &slow, &stack), 4e9 / 400e9);
    slow.memory_effective_gb_per_s = 900;
    check_s(time_s(&op, RP_PASS_FORWARD, &slow, &stack), 4e9 / 500e9);
    op.vector = RP_VECTOR_ACCUMULATION;
    check_s(time_s(&op, RP_PASS_BACKWARD_WEIGHT, &gpu, &stack), 6e9 / 500e9);
    cr_expect(eq(dbl, time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 0));
    op.vector = RP_VECTOR_OTHER; /* routing and its kind: as counted */
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 34e9 / 500e9);
}

/* PyTorch has a kernel for LayerNorm and one for GELU: they read values and write results, and no
 * stack moves more. A stack whose norm moves less keeps its count. */
Test(stack, layer_norm_and_gelu_are_single_kernels)
{
    rp_stack stack = plain();
    rp_operator op = {.unit = RP_UNIT_VECTOR, .vector = RP_VECTOR_LAYER_NORM, .elements = 1e9};
    op.work[RP_PASS_FORWARD].traffic = 4e9;
    op.work[RP_PASS_BACKWARD_INPUT].traffic =
        6e9; /* values and gradients read, gradients written */
    op.work[RP_PASS_BACKWARD_WEIGHT].traffic = 4e9; /* both read again for weight and bias */
    stack.norm_fwd_bytes = 34;
    stack.norm_bwd_bytes = 76;
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 4e9 / 500e9);
    check_s(time_s(&op, RP_PASS_BACKWARD_INPUT, &gpu, &stack), 10e9 / 500e9);
    cr_expect(eq(dbl, time_s(&op, RP_PASS_BACKWARD_WEIGHT, &gpu, &stack), 0));
    stack.norm_bwd_bytes = 8;
    check_s(time_s(&op, RP_PASS_BACKWARD_INPUT, &gpu, &stack), 8e9 / 500e9);
    op.vector = RP_VECTOR_GELU;
    stack.activation_fwd_bytes = 10;
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 4e9 / 500e9);
    op.vector = RP_VECTOR_FUSED_LOSS;
    stack.loss_bytes = 52;
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 4e9 / 500e9);
    op.vector = RP_VECTOR_LOSS;
    check_s(time_s(&op, RP_PASS_FORWARD, &gpu, &stack), 26e9 / 500e9);
}

/* FlashAttention 1 has the GPU's own rates, with heads of 64 as well. */
Test(stack, flash_attention_of_2022)
{
    rp_stack stack = plain();
    stack.attention = "flash1";
    rp_platform a100 = gpu;
    a100.flash_fwd_tflops = 60;
    rp_operator op = {.unit = RP_UNIT_ATTENTION, .elements = 1e6, .head_dim = 64};
    op.work[RP_PASS_FORWARD].flops = 1e12;
    check_s(time_s(&op, RP_PASS_FORWARD, &a100, &stack), 1.1 * 1e12 / 60e12);
    a100.attention_fwd_tflops = 50; /* where nobody says it, as without a stack */
    a100.flash_fwd_tflops = 0;
    check_s(time_s(&op, RP_PASS_FORWARD, &a100, &stack), 1.1 * 1e12 / 50e12);
}

/* Kernels of a layer in eager transformers, counted in their sources: 34 and 73, and with norms on
 * queries and keys 46 and 97. MPT, forward: two norms, four products, attention, GELU, two sums;
 * backward: norms 2 x 2, products 8, their biases 4, GELU, two sums, attention 3 and 4 around it,
 * gradients added 4. */
Test(stack, launches_by_shape)
{
    static const struct {
        const char *model;
        double fwd;
        double bwd;
    } counted[] = {{"llama3.1-8b", 34, 73}, {"qwen3-1.7b", 46, 97}, {"mpt-7b", 10, 30}};
    rp_stack stack = plain();
    stack.adapter_launches_fwd = 2;
    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
        rp_model model;
        cr_assert(eq(int, rp_model_load(counted[i].model, rp_test_tool_arena(), &model), RP_OK));
        stack.launches_fwd = stack.launches_bwd = 0;
        cr_expect(eq(dbl, rp_stack_launches(&stack, &model, false), counted[i].fwd));
        cr_expect(eq(dbl, rp_stack_launches(&stack, &model, true), counted[i].bwd));
        stack.launches_fwd = 14; /* a stack that has a number has it for all shapes */
        cr_expect(eq(dbl, rp_stack_launches(&stack, &model, false), 14));
    }
}

Test(stack, host_launches)
{
    rp_stack stack = plain();
    rp_model model = {.experts = 1};
    rp_stack_host host = {.stack = &stack, .host_speed = 1};
    check_s(rp_stack_host_s(&host, &model, false), 200e-6);
    check_s(rp_stack_host_s(&host, &model, true), 400e-6);
    host.host_speed = 2;
    check_s(rp_stack_host_s(&host, &model, false), 100e-6);
    host.host_speed = 1;
    stack.tensor_launches_fwd = 5;
    stack.host_us_per_collective = 100;
    stack.tensor_collectives_fwd = 4;
    stack.sharded_collectives_fwd = 1;
    check_s(rp_stack_host_s(&host, &model, false), 200e-6);
    host.tensor = true;
    check_s(rp_stack_host_s(&host, &model, false), 650e-6);
    host.sharded = true;
    check_s(rp_stack_host_s(&host, &model, false), 750e-6);
    host.tensor = host.sharded = false;
    stack.adapter_launches_fwd = 3;
    model.lora_rank = 8; /* q, k, v, o, gate, up, down */
    check_s(rp_stack_host_s(&host, &model, false), 410e-6);
    model.lora_rank = 0;
    model.experts = 4;
    stack.expert_launches_fwd = 10;
    check_s(rp_stack_host_s(&host, &model, false), 600e-6);
}

/* ---- whole runs ------------------------------------------------------------------------------ */

/* Traffic and launches of fused kernels. */
#define LIGER                                                                                      \
    "--set stack.norm_fwd_bytes=4,stack.norm_bwd_bytes=8,stack.rope_fwd_bytes=4,"                  \
    "stack.rope_bwd_bytes=4,stack.activation_fwd_bytes=6,stack.activation_bwd_bytes=10,"           \
    "stack.loss_bytes=6,stack.launches_fwd=18,stack.launches_bwd=40"

#define LAUNCHED                                                                                   \
    "name: slow\nsource: made up\nattention: flash2\nmemory_share: 1\nkernel_us: 0\n"              \
    "norm_fwd_bytes: 0\nnorm_bwd_bytes: 0\nrope_fwd_bytes: 0\nrope_bwd_bytes: 0\n"                 \
    "activation_fwd_bytes: 0\nactivation_bwd_bytes: 0\nresidual_fwd_bytes: 0\n"                    \
    "residual_bwd_bytes: 0\nattention_bwd_bytes: 0\naccumulation_bytes: 0\nloss_bytes: 0\n"        \
    "step_bytes: 0\nhost_us_per_launch: 1000\nlaunches_fwd: 3\nlaunches_bwd: 5\n"                  \
    "host_us_per_microbatch: 4000\nnorm_saved_bytes: 0\nnorm_output_saved_bytes: 0\n"              \
    "activation_saved_bytes: 0\nproduct_saved_bytes: 0\ntemporary_hidden_bytes: 0\n"               \
    "temporary_mlp_bytes: 0\nlogit_bytes: 0\n"

static void write_stack(const char *text)
{
    FILE *file = fopen(rp_test_tool_expand("@DIR@/slow.yaml", 15), "w");
    cr_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static double iteration_ms(const char *line)
{
    json_t *rows = rp_test_rpsim_rows("--iterations 1 --intervals off --format json", line);
    double ms = rp_test_json_number(json_array_get(rows, 0), "iteration_ms");
    json_decref(rows);
    return ms;
}

/* A layer of tiny takes microseconds on an H100, and 3 + 5 ms of this host, with 4 ms around the
 * layers of each of 3 microbatches; a recompute launches a forward again. On a host of twice the
 * speed it is half. */
Test(stack, gpus_wait_for_a_late_host)
{
    write_stack(LAUNCHED);
#define RUN                                                                                        \
    "--schedule 1f1b --model tiny --platform h100x8 --gpus 1 --microbatches 3 --microbatch-size "  \
    "1 "                                                                                           \
    "--seq-len 16 --stack @DIR@/slow.yaml "
    rp_model tiny;
    cr_assert(eq(int, rp_model_load("tiny", rp_test_tool_arena(), &tiny), RP_OK));
    double none = iteration_ms(RUN "--recompute none");
    cr_expect(epsilon_eq(dbl, none, 3 * (8.0 * tiny.layers + 4), 0.01 * none), "%g ms", none);
    double again = iteration_ms(RUN "--recompute wait");
    cr_expect(epsilon_eq(dbl, again - none, 3 * 3.0 * tiny.layers, 0.2), "%g ms", again);
    double fast = iteration_ms(RUN "--recompute none --set platform.host_speed=2");
    cr_expect(epsilon_eq(dbl, fast, none / 2, 0.01 * none), "%g ms", fast);
}

/* RoundPipe's library clones modules in one process, which takes the host's time; others do not. */
Test(stack, only_the_library_clones_modules)
{
#define ROUNDPIPE                                                                                  \
    "--schedule roundpipe --model qwen3-0.6b --gpus 4 --microbatch-size 1 --seq-len 128 --stack "
    const char *slow = " --set platform.dispatch_us_per_module=5000";
    char with[2][256];
    static const char *const names[] = {"roundpipe", "torch"};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(with[i], sizeof with[i], ROUNDPIPE "%s", names[i]);
        double before = iteration_ms(with[i]);
        strcat(with[i], slow);
        double after = iteration_ms(with[i]);
        cr_expect(i == 0 ? after > 2 * before : after == before, "%s: %g, %g", names[i], before,
                  after);
    }
}

/* A change of a stack's numbers is a changed file: here a host of twice the speed. */
Test(stack, set_changes_a_stack)
{
    write_stack(LAUNCHED);
    double half = iteration_ms(RUN "--recompute none --set platform.host_speed=2");
    double set = iteration_ms(RUN "--recompute none --set stack.host_us_per_launch*0.5 "
                                  "--set stack.host_us_per_microbatch=2000");
    cr_expect(eq(dbl, set, half));
    json_t *rows = rp_test_rpsim_rows(
        "--iterations 1 --intervals off --format json",
        RUN "--set stack.host_us_per_launch*0.5,platform.host_speed=3,stack.norm_fwd_bytes=4");
    const json_t *row = json_array_get(rows, 0);
    cr_expect(eq(str, (char *)rp_test_json_text(row, "stack"),
                 (char *)"slow with host_us_per_launch*0.5 norm_fwd_bytes=4"));
    cr_expect(
        eq(str, (char *)rp_test_json_text(row, "platform"), (char *)"h100x8 with host_speed=3"));
    json_decref(rows);
}

/* Counts of Liger's kernels in DeepSpeed (docs/examples.md): of 34 bytes per value of a norm 4
 * remain, of 52 per logit 6. */
Test(stack, fused_kernels_are_faster)
{
#define EAGER                                                                                      \
    "--schedule zero3 --model llama3.1-8b --platform h100x8 --dtype bf16 --stack deepspeed "
    double eager = iteration_ms(EAGER);
    double fused = iteration_ms(EAGER LIGER);
    cr_expect(fused < 0.97 * eager && fused > 0.5 * eager, "%g and %g ms", eager, fused);
}

/* The option is short for a change of the platform, shown in its name. */
Test(stack, power_limit_of_a_run)
{
#define POWERED                                                                                    \
    "--schedule fsdp --model llama3.1-8b --platform h100x8 --dtype bf16 --stack torch-compile "
    double plain = iteration_ms(POWERED);
    cr_expect(eq(dbl, iteration_ms(POWERED "--power-limit 700"), plain)); /* the card's own */
    cr_expect(iteration_ms(POWERED "--power-limit 500") > 1.1 * plain);
    static const char *const all = "--iterations 1 --intervals off --format csv";
    rp_test_outcome option = rp_test_rpsim_after(all, POWERED "--power-limit 450");
    rp_test_outcome change = rp_test_rpsim_after(all, POWERED "--set platform.power_limit_w=450");
    cr_expect(eq(str, (char *)option.output, (char *)change.output));
    cr_expect(strstr(option.output, "h100x8 with power_limit_w=450") != NULL, "%s", option.output);
}

/* The shipped stacks are known by name, and the result says which one it is of. */
Test(stack, shipped_stacks_run)
{
    static const char *const names[] = {"roundpipe",   "torch",    "torch-compile", "deepspeed",
                                        "megatron",    "nanotron", "llmq",          "rpexec",
                                        "llm-foundry", "ideal"};
    double ms[sizeof names / sizeof names[0]];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[256];
        (void)snprintf(line, sizeof line,
                       "--schedule 1f1b --model qwen3-0.6b --platform h100x8 --gpus 2 "
                       "--recompute none --dtype bf16 --stack %s",
                       names[i]);
        json_t *rows = rp_test_rpsim_rows("--iterations 1 --intervals off --format json", line);
        const json_t *row = json_array_get(rows, 0);
        cr_expect(eq(str, (char *)rp_test_json_text(row, "stack"), (char *)names[i]));
        ms[i] = rp_test_json_number(row, "iteration_ms");
        json_decref(rows);
    }
    for (size_t i = 0; i + 1 < sizeof names / sizeof names[0]; i++) {
        cr_expect(gt(dbl, ms[i], ms[sizeof names / sizeof names[0] - 1]), "%s", names[i]);
    }
}

/* Without --stack a model that nobody has measured takes the times of ZeRO's and FSDP's software,
 * from a program file, too, and moves what the schedule says; not in pipelines, and not where the
 * model's file has its software or a table gives the times, be it moved. */
Test(stack, schedules_have_software_of_their_own)
{
    static const struct {
        const char *line;
        const char *stack; /* NULL: none */
    } cases[] = {
        {"--schedule zero3 --model tiny --platform h100x8 --gpus 2", "deepspeed"},
        {"--schedule zero2 --model tiny --platform rtx4090x8 --gpus 2", "deepspeed"},
        {"--schedule fsdp-offload --model tiny --platform h100x8 --gpus 2", "torch"},
        {"--schedule 1f1b --model tiny --platform h100x8 --gpus 2", NULL},
        {"--schedule fsdp --model mpt-125m --platform a100-80x8", NULL},
        {"--schedule zero3 --model qwen3-1.7b --platform rtx4090x8", NULL},
        {"--schedule zero3 --model qwen3-1.7b --platform h100x8", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        json_t *rows = rp_test_rpsim_rows("--iterations 1 --intervals off --format json "
                                          "--program-out @DIR@/p.txt",
                                          cases[i].line);
        const json_t *row = json_array_get(rows, 0);
        double ms = rp_test_json_number(row, "iteration_ms");
        const char *stack = json_string_value(json_object_get(row, "stack"));
        cr_expect(eq(int, stack != NULL, cases[i].stack != NULL), "%s", cases[i].line);
        if (stack != NULL && cases[i].stack != NULL) {
            cr_expect(eq(str, (char *)stack, (char *)cases[i].stack));
            (void)snprintf(line, sizeof line, "%s --stack %s", cases[i].line, cases[i].stack);
            cr_expect(eq(dbl, iteration_ms(line), ms), "%s", line);
            const char *model = strstr(cases[i].line, "--model");
            const char *gpus = strstr(model, " --gpus");
            (void)snprintf(line, sizeof line, "%.*s --intervals off --format json",
                           (int)(gpus - model), model);
            json_t *again = rp_test_rpsim_rows("--program-in @DIR@/p.txt", line);
            const json_t *program = json_array_get(again, 0);
            cr_expect(eq(str, (char *)rp_test_json_text(program, "stack"), (char *)stack));
            cr_expect(eq(dbl, rp_test_json_number(program, "makespan_ms"),
                         rp_test_json_number(row, "makespan_ms")));
            json_decref(again);
        }
        json_decref(rows);
    }
}

/* rpadvise searches with it, and its command lines say it. */
Test(stack, advice)
{
    rp_test_outcome advice = rp_test_tool_run(
        RPADVISE_PATH, "rpadvise",
        "--model qwen3-0.6b --platform h100x8 --gpus 2 --budget 30 --stack ideal --format json");
    cr_assert(eq(int, advice.status, 0), "%s", advice.messages);
    json_t *rows = json_loads(advice.output, 0, NULL);
    const json_t *best = json_array_get(rows, 0);
    cr_expect(eq(str, (char *)rp_test_json_text(best, "stack"), (char *)"ideal"));
    const char *command = rp_test_json_text(best, "command");
    cr_expect(strstr(command, "--stack ideal") != NULL, "%s", command);
    json_decref(rows);
}

Test(stack, refusals)
{
    rp_test_outcome unknown =
        rp_test_tool_run(RPSIM_PATH, "rpsim", "--schedule 1f1b --stack nanotrom");
    cr_expect(eq(int, unknown.status, 2));
    cr_expect(strstr(unknown.messages, "nanotron") != NULL, "%s", unknown.messages);
    rp_test_outcome stage =
        rp_test_tool_run(RPSIM_PATH, "rpsim", "--schedule 1f1b --fidelity stage --stack torch");
    cr_expect(eq(int, stage.status, 2));
    write_stack(LAUNCHED "attention_fwd_share: 2\n");
    rp_test_outcome share =
        rp_test_tool_run(RPSIM_PATH, "rpsim", "--schedule 1f1b --stack @DIR@/slow.yaml");
    cr_expect(eq(int, share.status, 2));
    cr_expect(strstr(share.messages, "slow.yaml:29: 'attention_fwd_share' is '2'") != NULL, "%s",
              share.messages);
}
