#include "tests/reference/slow_operators.h"

#include "tests/reference/slow_sim.h"

#include <math.h>
#include <stdlib.h>

/* r of a row. */
static double factor(int width, double eps, const double *x)
{
    double squares = 0;
    for (int j = 0; j < width; j++) {
        squares += x[j] * x[j];
    }
    return 1 / sqrt(squares / width + eps);
}

void slow_rms_norm(int rows, int width, double eps, const double *x, const double *w, double *y)
{
    for (int t = 0; t < rows; t++) {
        double r = factor(width, eps, x + t * width);
        for (int j = 0; j < width; j++) {
            y[t * width + j] = x[t * width + j] * r * w[j];
        }
    }
}

/* dx = r (dy w) - x (r^3 / d) sum_j dy_j w_j x_j; dw_j = sum_t dy x r. */
void slow_rms_norm_backward(int rows, int width, double eps, const double *x, const double *w,
                            const double *dy, double *dx, double *dw)
{
    for (int t = 0; t < rows; t++) {
        int at = t * width;
        double r = factor(width, eps, x + at);
        double sum = 0;
        for (int j = 0; j < width; j++) {
            sum += dy[at + j] * w[j] * x[at + j];
        }
        for (int j = 0; j < width; j++) {
            dx[at + j] += r * dy[at + j] * w[j] - x[at + j] * r * r * r / width * sum;
            dw[j] += dy[at + j] * x[at + j] * r;
        }
    }
}

void slow_linear(int rows, int in, int out, const double *x, const double *w, double *y)
{
    for (int t = 0; t < rows; t++) {
        for (int o = 0; o < out; o++) {
            double sum = 0;
            for (int i = 0; i < in; i++) {
                sum += x[t * in + i] * w[o * in + i];
            }
            y[t * out + o] = sum;
        }
    }
}

void slow_linear_backward(int rows, int in, int out, const double *x, const double *w,
                          const double *dy, double *dx, double *dw)
{
    for (int t = 0; t < rows; t++) {
        for (int o = 0; o < out; o++) {
            for (int i = 0; i < in; i++) {
                dx[t * in + i] += dy[t * out + o] * w[o * in + i];
                dw[o * in + i] += dy[t * out + o] * x[t * in + i];
            }
        }
    }
}

void slow_rope_frequencies(int head_dim, double theta, bool llama, double *frequencies)
{
    for (int i = 0; i < head_dim / 2; i++) {
        double inv = pow(theta, -2.0 * i / head_dim);
        double w = 2 * acos(-1.0) / inv;
        double s = (8192 / w - 1) / (4 - 1);
        if (llama && w > 8192.0 / 1) {
            inv = inv / 8;
        } else if (llama && w >= 8192.0 / 4) {
            inv = (1 - s) * inv / 8 + s * inv;
        }
        frequencies[i] = inv;
    }
}

/* Turns every pair of every head by `sign` times its angle, and adds the result to `to`. */
static void turn(int sequences, int seq_len, int heads, int head_dim, const double *frequencies,
                 int sign, const double *from, double *to)
{
    int half = head_dim / 2;
    for (int t = 0; t < sequences * seq_len; t++) {
        for (int i = 0; i < half; i++) {
            double angle = sign * (t % seq_len) * frequencies[i];
            for (int head = 0; head < heads; head++) {
                int at = (t * heads + head) * head_dim + i;
                to[at] += from[at] * cos(angle) - from[at + half] * sin(angle);
                to[at + half] += from[at + half] * cos(angle) + from[at] * sin(angle);
            }
        }
    }
}

void slow_rotate(int sequences, int seq_len, int heads, int head_dim, const double *frequencies,
                 const double *x, double *y)
{
    for (int i = 0; i < sequences * seq_len * heads * head_dim; i++) {
        y[i] = 0;
    }
    turn(sequences, seq_len, heads, head_dim, frequencies, 1, x, y);
}

void slow_rotate_backward(int sequences, int seq_len, int heads, int head_dim,
                          const double *frequencies, const double *dy, double *dx)
{
    turn(sequences, seq_len, heads, head_dim, frequencies, -1, dy, dx);
}

/* @return the index of a head's vector for a token */
static int query_at(const slow_attention_sizes *s, int sequence, int token, int head)
{
    return ((sequence * s->seq_len + token) * s->heads + head) * s->head_dim;
}

