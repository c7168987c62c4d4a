/* Rates of a platform in an arithmetic, and times of passes by them. */
#include "common/roofline/roofline.h"

#include "common/base/reason.h"
#include "common/machine/platform_machine.h"

#include <math.h>

rp_status rp_roofline_check(const rp_roof *roof, rp_reason *reason)
{
    const rp_platform *platform = roof->platform;
    const rp_needed_rate needed[] = {
        {"gemm_efficiency", platform->gemm_efficiency},
        {"attention_fwd_tflops", platform->attention_fwd_tflops},
        {"attention_bwd_tflops", platform->attention_bwd_tflops},
        {"memory_effective_gb_per_s", platform->memory_effective_gb_per_s},
        {"link_effective_gb_per_s or link_efficiency", rp_link_bytes_per_s(platform)},
        {"fp32_tflops", rp_peak_flops_per_s(roof)}, /* the others are required */
    };
    return rp_platform_need(platform, needed, sizeof needed / sizeof needed[0],
                            "which costs that nobody has measured are computed from", reason);
}

double rp_peak_flops_per_s(const rp_roof *roof)
{
    const rp_platform *p = roof->platform;
    if (roof->arithmetic.dtype == RP_DTYPE_F32) {
        return 1e12 * p->fp32_tflops;
    }
    bool half = roof->arithmetic.accumulation == RP_ACCUMULATION_F16;
    return 1e12 * (half ? p->fp16_tflops_fp16_acc : p->fp16_tflops_fp32_acc);
}

/* Rate of an attention kernel in a roof's arithmetic. The platform's rate was measured or moved in
 * 16 bits with fp32 accumulation, independent of the accumulation of matrix products. */
static double attention_rate(const rp_roof *roof, double tflops)
{
    const rp_platform *p = roof->platform;
    double peak = rp_peak_flops_per_s(roof);
    double rate = 1e12 * tflops;
    if (roof->arithmetic.dtype == RP_DTYPE_F32 && p->fp32_tflops > 0) {
        rate *= p->fp32_tflops / p->fp16_tflops_fp32_acc;
    }
    return peak > 0 ? fmin(rate, peak) : rate;
}

double rp_attention_flops_per_s(const rp_roof *roof, rp_pass pass)
{
    const rp_platform *p = roof->platform;
    return attention_rate(roof, pass == RP_PASS_FORWARD ? p->attention_fwd_tflops
                                                        : p->attention_bwd_tflops);
}

double rp_flash_flops_per_s(const rp_roof *roof, rp_pass pass)
{
    const rp_platform *p = roof->platform;
    return attention_rate(roof,
                          pass == RP_PASS_FORWARD ? p->flash_fwd_tflops : p->flash_bwd_tflops);
}

double rp_pass_traffic(const rp_pass_work *work, const rp_roof *roof)
{
    return roof->arithmetic.dtype == RP_DTYPE_F32 ? work->wide : work->traffic;
}

double rp_product_peak(const rp_gemm_shape *gemm, const rp_roof *roof)
{
    return gemm->fp8 ? 1e12 * roof->platform->fp8_tflops : rp_peak_flops_per_s(roof);
}

static double flops_per_s(const rp_roof *roof, const rp_operator *op, rp_pass pass)
{
    switch (op->unit) {
    case RP_UNIT_GEMM:
        return rp_product_peak(&op->gemm, roof) * roof->platform->gemm_efficiency;
    case RP_UNIT_ATTENTION:
        return rp_attention_flops_per_s(roof, pass);
    case RP_UNIT_VECTOR: /* far from any arithmetic limit */
        break;
    }
    return INFINITY;
}

double rp_pass_s(const rp_operator *op, rp_pass pass, const rp_roof *roof)
{
    const rp_pass_work *work = &op->work[pass];
    const rp_platform *p = roof->platform;
    double compute_s = work->flops / flops_per_s(roof, op, pass);
    double memory_s = rp_pass_traffic(work, roof) / (1e9 * p->memory_effective_gb_per_s);
    return fmax(compute_s, memory_s) + work->launches * 1e-6 * p->launch_overhead_us;
}
