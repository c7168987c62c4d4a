/* The emulator has no cuBLAS: whoever asks for it is told so. */
#include "common/log.h"
#include "exec/cuda/cublas.h"

rp_status rpexec_cublas_open(const rpexec_lane *lane, rp_arena *arena, rpexec_cublas **cublas_out)
{
    (void)lane;
    (void)arena;
    *cublas_out = NULL;
    rp_log_error("the emulator has no cuBLAS; lanes need own_products");
    return RP_TOOL;
}

void rpexec_cublas_close(rpexec_cublas *cublas)
{
    (void)cublas;
}

rp_status rpexec_cublas_product(rpexec_lane *lane, const rpexec_cuda_products *product,
                                const void *a, const void *b, void *c)
{
    (void)product;
    (void)a;
    (void)b;
    (void)c;
    return lane->status == RP_OK ? RP_BROKEN : lane->status;
}
