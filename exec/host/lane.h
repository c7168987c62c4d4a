/** @file lane.h  A lane of the host backend, and its operators. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "exec/model/model.h"
#include "exec/operators/operators.h"

#include <math.h>
#include <stddef.h>

/** A lane's scratch memory; the operators never allocate. */
struct rpexec_lane {
    rp_dtype dtype;       /**< type of the tensors, and of the operator table that is used with the
                               lane */
    float *scratch;       /**< aligned to 64 bytes */
    size_t scratch_count; /**< floats */
};

/**
 * Under a limited address space, makes the buffers that `threads` callers of OpenBLAS take at the
 * same time: OpenBLAS would wait for ever for a buffer that it cannot get. They stay until the
 * process ends.
 * @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rpexec_host_reserve_buffers(uint32_t threads);

/** Operators in plain C and OpenBLAS (linear, attention), with a table per storage type. */
extern const rpexec_operators *const rpexec_host_operators[RP_DTYPE_COUNT];

/** The tables for fp32 and for 16-bit storage, whose type the lane gives. */
extern const rpexec_operators rpexec_host_fp32;
extern const rpexec_operators rpexec_host_half;

/** Rows of queries and of keys that attention works on at a time. */
#define RPEXEC_ATTENTION_QUERIES 64u
#define RPEXEC_ATTENTION_KEYS 64u

/**
 * A lane with scratch memory for the model's operators.
 * @param tokens tokens of the largest microbatch
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_host_lane_create(const rpexec_model *model, uint64_t tokens, rp_arena *arena,
                                  rpexec_lane *lane_out);

/** @return floats of scratch of fp32 attention: two blocks of scores, two of queries. */
size_t rpexec_host_attention_scratch(uint32_t head_dim);

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
    /* x = n ln 2 + r with |r| <= ln 2 / 2; n is found by the usual trick of adding 1.5 * 2^23. */
    const float shift = 12582912.0f;
    float low = 88.0f < x ? 88.0f : x; /* each a single instruction, which keeps a NaN */
    float clamped = -87.0f > low ? -87.0f : low;
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

/** Partial sums in a fixed order, which compilers vectorise: the same bits everywhere. */
#define RPEXEC_PARTS 8u

/** Adds `count` values to eight partial sums, value j to sum j % 8. */
static inline void rpexec_add_to_parts(const float *x, uint32_t count, double parts[RPEXEC_PARTS])
{
    uint32_t whole = count / RPEXEC_PARTS * RPEXEC_PARTS;
    for (uint32_t j = 0; j < whole; j += RPEXEC_PARTS) {
        for (uint32_t p = 0; p < RPEXEC_PARTS; p++) {
            parts[p] += (double)x[j + p];
        }
    }
    for (uint32_t j = whole; j < count; j++) {
        parts[j - whole] += (double)x[j];
    }
}

static inline double rpexec_sum_of_parts(const double parts[RPEXEC_PARTS])
{
    return ((parts[0] + parts[4]) + (parts[1] + parts[5])) +
           ((parts[2] + parts[6]) + (parts[3] + parts[7]));
}

/** Floats of a chunk that stays in a core's first cache: a multiple of RPEXEC_PARTS. */
#define RPEXEC_CHUNK 512u

/** The largest of `count` values; NaN are passed over, and the result is -inf if there is nothing
 * else. A compiler makes vectors of 32 parts, but a chain of single values of eight. */
static inline float rpexec_largest(const float *x, uint32_t count)
{
    enum { PARTS = 32 };
    float parts[PARTS];
    float most = -INFINITY;
    size_t whole = count / PARTS * PARTS;
    for (size_t p = 0; p < PARTS; p++) {
        parts[p] = -INFINITY;
    }
    for (size_t j = 0; j < whole; j += PARTS) {
        const float *next = x + j;
        for (size_t p = 0; p < PARTS; p++) {
            parts[p] = next[p] > parts[p] ? next[p] : parts[p];
        }
    }
    for (size_t j = whole; j < count; j++) {
        most = x[j] > most ? x[j] : most;
    }
    for (size_t p = 0; p < PARTS / 2; p++) {
        parts[p] = parts[p + PARTS / 2] > parts[p] ? parts[p + PARTS / 2] : parts[p];
    }
    for (size_t p = 0; p < PARTS / 4; p++) {
        parts[p] = parts[p + PARTS / 4] > parts[p] ? parts[p + PARTS / 4] : parts[p];
    }
    for (size_t p = 0; p < PARTS / 4; p++) {
        most = parts[p] > most ? parts[p] : most;
    }
    return most;
}

/** Operators of fp32; the operators of mixtures of experts are for every storage type. */
#define RPEXEC_HOST_OPERATOR(name, costs, ...)                                                     \
    void rpexec_host_##name(rpexec_lane *lane RPEXEC_PARAMETERS(__VA_ARGS__));
RPEXEC_OPERATOR_LIST(RPEXEC_HOST_OPERATOR)
