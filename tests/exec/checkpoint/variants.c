/* Folders of weights as other programs leave them, of each family. Their weights are read as, bit
 * for bit, those of the plain folder, which families.c and golden.c in tests/exec/checkpoint
 * compare with transformers. The rules by which transformers reads these folders are in its
 * modeling_utils.py 5.24: the order of files in _get_resolved_checkpoint_files, buffers in
 * _adjust_missing_and_unexpected_keys (with the names that its older versions saved:
 * LlamaRotaryEmbedding of 4.28 to 4.31, Phi-3's and Gemma's of 4.40), tied tables in tie_weights.
 * tests/tools/checkpoints.py reads the folders with transformers. */
#include "exec/checkpoint/weights.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EMBEDDING "model.embed_tokens.weight"
#define HEAD "lm_head.weight"

static char folder[] = "/tmp/rp-variants-XXXXXX";

static void begin(void)
{
    rp_test_log_begin();
    cr_assert(mkdtemp(folder) != NULL);
}

static int clear(void)
{
    const char *command = NULL;
    (void)rp_arena_print(rp_test_arena, &command, "rm -rf %s/*", folder);
    return system(command); // NOLINT(cert-env33-c)
}

static void end(void)
{
    int status = clear();
    rp_test_none_left(status != 0 || rmdir(folder) != 0, "folders");
    rp_test_log_end();
}

TestSuite(exec_variants, .init = begin, .fini = end, .timeout = 120);

static const char *const goldens[] = {
    "decoders/qwen3",     "decoders/llama",         "families/mixtral",      "families/gemma2",
    "families/qwen2",     "families/qwen2-windows", "families/qwen3-biases", "families/llama3.2",
    "families/mistral",   "families/llama-biases",  "families/gpt-oss",      "families/phi3",
    "families/phi3-long", "families/phi3-short",    "families/gemma3"};

/* ---- folders --------------------------------------------------------------------------------- */

/* A model in its plain folder, and the tensors of its file. */
typedef struct original {
    const char *golden;
    rp_model config;
    rpexec_model model;
    float *expected; /* master weights of the plain folder */
    uint64_t values;
    rpexec_writable *tensors;
    uint32_t count;
} original;

static const char *join(const char *format, const char *a, const char *b)
{
    const char *text = NULL;
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &text, format, a, b), RP_OK));
    return text;
}

static rp_status load(const original *o, const char *path, rpexec_state *state)
{
    cr_assert(eq(int, rpexec_state_create(&o->model, rp_test_arena, state), RP_OK));
    rp_test_log_again();
    return rpexec_weights_load(path, state);
}

static void read_original(const char *golden, original *o)
{
    const char *path = join(RP_TEST_ROOT "/golden/%s%s", golden, "");
    rpexec_state state;
    rpexec_safetensors file;
    rp_arena *arena = rp_test_arena;
    *o = (original){.golden = golden};
    cr_assert(eq(int, rpexec_config_load(path, NULL, arena, &o->config), RP_OK));
    cr_assert(eq(int, rpexec_model_create(&o->config, 4, RP_DTYPE_F32, arena, &o->model), RP_OK));
    cr_assert(eq(int, load(o, path, &state), RP_OK), "%s", rp_test_messages);
    o->expected = state.master;
    o->values = rpexec_model_trained(&o->model, 0, o->model.layer_count);
    cr_assert(eq(int,
                 rpexec_safetensors_open(join("%s/model.safetensors%s", path, ""), arena, &file),
                 RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, file.count, sizeof *o->tensors, &o->tensors), RP_OK));
    for (uint32_t i = 0; i < file.count; i++) {
        float *values = NULL;
        const rpexec_stored *stored = &file.tensors[i];
        cr_assert(
            eq(int, rp_arena_alloc(arena, stored->elements + 1, sizeof *values, &values), RP_OK));
        cr_assert(eq(int, rpexec_safetensors_read(&file, stored, values), RP_OK));
        rpexec_writable *w = &o->tensors[o->count++];
        *w = (rpexec_writable){.name = stored->name, .rank = stored->rank, .values = values};
        memcpy(w->shape, stored->shape, sizeof w->shape);
    }
    rpexec_safetensors_close(&file);
}

