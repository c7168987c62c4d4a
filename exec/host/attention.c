/* Causal grouped-query attention in blocks of queries and keys, by two matrix products per pair of
 * blocks; the softmax is kept up as blocks of keys go by (online softmax), so that no matrix of
 * seq_len x seq_len exists. Blocks above the diagonal or outside of the window are skipped. */
#include "exec/host/lane.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

#define QUERIES RPEXEC_ATTENTION_QUERIES
#define KEYS RPEXEC_ATTENTION_KEYS

/* One head of one sequence: rows are tokens, `*_stride` floats apart. */
typedef struct head {
    uint32_t seq_len;
    uint32_t head_dim;
    uint32_t window;
    size_t q_stride;
    size_t kv_stride;
    size_t row_stride; /* of logsumexp */
    float scale;
    float cap; /* of scores; 0: none */
} head;

/* The keys that a block of queries [begin, end) can see: [first, end). */
static uint32_t first_key(const head *a, uint32_t begin)
{
    return a->window == 0 || begin + 1 <= a->window ? 0 : begin + 1 - a->window;
}

static void hide(uint32_t from, uint32_t to, float *row)
{
    for (uint32_t j = from; j < to; j++) {
        row[j] = -INFINITY;
    }
}

/* s = scale q k^T of a pair of blocks, capped; -inf where a query does not see a key. */
static void scores(const head *a, const float *q, const float *k, uint32_t query, uint32_t rows,
                   uint32_t key, uint32_t columns, float *s)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)rows, (blasint)columns,
                (blasint)a->head_dim, a->scale, q + query * a->q_stride, (blasint)a->q_stride,
                k + key * a->kv_stride, (blasint)a->kv_stride, 0.0f, s, KEYS);
    for (uint32_t i = 0; i < rows && a->cap > 0; i++) {
        for (uint32_t j = 0; j < columns; j++) {
            s[i * KEYS + j] = a->cap * tanhf(s[i * KEYS + j] / a->cap);
        }
    }
    bool whole = key + columns <= query + 1 && first_key(a, query + rows - 1) <= key;
    for (uint32_t i = 0; i < rows && !whole; i++) {
        uint32_t first = first_key(a, query + i); /* to query + i the row sees keys */
        uint32_t before = first > key ? first - key : 0;
        uint32_t after = query + i >= key ? query + i + 1 - key : 0;
        hide(0, before < columns ? before : columns, s + i * KEYS);
        hide(after, columns, s + i * KEYS);
    }
}

/* s := e^(s - most); returns the sum, in a fixed order of eight parts. */
static inline float exponentials(float *s, uint32_t columns, float most)
{
    float parts[8] = {0};
    uint32_t whole = columns / 8 * 8;
    for (uint32_t j = 0; j < columns; j++) {
        s[j] = rpexec_exp(s[j] - most);
    }
    for (uint32_t j = 0; j < whole; j += 8) {
        for (uint32_t p = 0; p < 8; p++) {
            parts[p] += s[j + p];
        }
    }
    for (uint32_t j = whole; j < columns; j++) {
        parts[j - whole] += s[j];
    }
    return ((parts[0] + parts[4]) + (parts[1] + parts[5])) +
           ((parts[2] + parts[6]) + (parts[3] + parts[7]));
}

/* One block of keys joins the softmax of a block of queries: what has been summed is scaled to the
 * new maximum. */
RPEXEC_VECTOR
static void join_block(const head *a, uint32_t rows, uint32_t columns, float *s, float *most,
                       float *sum, float *o)
{
    for (uint32_t i = 0; i < rows; i++) {
        float block = rpexec_largest(s + i * KEYS, columns);
        float now = block > most[i] ? block : most[i];
        if (now == -INFINITY) { /* the row sees none of these keys, nor any before */
            for (uint32_t j = 0; j < columns; j++) {
                s[i * KEYS + j] = 0.0f;
            }
            continue;
        }
        float shrink = most[i] == -INFINITY ? 0.0f : rpexec_exp(most[i] - now);
        sum[i] = sum[i] * shrink + exponentials(s + i * KEYS, columns, now);
        if (shrink != 1.0f) {
            for (uint32_t c = 0; c < a->head_dim; c++) {
                o[i * a->q_stride + c] *= shrink;
            }
        }
        most[i] = now;
    }
}

