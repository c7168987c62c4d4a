/* The host's passes by a pool's threads, against plain functions and the same work in one thread:
 * the same bits for any number of threads, in all types, with odd sizes and places, with overflows,
 * a tied table and adapters; and fused steps (a single pass) against steps in three passes. */
#include "exec/state/pass.h"

#include "exec/operators/random.h"
#include "exec/pool/numa.h"
#include "exec/state/state.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/exec_watch.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

TestSuite(exec_pool, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 60);

static const uint32_t THREADS[] = {1, 2, 3, 7};
enum { THREAD_CASES = sizeof THREADS / sizeof THREADS[0] };

static rpexec_pool *pool_of(uint32_t threads)
{
    rpexec_pool *pool = NULL;
    cr_assert(eq(int, rpexec_pool_create(threads, rp_test_arena, &pool), RP_OK));
    return pool;
}

static void *taken(uint64_t bytes)
{
    void *array = NULL;
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, bytes, 1, &array), RP_OK));
    return array;
}

/* ---- passes against plain functions ---------------------------------------------------------- */

/* An odd size of more than two pieces. Arrays begin at odd places and end with a guard. */
enum { MOST = 2 * (1 << 18) + 12345, SHIFT = 3, GUARD = 64 };

typedef struct arrays {
    void *slot, *other, *working, *copy;
    float *g, *p, *m, *v;
} arrays;

static arrays new_arrays(rp_dtype dtype)
{
    void *all[8];
    for (size_t i = 0; i < 8; i++) {
        size_t width = i < 4 ? rp_dtype_bytes(dtype) : sizeof(float);
        unsigned char *array = taken((SHIFT + MOST + GUARD) * width);
        all[i] = array + SHIFT * width;
        memset(all[i], 0x5a, (MOST + GUARD) * width);
    }
    return (arrays){all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7]};
}

/* Finite values with subnormals among them; in fp32 values of every size. */
static void fill(rp_dtype dtype, const arrays *a)
{
    for (uint64_t i = 0; i < MOST; i++) {
        uint64_t bits = rpexec_random_bits(1, 2, i);
        uint16_t half[2] = {(uint16_t)(bits & 0xbbff), (uint16_t)(bits >> 16 & 0xbbff)};
        float wide[2] = {(float)(int16_t)bits * 1e-4f, (float)(int16_t)(bits >> 16) * 1e-5f};
        bool is_wide = dtype == RP_DTYPE_F32;
        size_t width = rp_dtype_bytes(dtype);
        memcpy((char *)a->slot + i * width, is_wide ? (void *)&wide[0] : &half[0], width);
        memcpy((char *)a->other + i * width, is_wide ? (void *)&wide[1] : &half[1], width);
        a->p[i] = (float)(int32_t)(bits >> 32) * 0x1p-30f;
        a->m[i] = (float)(int16_t)(bits >> 40) * 1e-7f;
        a->v[i] = (float)(bits >> 50) * 1e-9f;
    }
    a->p[5] = NAN;
    a->p[1000] = 1e30f;
    a->p[MOST - 1] = -INFINITY;
}

static bool same(const arrays *a, const arrays *b, rp_dtype dtype)
{
    const void *const in_a[] = {a->slot, a->other, a->working, a->copy, a->g, a->p, a->m, a->v};
    const void *const in_b[] = {b->slot, b->other, b->working, b->copy, b->g, b->p, b->m, b->v};
    bool equal = true;
    for (size_t i = 0; i < 8; i++) {
        size_t width = i < 4 ? rp_dtype_bytes(dtype) : sizeof(float);
        equal &= memcmp(in_a[i], in_b[i], (MOST + GUARD) * width) == 0;
    }
    return equal;
}

