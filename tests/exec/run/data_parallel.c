/* Data-parallel systems on the host backend: with any sharding and placement of state they train as
 * one device does, and move the bytes of the closed forms. */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 4u
#define SEQ_LEN 6u

TestSuite(exec_sharded, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

/* A plain run has a sample of all systems, numbers of GPUs and variants. */
static bool runs_all(void)
{
    return getenv("RP_LONG") != NULL;
}

/* Freezes every layer except for adapters, which have shares of their own. */
static void adapt(rp_model *config)
{
    rp_model_set_lora_rank(config, 3);
    config->lora_alpha = 6;
}

static const char *const systems[] = {"zero2",         "zero3", "zero-offload",
                                      "zero-infinity", "fsdp",  "fsdp-offload"};
enum { SYSTEMS = sizeof systems / sizeof systems[0], FSDP = 4 };

static void run_it(const rp_model *config, const rp_resolved *work, const rp_test_twist *twist,
                   rp_test_run *run)
{
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, twist, run), RP_OK),
              "%s", work->schedule->name);
}

/* Compares the gradients of a step and the losses of three steps. Ranks add up in another order
 * than one device. */
Test(exec_sharded, all_of_them_train_as_one_device_does)
{
    static const uint32_t gpus[] = {1, 2, 3, 5, 8};
    static const rp_recompute modes[] = {RP_RECOMPUTE_WAIT, RP_RECOMPUTE_NONE, RP_RECOMPUTE_EARLY};
    for (uint32_t number = 0; number < SYSTEMS * 5; number++) {
        uint32_t mix = number + number / SYSTEMS; /* combines each system with all variants below */
        if (!runs_all() && mix % 5 > 1) {
            continue;
        }
        rp_model config = rp_test_decoder(LAYERS, mix % 2 == 0, mix % 3 == 0);
        rp_resolved work = rp_test_work(systems[number % SYSTEMS], gpus[number / SYSTEMS], 0, 1);
        if (mix % 4 == 1) {
            adapt(&config);
        }
        work.decided.microbatches = work.gpus * (1 + mix % 3);
        work.recompute = modes[mix % 3];
        uint32_t layers[] = {1, 3, 0}; /* the last stage has only the head */
        const rp_partition partition = {.forward_count = 3, .forward_layers = layers};
        work.partition = mix % 4 == 3 ? &partition : NULL;
        for (work.decided.iterations = 1; work.decided.iterations <= 3;
             work.decided.iterations += 2) {
            rp_test_run plain;
            rp_test_run run;
            cr_assert(
                eq(int, rp_test_single(rp_test_arena, &config, SEQ_LEN, &work, &plain), RP_OK));
            run_it(&config, &work, NULL, &run);
            for (uint32_t i = 0; i < work.decided.iterations; i++) {
                double error = fabs(run.losses[i] - plain.losses[i]) / fabs(plain.losses[i]);
                cr_expect(error <= 1e-5, "%s on %u GPUs: loss %u differs by %g",
                          work.schedule->name, work.gpus, i, error);
            }
            double distance = work.decided.iterations == 1 ? rp_test_distance(&run, &plain) : 0;
            cr_expect(distance <= 1e-5, "%s on %u GPUs: %g", work.schedule->name, work.gpus,
                      distance);
        }
        rp_test_arena_again();
    }
}

/* With a single microbatch per rank all systems add up in the same order. With several
 * microbatches, the systems that reduce after each microbatch still do. */
Test(exec_sharded, what_adds_up_alike_gives_the_same_bits)
{
    bool all = runs_all();
    for (uint32_t number = all ? 0 : 2; number < 8; number += all ? 1 : 5) {
        rp_model config = rp_test_decoder(LAYERS, number % 2 == 0, true);
        uint32_t gpus = 2 + number / 2 % 4;
        uint32_t rounds = 1 + number / 4;
        if (number % 3 == 2) {
            adapt(&config);
        }
        rp_test_run runs[SYSTEMS];
        for (uint32_t i = 0; i < SYSTEMS; i++) {
            rp_resolved work = rp_test_work(systems[i], gpus, rounds * gpus, 1);
            work.decided.iterations = 3;
            run_it(&config, &work, NULL, &runs[i]);
        }
        for (uint32_t i = 1; i < SYSTEMS; i++) {
            bool per_step = i >= FSDP && rounds > 1;
            cr_expect(eq(int, rp_test_same(&runs[0], &runs[i], 3), !per_step), "%s on %u GPUs",
                      systems[i], gpus);
        }
        cr_expect(rp_test_same(&runs[FSDP], &runs[FSDP + 1], 3), "offloaded, on %u GPUs", gpus);
        rp_test_arena_again();
    }
}

