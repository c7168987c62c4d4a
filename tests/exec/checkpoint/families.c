/* Twenty steps of AdamW with a small model of each family against transformers on PyTorch
 * (tests/golden/families/make.py): losses and trained weights, with all parameters and with only
 * adapters, under schedules of every kind. A plain run tries two schedules for each family, RP_LONG
 * all. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "exec/checkpoint/weights.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"
#include "tests/support/worse.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As in make.py. */
#define SEQUENCES 6u
#define LENGTH 17u
#define STEPS 20u
#define RANK 3u
#define ALPHA 6.0

#define LOSS_TOLERANCE 1e-5   /* relative error */
#define WEIGHT_TOLERANCE 1e-4 /* relative to a tensor's norm */

TestSuite(exec_families, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

static const char *const families[] = {
    "llama3.2", "llama-biases", "qwen2",     "qwen2-windows", "qwen3-biases", "mistral", "mixtral",
    "gpt-oss",  "phi3",         "phi3-long", "phi3-short",    "gemma2",       "gemma3"};

static const struct {
    const char *schedule;
    uint32_t gpus;
} runs[] = {{"roundpipe", 2}, {"1f1b", 3},   {"zb-h1", 2},       {"fsdp", 3},
            {"gpipe", 1},     {"mobius", 2}, {"megatron-tp", 2}, {"zero-offload", 2}};
#define RUNS (sizeof runs / sizeof runs[0])

/* A family's files, and whether its adapters are trained. */
typedef struct trained {
    const char *folder;
    bool adapters;
    rpexec_safetensors file;
} trained;

static const char *path_of(const trained *t, const char *name)
{
    const char *path = NULL;
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &path, "%s/%s", t->folder, name), RP_OK));
    return path;
}

static const float *values_of(trained *t, const char *name, uint64_t *count_out)
{
    float *values = NULL;
    const rpexec_stored *stored = rpexec_safetensors_find(&t->file, name);
    cr_assert(stored != NULL, "%s: %s", t->folder, name);
    cr_assert(
        eq(int, rp_arena_alloc(rp_test_arena, stored->elements, sizeof *values, &values), RP_OK));
    cr_assert(eq(int, rpexec_safetensors_read(&t->file, stored, values), RP_OK));
    *count_out = stored->elements;
    return values;
}

/* Every step trains on the file's batch. */
static void prepare(void *context, rp_arena *arena, rp_test_run *run)
{
    trained *t = context;
    uint64_t count;
    const float *ids = values_of(t, "ids", &count);
    const float *labels = values_of(t, "labels", &count);
    int32_t *whole[2] = {NULL, NULL};
    rpexec_batch batch = {0};
    cr_assert(eq(u64, count, run->sequences * LENGTH));
    for (int i = 0; i < 2; i++) {
        cr_assert(eq(int, rp_arena_alloc(arena, count, sizeof(int32_t), &whole[i]), RP_OK));
    }
    for (uint64_t i = 0; i < count; i++) {
        whole[0][i] = (int32_t)ids[i];
        whole[1][i] = (int32_t)labels[i];
        batch.valid_tokens += labels[i] >= 0 ? 1 : 0;
    }
    batch.ids = whole[0];
    batch.labels = whole[1];
    for (uint32_t i = 0; i < run->iterations; i++) {
        run->batches[i] = batch;
    }
    cr_assert(eq(int, rpexec_weights_load(t->folder, &run->state), RP_OK));
    if (t->adapters) {
        cr_assert(eq(int, rpexec_adapters_load(t->folder, &run->state), RP_OK));
    }
}

static const float *together(const rpexec_writable *tensor)
{
    float *values = NULL;
    if (tensor->part_count == 0) {
        return tensor->values;
    }
    uint64_t elements = rpexec_writable_elements(tensor);
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, elements, sizeof *values, &values), RP_OK));
    rpexec_weights_put_together(tensor, values);
    return values;
}