static void expect_passes(rp_dtype dtype, uint64_t count, rpexec_pool *pool, const arrays *a,
                          const arrays *b)
{
    const rpexec_adam adam = {.lr = 1e-2,
                              .beta1 = 0.9,
                              .beta2 = 0.99,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .decoupled = true};
    const rpexec_adam_factors f = rpexec_adam_factors_of(&adam, 3);
    const rpexec_adam_slice ours = {a->p, a->g, a->m, a->v, count};
    const rpexec_adam_slice right = {b->p, b->g, b->m, b->v, count};
    rpexec_pass_step step = {dtype, a->slot, a->other, 8, ours, a->working, a->copy};
    fill(dtype, a);
    fill(dtype, b);
    cr_expect(rpexec_pass_collect(pool, dtype, count, a->slot, 8, false, a->g));
    cr_expect(rpexec_pass_collect(pool, dtype, count, a->other, 8, true, a->g));
    (void)rpexec_unscale(dtype, count, b->slot, 8, false, b->g);
    (void)rpexec_unscale(dtype, count, b->other, 8, true, b->g);
    cr_expect(same(a, b, dtype), "%s, %lu: collect", rp_dtype_text(dtype), count);
    rpexec_pass_adam(pool, &f, &ours);
    rpexec_adam_update(&f, &right);
    cr_expect(same(a, b, dtype), "%s, %lu: Adam", rp_dtype_text(dtype), count);
    rpexec_pass_refresh(pool, dtype, count, a->p, a->working);
    rpexec_narrow(dtype, count, b->p, b->working);
    cr_expect(same(a, b, dtype), "%s, %lu: refresh", rp_dtype_text(dtype), count);
    step.slice.gradients = NULL;
    rpexec_pass_run_step(pool, &f, &step);
    rpexec_adam_update(&f, &right); /* uses the gradients collected above */
    rpexec_narrow(dtype, count, b->p, b->working);
    rpexec_narrow(dtype, count, b->p, b->copy);
    cr_expect(same(a, b, dtype), "%s, %lu: one pass", rp_dtype_text(dtype), count);
    rpexec_pass_zero(pool, count, rp_dtype_bytes(dtype), a->working);
    memset(b->working, 0, count * rp_dtype_bytes(dtype));
    cr_expect(same(a, b, dtype), "%s, %lu: zeroes", rp_dtype_text(dtype), count);
}

Test(exec_pool, passes_are_the_plain_functions)
{
    static const uint64_t counts[] = {1, 1023, (1 << 18) + 1, MOST};
    for (int d = 0; d < RP_DTYPE_COUNT; d++) {
        rp_dtype dtype = (rp_dtype)d;
        const arrays a = new_arrays(dtype);
        const arrays b = new_arrays(dtype);
        for (size_t i = 0; i < THREAD_CASES; i++) {
            rpexec_pool *pool = i == 0 ? NULL : pool_of(THREADS[i]);
            for (size_t k = i == 1 ? 0 : 3; k < 4; k++) {
                expect_passes(dtype, counts[k], pool, &a, &b);
            }
        }
    }
}

Test(exec_pool, an_overflow_is_seen_wherever_it_is)
{
    static const uint64_t places[] = {0, (1 << 18) - 1, 1 << 18, MOST - 1};
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7e01, 0x7c01};
    const arrays a = new_arrays(RP_DTYPE_F16);
    uint16_t *slot = a.slot;
    rpexec_pool *pool = pool_of(3);
    rpexec_squares sum = {0};
    fill(RP_DTYPE_F16, &a);
    rpexec_pass_squares(pool, RP_DTYPE_F16, MOST, slot, NULL, 2, &sum);
    cr_expect(eq(u64, sum.not_finite, 0));
    for (size_t i = 0; i < 4; i++) {
        uint16_t good = slot[places[i]];
        slot[places[i]] = bad[i];
        sum = (rpexec_squares){0};
        rpexec_pass_squares(pool, RP_DTYPE_F16, MOST, slot, NULL, 2, &sum);
        cr_expect(eq(u64, sum.not_finite, 1));
        cr_expect(not(rpexec_pass_collect(pool, RP_DTYPE_F16, MOST, slot, 2, i % 2 == 0, a.g)));
        slot[places[i]] = good;
        memset(a.g, 0, MOST * sizeof *a.g);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

typedef struct record {
    pthread_t by[8];
    uint32_t times[8];
} record;

static void note(void *context, uint64_t first, uint64_t count)
{
    record *r = context;
    r->by[first / RPEXEC_POOL_PIECE] = pthread_self();
    r->times[first / RPEXEC_POOL_PIECE] += count == RPEXEC_POOL_PIECE ? 1 : 0;
}

/* Each NUMA node has its own contiguous half of the pieces, in every pass. */
Test(exec_pool, nodes_have_their_own_pieces)
{
    static rpexec_numa_node nodes[RPEXEC_MAX_NUMA_NODES];
    setenv("HWLOC_SYNTHETIC", "numa:2 pu:1", 1);
    if (rpexec_numa_find(nodes) != 2) {
        cr_skip_test("built without hwloc, or on one processor");
    }
    cr_expect(eq(u32, nodes[0].processors, 1));
    cr_expect(eq(u64, nodes[0].mask[0] & nodes[1].mask[0], 0));
    rpexec_pool *pool = pool_of(2);
    for (int i = 0; i < 5; i++) {
        record r = {0};
        rpexec_pool_run(pool, 8 * RPEXEC_POOL_PIECE, note, &r);
        for (size_t k = 0; k < 8; k++) {
            cr_expect(eq(u32, r.times[k], 1));
            cr_expect(pthread_equal(r.by[k], r.by[k / 4 * 4]) != 0, "piece %zu", k);
            cr_expect(pthread_equal(r.by[k], pthread_self()) == 0);
        }
        cr_expect(pthread_equal(r.by[0], r.by[4]) == 0);
    }
}

static uint32_t closed[2];
static uint32_t closed_count;

static void close_one(void *context)
{
    closed[closed_count++] = *(const uint32_t *)context;
}

/* An arena calls the functions that end a pool's threads while its memory is still there; the
 * function added last runs first. */
Test(exec_pool, an_arena_ends_what_it_holds)
{
    rp_arena *arena = NULL;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t *number = NULL;
        cr_assert(eq(int, rp_arena_alloc(arena, 1, sizeof *number, &number), RP_OK));
        *number = 10 + i;
        cr_assert(eq(int, rp_arena_at_end(arena, close_one, number), RP_OK));
    }
    rp_arena_destroy(arena);
    cr_expect(eq(u32, closed_count, 2));
    cr_expect(eq(u32, closed[0], 11));
    cr_expect(eq(u32, closed[1], 10));
}