/* A single rank reduces nothing, and FSDP adds up its microbatches in place. */
Test(exec_sharded, fsdp_on_one_gpu_gives_the_bits_of_plain_loops)
{
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (uint32_t i = FSDP; i < SYSTEMS; i++) {
        rp_test_run plain;
        rp_test_run run;
        rp_resolved work = rp_test_work(systems[i], 1, 3, 1);
        work.decided.iterations = 3;
        run_it(&config, &work, NULL, &run);
        cr_assert(eq(int, rp_test_single(rp_test_arena, &config, SEQ_LEN, &work, &plain), RP_OK));
        cr_expect(rp_test_same(&run, &plain, 3), "%s", systems[i]);
        cr_expect(eq(u64, run.exchanged_bytes, 0));
    }
}

Test(exec_sharded, random_delays_change_nothing)
{
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (uint32_t seed = 0; seed < 20; seed++) {
        if (!runs_all() && (seed + seed / SYSTEMS) % 2 != 0) {
            continue;
        }
        rp_test_run run;
        rp_test_run delayed;
        rp_resolved work = rp_test_work(systems[seed % SYSTEMS], 2 + seed / SYSTEMS % 3,
                                        2 * (2 + seed / SYSTEMS % 3), 1);
        work.decided.iterations = 2;
        rp_test_twist twist = {.delay_seed = seed,
                               .delay_us = 300,
                               .delay_classes = seed < 10 ? 0 : 1u << RP_CLASS_COLLECTIVE};
        run_it(&config, &work, NULL, &run);
        run_it(&config, &work, &twist, &delayed);
        cr_expect(rp_test_same(&run, &delayed, 2), "%s, seed %u", work.schedule->name, seed);
        rp_test_arena_again();
    }
}

/* Bytes that all ranks together exchange, upload and download in a step of `rounds` microbatches
 * per rank, as multiples of all weights, of the blocks, and of embedding and head (root). */
typedef struct closed_form {
    double all, blocks, root;
    uint32_t up_all, up_blocks, up_root;
    uint32_t down_all;
} closed_form;

static closed_form form_of(uint32_t system, uint32_t rounds)
{
    const closed_form forms[SYSTEMS] = {
        /* an all-reduce per microbatch, and the new weights */
        {.all = 2 * rounds + 1},
        /* weights, which stay for the backward in so small a model, and gradients per microbatch */
        {.all = 2 * rounds},
        /* a reduce-scatter per microbatch, and the new weights, which are uploaded from the host */
        {.all = rounds + 1, .up_all = 1, .down_all = rounds},
        /* as ZeRO-3, but from the host and to the host */
        {.all = 2 * rounds, .up_all = rounds, .down_all = rounds},
        /* blocks twice and the root once per microbatch; gradients once */
        {.all = 1, .blocks = 2 * rounds, .root = rounds},
        {.all = 1,
         .blocks = 2 * rounds,
         .root = rounds,
         .up_blocks = 2 * rounds,
         .up_root = rounds,
         .down_all = 1},
    };
    return forms[system];
}

Test(exec_sharded, bytes_moved_equal_the_closed_forms)
{
    enum { STEPS = 2 };
    for (uint32_t number = 0; number < SYSTEMS * 4; number++) {
        uint32_t gpus = 1 + number / SYSTEMS % 4;
        uint32_t rounds = 1 + (number + number / SYSTEMS) % 2;
        rp_model config = rp_test_decoder(LAYERS, number / 2 % 3 == 0, true);
        config.head_dim = 16; /* no tensor is padded, since programs do not count padding */
        rp_resolved work = rp_test_work(systems[number % SYSTEMS], gpus, rounds * gpus, 1);
        work.decided.iterations = STEPS;
        rp_test_run run;
        run_it(&config, &work, NULL, &run);
        closed_form form = form_of(number % SYSTEMS, rounds);
        uint64_t blocks = LAYERS * run.model.block.floats * sizeof(float);
        uint64_t root = (run.model.embedding.floats + run.model.head.floats) * sizeof(float);
        double all = (double)(blocks + root);
        double exchanged = form.all * all + form.blocks * (double)blocks + form.root * (double)root;
        cr_expect(eq(u64, run.exchanged_bytes, STEPS * (gpus - 1) * (uint64_t)exchanged), "%s",
                  work.schedule->name);
        cr_expect(eq(u64, run.uploaded_bytes,
                     STEPS * (form.up_all * (blocks + root) + form.up_blocks * blocks +
                              form.up_root * root)),
                  "%s", work.schedule->name);
        cr_expect(eq(u64, run.downloaded_bytes, STEPS * form.down_all * (blocks + root)), "%s",
                  work.schedule->name);
        /* The program rounds each rank's part of each volume down. */
        cr_expect(le(u64, run.collective_bytes, run.exchanged_bytes));
        cr_expect(le(u64, run.exchanged_bytes - run.collective_bytes, 2 * run.collectives));
        rp_test_arena_again();
    }
}

