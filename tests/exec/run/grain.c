/* Recompute grain layer (executor.md 1.3): the same bits as with grain stage, with the tape of one
 * layer at a time; the saved inputs of all layers are downloaded and uploaded. */
#include "common/base/log.h"
#include "common/program/producers.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 7u
#define SEQ_LEN 5u
#define STEPS 2u

TestSuite(exec_grain, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

/* True for all cases. A plain run tries a quarter of the GPU counts, a third of the seeds and every
 * eleventh partition. */
static bool runs_all(void)
{
    return getenv("RP_LONG") != NULL;
}

static rp_resolved work_of(const char *schedule, uint32_t gpus, uint32_t microbatches)
{
    rp_resolved work = rp_test_work(schedule, gpus, microbatches, STEPS);
    work.recompute = work.recompute == RP_RECOMPUTE_NONE ? RP_RECOMPUTE_WAIT : work.recompute;
    work.decided.layer_grain = true;
    return work;
}

/* Looped BFS and Mobius go through the microbatches of a backward in descending order: their bits
 * are those of stage grain, not of plain loops. */
Test(exec_grain, layers_give_the_bits_of_whole_stages)
{
    static const char *const names[] = {
        "roundpipe", "roundpipe-overlap", "mobius", "looped-bfs", "gpipe",     "1f1b", "eager-1f1b",
        "zb-h1",     "interleaved-1f1b",  "zb1p",   "zbv",        "dualpipev", "v-min"};
    rp_model config = rp_test_decoder(LAYERS + 1, true, true);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (uint32_t gpus = 1; gpus <= 4; gpus++) {
            if (!runs_all() && (gpus + i) % 4 != 0) {
                continue;
            }
            rp_resolved work = work_of(names[i], gpus, 2 * gpus);
            rp_test_run layers;
            rp_test_run stages;
            rp_test_run plain;
            work.decided.asynchronous =
                work.schedule->traits.placement == RP_PLACEMENT_OFFLOAD && gpus % 2 == 0;
            work.recompute = gpus == 3 ? RP_RECOMPUTE_EARLY : work.recompute;
            rp_resolved whole = work;
            whole.decided.layer_grain = false;
            cr_assert(eq(int,
                         rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &layers),
                         RP_OK));
            cr_assert(eq(int,
                         rp_test_execute(rp_test_arena, &config, SEQ_LEN, &whole, NULL, &stages),
                         RP_OK));
            cr_assert(
                eq(int, rp_test_single(rp_test_arena, &config, SEQ_LEN, &work, &plain), RP_OK));
            bool descending = i == 2 || i == 3;
            cr_expect(rp_test_same(&layers, &stages, STEPS), "%s, %u GPUs", names[i], gpus);
            cr_expect(rp_test_same(&layers, &plain, STEPS) || descending, "%s, %u GPUs", names[i],
                      gpus);
            rp_test_arena_again();
        }
    }
}

static rp_partition partition_of(uint32_t a, uint32_t b)
{
    rp_partition partition = {.forward_count = a, .backward_count = b};
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, a, sizeof(uint32_t), &partition.forward_layers),
                 RP_OK));
    cr_assert(eq(int,
                 rp_arena_alloc(rp_test_arena, b, sizeof(uint32_t), &partition.backward_layers),
                 RP_OK));
    return partition;
}

/* A fused stage with a single layer; the other stages have numbers of layers as equal as possible.
 */
static rp_partition long_stages(uint32_t a, uint32_t b)
{
    rp_partition partition = partition_of(a, b);
    uint32_t below = LAYERS - 1;
    partition.backward_layers[0] = 1;
    for (uint32_t i = 0; i < a; i++) {
        partition.forward_layers[i] = below * (i + 1) / a - below * i / a;
    }
    for (uint32_t i = 1; i < b; i++) {
        partition.backward_layers[i] = below * i / (b - 1) - below * (i - 1) / (b - 1);
    }
    return partition;
}

