/* Loss and gradients of small Qwen3, Llama and Qwen3-MoE models and of adapters against
 * transformers on PyTorch (tests/golden/decoders/make.py), read by the checkpoint reader. */
#include "exec/checkpoint/weights.h"
#include "exec/host/lane.h"
#include "exec/run/single.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"
#include "tests/support/worse.h"

#include <criterion/criterion.h>
#include <math.h>

/* fp32 against float64 rounded once: bound relative to a value, and to its tensor's root mean
 * square (executor.md section 3, 1). */
#define TOLERANCE 1e-5

TestSuite(exec_golden, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 60);

static float *values_of(const rpexec_safetensors *file, const char *name, uint64_t *count_out)
{
    float *values = NULL;
    const rpexec_stored *stored = rpexec_safetensors_find(file, name);
    cr_assert(stored != NULL, "%s", name);
    cr_assert(
        eq(int, rp_arena_alloc(rp_test_arena, stored->elements, sizeof(float), &values), RP_OK));
    cr_assert(eq(int, rpexec_safetensors_read(file, stored, values), RP_OK));
    *count_out = stored->elements;
    return values;
}

static rpexec_batch batch_of(const rpexec_safetensors *file)
{
    uint64_t count;
    rpexec_batch batch = {0};
    const float *ids = values_of(file, "ids", &count);
    const float *labels = values_of(file, "labels", &count);
    int32_t *whole[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        cr_assert(eq(int, rp_arena_alloc(rp_test_arena, count, sizeof(int32_t), &whole[i]), RP_OK));
    }
    for (uint64_t i = 0; i < count; i++) {
        whole[0][i] = (int32_t)ids[i];
        whole[1][i] = (int32_t)labels[i];
        batch.valid_tokens += labels[i] >= 0 ? 1 : 0;
    }
    batch.ids = whole[0];
    batch.labels = whole[1];
    return batch;
}

static void compare(const char *name, const float *got, const float *expected, uint64_t count)
{
    double squares = 0;
    double worst = 0;
    for (uint64_t i = 0; i < count; i++) {
        squares += (double)expected[i] * expected[i];
    }
    double rms = sqrt(squares / (double)count);
    for (uint64_t i = 0; i < count; i++) {
        double allowed = TOLERANCE * (rms + fabs((double)expected[i]));
        double error = fabs((double)got[i] - expected[i]) / allowed;
        worst = rp_test_worse(worst, error);
    }
    cr_expect(worst <= 1, "%s: %.2f times the tolerance", name, worst);
}

/* @param folder of the weights @param adapters folder of adapters on these weights, or NULL */
static void check(const char *folder, const char *adapters)
{
    const char *path = NULL;
    rp_model config;
    rpexec_model model;
    rpexec_state state;
    rpexec_safetensors expected;
    rpexec_lane lane;
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &path, "%s/config.json", folder), RP_OK));
    cr_assert(eq(int, rpexec_config_load(path, NULL, rp_test_arena, &config), RP_OK));
    if (adapters != NULL) { /* as in make.py */
        rp_model_set_lora_rank(&config, 3);
        config.lora_alpha = 6;
    }
    cr_assert(
        eq(int, rpexec_model_create(&config, 19, RP_DTYPE_F32, rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_state_create(&model, rp_test_arena, &state), RP_OK));
    cr_assert(eq(int, rpexec_weights_load(folder, &state), RP_OK));
    if (adapters != NULL) {
        cr_assert(eq(int, rpexec_adapters_load(adapters, &state), RP_OK));
    }
    cr_assert(eq(int,
                 rp_arena_print(rp_test_arena, &path, "%s/expected.safetensors",
                                adapters != NULL ? adapters : folder),
                 RP_OK));
    cr_assert(eq(int, rpexec_safetensors_open(path, rp_test_arena, &expected), RP_OK));
    cr_assert(eq(int, rpexec_host_lane_create(&model, 2 * 19, rp_test_arena, &lane), RP_OK));
    const rpexec_batch batch = batch_of(&expected);
    const uint32_t sequences = 2;
    double loss = 0;
    rpexec_single single = {.model = &model,
                            .state = &state,
                            .adam = rpexec_adam_defaults(),
                            .microbatches = 1,
                            .sequences = &sequences,
                            .iterations = 1,
                            .batches = &batch,
                            .operators = rpexec_host_operators[RP_DTYPE_F32],
                            .lane = &lane,
                            .losses = &loss};
    cr_assert(eq(int, rpexec_single_run(&single), RP_OK));
    uint64_t count;
    const float *right = values_of(&expected, "loss", &count);
    cr_expect(fabs(loss - (double)right[0]) <= 1e-6 * (double)right[0], "loss %.9f", loss);
    rpexec_writable *gradients = NULL;
    uint32_t tensors = 0;
    cr_assert(eq(
        int,
        rpexec_weights_list(&state, state.gradients, "grad.", rp_test_arena, &gradients, &tensors),
        RP_OK));
    for (uint32_t i = 0; i < tensors; i++) {
        const float *values = values_of(&expected, gradients[i].name, &count);
        compare(gradients[i].name, gradients[i].values, values, count);
    }
    /* Together with ids, labels and loss, these are all the tensors of the other framework. */
    cr_expect(eq(u32, expected.count, tensors + 3));
    rpexec_safetensors_close(&expected);
}

Test(exec_golden, qwen3_with_tied_head)
{
    check(RP_TEST_ROOT "/golden/decoders/qwen3", NULL);
}

Test(exec_golden, llama_with_scaled_rotation)
{
    check(RP_TEST_ROOT "/golden/decoders/llama", NULL);
}

/* Five experts, in four shards; a token goes to two of the experts. */
Test(exec_golden, qwen3_moe)
{
    check(RP_TEST_ROOT "/golden/decoders/qwen3-moe", NULL);
}

/* norm_topk_prob is false; three of four experts. */
Test(exec_golden, qwen3_moe_with_raw_routing)
{
    check(RP_TEST_ROOT "/golden/decoders/qwen3-moe-raw", NULL);
}

Test(exec_golden, adapters_of_qwen3_moe)
{
    check(RP_TEST_ROOT "/golden/decoders/qwen3-moe", RP_TEST_ROOT "/golden/decoders/lora");
}