/* An eighth of the processors is left to the threads that submit. */
Test(exec_pool, leaves_processors_to_the_queues)
{
    cr_expect(eq(u32, rpexec_pool_threads(1), 1));
    cr_expect(eq(u32, rpexec_pool_threads(7), 7));
    cr_expect(eq(u32, rpexec_pool_threads(8), 7));
    cr_expect(eq(u32, rpexec_pool_threads(128), 112));
}

/* ---- steps of a state ------------------------------------------------------------------------ */

/* A model with layers of several pieces: a wide MLP, a large vocabulary. */
static rp_model wide_model(bool tied, uint32_t rank)
{
    rp_model m = rp_test_decoder(1, tied, true);
    m.vocab = rank == 0 ? 10001 : 97;
    m.intermediate = rank == 0 ? 3001 : 7001;
    m.mlp_parameters = (uint64_t)3 * m.hidden * m.intermediate;
    m.lora_rank = rank;
    m.lora_alpha = rank;
    return m;
}

/* Fills a tensor with its initial numbers in a single call. */
static void fill_whole(const rpexec_tensor *t, uint64_t seed, uint64_t stream, float *to)
{
    uint64_t count = t->rows * t->columns;
    double residual = 0.02 / sqrt(2.0 * 1); /* the model has a single layer */
    switch (t->initial) {
    case RPEXEC_INITIAL_ZEROS:
        return;
    case RPEXEC_INITIAL_ONES:
        for (uint64_t i = 0; i < count; i++) {
            to[i] = 1;
        }
        return;
    case RPEXEC_INITIAL_UNIFORM:
        rpexec_random_uniform_from(seed, stream, 1 / sqrt((double)t->columns), 0, count, to);
        return;
    case RPEXEC_INITIAL_RESIDUAL:
        rpexec_random_normal(seed, stream, residual, count, to);
        return;
    case RPEXEC_INITIAL_NORMAL:
        rpexec_random_normal(seed, stream, 0.02, count, to);
        return;
    }
}

/* Tensors of several pieces, with normal and uniform numbers, are the same as from a single stream.
 */
Test(exec_pool, initial_weights_are_the_same_bits)
{
    for (uint32_t rank = 0; rank <= 32; rank += 32) {
        rpexec_model model;
        rp_model config = wide_model(false, rank);
        config.intermediate = 9001;
        config.mlp_parameters = (uint64_t)3 * config.hidden * config.intermediate;
        cr_assert(
            eq(int, rpexec_model_create(&config, 3, RP_DTYPE_F32, rp_test_arena, &model), RP_OK));
        uint64_t longest = 0;
        float *ours = taken(model.block.floats * sizeof *ours);
        float *right = taken(model.block.floats * sizeof *right);
        memset(ours, 0x5a, model.block.floats * sizeof *ours);
        rpexec_model_initialise(&model, 1, 7, true, pool_of(3), ours);
        for (uint32_t i = 0; i < model.block.tensor_count; i++) {
            const rpexec_tensor *t = &model.block.tensors[i];
            uint64_t values = t->rows * t->columns;
            fill_whole(t, 7, UINT64_C(1) << 16 | i, right + t->offset);
            longest = values > longest ? values : longest;
        }
        cr_expect(eq(int, memcmp(ours, right, model.block.floats * sizeof *ours), 0));
        cr_expect(gt(u64, longest, RPEXEC_POOL_PIECE));
    }
}

