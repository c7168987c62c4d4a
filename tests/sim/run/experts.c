/* Copies that share experts: bytes of tokens and gradients, memory, refusals. */
#include "common/inputs/load/models.h"
#include "common/inputs/sizes.h"
#include "common/roofline/roofline.h"
#include "tests/support/assertions.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(experts, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* traces/models/tiny-moe.yaml */
#define LAYERS 8.0
#define HIDDEN 64.0
#define EXPERTS 8.0
#define ACTIVE 2.0
#define OF_EXPERT (3 * HIDDEN * 32)
#define TABLE (256 * HIDDEN)

typedef struct expert_case {
    uint32_t experts;
    uint32_t data;
    uint32_t zero;
    uint32_t tensor;
    uint32_t sharing; /* GPUs that share each expert */
} expert_case;

static double share(const expert_case *c, uint32_t stage, double copies)
{
    return c->zero >= stage ? copies : 1;
}

static void expect_bytes(const rpsim_row *row, const expert_case *c)
{
    const char *name = row->schedule_name;
    rp_test_run run = rp_test_run_row(row);
    const rp_program *p = run.program;
    cr_assert(eq(int, rp_program_check(p), RP_OK), "%s", name);
    double shares = c->experts;
    double tensor = c->tensor;
    double sharing = c->sharing;
    double replicas = c->data * tensor / sharing / shares;
    double data = c->data;
    double microbatches = p->microbatch_count;
    /* Lepikhin et al., GShard (2020), section 3.2: each token goes to k experts, (E - 1) / E of
     * them elsewhere, and comes back; gradients and a recompute repeat this. */
    double tokens = (double)row->run.global_batch * row->run.decided.seq_len;
    double ways = p->recompute == RP_RECOMPUTE_NONE ? 4 : 6;
    double moved = ways * LAYERS * 2 * tokens * HIDDEN * ACTIVE * (shares - 1) / shares;
    cr_expect(eq(dbl, rp_test_queue_bytes(p, RP_QUEUE_EXPERT), moved / tensor), "%s", name);
    /* A gather and a scatter around attention (Korthikanti et al., 2022), half of that after the
     * embedding and before the head. GPUs that share an expert gather and scatter around it all k
     * copies of each token (Megatron Core's MoEAlltoAllTokenDispatcher). */
    double passes = ways * LAYERS + 4 + (sharing > 1 ? ways * LAYERS * ACTIVE : 0);
    cr_expect(eq(dbl, rp_test_queue_bytes(p, RP_QUEUE_TENSOR),
                 passes * 2 * tokens * HIDDEN * (tensor - 1) / tensor),
              "%s", name);
    /* Attention, router and norms; experts; weights outside of blocks. */
    double dense = LAYERS * ((2 * HIDDEN * HIDDEN + 2 * HIDDEN * 32) / tensor + EXPERTS * HIDDEN +
                             2 * HIDDEN + 2 * 16) +
                   2 * TABLE / tensor + HIDDEN;
    double own = LAYERS * EXPERTS / shares * OF_EXPERT / sharing;
    double once = dense - (rp_test_ends_meet(p) ? TABLE / tensor : 0);
    double slack = 8.0 * c->data * p->gpu_count;
    cr_expect(epsilon_eq(dbl, rp_test_lasting_bytes(p, RP_BUFFER_WEIGHT),
                         2 * once / share(c, 3, data) + 2 * own / share(c, 3, replicas), slack),
              "%s", name);
    cr_expect(epsilon_eq(dbl, rp_test_lasting_bytes(p, RP_BUFFER_GRADIENT),
                         2 * once / share(c, 2, data) + 2 * own / share(c, 2, replicas), slack),
              "%s", name);
    cr_expect(epsilon_eq(dbl, rp_test_lasting_bytes(p, RP_BUFFER_OPTIMIZER),
                         12 * once / share(c, 1, data) + 12 * own / share(c, 1, replicas), slack),
              "%s", name);
    /* Experts are summed over copies that have the same experts. */
    double reduced = c->zero >= 2 ? microbatches : 1;
    double gathered = c->zero == 3 ? 2 * microbatches : 1;
    double rounded = 4 * microbatches * (p->forward_count + p->backward_count) * (LAYERS + 2);
    moved = 2 * dense * reduced + 2 * (c->zero == 3 || c->zero == 0 ? dense : once) * gathered;
    cr_expect(
        epsilon_eq(dbl, rp_test_queue_bytes(p, RP_QUEUE_DATA), moved * (data - 1) / data, rounded),
        "%s", name);
    cr_expect(epsilon_eq(dbl, rp_test_queue_bytes(p, RP_QUEUE_REPLICA),
                         2 * own * (reduced + gathered) * (replicas - 1) / replicas, rounded),
              "%s", name);
    rp_test_run_fini(&run);
}

