/** @file gpu_case.h  Runs of the GPU driver on the machine of threads (tests/support/fake/cuda.h).
 */
#pragma once

#include "tests/support/exec_case.h"
#include "tests/support/fake/cuda.h"

#define RP_TEST_GPU_SEQ_LEN 7u

/** Runs `work` on the host backend and on `machine`, and compares all bits and bytes moved; a
 * difference fails the running test. The twist's driver and watchdog are set here. */
void rp_test_gpu_compare(rp_arena *arena, const rp_model *config, const rp_resolved *work,
                         const emulated_machine *machine, rp_test_twist twist);

/** Like rp_test_end; also no streams, events, pinned memory or communicators of the fake machine
 * may be left. */
void rp_test_gpu_end(rp_arena *arena);