static int key_at(const slow_attention_sizes *s, int sequence, int token, int head)
{
    int kv_head = head / (s->heads / s->kv_heads);
    return ((sequence * s->seq_len + token) * s->kv_heads + kv_head) * s->head_dim;
}

static double scale_of(const slow_attention_sizes *s)
{
    return s->scale != 0 ? s->scale : 1 / sqrt(s->head_dim);
}

/* A score before the mask. */
static double score_of(const slow_attention_sizes *s, double dot)
{
    double score = dot * scale_of(s);
    return s->cap != 0 ? s->cap * tanh(score / s->cap) : score;
}

/* d score / d dot. */
static double score_slope(const slow_attention_sizes *s, double dot)
{
    double t = s->cap != 0 ? tanh(dot * scale_of(s) / s->cap) : 0;
    return scale_of(s) * (1 - t * t);
}

static double dot_of(const slow_attention_sizes *s, int sequence, int head, int row, int column,
                     const double *q, const double *k)
{
    double dot = 0;
    for (int i = 0; i < s->head_dim; i++) {
        dot += q[query_at(s, sequence, row, head) + i] * k[key_at(s, sequence, column, head) + i];
    }
    return dot;
}

static int sees(const slow_attention_sizes *s, int row, int column)
{
    return column <= row && (s->window == 0 || row - column < s->window);
}

/* Computes a row of P with seq_len columns, zero for keys that the row does not see. @return its
 * logsumexp */
static double softmax_row(const slow_attention_sizes *s, int sequence, int head, int row,
                          const double *q, const double *k, double *p)
{
    double most = -INFINITY;
    double sum = 0;
    for (int j = 0; j < s->seq_len; j++) {
        p[j] = sees(s, row, j) ? score_of(s, dot_of(s, sequence, head, row, j, q, k)) : -INFINITY;
        most = fmax(most, p[j]);
    }
    for (int j = 0; j < s->seq_len; j++) {
        p[j] = exp(p[j] - most);
        sum += p[j];
    }
    for (int j = 0; j < s->seq_len; j++) {
        p[j] /= sum;
    }
    return most + log(sum);
}

/* Computes the whole seq_len x seq_len matrix P of a head. */
static void softmax_head(const slow_attention_sizes *s, int sequence, int head, const double *q,
                         const double *k, double *p, double *lse)
{
    for (int row = 0; row < s->seq_len; row++) {
        double l = softmax_row(s, sequence, head, row, q, k, p + row * s->seq_len);
        if (lse != NULL) {
            lse[(sequence * s->seq_len + row) * s->heads + head] = l;
        }
    }
}

void slow_attention(const slow_attention_sizes *s, const double *q, const double *k,
                    const double *v, double *o, double *lse)
{
    double *p = slow_alloc((size_t)s->seq_len * (size_t)s->seq_len, sizeof *p);
    for (int pair = 0; pair < s->sequences * s->heads; pair++) {
        int sequence = pair / s->heads;
        int head = pair % s->heads;
        softmax_head(s, sequence, head, q, k, p, lse);
        for (int row = 0; row < s->seq_len; row++) {
            for (int i = 0; i < s->head_dim; i++) {
                double sum = 0;
                for (int j = 0; j < s->seq_len; j++) {
                    sum += p[row * s->seq_len + j] * v[key_at(s, sequence, j, head) + i];
                }
                o[query_at(s, sequence, row, head) + i] = sum;
            }
        }
    }
    free(p);
}

/* dP of a single element: the gradient of o times the value. */
static double d_p(const slow_attention_sizes *s, int sequence, int head, int row, int column,
                  const double *v, const double *d_o)
{
    double sum = 0;
    for (int i = 0; i < s->head_dim; i++) {
        sum += d_o[query_at(s, sequence, row, head) + i] * v[key_at(s, sequence, column, head) + i];
    }
    return sum;
}

