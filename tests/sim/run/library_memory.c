/* PyTorch's allocator by its rules, recorded layers against PyTorch, the library's jobs against
 * their tensors. */
#include "sim/run/memory/library_memory.h"
#include "common/formats/csv.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "sim/run/memory/memory.h"
#include "tests/support/assertions.h"
#include "tests/support/random_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

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

Test(library_memory, pages)
{
    static const struct {
        uint64_t bytes;
        uint64_t live;
        uint64_t reserved;
    } cases[] = {{1, 512, 2 * MIB},
                 {MIB, MIB, 2 * MIB},
                 {MIB + 1, MIB + 512, 20 * MIB},
                 {20 * MIB, 20 * MIB, 20 * MIB},
                 {20 * MIB + 1, 20 * MIB + 512, 40 * MIB},
                 {1001 * MIB, 1001 * MIB, 1020 * MIB}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpsim_allocator a = make(UNLIMITED);
        rpsim_block *block = take(&a, 0, cases[i].bytes);
        cr_expect(eq(u64, a.live_bytes, cases[i].live));
        cr_expect(eq(u64, a.reserved_bytes, cases[i].reserved));
        give(&a, block);
        cr_expect(eq(u64, a.live_bytes, 0));
        cr_expect(eq(u64, a.reserved_bytes, cases[i].reserved), "pages stay mapped");
        cr_expect(eq(u64, a.peak_live_bytes, cases[i].live));
    }
}

/* A freed block is split, and joined when all its parts are free. */
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
    cr_expect(eq(u64, a.reserved_bytes, 100 * MIB));
    give(&a, longer);
    rpsim_block *best = take(&a, 0, 19 * MIB + 512); /* from the gap, not from the end */
    rpsim_block *other = take(&a, 0, 40 * MIB);
    cr_expect(eq(u64, a.reserved_bytes, 100 * MIB));
    give(&a, best);
    give(&a, part[0]);
    give(&a, part[2]);
    rpsim_block *whole = take(&a, 0, 60 * MIB);
    cr_expect(eq(u64, a.reserved_bytes, 100 * MIB));
    rpsim_block *elsewhere = take(&a, 1, 30 * MIB); /* the other stream's pool is empty */
    cr_expect(eq(u64, a.reserved_bytes, 140 * MIB));
    cr_expect(eq(u64, a.live_bytes, 130 * MIB));
    give(&a, whole);
    give(&a, other);
    give(&a, elsewhere);
    cr_expect(eq(u64, a.live_bytes, 0));
    cr_expect(eq(u64, a.flushes, 0));
}

/* A free end grows by the missing pages, which fixed segments could not: n requests, each a page
 * larger, need only the last request's pages. */
Test(library_memory, grows_at_the_end)
{
    rpsim_allocator a = make(UNLIMITED);
    for (uint64_t pages = 1; pages <= 30; pages++) {
        give(&a, take(&a, 0, pages * 20 * MIB));
        cr_expect(eq(u64, a.reserved_bytes, pages * 20 * MIB));
    }
    rpsim_block *low = take(&a, 0, 400 * MIB);
    rpsim_block *high = take(&a, 0, 300 * MIB); /* before 200 free */
    cr_expect(eq(u64, a.reserved_bytes, 700 * MIB));
    give(&a, low);
    rpsim_block *longer = take(&a, 0, 410 * MIB); /* after 400 free */
    cr_expect(eq(u64, a.reserved_bytes, 1120 * MIB));
    give(&a, high);
    give(&a, longer);
    cr_expect(ne(ptr, take(&a, 0, 1120 * MIB), NULL), "one range of addresses");
    cr_expect(eq(u64, a.reserved_bytes, 1120 * MIB));
}

/* On a full GPU free pages of all pools are given back, except those of live blocks, including the
 * free rest of the last page. */
