/* Boundary tensors that GPUs send to each other on the host backend: the bits are the same as
 * through host memory, and the bytes are those of the closed form. */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

#define LAYERS 8u
#define SEQ_LEN 6u
#define STEPS 2u

TestSuite(exec_peers, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

static rp_resolved work_of(const char *schedule, uint32_t gpus, uint32_t peer_gpus)
{
    rp_resolved work = rp_test_work(schedule, gpus, 2 * gpus, STEPS);
    work.peer_gpus = peer_gpus;
    return work;
}

static void run_it(const rp_model *config, const rp_resolved *work, const rp_test_twist *twist,
                   rp_test_run *run)
{
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, twist, run), RP_OK),
              "%s", work->schedule->name);
}

/* Peers are all GPUs, or pairs: then boundaries between pairs go through the host. Delays are
 * random. */
Test(exec_peers, sent_boundaries_give_the_same_bits)
{
    static const char *const names[] = {"gpipe", "1f1b",  "interleaved-1f1b", "zb-h1",
                                        "zbv",   "v-min", "looped-bfs"};
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (uint32_t number = 0; number < 14; number++) {
        rp_test_run host;
        rp_test_run sent;
        rp_resolved work = work_of(names[number / 2], 2 + number % 3, 0);
        work.recompute = number % 4 == 1 ? RP_RECOMPUTE_EARLY : work.recompute;
        work.decided.layer_grain = number % 5 == 4;
        rp_test_twist twist = {.delay_seed = number, .delay_us = number % 2 == 0 ? 0 : 300};
        run_it(&config, &work, NULL, &host);
        work.peer_gpus = number % 2 == 0 ? UINT32_MAX : 2;
        run_it(&config, &work, &twist, &sent);
        cr_expect(rp_test_same(&host, &sent, STEPS), "%s on %u GPUs", work.schedule->name,
                  work.gpus);
        /* Boundaries that are not sent are downloaded and uploaded. Apart from them only token ids
         * are uploaded. */
        uint64_t ids = (uint64_t)STEPS * work.decided.microbatches * SEQ_LEN * sizeof(int32_t);
        cr_expect(eq(u64, host.exchanged_bytes, 0));
        cr_expect(eq(u64, sent.exchanged_bytes + sent.downloaded_bytes, host.downloaded_bytes));
        cr_expect(eq(u64, sent.uploaded_bytes, sent.downloaded_bytes + ids));
        cr_expect(gt(u64, sent.exchanged_bytes, 0));
        rp_test_arena_again();
    }
}

/* Each microbatch sends a boundary in each direction between any two neighbours. */
Test(exec_peers, bytes_sent_equal_the_closed_form)
{
    rp_model config = rp_test_decoder(LAYERS, false, true);
    for (uint32_t gpus = 1; gpus <= 8; gpus++) {
        rp_test_run run;
        rp_resolved work = work_of("1f1b", gpus, UINT32_MAX);
        run_it(&config, &work, NULL, &run);
        uint64_t boundary = (uint64_t)SEQ_LEN * config.hidden * sizeof(float);
        cr_expect(eq(u64, run.exchanged_bytes,
                     STEPS * work.decided.microbatches * 2 * (gpus - 1) * boundary));
        cr_expect(eq(u64, run.downloaded_bytes, 0));
        rp_test_arena_again();
    }
}

Test(exec_peers, memory_and_failures)
{
    static const rp_op_kind kinds[] = {RP_OP_SEND, RP_OP_RECV};
    rp_model config = rp_test_decoder(LAYERS, true, true);
    rp_resolved work = work_of("1f1b", 3, UINT32_MAX);
    rp_test_run run;
    rp_test_run capped;
    run_it(&config, &work, NULL, &run);
    rp_test_twist twist = {.cap_bytes = run.most_bytes};
    run_it(&config, &work, &twist, &capped);
    cr_expect(rp_test_same(&run, &capped, STEPS));
    for (size_t i = 0; i < 2; i++) {
        char message[1024] = "";
        rp_test_twist broken = {.fails = true, .fail_kind = kinds[i]};
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &broken, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_TOOL));
        cr_expect(strstr(message, rp_op_kind_text(kinds[i])) != NULL, "%s", message);
        cr_expect(strstr(message, "failed (GPU ") != NULL, "%s", message);
    }
}
