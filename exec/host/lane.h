/** @file lane.h  A lane of the host backend, and its operators. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "exec/model/model.h"
#include "exec/operators/operators.h"

#include <stddef.h>

/** Scratch memory of one lane; the operators never allocate. */
struct rpexec_lane {
    rpexec_dtype dtype;   /**< of the tensors: that of the table that is used with it */
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
extern const rpexec_operators *const rpexec_host_operators[RPEXEC_DTYPE_COUNT];

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

/* The parts of the fp32 table, one file each. */
void rpexec_host_rms_norm(rpexec_lane *lane, uint64_t rows, uint32_t width, float eps,
                          const void *x, const void *weight, void *y, float *r);
void rpexec_host_rms_norm_input(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *x,
                                const void *weight, const float *r, const void *dy,
                                const void *base, void *dx);
void rpexec_host_rms_norm_weight(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *x,
                                 const float *r, const void *dy, bool wide, void *dweight);
void rpexec_host_attention(rpexec_lane *lane, const rpexec_attention_sizes *sizes, const void *q,
                           const void *k, const void *v, void *o, float *logsumexp);
void rpexec_host_attention_backward(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                                    const void *q, const void *k, const void *v, const void *o,
                                    const float *logsumexp, const void *d_o, void *dq, void *dk,
                                    void *dv);
void rpexec_host_cross_entropy(rpexec_lane *lane, uint64_t rows, uint32_t vocab,
                               const int32_t *labels, float scale, void *z, double *loss);
/* Mixture of experts, for every storage type. */
void rpexec_host_route(rpexec_lane *lane, const rpexec_routing *routing, const void *logits);
void rpexec_host_route_backward(rpexec_lane *lane, const rpexec_routing *routing,
                                const float *dweights, void *dlogits);
void rpexec_host_gather(rpexec_lane *lane, const rpexec_routing *routing, uint32_t width,
                        const void *x, void *y);
void rpexec_host_scatter(rpexec_lane *lane, const rpexec_routing *routing, uint32_t width,
                         const void *x, bool add, void *y);
void rpexec_host_experts_linear(rpexec_lane *lane, const rpexec_routing *routing,
                                const rpexec_matrices *matrices, const void *x, const void *weights,
                                bool add, void *y);
void rpexec_host_experts_linear_input(rpexec_lane *lane, const rpexec_routing *routing,
                                      const rpexec_matrices *matrices, const void *dy,
                                      const void *weights, bool add, void *dx);
void rpexec_host_experts_linear_weight(rpexec_lane *lane, const rpexec_routing *routing,
                                       const rpexec_matrices *matrices, const void *dy,
                                       const void *x, bool wide, void *dweights);
void rpexec_host_experts_swiglu(rpexec_lane *lane, const rpexec_routing *routing, uint32_t width,
                                const void *gates, const void *ups, void *outputs);
void rpexec_host_experts_swiglu_backward(rpexec_lane *lane, const rpexec_routing *routing,
                                         uint32_t width, const void *gates, const void *ups,
                                         const void *d_outputs, void *d_gates, void *d_ups,
                                         float *dweights);
