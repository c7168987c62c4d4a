#include "exec/state/scaler.h"

#include <string.h>

#define INITIAL 0x1p16f
#define LARGEST 0x1p24f
#define SMALLEST 1.0f
#define CLEAN_STEPS 2000u

/* Values that are widened at a time, so that they stay in the cache until they have been used. */
#define PIECE 4096u

bool rpexec_scaler_needed(rp_dtype dtype)
{
    return dtype == RP_DTYPE_F16;
}

rpexec_scaler rpexec_scaler_initial(rp_dtype dtype)
{
    float scale = rpexec_scaler_needed(dtype) ? INITIAL : 1.0f;
    return (rpexec_scaler){.scale = scale, .next = scale};
}

bool rpexec_scaler_is_smallest(float scale)
{
    return scale <= SMALLEST;
}

void rpexec_scaler_step(rpexec_scaler *s, bool overflow)
{
    s->clean = overflow ? 0 : s->clean + 1;
    if (overflow) {
        s->scale = s->scale / 2 > SMALLEST ? s->scale / 2 : SMALLEST;
    } else if (s->clean == CLEAN_STEPS) {
        s->scale = s->scale * 2 < LARGEST ? s->scale * 2 : LARGEST;
        s->clean = 0;
    }
}

/* Counts infinities and NaN, which have all bits of the exponent set. */
RPEXEC_VECTOR
static uint32_t not_finite(uint64_t count, const float *values)
{
    uint32_t found = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
    }
    return found;
}

RPEXEC_VECTOR
static void add_scaled(uint64_t count, const float *restrict from, float factor, float *restrict to)
{
    for (uint64_t i = 0; i < count; i++) {
        to[i] += from[i] * factor;
    }
}

/* Multiplies and counts values that are not finite, in place, in a single pass over values in the
 * cache. */
RPEXEC_VECTOR
static uint32_t multiply_and_look(uint64_t count, float factor, float *values)
{
    uint32_t found = 0;
    for (uint64_t i = 0; i < count; i++) {
        float value = values[i] * factor;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        values[i] = value;
        found |= (bits & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
    }
    return found;
}

bool rpexec_unscale(rp_dtype dtype, uint64_t count, const void *from, float scale, bool add,
                    float *to)
{
    uint32_t found = 0;
    bool checks = rpexec_scaler_needed(dtype);
    if (!checks && !add) {
        rpexec_widen(dtype, count, from, to);
        return true;
    }
    for (uint64_t i = 0; i < count; i += PIECE) {
        float wide[PIECE];
        uint64_t values = count - i < PIECE ? count - i : PIECE;
        const void *piece = rpexec_element_const(dtype, from, i);
        if (!add) {
            rpexec_widen(dtype, values, piece, to + i);
            found |= multiply_and_look(values, 1 / scale, to + i);
            continue;
        }
        rpexec_widen(dtype, values, piece, wide);
        add_scaled(values, wide, 1 / scale, to + i);
        found |= checks ? not_finite(values, to + i) : 0;
    }
    return found == 0;
}

bool rpexec_all_finite(rp_dtype dtype, uint64_t count, const void *values)
{
    uint32_t found = 0;
    for (uint64_t i = 0; i < count; i += PIECE) {
        float wide[PIECE];
        uint64_t piece = count - i < PIECE ? count - i : PIECE;
        rpexec_widen(dtype, piece, rpexec_element_const(dtype, values, i), wide);
        found |= not_finite(piece, wide);
    }
    return found == 0;
}
