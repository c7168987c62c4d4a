/* PyTorch's allocator by its rules, recorded layers against PyTorch itself, the library's jobs
 * against what they hold. */
#include "sim/run/memory/library_memory.h"
#include "common/base/text.h"
#include "common/formats/csv.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)
#define UNLIMITED ((uint64_t)1 << 50)

static rp_arena *arena;

static void set_up(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void tear_down(void)
{
    rp_test_end(arena);
}

TestSuite(library_memory, .init = set_up, .fini = tear_down);

static rpsim_allocator make(uint64_t limit)
{
    rpsim_allocator a;
    cr_assert(eq(int, rpsim_allocator_init(limit, arena, &a), RP_OK));
    return a;
}

static rpsim_block *take(rpsim_allocator *a, uint32_t stream, uint64_t bytes)
{
    rpsim_block *block = NULL;
    cr_assert(eq(int, rpsim_allocator_take(a, stream, bytes, &block), RP_OK));
    return block;
}

static void give(rpsim_allocator *a, rpsim_block *block)
{
    cr_assert(eq(int, rpsim_allocator_free(a, block), RP_OK));
}

Test(library_memory, segments)
{
    static const struct {
        uint64_t bytes;
        uint64_t live;
        uint64_t reserved;
    } cases[] = {{1, 512, 2 * MIB},
                 {MIB, MIB, 2 * MIB},
                 {MIB + 1, MIB + 512, 20 * MIB},
                 {10 * MIB - 512, 10 * MIB - 512, 20 * MIB},
                 {10 * MIB, 10 * MIB, 10 * MIB},
                 {11 * MIB, 11 * MIB, 12 * MIB}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpsim_allocator a = make(UNLIMITED);
        rpsim_block *block = take(&a, 0, cases[i].bytes);
        cr_expect(eq(u64, a.live_bytes, cases[i].live));
        cr_expect(eq(u64, a.reserved_bytes, cases[i].reserved));
        give(&a, block);
        cr_expect(eq(u64, a.live_bytes, 0));
        cr_expect(eq(u64, a.reserved_bytes, cases[i].reserved), "segments are kept");
        cr_expect(eq(u64, a.peak_live_bytes, cases[i].live));
    }
}

/* A freed block is split, and whole again when all its parts are free. */
Test(library_memory, splits_and_joins)
{
    rpsim_allocator a = make(UNLIMITED);
    give(&a, take(&a, 0, 60 * MIB));
    rpsim_block *part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = take(&a, 0, 20 * MIB);
    }
    cr_expect(eq(u64, a.reserved_bytes, 60 * MIB));
    give(&a, part[1]);
    rpsim_block *longer = take(&a, 0, 30 * MIB); /* the gap is too short */
    cr_expect(eq(u64, a.reserved_bytes, 90 * MIB));
    give(&a, longer);
    rpsim_block *best = take(&a, 0, 19 * MIB + 512); /* from the gap, not from the larger one */
    rpsim_block *other = take(&a, 0, 30 * MIB);
    cr_expect(eq(u64, a.reserved_bytes, 90 * MIB));
    give(&a, best);
    give(&a, part[0]);
    give(&a, part[2]);
    rpsim_block *whole = take(&a, 0, 60 * MIB);
    cr_expect(eq(u64, a.reserved_bytes, 90 * MIB));
    rpsim_block *elsewhere = take(&a, 1, 30 * MIB); /* another stream's pool is empty */
    cr_expect(eq(u64, a.reserved_bytes, 120 * MIB));
    cr_expect(eq(u64, a.live_bytes, 120 * MIB));
    give(&a, whole);
    give(&a, other);
    give(&a, elsewhere);
    cr_expect(eq(u64, a.live_bytes, 0));
    cr_expect(eq(u64, a.flushes, 0));
}

/* Unused segments are given back where the GPU is full; one with a live block is not. */
Test(library_memory, flushes)
{
    rpsim_allocator a = make(100 * MIB);
    give(&a, take(&a, 0, 60 * MIB));
    rpsim_block *large = take(&a, 1, 80 * MIB);
    cr_expect(ne(ptr, large, NULL));
    cr_expect(eq(u64, a.reserved_bytes, 80 * MIB));
    cr_expect(eq(u64, a.flushes, 1));
    give(&a, large);
    rpsim_block *small = take(&a, 1, 20 * MIB); /* a part of the 80 */
    cr_expect(eq(ptr, take(&a, 0, 30 * MIB), NULL));
    cr_expect(eq(u64, a.live_bytes, 20 * MIB));
    give(&a, small);
    cr_expect(ne(ptr, take(&a, 0, 100 * MIB), NULL));
    cr_expect(eq(ptr, take(&a, 0, 1), NULL));
}

/* ---- layers -----------------------------------------------------------------------------------
 */

static rp_model load_model(const char *name)
{
    rp_model model;
    cr_assert(eq(int, rp_model_load(name, arena, &model), RP_OK));
    return model;
}

static rpsim_layer_tensors load_tensors(const rp_model *model, uint64_t tokens)
{
    rpsim_layer_tensors tensors;
    cr_assert(eq(int, rpsim_layer_tensors_load(model, tokens, arena, &tensors), RP_OK));
    return tensors;
}