/* 18: N 1 to 4, M 1 to 6, 1 to 4 forward stages, 2 to 5 backward stages: 384 cases. */
Test(exec_grain, layers_never_deadlock)
{
    rp_model config = rp_test_decoder(LAYERS, false, false);
    rp_arena *references = NULL;
    rp_test_run plain[2][6];
    cr_assert(eq(int, rp_arena_create(&references), RP_OK));
    for (uint32_t i = 0; i < 12; i++) {
        rp_resolved work = work_of("roundpipe", 1, 1 + i % 6);
        work.decided.asynchronous = i / 6 == 0;
        cr_assert(
            eq(int, rp_test_single(references, &config, 2, &work, &plain[i / 6][i % 6]), RP_OK));
    }
    for (uint32_t number = 0; number < 4 * 6 * 4 * 4; number++) {
        if (!runs_all() && number % 11 != 0) {
            continue;
        }
        rp_resolved work = work_of("roundpipe", 1 + number % 4, 1 + number / 4 % 6);
        rp_partition partition = long_stages(1 + number / 24 % 4, 2 + number / 96);
        rp_test_run run;
        work.partition = &partition;
        work.decided.asynchronous = number % 2 == 0;
        cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, 2, &work, NULL, &run), RP_OK));
        cr_expect(rp_test_same(&run, &plain[number % 2][number / 4 % 6], STEPS),
                  "N %u M %u, %u | %u stages", work.gpus, work.decided.microbatches,
                  partition.forward_count, partition.backward_count);
        rp_arena_destroy(rp_test_arena); /* the references have another arena */
        rp_test_arena_begin();
    }
    rp_arena_destroy(references);
}

Test(exec_grain, random_delays_change_nothing)
{
    static const char *const names[] = {"roundpipe", "mobius", "zbv", "1f1b"};
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (uint32_t seed = 0; seed < (runs_all() ? 24 : 8); seed++) {
        rp_resolved work = work_of(names[seed % 4], seed % 4 == 2 ? 3 : 1 + seed % 3, 6);
        work.decided.asynchronous =
            work.schedule->traits.placement == RP_PLACEMENT_OFFLOAD && seed / 4 % 2 == 0;
        rp_test_twist twist = {.delay_seed = seed, .delay_us = 300};
        rp_test_run delayed;
        rp_test_run quick;
        cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &delayed),
                     RP_OK));
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &quick), RP_OK));
        cr_expect(rp_test_same(&delayed, &quick, STEPS), "%s, seed %u", names[seed % 4], seed);
        rp_test_arena_again();
    }
}

/* A backward stage of six layers needs the tape of one layer. It has as many activations in flight
 * as with grain stage: at most two in each direction (executor.md 1.3). */
Test(exec_grain, memory_falls_to_one_layers_tape)
{
    enum { TOKENS = 64 };
    static const char *const names[] = {"roundpipe", "gpipe"};
    rp_model config = rp_test_decoder(LAYERS, false, true);
    for (size_t i = 0; i < 2; i++) {
        char message[1024] = "";
        rp_test_run layers;
        rp_test_run stages;
        rp_test_run capped;
        rp_test_run refused;
        rp_resolved work = work_of(names[i], 1, 3);
        rp_partition partition = long_stages(1, 2);
        work.partition = i == 0 ? &partition : NULL;
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, TOKENS, &work, NULL, &layers), RP_OK));
        work.decided.layer_grain = false;
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, TOKENS, &work, NULL, &stages), RP_OK));
        uint64_t tape = rpexec_tape_bytes(&layers.model, 1, TOKENS);
        uint64_t boundary = (uint64_t)TOKENS * config.hidden * sizeof(float);
        /* In a resident schedule the inputs of all layers wait on the GPU, for each microbatch. */
        uint64_t waiting = i == 0 ? 4 * boundary : 3 * (LAYERS - 1) * boundary;
        cr_expect(ge(u64, stages.most_bytes + waiting, layers.most_bytes + 5 * tape), "%s: %zu %zu",
                  names[i], (size_t)stages.most_bytes, (size_t)layers.most_bytes);
        rp_test_twist twist = {.cap_bytes = layers.most_bytes};
        rp_log_capture_begin(message, sizeof message);
        cr_expect(eq(int, rp_test_execute(rp_test_arena, &config, TOKENS, &work, &twist, &refused),
                     RP_USAGE));
        work.decided.layer_grain = true;
        cr_expect(eq(int, rp_test_execute(rp_test_arena, &config, TOKENS, &work, &twist, &capped),
                     RP_OK));
        twist.cap_bytes--;
        cr_expect(eq(int, rp_test_execute(rp_test_arena, &config, TOKENS, &work, &twist, &refused),
                     RP_USAGE));
        rp_log_capture_end();
        cr_expect(rp_test_same(&layers, &capped, STEPS));
        rp_test_arena_again();
    }
}

