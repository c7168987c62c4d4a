/* Mixture of experts on the host, for every storage type: routing, gathering, and the work of each
 * expert on its rows. Rows of 16-bit values are widened into the lane's scratch memory. */
#include "exec/host/lane.h"

#include <math.h>
#include <string.h>

static const void *at_const(const rpexec_lane *lane, const void *array, uint64_t index)
{
    return rpexec_element_const(lane->dtype, array, index);
}

static void *at(const rpexec_lane *lane, void *array, uint64_t index)
{
    return rpexec_element(lane->dtype, array, index);
}

/* Piece `number` of the scratch memory, each of `count` floats. */
static float *piece(const rpexec_lane *lane, uint64_t count, uint32_t number)
{
    return lane->scratch + number * ((count + 15) / 16 * 16);
}

/* `count` values from `index` on in fp32: at their own address, or widened into a piece. */
static const float *wide(const rpexec_lane *lane, const void *array, uint64_t index, uint64_t count,
                         uint32_t number)
{
    const void *from = at_const(lane, array, index);
    if (lane->dtype == RP_DTYPE_F32) {
        return from;
    }
    rpexec_widen(lane->dtype, count, from, piece(lane, count, number));
    return piece(lane, count, number);
}

/* Address at which to write fp32 values; `narrow` then puts them into `array`. */
static float *target(const rpexec_lane *lane, void *array, uint64_t index, uint64_t count,
                     uint32_t number)
{
    return lane->dtype == RP_DTYPE_F32 ? at(lane, array, index) : piece(lane, count, number);
}

static void narrow(const rpexec_lane *lane, const float *from, void *array, uint64_t index,
                   uint64_t count)
{
    if (lane->dtype != RP_DTYPE_F32) {
        rpexec_narrow(lane->dtype, count, from, at(lane, array, index));
    }
}

/* ---- routing --------------------------------------------------------------------------------- */

static void softmax(uint32_t count, const float *logits, float *p)
{
    float most = logits[0];
    double sum = 0;
    for (uint32_t e = 1; e < count; e++) {
        most = logits[e] > most ? logits[e] : most;
    }
    for (uint32_t e = 0; e < count; e++) {
        p[e] = rpexec_exp(logits[e] - most);
        sum += (double)p[e];
    }
    for (uint32_t e = 0; e < count; e++) {
        p[e] = (float)((double)p[e] / sum);
    }
}

static bool is_chosen(const uint32_t *chosen, uint32_t count, uint32_t expert)
{
    for (uint32_t j = 0; j < count; j++) {
        if (chosen[j] == expert) {
            return true;
        }
    }
    return false;
}

/* The expert after chosen[count - 1] by falling probability, then by number. NaN has no order: a
 * row with NaN gets the first experts that are left, so that its indices stay valid. */
static uint32_t next_best(uint32_t experts, const float *p, const uint32_t *chosen, uint32_t count)
{
    uint32_t best = experts;
    for (uint32_t e = 0; e < experts; e++) {
        bool candidate = true;
        if (count > 0) {
            uint32_t last = chosen[count - 1];
            candidate = p[e] < p[last] || (p[e] == p[last] && e > last);
        }
        if (candidate && (best == experts || p[e] > p[best])) {
            best = e;
        }
    }
    for (uint32_t e = 0; best == experts; e++) {
        best = is_chosen(chosen, count, e) ? experts : e;
    }
    return best;
}

/* Puts the rows in the order of their experts, and of tokens for each (a counting sort). */
static void group(const rpexec_routing *r)
{
    memset(r->begins, 0, ((size_t)r->experts + 1) * sizeof *r->begins);
    for (uint64_t i = 0; i < r->tokens * r->active; i++) {
        r->begins[r->chosen[i] + 1]++;
    }
    for (uint32_t e = 0; e < r->experts; e++) {
        r->begins[e + 1] += r->begins[e];
    }
    for (uint64_t i = 0; i < r->tokens * r->active; i++) {
        r->rows[i] = r->begins[r->chosen[i]]++;
    }
    for (uint32_t e = r->experts; e > 0; e--) { /* each has moved to the next expert's begin */
        r->begins[e] = r->begins[e - 1];
    }
    r->begins[0] = 0;
}