/* The hash does not depend on the number of threads. Each bit counts, in the first piece and in the
 * last, and so does its place. */
Test(exec_pool, a_hash_is_of_the_bits_alone)
{
    rpexec_model model;
    rpexec_state s;
    const rp_model config = wide_model(false, 0);
    cr_assert(
        eq(int, rpexec_model_create(&config, 3, RP_DTYPE_BF16, rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_state_create(&model, rp_test_arena, &s), RP_OK));
    cr_assert(eq(int, rpexec_state_initialise(&s, 7, true), RP_OK));
    uint64_t values = s.trained[model.layer_count];
    cr_assert(gt(u64, values, 3 * RPEXEC_POOL_PIECE));
    s.pool = NULL;
    const uint64_t expected = rpexec_state_hash(&s);
    for (size_t i = 1; i < THREAD_CASES; i++) {
        s.pool = pool_of(THREADS[i]);
        cr_expect(eq(u64, rpexec_state_hash(&s), expected), "%u threads", THREADS[i]);
    }
    const uint64_t places[] = {0, 1, RPEXEC_POOL_PIECE - 1, RPEXEC_POOL_PIECE, values - 17};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        unsigned char *const bytes[] = {(unsigned char *)&s.master[places[i]],
                                        (unsigned char *)s.working + 2 * places[i]};
        for (size_t k = 0; k < 2; k++) {
            *bytes[k] ^= 1;
            cr_expect(ne(u64, rpexec_state_hash(&s), expected), "value %lu", places[i]);
            *bytes[k] ^= 1;
        }
        float kept = s.master[places[i]];
        s.master[places[i]] = s.master[values / 2];
        s.master[values / 2] = kept;
        cr_expect(ne(u64, rpexec_state_hash(&s), expected), "value %lu", places[i]);
        s.master[values / 2] = s.master[places[i]];
        s.master[places[i]] = kept;
    }
    cr_expect(eq(u64, rpexec_state_hash(&s), expected));
}

static void deliver(rpexec_state *s, uint64_t step, bool overflow)
{
    uint64_t values = s->trained[s->model->layer_count];
    float *wide = taken(values * sizeof *wide);
    for (uint64_t i = 0; i < values; i++) {
        wide[i] = (float)(int16_t)rpexec_random_bits(9, step, i) * 1e-3f;
    }
    if (overflow) {
        wide[values / 2 + 1] = INFINITY;
    }
    rpexec_narrow(s->model->dtype, values, wide, s->slots);
}

/* Takes three steps; in fp16 the second step is skipped. */
static rpexec_state stepped(const rpexec_model *model, rpexec_pool *pool, bool fused)
{
    rpexec_state s;
    const rpexec_adam adam = rpexec_adam_defaults();
    cr_assert(eq(int, rpexec_state_create(model, rp_test_arena, &s), RP_OK));
    s.pool = pool;
    cr_assert(eq(int, rpexec_state_initialise(&s, 7, true), RP_OK));
    rpexec_state_fuse(&s, fused);
    for (uint64_t step = 1; step <= 3; step++) {
        float scale = s.scaler.next;
        deliver(&s, step, step == 2 && model->dtype == RP_DTYPE_F16);
        for (uint32_t layer = model->layer_count; layer-- > 0;) {
            rpexec_state_collect(&s, layer, scale);
            rpexec_state_measure(&s, layer);
        }
        rpexec_state_optimise(&s, &adam);
        for (uint32_t layer = 0; layer < model->layer_count; layer++) {
            rpexec_state_refresh(&s, layer);
        }
    }
    return s;
}

