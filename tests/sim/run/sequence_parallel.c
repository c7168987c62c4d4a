/* Sequence parallelism: memory and bytes by theory. */
#include "common/inputs/load/models.h"
#include "common/inputs/sizes.h"
#include "common/roofline/roofline.h"
#include "tests/support/assertions.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(sequence_parallel, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* Korthikanti et al. (2022), section 4: a layer keeps 34 s b h bytes, 10 of them whole in tensor
 * parallelism, and all divided with the sequence. Two of each are masks of dropout, which is absent
 * here; fused attention and norms keep statistics in their place. */
Test(sequence_parallel, it_divides_what_a_layer_keeps)
{
    rp_model model;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_model_load("gpt:512x8x4", arena, &model), RP_OK));
    for (uint32_t ranks = 2; ranks <= 8; ranks *= 2) {
        uint64_t kept[2];
        for (int shares = 0; shares < 2; shares++) {
            const rp_layout layout = {.tensor_parallel = ranks, .sequence_parallel = shares != 0};
            rp_model rank;
            rp_sizes sizes;
            cr_assert(eq(int, rp_model_cut(&model, &layout, arena, &rank, NULL), RP_OK));
            cr_assert(eq(int, rp_sizes_of_model(&rank, 1024, RP_DTYPE_F16, arena, &sizes), RP_OK));
            kept[shares] = sizes.tape_bytes[1];
            cr_expect(eq(u64, sizes.boundary_bytes, 2 * 1024 * 512 / (shares != 0 ? ranks : 1)));
        }
        uint64_t heads = 1024 * 4 * 8 / ranks;
        cr_expect(eq(u64, kept[0], 1024 * (512 * (8 + 24 / ranks) + 16) + heads));
        cr_expect(eq(u64, kept[1], 1024 * (512 * 32 + 16) / ranks + heads));
    }
}

/* Only norms and residuals run over a T-th of the tokens. */
Test(sequence_parallel, it_divides_norms_and_residuals)
{
    rp_model model;
    rp_model rank[2];
    rp_operator operators[2][RP_MAX_OPERATORS];
    uint32_t count = 0;
    uint32_t divided = 0;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_model_load("gpt:512x8x4", arena, &model), RP_OK));
    for (int shares = 0; shares < 2; shares++) {
        const rp_layout layout = {.tensor_parallel = 4, .sequence_parallel = shares != 0};
        cr_assert(eq(int, rp_model_cut(&model, &layout, arena, &rank[shares], NULL), RP_OK));
        count = rp_layer_operators(&rank[shares], 0, 2, 1024, operators[shares]);
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *name = operators[0][i].name;
        bool part = strcmp(name, "norms") == 0 || strcmp(name, "residuals") == 0;
        divided += part ? 1 : 0;
        for (int pass = 0; pass < RP_PASS_COUNT; pass++) {
            cr_expect(epsilon_eq(dbl, operators[1][i].work[pass].traffic * (part ? 4 : 1),
                                 operators[0][i].work[pass].traffic, 1e-3),
                      "%s", name);
        }
    }
    cr_expect(eq(u32, divided, 2));
}

/* Two collectives replace an all-reduce, with a latency each; a stage sends its part of the
 * boundary. With a single stage: only the former. */
Test(sequence_parallel, it_has_as_many_bytes)
{
    const char *line = "--schedule 1f1b --model gpt:512x8x4 --platform a100-80x8 --seq-len 1024 "
                       "--microbatch-size 2 --gpus 8 --tensor-parallel 4 --iterations 1 "
                       "--microbatches 4 --recompute none";
    char shared[320];
    (void)snprintf(shared, sizeof shared, "%s --sequence-parallel", line);
    rp_test_run runs[2] = {rp_test_run_line(line), rp_test_run_line(shared)};
    double sent[2] = {rp_test_queue_bytes(runs[0].program, RP_QUEUE_PEER),
                      rp_test_queue_bytes(runs[1].program, RP_QUEUE_PEER)};
    cr_expect(gt(dbl, sent[0], 0));
    cr_expect(eq(dbl, 4 * sent[1], sent[0]));
    for (uint32_t i = 0; i < runs[1].program->op_count; i++) {
        cr_expect(ne(int, runs[1].program->ops[i].kind, RP_OP_ALL_REDUCE));
    }
    cr_expect(eq(dbl, rp_test_queue_bytes(runs[0].program, RP_QUEUE_TENSOR),
                 rp_test_queue_bytes(runs[1].program, RP_QUEUE_TENSOR)));
    rp_test_run_fini(&runs[0]);
    rp_test_run_fini(&runs[1]);
    cr_expect(eq(dbl, rp_test_row_number(shared, "sequence_parallel"), 4));
}
