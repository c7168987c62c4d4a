/* Checkpoints of very many tensors and shards: every name is found by a lookup, not by a search. */
#include "exec/checkpoint/weights.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LAYERS 11111u /* 9 tensors each: 100,002 with the tables and the last norm */

/* Comparing each name with half of all the others would take more than twice as long, in any build.
 */
#define LIMIT_CPU_S 15u

TestSuite(exec_weights, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

static const char *path_of(const char *folder, const char *format, uint32_t number)
{
    const char *name = NULL;
    const char *path = NULL;
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &name, format, number), RP_OK));
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &path, "%s/%s", folder, name), RP_OK));
    return path;
}

#define SHARD "model-%05u.safetensors"
#define INDEX "model.safetensors.index.json"

/* Neighbours in the list lie in different shards. */
static void write_folder(const char *folder, const rpexec_writable *tensors, uint32_t count,
                         uint32_t shards)
{
    rpexec_writable *some = NULL;
    FILE *index = fopen(path_of(folder, INDEX, 0), "w");
    cr_assert(index != NULL);
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, count, sizeof *some, &some), RP_OK));
    fprintf(index, "{\"metadata\": {}, \"weight_map\": {");
    for (uint32_t i = 0; i < count; i++) {
        fprintf(index, "%s\n\"%s\": \"" SHARD "\"", i == 0 ? "" : ",", tensors[i].name, i % shards);
    }
    fprintf(index, "}}\n");
    cr_assert(eq(int, fclose(index), 0));
    for (uint32_t shard = 0; shard < shards; shard++) {
        uint32_t found = 0;
        for (uint32_t i = shard; i < count; i += shards) {
            some[found++] = tensors[i];
        }
        const char *path = path_of(folder, SHARD, shard);
        cr_assert(eq(int, rpexec_safetensors_write(path, some, found, NULL, 0), RP_OK));
    }
}

static void remove_folder(const char *folder, uint32_t shards)
{
    for (uint32_t shard = 0; shard < shards; shard++) {
        (void)unlink(path_of(folder, SHARD, shard));
    }
    (void)unlink(path_of(folder, INDEX, 0));
    (void)rmdir(folder);
}

