/* Causal grouped-query attention in blocks of queries and keys, by two matrix products per pair of
 * blocks; the softmax is updated with each block of keys (online softmax), so that no matrix of
 * seq_len x seq_len exists. Blocks above the diagonal or outside of the window are skipped. */
#include "exec/host/lane.h"
#include "exec/host/products.h"

#include <math.h>
#include <string.h>

#define QUERIES RPEXEC_ATTENTION_QUERIES
#define KEYS RPEXEC_ATTENTION_KEYS

size_t rpexec_host_attention_scratch(uint32_t head_dim)
{
    return (size_t)2 * QUERIES * (KEYS + head_dim);
}

/* A head of a sequence: rows are tokens, `*_stride` floats apart. */
typedef struct head {
    uint32_t seq_len;
    uint32_t head_dim;
    uint32_t window;
    size_t q_stride;
    size_t kv_stride;
    size_t row_stride; /* stride of logsumexp */
    float scale;
    float cap; /* cap of scores; 0: none */
} head;

/* A block of queries and a block of keys. Its scores are transposed, s[key][query]: work on each
 * query becomes work on vectors of queries, and the block of queries is transposed once. */
typedef struct pair {
    uint32_t query, rows;
    uint32_t key, columns;
} pair;

/* Columns of transposed blocks, with the columns that fill the last vector. */
static uint32_t padded(uint32_t rows)
{
    return (rows + RPEXEC_PRODUCT_COLUMNS - 1) / RPEXEC_PRODUCT_COLUMNS * RPEXEC_PRODUCT_COLUMNS;
}

/* The keys that a block of queries [begin, end) can see: [first, end). */
static uint32_t first_key(const head *a, uint32_t begin)
{
    return a->window == 0 || begin + 1 <= a->window ? 0 : begin + 1 - a->window;
}

/* For keys, the queries that see them; for queries, the keys that they see. */
static rpexec_band queries_of(const head *a, const pair *b)
{
    int64_t own = (int64_t)b->key - b->query;
    return (rpexec_band){own, a->window == 0 ? RPEXEC_UNBOUNDED : own + a->window - 1};
}

static rpexec_band keys_of(const head *a, const pair *b)
{
    int64_t own = (int64_t)b->query - b->key;
    return (rpexec_band){a->window == 0 ? -RPEXEC_UNBOUNDED : own - a->window + 1, own};
}

/* t[c][i] = factor x[i][c], 0 for columns beyond rows. */
RPEXEC_VECTOR
static void transpose(uint32_t rows, uint32_t width, const float *restrict x, size_t stride,
                      float factor, float *restrict t)
{
    enum { TILE = RPEXEC_PRODUCT_COLUMNS };
    uint32_t whole = rows / TILE * TILE;
    for (size_t i = 0; i < whole; i += TILE) {
        const float *from = x + i * stride;
        for (size_t c = 0; c < width; c++) {
            float *to = t + c * QUERIES + i;
            for (size_t u = 0; u < TILE; u++) {
                to[u] = factor * from[u * stride + c];
            }
        }
    }
    for (size_t c = 0; c < width && whole < rows; c++) {
        for (size_t i = whole; i < padded(rows); i++) {
            t[c * QUERIES + i] = i < rows ? factor * x[i * stride + c] : 0.0f;
        }
    }
}

/* s[key][query] of a pair: the rows of x at its keys, multiplied by a transposed block. */
static void multiply_keys(const head *a, const pair *b, const float *x, const float *turned,
                          float *s)
{
    const rpexec_product product = {.m = b->columns,
                                    .n = padded(b->rows),
                                    .k = a->head_dim,
                                    .a = x + b->key * a->kv_stride,
                                    .a_row = a->kv_stride,
                                    .a_step = 1,
                                    .b = turned,
                                    .b_row = QUERIES,
                                    .c = s,
                                    .c_row = QUERIES,
                                    .terms = rpexec_everything,
                                    .columns = queries_of(a, b)};
    rpexec_host_product(&product);
}