void rpexec_host_route(rpexec_lane *lane, const rpexec_routing *r, const void *logits)
{
    for (uint64_t t = 0; t < r->tokens; t++) {
        float *p = r->probabilities + t * r->experts;
        uint32_t *chosen = r->chosen + t * r->active;
        softmax(r->experts, wide(lane, logits, t * r->experts, r->experts, 0), p);
        for (uint32_t j = 0; j < r->active; j++) {
            chosen[j] = next_best(r->experts, p, chosen, j);
        }
    }
    group(r);
    for (uint64_t t = 0; t < r->tokens; t++) {
        const float *p = r->probabilities + t * r->experts;
        float sum = 0;
        for (uint64_t i = t * r->active; i < (t + 1) * r->active; i++) {
            sum += p[r->chosen[i]];
        }
        for (uint64_t i = t * r->active; i < (t + 1) * r->active; i++) {
            r->weights[r->rows[i]] = r->raw ? p[r->chosen[i]] : p[r->chosen[i]] / sum;
        }
    }
}

/* With w the weights of the chosen experts c and s = sum of w dw: if divided by their sum, dz_c =
 * w_c (dw_c - s), and the other experts get 0, since their probabilities cancel; if raw, dz_c = p_c
 * (dw_c - s), and -p s for the other experts. */
void rpexec_host_route_backward(rpexec_lane *lane, const rpexec_routing *r, const float *dweights,
                                void *dlogits)
{
    for (uint64_t t = 0; t < r->tokens; t++) {
        float *row = target(lane, dlogits, t * r->experts, r->experts, 0);
        float sum = 0;
        for (uint64_t i = t * r->active; i < (t + 1) * r->active; i++) {
            sum += r->weights[r->rows[i]] * dweights[r->rows[i]];
        }
        for (uint32_t e = 0; e < r->experts; e++) {
            row[e] = r->raw ? -r->probabilities[t * r->experts + e] * sum : 0.0f;
        }
        for (uint64_t i = t * r->active; i < (t + 1) * r->active; i++) {
            row[r->chosen[i]] = r->weights[r->rows[i]] * (dweights[r->rows[i]] - sum);
        }
        narrow(lane, row, dlogits, t * r->experts, r->experts);
    }
}

void rpexec_host_gather(rpexec_lane *lane, const rpexec_routing *r, uint32_t width, const void *x,
                        void *y)
{
    size_t bytes = width * rp_dtype_bytes(lane->dtype);
    for (uint64_t i = 0; i < r->tokens * r->active; i++) {
        memcpy(at(lane, y, (uint64_t)r->rows[i] * width), at_const(lane, x, i / r->active * width),
               bytes);
    }
}

RPEXEC_VECTOR
void rpexec_host_scatter(rpexec_lane *lane, const rpexec_routing *r, uint32_t width, const void *x,
                         bool add, void *y)
{
    float *sum = piece(lane, width, 0);
    for (uint64_t t = 0; t < r->tokens; t++) {
        memset(sum, 0, width * sizeof *sum);
        for (uint64_t i = t * r->active; i < (t + 1) * r->active; i++) {
            const float *from = wide(lane, x, (uint64_t)r->rows[i] * width, width, 1);
            for (uint32_t k = 0; k < width; k++) {
                sum[k] += from[k];
            }
        }
        const float *old = add ? wide(lane, y, t * width, width, 1) : NULL;
        for (uint32_t k = 0; add && k < width; k++) {
            sum[k] += old[k];
        }
        rpexec_narrow(lane->dtype, width, sum, at(lane, y, t * width));
    }
}

/* ---- experts --------------------------------------------------------------------------------- */

/* Gate and up within their limits; without a limit `most` is infinity, and `more` 0. */
static inline float limited_gate(float gate, float most)
{
    return gate > most ? most : gate;
}

static inline float limited_up(float up, float most, float more)
{
    return (up > most ? most : up < -most ? -most : up) + more;
}

static inline float most_of(float limit)
{
    return limit != 0.0f ? limit : INFINITY;
}

static inline float more_of(float limit)
{
    return limit != 0.0f ? 1.0f : 0.0f;
}

