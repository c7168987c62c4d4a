/** @file lane.h  A lane of the host backend, and its operators. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "exec/model/model.h"
#include "exec/operators/operators.h"

#include <stddef.h>

/** Scratch memory of one lane; the operators never allocate. */
struct rpexec_lane {
    rp_dtype dtype;       /**< of the tensors: that of the table that is used with it */
    float *scratch;       /**< aligned to 64 bytes */
    size_t scratch_count; /**< floats */
};

/**
 * Under a limited address space, makes the buffers that `threads` of OpenBLAS's callers take at the
 * same time: it waits for ever for one that it does not get. They stay until the process ends.
 * @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rpexec_host_reserve_buffers(uint32_t threads);

/** Operators in plain C and OpenBLAS (linear, attention), one table per storage type. */
extern const rpexec_operators *const rpexec_host_operators[RP_DTYPE_COUNT];

/** The table for fp32, and the one for 16-bit storage: the lane says which of the two. */
extern const rpexec_operators rpexec_host_fp32;
extern const rpexec_operators rpexec_host_half;

/** Rows of queries and of keys that attention works on at a time. */
#define RPEXEC_ATTENTION_QUERIES 64u
#define RPEXEC_ATTENTION_KEYS 128u

/**
 * A lane with scratch memory for the model's operators.
 * @param tokens of the largest microbatch
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_host_lane_create(const rpexec_model *model, uint64_t tokens, rp_arena *arena,
                                  rpexec_lane *lane_out);

/** @return floats of scratch of fp32 attention: two blocks of scores. */
size_t rpexec_host_attention_scratch(void);

/** @return floats of scratch that the operators of experts need, of any storage type. */
size_t rpexec_host_experts_scratch(const rp_model *model);

/** @return floats of scratch that the operators of 16-bit storage need at most. */
size_t rpexec_host_half_scratch(const rpexec_model *model, uint64_t tokens);

/**
 * e^x by range reduction and a polynomial, relative error below 2e-7 for -87 < x < 88, and 0 below
 * -87. The same bits on every machine, and simple enough for a compiler to vectorise.
 */
static inline float rpexec_exp(float x)
{
    /* x = n ln 2 + r with |r| <= ln 2 / 2; n by the usual trick of adding 1.5 * 2^23. */
    const float shift = 12582912.0f;
    float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float moved = clamped * 1.44269504088896341f + shift;
    float n = moved - shift;
    float r = clamped - n * 0.693359375f;
    r -= n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union {
        float f;
        uint32_t i; /* unsigned: a NaN's bits must not overflow */
    } bits = {.f = moved}, power;
    power.i = (bits.i - 0x4b400000u + 127u) << 23;
    return x < -87.0f ? 0.0f : p * power.f;
}

/** Operators of fp32; those of mixtures of experts are for every storage type. */
#define RPEXEC_HOST_OPERATOR(name, costs, ...)                                                     \
    void rpexec_host_##name(rpexec_lane *lane RPEXEC_PARAMETERS(__VA_ARGS__));
RPEXEC_OPERATOR_LIST(RPEXEC_HOST_OPERATOR)