static void write_file(const char *name, const rpexec_writable *tensors, uint32_t count)
{
    cr_assert(eq(int,
                 rpexec_safetensors_write(join("%s/%s", folder, name), tensors, count, NULL, 0),
                 RP_OK));
}

static void put(const char *name, const char *text)
{
    FILE *stream = fopen(join("%s/%s", folder, name), "w");
    cr_assert(stream != NULL && fputs(text, stream) >= 0 && fclose(stream) == 0);
}

static void expect_equal(const original *o, const char *what, const char *message)
{
    rpexec_state state;
    rp_status status = load(o, folder, &state);
    cr_expect(eq(int, status, RP_OK), "%s, %s: %s", o->golden, what, rp_test_messages);
    cr_expect(status != RP_OK || memcmp(state.master, o->expected, o->values * sizeof(float)) == 0,
              "%s, %s: other weights", o->golden, what);
    cr_expect(message != NULL ? strstr(rp_test_messages, message) != NULL
                              : rp_test_messages[0] == '\0',
              "%s, %s: %s", o->golden, what, rp_test_messages);
    cr_assert(eq(int, clear(), 0));
}

static void expect_refused(const original *o, const char *what, const char *message)
{
    rpexec_state state;
    rp_status status = load(o, folder, &state);
    cr_expect(eq(int, status, RP_INPUT), "%s, %s is taken", o->golden, what);
    cr_expect(strstr(rp_test_messages, message) != NULL, "%s, %s: %s", o->golden, what,
              rp_test_messages);
    cr_assert(eq(int, clear(), 0));
}

/* ---- variants -------------------------------------------------------------------------------- */

static const char *const buffers[] = {"model.layers.%u.self_attn.rotary_emb.inv_freq",
                                      "model.layers.%u.self_attn.rotary_emb.original_inv_freq",
                                      "model.layers.%u.self_attn.rotary_emb.cos_cached",
                                      "model.layers.%u.self_attn.rotary_emb.sin_cached",
                                      "model.rotary_emb.inv_freq",
                                      "model.rotary_emb.original_inv_freq",
                                      "model.rotary_emb.full_attention_inv_freq",
                                      "model.rotary_emb_local.inv_freq",
                                      "rotary_emb.inv_freq",
                                      "model.embed_tokens.embed_scale"};
static const char *const strangers[] = {"model.layers.0.self_attn.inv_freq",
                                        "model.layers.0.self_attn.my_rotary_emb.inv_freq",
                                        "model.layers.0.self_attn.q_proj.extra",
                                        "model.layers.9.input_layernorm.weight", "embed_scale"};

/* Writes the file with a further tensor, or with a further tensor for each layer. */
static void write_with(const original *o, const char *format, uint32_t layers)
{
    static const float values[4];
    rpexec_writable *all = NULL;
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, o->count + layers, sizeof *all, &all), RP_OK));
    memcpy(all, o->tensors, o->count * sizeof *all);
    for (uint32_t i = 0; i < layers; i++) {
        char name[96];
        (void)snprintf(name, sizeof name, format, i);
        all[o->count + i] = (rpexec_writable){
            .name = join("%s%s", name, ""), .rank = 1, .shape = {4}, .values = values};
    }
    write_file("model.safetensors", all, o->count + layers);
}

static void check_buffers(const original *o)
{
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        bool of_layers = strstr(buffers[i], "%u") != NULL;
        write_with(o, buffers[i], of_layers ? o->config.layers : 1);
        expect_equal(o, buffers[i], NULL);
    }
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        write_with(o, strangers[i], 1);
        expect_refused(o, strangers[i], "is none of ");
    }
}

