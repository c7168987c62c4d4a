/* u = x + attention(norm(x)), y = u + mlp(norm(u)); executor.md section 5. */
#include "exec/model/block.h"

/* Sizes of a microbatch in this model; q, kv: values of one row. */
typedef struct sizes {
    uint32_t d, f, q, kv, heads, kv_heads, head_dim;
    uint64_t tokens;
    rpexec_attention_sizes attention;
} sizes;

static sizes sizes_of(const rp_model *m, uint64_t tokens, uint32_t sequences, uint32_t seq_len)
{
    return (sizes){.d = m->hidden,
                   .f = m->intermediate,
                   .q = m->heads * m->head_dim,
                   .kv = m->kv_heads * m->head_dim,
                   .heads = m->heads,
                   .kv_heads = m->kv_heads,
                   .head_dim = m->head_dim,
                   .tokens = tokens,
                   .attention = {.sequences = sequences,
                                 .seq_len = seq_len,
                                 .heads = m->heads,
                                 .kv_heads = m->kv_heads,
                                 .head_dim = m->head_dim}};
}

static sizes sizes_here(const rpexec_compute *c, uint32_t sequences)
{
    uint32_t seq_len = c->model->seq_len;
    return sizes_of(c->model->config, (uint64_t)sequences * seq_len, sequences, seq_len);
}

/* Cuts memory into tensors, each at a multiple of 64 bytes. */
typedef struct cutter {
    unsigned char *base;
    rpexec_dtype dtype;
    uint64_t used; /* bytes */
} cutter;

static void *cut_bytes(cutter *c, uint64_t bytes)
{
    void *at = c->base == NULL ? NULL : c->base + c->used;
    c->used += (bytes + 63) / 64 * 64;
    return at;
}

/* A tensor of the run's storage type. */
static void *cut(cutter *c, uint64_t values)
{
    return cut_bytes(c, values * rpexec_dtype_bytes(c->dtype));
}

/* Statistics. */
static float *cut_floats(cutter *c, uint64_t floats)
{
    return cut_bytes(c, floats * sizeof(float));
}

typedef struct block_tape {
    void *n1;      /* norm(x) */
    float *r1;     /* its factors */
    void *q0, *k0; /* before QK-norm */
    float *rq, *rk;
    void *q, *k, *v, *o; /* as attention has them */
    float *l;            /* its logsumexp */
    void *u, *n2;
    float *r2;
    void *gate, *up;
} block_tape;

static block_tape cut_tape(const rpexec_model *m, const sizes *s, void *base, uint64_t *bytes_out)
{
    cutter c = {.base = base, .dtype = m->dtype};
    uint64_t t = s->tokens;
    block_tape tape = {.n1 = cut(&c, t * s->d), .r1 = cut_floats(&c, t)};
    tape.q = cut(&c, t * s->q);
    tape.k = cut(&c, t * s->kv);
    if (m->config->qk_norm) {
        tape.q0 = cut(&c, t * s->q);
        tape.k0 = cut(&c, t * s->kv);
        tape.rq = cut_floats(&c, t * s->heads);
        tape.rk = cut_floats(&c, t * s->kv_heads);
    }
    tape.v = cut(&c, t * s->kv);
    tape.o = cut(&c, t * s->q);
    tape.l = cut_floats(&c, t * s->heads);
    tape.u = cut(&c, t * s->d);
    tape.n2 = cut(&c, t * s->d);
    tape.r2 = cut_floats(&c, t);
    tape.gate = cut(&c, t * s->f);
    tape.up = cut(&c, t * s->f);
    *bytes_out = c.used;
    return tape;
}

/* Gradients of the outputs of the matrices. */
typedef struct weight_tape {
    void *dq, *dk, *dv, *du, *dgate, *dup;
} weight_tape;

static weight_tape cut_weight_tape(const rpexec_model *m, const sizes *s, void *base,
                                   uint64_t *bytes_out)
{
    cutter c = {.base = base, .dtype = m->dtype};
    uint64_t t = s->tokens;
    weight_tape tape = {.dq = cut(&c, t * s->q), .dk = cut(&c, t * s->kv)};
    tape.dv = cut(&c, t * s->kv);
    tape.du = cut(&c, t * s->d);
    tape.dgate = cut(&c, t * s->f);
    tape.dup = cut(&c, t * s->f);
    *bytes_out = c.used;
    return tape;
}

uint64_t rpexec_block_tape_bytes(const rpexec_model *model, uint64_t tokens)
{
    sizes s = sizes_of(model->config, tokens, 0, 0);
    uint64_t bytes;
    (void)cut_tape(model, &s, NULL, &bytes);
    return bytes;
}

uint64_t rpexec_block_weight_tape_bytes(const rpexec_model *model, uint64_t tokens)
{
    sizes s = sizes_of(model->config, tokens, 0, 0);
    uint64_t bytes;
    (void)cut_weight_tape(model, &s, NULL, &bytes);
    return bytes;
}

