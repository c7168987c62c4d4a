/** @file hand_run.h  A run at hardware fidelity that a test resolves by hand. */
#pragma once

#include "common/run/resolve.h"

/**
 * @return one synchronous step of one call in fp16, of one sequence of the table's length per
 * microbatch, that recomputes nothing. The test sets what its run has otherwise. All is borrowed.
 */
rp_resolved rp_test_hand_run(const char *schedule, const rp_model *model, const rp_costs *costs,
                             const rp_partition *partition, uint32_t gpus, uint32_t microbatches);