/* Bytes that live after the first `end` events, and the most before that. */
static uint64_t follow(const rpsim_layer_tensors *t, size_t end, uint64_t *peak_out)
{
    uint64_t *bytes = NULL;
    uint64_t live = 0;
    *peak_out = 0;
    cr_assert(eq(int, rp_arena_alloc(arena, t->tensors, sizeof *bytes, &bytes), RP_OK));
    for (size_t i = 0; i < end; i++) {
        const rpsim_tensor_event *e = &t->events[i];
        cr_assert(lt(u32, e->tensor, t->tensors));
        live -= bytes[e->tensor];
        bytes[e->tensor] = e->kind == RPSIM_TENSOR_ALLOC ? e->bytes : 0;
        live += bytes[e->tensor];
        *peak_out = live > *peak_out ? live : *peak_out;
    }
    return live;
}

/* The golden numbers are of PyTorch running the layers with their real sizes, not of recordings. */
Test(library_memory, layers_are_pytorchs)
{
    rp_text text = {0};
    rp_csv csv;
    const char *path = RP_TEST_ROOT "/golden/layer_tensors.csv";
    cr_assert(eq(int, rp_text_read_file(path, 65536, &text), RP_OK));
    cr_assert(eq(int, rp_csv_parse(path, text.bytes, text.length, ',', arena, &csv), RP_OK));
    cr_assert(eq(u32, csv.rows, 4));
    for (uint32_t row = 0; row < csv.rows; row++) {
        uint64_t golden[4];
        for (uint32_t i = 0; i < 4; i++) {
            golden[i] = strtoull(rp_csv_cell(&csv, row, i + 1), NULL, 10);
        }
        rp_model model = load_model(rp_csv_cell(&csv, row, 0));
        rpsim_layer_tensors t = load_tensors(&model, golden[0]);
        uint64_t peak = 0;
        uint64_t tape = follow(&t, t.backward, &peak);
        uint64_t left = follow(&t, t.count, &peak);
        double near = 1e-4 * (double)golden[2]; /* of experts, tensors of a few bytes per token */
        cr_expect(epsilon_eq(dbl, (double)tape, (double)golden[1], near), "%s", model.name);
        cr_expect(epsilon_eq(dbl, (double)peak, (double)golden[2], near), "%s", model.name);
        cr_expect(epsilon_eq(dbl, (double)left, (double)golden[3], near), "%s", model.name);
    }
    rp_text_fini(&text);
}

/* ---- jobs -------------------------------------------------------------------------------------
 */

static rpsim_library_memory run_jobs(const rp_model *model, const char *plan, bool layer_grain,
                                     uint64_t tokens, uint32_t microbatches, uint64_t limit)
{
    rp_partition partition;
    rpsim_library_memory memory;
    uint32_t calls = 1;
    cr_assert(eq(int, rp_partition_parse("test", plan, arena, &partition), RP_OK));
    rpsim_layer_tensors tensors = load_tensors(model, tokens);
    rpsim_library_run run = {.model = model,
                             .tensors = &tensors,
                             .tokens = tokens,
                             .microbatches = microbatches,
                             .layer_grain = layer_grain,
                             .gpus = 1,
                             .plans = &partition,
                             .calls = &calls,
                             .plan_count = 1};
    cr_assert(eq(int, rpsim_library_memory_of(&run, 0, limit, &memory), RP_OK));
    return memory;
}

/* Long sequences, few stages: the forward of the long stage holds most. One more layer in it is one
 * more input of two microbatches, and the layer's weights. */
Test(library_memory, inner_inputs_of_two_microbatches)
{
    rp_model model = load_model("qwen3-1.7b");
    uint64_t tokens = 65536;
    static const char backward[] = "0,2,2,2,2,2,2,2,2,2,2,2,2,2,2";
    const char *plans[2];
    uint64_t peaks[2];
    for (int i = 0; i < 2; i++) {
        cr_assert(
            eq(int, rp_arena_print(arena, &plans[i], "%d,%d|%s", 10 - i, 18 + i, backward), RP_OK));
        peaks[i] = run_jobs(&model, plans[i], true, tokens, 4, UNLIMITED).peak_live_bytes;
    }
    uint64_t layer = 2 * model.layer_parameters;
    uint64_t inputs = 2 * (2 * tokens * model.hidden);
    cr_expect(ge(u64, peaks[1] - peaks[0], layer + inputs));
    cr_expect(le(u64, peaks[1] - peaks[0], layer + inputs + 8 * 512));
    cr_expect(
        lt(u64, run_jobs(&model, plans[0], false, tokens, 4, UNLIMITED).peak_live_bytes, peaks[0]));
}

/* Tensors are never more than what is reserved; exactly what was reserved is enough, and with too
 * little it does not fit. */
Test(library_memory, limits)
{
    static const char *const models[] = {"qwen3-1.7b", "llama3.1-8b", "gpt-oss-20b",
                                         "qwen3-235b-lora"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        rp_model model = load_model(models[i]);
        const char *plan = "3|0,1,2";
        model.layers = 3;
        rpsim_library_memory all = run_jobs(&model, plan, false, 4096, 2, UNLIMITED);
        cr_expect(all.fits);
        cr_expect(lt(u64, all.peak_live_bytes, all.peak_bytes));
        cr_expect(run_jobs(&model, plan, false, 4096, 2, all.peak_bytes).fits);
        cr_expect(not(run_jobs(&model, plan, false, 4096, 2, all.peak_live_bytes / 2).fits));
        uint64_t longer = run_jobs(&model, plan, false, 8192, 2, UNLIMITED).peak_live_bytes;
        cr_expect(gt(u64, longer, all.peak_live_bytes));
    }
}
