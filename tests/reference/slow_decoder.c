#include "tests/reference/slow_decoder.h"

#include "tests/reference/slow_sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters ------------------------------------------------------------------------------ */

typedef struct slow_list {
    slow_parameter *items;
    int count;
    size_t elements;
} slow_list;

static void add(slow_list *list, int rows, int columns, const char *format, ...)
{
    slow_parameter *p = &list->items[list->count++];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->name, sizeof p->name, format, arguments);
    va_end(arguments);
    p->rows = rows;
    p->columns = columns;
    p->offset = list->elements;
    list->elements += (size_t)rows * (size_t)columns;
}

slow_parameter *slow_decoder_parameters(const slow_decoder *m, int *count_out, size_t *elements_out)
{
    slow_list list = {slow_alloc((size_t)m->layers * 11 + 3, sizeof(slow_parameter)), 0, 0};
    int q = m->heads * m->head_dim;
    int kv = m->kv_heads * m->head_dim;
    add(&list, m->vocab, m->hidden, "model.embed_tokens.weight");
    for (int i = 0; i < m->layers; i++) {
        add(&list, 1, m->hidden, "model.layers.%d.input_layernorm.weight", i);
        add(&list, q, m->hidden, "model.layers.%d.self_attn.q_proj.weight", i);
        add(&list, kv, m->hidden, "model.layers.%d.self_attn.k_proj.weight", i);
        add(&list, kv, m->hidden, "model.layers.%d.self_attn.v_proj.weight", i);
        add(&list, m->hidden, q, "model.layers.%d.self_attn.o_proj.weight", i);
        if (m->qk_norm) {
            add(&list, 1, m->head_dim, "model.layers.%d.self_attn.q_norm.weight", i);
            add(&list, 1, m->head_dim, "model.layers.%d.self_attn.k_norm.weight", i);
        }
        add(&list, 1, m->hidden, "model.layers.%d.post_attention_layernorm.weight", i);
        add(&list, m->intermediate, m->hidden, "model.layers.%d.mlp.gate_proj.weight", i);
        add(&list, m->intermediate, m->hidden, "model.layers.%d.mlp.up_proj.weight", i);
        add(&list, m->hidden, m->intermediate, "model.layers.%d.mlp.down_proj.weight", i);
    }
    add(&list, 1, m->hidden, "model.norm.weight");
    if (!m->tied) {
        add(&list, m->vocab, m->hidden, "lm_head.weight");
    }
    *count_out = list.count;
    *elements_out = list.elements;
    return list.items;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* All values that a block computes, kept for the backward: x -> n1 -> q0, k0, v -> (norm) q1, k1 ->
 * (turned) q, k -> o -> u = x + o Wo -> n2 -> g, p -> s -> y = u + s Wdown. */
typedef struct slow_block {
    const double *x;
    double *n1, *q0, *k0, *v, *q1, *k1, *q, *k, *o, *u, *n2, *g, *p, *s, *y;
} slow_block;

typedef struct slow_pass {
    const slow_decoder *m;
    const slow_batch *batch;
    const double *weights;
    double *gradients;
    slow_parameter *parameters;
    int parameter_count;
    double *frequencies;
    void **owned; /* freed at the end */
    int owned_count;
} slow_pass;

static double *own(slow_pass *r, int rows, int columns)
{
    r->owned = realloc(r->owned, ((size_t)r->owned_count + 1) * sizeof *r->owned);
    slow_require(r->owned != NULL, "out of memory");
    double *x = slow_alloc((size_t)rows * (size_t)columns, sizeof *x);
    return r->owned[r->owned_count++] = x;
}

static int tokens_of(const slow_pass *r)
{
    return r->batch->sequences * r->batch->seq_len;
}

static size_t find(const slow_pass *r, int layer, const char *name)
{
    char whole[SLOW_NAME_SIZE];
    if (layer < 0) {
        snprintf(whole, sizeof whole, "%s", name);
    } else {
        snprintf(whole, sizeof whole, "model.layers.%d.%s", layer, name);
    }
    for (int i = 0; i < r->parameter_count; i++) {
        if (strcmp(r->parameters[i].name, whole) == 0) {
            return r->parameters[i].offset;
        }
    }
    slow_require(false, whole);
    return 0;
}

static const double *weight(const slow_pass *r, int layer, const char *name)
{
    return r->weights + find(r, layer, name);
}

static double *gradient(const slow_pass *r, int layer, const char *name)
{
    return r->gradients + find(r, layer, name);
}

static slow_attention_sizes attention_of(const slow_pass *r)
{
    return (slow_attention_sizes){.sequences = r->batch->sequences,
                                  .seq_len = r->batch->seq_len,
                                  .heads = r->m->heads,
                                  .kv_heads = r->m->kv_heads,
                                  .head_dim = r->m->head_dim};
}

static void sum(int count, const double *a, const double *b, double *y)
{
    for (int i = 0; i < count; i++) {
        y[i] = a[i] + b[i];
    }
}

static slow_block block_forward(slow_pass *r, int layer, const double *x)
{
    const slow_decoder *m = r->m;
    int t = tokens_of(r);
    int d = m->hidden;
    int q = m->heads * m->head_dim;
    int kv = m->kv_heads * m->head_dim;
    int f = m->intermediate;
    slow_attention_sizes sizes = attention_of(r);
    slow_block b = {x,
                    own(r, t, d),
                    own(r, t, q),
                    own(r, t, kv),
                    own(r, t, kv),
                    own(r, t, q),
                    own(r, t, kv),
                    own(r, t, q),
                    own(r, t, kv),
                    own(r, t, q),
                    own(r, t, d),
                    own(r, t, d),
                    own(r, t, f),
                    own(r, t, f),
                    own(r, t, f),
                    own(r, t, d)};
    double *added = own(r, t, d);
    slow_rms_norm(t, d, m->eps, x, weight(r, layer, "input_layernorm.weight"), b.n1);
    slow_linear(t, d, q, b.n1, weight(r, layer, "self_attn.q_proj.weight"), b.q0);
    slow_linear(t, d, kv, b.n1, weight(r, layer, "self_attn.k_proj.weight"), b.k0);
    slow_linear(t, d, kv, b.n1, weight(r, layer, "self_attn.v_proj.weight"), b.v);
    if (m->qk_norm) {
        slow_rms_norm(t * m->heads, m->head_dim, m->eps, b.q0,
                      weight(r, layer, "self_attn.q_norm.weight"), b.q1);
        slow_rms_norm(t * m->kv_heads, m->head_dim, m->eps, b.k0,
                      weight(r, layer, "self_attn.k_norm.weight"), b.k1);
    } else {
        memcpy(b.q1, b.q0, (size_t)(t * q) * sizeof *b.q1);
        memcpy(b.k1, b.k0, (size_t)(t * kv) * sizeof *b.k1);
    }
    slow_rotate(sizes.sequences, sizes.seq_len, m->heads, m->head_dim, r->frequencies, b.q1, b.q);
    slow_rotate(sizes.sequences, sizes.seq_len, m->kv_heads, m->head_dim, r->frequencies, b.k1,
                b.k);
    slow_attention(&sizes, b.q, b.k, b.v, b.o, NULL);
    slow_linear(t, q, d, b.o, weight(r, layer, "self_attn.o_proj.weight"), added);
    sum(t * d, x, added, b.u);
    slow_rms_norm(t, d, m->eps, b.u, weight(r, layer, "post_attention_layernorm.weight"), b.n2);
    slow_linear(t, d, f, b.n2, weight(r, layer, "mlp.gate_proj.weight"), b.g);
    slow_linear(t, d, f, b.n2, weight(r, layer, "mlp.up_proj.weight"), b.p);
    slow_swiglu(t * f, b.g, b.p, b.s);
    slow_linear(t, f, d, b.s, weight(r, layer, "mlp.down_proj.weight"), added);
    sum(t * d, b.u, added, b.y);
    return b;
}

/* @return du, from dy; also computes the gradients of the MLP's weights */
static double *mlp_backward(slow_pass *r, int layer, const slow_block *b, const double *dy)
{
    const slow_decoder *m = r->m;
    int t = tokens_of(r);
    int d = m->hidden;
    int f = m->intermediate;
    double *ds = own(r, t, f);
    double *dg = own(r, t, f);
    double *dp = own(r, t, f);
    double *dn = own(r, t, d);
    double *du = own(r, t, d);
    slow_linear_backward(t, f, d, b->s, weight(r, layer, "mlp.down_proj.weight"), dy, ds,
                         gradient(r, layer, "mlp.down_proj.weight"));
    slow_swiglu_backward(t * f, b->g, b->p, ds, dg, dp);
    slow_linear_backward(t, d, f, b->n2, weight(r, layer, "mlp.gate_proj.weight"), dg, dn,
                         gradient(r, layer, "mlp.gate_proj.weight"));
    slow_linear_backward(t, d, f, b->n2, weight(r, layer, "mlp.up_proj.weight"), dp, dn,
                         gradient(r, layer, "mlp.up_proj.weight"));
    memcpy(du, dy, (size_t)(t * d) * sizeof *du);
    slow_rms_norm_backward(t, d, m->eps, b->u, weight(r, layer, "post_attention_layernorm.weight"),
                           dn, du, gradient(r, layer, "post_attention_layernorm.weight"));
    return du;
}

/* Computes the gradient of a projection's output from the gradient of the turned queries or keys.
 */
static double *turn_back(slow_pass *r, int layer, int heads, const char *norm, const double *before,
                         const double *dx)
{
    const slow_decoder *m = r->m;
    int t = tokens_of(r);
    double *turned = own(r, t, heads * m->head_dim);
    slow_rotate_backward(r->batch->sequences, r->batch->seq_len, heads, m->head_dim, r->frequencies,
                         dx, turned);
    if (!m->qk_norm) {
        return turned;
    }
    double *normed = own(r, t, heads * m->head_dim);
    slow_rms_norm_backward(t * heads, m->head_dim, m->eps, before, weight(r, layer, norm), turned,
                           normed, gradient(r, layer, norm));
    return normed;
}

static double *block_backward(slow_pass *r, int layer, const slow_block *b, const double *dy)
{
    const slow_decoder *m = r->m;
    int t = tokens_of(r);
    int d = m->hidden;
    int q = m->heads * m->head_dim;
    int kv = m->kv_heads * m->head_dim;
    slow_attention_sizes sizes = attention_of(r);
    double *du = mlp_backward(r, layer, b, dy);
    double *d_o = own(r, t, q);
    double *dq = own(r, t, q);
    double *dk = own(r, t, kv);
    double *dv = own(r, t, kv);
    double *dn = own(r, t, d);
    double *dx = own(r, t, d);
    slow_linear_backward(t, q, d, b->o, weight(r, layer, "self_attn.o_proj.weight"), du, d_o,
                         gradient(r, layer, "self_attn.o_proj.weight"));
    slow_attention_backward(&sizes, b->q, b->k, b->v, d_o, dq, dk, dv);
    double *dq0 = turn_back(r, layer, m->heads, "self_attn.q_norm.weight", b->q0, dq);
    double *dk0 = turn_back(r, layer, m->kv_heads, "self_attn.k_norm.weight", b->k0, dk);
    slow_linear_backward(t, d, q, b->n1, weight(r, layer, "self_attn.q_proj.weight"), dq0, dn,
                         gradient(r, layer, "self_attn.q_proj.weight"));
    slow_linear_backward(t, d, kv, b->n1, weight(r, layer, "self_attn.k_proj.weight"), dk0, dn,
                         gradient(r, layer, "self_attn.k_proj.weight"));
    slow_linear_backward(t, d, kv, b->n1, weight(r, layer, "self_attn.v_proj.weight"), dv, dn,
                         gradient(r, layer, "self_attn.v_proj.weight"));
    memcpy(dx, du, (size_t)(t * d) * sizeof *dx);
    slow_rms_norm_backward(t, d, m->eps, b->x, weight(r, layer, "input_layernorm.weight"), dn, dx,
                           gradient(r, layer, "input_layernorm.weight"));
    return dx;
}

/* @return the head's loss on x @param dx gradient of x, or NULL if it is not wanted */
static double head(slow_pass *r, const double *x, double *dx)
{
    const slow_decoder *m = r->m;
    const char *table = m->tied ? "model.embed_tokens.weight" : "lm_head.weight";
    int t = tokens_of(r);
    int valid = 0;
    for (int i = 0; i < t; i++) {
        valid += r->batch->labels[i] != SLOW_IGNORED;
    }
    slow_require(valid > 0, "a batch needs a label");
    double *n = own(r, t, m->hidden);
    double *z = own(r, t, m->vocab);
    slow_rms_norm(t, m->hidden, m->eps, x, weight(r, -1, "model.norm.weight"), n);
    slow_linear(t, m->hidden, m->vocab, n, weight(r, -1, table), z);
    if (dx != NULL) {
        double *dz = own(r, t, m->vocab);
        double *dn = own(r, t, m->hidden);
        slow_cross_entropy_backward(t, m->vocab, r->batch->labels, 1.0 / valid, z, dz);
        slow_linear_backward(t, m->hidden, m->vocab, n, weight(r, -1, table), dz, dn,
                             gradient(r, -1, table));
        slow_rms_norm_backward(t, m->hidden, m->eps, x, weight(r, -1, "model.norm.weight"), dn, dx,
                               gradient(r, -1, "model.norm.weight"));
    }
    return slow_cross_entropy(t, m->vocab, r->batch->labels, z) / valid;
}

double slow_decoder_loss(const slow_decoder *m, const slow_batch *batch, const double *weights,
                         double *gradients)
{
    slow_pass r = {.m = m, .batch = batch, .weights = weights, .gradients = gradients};
    size_t elements;
    r.parameters = slow_decoder_parameters(m, &r.parameter_count, &elements);
    r.frequencies = own(&r, 1, m->head_dim / 2);
    slow_rope_frequencies(m->head_dim, m->theta, m->llama, r.frequencies);
    slow_block *blocks = slow_alloc((size_t)m->layers, sizeof *blocks);
    int t = tokens_of(&r);
    double *x = own(&r, t, m->hidden);
    slow_embed(t, m->hidden, batch->ids, weight(&r, -1, "model.embed_tokens.weight"), x);
    for (int i = 0; i < m->layers; i++) {
        blocks[i] = block_forward(&r, i, i == 0 ? x : blocks[i - 1].y);
    }
    double *dx = NULL;
    if (gradients != NULL) {
        memset(gradients, 0, elements * sizeof *gradients);
        dx = own(&r, t, m->hidden);
    }
    double loss = head(&r, m->layers == 0 ? x : blocks[m->layers - 1].y, dx);
    for (int i = m->layers; gradients != NULL && i-- > 0;) {
        dx = block_backward(&r, i, &blocks[i], dx);
    }
    if (gradients != NULL) {
        slow_embed_backward(t, m->hidden, batch->ids, dx,
                            gradient(&r, -1, "model.embed_tokens.weight"));
    }
    for (int i = 0; i < r.owned_count; i++) {
        free(r.owned[i]);
    }
    free(r.owned);
    free(blocks);
    free(r.parameters);
    return loss;
}