static void forward_head(const head *a, const float *q, const float *k, const float *v,
                         float *scratch, float *o, float *logsumexp)
{
    for (uint32_t query = 0; query < a->seq_len; query += QUERIES) {
        uint32_t rows = a->seq_len - query < QUERIES ? a->seq_len - query : QUERIES;
        float most[QUERIES];
        float sum[QUERIES];
        float *out = o + query * a->q_stride;
        for (uint32_t i = 0; i < rows; i++) {
            most[i] = -INFINITY;
            sum[i] = 0.0f;
            for (uint32_t c = 0; c < a->head_dim; c++) {
                out[i * a->q_stride + c] = 0.0f;
            }
        }
        uint32_t end = query + rows;
        for (uint32_t key = first_key(a, query) / KEYS * KEYS; key < end; key += KEYS) {
            uint32_t columns = end - key < KEYS ? end - key : KEYS;
            scores(a, q, k, query, rows, key, columns, scratch);
            join_block(a, rows, columns, scratch, most, sum, out);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows,
                        (blasint)a->head_dim, (blasint)columns, 1.0f, scratch, KEYS,
                        v + key * a->kv_stride, (blasint)a->kv_stride, 1.0f, out,
                        (blasint)a->q_stride);
        }
        for (uint32_t i = 0; i < rows; i++) {
            float inverse = 1.0f / sum[i];
            for (uint32_t c = 0; c < a->head_dim; c++) {
                out[i * a->q_stride + c] *= inverse;
            }
            logsumexp[(query + i) * a->row_stride] = most[i] + logf(sum[i]);
        }
    }
}

/* Tensors of one head in the backward. */
typedef struct gradients {
    const float *q, *k, *v, *o, *logsumexp, *d_o;
    float *dq, *dk, *dv;
} gradients;

/* D_i = sum over the head of do o (executor.md section 5). */
static void row_products(const head *a, const gradients *g, uint32_t query, uint32_t rows, float *d)
{
    for (uint32_t i = 0; i < rows; i++) {
        const float *o = g->o + (query + i) * a->q_stride;
        const float *d_o = g->d_o + (query + i) * a->q_stride;
        float sum = 0.0f;
        for (uint32_t c = 0; c < a->head_dim; c++) {
            sum += o[c] * d_o[c];
        }
        d[i] = sum;
    }
}

/* p holds the scores, dp do v^T: afterwards P and scale ds. */
RPEXEC_VECTOR
static void softmax_backward(const head *a, const gradients *g, uint32_t query, uint32_t rows,
                             uint32_t columns, const float *d, float *p, float *dp)
{
    float scale = a->scale;
    for (uint32_t i = 0; i < rows; i++) {
        float *restrict weights = p + i * KEYS;
        float *restrict products = dp + i * KEYS;
        float l = g->logsumexp[(query + i) * a->row_stride];
        float own = d[i];
        for (uint32_t j = 0; j < columns; j++) {
            float weight = rpexec_exp(weights[j] - l);
            weights[j] = weight;
            products[j] = weight * (products[j] - own) * scale;
        }
    }
}

/* The same of capped scores s, whose derivative is 1 - (s / c)^2. */
RPEXEC_VECTOR
static void capped_backward(const head *a, const gradients *g, uint32_t query, uint32_t rows,
                            uint32_t columns, const float *d, float *p, float *dp)
{
    for (uint32_t i = 0; i < rows; i++) {
        float l = g->logsumexp[(query + i) * a->row_stride];
        for (uint32_t j = 0; j < columns; j++) {
            float share = p[i * KEYS + j] / a->cap;
            float slope = share >= -1.0f ? 1.0f - share * share : 0.0f; /* not seen: -inf */
            float weight = rpexec_exp(p[i * KEYS + j] - l);
            p[i * KEYS + j] = weight;
            dp[i * KEYS + j] = weight * (dp[i * KEYS + j] - d[i]) * a->scale * slope;
        }
    }
}

