/* Conversions of all 65536 values of each 16-bit type, and of fp32 values around every rounding
 * boundary, against formulas in double precision. */
#include "exec/operators/dtype.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define VALUES 65536

static uint16_t all[VALUES];
static float wide[VALUES];

static void begin(void)
{
    for (int i = 0; i < VALUES; i++) {
        all[i] = (uint16_t)i;
    }
}

TestSuite(exec_dtype, .init = begin, .timeout = 60);

static const struct {
    rp_dtype dtype;
    int fraction_bits;
    int bias;
    int special; /* exponent of infinities and NaN */
} formats[] = {{RP_DTYPE_BF16, 7, 127, 255}, {RP_DTYPE_F16, 10, 15, 31}};

/* The value of a sign, exponent and fraction as defined by IEEE 754. */
static double value_of(int format, uint16_t bits)
{
    int exponent = (bits & 0x7fff) >> formats[format].fraction_bits;
    int fraction = bits & ((1 << formats[format].fraction_bits) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == formats[format].special) {
        return fraction != 0 ? NAN : sign * INFINITY;
    }
    int whole = exponent == 0 ? fraction : fraction + (1 << formats[format].fraction_bits);
    int power = (exponent == 0 ? 1 : exponent) - formats[format].bias;
    return sign * ldexp(whole, power - formats[format].fraction_bits);
}

/* Positive values ascend with their bits, so bisection finds the two neighbours of `x`. The result
 * is the nearer neighbour, in a tie the even neighbour. The step beyond the largest value counts as
 * infinity. */
static uint16_t rounded(int format, double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    int infinity = formats[format].special << formats[format].fraction_bits;
    int low = 0;
    int high = infinity;
    x = fabs(x);
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (value_of(format, (uint16_t)middle) <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = value_of(format, (uint16_t)low);
    double above = high < infinity ? value_of(format, (uint16_t)high)
                                   : 2 * below - value_of(format, (uint16_t)(low - 1));
    double middle = (below + above) / 2;
    int nearest = x < middle ? low : x > middle ? high : low % 2 == 0 ? low : high;
    return (uint16_t)(nearest | sign);
}

Test(exec_dtype, every_value_widens_exactly_and_comes_back)
{
    static uint16_t back[VALUES];
    for (int f = 0; f < 2; f++) {
        rpexec_widen(formats[f].dtype, VALUES, all, wide);
        rpexec_narrow(formats[f].dtype, VALUES, wide, back);
        int wrong = 0;
        for (int i = 0; i < VALUES; i++) {
            double right = value_of(f, all[i]);
            bool nan = isnan(right) && isnan(wide[i]) && isnan(value_of(f, back[i])) &&
                       (back[i] & 0x8000) == (all[i] & 0x8000);
            bool same = (double)wide[i] == right && !signbit(wide[i]) == !signbit(right) &&
                        back[i] == all[i];
            wrong += isnan(right) ? !nan : !same;
        }
        cr_expect(eq(int, wrong, 0), "%s", rp_dtype_text(formats[f].dtype));
    }
}

/* Each value, the middle between it and the next value (a tie), and the fp32 values beside both. */
Test(exec_dtype, fp32_rounds_to_the_nearest_even)
{
    for (int f = 0; f < 2; f++) {
        int wrong = 0;
        int infinity = formats[f].special << formats[f].fraction_bits;
        for (int i = 0; i < infinity; i++) {
            double below = value_of(f, (uint16_t)i);
            double above = i + 1 < infinity ? value_of(f, (uint16_t)(i + 1))
                                            : 2 * below - value_of(f, (uint16_t)(i - 1));
            float tie = (float)((below + above) / 2);
            float near[6] = {(float)below, nextafterf((float)below, INFINITY),
                             nextafterf(tie, 0.0f), tie, nextafterf(tie, INFINITY)};
            for (int k = 0; k < 5; k++) {
                near[5] = -near[k];
                uint16_t got[2];
                rpexec_narrow(formats[f].dtype, 1, &near[k], &got[0]);
                rpexec_narrow(formats[f].dtype, 1, &near[5], &got[1]);
                wrong += got[0] != rounded(f, (double)near[k]);
                wrong += got[1] != rounded(f, -(double)near[k]);
            }
        }
        cr_expect(eq(int, wrong, 0), "%s", rp_dtype_text(formats[f].dtype));
    }
}

/* Named boundary cases, and fp32's own extremes. */
Test(exec_dtype, extremes)
{
    static const struct {
        float from;
        uint16_t bf16, fp16;
    } cases[] = {
        {0.0f, 0x0000, 0x0000},       {-0.0f, 0x8000, 0x8000},
        {1.0f, 0x3f80, 0x3c00},       {-2.5f, 0xc020, 0xc100},
        {65504.0f, 0x4780, 0x7bff},   {65519.996f, 0x4780, 0x7bff},
        {65520.0f, 0x4780, 0x7c00},   {-65520.0f, 0xc780, 0xfc00},
        {0x1p-24f, 0x3380, 0x0001},   {0x1p-25f, 0x3300, 0x0000},
        {0x1.8p-25f, 0x3340, 0x0001}, {0x1p-126f, 0x0080, 0x0000},
        {0x1p-149f, 0x0000, 0x0000},  {0x1.fffffep127f, 0x7f80, 0x7c00},
        {INFINITY, 0x7f80, 0x7c00},   {-INFINITY, 0xff80, 0xfc00},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint16_t bits;
        rpexec_narrow(RP_DTYPE_BF16, 1, &cases[i].from, &bits);
        cr_expect(eq(u16, bits, cases[i].bf16), "%a", (double)cases[i].from);
        rpexec_narrow(RP_DTYPE_F16, 1, &cases[i].from, &bits);
        cr_expect(eq(u16, bits, cases[i].fp16), "%a", (double)cases[i].from);
    }
}

/* A NaN must not become an infinity if all of its set fraction bits are cut off. */
Test(exec_dtype, every_nan_stays_one)
{
    static const uint32_t nans[] = {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu,
                                    0x7f801fffu};
    for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++) {
        float from;
        uint16_t bits;
        memcpy(&from, &nans[i], sizeof from);
        for (int f = 0; f < 2; f++) {
            rpexec_narrow(formats[f].dtype, 1, &from, &bits);
            cr_expect(isnan(value_of(f, bits)), "%08x", nans[i]);
        }
    }
}

