/* Mixtures of experts and adapters in whole runs: every schedule and number of GPUs trains as plain
 * loops do, whatever recomputes and splits its backwards; with LoRA only the adapters change, and
 * only their gradients are moved. */
#include "exec/host/lane.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define SEQ_LEN 6u

TestSuite(exec_adapters, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

static rp_model mixture(uint32_t experts, uint32_t active, uint32_t rank)
{
    rp_model m = rp_test_decoder(7, true, true);
    m.intermediate = 16;
    m.experts = experts;
    m.active_experts = active;
    rp_model_set_lora_rank(&m, rank);
    m.lora_alpha = 3 * rank;
    return m;
}

/* The run must be the same bits as plain loops, which recompute nothing and split nothing. */
static void compare(const rp_model *config, const rp_compile_config *work, rp_dtype dtype)
{
    rp_test_run run;
    rp_test_run plain;
    const rp_test_twist twist = {.dtype = dtype};
    rp_compile_config same = *work;
    same.asynchronous &= work->schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, &twist, &run), RP_OK));
    cr_assert(
        eq(int, rp_test_single_from(rp_test_arena, config, SEQ_LEN, &same, &twist, &plain), RP_OK));
    cr_expect(rp_test_same(&run, &plain, 3), "%s on %u GPUs, %u experts, rank %u, %s",
              work->schedule->name, work->gpus, config->experts, config->lora_rank,
              rp_dtype_text(dtype));
    cr_expect(isfinite(run.losses[2]), "%f", run.losses[2]);
    rp_test_arena_again();
}

static const char *const schedules[] = {"roundpipe", "1f1b", "zbv", "roundpipe-overlap"};

/* Five experts, two of each token; and all of three. */
Test(exec_adapters, mixtures_train_alike_everywhere)
{
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        for (uint32_t gpus = 1; gpus <= 3; gpus++) {
            rp_model config = gpus == 2 ? mixture(3, 3, 0) : mixture(5, 2, 0);
            rp_compile_config work = rp_test_work(schedules[i], gpus, 2 * gpus, 3);
            work.asynchronous = gpus == 3;
            work.calls = i == 0 || i == 3 ? gpus : 1;
            compare(&config, &work, RP_DTYPE_F32);
        }
    }
}

Test(exec_adapters, adapters_train_alike_everywhere)
{
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        for (uint32_t gpus = 1; gpus <= 3; gpus++) {
            rp_model config = gpus == 2 ? mixture(1, 1, 4) : mixture(5, 2, 3);
            rp_compile_config work = rp_test_work(schedules[i], gpus, 2 * gpus, 3);
            work.asynchronous = gpus == 3;
            work.calls = i == 0 || i == 3 ? gpus : 1;
            work.layer_grain = gpus == 2 && i == 0;
            compare(&config, &work, RP_DTYPE_F32);
        }
    }
}

/* Tables of their own: two GPUs add up a tied one's gradients in the storage type. */
Test(exec_adapters, sixteen_bits_train_alike_everywhere)
{
    static const rp_dtype dtypes[] = {RP_DTYPE_BF16, RP_DTYPE_F16};
    for (uint32_t number = 0; number < 8; number++) {
        rp_model config = mixture(5, 2, number / 4 * 3);
        rp_compile_config work = rp_test_work(number % 2 == 0 ? "roundpipe" : "zbv", 2, 4, 3);
        work.asynchronous = number % 2 == 0;
        config.tied_head = false;
        compare(&config, &work, dtypes[number / 2 % 2]);
    }
}

/* Frozen weights of layer `layer` in a run. */
static const float *frozen_of(const rp_test_run *run, uint32_t layer)
{
    return (const float *)rpexec_state_working(&run->state, layer);
}

/* B is zero at first: the model with adapters begins as the one without. After training the frozen
 * weights are what they were, and the adapters are not. */
Test(exec_adapters, frozen_weights_stay_what_they_are)
{
    static const char *const names[] = {"roundpipe", "1f1b"};
    for (size_t i = 0; i < 2; i++) {
        rp_test_run with;
        rp_test_run without;
        rpexec_state fresh;
        rp_model adapted = mixture(5, 2, 3);
        rp_model whole = mixture(5, 2, 0);
        rp_compile_config work = rp_test_work(names[i], 2, 4, 3);
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &adapted, SEQ_LEN, &work, NULL, &with), RP_OK));
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &whole, SEQ_LEN, &work, NULL, &without), RP_OK));
        cr_expect(eq(dbl, with.losses[0], without.losses[0]));
        cr_expect(with.losses[1] != without.losses[1]);
        cr_assert(eq(int, rpexec_state_create(&with.model, rp_test_arena, &fresh), RP_OK));
        cr_assert(eq(int, rpexec_state_initialise(&fresh, 1, true), RP_OK));
        for (uint32_t layer = 0; layer < with.model.layer_count; layer++) {
            uint64_t frozen = rpexec_model_layer(&with.model, layer)->frozen;
            uint64_t trained = fresh.trained[layer + 1] - fresh.trained[layer];
            const float *masters = fresh.master + fresh.trained[layer];
            cr_expect(eq(int,
                         memcmp(frozen_of(&with, layer), rpexec_state_working(&fresh, layer),
                                frozen * sizeof(float)),
                         0));
            cr_expect(trained == 0 || memcmp(with.state.master + fresh.trained[layer], masters,
                                             trained * sizeof(float)) != 0);
        }
    }
}

/* executor.md section 3, 24, with adapters: all weights go up, the gradients of the adapters alone
 * go down. Two forward stages of a layer each, a fused one of five and the head, two backwards. */
Test(exec_adapters, only_gradients_of_adapters_are_moved)
{
    enum { M = 4, STEPS = 3, RANK = 3, E = 5 };
    uint32_t forward[] = {1, 1};
    uint32_t backward[] = {5, 1, 1};
    const rp_partition partition = {2, forward, 3, backward};
    rp_model config = mixture(E, 2, RANK);
    config.tied_head = false;
    rp_compile_config work = rp_test_work("roundpipe", 2, 4, 3);
    rp_test_run run;
    work.partition = &partition;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run), RP_OK));
    uint64_t block = run.model.block.floats * sizeof(float);
    uint64_t embedding = run.model.embedding.floats * sizeof(float);
    uint64_t head = run.model.head.floats * sizeof(float);
    uint64_t boundary = (uint64_t)SEQ_LEN * config.hidden * sizeof(float);
    uint64_t ids = SEQ_LEN * sizeof(int32_t);
    /* Per block: q and o (32 and 32 wide), k and v (32 and 16), 3 E of 32 and 16; each A and B of
     * them rounded up to 16 values, which 32 x 3 and 16 x 3 are. */
    uint64_t adapters = RANK * (2 * (32 + 32) + 2 * (32 + 16) + 3 * E * (32 + 16)) * sizeof(float);
    uint64_t up = 2 * (embedding + 2 * block) + 5 * block + head + M * (3 * ids + 5 * boundary);
    uint64_t down = 7 * adapters + M * 4 * boundary;
    cr_expect(eq(u64, rpexec_layer_trained(&run.model.block) * sizeof(float), adapters));
    cr_expect(eq(u64, config.adapter_parameters * sizeof(float), adapters));
    cr_expect(eq(u64, run.uploaded_bytes, STEPS * up));
    cr_expect(eq(u64, run.downloaded_bytes, STEPS * down));
}