Test(experts, bytes_in_memory_and_on_links)
{
    bool all = getenv("RP_LONG") != NULL;
    uint32_t number = 0;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        bool resident = rp_schedules[i]->traits.placement == RP_PLACEMENT_RESIDENT;
        bool endless = rp_schedules[i]->traits.versions != RP_VERSIONS_ONE;
        for (uint32_t k = 0; resident && !endless && k < 72; k++) {
            /* Without tensor groups; with groups that share each expert; with whole experts. */
            uint32_t sharing = k / 24 == 1 ? 2 : 1;
            uint32_t most = 4u << (k % 3 == 2 || k / 3 % 2 == 1);
            const expert_case c = {.experts = 2u << k % 3,
                                   .data = k < 48 ? most : most / 2,
                                   .zero = k / 6 % 4,
                                   .tensor = k < 24 ? 1 : 2,
                                   .sharing = sharing};
            rpsim_study study;
            char line[400];
            char tensor[100] = "";
            number++;
            if (!all && number % 19 != 0) {
                continue;
            }
            (void)snprintf(tensor, sizeof tensor,
                           "--tensor-parallel 2 --sequence-parallel --expert-tensor-parallel %u",
                           c.sharing);
            (void)snprintf(line, sizeof line,
                           "--schedule %s --model tiny-moe --platform a100-80x8 --nodes %u "
                           "--data-parallel %u --expert-parallel %u --zero %u --microbatches 16 "
                           "--microbatch-size 2 --seq-len 512 --iterations 1 %s",
                           rp_schedules[i]->name, 2 * c.tensor, c.data, c.experts, c.zero,
                           c.tensor > 1 ? tensor : "");
            rp_test_study(line, &study);
            expect_bytes(&study.rows[0], &c);
            rpsim_study_fini(&study);
        }
    }
}

/* Two microbatches on a single stage, without recompute: an all-to-all of two layers' tokens, each
 * way, after each forward and backward. On a server each GPU sends 230 GB/s after 8.4 us and a step
 * of 3.4 us (traces/platforms/a100-80x8.yaml). */
Test(experts, tokens_take_their_time)
{
    const char *line = "--schedule 1f1b --model tiny-moe --platform a100-80x8 --gpus 4 "
                       "--data-parallel 4 --microbatches 2 --microbatch-size 8 --seq-len 2048 "
                       "--recompute none --iterations 1";
    char shared[320];
    (void)snprintf(shared, sizeof shared, "%s --expert-parallel 4", line);
    rp_test_run run = rp_test_run_line(shared);
    const rp_program *p = run.program;
    double bytes = 2 * LAYERS * 2 * 8 * 2048 * HIDDEN * ACTIVE * 3 / 4;
    double expected_ps = 1e12 * bytes / 230e9 + 2 * LAYERS * 1e6 * (8.4 + 3.4);
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (p->ops[i].kind == RP_OP_ALL_TO_ALL) {
            double ps = (double)(run.timeline->end_ps[i] - run.timeline->start_ps[i]);
            cr_expect(epsilon_eq(dbl, ps, expected_ps, 4));
            count++;
        }
    }
    cr_expect(eq(u32, count, 4));
    rp_test_run_fini(&run);
    cr_expect(eq(dbl, rp_test_row_number(shared, "expert_parallel"), 4));
}

/* Whole experts are replicated within a tensor group, which sums their gradients even with a single
 * copy: an all-reduce over 2 of 4 GPUs, 2 bytes per parameter. */
Test(experts, one_copy_has_replicas_of_whole_experts)
{
    const char *line = "--schedule 1f1b --model tiny-moe --platform a100-80x8 --gpus 8 "
                       "--tensor-parallel 4 --expert-parallel 2 --sequence-parallel "
                       "--expert-tensor-parallel 1 --microbatches 2 --seq-len 512 --iterations 1";
    rp_test_run run = rp_test_run_line(line);
    double own = LAYERS * EXPERTS / 2 * OF_EXPERT;
    cr_expect(eq(dbl, rp_test_queue_bytes(run.program, RP_QUEUE_REPLICA), 2 * own * 2 * 1 / 2));
    cr_expect(eq(dbl, rp_test_queue_bytes(run.program, RP_QUEUE_DATA), 0));
    cr_expect(eq(int, rp_program_check(run.program), RP_OK));
    rp_test_run_fini(&run);
}