static void backward_pair(const head *a, const gradients *g, uint32_t query, uint32_t rows,
                          uint32_t key, uint32_t columns, const float *d, float *p, float *dp)
{
    blasint m = (blasint)rows;
    blasint n = (blasint)columns;
    blasint h = (blasint)a->head_dim;
    blasint qs = (blasint)a->q_stride;
    blasint ks = (blasint)a->kv_stride;
    const float *d_o = g->d_o + query * a->q_stride;
    scores(a, g->q, g->k, query, rows, key, columns, p);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, h, 1.0f, d_o, qs,
                g->v + key * a->kv_stride, ks, 0.0f, dp, KEYS);
    if (a->cap > 0) {
        capped_backward(a, g, query, rows, columns, d, p, dp);
    } else {
        softmax_backward(a, g, query, rows, columns, d, p, dp);
    }
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, h, m, 1.0f, p, KEYS, d_o, qs, 1.0f,
                g->dv + key * a->kv_stride, ks);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, h, m, 1.0f, dp, KEYS,
                g->q + query * a->q_stride, qs, 1.0f, g->dk + key * a->kv_stride, ks);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, h, n, 1.0f, dp, KEYS,
                g->k + key * a->kv_stride, ks, 1.0f, g->dq + query * a->q_stride, qs);
}

/* dk and dv are added to: the query heads of a group share them. */
static void backward_head(const head *a, const gradients *g, float *scratch)
{
    float d[QUERIES];
    for (uint32_t query = 0; query < a->seq_len; query += QUERIES) {
        uint32_t rows = a->seq_len - query < QUERIES ? a->seq_len - query : QUERIES;
        for (uint32_t i = 0; i < rows; i++) {
            for (uint32_t c = 0; c < a->head_dim; c++) {
                g->dq[(query + i) * a->q_stride + c] = 0.0f;
            }
        }
        row_products(a, g, query, rows, d);
        uint32_t end = query + rows;
        for (uint32_t key = first_key(a, query) / KEYS * KEYS; key < end; key += KEYS) {
            uint32_t columns = end - key < KEYS ? end - key : KEYS;
            backward_pair(a, g, query, rows, key, columns, d, scratch, scratch + QUERIES * KEYS);
        }
    }
}

static head head_of(const rpexec_attention_sizes *sizes)
{
    return (head){.seq_len = sizes->seq_len,
                  .head_dim = sizes->head_dim,
                  .window = sizes->window,
                  .q_stride = (size_t)sizes->heads * sizes->head_dim,
                  .kv_stride = (size_t)sizes->kv_heads * sizes->head_dim,
                  .row_stride = sizes->heads,
                  .scale = rpexec_attention_scale(sizes),
                  .cap = sizes->cap};
}

void rpexec_host_attention(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                           const void *queries, const void *keys, const void *values, void *outputs,
                           float *logsumexp)
{
    const float *q = queries;
    const float *k = keys;
    const float *v = values;
    float *o = outputs;
    head a = head_of(sizes);
    uint32_t group = sizes->heads / sizes->kv_heads;
    for (uint32_t b = 0; b < sizes->sequences; b++) {
        size_t token = (size_t)b * sizes->seq_len;
        for (uint32_t j = 0; j < sizes->heads; j++) {
            size_t at_q = token * a.q_stride + (size_t)j * sizes->head_dim;
            size_t at_kv = token * a.kv_stride + (size_t)(j / group) * sizes->head_dim;
            forward_head(&a, q + at_q, k + at_kv, v + at_kv, lane->scratch, o + at_q,
                         logsumexp + token * sizes->heads + j);
        }
    }
}