static bool ends_before(const rpexec_plan *plan, const rpexec_value *a, const rpexec_value *b)
{
    bool before = a->first_op != RP_NO_OP && b->first_op != RP_NO_OP;
    for (uint32_t u = a->user_begin; before && u < a->user_end; u++) {
        before = rpexec_order_before(&plan->order, plan->users[u], b->first_op);
    }
    return before;
}

/* If two tensors share a byte, the first is no longer used when the second begins: all pairs are
 * tried. */
Test(exec_grain, tensors_that_share_bytes_never_meet)
{
    static const char *const names[] = {"roundpipe", "mobius", "zbv", "roundpipe-overlap"};
    rp_model config = rp_test_decoder(LAYERS + 1, true, true);
    for (uint32_t i = 0; i < 8; i++) {
        rp_test_run run;
        uint64_t shared = 0;
        uint64_t met = 0;
        rp_resolved work = work_of(names[i % 4], 2, 4);
        work.decided.accumulate = i % 4 == 2 ? 1 : 2;
        work.decided.layer_grain = i < 4;
        rp_test_twist twist = {.observe = true};
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
        const rpexec_plan *plan = &run.plan;
        for (uint32_t a = 0; a < plan->value_count; a++) {
            for (uint32_t b = a + 1; b < plan->value_count; b++) {
                const rpexec_value *x = &plan->values[a];
                const rpexec_value *y = &plan->values[b];
                if (x->place == y->place && x->offset < y->offset + y->bytes &&
                    y->offset < x->offset + x->bytes) {
                    shared++;
                    met += ends_before(plan, x, y) || ends_before(plan, y, x) ? 0 : 1;
                }
            }
        }
        cr_expect(gt(u64, shared, 0));
        cr_expect(eq(u64, met, 0), "%s", names[i % 4]);
        rp_test_forget(&run);
        rp_test_arena_again();
    }
}

/* 24: in addition to the bytes of grain stage, the input of each layer that is not the first of its
 * stage is downloaded in the forward and uploaded in the backward. */
Test(exec_grain, bytes_moved_equal_the_formula)
{
    enum { M = 6 };
    rp_model config = rp_test_decoder(LAYERS, false, true);
    rp_test_run layers;
    rp_test_run stages;
    rp_resolved work = work_of("roundpipe", 2, M);
    rp_partition partition = partition_of(2, 3); /* 2, 3 | 2 and the head, 3, 2 and the embedding */
    partition.forward_layers[0] = partition.backward_layers[2] = 2;
    partition.forward_layers[1] = partition.backward_layers[1] = 3;
    partition.backward_layers[0] = 2;
    work.partition = &partition;
    cr_assert(
        eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &layers), RP_OK));
    work.decided.layer_grain = false;
    cr_assert(
        eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &stages), RP_OK));
    uint64_t boundary = (uint64_t)SEQ_LEN * config.hidden * sizeof(float);
    uint64_t more = STEPS * M * (1 + 2) * boundary;
    cr_expect(eq(u64, layers.uploaded_bytes, stages.uploaded_bytes + more));
    cr_expect(eq(u64, layers.downloaded_bytes, stages.downloaded_bytes + more));
}