/* y[query] (+)= sum over keys of s[key][query] x[key]. */
static void add_to_queries(const head *a, const pair *b, const float *s, const float *x, bool add,
                           float *y)
{
    const rpexec_product product = {.m = b->rows,
                                    .n = a->head_dim,
                                    .k = b->columns,
                                    .a = s,
                                    .a_row = 1,
                                    .a_step = QUERIES,
                                    .b = x + b->key * a->kv_stride,
                                    .b_row = a->kv_stride,
                                    .c = y + b->query * a->q_stride,
                                    .c_row = a->q_stride,
                                    .add = add,
                                    .terms = keys_of(a, b),
                                    .columns = rpexec_everything};
    rpexec_host_product(&product);
}

/* y[key] += sum over queries of s[key][query] x[query]. */
static void add_to_keys(const head *a, const pair *b, const float *s, const float *x, float *y)
{
    const rpexec_product product = {.m = b->columns,
                                    .n = a->head_dim,
                                    .k = b->rows,
                                    .a = s,
                                    .a_row = QUERIES,
                                    .a_step = 1,
                                    .b = x + b->query * a->q_stride,
                                    .b_row = a->q_stride,
                                    .c = y + b->key * a->kv_stride,
                                    .c_row = a->kv_stride,
                                    .add = true,
                                    .terms = queries_of(a, b),
                                    .columns = rpexec_everything};
    rpexec_host_product(&product);
}

/* The queries of a pair that see its key j: [first, end). */
typedef struct range {
    uint32_t first, end;
} range;

static range sight_of(const head *a, const pair *b, uint32_t j)
{
    rpexec_band band = queries_of(a, b);
    range sight = {rpexec_band_begin(band, j, b->rows), rpexec_band_end(band, j, b->rows)};
    return sight.first < sight.end ? sight : (range){0, 0};
}

/* s[key][query] := value for pairs whose query does not see the key. */
static void fill_unseen(const head *a, const pair *b, float value, float *s)
{
    for (uint32_t j = 0; j < b->columns; j++) {
        range sight = sight_of(a, b, j);
        for (uint32_t i = 0; i < sight.first; i++) {
            s[j * QUERIES + i] = value;
        }
        for (uint32_t i = sight.end; i < padded(b->rows); i++) {
            s[j * QUERIES + i] = value;
        }
    }
}

/* @return whether each query of the pair sees each of its keys, and vectors are full */
static bool is_whole(const head *a, const pair *b)
{
    return b->key + b->columns <= b->query + 1 && first_key(a, b->query + b->rows - 1) <= b->key &&
           padded(b->rows) == b->rows;
}

/* s = scale k q^T of a pair, capped; -inf if a query does not see a key. */
static void scores(const head *a, const pair *b, const float *k, const float *turned, float *s)
{
    multiply_keys(a, b, k, turned, s);
    for (uint32_t j = 0; j < b->columns && a->cap > 0; j++) {
        range sight = sight_of(a, b, j);
        for (uint32_t i = sight.first; i < sight.end; i++) {
            s[j * QUERIES + i] = a->cap * tanhf(s[j * QUERIES + i] / a->cap);
        }
    }
    if (!is_whole(a, b)) {
        fill_unseen(a, b, -INFINITY, s);
    }
}

/* The softmax of a block of queries while blocks of keys go by. */
typedef struct online {
    float most[QUERIES];
    float sum[QUERIES];
    float shrink[QUERIES];
} online;

/* Weights that are summed before their sum is added: a single long chain would lose twice as
 * much. */
#define PART 8u

/* A block of keys joins: s := e^(s - most), and the caller multiplies the earlier sums by `shrink`.
 * Queries that have seen no key yet keep a maximum of -inf and sums of 0. */