Test(exec_weights, folders_of_100000_tensors_are_read)
{
    const char *long_run = getenv("RP_LONG");
    uint32_t shards = long_run != NULL && strcmp(long_run, "1") == 0 ? 1000 : 100;
    char folder[] = "/tmp/roundpipe-weights-XXXXXX";
    rp_model config = rp_test_decoder(LAYERS, false, false);
    config.hidden = config.head_dim = config.vocab = 2;
    config.heads = config.kv_heads = config.intermediate = 1;
    rpexec_model model;
    rpexec_state state;
    rpexec_writable *tensors = NULL;
    uint32_t count = 0;
    rp_arena *arena = rp_test_arena;
    const struct rlimit limit = {LIMIT_CPU_S, LIMIT_CPU_S};
    cr_assert(eq(int, setrlimit(RLIMIT_CPU, &limit), 0));
    cr_assert(mkdtemp(folder) != NULL);
    cr_assert(eq(int, rpexec_model_create(&config, 4, RP_DTYPE_F32, arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_state_create(&model, arena, &state), RP_OK));
    cr_assert(
        eq(int, rpexec_weights_list(&state, state.master, "", arena, &tensors, &count), RP_OK));
    cr_assert(eq(u32, count, 9 * LAYERS + 3));
    for (uint32_t i = 0; i < count; i++) {
        *(float *)(uintptr_t)tensors[i].values = (float)(i + 1);
    }
    write_folder(folder, tensors, count, shards);
    uint64_t values = rpexec_model_trained(&model, 0, model.layer_count);
    memset(state.master, 0, values * sizeof *state.master);
    cr_assert(eq(int, rpexec_weights_load(folder, &state), RP_OK));
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        wrong += *(const float *)tensors[i].values == (float)(i + 1) ? 0 : 1;
    }
    cr_expect(eq(u32, wrong, 0));
    remove_folder(folder, shards);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A decoder of three layers. Its table of 97 x 32 is the largest tensor. */
static void make_small(rpexec_model *model, rp_model *config, rpexec_state *state, rp_dtype dtype)
{
    *config = rp_test_decoder(3, false, true);
    cr_assert(eq(int, rpexec_model_create(config, 4, dtype, rp_test_arena, model), RP_OK));
    cr_assert(eq(int, rpexec_state_create(model, rp_test_arena, state), RP_OK));
    cr_assert(eq(int, rpexec_state_initialise(state, 3, true), RP_OK));
}

/* Writes with a limit per shard, reads back and expects the same bits. @return the number of
 * shards; 0: a single file without an index */
static uint32_t write_and_read(uint64_t limit, rp_dtype dtype)
{
    char folder[] = "/tmp/roundpipe-weights-XXXXXX";
    rp_model config;
    rpexec_model model;
    rpexec_state state;
    rpexec_state read;
    cr_assert(mkdtemp(folder) != NULL);
    make_small(&model, &config, &state, dtype);
    cr_assert(eq(int, rpexec_weights_write(&state, folder, limit), RP_OK));
    cr_assert(eq(int, rpexec_state_create(&model, rp_test_arena, &read), RP_OK));
    cr_assert(eq(int, rpexec_weights_load(folder, &read), RP_OK));
    uint64_t bytes = rpexec_model_values(&model, 0, model.layer_count) * rp_dtype_bytes(dtype);
    cr_expect(eq(int, memcmp(read.working, state.working, bytes), 0));
    uint32_t shards = 0;
    uint64_t most = 0;
    bool indexed = access(path_of(folder, INDEX, 0), F_OK) == 0;
    cr_expect(eq(int, access(path_of(folder, "model.safetensors", 0), F_OK), indexed ? -1 : 0));
    for (uint32_t of = 1; indexed && shards == 0 && of < 64; of++) {
        rpexec_safetensors file;
        for (uint32_t i = 0; i < of; i++) {
            const char *name = NULL;
            cr_assert(eq(int,
                         rp_arena_print(rp_test_arena, &name, "%s/model-%05u-of-%05u.safetensors",
                                        folder, i + 1, of),
                         RP_OK));
            if (access(name, F_OK) != 0) {
                break;
            }
            cr_assert(eq(int, rpexec_safetensors_open(name, rp_test_arena, &file), RP_OK));
            uint64_t held = 0;
            for (uint32_t k = 0; k < file.count; k++) {
                held += file.tensors[k].end - file.tensors[k].begin;
            }
            cr_expect(held <= limit || file.count == 1, "%s: %llu bytes in %u tensors", name,
                      (unsigned long long)held, file.count);
            most = held > most ? held : most;
            shards = of;
            rpexec_safetensors_close(&file);
            (void)unlink(name);
        }
    }
    (void)unlink(path_of(folder, INDEX, 0));
    (void)unlink(path_of(folder, "model.safetensors", 0));
    cr_expect(eq(int, rmdir(folder), 0));
    return shards;
}

/* Sizes of a layer's tensors in floats: two norms of 32, q and o of 1024, k and v of 512, two norms
 * of 8, three matrices of 1536, together 7760. Besides there are two tables of 3104 and a norm of
 * 32: 29520 in all. */
Test(exec_weights, shards_are_cut_as_huggingface_hub_cuts_them)
{
    const uint64_t all = 29520;
    cr_expect(eq(u32, write_and_read(4 * all, RP_DTYPE_F32), 0));
    cr_expect(eq(u32, write_and_read(2 * all, RP_DTYPE_BF16), 0));
    cr_expect(eq(u32, write_and_read(4 * all - 1, RP_DTYPE_F32), 2));
    cr_expect(eq(u32, write_and_read(2 * all - 1, RP_DTYPE_F16), 2));
    /* The numbers of shards are those of split_state_dict_into_shards_factory of huggingface_hub
     * 2.4 with these sizes, in this order; checks.checkpoints compares shards tensor by tensor. */
    cr_expect(eq(u32, write_and_read(UINT64_C(4) * 7760, RP_DTYPE_F32), 4));
    cr_expect(eq(u32, write_and_read(UINT64_C(4) * 3103, RP_DTYPE_F32), 12));
    cr_expect(eq(u32, write_and_read(1, RP_DTYPE_F32), 36));
}

/* A state whose base is not drawn at random, because it is read next, becomes the written state.
 * Its adapters are drawn all the same. */
static void check_undrawn(const rpexec_state *written, const char *folder)
{
    rpexec_state state;
    uint64_t values = rpexec_model_values(written->model, 0, written->model->layer_count);
    uint64_t bytes = values * rp_dtype_bytes(written->model->dtype);
    cr_assert(eq(int, rpexec_state_create(written->model, rp_test_arena, &state), RP_OK));
    cr_assert(eq(int, rpexec_state_initialise(&state, 5, false), RP_OK));
    cr_expect(memcmp(state.working, written->working, bytes) != 0);
    cr_assert(eq(int, rpexec_weights_load(folder, &state), RP_OK));
    cr_expect(eq(int, memcmp(state.working, written->working, bytes), 0));
}

/* The saved base of adapters is a whole model, with the same bits as the model without adapters. */
Test(exec_weights, frozen_weights_are_a_whole_model)
{
    char folder[] = "/tmp/roundpipe-weights-XXXXXX";
    rp_model configs[2] = {rp_test_decoder(3, true, true), rp_test_decoder(3, true, true)};
    rpexec_model models[2];
    rpexec_state states[2];
    cr_assert(mkdtemp(folder) != NULL);
    rp_model_set_lora_rank(&configs[0], 2);
    for (int i = 0; i < 2; i++) {
        cr_assert(eq(int,
                     rpexec_model_create(&configs[i], 4, RP_DTYPE_BF16, rp_test_arena, &models[i]),
                     RP_OK));
        cr_assert(eq(int, rpexec_state_create(&models[i], rp_test_arena, &states[i]), RP_OK));
    }
    cr_assert(eq(int, rpexec_state_initialise(&states[0], 5, true), RP_OK));
    cr_assert(eq(int, rpexec_frozen_write(&states[0], folder, UINT64_MAX), RP_OK));
    cr_assert(eq(int, rpexec_weights_load(folder, &states[1]), RP_OK));
    for (uint32_t i = 0; i < models[1].layer_count; i++) {
        const rpexec_layer *layer = rpexec_model_layer(&models[1], i);
        cr_expect(eq(u64, layer->floats, rpexec_model_layer(&models[0], i)->frozen));
        cr_expect(
            eq(int,
               memcmp(rpexec_state_working(&states[0], i), rpexec_state_working(&states[1], i),
                      layer->floats * rp_dtype_bytes(RP_DTYPE_BF16)),
               0));
    }
    check_undrawn(&states[0], folder);
    (void)unlink(path_of(folder, "model.safetensors", 0));
    cr_expect(eq(int, rmdir(folder), 0));
}
