/* The operators for 16-bit storage: tensors are widened into the lane's scratch memory, the fp32
 * operators work there, and their results are rounded once. Large tensors are processed in pieces
 * whose sizes depend only on the operator's sizes. */
#include "exec/host/lane.h"
#include "exec/state/scaler.h"

#include <stdlib.h>
#include <string.h>

/* Rows of a weight matrix, and values of an element-wise operator, that are widened at a time. */
#define MATRIX_ROWS 512u
#define PIECE 4096u

/* ---- scratch --------------------------------------------------------------------------------- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A multiple of 64 bytes. */
static uint64_t padded(uint64_t floats)
{
    return (floats + 15) / 16 * 16;
}

/* The lane's scratch memory, and how much of it an operator has taken so far. */
typedef struct scratch {
    rpexec_lane *lane;
    uint64_t used;
} scratch;

static scratch scratch_of(rpexec_lane *lane)
{
    return (scratch){.lane = lane};
}

static float *take(scratch *s, uint64_t floats)
{
    float *at = s->lane->scratch + s->used;
    s->used += padded(floats);
    return at;
}

static float *take_wide(scratch *s, const void *from, uint64_t count)
{
    float *to = take(s, count);
    rpexec_widen(s->lane->dtype, count, from, to);
    return to;
}

static const void *at_const(const rpexec_lane *lane, const void *array, uint64_t index)
{
    return rpexec_element_const(lane->dtype, array, index);
}

static void *at(const rpexec_lane *lane, void *array, uint64_t index)
{
    return rpexec_element(lane->dtype, array, index);
}

/* Columns [first, first + columns) of a matrix with rows of `stride` values. */
static void widen_columns(const rpexec_lane *lane, uint64_t rows, uint64_t columns, uint64_t stride,
                          const void *from, uint64_t first, float *to)
{
    for (uint64_t row = 0; row < rows; row++) {
        rpexec_widen(lane->dtype, columns, at_const(lane, from, row * stride + first),
                     to + row * columns);
    }
}

static void narrow_columns(const rpexec_lane *lane, uint64_t rows, uint64_t columns,
                           uint64_t stride, const float *from, void *to, uint64_t first)
{
    for (uint64_t row = 0; row < rows; row++) {
        rpexec_narrow(lane->dtype, columns, from + row * columns,
                      at(lane, to, row * stride + first));
    }
}

size_t rpexec_host_half_scratch(const rpexec_model *model, uint64_t tokens)
{
    const rp_model *m = model->config;
    uint64_t q = (uint64_t)m->heads * m->head_dim;
    uint64_t kv = (uint64_t)m->kv_heads * m->head_dim;
    uint64_t width = larger(larger(larger(m->hidden, q), m->intermediate), model->rank);
    uint64_t rows = tokens * larger(1, m->active_experts); /* of a matrix product */
    uint64_t linear =
        2 * padded(rows * width) + padded(MATRIX_ROWS * width) + padded(rows * MATRIX_ROWS);
    uint64_t attention = 4 * padded(model->seq_len * q) + 4 * padded(model->seq_len * kv) +
                         rpexec_host_attention_scratch(m->head_dim);
    uint64_t pieces = 6 * padded(larger(PIECE, larger(width, m->vocab)));
    uint64_t embedding = 2 * padded(2 * tokens) + 2 * padded(m->hidden);
    return larger(larger(linear, attention), larger(pieces, embedding));
}

/* ---- matrices -------------------------------------------------------------------------------- */

