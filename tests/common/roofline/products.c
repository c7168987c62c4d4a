/* Rates of products: measured by shape, and those between. */
#include "common/inputs/gpu.h"
#include "common/roofline/roofline.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(products, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 120);

#define MOST_ROWS 1000u

static const rp_arithmetic bf16 = {RP_DTYPE_BF16, RP_ACCUMULATION_F32};

static double share_of(const rp_gemm_shape *shape, rp_pass pass, const rp_platform *gpu)
{
    const rp_roof roof = {gpu, bf16, NULL};
    double flops = 2 * shape->rows * shape->in * shape->out;
    return rp_product_flops_per_s(shape, pass, &roof, flops) / rp_peak_flops_per_s(&roof);
}

static void check_share(double got, double expected)
{
    cr_expect(epsilon_eq(dbl, got, expected, 1e-9), "%.12g, not %.12g", got, expected);
}

/* A GPU without tiles, whose computed share is 0.8 for every shape; idle at 100 W. */
static const rp_product rows[] = {{RP_PRODUCT_TN, 1000, 2000, 4000, 0.5},
                                  {RP_PRODUCT_TN, 4000, 2000, 4000, 0.6},
                                  {RP_PRODUCT_NN, 1000, 4000, 2000, 0.4},
                                  {RP_PRODUCT_NT, 2000, 4000, 1000, 0.3}};
static const rp_products table = {rows, 4, 400, 0.5};
static const rp_platform flat = {.fp16_tflops_fp16_acc = 200,
                                 .fp16_tflops_fp32_acc = 200,
                                 .fp32_tflops = 100,
                                 .gemm_efficiency = 0.7,
                                 .product_share = 0.8,
                                 .power_limit_w = 400,
                                 .products = &table};

Test(products, measured_shapes)
{
    const rp_gemm_shape shape = {.rows = 1000, .in = 4000, .out = 2000, .copies = 1};
    check_share(share_of(&shape, RP_PASS_FORWARD, &flat), 0.5);
    check_share(share_of(&shape, RP_PASS_BACKWARD_INPUT, &flat), 0.4);
    check_share(share_of(&shape, RP_PASS_BACKWARD_WEIGHT, &flat), 0.3);
    const rp_roof fp32 = {&flat, {RP_DTYPE_F32, RP_ACCUMULATION_USUAL}, NULL};
    double rate = rp_product_flops_per_s(&shape, RP_PASS_FORWARD, &fp32, 1e9);
    cr_expect(epsilon_eq(dbl, rate, 0.7 * 100e12, 1), "%g", rate);
    rp_platform none = flat;
    none.products = NULL;
    check_share(share_of(&shape, RP_PASS_FORWARD, &none), 0.8);
}

/* Halfway between two shapes it is their mean, and near one that one counts more. */
Test(products, shapes_between)
{
    const rp_gemm_shape half = {.rows = 2000, .in = 4000, .out = 2000, .copies = 1};
    check_share(share_of(&half, RP_PASS_FORWARD, &flat), 0.55);
    const rp_gemm_shape near = {.rows = 1100, .in = 4000, .out = 2000, .copies = 1};
    double share = share_of(&near, RP_PASS_FORWARD, &flat);
    cr_expect(share > 0.5 && share < 0.51, "%g", share);
    const rp_gemm_shape copies = {.rows = 8000, .in = 4000, .out = 2000, .copies = 4};
    check_share(share_of(&copies, RP_PASS_FORWARD, &flat), 0.55);
}

/* A product of one tile does not get the rate of large ones. */
Test(products, tiny_products_are_slow)
{
    rp_platform gpu = flat;
    gpu.sms = 100;
    gpu.sm_clock_ghz = 1;
    const rp_gemm_shape tiny = {.rows = 64, .in = 64, .out = 64, .copies = 1};
    double slow = share_of(&tiny, RP_PASS_FORWARD, &gpu);
    gpu.products = NULL;
    double computed = share_of(&tiny, RP_PASS_FORWARD, &gpu);
    cr_expect(slow < 0.02 && slow > 0.5 * computed, "%g, computed %g", slow, computed);
}

/* The table's own limit leaves its rates as they are, though the energy allows 75 TFLOP/s: 300 W at
 * 4 pJ. Half of the power beyond idle leaves half. */
Test(products, other_power_limits)
{
    const rp_gemm_shape shape = {.rows = 1000, .in = 4000, .out = 2000, .copies = 1};
    rp_platform gpu = flat;
    gpu.idle_power_w = 100;
    gpu.product_pj = 4;
    check_share(share_of(&shape, RP_PASS_FORWARD, &gpu), 0.5);
    gpu.power_limit_w = 250;
    check_share(share_of(&shape, RP_PASS_FORWARD, &gpu), 0.25);
    gpu.power_limit_w = 1000;
    check_share(share_of(&shape, RP_PASS_FORWARD, &gpu), 0.5);
    /* 150 TFLOP/s at 400 W, of which the median product takes 100: 350 W still allow it. */
    gpu.product_pj = 2;
    gpu.power_limit_w = 350;
    check_share(share_of(&shape, RP_PASS_FORWARD, &gpu), 0.5);
    gpu.power_limit_w = 200;
    check_share(share_of(&shape, RP_PASS_FORWARD, &gpu), 0.25);
}

/* ---- the shipped tables ---------------------------------------------------------------------- */

typedef struct errors {
    double each[MOST_ROWS];
    uint32_t count;
} errors;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double mean_of(const errors *e)
{
    double sum = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        sum += e->each[i];
    }
    return sum / e->count;
}

static double median_of(errors *e)
{
    qsort(e->each, e->count, sizeof *e->each, by_size);
    return e->each[e->count / 2];
}

