#include "exec/operators/squares.h"

#include <math.h>
#include <string.h>

/* Values that are widened at a time, whole blocks. */
#define PIECE 1024u
/* Bits of a limb that are used before carries. */
#define LIMB_BITS 32
#define LIMB_MASK UINT64_C(0xffffffff)

/* Explicit vectors: from eight chains in a loop over blocks compilers make a loop that mostly
 * shuffles.
 */
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
typedef double wide_four __attribute__((vector_size(32)));

/* Sum of a block in a fixed order. */
RPEXEC_VECTOR
static void add_blocks(uint32_t blocks, const float *restrict values, double *restrict sums)
{
    for (uint32_t b = 0; b < blocks; b++) {
        const four *x = (const four *)(values + (size_t)b * RPEXEC_SQUARES_BLOCK);
        wide_four s[RPEXEC_SQUARES_BLOCK / 4];
        for (uint32_t i = 0; i < RPEXEC_SQUARES_BLOCK / 4; i++) {
            wide_four x_i = __builtin_convertvector(x[i], wide_four);
            s[i] = x_i * x_i;
        }
        wide_four sum = (s[0] + s[2]) + (s[1] + s[3]);
        sums[b] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    }
}

/* The 53 bits of a double lie in three limbs. */
static void add_exactly(double value, rpexec_squares *sum)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    uint64_t exponent = bits >> 52;
    if (exponent == 0) { /* 0: no square of a float is as small as a denormal double */
        return;
    }
    if (exponent >= 0x7ff) { /* infinities and NaN of either sign */
        sum->not_finite++;
        return;
    }
    uint64_t mantissa = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    uint64_t place = exponent - 1075 + RPEXEC_SQUARES_EXPONENT; /* place of the last bit */
    uint64_t limb = place / LIMB_BITS;
    uint64_t shift = place % LIMB_BITS;
    uint64_t low = mantissa << shift;
    sum->limbs[limb] += low & LIMB_MASK;
    sum->limbs[limb + 1] += low >> LIMB_BITS;
    sum->limbs[limb + 2] += mantissa >> 1 >> (63 - shift);
}

void rpexec_squares_add(rp_dtype dtype, uint64_t count, const void *values, rpexec_squares *sum)
{
    for (uint64_t i = 0; i < count; i += PIECE) {
        float wide[PIECE];
        double sums[PIECE / RPEXEC_SQUARES_BLOCK];
        uint64_t piece = count - i < PIECE ? count - i : PIECE;
        uint32_t blocks = (uint32_t)((piece + RPEXEC_SQUARES_BLOCK - 1) / RPEXEC_SQUARES_BLOCK);
        const void *from = rpexec_element_const(dtype, values, i);
        bool as_it_is = dtype == RP_DTYPE_F32 && piece % RPEXEC_SQUARES_BLOCK == 0;
        if (!as_it_is) {
            rpexec_widen(dtype, piece, from, wide);
            memset(wide + piece, 0, (blocks * RPEXEC_SQUARES_BLOCK - piece) * sizeof *wide);
        }
        add_blocks(blocks, as_it_is ? from : wide, sums);
        for (uint32_t b = 0; b < blocks; b++) {
            add_exactly(sums[b], sum);
        }
    }
}

void rpexec_squares_merge(const rpexec_squares *from, rpexec_squares *to)
{
    uint64_t carry_to = 0;
    uint64_t carry_from = 0;
    for (uint32_t i = 0; i < RPEXEC_SQUARES_LIMBS; i++) { /* both carry first: no overflow */
        uint64_t mine = to->limbs[i] + carry_to;
        uint64_t theirs = from->limbs[i] + carry_from;
        carry_to = mine >> LIMB_BITS;
        carry_from = theirs >> LIMB_BITS;
        to->limbs[i] = (mine & LIMB_MASK) + (theirs & LIMB_MASK);
    }
    to->not_finite += from->not_finite;
}

double rpexec_squares_root(const rpexec_squares *sum)
{
    rpexec_squares whole = {0};
    double value = 0;
    if (sum->not_finite != 0) {
        return NAN;
    }
    rpexec_squares_merge(sum, &whole);
    for (uint32_t i = 0; i + 1 < RPEXEC_SQUARES_LIMBS; i++) {
        whole.limbs[i + 1] += whole.limbs[i] >> LIMB_BITS;
        whole.limbs[i] &= LIMB_MASK;
    }
    for (uint32_t i = RPEXEC_SQUARES_LIMBS; i-- > 0;) {
        value += ldexp((double)whole.limbs[i], LIMB_BITS * (int)i - RPEXEC_SQUARES_EXPONENT);
    }
    return sqrt(value);
}