static void half_linear(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out, const void *x,
                        const void *weight, const void *base, void *y)
{
    scratch s = scratch_of(lane);
    const float *wide_x = take_wide(&s, x, rows * in);
    float *wide_weight = take(&s, (uint64_t)MATRIX_ROWS * in);
    float *wide_y = take(&s, rows * MATRIX_ROWS);
    for (uint32_t first = 0; first < out; first += MATRIX_ROWS) {
        uint32_t columns = out - first < MATRIX_ROWS ? out - first : MATRIX_ROWS;
        rpexec_widen(lane->dtype, (uint64_t)columns * in,
                     at_const(lane, weight, (uint64_t)first * in), wide_weight);
        if (base != NULL) {
            widen_columns(lane, rows, columns, out, base, first, wide_y);
        }
        rpexec_host_fp32.linear(lane, rows, in, columns, wide_x, wide_weight,
                                base != NULL ? wide_y : NULL, wide_y);
        narrow_columns(lane, rows, columns, out, wide_y, y, first);
    }
}

static void half_linear_input(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out,
                              const void *dy, const void *weight, bool add, void *dx)
{
    scratch s = scratch_of(lane);
    float *wide_dx = add ? take_wide(&s, dx, rows * in) : take(&s, rows * in);
    float *wide_weight = take(&s, (uint64_t)MATRIX_ROWS * in);
    float *wide_dy = take(&s, rows * MATRIX_ROWS);
    for (uint32_t first = 0; first < out; first += MATRIX_ROWS) {
        uint32_t columns = out - first < MATRIX_ROWS ? out - first : MATRIX_ROWS;
        rpexec_widen(lane->dtype, (uint64_t)columns * in,
                     at_const(lane, weight, (uint64_t)first * in), wide_weight);
        widen_columns(lane, rows, columns, out, dy, first, wide_dy);
        rpexec_host_fp32.linear_input(lane, rows, in, columns, wide_dy, wide_weight,
                                      add || first > 0, wide_dx);
    }
    rpexec_narrow(lane->dtype, rows * in, wide_dx, dx);
}

