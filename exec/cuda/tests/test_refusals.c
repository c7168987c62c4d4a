/* What operators refuse: the lane keeps the first failure, and nothing runs that could do harm. */
#include "exec/cuda/kernels.h"
#include "exec/cuda/lane.h"
#include "exec/cuda/tests/families.h"

#include <stdio.h>

static int expect(bool well, const char *what, rpexec_dtype dtype)
{
    if (!well) {
        printf("refusals, %s: %s\n", rpexec_dtype_text(dtype), what);
    }
    return !well;
}

int test_refusals(rpexec_dtype dtype)
{
    const rpexec_operators *op = trial_device_table(dtype);
    rpexec_lane small = *trial_device_lane(dtype);
    small.scratch_bytes = 16;
    op->rms_norm_weight(&small, 10000, 64, NULL, NULL, NULL, false, NULL);
    int failed = expect(small.status == RP_BROKEN, "too little scratch is not noticed", dtype);

    const rpexec_routing many = {.tokens = 1, .experts = RPEXEC_CUDA_MOST_EXPERTS + 1, .active = 1};
    op->route(&small, &many, NULL);
    failed += expect(small.status == RP_BROKEN, "a later failure replaces the first", dtype);
    failed += expect(!op->finite(&small, 0, NULL), "a lane that has failed calls it finite", dtype);

    rpexec_lane lane = *trial_device_lane(dtype);
    op->route(&lane, &many, NULL);
    failed += expect(lane.status == RP_TOOL, "more experts than shared memory holds", dtype);

    if (dtype != RPEXEC_DTYPE_F32) {
        const rpexec_attention_sizes sizes = {1, 1, 1, 1, 64, 0};
        char *memory = trial_device_memory(4096);
        lane.status = RP_OK;
        op->attention(&lane, &sizes, memory + 2, memory + 1024, memory + 2048, memory + 3072,
                      (void *)(memory + 512));
        failed += expect(lane.status == RP_TOOL, "a tensor that is not aligned", dtype);
        trial_device_memory_back(memory);
    }
    return failed;
}
