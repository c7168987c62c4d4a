/* The smaller operators of the host backend, and the table. */
#include "exec/host/lane.h"
#include "exec/state/scaler.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

void rpexec_host_linear(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out, const void *x,
                        const void *weight, const void *base, void *y)
{
    (void)lane;
    if (base != NULL && base != y) {
        memcpy(y, base, rows * out * sizeof(float));
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)rows, (blasint)out, (blasint)in,
                1.0f, x, (blasint)in, weight, (blasint)in, base != NULL ? 1.0f : 0.0f, y,
                (blasint)out);
}

void rpexec_host_linear_input(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out,
                              const void *dy, const void *weight, bool add, void *dx)
{
    (void)lane;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows, (blasint)in, (blasint)out,
                1.0f, dy, (blasint)out, weight, (blasint)in, add ? 1.0f : 0.0f, dx, (blasint)in);
}

void rpexec_host_linear_weight(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out,
                               const void *dy, const void *x, bool wide, void *dweight)
{
    (void)lane;
    (void)wide;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)out, (blasint)in, (blasint)rows,
                1.0f, dy, (blasint)out, x, (blasint)in, 1.0f, dweight, (blasint)in);
}

RPEXEC_VECTOR
void rpexec_host_rotate(rpexec_lane *lane, uint32_t sequences, uint32_t seq_len, uint32_t heads,
                        uint32_t head_dim, uint32_t turned, const float *cosines,
                        const float *sines, bool inverse, void *values)
{
    float *x = values;
    (void)lane;
    uint32_t half = turned / 2;
    float sign = inverse ? -1.0f : 1.0f;
    for (uint64_t t = 0; t < (uint64_t)sequences * seq_len; t++) {
        const float *c = cosines + t % seq_len * half;
        const float *s = sines + t % seq_len * half;
        for (uint32_t j = 0; j < heads; j++) {
            float *a = x + (t * heads + j) * head_dim;
            float *b = a + half;
            for (uint32_t i = 0; i < half; i++) {
                float sine = sign * s[i];
                float first = a[i] * c[i] - b[i] * sine;
                b[i] = b[i] * c[i] + a[i] * sine;
                a[i] = first;
            }
        }
    }
}

/* Both gates are g sigmoid(z). SwiGLU's z is g. GeGLU's is twice the argument of the tanh in GELU's
 * approximation (Hendrycks and Gimpel, arXiv 1606.08415, section 2), since (1 + tanh x) / 2 is
 * sigmoid(2 x). */
#define GELU_SLOPE (2 * 0.797884560802865356f) /* 2 sqrt(2 / pi) */
#define GELU_CUBE 0.044715f

static inline float gate_argument(bool gelu, float g)
{
    return gelu ? GELU_SLOPE * (g + GELU_CUBE * g * g * g) : g;
}

static inline float gate_slope(bool gelu, float g)
{
    return gelu ? GELU_SLOPE * (1.0f + 3.0f * GELU_CUBE * g * g) : 1.0f;
}

static inline void gated(bool gelu, uint64_t count, const float *gate, const float *up, float *s)
{
    for (uint64_t i = 0; i < count; i++) {
        s[i] = gate[i] / (1.0f + rpexec_exp(-gate_argument(gelu, gate[i]))) * up[i];
    }
}

static inline void gated_backward(bool gelu, uint64_t count, const float *gate, const float *up,
                                  const float *ds, float *dgate, float *dup)
{
    for (uint64_t i = 0; i < count; i++) {
        float d = ds[i];
        float g = gate[i];
        float z = gate_argument(gelu, g);
        float sigma = 1.0f / (1.0f + rpexec_exp(-z));
        /* GELU's g slope is large enough to make the rounding of 1 - sigma seen. */
        float rest = gelu ? 1.0f / (1.0f + rpexec_exp(z)) : 1.0f - sigma;
        float slope = sigma * (1.0f + g * rest * gate_slope(gelu, g));
        float to_gate = d * up[i] * slope;
        dup[i] = d * g * sigma;
        dgate[i] = to_gate;
    }
}

#define GATE(name, gelu)                                                                           \
    RPEXEC_VECTOR                                                                                  \
    void rpexec_host_##name(rpexec_lane *lane, uint64_t count, const void *gate, const void *up,   \
                            void *s)                                                               \
    {                                                                                              \
        (void)lane;                                                                                \
        gated(gelu, count, gate, up, s);                                                           \
    }                                                                                              \
    RPEXEC_VECTOR                                                                                  \
    void rpexec_host_##name##_backward(rpexec_lane *lane, uint64_t count, const void *gate,        \
                                       const void *up, const void *ds, void *dgate, void *dup)     \
    {                                                                                              \
        (void)lane;                                                                                \
        gated_backward(gelu, count, gate, up, ds, dgate, dup);                                     \
    }
GATE(swiglu, false)
GATE(geglu, true)

RPEXEC_VECTOR
void rpexec_host_add(rpexec_lane *lane, uint64_t count, const void *first, const void *second,
                     void *sum)
{
    const float *a = first;
    const float *b = second;
    float *y = sum;
    (void)lane;
    for (uint64_t i = 0; i < count; i++) {
        y[i] = a[i] + b[i];
    }
}

