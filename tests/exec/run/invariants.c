/* Invariants that hold for every order of the threads (executor.md section 3): delays change
 * nothing, nothing deadlocks, failures end cleanly, memory stays below its cap, and the bytes moved
 * are those of the formula. */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 7u
#define SEQ_LEN 5u

TestSuite(exec_invariants, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

/* A plain run has 7 seeds, 5 slow runs and every eleventh partition. */
static bool runs_all(void)
{
    return getenv("RP_LONG") != NULL;
}

/* 20: 100 seeds. */
Test(exec_invariants, random_delays_change_nothing)
{
    static const char *const names[] = {"roundpipe", "1f1b", "zbv", "roundpipe-overlap"};
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (uint64_t seed = 0; seed < (runs_all() ? 100 : 20); seed += runs_all() ? 1 : 3) {
        rp_resolved work = rp_test_work(names[seed % 4], seed % 4 == 2 ? 3 : 1 + seed % 3, 6, 2);
        work.decided.asynchronous = seed / 4 % 2 == 0;
        work.decided.accumulate = seed % 4 == 0 ? 1 + seed / 8 % 2 : 1;
        rp_test_twist twist = {.delay_seed = seed, .delay_us = 300};
        rp_test_run delayed;
        rp_test_run plain;
        rp_resolved same = work;
        same.decided.asynchronous &= work.schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
        cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &delayed),
                     RP_OK));
        cr_assert(eq(int, rp_test_single(rp_test_arena, &config, SEQ_LEN, &same, &plain), RP_OK));
        cr_expect(rp_test_same(&delayed, &plain, 2), "%s, seed %u", work.schedule->name,
                  (unsigned)seed);
        rp_test_arena_again();
    }
}

/* 10 and 11: a slow host or slow transfers, with any overlap. With two GPUs and a tied table the
 * next step's head may deliver its gradient before this step's embedding is collected. */
Test(exec_invariants, slow_hosts_and_links_change_nothing)
{
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (uint32_t number = runs_all() ? 0 : 1; number < (runs_all() ? 24 : 6); number++) {
        rp_resolved work = rp_test_work("roundpipe", 1 + number % 4, 2 + number % 3, 2);
        work.decided.asynchronous = number % 6 != 5;
        work.decided.iterations = 5;
        rp_test_twist twist = {.delay_seed = number,
                               .delay_us = number % 2 == 0 ? 3000 : 300,
                               .delay_classes =
                                   number % 2 == 0 ? 1 << RP_CLASS_HOST : 1 << RP_CLASS_TRANSFER};
        rp_test_run slow;
        rp_test_run plain;
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &slow), RP_OK));
        cr_assert(eq(int, rp_test_single(rp_test_arena, &config, SEQ_LEN, &work, &plain), RP_OK));
        cr_expect(rp_test_same(&slow, &plain, 5), "%u", number);
        rp_test_arena_again();
    }
}

/* Makes `a` forward stages and then `b` backward stages; the first backward stage has the rest of
 * the layers. */
static bool make_partition(uint32_t a, uint32_t b, rp_partition *partition)
{
    uint32_t fused = LAYERS - (b - 1); /* the other backward stages have a layer each */
    uint32_t below = LAYERS - fused;
    if (below < a || (a == 0) != (below == 0)) {
        return false;
    }
    *partition = (rp_partition){.forward_count = a, .backward_count = b};
    cr_assert(eq(int,
                 rp_arena_alloc(rp_test_arena, a, sizeof(uint32_t), &partition->forward_layers),
                 RP_OK));
    cr_assert(eq(int,
                 rp_arena_alloc(rp_test_arena, b, sizeof(uint32_t), &partition->backward_layers),
                 RP_OK));
    for (uint32_t i = 0; i < a; i++) {
        partition->forward_layers[i] = below * (i + 1) / a - below * i / a;
    }
    for (uint32_t i = 0; i < b; i++) {
        partition->backward_layers[i] = i == 0 ? fused : 1;
    }
    return true;
}

/* 18: N 1 to 4, M 1 to 6, 0 to 5 forward stages, 1 to 6 backward stages. */
Test(exec_invariants, roundpipe_never_deadlocks)
{
    rp_model config = rp_test_decoder(LAYERS, false, false);
    uint32_t runs = 0;
    for (uint32_t number = 0; number < 4 * 6 * 6 * 6; number++) {
        rp_resolved work = rp_test_work("roundpipe", 1 + number % 4, 1 + number / 4 % 6, 2);
        rp_partition partition;
        bool runs_now = runs_all() || number % 11 == 0;
        if (!runs_now || !make_partition(number / 24 % 6, 1 + number / 144, &partition)) {
            continue;
        }
        rp_test_run run;
        rp_test_run plain;
        work.partition = &partition;
        work.decided.asynchronous = number % 2 == 0;
        cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, 2, &work, NULL, &run), RP_OK));
        cr_assert(eq(int, rp_test_single(rp_test_arena, &config, 2, &work, &plain), RP_OK));
        cr_expect(rp_test_same(&run, &plain, 2), "N %u M %u, %u | %u stages", work.gpus,
                  work.decided.microbatches, partition.forward_count, partition.backward_count);
        runs++;
        rp_test_arena_again();
    }
    /* 16 pairs of numbers of stages: 0 forward and 1 backward, or 1 to 5 forward and 2 to 6
     * backward, with no more forward stages than layers. */
    cr_expect(runs_all() ? runs == 24 * 16 : runs > 24 * 16 / 13, "%u runs", runs);
}

