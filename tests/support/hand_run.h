/** @file hand_run.h  A run at hardware fidelity that a test solves by hand. */
#pragma once

#include "common/run/resolve.h"

/**
 * @return a synchronous step with a single call in fp16, without recomputation, and with a sequence
 * of the table's length per microbatch. The test changes the other members that it needs. All
 * pointers are borrowed.
 */
rp_resolved rp_test_hand_run(const char *schedule, const rp_model *model, const rp_costs *costs,
                             const rp_partition *partition, uint32_t gpus, uint32_t microbatches);