/* A layer's weights stay until its backward if fewer than `distance` weights are used in between:
 * the head's weights are met twice, those of the first blocks three times. Weights that do not stay
 * are uploaded once more, and no bit changes. */
Test(exec_sharded, weights_that_are_soon_needed_stay)
{
    enum { ROUNDS = 2, GPUS = 3 };
    rp_model config = rp_test_decoder(LAYERS, false, true);
    config.head_dim = 16; /* no tensor is padded */
    uint32_t layers[] = {1, 3, 0};
    const rp_partition parts = {.forward_count = 3, .forward_layers = layers};
    rp_schedule_type type = *rp_schedule_find("zero-infinity");
    for (uint32_t i = 0; i < 2; i++) {
        rp_test_run none;
        rp_resolved work = rp_test_work("zero-infinity", GPUS, ROUNDS * GPUS, 1);
        work.schedule = &type;
        work.partition = i != 0 ? &parts : NULL;
        work.decided.iterations = 2;
        type.traits.sharding.reuse_distance = 0;
        run_it(&config, &work, NULL, &none);
        uint64_t head = none.model.head.floats;
        uint64_t block = none.model.block.floats;
        uint64_t all = none.model.embedding.floats + LAYERS * block + head;
        const uint64_t distances[] = {1, 2 * head + 1, 2 * head + 3 * block + 1, UINT64_MAX};
        const uint64_t stay[] = {head, head + block, head + 2 * block, all};
        cr_expect(eq(u64, none.uploaded_bytes, 2 * ROUNDS * 2 * all * sizeof(float)));
        for (uint32_t d = 0; d < 4; d++) {
            rp_test_run run;
            type.traits.sharding.reuse_distance = distances[d];
            run_it(&config, &work, NULL, &run);
            cr_expect(rp_test_same(&none, &run, 2), "distance %u", d);
            cr_expect(eq(u64, run.uploaded_bytes, 2 * ROUNDS * (2 * all - stay[d]) * sizeof(float)),
                      "distance %u", d);
        }
        rp_test_arena_again();
    }
}

/* Every byte that a rank receives comes over its link: no collective takes less time than its bytes
 * need there. */
Test(exec_sharded, collectives_are_as_slow_as_the_links)
{
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (uint32_t i = 0; i < SYSTEMS; i++) {
        rp_test_run run;
        rp_resolved work = rp_test_work(systems[i], 3, 3, 1);
        const rp_machine machine = {.upload_Bps = 20e6, .download_Bps = 20e6, .host_Bps = 20e6};
        rp_test_twist twist = {.machine = &machine, .observe = true};
        uint32_t seen = 0;
        run_it(&config, &work, &twist, &run);
        for (uint32_t op = 0; op < run.program->op_count; op++) {
            const rp_op *o = &run.program->ops[op];
            if (rp_op_kind_class((rp_op_kind)o->kind) == RP_CLASS_COLLECTIVE) {
                double took_s =
                    1e-12 * (double)(run.timeline->end_ps[op] - run.timeline->start_ps[op]);
                /* Shares are not quite equally long. */
                double least_s = 0.95 * (double)run.program->op_bytes[op] / 20e6;
                cr_expect(ge(dbl, took_s, least_s), "%s: op %u", systems[i], op);
                seen++;
            }
        }
        cr_expect(eq(u32, seen, run.collectives));
        rp_test_forget(&run);
        rp_test_arena_again();
    }
}

/* The planned memory is enough, and one byte less is refused. ZeRO-Infinity never has all weights,
 * unless the model is so small that they stay. */