Test(library_memory, flushes)
{
    rpsim_allocator a = make(100 * MIB);
    give(&a, take(&a, 0, 60 * MIB));
    rpsim_block *large = take(&a, 1, 80 * MIB);
    cr_expect(ne(ptr, large, NULL));
    cr_expect(eq(u64, a.reserved_bytes, 80 * MIB));
    cr_expect(eq(u64, a.flushes, 1));
    give(&a, large);
    rpsim_block *first = take(&a, 1, 30 * MIB); /* part of the 80, and keeps two pages */
    rpsim_block *other = take(&a, 0, 60 * MIB);
    cr_expect(ne(ptr, other, NULL));
    cr_expect(eq(u64, a.reserved_bytes, 100 * MIB));
    cr_expect(eq(ptr, take(&a, 0, 20 * MIB), NULL));
    cr_expect(eq(u64, a.live_bytes, 90 * MIB));
    cr_expect(ne(ptr, take(&a, 1, 10 * MIB), NULL), "the rest of a page");
    give(&a, other);
    rpsim_block *again = take(&a, 1, 60 * MIB); /* takes pages from a flush */
    cr_expect(ne(ptr, again, NULL));
    cr_expect(eq(u64, a.reserved_bytes, 100 * MIB));
    give(&a, first);
    cr_expect(eq(ptr, take(&a, 0, 40 * MIB), NULL), "10 MiB of the second page live");
    cr_expect(ne(ptr, take(&a, 0, 20 * MIB), NULL));
}

/* A flush's holes are mapped again, lowest first. */
Test(library_memory, holes_are_mapped_again)
{
    rpsim_allocator a = make(200 * MIB);
    rpsim_block *block[5];
    for (int i = 0; i < 5; i++) {
        block[i] = take(&a, 0, 40 * MIB);
    }
    give(&a, block[1]);
    give(&a, block[3]);
    rpsim_block *other = take(&a, 1, 80 * MIB);
    cr_assert(ne(ptr, other, NULL));
    give(&a, other);
    rpsim_block *low = take(&a, 0, 40 * MIB);
    cr_assert(ne(ptr, low, NULL));
    cr_expect(eq(u64, a.reserved_bytes, 160 * MIB));
    give(&a, block[0]);
    give(&a, low);
    rpsim_block *joined = take(&a, 0, 80 * MIB); /* the first hole was mapped */
    cr_expect(ne(ptr, joined, NULL));
    cr_expect(eq(u64, a.reserved_bytes, 160 * MIB));
    give(&a, block[2]);
    give(&a, block[4]);
    give(&a, joined);
    cr_expect(ne(ptr, take(&a, 0, 200 * MIB), NULL));
    cr_expect(eq(u64, a.live_bytes, 200 * MIB));
}

/* Random requests of two streams, against an allocator that only counts: live blocks fit their
 * pages, pages the limit, and no request is refused that the count allows. */
Test(library_memory, random_requests)
{
    rp_random random = {.state = 7};
    const uint64_t limit = 4000 * MIB;
    rpsim_allocator a = make(limit);
    rpsim_allocator counting = make(0);
    rpsim_block *live[40] = {0};
    rpsim_block *counted[40] = {0};
    uint32_t refused = 0;
    uint32_t enough = 0;
    counting.counts = true;
    for (int step = 0; step < 20000; step++) {
        uint32_t at = rp_random_between(&random, 0, 39);
        if (live[at] != NULL) {
            give(&a, live[at]);
            give(&counting, counted[at]);
            live[at] = NULL;
        } else {
            uint64_t bytes =
                rp_random_between(&random, 1, step % 1000 < 500 ? 90000000 : 300000000);
            live[at] = take(&a, at % 2, bytes);
            counted[at] = take(&counting, at % 2, bytes);
            refused += live[at] == NULL ? 1 : 0;
            enough += counting.reserved_bytes <= limit ? 1 : 0;
            cr_assert(live[at] != NULL || counting.reserved_bytes > limit);
            if (live[at] == NULL) {
                give(&counting, counted[at]);
            }
        }
        cr_assert(eq(u64, a.live_bytes, counting.live_bytes));
        cr_assert(le(u64, a.live_bytes, a.reserved_bytes));
        cr_assert(le(u64, a.reserved_bytes, limit));
    }
    cr_expect(gt(u32, refused, 100));
    cr_expect(gt(u32, enough, 100));
    cr_expect(gt(u64, a.flushes, 100));
    for (int at = 0; at < 40; at++) {
        if (live[at] != NULL) {
            give(&a, live[at]);
        }
    }
    cr_expect(eq(u64, a.live_bytes, 0));
    cr_expect(ne(ptr, take(&a, 0, limit), NULL));
}

/* ---- layers ---------------------------------------------------------------------------------- */

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

/* Live bytes after `end` events, and the most before. */
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

