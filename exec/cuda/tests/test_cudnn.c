/* cuDNN's forward of attention against the host's, together with our own backward. */
#include "exec/cuda/cudnn.h"
#include "exec/cuda/lane.h"
#include "exec/cuda/tests/families.h"

#include <stdio.h>
#include <string.h>

static rp_status plan(rp_dtype dtype, const rpexec_attention_sizes *sizes, const char **why)
{
    return rpexec_cuda_lane_plan_attention(trial_device_lane(dtype), trial_lane_arena, sizes, why);
}

static int refused(rp_dtype dtype, rpexec_attention_sizes sizes, const char *text)
{
    const char *why = "";
    rp_status status = plan(dtype, &sizes, &why);
    bool well = status == RP_TOOL && strstr(why, text) != NULL &&
                !rpexec_cudnn_has(trial_device_lane(dtype)->cudnn, &sizes);
    if (!well) {
        printf("cudnn, %s: not refused with '%s', but: %s\n", rp_dtype_text(dtype), text, why);
    }
    return !well;
}

static int test_one(rp_dtype dtype, rpexec_attention_sizes sizes)
{
    const char *why = "";
    if (plan(dtype, &sizes, &why) != RP_OK ||
        !rpexec_cudnn_has(trial_device_lane(dtype)->cudnn, &sizes)) {
        printf("cudnn, %s: %u x %u tokens, %u of %u heads of %u: %s\n", rp_dtype_text(dtype),
               sizes.sequences, sizes.seq_len, sizes.heads, sizes.kv_heads, sizes.head_dim, why);
        return 1;
    }
    return test_attention_of(dtype, sizes, true, 1e-4); /* the error of its exponentials is not
                                                           known */
}

int test_cudnn(rp_dtype dtype)
{
    const rpexec_cudnn_functions *functions = NULL;
    const char *why = NULL;
    size_t version = 0;
    int failed = 0;
    if (!rpexec_cudnn_load(&functions, &version, &why)) {
        printf("skipped: %s\n", why);
        return 0;
    }
    if (!trial_use(TRIAL_CUBLAS)) { /* for its workspace */
        return 1;
    }
    printf("cudnn %zu\n", version);
    failed +=
        refused(dtype, (rpexec_attention_sizes){1, 16, 1, 1, 64, 5, 0, 0}, "a sliding window");
    if (dtype == RP_DTYPE_F32) {
        failed += refused(dtype, (rpexec_attention_sizes){1, 16, 1, 1, 64, 0, 0, 0},
                          "fp32; valid are bf16 and fp16");
    } else {
        failed += refused(dtype, (rpexec_attention_sizes){1, 16, 1, 1, 37, 0, 0, 0}, "no engine");
        failed += test_one(dtype, (rpexec_attention_sizes){1, 1, 1, 1, 64, 0, 0, 0});
        failed += test_one(dtype, (rpexec_attention_sizes){2, 37, 4, 2, 64, 0, 0, 0});
        failed += test_one(dtype, (rpexec_attention_sizes){3, 29, 6, 2, 128, 0, 0, 0});
        failed += test_one(dtype, (rpexec_attention_sizes){1, 130, 2, 1, 64, 0, 0, 0});
        if (trial_is_fast()) {
            failed += test_one(dtype, (rpexec_attention_sizes){2, 1024, 8, 2, 128, 0, 0, 0});
            failed += test_one(dtype, (rpexec_attention_sizes){1, 1337, 4, 1, 64, 0, 0, 0});
            failed += test_one(dtype, (rpexec_attention_sizes){4, 256, 16, 16, 128, 0, 0, 0});
        }
    }
    rpexec_cuda_lane_own_attention(trial_device_lane(dtype));
    return failed + !trial_use(TRIAL_OWN);
}
