/* Mixtures of experts and adapters in whole runs. Every schedule and number of GPUs trains as plain
 * loops do, with any recomputation and any splitting of backwards; with LoRA only the adapters
 * change, and only their gradients are moved. */
#include "exec/host/lane.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
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

/* The run must have the same bits as plain loops, which recompute nothing and split nothing. */
static void compare(const rp_model *config, const rp_resolved *work, rp_dtype dtype)
{
    rp_test_run run;
    rp_test_run plain;
    const rp_test_twist twist = {.dtype = dtype};
    rp_resolved same = *work;
    same.decided.asynchronous &= work->schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
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

/* Five experts, of which each token uses two; then three experts, of which each token uses all. */
Test(exec_adapters, mixtures_train_alike_everywhere)
{
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        for (uint32_t gpus = 1; gpus <= 3; gpus++) {
            rp_model config = gpus == 2 ? mixture(3, 3, 0) : mixture(5, 2, 0);
            rp_resolved work = rp_test_work(schedules[i], gpus, 2 * gpus, 3);
            work.decided.asynchronous = gpus == 3;
            work.decided.accumulate = i == 0 || i == 3 ? gpus : 1;
            compare(&config, &work, RP_DTYPE_F32);
        }
    }
}

Test(exec_adapters, adapters_train_alike_everywhere)
{
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        for (uint32_t gpus = 1; gpus <= 3; gpus++) {
            rp_model config = gpus == 2 ? mixture(1, 1, 4) : mixture(5, 2, 3);
            rp_resolved work = rp_test_work(schedules[i], gpus, 2 * gpus, 3);
            work.decided.asynchronous = gpus == 3;
            work.decided.accumulate = i == 0 || i == 3 ? gpus : 1;
            work.decided.layer_grain = gpus == 2 && i == 0;
            compare(&config, &work, RP_DTYPE_F32);
        }
    }
}

/* Embedding and head have their own tables, because two GPUs add up the gradients of a tied table
 * in the storage type. */
Test(exec_adapters, sixteen_bits_train_alike_everywhere)
{
    static const rp_dtype dtypes[] = {RP_DTYPE_BF16, RP_DTYPE_F16};
    for (uint32_t number = 0; number < 8; number++) {
        rp_model config = mixture(5, 2, number / 4 * 3);
        rp_resolved work = rp_test_work(number % 2 == 0 ? "roundpipe" : "zbv", 2, 4, 3);
        work.decided.asynchronous = number % 2 == 0;
        config.tied_head = false;
        compare(&config, &work, dtypes[number / 2 % 2]);
    }
}

/* Frozen weights of layer `layer` in a run. */
static const float *frozen_of(const rp_test_run *run, uint32_t layer)
{
    return (const float *)rpexec_state_working(&run->state, layer);
}

/* B is zero at first, so the model with adapters begins with the same loss as the model without.
 * After training the frozen weights are the same as before, and the adapters are not. */
Test(exec_adapters, frozen_weights_stay_what_they_are)
{
    static const char *const names[] = {"roundpipe", "1f1b"};
    for (size_t i = 0; i < 2; i++) {
        rp_test_run with;
        rp_test_run without;
        rpexec_state fresh;
        rp_model adapted = mixture(5, 2, 3);
        rp_model whole = mixture(5, 2, 0);
        rp_resolved work = rp_test_work(names[i], 2, 4, 3);
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

/* executor.md section 3, 24, with adapters: all weights are uploaded, and only the gradients of the
 * adapters are downloaded. The stages are two forwards of a layer each, a fused stage of five
 * layers and the head, and two backwards. */
Test(exec_adapters, only_gradients_of_adapters_are_moved)
{
    enum { M = 4, STEPS = 3, RANK = 3, E = 5 };
    uint32_t forward[] = {1, 1};
    uint32_t backward[] = {5, 1, 1};
    const rp_partition partition = {2, forward, 3, backward};
    rp_model config = mixture(E, 2, RANK);
    config.tied_head = false;
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 3);
    rp_test_run run;
    work.partition = &partition;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run), RP_OK));
    uint64_t block = run.model.block.floats * sizeof(float);
    uint64_t embedding = run.model.embedding.floats * sizeof(float);
    uint64_t head = run.model.head.floats * sizeof(float);
    uint64_t boundary = (uint64_t)SEQ_LEN * config.hidden * sizeof(float);
    uint64_t ids = SEQ_LEN * sizeof(int32_t);
    /* Adapters per block: q and o (32 and 32 wide), k and v (32 and 16), and 3 E of 32 and 16. Each
     * A and B is rounded up to a multiple of 16 values; 32 x 3 and 16 x 3 are multiples already. */
    uint64_t adapters = RANK * (2 * (32 + 32) + 2 * (32 + 16) + 3 * E * (32 + 16)) * sizeof(float);
    uint64_t up = 2 * (embedding + 2 * block) + 5 * block + head + M * (3 * ids + 5 * boundary);
    uint64_t down = 7 * adapters + M * 4 * boundary;
    cr_expect(eq(u64, rpexec_layer_trained(&run.model.block) * sizeof(float), adapters));
    cr_expect(eq(u64, config.adapter_parameters * sizeof(float), adapters));
    cr_expect(eq(u64, run.uploaded_bytes, STEPS * up));
    cr_expect(eq(u64, run.downloaded_bytes, STEPS * down));
}

/* ---- adapters on some linear layers ---------------------------------------------------------- */

static const char *const modules[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                      "gate_proj", "up_proj", "down_proj"};

static bool has_module(const char *tensor, uint32_t linears)
{
    bool has = false;
    for (uint32_t i = 0; i < 7; i++) {
        has |= (linears >> i & 1) != 0 && strstr(tensor, modules[i]) != NULL;
    }
    return has;
}