RPEXEC_VECTOR
void rpexec_host_add_bias(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *values,
                          const void *before, void *sums)
{
    const float *bias = values;
    const float *base = before;
    float *y = sums;
    (void)lane;
    for (uint64_t row = 0; row < rows; row++) {
        for (uint32_t j = 0; j < width; j++) {
            y[row * width + j] = base != NULL ? base[row * width + j] + bias[j] : bias[j];
        }
    }
}

RPEXEC_VECTOR
void rpexec_host_bias_weight(rpexec_lane *lane, uint64_t rows, uint32_t width,
                             const void *d_outputs, bool wide, void *d_bias)
{
    const float *dy = d_outputs;
    float *dbias = d_bias;
    (void)lane;
    (void)wide;
    for (uint64_t row = 0; row < rows; row++) {
        for (uint32_t j = 0; j < width; j++) {
            dbias[j] += dy[row * width + j];
        }
    }
}

void rpexec_host_add_sums(rpexec_lane *lane, uint64_t count, const float *sums, void *gradients)
{
    rpexec_host_add(lane, count, gradients, sums, gradients);
}

void rpexec_host_embed(rpexec_lane *lane, uint64_t tokens, uint32_t width, const int32_t *ids,
                       const void *rows, void *outputs)
{
    const float *table = rows;
    float *x = outputs;
    (void)lane;
    for (uint64_t t = 0; t < tokens; t++) {
        if (ids[t] < 0) {
            memset(x + t * width, 0, width * sizeof *x);
        } else {
            memcpy(x + t * width, table + (size_t)ids[t] * width, width * sizeof *x);
        }
    }
}

RPEXEC_VECTOR
void rpexec_host_embed_weight(rpexec_lane *lane, uint64_t tokens, uint32_t width,
                              const int32_t *ids, const void *d_outputs, bool wide, void *d_rows)
{
    const float *dx = d_outputs;
    float *dtable = d_rows;
    (void)lane;
    (void)wide;
    for (uint64_t t = 0; t < tokens; t++) {
        float *row = dtable + (size_t)(ids[t] < 0 ? 0 : ids[t]) * width;
        for (uint32_t j = 0; ids[t] >= 0 && j < width; j++) {
            row[j] += dx[t * width + j];
        }
    }
}

/* A row of logits is in memory, not in a cache: the following row is prefetched meanwhile. */
static inline void fetch(const float *z, uint32_t count)
{
    for (uint32_t j = 0; j < count; j += 64 / sizeof *z) {
        __builtin_prefetch(z + j, 0, 2);
    }
}

/* z := e^(z - most). @param next the following row, or NULL @return their sum */
static inline double exponentials(float *z, uint32_t count, float most, const float *next)
{
    double parts[RPEXEC_PARTS] = {0};
    for (uint32_t first = 0; first < count; first += RPEXEC_CHUNK) {
        uint32_t values = count - first < RPEXEC_CHUNK ? count - first : RPEXEC_CHUNK;
        if (next != NULL) {
            fetch(next + first, values);
        }
        for (uint32_t j = first; j < first + values; j++) {
            z[j] = rpexec_exp(z[j] - most);
        }
        rpexec_add_to_parts(z + first, values, parts);
    }
    return rpexec_sum_of_parts(parts);
}

static float capped(float z, float cap)
{
    return cap > 0 ? cap * tanhf(z / cap) : z;
}

/* The gradient of z, from the gradient of capped z. */
static float cap_slope(float z, float cap, float gradient)
{
    float t = cap > 0 ? tanhf(z / cap) : 0.0f;
    return cap > 0 ? gradient * (1.0f - t * t) : gradient;
}

/* The sum of e^(z - most) of capped logits z. */
static double capped_sum(uint32_t vocab, float cap, float most, const float *z)
{
    double sum = 0;
    for (uint32_t j = 0; j < vocab; j++) {
        sum += (double)rpexec_exp(capped(z[j], cap) - most);
    }
    return sum;
}

/* A row of capped logits becomes its gradient, except at the label. */
static void capped_gradient(uint32_t vocab, float cap, float most, float factor, float *z)
{
    for (uint32_t j = 0; j < vocab; j++) {
        z[j] = cap_slope(z[j], cap, rpexec_exp(capped(z[j], cap) - most) * factor);
    }
}

RPEXEC_VECTOR
void rpexec_host_cross_entropy(rpexec_lane *lane, uint64_t rows, uint32_t vocab,
                               const int32_t *labels, float cap, float scale, void *rows_of_logits,
                               double *loss)
{
    float *z = rows_of_logits;
    uint32_t plain = cap > 0 ? 0 : vocab; /* logits without a cap */
    (void)lane;
    for (uint64_t row = 0; row < rows; row++) {
        float *logits = z + row * vocab;
        if (labels[row] == RPEXEC_IGNORED) {
            memset(logits, 0, vocab * sizeof *logits);
            continue;
        }
        float most = capped(rpexec_largest(logits, vocab), cap);
        float own = logits[labels[row]]; /* read before the row is overwritten */
        const float *next = row + 1 < rows ? logits + vocab : NULL;
        double sum = cap > 0 ? capped_sum(vocab, cap, most, logits)
                             : exponentials(logits, vocab, most, next);
        float factor = (float)((double)scale / sum);
        *loss += log(sum) + (double)most - (double)capped(own, cap);
        for (uint32_t j = 0; j < plain; j++) { /* z holds the exponentials */
            logits[j] *= factor;
        }
        if (cap > 0) {
            capped_gradient(vocab, cap, most, factor, logits);
        }
        logits[labels[row]] -= cap_slope(own, cap, scale);
    }
}