uint64_t rpexec_block_scratch_bytes(const rpexec_model *model, uint64_t tokens)
{
    sizes s = sizes_of(model->config, tokens, 0, 0);
    cutter c = {.dtype = model->dtype};
    (void)cut(&c, tokens * s.d);
    (void)cut(&c, tokens * (s.f > s.q ? s.f : s.q));
    return c.used;
}

static const void *tensor(const rpexec_compute *c, const void *array, rpexec_block_tensor which)
{
    return rpexec_element_const(c->model->dtype, array, c->model->block.tensors[which].offset);
}

static void *gradient(const rpexec_compute *c, void *array, rpexec_block_tensor which)
{
    return rpexec_element(c->model->dtype, array, c->model->block.tensors[which].offset);
}

/* Norm (where the model has it) and rotation of queries or keys, from `before` into `x`. */
static void turn(const rpexec_compute *c, const sizes *s, uint32_t heads, const void *weight,
                 void *before, float *r, void *x)
{
    const rpexec_operators *op = c->operators;
    if (weight != NULL) {
        op->rms_norm(c->lane, s->tokens * heads, s->head_dim, (float)c->model->config->norm_eps,
                     before, weight, x, r);
    }
    op->rotate(c->lane, s->attention.sequences, s->attention.seq_len, heads, s->head_dim,
               c->model->cosines, c->model->sines, false, x);
}

static void attention_forward(const rpexec_compute *c, const sizes *s, const void *w, const void *x,
                              const block_tape *tape)
{
    const rpexec_operators *op = c->operators;
    float eps = (float)c->model->config->norm_eps;
    uint64_t t = s->tokens;
    bool norm = c->model->config->qk_norm;
    void *q = norm ? tape->q0 : tape->q;
    void *k = norm ? tape->k0 : tape->k;
    op->rms_norm(c->lane, t, s->d, eps, x, tensor(c, w, RPEXEC_NORM_1), tape->n1, tape->r1);
    op->linear(c->lane, t, s->d, s->q, tape->n1, tensor(c, w, RPEXEC_Q), false, q);
    op->linear(c->lane, t, s->d, s->kv, tape->n1, tensor(c, w, RPEXEC_K), false, k);
    op->linear(c->lane, t, s->d, s->kv, tape->n1, tensor(c, w, RPEXEC_V), false, tape->v);
    turn(c, s, s->heads, norm ? tensor(c, w, RPEXEC_Q_NORM) : NULL, q, tape->rq, tape->q);
    turn(c, s, s->kv_heads, norm ? tensor(c, w, RPEXEC_K_NORM) : NULL, k, tape->rk, tape->k);
    op->attention(c->lane, &s->attention, tape->q, tape->k, tape->v, tape->o, tape->l);
    op->copy(c->lane, t * s->d, x, tape->u);
    op->linear(c->lane, t, s->q, s->d, tape->o, tensor(c, w, RPEXEC_O), true, tape->u);
}

void rpexec_block_forward(const rpexec_compute *c, const void *weights, uint32_t sequences,
                          const void *x, void *y, void *tape_base, void *scratch)
{
    const rpexec_operators *op = c->operators;
    sizes s = sizes_here(c, sequences);
    uint64_t bytes;
    block_tape tape = cut_tape(c->model, &s, tape_base, &bytes);
    attention_forward(c, &s, weights, x, &tape);
    float eps = (float)c->model->config->norm_eps;
    uint64_t t = s.tokens;
    op->rms_norm(c->lane, t, s.d, eps, tape.u, tensor(c, weights, RPEXEC_NORM_2), tape.n2, tape.r2);
    op->linear(c->lane, t, s.d, s.f, tape.n2, tensor(c, weights, RPEXEC_GATE), false, tape.gate);
    op->linear(c->lane, t, s.d, s.f, tape.n2, tensor(c, weights, RPEXEC_UP), false, tape.up);
    op->swiglu(c->lane, t * s.f, tape.gate, tape.up, scratch);
    op->copy(c->lane, t * s.d, tape.u, y);
    op->linear(c->lane, t, s.f, s.d, scratch, tensor(c, weights, RPEXEC_DOWN), true, y);
}

/* du, and the gradient of the second norm's weight. */
static void mlp_backward_input(const rpexec_compute *c, const sizes *s, const void *w, void *g,
                               const block_tape *tape, const void *dy, const weight_tape *out,
                               void *dn, void *ds)
{
    const rpexec_operators *op = c->operators;
    uint64_t t = s->tokens;
    op->linear_input(c->lane, t, s->f, s->d, dy, tensor(c, w, RPEXEC_DOWN), false, ds);
    op->swiglu_backward(c->lane, t * s->f, tape->gate, tape->up, ds, out->dgate, out->dup);
    op->linear_input(c->lane, t, s->d, s->f, out->dgate, tensor(c, w, RPEXEC_GATE), false, dn);
    op->linear_input(c->lane, t, s->d, s->f, out->dup, tensor(c, w, RPEXEC_UP), true, dn);
    op->copy(c->lane, t * s->d, dy, out->du);
    op->rms_norm_input(c->lane, t, s->d, tape->u, tensor(c, w, RPEXEC_NORM_2), tape->r2, dn, true,
                       out->du);
    op->rms_norm_weight(c->lane, t, s->d, tape->u, tape->r2, dn, gradient(c, g, RPEXEC_NORM_2));
}