static bool same_state(const rpexec_state *a, const rpexec_state *b)
{
    uint32_t layers = a->model->layer_count;
    size_t bytes = a->trained[layers] * sizeof(float);
    return memcmp(a->master, b->master, bytes) == 0 && memcmp(a->m, b->m, bytes) == 0 &&
           memcmp(a->v, b->v, bytes) == 0 && a->step == b->step && a->skipped == b->skipped &&
           memcmp(&a->scaler, &b->scaler, sizeof a->scaler) == 0 &&
           memcmp(a->working, b->working, a->offsets[layers] * rp_dtype_bytes(a->model->dtype)) ==
               0;
}

static void expect_steps(rp_dtype dtype, bool tied, uint32_t rank)
{
    rpexec_model model;
    rp_model config = wide_model(tied, rank);
    cr_assert(eq(int, rpexec_model_create(&config, 3, dtype, rp_test_arena, &model), RP_OK));
    cr_assert(gt(u64, rpexec_pool_pieces(rpexec_model_trained(&model, 1, 2)), 1));
    const rpexec_state right = stepped(&model, NULL, false);
    cr_expect(eq(u64, right.step, dtype == RP_DTYPE_F16 ? 2 : 3));
    for (size_t i = 0; i < THREAD_CASES; i++) {
        const rpexec_state ours = stepped(&model, pool_of(THREADS[i]), i % 2 == 1);
        cr_expect(same_state(&ours, &right), "%s, tied %d, rank %u, %u threads",
                  rp_dtype_text(dtype), tied, rank, THREADS[i]);
    }
    const rpexec_state alone = stepped(&model, NULL, true);
    cr_expect(same_state(&alone, &right), "%s, tied %d, rank %u, one pass", rp_dtype_text(dtype),
              tied, rank);
}

Test(exec_pool, steps_are_the_same_bits)
{
    for (int d = 0; d < RP_DTYPE_COUNT; d++) {
        expect_steps((rp_dtype)d, true, 0);
    }
    expect_steps(RP_DTYPE_F32, false, 0);
    expect_steps(RP_DTYPE_F16, true, 16);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* A scale so large that some steps of fp16 are skipped. */
static void scale_up(void *context, rp_arena *in, rp_test_run *run)
{
    (void)context;
    (void)in;
    if (run->model.dtype == RP_DTYPE_F16) {
        run->state.scaler = (rpexec_scaler){.scale = 0x1p22f, .next = 0x1p22f};
    }
}

/* Runs `work` with gradients kept and with gradients dropped, and expects the same state. @return
 * true if the second run has no gradients, because its steps were fused into a single pass */
static bool fuses(const rp_resolved *work, rp_dtype dtype, bool tied)
{
    rp_model config = rp_test_decoder(2, tied, true);
    rp_test_twist twist = {.dtype = dtype, .prepare = scale_up};
    rp_test_run kept;
    rp_test_run dropped;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, 5, work, &twist, &kept), RP_OK));
    twist.drops_gradients = true;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, 5, work, &twist, &dropped), RP_OK));
    cr_expect(same_state(&kept.state, &dropped.state), "%s, %s", work->schedule->name,
              rp_dtype_text(dtype));
    cr_expect(
        eq(int, memcmp(kept.losses, dropped.losses, work->decided.iterations * sizeof *kept.losses),
           0));
    cr_expect(dtype != RP_DTYPE_F16 || (kept.state.skipped > 0 && kept.state.step > 0));
    uint64_t values = kept.state.trained[kept.model.layer_count];
    bool empty = true;
    for (uint64_t i = 0; i < values; i++) {
        empty &= dropped.state.gradients[i] == 0;
    }
    return empty;
}

/* Steps are fused in synchronous runs with weights on the host, and only there; all runs have the
 * same bits. */
Test(exec_pool, runs_fuse_where_they_may)
{
    static const struct {
        const char *name;
        bool asynchronous;
        uint32_t calls;
        bool fused;
    } cases[] = {{"roundpipe", false, 1, true},    {"mobius", false, 2, true},
                 {"fsdp-offload", false, 1, true}, {"zero-infinity", false, 1, false},
                 {"roundpipe", true, 1, false},    {"roundpipe-overlap", false, 2, false}};
    for (uint32_t i = 0; i < 6 * 3; i++) {
        rp_resolved work = rp_test_work(cases[i / 3].name, 2, 4, 8);
        work.decided.asynchronous = cases[i / 3].asynchronous;
        work.decided.accumulate = cases[i / 3].calls;
        bool fused = fuses(&work, (rp_dtype)(i % 3), i % 2 == 0);
        cr_expect(eq(int, fused, cases[i / 3].fused), "%s", cases[i / 3].name);
    }
}
