/* Times of kernels on a GPU with described multiprocessors, against figures by hand. */
#include "common/inputs/data.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/roofline/roofline.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <math.h>

/* 100 SMs of 2000 FLOP per clock at 1 GHz: 200 TFLOP/s. */
static const rp_platform gpu = {.fp16_tflops_fp16_acc = 200,
                                .fp16_tflops_fp32_acc = 200,
                                .memory_effective_gb_per_s = 1000,
                                .sms = 100,
                                .sm_clock_ghz = 1,
                                .gemm_fp32_acc_efficiency = 0.8,
                                .flash_fwd_tflops = 100,
                                .flash_bwd_tflops = 50};

static double product_s(double rows, double in, double out, rp_pass pass)
{
    const rp_kernel_run run = {{&gpu, {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, NULL}, 2048, 5, NULL};
    rp_operator op = {.unit = RP_UNIT_GEMM, .gemm = {rows, in, out, 1}};
    op.work[pass] = (rp_pass_work){.flops = 2 * rows * in * out};
    return rp_kernel_s(&op, pass, &run);
}

/* Large products reach the efficiency except for beginnings and ends of tiles. */
Test(kernels, large_products_reach_the_efficiency)
{
    double ideal_s = 2 * 25600.0 * 8192 * 12800 / (0.8 * 200e12);
    double time_s = product_s(25600, 8192, 12800, RP_PASS_FORWARD);
    cr_expect(gt(dbl, time_s, ideal_s));
    cr_expect(lt(dbl, time_s, 1.02 * ideal_s));
    /* The same multiplications in another order. */
    cr_expect(eq(dbl, product_s(8192, 12800, 25600, RP_PASS_BACKWARD_WEIGHT), time_s));
    cr_expect(eq(dbl, product_s(25600, 12800, 8192, RP_PASS_BACKWARD_INPUT), time_s));
}

/* A short inner dimension spends more on beginnings and ends, and at least as much per FLOP. */
Test(kernels, short_products_are_less_efficient)
{
    double before = INFINITY;
    for (double in = 64; in <= 16384; in *= 4) {
        double per_flop = product_s(25600, in, 12800, RP_PASS_FORWARD) / in;
        cr_expect(lt(dbl, per_flop, before), "%g", in);
        before = per_flop;
    }
}

/* 100 tiles of 256 x 128 are a wave. A few more rows make a nearly empty last wave. */
Test(kernels, waves)
{
    double full = product_s(2560, 1024, 1280, RP_PASS_FORWARD);
    double more = product_s(2560 + 64, 1024, 1280, RP_PASS_FORWARD);
    cr_expect(gt(dbl, more, 1.05 * full)); /* 2.5 % more FLOP */
    cr_expect(ge(dbl, product_s(2500, 1024, 1280, RP_PASS_FORWARD), 0.99 * full));
}

/* Half of a diagonal block of 128 is masked, but computed: 1 + 128 / s. */
Test(kernels, attention)
{
    rp_operator op = {.unit = RP_UNIT_ATTENTION};
    op.work[RP_PASS_FORWARD] = op.work[RP_PASS_BACKWARD_INPUT] = (rp_pass_work){.flops = 1e12};
    for (double s = 128; s <= 65536; s *= 8) {
        const rp_kernel_run run = {{&gpu, {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, NULL}, s, 5, NULL};
        double forward_s = rp_kernel_s(&op, RP_PASS_FORWARD, &run);
        cr_expect(lt(dbl, fabs(forward_s / (0.01 * (1 + 128 / s)) - 1), 1e-12));
        cr_expect(
            lt(dbl, fabs(rp_kernel_s(&op, RP_PASS_BACKWARD_INPUT, &run) / forward_s - 2), 1e-12));
    }
}

/* A block of few tokens takes the host's launch time on any GPU. */
Test(kernels, small_layers_wait_for_the_host)
{
    rp_arena *arena = NULL;
    rp_platform platform;
    rp_model model;
    rp_costs few;
    rp_costs faster;
    rp_operator ops[RP_MAX_OPERATORS];
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rp_platform_load("a100-80x8", arena, &platform), RP_OK));
    cr_assert(eq(int, rp_model_load("mpt-125m", arena, &model), RP_OK));
    const rp_roof roof = {&platform, {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, NULL};
    cr_assert(eq(int, rp_roofline_costs(&model, &roof, 1, 64, arena, &few, NULL), RP_OK));
    double launches = 0;
    for (uint32_t i = 0, n = rp_layer_operators(&model, 0, 1, 64, ops); i < n; i++) {
        launches += ops[i].work[RP_PASS_FORWARD].launches;
    }
    cr_expect(eq(i64, few.fwd_ps[0], (int64_t)(launches * 5e6)));
    model.host_launch_us = 2.6;
    cr_assert(eq(int, rp_roofline_costs(&model, &roof, 1, 64, arena, &faster, NULL), RP_OK));
    cr_expect(lt(i64, faster.fwd_ps[0], few.fwd_ps[0]));
    rp_arena_destroy(arena);
}
