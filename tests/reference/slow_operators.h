/* The operators of a decoder in double precision, in plain loops: the formulas of executor.md
 * section 5 as they stand there, without blocks, without work in place, and with no values kept
 * from a forward for its backward. They are the oracle of the executor's operators and share no
 * code with exec/.
 *
 * Matrices are row-major; T = sequences x seq_len tokens, sequences one after the other. Every
 * backward ADDS to its output gradients. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Label of a token without a label. */
#define SLOW_IGNORED (-100)

/* y[rows, width] = x r w with r = (mean(x^2) + eps)^(-1/2) of each row. */
void slow_rms_norm(int rows, int width, double eps, const double *x, const double *w, double *y);
void slow_rms_norm_backward(int rows, int width, double eps, const double *x, const double *w,
                            const double *dy, double *dx, double *dw);

/* y[rows, out] = x[rows, in] w[out, in]^T. */
void slow_linear(int rows, int in, int out, const double *x, const double *w, double *y);
void slow_linear_backward(int rows, int in, int out, const double *x, const double *w,
                          const double *dy, double *dx, double *dw);

/* Angles per position, theta^(-2i/h), i < head_dim / 2. @param llama with the scaling of Llama 3.1
 * (factor 8, low 1, high 4, original length 8192) */
void slow_rope_frequencies(int head_dim, double theta, bool llama, double *frequencies);

/* y[T, heads, head_dim] has x_i and x_(i + h/2) turned by position * frequency_i. */
void slow_rotate(int sequences, int seq_len, int heads, int head_dim, const double *frequencies,
                 const double *x, double *y);
void slow_rotate_backward(int sequences, int seq_len, int heads, int head_dim,
                          const double *frequencies, const double *dy, double *dx);

typedef struct slow_attention_sizes {
    int sequences, seq_len, heads, kv_heads, head_dim;
    double scale; /* factor of scores; 0: 1 / sqrt(h) */
    double cap;   /* c: scaled scores s become c tanh(s / c); 0: none */
    int window;   /* number of keys that a query sees, with its own; 0: all keys up to its own */
} slow_attention_sizes;

/* o = softmax(causal mask of q k^T / sqrt(h)) v; q, o [T, heads, h], k, v [T, kv_heads, h]. Query
 * head j uses key-value head j / (heads / kv_heads). `lse` [T, heads]: the rows' logsumexp; may be
 * NULL. */
void slow_attention(const slow_attention_sizes *sizes, const double *q, const double *k,
                    const double *v, double *o, double *lse);
void slow_attention_backward(const slow_attention_sizes *sizes, const double *q, const double *k,
                             const double *v, const double *d_o, double *dq, double *dk,
                             double *dv);

/* s = g sigmoid(g) p. */
void slow_swiglu(int count, const double *g, const double *p, double *s);
void slow_swiglu_backward(int count, const double *g, const double *p, const double *ds, double *dg,
                          double *dp);

/* s = gelu(g) p with gelu(g) = g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))). */
void slow_geglu(int count, const double *g, const double *p, double *s);
void slow_geglu_backward(int count, const double *g, const double *p, const double *ds, double *dg,
                         double *dp);

/* x[t, :] = table[ids[t], :]. */
void slow_embed(int tokens, int width, const int32_t *ids, const double *table, double *x);
void slow_embed_backward(int tokens, int width, const int32_t *ids, const double *dx,
                         double *dtable);

/* The sum over rows that are not ignored of logsumexp(z) - z_label; backward: dz += (softmax(z) -
 * onehot) scale. */
double slow_cross_entropy(int rows, int vocab, const int32_t *labels, const double *z);
void slow_cross_entropy_backward(int rows, int vocab, const int32_t *labels, double scale,
                                 const double *z, double *dz);