void rpexec_host_attention_backward(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                                    const void *queries, const void *keys, const void *values,
                                    const void *outputs, const float *logsumexp,
                                    const void *d_outputs, void *d_queries, void *d_keys,
                                    void *d_values)
{
    const float *q = queries;
    const float *k = keys;
    const float *v = values;
    const float *o = outputs;
    const float *d_o = d_outputs;
    float *dq = d_queries;
    float *dk = d_keys;
    float *dv = d_values;
    head a = head_of(sizes);
    uint32_t group = sizes->heads / sizes->kv_heads;
    size_t kv_bytes = (size_t)sizes->sequences * sizes->seq_len * a.kv_stride * sizeof(float);
    memset(dk, 0, kv_bytes);
    memset(dv, 0, kv_bytes);
    for (uint32_t b = 0; b < sizes->sequences; b++) {
        size_t token = (size_t)b * sizes->seq_len;
        for (uint32_t j = 0; j < sizes->heads; j++) {
            size_t at_q = token * a.q_stride + (size_t)j * sizes->head_dim;
            size_t at_kv = token * a.kv_stride + (size_t)(j / group) * sizes->head_dim;
            gradients g = {.q = q + at_q,
                           .k = k + at_kv,
                           .v = v + at_kv,
                           .o = o + at_q,
                           .logsumexp = logsumexp + token * sizes->heads + j,
                           .d_o = d_o + at_q,
                           .dq = dq + at_q,
                           .dk = dk + at_kv,
                           .dv = dv + at_kv};
            backward_head(&a, &g, lane->scratch);
        }
    }
}

/* ---- sinks, of every storage type -------------------------------------------------------------
 */

static float value_at(const rpexec_lane *lane, const void *array, uint64_t index)
{
    float value;
    rpexec_widen(lane->dtype, 1, rpexec_element_const(lane->dtype, array, index), &value);
    return value;
}

/* log(e^a + e^b). */
static float joined(float a, float b)
{
    float most = a > b ? a : b;
    return most + logf(rpexec_exp(a - most) + rpexec_exp(b - most));
}

void rpexec_host_join_sinks(rpexec_lane *lane, uint64_t tokens, uint32_t heads, uint32_t head_dim,
                            const void *sinks, void *outputs, float *logsumexp)
{
    for (uint64_t row = 0; row < tokens * heads; row++) {
        void *o = rpexec_element(lane->dtype, outputs, row * head_dim);
        float all = joined(logsumexp[row], value_at(lane, sinks, row % heads));
        float share = rpexec_exp(logsumexp[row] - all);
        for (uint32_t i = 0; i < head_dim; i++) {
            float value = value_at(lane, o, i) * share;
            rpexec_narrow(lane->dtype, 1, &value, rpexec_element(lane->dtype, o, i));
        }
        logsumexp[row] = all;
    }
}

void rpexec_host_sinks_weight(rpexec_lane *lane, uint64_t tokens, uint32_t heads, uint32_t head_dim,
                              const void *sinks, const void *outputs, const float *logsumexp,
                              const void *d_outputs, bool wide, void *d_sinks)
{
    const rp_dtype dtype = wide ? RP_DTYPE_F32 : lane->dtype;
    for (uint32_t j = 0; j < heads; j++) {
        void *dsink = rpexec_element(dtype, d_sinks, j);
        float sink = value_at(lane, sinks, j);
        double sum = 0;
        float value;
        for (uint64_t row = j; row < tokens * heads; row += heads) {
            float product = 0.0f;
            for (uint64_t i = row * head_dim; i < (row + 1) * head_dim; i++) {
                product += value_at(lane, outputs, i) * value_at(lane, d_outputs, i);
            }
            sum += (double)(rpexec_exp(sink - logsumexp[row]) * product);
        }
        rpexec_widen(dtype, 1, dsink, &value);
        value -= (float)sum;
        rpexec_narrow(dtype, 1, &value, dsink);
    }
}