static void half_linear_weight(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out,
                               const void *dy, const void *x, bool wide, void *dweight)
{
    scratch s = scratch_of(lane);
    const float *wide_x = take_wide(&s, x, rows * in);
    float *wide_dweight = take(&s, (uint64_t)MATRIX_ROWS * in);
    float *wide_dy = take(&s, rows * MATRIX_ROWS);
    for (uint32_t first = 0; first < out; first += MATRIX_ROWS) {
        uint32_t columns = out - first < MATRIX_ROWS ? out - first : MATRIX_ROWS;
        widen_columns(lane, rows, columns, out, dy, first, wide_dy);
        if (wide) {
            rpexec_host_fp32.linear_weight(lane, rows, in, columns, wide_dy, wide_x, true,
                                           (float *)dweight + (uint64_t)first * in);
            continue;
        }
        void *piece = at(lane, dweight, (uint64_t)first * in);
        rpexec_widen(lane->dtype, (uint64_t)columns * in, piece, wide_dweight);
        rpexec_host_fp32.linear_weight(lane, rows, in, columns, wide_dy, wide_x, true,
                                       wide_dweight);
        rpexec_narrow(lane->dtype, (uint64_t)columns * in, wide_dweight, piece);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint64_t rows_at_a_time(uint32_t width)
{
    return width < PIECE ? PIECE / width : 1;
}

static uint64_t rows_left(uint64_t rows, uint64_t first, uint32_t width)
{
    uint64_t most = rows_at_a_time(width);
    return rows - first < most ? rows - first : most;
}

static void half_rms_norm(rpexec_lane *lane, uint64_t rows, uint32_t width, float eps, bool shifted,
                          const void *x, const void *weight, void *y, float *r)
{
    scratch s = scratch_of(lane);
    const float *wide_weight = take_wide(&s, weight, width);
    float *wide_x = take(&s, rows_at_a_time(width) * width);
    float *wide_y = take(&s, rows_at_a_time(width) * width);
    for (uint64_t first = 0; first < rows; first += rows_at_a_time(width)) {
        uint64_t count = rows_left(rows, first, width);
        rpexec_widen(lane->dtype, count * width, at_const(lane, x, first * width), wide_x);
        rpexec_host_fp32.rms_norm(lane, count, width, eps, shifted, wide_x, wide_weight, wide_y,
                                  r + first);
        rpexec_narrow(lane->dtype, count * width, wide_y, at(lane, y, first * width));
    }
}

static void half_rms_norm_input(rpexec_lane *lane, uint64_t rows, uint32_t width, bool shifted,
                                const void *x, const void *weight, const float *r, const void *dy,
                                const void *base, void *dx)
{
    scratch s = scratch_of(lane);
    uint64_t most = rows_at_a_time(width) * width;
    const float *wide_weight = take_wide(&s, weight, width);
    float *wide_x = take(&s, most);
    float *wide_dy = take(&s, most);
    float *wide_dx = take(&s, most);
    for (uint64_t first = 0; first < rows; first += rows_at_a_time(width)) {
        uint64_t count = rows_left(rows, first, width);
        uint64_t values = count * width;
        rpexec_widen(lane->dtype, values, at_const(lane, x, first * width), wide_x);
        rpexec_widen(lane->dtype, values, at_const(lane, dy, first * width), wide_dy);
        if (base != NULL) {
            rpexec_widen(lane->dtype, values, at_const(lane, base, first * width), wide_dx);
        }
        rpexec_host_fp32.rms_norm_input(lane, count, width, shifted, wide_x, wide_weight, r + first,
                                        wide_dy, base != NULL ? wide_dx : NULL, wide_dx);
        rpexec_narrow(lane->dtype, values, wide_dx, at(lane, dx, first * width));
    }
}

static void half_rms_norm_weight(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *x,
                                 const float *r, const void *dy, bool wide, void *dweight)
{
    scratch s = scratch_of(lane);
    float *wide_dweight = wide ? dweight : take_wide(&s, dweight, width);
    float *wide_x = take(&s, rows_at_a_time(width) * width);
    float *wide_dy = take(&s, rows_at_a_time(width) * width);
    for (uint64_t first = 0; first < rows; first += rows_at_a_time(width)) {
        uint64_t count = rows_left(rows, first, width);
        rpexec_widen(lane->dtype, count * width, at_const(lane, x, first * width), wide_x);
        rpexec_widen(lane->dtype, count * width, at_const(lane, dy, first * width), wide_dy);
        rpexec_host_fp32.rms_norm_weight(lane, count, width, wide_x, r + first, wide_dy, true,
                                         wide_dweight);
    }
    if (!wide) {
        rpexec_narrow(lane->dtype, width, wide_dweight, dweight);
    }
}

static void half_add_bias(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *bias,
                          const void *base, void *y)
{
    scratch s = scratch_of(lane);
    const float *wide_bias = take_wide(&s, bias, width);
    float *wide_y = take(&s, rows_at_a_time(width) * width);
    for (uint64_t first = 0; first < rows; first += rows_at_a_time(width)) {
        uint64_t count = rows_left(rows, first, width);
        if (base != NULL) {
            rpexec_widen(lane->dtype, count * width, at_const(lane, base, first * width), wide_y);
        }
        rpexec_host_fp32.add_bias(lane, count, width, wide_bias, base != NULL ? wide_y : NULL,
                                  wide_y);
        rpexec_narrow(lane->dtype, count * width, wide_y, at(lane, y, first * width));
    }
}

static void half_bias_weight(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *dy,
                             bool wide, void *dbias)
{
    scratch s = scratch_of(lane);
    float *wide_dbias = wide ? dbias : take_wide(&s, dbias, width);
    float *wide_dy = take(&s, rows_at_a_time(width) * width);
    for (uint64_t first = 0; first < rows; first += rows_at_a_time(width)) {
        uint64_t count = rows_left(rows, first, width);
        rpexec_widen(lane->dtype, count * width, at_const(lane, dy, first * width), wide_dy);
        rpexec_host_fp32.bias_weight(lane, count, width, wide_dy, true, wide_dbias);
    }
    if (!wide) {
        rpexec_narrow(lane->dtype, width, wide_dbias, dbias);
    }
}

static void half_cross_entropy(rpexec_lane *lane, uint64_t rows, uint32_t vocab,
                               const int32_t *labels, float cap, float scale, void *z, double *loss)
{
    scratch s = scratch_of(lane);
    float *logits = take(&s, vocab);
    for (uint64_t row = 0; row < rows; row++) {
        void *here = at(lane, z, row * vocab);
        rpexec_widen(lane->dtype, vocab, here, logits);
        rpexec_host_fp32.cross_entropy(lane, 1, vocab, labels + row, cap, scale, logits, loss);
        rpexec_narrow(lane->dtype, vocab, logits, here);
    }
}

static void half_row_statistics(rpexec_lane *lane, uint64_t rows, uint32_t vocab, float cap,
                                const void *z, float *statistics)
{
    scratch s = scratch_of(lane);
    float *logits = take(&s, vocab);
    for (uint64_t row = 0; row < rows; row++) {
        rpexec_widen(lane->dtype, vocab, at_const(lane, z, row * vocab), logits);
        rpexec_host_fp32.row_statistics(lane, 1, vocab, cap, logits, statistics + 2 * row);
    }
}

static void half_cross_entropy_part(rpexec_lane *lane, uint64_t rows, uint32_t vocab,
                                    uint32_t first, const int32_t *labels, uint32_t parts,
                                    const float *statistics, uint64_t stride, float cap,
                                    float scale, void *z, double *loss)
{
    scratch s = scratch_of(lane);
    float *logits = take(&s, vocab);
    for (uint64_t row = 0; row < rows; row++) {
        void *here = at(lane, z, row * vocab);
        rpexec_widen(lane->dtype, vocab, here, logits);
        rpexec_host_fp32.cross_entropy_part(lane, 1, vocab, first, labels + row, parts,
                                            statistics + 2 * row, stride, cap, scale, logits, loss);
        rpexec_narrow(lane->dtype, vocab, logits, here);
    }
}

/* ---- sequences ------------------------------------------------------------------------------- */

static void half_rotate(rpexec_lane *lane, uint32_t sequences, uint32_t seq_len, uint32_t heads,
                        uint32_t head_dim, uint32_t turned, const float *cosines,
                        const float *sines, bool inverse, void *x)
{
    scratch s = scratch_of(lane);
    uint64_t count = (uint64_t)seq_len * heads * head_dim;
    float *wide = take(&s, count);
    for (uint32_t b = 0; b < sequences; b++) {
        void *here = at(lane, x, b * count);
        rpexec_widen(lane->dtype, count, here, wide);
        rpexec_host_fp32.rotate(lane, 1, seq_len, heads, head_dim, turned, cosines, sines, inverse,
                                wide);
        rpexec_narrow(lane->dtype, count, wide, here);
    }
}

/* The fp32 operators use the lane's scratch from its beginning: they get a lane with the rest. */
static rpexec_lane rest_of(const scratch *s)
{
    rpexec_lane rest = *s->lane;
    rest.scratch += s->used;
    rest.scratch_count -= s->used;
    return rest;
}

static void half_attention(rpexec_lane *lane, const rpexec_attention_sizes *sizes, const void *q,
                           const void *k, const void *v, void *o, float *logsumexp)
{
    scratch s = scratch_of(lane);
    rpexec_attention_sizes one = *sizes;
    uint64_t queries = (uint64_t)sizes->seq_len * sizes->heads * sizes->head_dim;
    uint64_t keys = (uint64_t)sizes->seq_len * sizes->kv_heads * sizes->head_dim;
    float *wide_q = take(&s, queries);
    float *wide_k = take(&s, keys);
    float *wide_v = take(&s, keys);
    float *wide_o = take(&s, queries);
    rpexec_lane rest = rest_of(&s);
    one.sequences = 1;
    for (uint32_t b = 0; b < sizes->sequences; b++) {
        rpexec_widen(lane->dtype, queries, at_const(lane, q, b * queries), wide_q);
        rpexec_widen(lane->dtype, keys, at_const(lane, k, b * keys), wide_k);
        rpexec_widen(lane->dtype, keys, at_const(lane, v, b * keys), wide_v);
        rpexec_host_fp32.attention(&rest, &one, wide_q, wide_k, wide_v, wide_o,
                                   logsumexp + (uint64_t)b * sizes->seq_len * sizes->heads);
        rpexec_narrow(lane->dtype, queries, wide_o, at(lane, o, b * queries));
    }
}

static void half_attention_backward(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                                    const void *q, const void *k, const void *v, const void *o,
                                    const float *logsumexp, const void *d_o, void *dq, void *dk,
                                    void *dv)
{
    rpexec_attention_sizes one = *sizes;
    uint64_t queries = (uint64_t)sizes->seq_len * sizes->heads * sizes->head_dim;
    uint64_t keys = (uint64_t)sizes->seq_len * sizes->kv_heads * sizes->head_dim;
    one.sequences = 1;
    for (uint32_t b = 0; b < sizes->sequences; b++) {
        scratch s = scratch_of(lane);
        const float *wide_q = take_wide(&s, at_const(lane, q, b * queries), queries);
        const float *wide_k = take_wide(&s, at_const(lane, k, b * keys), keys);
        const float *wide_v = take_wide(&s, at_const(lane, v, b * keys), keys);
        const float *wide_o = take_wide(&s, at_const(lane, o, b * queries), queries);
        const float *wide_do = take_wide(&s, at_const(lane, d_o, b * queries), queries);
        float *wide_dq = take(&s, queries);
        float *wide_dk = take(&s, keys);
        float *wide_dv = take(&s, keys);
        rpexec_lane rest = rest_of(&s);
        rpexec_host_fp32.attention_backward(&rest, &one, wide_q, wide_k, wide_v, wide_o,
                                            logsumexp + (uint64_t)b * sizes->seq_len * sizes->heads,
                                            wide_do, wide_dq, wide_dk, wide_dv);
        rpexec_narrow(lane->dtype, queries, wide_dq, at(lane, dq, b * queries));
        rpexec_narrow(lane->dtype, keys, wide_dk, at(lane, dk, b * keys));
        rpexec_narrow(lane->dtype, keys, wide_dv, at(lane, dv, b * keys));
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

static uint64_t piece_of(uint64_t count, uint64_t first)
{
    return count - first < PIECE ? count - first : PIECE;
}

typedef void gate_operator(rpexec_lane *lane, uint64_t count, const void *gate, const void *up,
                           void *y);
typedef void gate_operator_backward(rpexec_lane *lane, uint64_t count, const void *gate,
                                    const void *up, const void *ds, void *dgate, void *dup);

static void half_gate(rpexec_lane *lane, uint64_t count, const void *gate, const void *up, void *y,
                      gate_operator *wide)
{
    for (uint64_t i = 0; i < count; i += PIECE) {
        scratch s = scratch_of(lane);
        uint64_t values = piece_of(count, i);
        const float *wide_gate = take_wide(&s, at_const(lane, gate, i), values);
        const float *wide_up = take_wide(&s, at_const(lane, up, i), values);
        float *wide_y = take(&s, values);
        wide(lane, values, wide_gate, wide_up, wide_y);
        rpexec_narrow(lane->dtype, values, wide_y, at(lane, y, i));
    }
}

static void half_gate_backward(rpexec_lane *lane, uint64_t count, const void *gate, const void *up,
                               const void *ds, void *dgate, void *dup, gate_operator_backward *wide)
{
    for (uint64_t i = 0; i < count; i += PIECE) {
        scratch s = scratch_of(lane);
        uint64_t values = piece_of(count, i);
        const float *wide_gate = take_wide(&s, at_const(lane, gate, i), values);
        const float *wide_up = take_wide(&s, at_const(lane, up, i), values);
        const float *wide_ds = take_wide(&s, at_const(lane, ds, i), values);
        float *wide_dgate = take(&s, values);
        float *wide_dup = take(&s, values);
        wide(lane, values, wide_gate, wide_up, wide_ds, wide_dgate, wide_dup);
        rpexec_narrow(lane->dtype, values, wide_dgate, at(lane, dgate, i));
        rpexec_narrow(lane->dtype, values, wide_dup, at(lane, dup, i));
    }
}

static void half_swiglu(rpexec_lane *lane, uint64_t count, const void *gate, const void *up,
                        void *y)
{
    half_gate(lane, count, gate, up, y, rpexec_host_swiglu);
}

static void half_swiglu_backward(rpexec_lane *lane, uint64_t count, const void *gate,
                                 const void *up, const void *ds, void *dgate, void *dup)
{
    half_gate_backward(lane, count, gate, up, ds, dgate, dup, rpexec_host_swiglu_backward);
}

static void half_geglu(rpexec_lane *lane, uint64_t count, const void *gate, const void *up, void *y)
{
    half_gate(lane, count, gate, up, y, rpexec_host_geglu);
}

static void half_geglu_backward(rpexec_lane *lane, uint64_t count, const void *gate, const void *up,
                                const void *ds, void *dgate, void *dup)
{
    half_gate_backward(lane, count, gate, up, ds, dgate, dup, rpexec_host_geglu_backward);
}

static void half_add(rpexec_lane *lane, uint64_t count, const void *a, const void *b, void *y)
{
    for (uint64_t i = 0; i < count; i += PIECE) {
        scratch s = scratch_of(lane);
        uint64_t values = piece_of(count, i);
        const float *wide_a = take_wide(&s, at_const(lane, a, i), values);
        float *sum = take_wide(&s, at_const(lane, b, i), values);
        rpexec_host_fp32.add(lane, values, wide_a, sum, sum);
        rpexec_narrow(lane->dtype, values, sum, at(lane, y, i));
    }
}

static void half_add_sums(rpexec_lane *lane, uint64_t count, const float *sums, void *gradients)
{
    for (uint64_t i = 0; i < count; i += PIECE) {
        scratch s = scratch_of(lane);
        uint64_t values = piece_of(count, i);
        float *sum = take_wide(&s, at(lane, gradients, i), values);
        rpexec_host_fp32.add_sums(lane, values, sums + i, sum);
        rpexec_narrow(lane->dtype, values, sum, at(lane, gradients, i));
    }
}

static void half_scale(rpexec_lane *lane, uint64_t count, float factor, void *x)
{
    for (uint64_t i = 0; i < count; i += PIECE) {
        scratch s = scratch_of(lane);
        uint64_t values = piece_of(count, i);
        float *wide_x = take_wide(&s, at(lane, x, i), values);
        rpexec_host_fp32.scale(lane, values, factor, wide_x);
        rpexec_narrow(lane->dtype, values, wide_x, at(lane, x, i));
    }
}

static void half_zero(rpexec_lane *lane, uint64_t count, void *x)
{
    memset(x, 0, count * rp_dtype_bytes(lane->dtype)); /* the bits of zero in every type */
}

static void half_copy(rpexec_lane *lane, uint64_t count, const void *from, void *to)
{
    memcpy(to, from, count * rp_dtype_bytes(lane->dtype));
}

static void add_squares(rpexec_lane *lane, uint64_t count, const void *x, rpexec_squares *sum)
{
    rpexec_squares_add(lane->dtype, count, x, sum);
}

static void half_adam(rpexec_lane *lane, const rpexec_adam_factors *factors,
                      const rpexec_update *update)
{
    for (uint64_t i = 0; i < update->count; i += PIECE) {
        scratch s = scratch_of(lane);
        uint64_t values = piece_of(update->count, i);
        float *gradients = take(&s, values);
        (void)rpexec_unscale(lane->dtype, values, at_const(lane, update->gradients, i),
                             update->scale, false, gradients);
        const rpexec_adam_slice slice = {.parameters = update->master + i,
                                         .gradients = gradients,
                                         .m = update->m + i,
                                         .v = update->v + i,
                                         .count = values};
        rpexec_adam_update(factors, &slice);
        rpexec_narrow(lane->dtype, values, slice.parameters, at(lane, update->weights, i));
    }
}

/* ---- the embedding --------------------------------------------------------------------------- */

static void half_embed(rpexec_lane *lane, uint64_t tokens, uint32_t width, const int32_t *ids,
                       const void *table, void *x)
{
    for (uint64_t t = 0; t < tokens; t++) {
        void *to = at(lane, x, t * width);
        if (ids[t] < 0) {
            half_zero(lane, width, to);
        } else {
            half_copy(lane, width, at_const(lane, table, (uint64_t)ids[t] * width), to);
        }
    }
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;
    return (*left > *right) - (*left < *right);
}

/* If added token by token, a 16-bit row of a frequent id would stop growing. So each row is visited
 * once, in the order of ids, and sums its tokens in fp32, t ascending. */
static void half_embed_weight(rpexec_lane *lane, uint64_t tokens, uint32_t width,
                              const int32_t *ids, const void *dx, bool wide, void *dtable)
{
    scratch s = scratch_of(lane);
    float *wide_row = take(&s, width);
    float *one = take(&s, width);
    uint64_t *keys = (void *)take(&s, 2 * tokens);
    static const int32_t first_row = 0;
    for (uint64_t t = 0; t < tokens; t++) {
        keys[t] = (uint64_t)ids[t] << 32 | t;
    }
    qsort(keys, tokens, sizeof *keys, compare_keys);
    for (uint64_t i = 0; i < tokens && keys[i] >> 32 <= INT32_MAX;) { /* negative ids come last */
        uint64_t id = keys[i] >> 32;
        float *row = wide ? (float *)dtable + id * width : wide_row;
        if (!wide) {
            rpexec_widen(lane->dtype, width, at(lane, dtable, id * width), row);
        }
        for (; i < tokens && keys[i] >> 32 == id; i++) {
            rpexec_widen(lane->dtype, width,
                         at_const(lane, dx, (uint32_t)keys[i] * (uint64_t)width), one);
            rpexec_host_fp32.embed_weight(lane, 1, width, &first_row, one, true, row);
        }
        if (!wide) {
            rpexec_narrow(lane->dtype, width, row, at(lane, dtable, id * width));
        }
    }
}

/* Sinks and mixtures of experts have operators for every storage type. */
#define half_join_sinks rpexec_host_join_sinks
#define half_sinks_weight rpexec_host_sinks_weight
#define half_route rpexec_host_route
#define half_route_backward rpexec_host_route_backward
#define half_gather rpexec_host_gather
#define half_scatter rpexec_host_scatter
#define half_experts_linear rpexec_host_experts_linear
#define half_experts_linear_input rpexec_host_experts_linear_input
#define half_experts_linear_weight rpexec_host_experts_linear_weight
#define half_experts_bias rpexec_host_experts_bias
#define half_experts_bias_input rpexec_host_experts_bias_input
#define half_experts_bias_weight rpexec_host_experts_bias_weight
#define half_experts_swiglu rpexec_host_experts_swiglu
#define half_experts_swiglu_backward rpexec_host_experts_swiglu_backward

#define ENTRY(name, ...) .name = half_##name,
const rpexec_operators rpexec_host_half = {RPEXEC_OPERATOR_LIST(ENTRY).squares = add_squares};