Test(exec_sharded, memory_stays_below_its_cap)
{
    rp_model config = rp_test_decoder(16, true, true);
    for (uint32_t i = 0; i < SYSTEMS; i++) {
        char message[1024] = "";
        rp_test_run run;
        rp_test_run capped;
        rp_resolved work = rp_test_work(systems[i], 4, 4, 1);
        rp_schedule_type type = *work.schedule;
        type.traits.sharding.reuse_distance = 0;
        work.schedule = &type;
        run_it(&config, &work, NULL, &run);
        uint64_t weights = run.state.offsets[run.model.layer_count] * sizeof(float);
        if (strcmp(systems[i], "zero-infinity") == 0) {
            cr_expect(lt(u64, run.most_bytes, weights));
        }
        rp_test_twist twist = {.cap_bytes = run.most_bytes};
        run_it(&config, &work, &twist, &capped);
        cr_expect(rp_test_same(&run, &capped, 1));
        twist.cap_bytes--;
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &capped);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_USAGE));
        cr_expect(strstr(message, "bytes beyond its end") != NULL, "%s", message);
        rp_test_arena_again();
    }
}

/* The other ranks wait in a collective to which the failed rank never comes. */
Test(exec_sharded, injected_failures_end_the_run)
{
    static const struct {
        const char *schedule;
        rp_op_kind kind;
        const char *where;
    } cases[] = {
        {"zero2", RP_OP_ALL_REDUCE, "3ALL_REDUCE0 failed (GPU 0, stage 3, microbatch 0)"},
        {"zero2", RP_OP_ALL_GATHER, "failed (GPU 0, stage 0, microbatch 0)"},
        {"zero2", RP_OP_UPDATE, "failed (GPU 0, stage 0, microbatch 0)"},
        {"fsdp", RP_OP_ALL_GATHER, "0ALL_GATHER0 failed (GPU 0, stage 0, microbatch 0)"},
        {"fsdp", RP_OP_REDUCE_SCATTER, "failed (GPU 0, stage 3, microbatch 3)"},
        {"fsdp", RP_OP_BACKWARD, "3B0 failed (GPU 0, stage 3, microbatch 0)"},
        {"zero-infinity", RP_OP_UPLOAD_PARAMS, "failed (GPU 0, stage 0, microbatch 0)"},
        {"zero-infinity", RP_OP_COLLECT, "failed (host, stage 0, microbatch 0)"},
        {"zero-offload", RP_OP_DOWNLOAD_PARAM_GRAD, "failed (GPU 0, stage 3, microbatch 0)"},
        {"zero-offload", RP_OP_OPTIMIZER, "failed (host, stage 0, microbatch 0)"},
    };
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[1024] = "";
        rp_test_run run;
        rp_resolved work = rp_test_work(cases[i].schedule, 3, 6, 1);
        rp_test_twist twist = {.fails = true, .fail_kind = cases[i].kind};
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_TOOL), "%s", rp_op_kind_text(cases[i].kind));
        cr_expect(strstr(message, cases[i].where) != NULL, "%s: %s", rp_op_kind_text(cases[i].kind),
                  message);
        rp_test_arena_again();
    }
}

/* A rank is late for longer than the watchdog waits: the other ranks are woken. */
Test(exec_sharded, the_watchdog_wakes_who_waits_in_a_collective)
{
    char message[8192] = "";
    rp_test_run run;
    rp_model config = rp_test_decoder(LAYERS, true, true);
    rp_resolved work = rp_test_work("fsdp", 2, 2, 1);
    rp_test_twist twist = {.delay_us = 4000000,
                           .delay_seed = 2,
                           .delay_classes = 1u << RP_CLASS_COLLECTIVE,
                           .watchdog_s = 1};
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_BROKEN));
    cr_expect(strstr(message, "who waits for whom") != NULL, "%s", message);
}

Test(exec_sharded, what_cannot_run_is_refused)
{
    static const struct {
        const char *schedule;
        uint32_t gpus, microbatches;
        const char *reason;
    } cases[] = {
        {"megatron-tp", 4, 6, "valid are multiples of 4"},
        {"zero2", 4, 2, "valid are multiples of 4"},
        {"fsdp", 3, 4, "valid are multiples of 3"},
    };
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[1024] = "";
        rp_test_run run;
        rp_resolved work = rp_test_work(cases[i].schedule, cases[i].gpus, cases[i].microbatches, 1);
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_USAGE), "%s", cases[i].schedule);
        cr_expect(strstr(message, cases[i].reason) != NULL, "%s", message);
    }
}