/* The trained tensors are exactly those that the other framework trains. */
static void compare(trained *t, const rp_test_run *run, const char *what)
{
    uint64_t count;
    rpexec_writable *tensors = NULL;
    uint32_t tensor_count = 0;
    uint32_t expected = 0;
    const char *prefix = t->adapters ? "adapters." : "after.";
    const float *losses = values_of(t, t->adapters ? "adapters.losses" : "losses", &count);
    double worst = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        worst = rp_test_worse(worst, fabs(run->losses[i] / (double)losses[i] - 1));
    }
    cr_expect(worst <= LOSS_TOLERANCE, "%s: losses differ by %g", what, worst);
    cr_assert(eq(int,
                 rpexec_weights_joined(&run->state, run->state.master, prefix, rp_test_arena,
                                       &tensors, &tensor_count),
                 RP_OK));
    for (uint32_t i = 0; i < tensor_count; i++) {
        const float *right = values_of(t, tensors[i].name, &count);
        const float *values = together(&tensors[i]);
        double apart = 0;
        double norm = 0;
        cr_assert(eq(u64, count, rpexec_writable_elements(&tensors[i])), "%s", tensors[i].name);
        for (uint64_t k = 0; k < count; k++) {
            double difference = (double)values[k] - (double)right[k];
            apart += difference * difference;
            norm += (double)right[k] * (double)right[k];
        }
        double error = sqrt(apart / norm);
        cr_expect(error <= WEIGHT_TOLERANCE, "%s: %s differs by %g", what, tensors[i].name, error);
    }
    for (uint32_t i = 0; i < t->file.count; i++) {
        expected += strncmp(t->file.tensors[i].name, prefix, strlen(prefix)) == 0 ? 1 : 0;
    }
    cr_expect(eq(u32, tensor_count, expected - (t->adapters ? 1 : 0)), "%s", what); /* minus the
                                                                                     * tensor of
                                                                                     * losses */
}

static void train(size_t number, bool adapters)
{
    const char *family = families[number];
    bool all = getenv("RP_LONG") != NULL;
    trained t = {.adapters = adapters};
    rp_model config;
    cr_assert(eq(
        int, rp_arena_print(rp_test_arena, &t.folder, RP_TEST_ROOT "/golden/families/%s", family),
        RP_OK));
    cr_assert(eq(int, rpexec_config_load(path_of(&t, "config.json"), NULL, rp_test_arena, &config),
                 RP_OK));
    if (adapters) {
        rp_model_set_lora_rank(&config, RANK);
        config.lora_alpha = ALPHA;
    }
    cr_assert(eq(
        int, rpexec_safetensors_open(path_of(&t, "training.safetensors"), rp_test_arena, &t.file),
        RP_OK));
    for (size_t i = 0; i < RUNS; i++) {
        if (!all && i % (RUNS / 2) != (number + (adapters ? 1 : 0)) % (RUNS / 2)) {
            continue;
        }
        char what[128];
        rp_test_run run;
        rp_resolved work = rp_test_work(runs[i].schedule, runs[i].gpus, SEQUENCES, STEPS);
        const rp_test_twist twist = {.prepare = prepare, .context = &t};
        (void)snprintf(what, sizeof what, "%s%s, %s on %u GPUs", family, adapters ? ", LoRA" : "",
                       runs[i].schedule, runs[i].gpus);
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, LENGTH, &work, &twist, &run), RP_OK),
            "%s", what);
        compare(&t, &run, what);
    }
    rpexec_safetensors_close(&t.file);
}

Test(exec_families, all_parameters)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        train(i, false);
        rp_test_arena_again();
    }
}

/* Experts' weights in blocks of MXFP4 are unpacked as by transformers (make.py), to the last bit.
 */
