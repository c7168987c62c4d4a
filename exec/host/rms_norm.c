/* RMSNorm over rows: rows of a block's input and, with width = head_dim, of queries and keys. */
#include "exec/host/lane.h"

#include <math.h>

/* Eight partial sums in a fixed order: vectorisable, and the same bits everywhere. */
enum { PARTS = 8 };

static inline float sum_of(const float parts[PARTS])
{
    return ((parts[0] + parts[4]) + (parts[1] + parts[5])) +
           ((parts[2] + parts[6]) + (parts[3] + parts[7]));
}

static inline float sum_of_squares(uint32_t width, const float *x)
{
    float parts[PARTS] = {0};
    uint32_t whole = width / PARTS * PARTS;
    for (uint32_t j = 0; j < whole; j += PARTS) {
        for (uint32_t k = 0; k < PARTS; k++) {
            parts[k] += x[j + k] * x[j + k];
        }
    }
    for (uint32_t j = whole; j < width; j++) {
        parts[j - whole] += x[j] * x[j];
    }
    return sum_of(parts);
}

static inline float sum_of_products(uint32_t width, const float *dy, const float *weight, float one,
                                    const float *x)
{
    float parts[PARTS] = {0};
    uint32_t whole = width / PARTS * PARTS;
    for (uint32_t j = 0; j < whole; j += PARTS) {
        for (uint32_t k = 0; k < PARTS; k++) {
            parts[k] += dy[j + k] * (weight[j + k] + one) * x[j + k];
        }
    }
    for (uint32_t j = whole; j < width; j++) {
        parts[j - whole] += dy[j] * (weight[j] + one) * x[j];
    }
    return sum_of(parts);
}

RPEXEC_VECTOR
void rpexec_host_rms_norm(rpexec_lane *lane, uint64_t rows, uint32_t width, float eps, bool shifted,
                          const void *inputs, const void *weights, void *outputs, float *r)
{
    const float *x = inputs;
    const float *weight = weights;
    float *y = outputs;
    float one = shifted ? 1.0f : 0.0f;
    (void)lane;
    for (uint64_t row = 0; row < rows; row++) {
        const float *from = x + row * width;
        float *to = y + row * width;
        float scale = 1.0f / sqrtf(sum_of_squares(width, from) / (float)width + eps);
        r[row] = scale;
        for (uint32_t j = 0; j < width; j++) {
            to[j] = from[j] * scale * (weight[j] + one);
        }
    }
}

RPEXEC_VECTOR
void rpexec_host_rms_norm_input(rpexec_lane *lane, uint64_t rows, uint32_t width, bool shifted,
                                const void *inputs, const void *weights, const float *r,
                                const void *d_outputs, const void *base, void *d_inputs)
{
    const float *x = inputs;
    const float *weight = weights;
    const float *dy = d_outputs;
    float *dx = d_inputs;
    float one = shifted ? 1.0f : 0.0f;
    (void)lane;
    for (uint64_t row = 0; row < rows; row++) {
        const float *in = x + row * width;
        const float *from = dy + row * width;
        const float *old = base != NULL ? (const float *)base + row * width : NULL;
        float *to = dx + row * width;
        float scale = r[row];
        float mean = sum_of_products(width, from, weight, one, in) / (float)width;
        float pull = scale * scale * scale * mean;
        if (old != NULL) {
            for (uint32_t j = 0; j < width; j++) {
                to[j] = old[j] + (scale * from[j] * (weight[j] + one) - in[j] * pull);
            }
        } else {
            for (uint32_t j = 0; j < width; j++) {
                to[j] = scale * from[j] * (weight[j] + one) - in[j] * pull;
            }
        }
    }
}

RPEXEC_VECTOR
void rpexec_host_rms_norm_weight(rpexec_lane *lane, uint64_t rows, uint32_t width,
                                 const void *inputs, const float *r, const void *d_outputs,
                                 bool wide, void *d_weights)
{
    const float *x = inputs;
    const float *dy = d_outputs;
    float *dweight = d_weights;
    (void)lane;
    (void)wide;
    for (uint64_t row = 0; row < rows; row++) {
        const float *in = x + row * width;
        const float *from = dy + row * width;
        for (uint32_t j = 0; j < width; j++) {
            dweight[j] += from[j] * in[j] * r[row];
        }
    }
}
