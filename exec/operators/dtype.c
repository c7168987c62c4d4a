/* Conversions without branches, so that a compiler vectorises them. */
#include "exec/operators/dtype.h"

#include <string.h>
/* Clang does not ask for every instruction set by name. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define F16C 1
#endif

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- bf16: the upper half of an fp32 --------------------------------------------------------- */

RPEXEC_VECTOR
static void widen_bf16(uint64_t count, const uint16_t *restrict from, float *restrict to)
{
    for (uint64_t i = 0; i < count; i++) {
        to[i] = float_of((uint32_t)from[i] << 16);
    }
}

RPEXEC_VECTOR
static void narrow_bf16(uint64_t count, const float *restrict from, uint16_t *restrict to)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(from[i]);
        /* Adds half of the last place, less 1 if that place is even; the carry goes into the
         * exponent. */
        uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        uint32_t nan = bits >> 16 | 0x40u; /* quiet: its upper half alone might be an infinity */
        to[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
}

/* ---- fp16: 1 sign, 5 exponent (bias 15), 10 fraction bits ------------------------------------ */

RPEXEC_VECTOR
static void widen_fp16(uint64_t count, const uint16_t *restrict from, float *restrict to)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t magnitude = from[i] & 0x7fffu;
        uint32_t shifted = magnitude << 13;
        /* Signed, since a vector unit converts signed integers. Subnormals are multiples of
         * 2^-24. */
        uint32_t subnormal = bits_of((float)(int32_t)magnitude * 0x1p-24f);
        uint32_t normal = shifted + (112u << 23);
        uint32_t special = shifted | 0x7f800000u; /* infinities and NaN */
        uint32_t bits = magnitude < 0x400u ? subnormal : magnitude < 0x7c00u ? normal : special;
        to[i] = float_of(bits | (uint32_t)(from[i] & 0x8000u) << 16);
    }
}

RPEXEC_VECTOR
static void narrow_fp16(uint64_t count, const float *restrict from, uint16_t *restrict to)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(from[i]);
        uint32_t magnitude = bits & 0x7fffffffu;
        uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
        /* 0.5 has steps of 2^-24, as fp16's subnormals have: the sum is rounded to these. */
        uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
        uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
        uint32_t rounded = magnitude < 0x38800000u   ? subnormal /* below 2^-14 */
                           : magnitude < 0x477ff000u ? normal    /* 65520 becomes infinite */
                           : magnitude > 0x7f800000u ? nan
                                                     : 0x7c00u;
        to[i] = (uint16_t)(rounded | (bits >> 16 & 0x8000u));
    }
}

/* ---- fp16 by the processor's own instructions, where it has them: the same bits -------------- */

#ifdef F16C

static bool has_f16c(void)
{
    return __builtin_cpu_supports("f16c") != 0;
}

/* Values that are widened before the next search for NaN. */
#define WIDENED UINT64_C(64)

/* These instructions make NaN quiet; the functions above keep them as they are. */
__attribute__((target("avx,f16c"))) static void
widen_fp16_f16c(uint64_t count, const uint16_t *restrict from, float *restrict to)
{
    uint64_t i = 0;
    for (; i + WIDENED <= count; i += WIDENED) {
        __m256 nan = _mm256_setzero_ps();
        for (uint64_t k = i; k < i + WIDENED; k += 8) {
            __m256 wide =
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + k)));
            _mm256_storeu_ps(to + k, wide);
            nan = _mm256_or_ps(nan, _mm256_cmp_ps(wide, wide, _CMP_UNORD_Q));
        }
        if (_mm256_movemask_ps(nan) != 0) {
            widen_fp16(WIDENED, from + i, to + i);
        }
    }
    widen_fp16(count - i, from + i, to + i);
}

__attribute__((target("avx,f16c"))) static void
narrow_fp16_f16c(uint64_t count, const float *restrict from, uint16_t *restrict to)
{
    uint64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(to + i), half);
    }
    narrow_fp16(count - i, from + i, to + i);
}

#else

static bool has_f16c(void)
{
    return false;
}

static void widen_fp16_f16c(uint64_t count, const uint16_t *restrict from, float *restrict to)
{
    widen_fp16(count, from, to);
}

static void narrow_fp16_f16c(uint64_t count, const float *restrict from, uint16_t *restrict to)
{
    narrow_fp16(count, from, to);
}

#endif

void rpexec_widen(rp_dtype dtype, uint64_t count, const void *from, float *to)
{
    if (dtype == RP_DTYPE_F32) {
        memcpy(to, from, count * sizeof *to);
    } else if (dtype == RP_DTYPE_BF16) {
        widen_bf16(count, from, to);
    } else if (has_f16c()) {
        widen_fp16_f16c(count, from, to);
    } else {
        widen_fp16(count, from, to);
    }
}

void rpexec_narrow(rp_dtype dtype, uint64_t count, const float *from, void *to)
{
    if (dtype == RP_DTYPE_F32) {
        memcpy(to, from, count * sizeof *from);
    } else if (dtype == RP_DTYPE_BF16) {
        narrow_bf16(count, from, to);
    } else if (has_f16c()) {
        narrow_fp16_f16c(count, from, to);
    } else {
        narrow_fp16(count, from, to);
    }
}