/* The backward of `turn`, in place. */
static void turn_back(const rpexec_compute *c, const sizes *s, uint32_t heads, const void *weight,
                      void *dweight, const void *before, const float *r, void *dx)
{
    const rpexec_operators *op = c->operators;
    op->rotate(c->lane, s->attention.sequences, s->attention.seq_len, heads, s->head_dim,
               c->model->cosines, c->model->sines, true, dx);
    if (weight != NULL) {
        op->rms_norm_weight(c->lane, s->tokens * heads, s->head_dim, before, r, dx, dweight);
        op->rms_norm_input(c->lane, s->tokens * heads, s->head_dim, before, weight, r, dx, false,
                           dx);
    }
}

void rpexec_block_backward_input(const rpexec_compute *c, const void *weights, void *gradients,
                                 uint32_t sequences, const void *x, const void *tape_base,
                                 const void *dy, void *dx, void *weight_tape_base, void *scratch)
{
    const rpexec_operators *op = c->operators;
    sizes s = sizes_here(c, sequences);
    uint64_t bytes;
    uint64_t t = s.tokens;
    /* The tape is only read: one layout serves both directions. */
    block_tape tape = cut_tape(c->model, &s, (void *)(uintptr_t)tape_base, &bytes);
    weight_tape out = cut_weight_tape(c->model, &s, weight_tape_base, &bytes);
    cutter rest = {.base = scratch, .dtype = c->model->dtype};
    void *dn = cut(&rest, t * s.d);
    void *wide = cut(&rest, t * (s.f > s.q ? s.f : s.q));
    mlp_backward_input(c, &s, weights, gradients, &tape, dy, &out, dn, wide);
    op->linear_input(c->lane, t, s.q, s.d, out.du, tensor(c, weights, RPEXEC_O), false, wide);
    op->attention_backward(c->lane, &s.attention, tape.q, tape.k, tape.v, tape.o, tape.l, wide,
                           out.dq, out.dk, out.dv);
    bool norm = c->model->config->qk_norm;
    turn_back(c, &s, s.heads, norm ? tensor(c, weights, RPEXEC_Q_NORM) : NULL,
              norm ? gradient(c, gradients, RPEXEC_Q_NORM) : NULL, tape.q0, tape.rq, out.dq);
    turn_back(c, &s, s.kv_heads, norm ? tensor(c, weights, RPEXEC_K_NORM) : NULL,
              norm ? gradient(c, gradients, RPEXEC_K_NORM) : NULL, tape.k0, tape.rk, out.dk);
    op->linear_input(c->lane, t, s.d, s.q, out.dq, tensor(c, weights, RPEXEC_Q), false, dn);
    op->linear_input(c->lane, t, s.d, s.kv, out.dk, tensor(c, weights, RPEXEC_K), true, dn);
    op->linear_input(c->lane, t, s.d, s.kv, out.dv, tensor(c, weights, RPEXEC_V), true, dn);
    op->rms_norm_weight(c->lane, t, s.d, x, tape.r1, dn, gradient(c, gradients, RPEXEC_NORM_1));
    if (dx != NULL) {
        op->copy(c->lane, t * s.d, out.du, dx);
        op->rms_norm_input(c->lane, t, s.d, x, tensor(c, weights, RPEXEC_NORM_1), tape.r1, dn, true,
                           dx);
    }
}

void rpexec_block_backward_weight(const rpexec_compute *c, void *g, uint32_t sequences,
                                  const void *tape_base, const void *dy,
                                  const void *weight_tape_base, void *scratch)
{
    const rpexec_operators *op = c->operators;
    sizes s = sizes_here(c, sequences);
    uint64_t bytes;
    uint64_t t = s.tokens;
    block_tape tape = cut_tape(c->model, &s, (void *)(uintptr_t)tape_base, &bytes);
    weight_tape in = cut_weight_tape(c->model, &s, (void *)(uintptr_t)weight_tape_base, &bytes);
    op->swiglu(c->lane, t * s.f, tape.gate, tape.up, scratch);
    op->linear_weight(c->lane, t, s.f, s.d, dy, scratch, gradient(c, g, RPEXEC_DOWN));
    op->linear_weight(c->lane, t, s.d, s.f, in.dgate, tape.n2, gradient(c, g, RPEXEC_GATE));
    op->linear_weight(c->lane, t, s.d, s.f, in.dup, tape.n2, gradient(c, g, RPEXEC_UP));
    op->linear_weight(c->lane, t, s.q, s.d, in.du, tape.o, gradient(c, g, RPEXEC_O));
    op->linear_weight(c->lane, t, s.d, s.q, in.dq, tape.n1, gradient(c, g, RPEXEC_Q));
    op->linear_weight(c->lane, t, s.d, s.kv, in.dk, tape.n1, gradient(c, g, RPEXEC_K));
    op->linear_weight(c->lane, t, s.d, s.kv, in.dv, tape.n1, gradient(c, g, RPEXEC_V));
}