Test(exec_families, packed_experts_are_unpacked)
{
    const char *folder = RP_TEST_ROOT "/golden/families/mxfp4";
    trained t = {.folder = folder};
    rp_model config;
    rpexec_model model;
    rpexec_state state;
    rpexec_writable *tensors = NULL;
    uint32_t count = 0;
    uint32_t compared = 0;
    rp_arena *arena = rp_test_arena;
    cr_assert(eq(int, rpexec_config_load(path_of(&t, "config.json"), NULL, arena, &config), RP_OK));
    cr_assert(eq(int, rpexec_model_create(&config, 4, RP_DTYPE_F32, arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_state_create(&model, arena, &state), RP_OK));
    cr_assert(eq(int, rpexec_weights_load(folder, &state), RP_OK));
    cr_assert(
        eq(int, rpexec_weights_joined(&state, state.master, "", arena, &tensors, &count), RP_OK));
    cr_assert(eq(int, rpexec_safetensors_open(path_of(&t, "unpacked.safetensors"), arena, &t.file),
                 RP_OK));
    for (uint32_t i = 0; i < count; i++) {
        if (rpexec_safetensors_find(&t.file, tensors[i].name) != NULL) {
            uint64_t elements;
            const float *right = values_of(&t, tensors[i].name, &elements);
            cr_assert(eq(u64, elements, rpexec_writable_elements(&tensors[i])));
            cr_expect(memcmp(together(&tensors[i]), right, elements * sizeof *right) == 0, "%s",
                      tensors[i].name);
            compared++;
        }
    }
    cr_expect(eq(u32, compared, 2));
    rpexec_safetensors_close(&t.file);
}

/* Copies a file into a folder with other bytes from `at` on. */
static void copy_changed(const char *from, const char *to, size_t at, const char *bytes)
{
    rp_text text = {0};
    rp_output output;
    cr_assert(eq(int, rp_text_read_file(from, 1 << 20, &text), RP_OK));
    memcpy(text.bytes + at, bytes, strlen(bytes));
    cr_assert(eq(int, rp_output_open(to, &output), RP_OK));
    cr_assert(eq(u64, fwrite(text.bytes, 1, text.length, output.stream), text.length));
    cr_assert(eq(int, rp_output_commit(&output), RP_OK));
    rp_text_fini(&text);
}

/* Tries to load a family's weights or adapters after changing bytes of a tensor; they must be
 * refused. */
static void refuse_changed(const char *family, bool adapters, const char *tensor, uint64_t byte,
                           const char *bytes, const char *message)
{
    char folder[] = "/tmp/roundpipe-families-XXXXXX";
    const char *file = adapters ? "adapter_model.safetensors" : "model.safetensors";
    trained t = {.adapters = adapters};
    trained changed = {.folder = folder};
    char messages[2048] = "";
    rp_model config;
    rpexec_model model;
    rpexec_state state;
    rp_arena *arena = rp_test_arena;
    cr_assert(mkdtemp(folder) != NULL);
    cr_assert(eq(int, rp_arena_print(arena, &t.folder, RP_TEST_ROOT "/golden/families/%s", family),
                 RP_OK));
    cr_assert(eq(int, rpexec_config_load(path_of(&t, "config.json"), NULL, arena, &config), RP_OK));
    rp_model_set_lora_rank(&config, adapters ? RANK : 0);
    cr_assert(eq(int, rpexec_model_create(&config, 4, RP_DTYPE_F32, arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_state_create(&model, arena, &state), RP_OK));
    cr_assert(eq(int, rpexec_safetensors_open(path_of(&t, file), arena, &t.file), RP_OK));
    const rpexec_stored *stored = rpexec_safetensors_find(&t.file, tensor);
    cr_assert(stored != NULL);
    copy_changed(path_of(&t, file), path_of(&changed, file), stored->begin + byte, bytes);
    rpexec_safetensors_close(&t.file);
    rp_log_capture_begin(messages, sizeof messages);
    cr_expect(eq(
        int, adapters ? rpexec_adapters_load(folder, &state) : rpexec_weights_load(folder, &state),
        RP_INPUT));
    rp_log_capture_end();
    cr_expect(strstr(messages, message) != NULL, "%s", messages);
    (void)unlink(path_of(&changed, file));
    (void)rmdir(folder);
}

/* In an adapter that PEFT has trained, gates and ups share a matrix, while ours have a matrix each.
 * B's first row belongs to a gate and its columns from 15 on to ups, so that a value there has no
 * place in ours. In the second case a scale becomes NaN. */
Test(exec_families, what_ours_cannot_hold_is_refused)
{
    refuse_changed("gpt-oss", true,
                   "base_model.model.model.layers.0.mlp.experts.base_layer.lora_B.weight",
                   4 * (3 * 5 + 1), "\x40\x40\x40\x40",
                   "has 1 values that none of the model's own tensors has; valid are zeros there");
    refuse_changed("mxfp4", false, "model.layers.0.mlp.experts.down_proj_scales", 1, "\xff",
                   "scale 1 is NaN; valid are 0 to 254");
}

Test(exec_families, adapters)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        train(i, true);
        rp_test_arena_again();
    }
}
