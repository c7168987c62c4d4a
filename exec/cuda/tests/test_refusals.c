/* Refusals of operators: the lane keeps the first failure, and no kernel runs with wrong
 * arguments. */
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/lane.h"
#include "exec/cuda/tests/families.h"

#include <stdio.h>

static int expect(bool well, const char *what, rp_dtype dtype)
{
    if (!well) {
        printf("refusals, %s: %s\n", rp_dtype_text(dtype), what);
    }
    return !well;
}

/* Attention by tensor cores with each of its 16-bit tensors (q, k, v, o; backward: and d_o, dq, dk,
 * dv) not aligned to 16 bytes in turn. The backward accepts any alignment of o, which a separate
 * kernel reads. */
static int test_unaligned(rp_dtype dtype)
{
    enum { FORWARD = 4, TENSORS = 8, O = 3, BYTES = 512 };
    const rpexec_attention_sizes sizes = {1, 1, 1, 1, 64, 0, 0, 0};
    const rpexec_operators *op = trial_device_table(dtype);
    rpexec_lane lane = *trial_device_lane(dtype);
    char *memory = trial_device_memory((TENSORS + 1) * BYTES);
    int failed = 0;
    for (uint32_t moved = 0; moved < TENSORS; moved++) {
        char *p[TENSORS];
        for (uint32_t i = 0; i < TENSORS; i++) {
            p[i] = memory + i * BYTES + (i == moved ? 2 : 0);
        }
        float *logsumexp = (void *)(memory + TENSORS * BYTES);
        if (moved < FORWARD) {
            lane.status = RP_OK;
            op->attention(&lane, &sizes, p[0], p[1], p[2], p[3], logsumexp);
            failed += expect(lane.status == RP_TOOL, "a tensor that is not aligned", dtype);
        }
        if (moved != O) {
            lane.status = RP_OK;
            op->attention_backward(&lane, &sizes, p[0], p[1], p[2], p[3], logsumexp, p[4], p[5],
                                   p[6], p[7]);
            failed += expect(lane.status == RP_TOOL, "backward's that is not aligned", dtype);
        }
    }
    trial_device_memory_back(memory);
    return failed;
}

int test_refusals(rp_dtype dtype)
{
    const rpexec_operators *op = trial_device_table(dtype);
    rpexec_lane small = *trial_device_lane(dtype);
    small.scratch_bytes = 16;
    op->rms_norm_weight(&small, 10000, 64, NULL, NULL, NULL, false, NULL);
    int failed = expect(small.status == RP_BROKEN, "too little scratch is not noticed", dtype);

    const rpexec_routing many = {.tokens = 1, .experts = RPEXEC_CUDA_MOST_EXPERTS + 1, .active = 1};
    op->route(&small, &many, NULL);
    failed += expect(small.status == RP_BROKEN, "a later failure replaces the first", dtype);
    rpexec_squares sum = {0};
    op->squares(&small, 0, NULL, &sum);
    failed += expect(sum.not_finite != 0, "a lane that has failed calls it finite", dtype);

    rpexec_lane lane = *trial_device_lane(dtype);
    op->route(&lane, &many, NULL);
    failed += expect(lane.status == RP_TOOL, "more experts than shared memory holds", dtype);

    return dtype == RP_DTYPE_F32 ? failed : failed + test_unaligned(dtype);
}
