#include "tests/support/gpu_case.h"

#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

void rp_test_gpu_compare(rp_arena *arena, const rp_model *config, const rp_resolved *work,
                         const emulated_machine *machine, rp_test_twist twist)
{
    rp_test_run plain;
    rp_test_run run;
    const rp_test_twist of_host = {.dtype = twist.dtype};
    twist.driver_type = rp_fake_cuda_driver(machine);
    twist.watchdog_s = 30;
    if (twist.devices.stage_bytes == 0) {
        twist.devices.stage_bytes = 1000; /* many pieces, with a rest */
    }
    cr_assert(eq(int, rp_test_execute(arena, config, RP_TEST_GPU_SEQ_LEN, work, &of_host, &plain),
                 RP_OK));
    cr_assert(
        eq(int, rp_test_execute(arena, config, RP_TEST_GPU_SEQ_LEN, work, &twist, &run), RP_OK),
        "%s on %u GPUs", work->schedule->name, work->gpus);
    cr_expect(rp_test_same(&run, &plain, work->decided.iterations), "%s, %u GPUs, %s: other bits",
              work->schedule->name, work->gpus, work->decided.asynchronous ? "async" : "sync");
    cr_expect(eq(u64, run.uploaded_bytes, plain.uploaded_bytes));
    cr_expect(eq(u64, run.downloaded_bytes, plain.downloaded_bytes));
    cr_expect(eq(u64, run.exchanged_bytes, plain.exchanged_bytes));
}

void rp_test_gpu_end(rp_arena *arena)
{
    rp_test_none_left(emulator_counted(EMULATED_LEFT), "things of the fake machine");
    rp_test_end(arena);
}