RPEXEC_VECTOR
static void join_block(uint32_t width, uint32_t columns, float *restrict s, online *restrict x)
{
    float now[QUERIES];
    memcpy(now, x->most, sizeof now);
    for (uint32_t j = 0; j < columns; j++) {
        const float *row = s + (size_t)j * QUERIES;
        for (uint32_t i = 0; i < width; i++) {
            now[i] = row[i] > now[i] ? row[i] : now[i];
        }
    }
    for (uint32_t i = 0; i < width; i++) {
        float before = x->most[i];
        x->most[i] = now[i];
        now[i] = now[i] == -INFINITY ? 0.0f : now[i];
        x->shrink[i] = rpexec_exp(before - now[i]);
        x->sum[i] *= x->shrink[i];
    }
    for (uint32_t first = 0; first < columns; first += PART) {
        uint32_t end = columns - first < PART ? columns : first + PART;
        float part[QUERIES] = {0};
        for (uint32_t j = first; j < end; j++) {
            float *row = s + (size_t)j * QUERIES;
            for (uint32_t i = 0; i < width; i++) {
                row[i] = rpexec_exp(row[i] - now[i]);
                part[i] += row[i];
            }
        }
        for (uint32_t i = 0; i < width; i++) {
            x->sum[i] += part[i];
        }
    }
}

static void scale_rows(const head *a, uint32_t rows, const float *factors, float *o)
{
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t c = 0; c < a->head_dim; c++) {
            o[i * a->q_stride + c] *= factors[i];
        }
    }
}

static void forward_head(const head *a, const float *q, const float *k, const float *v,
                         float *scratch, float *o, float *logsumexp)
{
    float *turned = scratch + QUERIES * KEYS;
    pair b;
    for (b.query = 0; b.query < a->seq_len; b.query += QUERIES) {
        b.rows = a->seq_len - b.query < QUERIES ? a->seq_len - b.query : QUERIES;
        online x;
        for (uint32_t i = 0; i < QUERIES; i++) {
            x.most[i] = -INFINITY;
            x.sum[i] = 0.0f;
        }
        transpose(b.rows, a->head_dim, q + b.query * a->q_stride, a->q_stride, a->scale, turned);
        uint32_t end = b.query + b.rows;
        uint32_t first = first_key(a, b.query) / KEYS * KEYS;
        for (b.key = first; b.key < end; b.key += KEYS) {
            b.columns = end - b.key < KEYS ? end - b.key : KEYS;
            scores(a, &b, k, turned, scratch);
            join_block(padded(b.rows), b.columns, scratch, &x);
            if (b.key > first) {
                scale_rows(a, b.rows, x.shrink, o + b.query * a->q_stride);
            }
            add_to_queries(a, &b, scratch, v, b.key > first, o);
        }
        for (uint32_t i = 0; i < b.rows; i++) {
            logsumexp[(b.query + i) * a->row_stride] = x.most[i] + logf(x.sum[i]);
            x.sum[i] = 1.0f / x.sum[i];
        }
        scale_rows(a, b.rows, x.sum, o + b.query * a->q_stride);
    }
}

/* Tensors of a head in the backward. */
typedef struct gradients {
    const float *q, *k, *v, *o, *logsumexp, *d_o;
    float *dq, *dk, *dv;
} gradients;

/* Numbers of a block of queries in the backward. */
typedef struct known {
    float logsumexp[QUERIES];
    float products[QUERIES]; /* D_i = sum over the head of do o (executor.md section 5) */
} known;

/* The dot product, summed in a fixed order of eight parts. */
static inline float dot(const float *x, const float *y, uint32_t count)
{
    float parts[8] = {0};
    uint32_t whole = count / 8 * 8;
    for (uint32_t j = 0; j < whole; j += 8) {
        for (uint32_t p = 0; p < 8; p++) {
            parts[p] += x[j + p] * y[j + p];
        }
    }
    for (uint32_t j = whole; j < count; j++) {
        parts[j - whole] += x[j] * y[j];
    }
    return ((parts[0] + parts[4]) + (parts[1] + parts[5])) +
           ((parts[2] + parts[6]) + (parts[3] + parts[7]));
}

RPEXEC_VECTOR
static void know(const head *a, const gradients *g, uint32_t query, uint32_t rows, known *x)
{
    memset(x, 0, sizeof *x);
    for (uint32_t i = 0; i < rows; i++) {
        size_t at = (query + i) * a->q_stride;
        x->products[i] = dot(g->o + at, g->d_o + at, a->head_dim);
        x->logsumexp[i] = g->logsumexp[(query + i) * a->row_stride];
    }
}