static rpexec_writable *tensor_called(original *o, const char *name)
{
    for (uint32_t i = 0; i < o->count; i++) {
        if (strcmp(o->tensors[i].name, name) == 0) {
            return &o->tensors[i];
        }
    }
    return NULL;
}

static void check_tables(original *o)
{
    rpexec_writable *table = tensor_called(o, EMBEDDING);
    rpexec_writable *head = tensor_called(o, HEAD);
    cr_assert(table != NULL && (head == NULL) == o->config.tied_head);
    if (head != NULL) { /* the head is not tied: the two tables differ */
        *table = o->tensors[--o->count];
        write_file("model.safetensors", o->tensors, o->count);
        expect_refused(o, "no embedding", "tensor \"" EMBEDDING "\" is missing");
        return;
    }
    table->name = HEAD;
    write_file("model.safetensors", o->tensors, o->count);
    expect_equal(o, "the head alone", NULL);
}

/* Writes shards and their index. @param other fills them with zeroes */
static void write_shards(const original *o, bool other)
{
    rpexec_writable *some = NULL;
    FILE *index = fopen(join("%s/model.safetensors.index.json%s", folder, ""), "w");
    cr_assert(index != NULL);
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, o->count, sizeof *some, &some), RP_OK));
    fprintf(index, "{\"weight_map\": {");
    for (uint32_t shard = 0; shard < 2; shard++) {
        uint32_t count = 0;
        char name[64];
        (void)snprintf(name, sizeof name, "model-%05u-of-00002.safetensors", shard + 1);
        for (uint32_t i = shard; i < o->count; i += 2) {
            some[count] = o->tensors[i];
            uint64_t elements = rpexec_writable_elements(&some[count]);
            float *zeroes = NULL;
            cr_assert(
                eq(int, rp_arena_alloc(rp_test_arena, elements, sizeof *zeroes, &zeroes), RP_OK));
            some[count].values = other ? zeroes : some[count].values;
            fprintf(index, "%s\"%s\": \"%s\"", i == 0 ? "" : ", ", some[count].name, name);
            count++;
        }
        write_file(name, some, count);
    }
    fprintf(index, "}}");
    cr_assert(eq(int, fclose(index), 0));
}

static void check_files(const original *o)
{
    write_shards(o, false);
    expect_equal(o, "shards", NULL);
    write_shards(o, false);
    put("pytorch_model.bin", "others");
    expect_equal(o, "shards beside PyTorch's", NULL);
    write_shards(o, true);
    write_file("model.safetensors", o->tensors, o->count);
    expect_equal(o, "a single file beside an index", "model.safetensors.index.json is there, too");
    write_file("model.safetensors", o->tensors, o->count);
    put("model.safetensors.index.json", "no JSON");
    expect_equal(o, "a single file beside a bad index", "model.safetensors.index.json is there");
    write_file("model.safetensors", o->tensors, o->count);
    put("pytorch_model.bin.index.json", "{}");
    put("pytorch_model.bin", "others");
    expect_equal(o, "a single file beside PyTorch's", NULL);
    put("pytorch_model.bin.index.json", "{}");
    expect_refused(o, "PyTorch's alone",
                   "there is pytorch_model.bin.index.json, which is not read");
    put("pytorch_model.bin", "others");
    expect_refused(o, "PyTorch's alone", "there is pytorch_model.bin, which is not read");
    expect_refused(o, "nothing", "model.safetensors: No such file");
}

/* A plain test tries three families, tied and not; RP_LONG=1: all. */
Test(exec_variants, folders_are_read_as_transformers_reads_them)
{
    const char *long_run = getenv("RP_LONG");
    bool all = long_run != NULL && strcmp(long_run, "1") == 0;
    size_t count = all ? sizeof goldens / sizeof goldens[0] : 3;
    for (size_t i = 0; i < count; i++) {
        original o;
        read_original(goldens[i], &o);
        check_buffers(&o);
        check_files(&o);
        check_tables(&o);
    }
}