/* @return the tensor's offset in the arrays of trained values @param block number of the block,
 * from 0 on */
static uint64_t place_of(const rp_test_run *run, uint32_t block, const rpexec_tensor *tensor)
{
    return run->state.trained[block + 1] + tensor->offset - run->model.block.frozen;
}

/* Fills adapters with numbers that depend only on their names. B is 0 in modules that are left out,
 * so that they add nothing. */
static void fill(void *context, rp_arena *arena, rp_test_run *run)
{
    uint32_t linears = *(const uint32_t *)context;
    const rpexec_layer *block = &run->model.block;
    (void)arena;
    for (uint32_t layer = 0; layer < run->model.config->layers; layer++) {
        for (uint32_t k = 0; k < block->tensor_count; k++) {
            const rpexec_tensor *t = &block->tensors[k];
            const char *lora = strstr(t->name, ".lora_");
            uint32_t state = layer + 1;
            for (const char *c = t->name; *c != '\0'; c++) {
                state = state * 31u + (unsigned char)*c;
            }
            for (uint64_t i = 0; lora != NULL && i < t->rows * t->columns; i++) {
                state = state * 1664525u + 1013904223u;
                bool zero = lora[6] == 'B' && !has_module(t->name, linears);
                run->state.master[place_of(run, layer, t) + i] =
                    zero ? 0 : (float)(state >> 8) / 8e7f - 0.1f;
            }
        }
    }
    for (uint32_t layer = 0; layer < run->model.layer_count; layer++) {
        rpexec_state_refresh(&run->state, layer);
    }
}

static const rpexec_tensor *called(const rp_test_run *run, const char *name)
{
    const rpexec_tensor *t = run->model.block.tensors;
    while (strcmp(t->name, name) != 0) {
        t++;
        cr_assert(t < run->model.block.tensors + run->model.block.tensor_count, "%s", name);
    }
    return t;
}

/* A model with adapters on some linear layers equals the model with all adapters, if the other
 * adapters add zeroes: loss and gradients are equal. Memory is taken only for the adapters that
 * exist. */
static void check_subset(uint32_t linears, uint32_t experts)
{
    rp_model some = mixture(experts, experts > 1 ? 2 : 1, 3);
    rp_model all = some;
    rp_resolved work = rp_test_work("roundpipe", 1, 2, 1);
    rp_test_twist twist = {.prepare = fill, .context = &linears};
    rp_test_run run[2];
    const uint64_t widths[] = {32 + 32, 32 + 16, 32 + 16, 32 + 32, 32 + 16, 32 + 16, 32 + 16};
    uint64_t values = 0;
    some.layers = all.layers = 2;
    rp_model_set_lora(&some, 3, linears);
    for (uint32_t i = 0; i < 7; i++) {
        values += (linears >> i & 1) * 3 * widths[i] * (i < 4 ? 1 : experts);
    }
    cr_assert(
        eq(int, rp_test_single_from(rp_test_arena, &some, SEQ_LEN, &work, &twist, &run[0]), RP_OK));
    cr_assert(
        eq(int, rp_test_single_from(rp_test_arena, &all, SEQ_LEN, &work, &twist, &run[1]), RP_OK));
    cr_expect(eq(dbl, run[0].losses[0], run[1].losses[0]), "%u", linears);
    cr_expect(eq(u64, rpexec_layer_trained(&run[0].model.block), values), "%u", linears);
    cr_expect(eq(u64, some.adapter_parameters, values), "%u", linears);
    cr_expect(linears == 127 ||
              rpexec_tape_bytes(&run[0].model, 1, 64) < rpexec_tape_bytes(&run[1].model, 1, 64));
    const rpexec_layer *block = &run[0].model.block;
    uint32_t tensors = 0;
    for (uint32_t k = 0; k < block->tensor_count; k++) {
        const rpexec_tensor *t = &block->tensors[k];
        if (strstr(t->name, ".lora_") == NULL) {
            continue;
        }
        const float *got = run[0].state.gradients + place_of(&run[0], 1, t);
        const float *right =
            run[1].state.gradients + place_of(&run[1], 1, called(&run[1], t->name));
        bool same = has_module(t->name, linears);
        for (uint64_t i = 0; i < t->rows * t->columns; i++) {
            same = same && got[i] == right[i];
        }
        cr_expect(same, "%u: %s", linears, t->name);
        tensors++;
    }
    uint32_t expected = 0;
    for (uint32_t i = 0; i < 7; i++) {
        expected += (linears >> i & 1) * 2 * (i < 4 ? 1 : experts);
    }
    cr_expect(eq(u32, tensors, expected));
    rp_test_arena_again();
}

/* All sets of linear layers; without RP_LONG a tenth of them. */
Test(exec_adapters, some_linear_layers_train_as_if_others_had_none)
{
    bool all = getenv("RP_LONG") != NULL;
    for (uint32_t linears = 1; linears < 128; linears++) {
        if (all || linears % 10 == 5) { /* 5 is q and v, 15 is all of attention */
            check_subset(linears, linears % 2 == 0 ? 4 : 1);
        }
    }
}

Test(exec_adapters, some_linear_layers_train_alike_everywhere)
{
    static const uint32_t sets[] = {5, 15, 64, 80, 35};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        rp_model config = mixture(i % 2 == 0 ? 1 : 5, i % 2 == 0 ? 1 : 2, 4);
        rp_resolved work = rp_test_work(schedules[i % 4], 1 + i % 3, 6, 3);
        rp_model_set_lora(&config, 4, sets[i]);
        work.decided.asynchronous = i % 2 == 1;
        compare(&config, &work, i == 3 ? RP_DTYPE_BF16 : RP_DTYPE_F32);
    }
}