/* p holds the scores, dp v do^T: afterwards P and scale ds. */
RPEXEC_VECTOR
static void softmax_backward(float scale, uint32_t width, uint32_t columns, const known *restrict x,
                             float *restrict p, float *restrict dp)
{
    for (uint32_t j = 0; j < columns; j++) {
        float *restrict weights = p + (size_t)j * QUERIES;
        float *restrict products = dp + (size_t)j * QUERIES;
        for (uint32_t i = 0; i < width; i++) {
            float weight = rpexec_exp(weights[i] - x->logsumexp[i]);
            weights[i] = weight;
            products[i] = weight * (products[i] - x->products[i]) * scale;
        }
    }
}

/* The same for capped scores s, whose derivative is 1 - (s / c)^2. */
RPEXEC_VECTOR
static void capped_backward(float scale, float cap, uint32_t width, uint32_t columns,
                            const known *restrict x, float *restrict p, float *restrict dp)
{
    for (uint32_t j = 0; j < columns; j++) {
        float *restrict weights = p + (size_t)j * QUERIES;
        float *restrict products = dp + (size_t)j * QUERIES;
        for (uint32_t i = 0; i < width; i++) {
            float share = weights[i] / cap;
            float slope = share >= -1.0f ? 1.0f - share * share : 0.0f; /* not seen: -inf */
            float weight = rpexec_exp(weights[i] - x->logsumexp[i]);
            weights[i] = weight;
            products[i] = weight * (products[i] - x->products[i]) * scale * slope;
        }
    }
}

/* Blocks of the backward in a lane's scratch memory. */
typedef struct blocks {
    float *p, *dp;  /* [KEYS][QUERIES] */
    float *q, *d_o; /* [head_dim][QUERIES] */
} blocks;

static void backward_pair(const head *a, const pair *b, const gradients *g, const known *x,
                          const blocks *s, bool first)
{
    scores(a, b, g->k, s->q, s->p);
    multiply_keys(a, b, g->v, s->d_o, s->dp);
    if (!is_whole(a, b)) { /* scores that were not computed may be NaN */
        fill_unseen(a, b, 0.0f, s->dp);
    }
    if (a->cap > 0) {
        capped_backward(a->scale, a->cap, padded(b->rows), b->columns, x, s->p, s->dp);
    } else {
        softmax_backward(a->scale, padded(b->rows), b->columns, x, s->p, s->dp);
    }
    add_to_keys(a, b, s->p, g->d_o, g->dv);
    add_to_keys(a, b, s->dp, g->q, g->dk);
    add_to_queries(a, b, s->dp, g->k, !first, g->dq);
}

/* dk and dv are added to: the query heads of a group share them. */
static void backward_head(const head *a, const gradients *g, float *scratch)
{
    const blocks s = {.p = scratch,
                      .dp = scratch + QUERIES * KEYS,
                      .q = scratch + 2 * QUERIES * KEYS,
                      .d_o = scratch + QUERIES * (2 * KEYS + a->head_dim)};
    known x;
    pair b;
    for (b.query = 0; b.query < a->seq_len; b.query += QUERIES) {
        b.rows = a->seq_len - b.query < QUERIES ? a->seq_len - b.query : QUERIES;
        size_t at = b.query * a->q_stride;
        transpose(b.rows, a->head_dim, g->q + at, a->q_stride, a->scale, s.q);
        transpose(b.rows, a->head_dim, g->d_o + at, a->q_stride, 1.0f, s.d_o);
        know(a, g, b.query, b.rows, &x);
        uint32_t end = b.query + b.rows;
        uint32_t first = first_key(a, b.query) / KEYS * KEYS;
        for (b.key = first; b.key < end; b.key += KEYS) {
            b.columns = end - b.key < KEYS ? end - b.key : KEYS;
            backward_pair(a, &b, g, &x, &s, b.key == first);
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

/* ---- sinks, for every storage type ----------------------------------------------------------- */

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