RPEXEC_VECTOR
void rpexec_host_row_statistics(rpexec_lane *lane, uint64_t rows, uint32_t vocab, float cap,
                                const void *logits, float *statistics)
{
    const float *z = logits;
    uint32_t plain = cap > 0 ? 0 : vocab;
    (void)lane;
    for (uint64_t row = 0; row < rows; row++, z += vocab) {
        float most = capped(rpexec_largest(z, vocab), cap);
        double sum = cap > 0 ? capped_sum(vocab, cap, most, z) : 0;
        for (uint32_t j = 0; j < plain; j++) {
            sum += (double)rpexec_exp(z[j] - most);
        }
        statistics[2 * row] = most;
        statistics[2 * row + 1] = (float)sum;
    }
}

/* The largest logit of all parts, and the sum of e^(z - largest). */
static float join_parts(uint32_t parts, const float *statistics, uint64_t stride, double *sum_out)
{
    float most = statistics[0];
    double sum = 0;
    for (uint32_t i = 1; i < parts; i++) {
        most = statistics[i * stride] > most ? statistics[i * stride] : most;
    }
    for (uint32_t i = 0; i < parts; i++) {
        sum +=
            (double)statistics[i * stride + 1] * (double)rpexec_exp(statistics[i * stride] - most);
    }
    *sum_out = sum;
    return most;
}

RPEXEC_VECTOR
void rpexec_host_cross_entropy_part(rpexec_lane *lane, uint64_t rows, uint32_t vocab,
                                    uint32_t first, const int32_t *labels, uint32_t parts,
                                    const float *statistics, uint64_t stride, float cap,
                                    float scale, void *values, double *loss)
{
    float *z = values;
    uint32_t plain = cap > 0 ? 0 : vocab;
    (void)lane;
    for (uint64_t row = 0; row < rows; row++, z += vocab) {
        double sum = 0;
        if (labels[row] == RPEXEC_IGNORED) {
            memset(z, 0, vocab * sizeof *z);
            continue;
        }
        float most = join_parts(parts, statistics + 2 * row, stride, &sum);
        uint32_t label = (uint32_t)labels[row] - first; /* wraps if it is in an earlier part */
        float own = label < vocab ? z[label] : 0.0f;
        if (label < vocab) {
            *loss += log(sum) + (double)most - (double)capped(own, cap);
        }
        float factor = (float)((double)scale / sum);
        for (uint32_t j = 0; j < plain; j++) {
            z[j] = rpexec_exp(z[j] - most) * factor;
        }
        if (cap > 0) {
            capped_gradient(vocab, cap, most, factor, z);
        }
        if (label < vocab) {
            z[label] -= cap_slope(own, cap, scale);
        }
    }
}

RPEXEC_VECTOR
void rpexec_host_scale(rpexec_lane *lane, uint64_t count, float factor, void *values)
{
    float *x = values;
    (void)lane;
    for (uint64_t i = 0; i < count; i++) {
        x[i] *= factor;
    }
}

void rpexec_host_zero(rpexec_lane *lane, uint64_t count, void *x)
{
    (void)lane;
    memset(x, 0, count * sizeof(float));
}

void rpexec_host_copy(rpexec_lane *lane, uint64_t count, const void *from, void *to)
{
    (void)lane;
    memcpy(to, from, count * sizeof(float));
}

static void add_squares(rpexec_lane *lane, uint64_t count, const void *x, rpexec_squares *sum)
{
    (void)lane;
    rpexec_squares_add(RP_DTYPE_F32, count, x, sum);
}

void rpexec_host_adam(rpexec_lane *lane, const rpexec_adam_factors *factors,
                      const rpexec_update *update)
{
    const rpexec_adam_slice slice = {.parameters = update->master,
                                     .gradients = update->gradients,
                                     .m = update->m,
                                     .v = update->v,
                                     .count = update->count};
    (void)lane;
    rpexec_adam_update(factors, &slice);
}

#define ENTRY(name, ...) .name = rpexec_host_##name,
const rpexec_operators rpexec_host_fp32 = {RPEXEC_OPERATOR_LIST(ENTRY).squares = add_squares};

const rpexec_operators *const rpexec_host_operators[RP_DTYPE_COUNT] = {
    [RP_DTYPE_F32] = &rpexec_host_fp32,
    [RP_DTYPE_F16] = &rpexec_host_half,
    [RP_DTYPE_BF16] = &rpexec_host_half,
};