RPEXEC_VECTOR
void rpexec_host_experts_swiglu(rpexec_lane *lane, const rpexec_routing *r, uint32_t width,
                                float alpha, float limit, const void *gates, const void *ups,
                                void *outputs)
{
    float most = most_of(limit);
    float more = more_of(limit);
    for (uint64_t row = 0; row < r->tokens * r->active; row++) {
        const float *gate = wide(lane, gates, row * width, width, 0);
        const float *up = wide(lane, ups, row * width, width, 1);
        float *s = target(lane, outputs, row * width, width, 2);
        float weight = r->weights[row];
        for (uint32_t i = 0; i < width; i++) {
            float g = limited_gate(gate[i], most);
            float u = limited_up(up[i], most, more);
            s[i] = weight * (g / (1.0f + rpexec_exp(-alpha * g)) * u);
        }
        narrow(lane, s, outputs, row * width, width);
    }
}

/* A row of the backward: its tensors, its weight and the numbers of the gate. */
typedef struct gated_row {
    float weight, alpha, limit;
    const float *gate, *up, *ds;
    float *dgate, *dup;
} gated_row;

/* @return the gradient of the weight. Beyond a limit the gradients of gate and up are 0. */
RPEXEC_VECTOR
static float swiglu_backward_row(uint32_t width, const gated_row *row)
{
    const float *gate = row->gate;
    const float *up = row->up;
    const float *ds = row->ds;
    float *dgate = row->dgate;
    float *dup = row->dup;
    float alpha = row->alpha;
    float weight = row->weight;
    float most = most_of(row->limit);
    float more = more_of(row->limit);
    double parts[RPEXEC_PARTS] = {0};
    for (uint32_t first = 0; first < width; first += RPEXEC_CHUNK) {
        float shares[RPEXEC_CHUNK];
        uint32_t end = width - first < RPEXEC_CHUNK ? width : first + RPEXEC_CHUNK;
        for (uint32_t i = first; i < end; i++) {
            float g = limited_gate(gate[i], most);
            float u = limited_up(up[i], most, more);
            float sigma = 1.0f / (1.0f + rpexec_exp(-alpha * g));
            float slope = sigma * (1.0f + alpha * g * (1.0f - sigma));
            float d = ds[i] * weight;
            float to_gate = gate[i] > most ? 0.0f : d * u * slope;
            shares[i - first] = ds[i] * g * sigma * u;
            dup[i] = up[i] > most || up[i] < -most ? 0.0f : d * g * sigma;
            dgate[i] = to_gate;
        }
        rpexec_add_to_parts(shares, end - first, parts);
    }
    return (float)rpexec_sum_of_parts(parts);
}

void rpexec_host_experts_swiglu_backward(rpexec_lane *lane, const rpexec_routing *r, uint32_t width,
                                         float alpha, float limit, const void *gates,
                                         const void *ups, const void *d_outputs, void *d_gates,
                                         void *d_ups, float *dweights)
{
    for (uint64_t row = 0; row < r->tokens * r->active; row++) {
        const gated_row one = {.weight = r->weights[row],
                               .alpha = alpha,
                               .limit = limit,
                               .gate = wide(lane, gates, row * width, width, 0),
                               .up = wide(lane, ups, row * width, width, 1),
                               .ds = wide(lane, d_outputs, row * width, width, 2),
                               .dgate = target(lane, d_gates, row * width, width, 3),
                               .dup = target(lane, d_ups, row * width, width, 4)};
        dweights[row] = swiglu_backward_row(width, &one);
        narrow(lane, one.dgate, d_gates, row * width, width);
        narrow(lane, one.dup, d_ups, row * width, width);
    }
}

void rpexec_host_experts_bias(rpexec_lane *lane, const rpexec_routing *r, uint32_t width,
                              const void *biases, bool weighted, void *outputs)
{
    for (uint32_t e = 0; e < r->experts; e++) {
        const float *bias = wide(lane, biases, (uint64_t)e * width, width, 0);
        for (uint64_t row = r->begins[e]; row < r->begins[e + 1]; row++) {
            float *y = target(lane, outputs, row * width, width, 1);
            for (uint32_t i = 0; i < width; i++) {
                y[i] = weighted ? r->weights[row] * bias[i] : bias[i];
            }
            narrow(lane, y, outputs, row * width, width);
        }
    }
}

