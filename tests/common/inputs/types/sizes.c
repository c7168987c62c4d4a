/* Bytes of whole models in other types, against published checkpoints and closed forms. */
#include "common/inputs/sizes.h"
#include "common/inputs/load/models.h"
#include "common/inputs/types/stored.h"
#include "common/lower/lower.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

TestSuite(type_sizes, .init = rp_test_log_begin, .fini = rp_test_log_end);

static rp_model load(const char *name, uint32_t lora_rank)
{
    rp_model model;
    cr_assert(eq(int, rp_model_load(name, rp_test_arena, &model), RP_OK));
    rp_model_set_lora_rank(&model, lora_rank);
    return model;
}

static rp_sizes size(const rp_model *model, rp_types types)
{
    rp_sizes sizes;
    cr_assert(eq(int, rp_sizes_of_types(model, 1024, RP_DTYPE_BF16, &types, rp_test_arena, &sizes),
                 RP_OK));
    return sizes;
}

static uint64_t sum(const rp_sizes *sizes, const uint64_t *of)
{
    uint64_t total = 0;
    for (uint32_t i = sizes->tied_head ? 1 : 0; i < sizes->layers + 2; i++) {
        total += of[i];
    }
    return total;
}

/* Checkpoints of gpt-oss, whose experts are MXFP4: 12.8 GiB (gpt-oss model card, 2025, table 1). */
Test(type_sizes, experts_in_mxfp4_are_the_published_checkpoint)
{
    const rp_model model = load("gpt-oss-20b", 1);
    const rp_sizes sizes = size(&model, (rp_types){.frozen = RP_FROZEN_MXFP4});
    double gib =
        (double)(sum(&sizes, sizes.weight_bytes) - sum(&sizes, sizes.gradient_bytes)) / (1u << 30);
    cr_expect(epsilon_eq(dbl, gib, 12.8, 0.05), "%g GiB", gib);
}

/* Seven matrices of a layer in NF4; norms, table and head stay in 16 bits. */
Test(type_sizes, frozen_matrices_are_stored_one_by_one)
{
    const rp_model model = load("llama3.1-8b", 8);
    const rp_sizes plain = size(&model, (rp_types){0});
    const rp_sizes sizes = size(&model, (rp_types){.frozen = RP_FROZEN_NF4});
    const struct {
        uint64_t rows, columns, count;
    } shapes[] = {{4096, 4096, 2}, {1024, 4096, 2}, {14336, 4096, 2}, {4096, 14336, 1}};
    uint64_t saved = 0;
    uint64_t scales = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint64_t weights = shapes[i].rows * shapes[i].columns;
        uint64_t of_scales = weights / 64 + 4 * (weights / 64 / 256) + 1092;
        saved += shapes[i].count * (2 * weights - weights / 2 - of_scales);
        scales += shapes[i].count * of_scales;
    }
    cr_expect(eq(u64, plain.weight_bytes[1] - sizes.weight_bytes[1], saved));
    cr_expect(eq(u64, sizes.scale_bytes[1], scales));
    cr_expect(eq(u64, sizes.weight_bytes[0], plain.weight_bytes[0]));
    cr_expect(eq(u64, sizes.gradient_bytes[1], plain.gradient_bytes[1]));
    uint64_t largest = UINT64_C(14336) * 4096;
    cr_expect(eq(u64, sizes.dequantised_bytes, 2 * largest + 4 * (largest / 64)));
}

/* Adam's states of a model: transformers keeps those of embeddings in fp32. */
Test(type_sizes, states_and_masters)
{
    const rp_model model = load("llama3.1-8b", 0);
    uint64_t all = model.total_parameters;
    uint64_t table = model.embedding_parameters;
    const struct {
        rp_types types;
        uint64_t resident, pageable;
    } cases[] = {{{0}, 12 * all, 16 * all},
                 {{.states = RP_STATES_BF16, .master = RP_MASTER_BF16}, 6 * all, 8 * all},
                 {{.states = RP_STATES_BF16, .master = RP_MASTER_NONE}, 4 * all, 6 * all},
                 {{.states = RP_STATES_F32, .master = RP_MASTER_NONE}, 8 * all, 10 * all}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const rp_sizes sizes = size(&model, cases[i].types);
        cr_expect(eq(u64, sum(&sizes, sizes.optimizer_bytes), cases[i].resident), "%zu", i);
        cr_expect(eq(u64, rp_sizes_host_bytes(&sizes, 1) - 4 * all, cases[i].pageable), "%zu", i);
    }
    const rp_sizes sizes = size(&model, (rp_types){.states = RP_STATES_8BIT});
    uint64_t eight = 2 * (all - table) + 8 * ((all - table) / 256) + 8 * table;
    cr_expect(eq(u64, sum(&sizes, sizes.optimizer_bytes), 4 * all + eight));
    cr_expect(eq(u64, sum(&sizes, sizes.state_bytes), eight));
}

/* A pass of Adam reads and writes what is stored (executor.md 1.6; sim/model.md section 2). */
Test(type_sizes, step_moves_what_is_stored)
{
    const rp_types usual = {0};
    const rp_types half = {.states = RP_STATES_BF16, .master = RP_MASTER_NONE};
    const rp_step_bytes wide = rp_step_bytes_of(&usual, 8);
    const rp_step_bytes narrow = rp_step_bytes_of(&half, 4);
    cr_expect(eq(dbl, wide.update, RP_GPU_ADAM_BYTES));
    cr_expect(eq(dbl, wide.adam, RP_ADAM_BYTES));
    cr_expect(eq(dbl, wide.refresh, RP_REFRESH_BYTES));
    cr_expect(eq(dbl, wide.collect, RP_COLLECT_BYTES));
    cr_expect(eq(dbl, narrow.update, 2 + 8 + 4)); /* gradient; moments; weight */
    cr_expect(eq(dbl, narrow.adam, 4 + 8 + 4));
    cr_expect(eq(dbl, narrow.refresh, 0));
}