static double time_error(const rp_product *row, const rp_platform *gpu)
{
    const rp_gemm_shape shapes[] = {
        [RP_PRODUCT_TN] = {.rows = row->m, .in = row->k, .out = row->n, .copies = 1},
        [RP_PRODUCT_NN] = {.rows = row->m, .in = row->n, .out = row->k, .copies = 1},
        [RP_PRODUCT_NT] = {.rows = row->k, .in = row->n, .out = row->m, .copies = 1}};
    static const rp_pass passes[] = {[RP_PRODUCT_TN] = RP_PASS_FORWARD,
                                     [RP_PRODUCT_NN] = RP_PASS_BACKWARD_INPUT,
                                     [RP_PRODUCT_NT] = RP_PASS_BACKWARD_WEIGHT};
    return fabs(row->share / share_of(&shapes[row->layout], passes[row->layout], gpu) - 1);
}

/* Errors of the time of each shape that is left out of the table, and without a table. */
static void leave_each_out(const char *name, double most_mean, double most_median)
{
    static rp_product others[MOST_ROWS];
    static errors held_out;
    static errors computed;
    rp_platform gpu;
    const rp_products *all = NULL;
    cr_assert(eq(int, rp_gpu_load(name, rp_test_arena, &gpu), RP_OK));
    cr_assert(eq(int, rp_products_load(name, rp_test_arena, &all), RP_OK));
    cr_assert(all != NULL && all->count <= MOST_ROWS);
    cr_expect(eq(dbl, all->power_limit_w, gpu.power_limit_w));
    rp_products rest = *all;
    rest.rows = others;
    rest.count = all->count - 1;
    held_out.count = computed.count = all->count;
    for (uint32_t i = 0; i < all->count; i++) {
        memcpy(others, all->rows, i * sizeof *others);
        memcpy(others + i, all->rows + i + 1, (all->count - i - 1) * sizeof *others);
        gpu.products = all;
        cr_expect(time_error(&all->rows[i], &gpu) < 1e-9);
        gpu.products = &rest;
        held_out.each[i] = time_error(&all->rows[i], &gpu);
        gpu.products = NULL;
        computed.each[i] = time_error(&all->rows[i], &gpu);
    }
    double mean = mean_of(&held_out);
    double median = median_of(&held_out);
    double mean_computed = mean_of(&computed);
    double median_computed = median_of(&computed);
    fprintf(stderr, "%s, %u shapes: mean %.4f, median %.4f; by tiles and power %.4f, %.4f\n", name,
            all->count, mean, median, mean_computed, median_computed);
    cr_expect(mean <= most_mean && median <= most_median, "%s: %g %g", name, mean, median);
    cr_expect(mean < 0.75 * mean_computed && median < 0.75 * median_computed, "%s: %g %g", name,
              mean_computed, median_computed);
}

Test(products, shapes_left_out_a100)
{
    leave_each_out("a100-80-pcie", 0.04, 0.02);
}

Test(products, shapes_left_out_b200)
{
    leave_each_out("b200", 0.09, 0.05);
}

/* A GPU of GeForce's energy, set on other rows: cuBLAS on an RTX 5090 at 400 W in bf16, n = 2048
 * and 4096, TFLOP/s (paper-figures/published/rtx5090_gemm.csv, mean of three layouts). */
Test(products, rtx5090_at_400_w)
{
    static const double measured[][2] = {{2048, 167.75}, {4096, 176.91}};
    rp_platform gpu;
    cr_assert(eq(int, rp_gpu_load("rtx5090", rp_test_arena, &gpu), RP_OK));
    gpu.power_limit_w = 400;
    for (size_t i = 0; i < 2; i++) {
        double n = measured[i][0];
        const rp_gemm_shape shape = {.rows = n, .in = n, .out = n, .copies = 1};
        double tflops = 209.5 * share_of(&shape, RP_PASS_FORWARD, &gpu);
        cr_expect(epsilon_eq(dbl, tflops / measured[i][1], 1, 0.05), "%g: %g", n, tflops);
    }
}

/* A GPU has a table if there is a file of its name; cards of other power limits have none. */
Test(products, files)
{
    static const char *const without[] = {"h100", "a100-80", "no such card", "../products/b200"};
    const rp_products *found = NULL;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        cr_assert(eq(int, rp_products_load(without[i], rp_test_arena, &found), RP_OK));
        cr_expect(found == NULL, "%s", without[i]);
    }
}

static void check_refusal(const char *row, const char *message)
{
    char text[4096] = "# a head\n# of two lines\nlayout,m,n,k,share,power_limit_w\n";
    const rp_products *read = NULL;
    rp_test_log_again();
    for (int i = 0; i < 20 && (row != NULL || i < 19); i++) {
        strcat(text, i == 19 ? row : "TN,1,2,3,0.5,400\n");
    }
    rp_status status = rp_products_parse("made.csv", text, strlen(text), rp_test_arena, &read);
    if (message == NULL) {
        cr_assert(eq(int, status, RP_OK));
        cr_expect(eq(dbl, read->median_share, 0.5));
        cr_expect(eq(dbl, read->power_limit_w, 400));
        cr_expect(eq(u32, read->count, 20));
    } else {
        cr_expect(eq(int, status, RP_INPUT), "%s", row);
        cr_expect(strstr(rp_test_messages, message) != NULL, "%s", rp_test_messages);
    }
}

Test(products, refusals)
{
    check_refusal("NT,1,2,3,0.9,400\n", NULL);
    check_refusal(NULL, "at least 20");
    check_refusal("TT,1,2,3,0.5,400\n", "made.csv:23: 'layout' is 'TT'");
    check_refusal("TN,1,2,3,0.5,300\n", "made.csv:23: 'power_limit_w'");
    check_refusal("TN,1,2,3,1.5,400\n", "made.csv:2");
}