void rpexec_host_experts_bias_input(rpexec_lane *lane, const rpexec_routing *r, uint32_t width,
                                    const void *d_outputs, const void *biases, float *dweights)
{
    for (uint32_t e = 0; e < r->experts; e++) {
        const float *bias = wide(lane, biases, (uint64_t)e * width, width, 0);
        for (uint64_t row = r->begins[e]; row < r->begins[e + 1]; row++) {
            const float *dy = wide(lane, d_outputs, row * width, width, 1);
            double sum = 0;
            for (uint32_t i = 0; i < width; i++) {
                sum += (double)(dy[i] * bias[i]);
            }
            dweights[row] += (float)sum;
        }
    }
}

void rpexec_host_experts_bias_weight(rpexec_lane *lane, const rpexec_routing *r, uint32_t width,
                                     const void *d_outputs, bool weighted, bool sums,
                                     void *d_biases)
{
    const rp_dtype dtype = sums ? RP_DTYPE_F32 : lane->dtype;
    float *sum = piece(lane, width, 0);
    for (uint32_t e = 0; e < r->experts; e++) {
        void *dbias = rpexec_element(dtype, d_biases, (uint64_t)e * width);
        rpexec_widen(dtype, width, dbias, sum);
        for (uint64_t row = r->begins[e]; row < r->begins[e + 1]; row++) {
            const float *dy = wide(lane, d_outputs, row * width, width, 1);
            for (uint32_t i = 0; i < width; i++) {
                sum[i] += weighted ? r->weights[row] * dy[i] : dy[i];
            }
        }
        rpexec_narrow(dtype, width, sum, dbias);
    }
}

static uint64_t rows_of(const rpexec_routing *r, uint32_t expert)
{
    return r->begins[expert + 1] - r->begins[expert];
}

void rpexec_host_experts_linear(rpexec_lane *lane, const rpexec_routing *r,
                                const rpexec_matrices *m, const void *x, const void *weights,
                                bool add, void *y)
{
    const rpexec_operators *op = rpexec_host_operators[lane->dtype];
    for (uint32_t e = 0; e < r->experts; e++) {
        if (rows_of(r, e) > 0) {
            void *to = at(lane, y, (uint64_t)r->begins[e] * m->out);
            op->linear(lane, rows_of(r, e), m->in, m->out,
                       at_const(lane, x, (uint64_t)r->begins[e] * m->in),
                       at_const(lane, weights, e * m->stride), add ? to : NULL, to);
        }
    }
}

void rpexec_host_experts_linear_input(rpexec_lane *lane, const rpexec_routing *r,
                                      const rpexec_matrices *m, const void *dy, const void *weights,
                                      bool add, void *dx)
{
    const rpexec_operators *op = rpexec_host_operators[lane->dtype];
    for (uint32_t e = 0; e < r->experts; e++) {
        if (rows_of(r, e) > 0) {
            op->linear_input(lane, rows_of(r, e), m->in, m->out,
                             at_const(lane, dy, (uint64_t)r->begins[e] * m->out),
                             at_const(lane, weights, e * m->stride), add,
                             at(lane, dx, (uint64_t)r->begins[e] * m->in));
        }
    }
}

void rpexec_host_experts_linear_weight(rpexec_lane *lane, const rpexec_routing *r,
                                       const rpexec_matrices *m, const void *dy, const void *x,
                                       bool wide, void *dweights)
{
    const rpexec_operators *op = rpexec_host_operators[lane->dtype];
    for (uint32_t e = 0; e < r->experts; e++) {
        if (rows_of(r, e) > 0) {
            op->linear_weight(
                lane, rows_of(r, e), m->in, m->out,
                at_const(lane, dy, (uint64_t)r->begins[e] * m->out),
                at_const(lane, x, (uint64_t)r->begins[e] * m->in), wide,
                rpexec_element(wide ? RP_DTYPE_F32 : lane->dtype, dweights, e * m->stride));
        }
    }
}

size_t rpexec_host_experts_scratch(const rp_model *m)
{
    uint64_t width = m->hidden > m->intermediate ? m->hidden : m->intermediate;
    width = width > m->experts ? width : m->experts;
    return m->experts > 1 ? (size_t)(5 * ((width + 15) / 16 * 16)) : 0;
}