/* 19 */
Test(exec_invariants, injected_failures_end_the_run)
{
    static const struct {
        const char *schedule;
        rp_op_kind kind;
    } cases[] = {
        {"roundpipe", RP_OP_FORWARD},
        {"roundpipe", RP_OP_RECOMPUTE},
        {"roundpipe", RP_OP_BACKWARD},
        {"roundpipe", RP_OP_UPLOAD_PARAMS},
        {"roundpipe", RP_OP_UPLOAD_ACT},
        {"roundpipe", RP_OP_UPLOAD_GRAD},
        {"roundpipe", RP_OP_DOWNLOAD_ACT},
        {"roundpipe", RP_OP_DOWNLOAD_GRAD},
        {"roundpipe", RP_OP_OPTIMIZER},
        {"roundpipe", RP_OP_DOWNLOAD_PARAM_GRAD},
        {"roundpipe", RP_OP_REFRESH},
        {"roundpipe", RP_OP_COLLECT},
        {"zbv", RP_OP_BACKWARD_WEIGHT},
        {"zbv", RP_OP_BACKWARD_INPUT},
        {"1f1b", RP_OP_UPDATE},
    };
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[1024] = "";
        rp_test_run run;
        rp_resolved work = rp_test_work(cases[i].schedule, 3, 6, 2);
        rp_test_twist twist = {.fails = true, .fail_kind = cases[i].kind};
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_TOOL), "%s", rp_op_kind_text(cases[i].kind));
        cr_expect(strstr(message, rp_op_kind_text(cases[i].kind)) != NULL, "%s", message);
        cr_expect(strstr(message, "stage ") != NULL, "%s", message);
        cr_expect(strstr(message, "microbatch ") != NULL, "%s", message);
        rp_test_arena_again();
    }
}

Test(exec_invariants, the_watchdog_says_who_waits_for_whom)
{
    char message[8192] = "";
    rp_test_run run;
    rp_model config = rp_test_decoder(LAYERS, true, true);
    rp_resolved work = rp_test_work("1f1b", 2, 4, 2);
    rp_test_twist twist = {.delay_us = 60000000, .delay_seed = 3, .watchdog_s = 1};
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_BROKEN));
    cr_expect(strstr(message, "who waits for whom") != NULL, "%s", message);
    cr_expect(strstr(message, " waits for ") != NULL, "%s", message);
}

/* 21: the planned memory is enough, and one byte less is refused before anything runs. */
Test(exec_invariants, memory_stays_below_its_cap)
{
    static const char *const names[] = {"roundpipe", "1f1b", "zb-h1"};
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (size_t i = 0; i < 3; i++) {
        char message[1024] = "";
        rp_test_run run;
        rp_test_run capped;
        rp_resolved work = rp_test_work(names[i], 3, 6, 2);
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run), RP_OK));
        rp_test_twist twist = {.cap_bytes = run.most_bytes};
        cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &capped),
                     RP_OK));
        cr_expect(rp_test_same(&run, &capped, 2));
        twist.cap_bytes--;
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &capped);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_USAGE));
        cr_expect(strstr(message, "bytes beyond its end") != NULL, "%s", message);
        rp_test_arena_again();
    }
}

/* 24: uploads = 2 sums of ordinary layers' weights + weights of fused layers + M (boundary inputs +
 * saved inputs + gradients); downloads = gradients + M (outputs + input gradients + extra saved
 * inputs). */
Test(exec_invariants, bytes_moved_equal_the_formula)
{
    enum { M = 6, STEPS = 2 };
    rp_model config = rp_test_decoder(LAYERS, false, true);
    rp_partition partition;
    rp_resolved work = rp_test_work("roundpipe", 2, M, 2);
    rp_test_run run;
    cr_assert(make_partition(2, 3, &partition)); /* 1, 1 | 5 and the head, 1, 1 and the embedding */
    work.partition = &partition;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run), RP_OK));
    uint64_t embedding = run.model.embedding.floats * sizeof(float);
    uint64_t block = run.model.block.floats * sizeof(float);
    uint64_t head = run.model.head.floats * sizeof(float);
    uint64_t boundary = (uint64_t)SEQ_LEN * config.hidden * sizeof(float);
    uint64_t ids = SEQ_LEN * sizeof(int32_t);
    uint64_t weights_up = 2 * (embedding + 2 * block) + 5 * block + head;
    /* Forwards: ids and a boundary. Fused: a boundary and labels. Backwards: a saved input and a
     * gradient; ids and a gradient. */
    uint64_t up =
        weights_up + M * ((ids + boundary) + (boundary + ids) + 2 * boundary + (ids + boundary));
    /* Forwards: an output each, since no backward stage begins inside of a forward stage.
     * Backwards: the input gradients of the fused stage and of the next stage. */
    uint64_t down = embedding + LAYERS * block + head + M * (2 * boundary + 2 * boundary);
    cr_expect(eq(u64, run.uploaded_bytes, STEPS * up));
    cr_expect(eq(u64, run.downloaded_bytes, STEPS * down));
}