/* ds_ij = P_ij (dP_ij - sum_k P_ik dP_ik), then from the scores to q and k. */
void slow_attention_backward(const slow_attention_sizes *s, const double *q, const double *k,
                             const double *v, const double *d_o, double *dq, double *dk, double *dv)
{
    double *p = slow_alloc((size_t)s->seq_len * (size_t)s->seq_len, sizeof *p);
    for (int pair = 0; pair < s->sequences * s->heads; pair++) {
        int sequence = pair / s->heads;
        int head = pair % s->heads;
        softmax_head(s, sequence, head, q, k, p, NULL);
        for (int row = 0; row < s->seq_len; row++) {
            const double *of_row = p + row * s->seq_len;
            double mean = 0;
            for (int j = 0; j <= row; j++) {
                mean += of_row[j] * d_p(s, sequence, head, row, j, v, d_o);
            }
            for (int j = 0; j <= row; j++) {
                double ds = of_row[j] * (d_p(s, sequence, head, row, j, v, d_o) - mean) *
                            score_slope(s, dot_of(s, sequence, head, row, j, q, k));
                for (int i = 0; i < s->head_dim; i++) {
                    int to_q = query_at(s, sequence, row, head) + i;
                    int to_k = key_at(s, sequence, j, head) + i;
                    dq[to_q] += ds * k[to_k];
                    dk[to_k] += ds * q[to_q];
                    dv[to_k] += of_row[j] * d_o[to_q];
                }
            }
        }
    }
    free(p);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

void slow_swiglu(int count, const double *g, const double *p, double *s)
{
    for (int i = 0; i < count; i++) {
        s[i] = g[i] * sigmoid(g[i]) * p[i];
    }
}

void slow_swiglu_backward(int count, const double *g, const double *p, const double *ds, double *dg,
                          double *dp)
{
    for (int i = 0; i < count; i++) {
        dp[i] += ds[i] * g[i] * sigmoid(g[i]);
        dg[i] += ds[i] * p[i] * sigmoid(g[i]) * (1 + g[i] * (1 - sigmoid(g[i])));
    }
}

static double gelu_tanh(double g)
{
    return tanh(sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g));
}

void slow_geglu(int count, const double *g, const double *p, double *s)
{
    for (int i = 0; i < count; i++) {
        s[i] = g[i] / 2 * (1 + gelu_tanh(g[i])) * p[i];
    }
}

void slow_geglu_backward(int count, const double *g, const double *p, const double *ds, double *dg,
                         double *dp)
{
    for (int i = 0; i < count; i++) {
        double t = gelu_tanh(g[i]);
        double inner = sqrt(2 / acos(-1.0)) * (1 + 3 * 0.044715 * g[i] * g[i]);
        dp[i] += ds[i] * g[i] / 2 * (1 + t);
        dg[i] += ds[i] * p[i] * ((1 + t) / 2 + g[i] / 2 * (1 - t * t) * inner);
    }
}

void slow_embed(int tokens, int width, const int32_t *ids, const double *table, double *x)
{
    for (int t = 0; t < tokens; t++) {
        for (int j = 0; j < width; j++) {
            x[t * width + j] = table[ids[t] * width + j];
        }
    }
}

void slow_embed_backward(int tokens, int width, const int32_t *ids, const double *dx,
                         double *dtable)
{
    for (int t = 0; t < tokens; t++) {
        for (int j = 0; j < width; j++) {
            dtable[ids[t] * width + j] += dx[t * width + j];
        }
    }
}

static double logsumexp(int count, const double *z)
{
    double most = -INFINITY;
    double sum = 0;
    for (int j = 0; j < count; j++) {
        most = fmax(most, z[j]);
    }
    for (int j = 0; j < count; j++) {
        sum += exp(z[j] - most);
    }
    return most + log(sum);
}

double slow_cross_entropy(int rows, int vocab, const int32_t *labels, const double *z)
{
    double loss = 0;
    for (int t = 0; t < rows; t++) {
        if (labels[t] != SLOW_IGNORED) {
            loss += logsumexp(vocab, z + t * vocab) - z[t * vocab + labels[t]];
        }
    }
    return loss;
}

void slow_cross_entropy_backward(int rows, int vocab, const int32_t *labels, double scale,
                                 const double *z, double *dz)
{
    for (int t = 0; t < rows; t++) {
        if (labels[t] == SLOW_IGNORED) {
            continue;
        }
        double lse = logsumexp(vocab, z + t * vocab);
        for (int j = 0; j < vocab; j++) {
            double onehot = j == labels[t] ? 1 : 0;
            dz[t * vocab + j] += (exp(z[t * vocab + j] - lse) - onehot) * scale;
        }
    }
}