/* Ranks of Megatron Core 0.19.2, RankGenerator in the order tp-cp-ep-dp-pp, with expert tensor
 * parallelism 2 and 1: the first groups that share experts, and that have the same experts. */
Test(experts, groups_are_those_of_megatron)
{
    static const struct {
        rp_layout layout;
        uint32_t expert[2]; /* first two ranks */
        uint32_t replica[2];
    } cases[] = {
        {{.tensor_parallel = 2, .data_parallel = 4, .expert_parallel = 2}, {0, 2}, {0, 4}},
        {{.tensor_parallel = 2,
          .data_parallel = 4,
          .expert_parallel = 4,
          .expert_tensor_parallel = 1},
         {0, 1},
         {0, 4}},
        {{.tensor_parallel = 4,
          .data_parallel = 4,
          .expert_parallel = 2,
          .expert_tensor_parallel = 1},
         {0, 1},
         {0, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const rp_layout *layout = &cases[i].layout;
        const rp_strides strides = rp_layout_strides(layout, 2);
        cr_expect(eq(u32, strides.expert, cases[i].expert[1]));
        cr_expect(eq(u32, strides.expert * rp_layout_expert(layout), cases[i].replica[1]));
    }
}

/* A stage's forward: gathers and scatters over NVLink, then the tokens' ways, without overlap. 230
 * GB/s after 8.4 us and 3.4 us a step (traces/platforms/a100-80x8.yaml). */
Test(experts, groups_take_turns)
{
    const char *line = "--schedule 1f1b --model tiny-moe --platform a100-80x8 --gpus 4 "
                       "--data-parallel 2 --tensor-parallel 2 --sequence-parallel "
                       "--expert-parallel 2 --microbatches 2 --microbatch-size 8 --seq-len 2048 "
                       "--recompute none --iterations 1";
    rp_test_run run = rp_test_run_line(line);
    const rp_program *p = run.program;
    const rp_timeline *t = run.timeline;
    double boundary = 2.0 * 8 * 2048 * HIDDEN;
    uint32_t seen = 0;
    int64_t before_ps = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        bool forward = p->ops[i].microbatch == 0 && before_ps >= 0;
        double ps = (double)(t->end_ps[i] - t->start_ps[i]);
        if (p->ops[i].kind == RP_OP_FORWARD && p->ops[i].microbatch == 0) {
            before_ps = t->end_ps[i];
        } else if (forward && seen < 2 &&
                   p->queues[rp_program_queue_of(p, i)].kind ==
                       RP_QUEUE_TENSOR) { /* and another beside a block */
            double calls = 2 * LAYERS + 1;
            double bytes = (LAYERS + 1 + LAYERS * ACTIVE) * boundary / 2;
            cr_expect(epsilon_eq(dbl, ps, 1e12 * bytes / 230e9 + calls * 1e6 * (8.4 + 3.4), 4));
            cr_expect(eq(i64, t->start_ps[i], before_ps));
            before_ps = t->end_ps[i];
            seen++;
        } else if (forward && seen == 2 && p->ops[i].kind == RP_OP_ALL_TO_ALL) {
            double bytes = 2 * LAYERS * ACTIVE * boundary / 2 / 2;
            cr_expect(
                epsilon_eq(dbl, ps, 1e12 * bytes / 230e9 + 2 * LAYERS * 1e6 * (8.4 + 3.4), 4));
            cr_expect(eq(i64, t->start_ps[i], before_ps));
            seen++;
        }
    }
    cr_expect(eq(u32, seen, 3));
    rp_test_run_fini(&run);
}

/* Shared experts are an MLP for every token, with a gather and a scatter around it as without
 * experts. Qwen1.5-MoE-A2.7B's shapes: 24 layers, hidden 2048, 4 experts per token. */
Test(experts, shared_experts_keep_the_sums_of_an_mlp)
{
    const char *line = "--schedule 1f1b --model " RP_TEST_ROOT
                       "/golden/hf/qwen2-moe-defaults.json --platform a100-80x8 "
                       "--data-parallel 2 --tensor-parallel 2 --sequence-parallel "
                       "--expert-parallel 2 --microbatches 2 --microbatch-size 1 --seq-len 512 "
                       "--recompute none --iterations 1";
    rp_test_run run = rp_test_run_line(line);
    double boundary = 2.0 * 2 * 512 * 2048;      /* of both microbatches */
    double passes = 4 * 24 * 2 + 4 + 4 * 24 * 4; /* attention and shared experts; ends; ways */
    cr_expect(eq(dbl, rp_test_queue_bytes(run.program, RP_QUEUE_TENSOR), passes * boundary / 2));
    rp_test_run_fini(&run);
}

/* Whole experts for a T-th of the tokens, or a T-th of the experts for all: 2 t k 3 h f / T
 * products. GPUs that share experts keep all tokens' inputs, 2 t k h bytes, others a T-th. */
Test(experts, both_ways_have_the_same_products)
{
    rp_model model;
    rp_arena *arena = rp_test_tool_arena();
    uint64_t kept[2];
    cr_assert(eq(int, rp_model_load("tiny-moe", arena, &model), RP_OK));
    for (uint32_t sharing = 1; sharing <= 2; sharing++) {
        const rp_layout layout = {.tensor_parallel = 2,
                                  .data_parallel = 2,
                                  .sequence_parallel = true,
                                  .expert_parallel = 2,
                                  .expert_tensor_parallel = sharing};
        rp_model rank;
        rp_sizes sizes;
        rp_operator operators[RP_MAX_OPERATORS];
        double flops = 0;
        cr_assert(eq(int, rp_model_cut(&model, &layout, arena, &rank, NULL), RP_OK));
        uint32_t count = rp_layer_operators(&rank, 0, 2, 1024, operators);
        for (uint32_t i = 0; i < count; i++) {
            const char *name = operators[i].name;
            bool of_expert =
                strcmp(name, "gate") == 0 || strcmp(name, "up") == 0 || strcmp(name, "down") == 0;
            flops += of_expert ? operators[i].work[RP_PASS_FORWARD].flops : 0;
        }
        cr_expect(epsilon_eq(dbl, flops, 2 * 2048 * ACTIVE * OF_EXPERT / 2, 1));
        cr_assert(eq(int, rp_sizes_of_model(&rank, 1024, RP_DTYPE_F16, arena, &sizes), RP_OK));
        cr_expect(eq(dbl, (double)sizes.dispatch_bytes[1], 2 * 1024 * HIDDEN * ACTIVE / 2));
        kept[sharing - 1] = sizes.tape_bytes[1];
    }
    cr_expect(eq(dbl, (double)(kept[1] - kept[0]), 2 * 1024 * HIDDEN * ACTIVE * (1 - 0.5)));
}

Test(experts, what_cannot_be_shared_is_refused)
{
    static const struct {
        const char *line;
        const char *message;
    } cases[] = {
        {"--model qwen3-1.7b --data-parallel 2 --expert-parallel 2", "has no experts"},
        {"--model tiny-moe --data-parallel 2 --expert-parallel 4", "divisors of --data-parallel"},
        {"--model tiny-moe --expert-parallel 2", "divisors of --data-parallel"},
        {"--model tiny-moe --data-parallel 2 --tensor-parallel 2 --expert-parallel 2",
         "valid with --sequence-parallel"},
        {"--model tiny-moe --data-parallel 2 --tensor-parallel 2 --expert-parallel 4 "
         "--sequence-parallel",
         "divisors of --data-parallel"},
        {"--model tiny-moe --data-parallel 2 --tensor-parallel 2 --expert-parallel 8 "
         "--sequence-parallel --expert-tensor-parallel 1",
         "2 copies of 2 GPUs per layer are no whole groups of 8"},
        {"--model tiny-moe --data-parallel 2 --tensor-parallel 4 --expert-parallel 2 "
         "--sequence-parallel --expert-tensor-parallel 2",
         "valid are all of them (4), and 1"},
        {"--model tiny-moe --platform a100-80x8 --data-parallel 2 --tensor-parallel 2 "
         "--expert-parallel 2 --sequence-parallel --expert-tensor-parallel 1 --axes tpd",
         "valid are tdp, dtp, ptd and pdt"},
        {"--model tiny-moe --tensor-parallel 2 --expert-tensor-parallel 1",
         "valid with --expert-parallel 2 and more"},
        {"--model tiny-moe --platform a100-80x8 --nodes 2 --data-parallel 16 --expert-parallel 16",
         "valid are divisors of 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_test_outcome outcome = rp_test_rpsim_after("--schedule 1f1b ", cases[i].line);
        cr_expect(eq(int, outcome.status, 2), "%s", cases[i].line);
        cr_expect(ne(ptr, strstr(outcome.messages, cases[i].message), NULL), "%s: %s",
                  cases[i].line, outcome.messages);
    }
}