/* Golden numbers are of PyTorch running layers of real size, not of recordings. */
Test(library_memory, layers_are_pytorchs)
{
    rp_csv csv;
    const char *path = RP_TEST_ROOT "/golden/layer_tensors.csv";
    cr_assert(eq(int, rp_csv_read_file(path, arena, &csv), RP_OK));
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
        double near = 1e-4 * (double)golden[2]; /* a few bytes per token of experts */
        cr_expect(epsilon_eq(dbl, (double)tape, (double)golden[1], near), "%s", model.name);
        cr_expect(epsilon_eq(dbl, (double)peak, (double)golden[2], near), "%s", model.name);
        cr_expect(epsilon_eq(dbl, (double)left, (double)golden[3], near), "%s", model.name);
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static rpsim_library_memory run_jobs(const rp_model *model, const char *plan, bool layer_grain,
                                     uint64_t tokens, uint32_t microbatches, uint64_t limit)
{
    rp_partition partition;
    rpsim_library_memory memory;
    uint32_t calls = 1;
    cr_assert(eq(int, rp_partition_parse("test", plan, arena, &partition, NULL), RP_OK));
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

/* Long sequences, few stages: the long stage's forward holds most. Another layer in it adds an
 * input of two microbatches and the layer's weights. */
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

/* Tensors never exceed the reserved bytes; exactly these suffice, and less does not fit. */
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

/* Only GPUs with the same kinds of jobs need the same memory; each GPU is like itself. */
Test(library_memory, gpus_with_the_same_jobs)
{
    rp_model model = load_model("llama3.1-8b");
    rp_partition plan;
    uint32_t calls = 2;
    uint32_t alike = 0;
    rpsim_library_memory memory[8];
    rpsim_layer_tensors tensors = load_tensors(&model, 8192);
    cr_assert(
        eq(int, rp_partition_parse("test", "4,4,4,4,4,4,4,4|0,4,4,4,4,4,4,4,4", arena, &plan, NULL),
           RP_OK));
    rpsim_library_run run = {.model = &model,
                             .tensors = &tensors,
                             .tokens = 8192,
                             .microbatches = 2,
                             .gpus = 8,
                             .plans = &plan,
                             .calls = &calls,
                             .plan_count = 1};
    for (uint32_t gpu = 0; gpu < 8; gpu++) {
        cr_assert(eq(int, rpsim_library_memory_of(&run, gpu, 10000 * MIB, &memory[gpu]), RP_OK));
        for (uint32_t other = 0; other <= gpu; other++) {
            bool same = memory[gpu].fits == memory[other].fits &&
                        memory[gpu].peak_live_bytes == memory[other].peak_live_bytes &&
                        memory[gpu].peak_bytes == memory[other].peak_bytes;
            bool expected = rpsim_library_same(&run, gpu, other);
            alike += expected ? 1 : 0;
            cr_expect(same || !expected, "GPUs %u and %u", gpu, other);
            cr_expect(gpu != other || expected);
        }
    }
    cr_expect(gt(u32, alike, 8), "some are alike");
    cr_expect(lt(u32, alike, 36), "and some not");
    cr_expect(not(rpsim_library_same(&run, 0, 4)), "the embedding's");
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* sim/model.md section 4: nvidia-smi's total less the driver's; the context, and a system's
 * software. */
Test(library_memory, limits_of_the_4090)
{
    static const struct {
        const char *schedule;
        uint64_t software;
    } rows[] = {{"1f1b", 0}, {"fsdp", 600000000}, {"roundpipe", 3000000000}, {"mobius", 0}};
    rp_platform platform;
    cr_assert(eq(int, rp_platform_load("rtx4090x8", arena, &platform), RP_OK));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const rp_traits *traits = &rp_schedule_find(rows[i].schedule)->traits;
        rpsim_memory_limits limits = rpsim_memory_limits_of(&platform, traits, 8);
        double usable = 24564.0 * (1 << 20) - 0.41 * (1 << 30);
        cr_expect(epsilon_eq(dbl, (double)limits.gpu_bytes, usable, 2));
        cr_expect(eq(u64, limits.gpu_fixed_bytes, 750000000 + (32u << 20) + rows[i].software), "%s",
                  rows[i].schedule);
        cr_expect(eq(u64, limits.host_bytes, UINT64_C(800000000000)));
        cr_expect(eq(u64, limits.host_fixed_bytes, 0));
    }
    platform.usable_memory_gb = 25.5;
    const rp_traits *traits = &rp_schedule_find("1f1b")->traits;
    cr_expect(eq(u64, rpsim_memory_limits_of(&platform, traits, 8).gpu_bytes, 25500000000));
    platform.usable_memory_gb = 0;
    platform.memory_gb = 0.4; /* less than the reserve */
    cr_expect(eq(u64, rpsim_memory_limits_of(&platform, traits, 8).gpu_bytes, 0));
}