/* The other elements of a vector register must not matter: all counts up to two of the widest
 * registers. */
Test(exec_dtype, any_count_and_no_value_more)
{
    for (int f = 0; f < 2; f++) {
        for (uint64_t count = 0; count <= 64; count++) {
            float to[66];
            uint16_t back[66];
            memset(back, 0xee, sizeof back);
            rpexec_widen(formats[f].dtype, count, all + 0x3c00, to);
            to[count] = 1.0f;
            rpexec_narrow(formats[f].dtype, count, to, back);
            cr_expect(memcmp(back, all + 0x3c00, count * sizeof *back) == 0);
            cr_expect(eq(u16, back[count], 0xeeee));
        }
    }
}

Test(exec_dtype, names)
{
    char choices[64] = "";
    for (int i = 0; i < RP_DTYPE_COUNT; i++) {
        size_t used = strlen(choices);
        snprintf(choices + used, sizeof choices - used, "|%s", rp_dtype_text((rp_dtype)i));
    }
    cr_expect(eq(str, choices, RP_DTYPES));
    cr_expect(eq(str, choices, "|fp32|fp16|bf16"));
    cr_expect(eq(str, RP_DTYPE_ALIASES, "|float32|float16|bfloat16")); /* names in torch.dtype */
}

/* Several values at once may use a processor's own instructions, one value does not: the bits are
 * the same, those of NaN included. All upper halves of fp32 are tried, with lower halves of every
 * kind. */
Test(exec_dtype, many_values_are_converted_as_one_is)
{
    static uint16_t half[2][VALUES];
    static float one[VALUES];
    for (int f = 0; f < 2; f++) {
        rp_dtype dtype = formats[f].dtype;
        rpexec_widen(dtype, VALUES, all, wide);
        for (int i = 0; i < VALUES; i++) {
            rpexec_widen(dtype, 1, &all[i], &one[i]);
        }
        cr_expect(eq(int, memcmp(wide, one, sizeof one), 0), "%s", rp_dtype_text(dtype));
        for (uint32_t i = 0; i < VALUES; i++) {
            uint32_t bits = i % 2 == 0 ? i << 16 | i : i << 16;
            memcpy(&wide[i], &bits, sizeof bits);
        }
        rpexec_narrow(dtype, VALUES, wide, half[0]);
        for (int i = 0; i < VALUES; i++) {
            rpexec_narrow(dtype, 1, &wide[i], &half[1][i]);
        }
        cr_expect(eq(int, memcmp(half[0], half[1], sizeof half[0]), 0), "%s", rp_dtype_text(dtype));
    }
}
