/* Products of blocks have the bits of C's fmaf() in every build: optimised and sanitized trainers
 * differ only if their processors or OpenBLAS do. */
#include "exec/host/products.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define MOST 40u

static uint32_t draws = 1;

static uint32_t draw(uint32_t below)
{
    draws = draws * 1664525u + 1013904223u;
    return (draws >> 8) % below;
}

static void fill(float *values)
{
    for (uint32_t i = 0; i < MOST * MOST; i++) {
        values[i] = (float)(draw(2000001) / 1e6 - 1.0);
    }
}

Test(products, are_fused_in_every_build)
{
    static float a[MOST * MOST], b[MOST * MOST], c[MOST * MOST], expected[MOST * MOST];
    bool fused = rpexec_host_fuses();
    for (uint32_t round = 0; round < 300; round++) {
        rpexec_product p = {.m = 1 + draw(MOST),
                            .n = 1 + draw(MOST),
                            .k = 1 + draw(MOST),
                            .a = a,
                            .a_row = MOST,
                            .a_step = 1,
                            .b = b,
                            .b_row = MOST,
                            .c = c,
                            .c_row = MOST,
                            .add = draw(2) == 1,
                            .terms = rpexec_everything,
                            .columns = rpexec_everything};
        fill(a);
        fill(b);
        fill(c);
        memcpy(expected, c, sizeof c);
        for (uint32_t m = 0; m < p.m; m++) {
            for (uint32_t n = 0; n < p.n; n++) {
                float sum = p.add ? c[m * MOST + n] : 0.0f;
                for (uint32_t k = 0; k < p.k; k++) {
                    float left = a[m * MOST + k];
                    float right = b[k * MOST + n];
                    sum = fused ? fmaf(left, right, sum) : sum + left * right;
                }
                expected[m * MOST + n] = sum;
            }
        }
        rpexec_host_product(&p);
        cr_assert(eq(int, memcmp(c, expected, sizeof c), 0), "%u x %u x %u", p.m, p.n, p.k);
    }
}
