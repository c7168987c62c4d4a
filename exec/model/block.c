/* u = x + attention(norm(x)), y = u + mlp(norm(u)); with four norms the outputs of attention and
 * MLP are normed before they are added. executor.md section 5. */
#include "exec/model/block.h"

#include "exec/model/linear.h"
#include "exec/model/mlp.h"

/* Sizes of a microbatch in this model; q, kv: values of a row. */
typedef struct sizes {
    uint32_t d, q, kv, heads, kv_heads, head_dim;
    uint64_t tokens;
    bool four_norms;
    bool local; /* the layer has a window, and the rotation of such layers */
    rpexec_attention_sizes attention;
} sizes;

static sizes sizes_of(const rp_model *m, uint64_t tokens, uint32_t sequences, uint32_t seq_len)
{
    return (sizes){.d = m->hidden,
                   .q = m->heads * m->head_dim,
                   .kv = m->kv_heads * m->head_dim,
                   .heads = m->heads,
                   .kv_heads = m->kv_heads,
                   .head_dim = m->head_dim,
                   .tokens = tokens,
                   .four_norms = m->four_norms,
                   .attention = {.sequences = sequences,
                                 .seq_len = seq_len,
                                 .heads = m->heads,
                                 .kv_heads = m->kv_heads,
                                 .head_dim = m->head_dim,
                                 .scale = (float)m->attention_scale,
                                 .cap = (float)m->attention_cap}};
}

static sizes sizes_here(const rpexec_compute *c, uint32_t layer, uint32_t sequences)
{
    uint32_t seq_len = c->model->seq_len;
    sizes s = sizes_of(c->model->config, (uint64_t)sequences * seq_len, sequences, seq_len);
    s.attention.window = rp_model_window(c->model->config, layer - 1);
    s.local = s.attention.window != 0 && c->model->rotary_tables > 1;
    return s;
}

typedef struct block_tape {
    void *n1;      /* norm(x) */
    float *r1;     /* its factors */
    void *q0, *k0; /* before QK-norm */
    float *rq, *rk;
    void *q, *k, *v, *o; /* inputs and output of attention */
    float *l;            /* its logsumexp */
    void *a;             /* attention's output, only with four norms; otherwise u is the sum */
    float *ra;
    void *u, *n2;
    float *r2;
    void *m; /* the MLP's output, only with four norms */
    float *rm;
    void *hq, *hk, *hv, *ho; /* LoRA */
    rpexec_mlp_tape mlp;
} block_tape;

static block_tape cut_tape(const rpexec_model *m, const sizes *s, void *base, uint64_t *bytes_out)
{
    rpexec_cutter c = {.base = base, .dtype = m->dtype};
    uint64_t t = s->tokens;
    block_tape tape = {.n1 = rpexec_cut(&c, t * s->d), .r1 = rpexec_cut_floats(&c, t)};
    tape.q = rpexec_cut(&c, t * s->q);
    tape.k = rpexec_cut(&c, t * s->kv);
    if (m->config->qk_norm) {
        tape.q0 = rpexec_cut(&c, t * s->q);
        tape.k0 = rpexec_cut(&c, t * s->kv);
        tape.rq = rpexec_cut_floats(&c, t * s->heads);
        tape.rk = rpexec_cut_floats(&c, t * s->kv_heads);
    }
    tape.v = rpexec_cut(&c, t * s->kv);
    tape.o = rpexec_cut(&c, t * s->q);
    tape.l = rpexec_cut_floats(&c, t * s->heads);
    tape.u = rpexec_cut(&c, t * s->d);
    tape.n2 = rpexec_cut(&c, t * s->d);
    tape.r2 = rpexec_cut_floats(&c, t);
    tape.a = s->four_norms ? rpexec_cut(&c, t * s->d) : tape.u;
    tape.ra = rpexec_cut_floats(&c, s->four_norms ? t : 0);
    tape.m = rpexec_cut(&c, s->four_norms ? t * s->d : 0);
    tape.rm = rpexec_cut_floats(&c, s->four_norms ? t : 0);
    tape.hq = rpexec_cut(&c, t * m->linears[RPEXEC_Q].rank);
    tape.hk = rpexec_cut(&c, t * m->linears[RPEXEC_K].rank);
    tape.hv = rpexec_cut(&c, t * m->linears[RPEXEC_V].rank);
    tape.ho = rpexec_cut(&c, t * m->linears[RPEXEC_O].rank);
    tape.mlp = rpexec_mlp_cut_tape(m, t, &c);
    *bytes_out = c.used;
    return tape;
}

/* Gradients of the outputs of the matrices. */
typedef struct weight_tape {
    void *dq, *dk, *dv, *du;
    void *da;                    /* of attention's output: equal to du without four norms */
    void *dm;                    /* of the MLP's output, only with four norms */
    void *dhq, *dhk, *dhv, *dho; /* LoRA */
    rpexec_mlp_weight_tape mlp;
} weight_tape;

static weight_tape cut_weight_tape(const rpexec_model *m, const sizes *s, void *base,
                                   uint64_t *bytes_out)
{
    rpexec_cutter c = {.base = base, .dtype = m->dtype};
    uint64_t t = s->tokens;
    weight_tape tape = {.dq = rpexec_cut(&c, t * s->q), .dk = rpexec_cut(&c, t * s->kv)};
    tape.dv = rpexec_cut(&c, t * s->kv);
    tape.du = rpexec_cut(&c, t * s->d);
    tape.da = s->four_norms ? rpexec_cut(&c, t * s->d) : tape.du;
    tape.dm = rpexec_cut(&c, s->four_norms ? t * s->d : 0);
    tape.dhq = rpexec_cut(&c, t * m->linears[RPEXEC_Q].rank);
    tape.dhk = rpexec_cut(&c, t * m->linears[RPEXEC_K].rank);
    tape.dhv = rpexec_cut(&c, t * m->linears[RPEXEC_V].rank);
    tape.dho = rpexec_cut(&c, t * m->linears[RPEXEC_O].rank);
    tape.mlp = rpexec_mlp_cut_weight_tape(m, t, &c);
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
    rpexec_cutter c = {.dtype = model->dtype};
    (void)rpexec_cut(&c, tokens * s.d);
    uint64_t first = c.used;
    uint64_t mlp = rpexec_mlp_scratch_bytes(model, tokens);
    (void)rpexec_cut(&c, tokens * s.q); /* attention uses the same memory after the MLP */
    return c.used - first > mlp ? c.used : first + mlp;
}

static uint64_t offset_of(const rpexec_compute *c, rpexec_block_tensor which)
{
    return c->model->block.tensors[c->model->block_tensors[which]].offset;
}

static const void *tensor(const rpexec_compute *c, const void *array, rpexec_block_tensor which)
{
    return rpexec_element_const(c->model->dtype, array, offset_of(c, which));
}

/* The gradient of a norm's weight, unless it is frozen. */
static void norm_weight(const rpexec_compute *c, void *gradients, rpexec_block_tensor which,
                        uint64_t rows, uint32_t width, const void *x, const float *r,
                        const void *dy)
{
    if (c->model->rank == 0) {
        c->operators->rms_norm_weight(c->lane, rows, width, x, r, dy, c->wide,
                                      rpexec_gradient(c, gradients, offset_of(c, which)));
    }
}

static void rotate(const rpexec_compute *c, const sizes *s, uint32_t heads, bool inverse, void *x)
{
    const rpexec_model *m = c->model;
    const float *cosines = c->rotary != NULL ? c->rotary : m->cosines;
    const float *sines = c->rotary != NULL ? c->rotary + rpexec_model_rotary_values(m) : m->sines;
    uint64_t table = s->local ? rpexec_model_table_values(m) : 0; /* of layers with a window */
    c->operators->rotate(c->lane, s->attention.sequences, s->attention.seq_len, heads, s->head_dim,
                         m->rotated, cosines + table, sines + table, inverse, x);
}

/* Norms (if the model has QK-norm) and rotates queries or keys, from `before` into `x`. */
static void turn(const rpexec_compute *c, const sizes *s, uint32_t heads, const void *weight,
                 void *before, float *r, void *x)
{
    const rpexec_operators *op = c->operators;
    if (weight != NULL) {
        op->rms_norm(c->lane, s->tokens * heads, s->head_dim, (float)c->model->config->norm_eps,
                     c->model->config->shifted_norms, before, weight, x, r);
    }
    rotate(c, s, heads, false, x);
}

static void norm(const rpexec_compute *c, const sizes *s, const void *w, rpexec_block_tensor which,
                 const void *x, void *y, float *r)
{
    const rp_model *m = c->model->config;
    c->operators->rms_norm(c->lane, s->tokens, s->d, (float)m->norm_eps, m->shifted_norms, x,
                           tensor(c, w, which), y, r);
}

static void norm_input(const rpexec_compute *c, const sizes *s, const void *w,
                       rpexec_block_tensor which, const void *x, const float *r, const void *dy,
                       const void *base, void *dx)
{
    c->operators->rms_norm_input(c->lane, s->tokens, s->d, c->model->config->shifted_norms, x,
                                 tensor(c, w, which), r, dy, base, dx);
}

/* The x that the last product of a layer adds, for y = x + the layer's output; or NULL: ranks, each
 * with a part of the output, add x to their sum, and a model with four norms adds it after the
 * norm. */
static const void *base_of_sum(const rpexec_compute *c, const sizes *s, const void *x)
{
    return c->ranks == NULL && !s->four_norms ? x : NULL;
}

/* The end of a layer: its output so far (y itself without four norms), and its norm. */
typedef struct sum_end {
    rpexec_block_tensor layer;
    void *given;
    rpexec_block_tensor norm;
    float *r;
} sum_end;

static void end_sum(const rpexec_compute *c, const sizes *s, const void *w, sum_end end,
                    const void *x, void *y)
{
    rpexec_all_reduce(c, c->model->dtype, s->tokens * s->d, end.given);
    if (s->four_norms) {
        rpexec_linear_end_sum(c, w, end.layer, s->tokens, end.given);
        norm(c, s, w, end.norm, end.given, y, end.r);
        c->operators->add(c->lane, s->tokens * s->d, y, x, y);
    } else if (c->ranks != NULL) {
        c->operators->add(c->lane, s->tokens * s->d, y, x, y);
        rpexec_linear_end_sum(c, w, end.layer, s->tokens, y);
    }
}

static void attention_forward(const rpexec_compute *c, const sizes *s, const void *w, const void *x,
                              const block_tape *tape)
{
    const rpexec_operators *op = c->operators;
    uint64_t t = s->tokens;
    bool qk_norm = c->model->config->qk_norm;
    const rpexec_rows rows = {t, NULL};
    void *q = qk_norm ? tape->q0 : tape->q;
    void *k = qk_norm ? tape->k0 : tape->k;
    norm(c, s, w, RPEXEC_NORM_1, x, tape->n1, tape->r1);
    rpexec_linear_forward(c, w, RPEXEC_Q, rows, tape->n1, NULL, q, tape->hq);
    rpexec_linear_forward(c, w, RPEXEC_K, rows, tape->n1, NULL, k, tape->hk);
    rpexec_linear_forward(c, w, RPEXEC_V, rows, tape->n1, NULL, tape->v, tape->hv);
    turn(c, s, s->heads, qk_norm ? tensor(c, w, RPEXEC_Q_NORM) : NULL, q, tape->rq, tape->q);
    turn(c, s, s->kv_heads, qk_norm ? tensor(c, w, RPEXEC_K_NORM) : NULL, k, tape->rk, tape->k);
    op->attention(c->lane, &s->attention, tape->q, tape->k, tape->v, tape->o, tape->l);
    if (c->model->config->attention_bias) {
        op->join_sinks(c->lane, t, s->heads, s->head_dim, tensor(c, w, RPEXEC_SINKS), tape->o,
                       tape->l);
    }
    const sum_end end = {RPEXEC_O, tape->a, RPEXEC_ATTENTION_NORM, tape->ra};
    rpexec_linear_forward(c, w, RPEXEC_O, rows, tape->o, base_of_sum(c, s, x), tape->a, tape->ho);
    end_sum(c, s, w, end, x, tape->u);
}

void rpexec_block_forward(const rpexec_compute *c, uint32_t layer, const void *weights,
                          uint32_t sequences, const void *x, void *y, void *tape_base,
                          void *scratch)
{
    sizes s = sizes_here(c, layer, sequences);
    uint64_t bytes;
    block_tape tape = cut_tape(c->model, &s, tape_base, &bytes);
    attention_forward(c, &s, weights, x, &tape);
    uint64_t t = s.tokens;
    const sum_end end = {RPEXEC_DOWN, s.four_norms ? tape.m : y, RPEXEC_MLP_NORM, tape.rm};
    norm(c, &s, weights, RPEXEC_NORM_2, tape.u, tape.n2, tape.r2);
    rpexec_cutter rest = {.base = scratch, .dtype = c->model->dtype};
    (void)rpexec_cut(&rest, t * s.d);
    rpexec_mlp_forward(c, weights, t, tape.n2, base_of_sum(c, &s, tape.u), end.given, &tape.mlp,
                       rest.base + rest.used);
    end_sum(c, &s, weights, end, tape.u, y);
}

/* The backward of `turn`, in place. */
static void turn_back(const rpexec_compute *c, const sizes *s, uint32_t heads, const void *w,
                      void *g, rpexec_block_tensor which, const void *before, const float *r,
                      void *dx)
{
    const rpexec_operators *op = c->operators;
    rotate(c, s, heads, true, dx);
    if (c->model->config->qk_norm) {
        norm_weight(c, g, which, s->tokens * heads, s->head_dim, before, r, dx);
        op->rms_norm_input(c->lane, s->tokens * heads, s->head_dim, c->model->config->shifted_norms,
                           before, tensor(c, w, which), r, dx, NULL, dx);
    }
}

void rpexec_block_backward_input(const rpexec_compute *c, uint32_t layer, const void *weights,
                                 void *gradients, uint32_t sequences, const void *x,
                                 const void *tape_base, const void *dy, void *dx,
                                 void *weight_tape_base, void *scratch)
{
    const rpexec_operators *op = c->operators;
    sizes s = sizes_here(c, layer, sequences);
    uint64_t bytes;
    uint64_t t = s.tokens;
    /* The tape is only read: one layout serves both directions. */
    block_tape tape = cut_tape(c->model, &s, (void *)(uintptr_t)tape_base, &bytes);
    weight_tape out = cut_weight_tape(c->model, &s, weight_tape_base, &bytes);
    rpexec_cutter rest = {.base = scratch, .dtype = c->model->dtype};
    void *dn = rpexec_cut(&rest, t * s.d);
    void *wide = rest.base + rest.used; /* scratch of the MLP, then of attention */
    const rpexec_rows rows = {t, NULL};
    if (s.four_norms) {
        norm_input(c, &s, weights, RPEXEC_MLP_NORM, tape.m, tape.rm, dy, NULL, out.dm);
        norm_weight(c, gradients, RPEXEC_MLP_NORM, t, s.d, tape.m, tape.rm, dy);
    }
    rpexec_mlp_backward_input(c, weights, t, s.four_norms ? out.dm : dy, dn, &tape.mlp, &out.mlp,
                              wide);
    norm_input(c, &s, weights, RPEXEC_NORM_2, tape.u, tape.r2, dn, dy, out.du);
    norm_weight(c, gradients, RPEXEC_NORM_2, t, s.d, tape.u, tape.r2, dn);
    if (s.four_norms) {
        norm_input(c, &s, weights, RPEXEC_ATTENTION_NORM, tape.a, tape.ra, out.du, NULL, out.da);
        norm_weight(c, gradients, RPEXEC_ATTENTION_NORM, t, s.d, tape.a, tape.ra, out.du);
    }
    rpexec_linear_input(c, weights, RPEXEC_O, rows, out.da, false, wide, out.dho);
    op->attention_backward(c->lane, &s.attention, tape.q, tape.k, tape.v, tape.o, tape.l, wide,
                           out.dq, out.dk, out.dv);
    if (c->model->config->attention_bias && c->model->rank == 0) {
        op->sinks_weight(c->lane, t, s.heads, s.head_dim, tensor(c, weights, RPEXEC_SINKS), tape.o,
                         tape.l, wide, c->wide,
                         rpexec_gradient(c, gradients, offset_of(c, RPEXEC_SINKS)));
    }
    turn_back(c, &s, s.heads, weights, gradients, RPEXEC_Q_NORM, tape.q0, tape.rq, out.dq);
    turn_back(c, &s, s.kv_heads, weights, gradients, RPEXEC_K_NORM, tape.k0, tape.rk, out.dk);
    rpexec_linear_input(c, weights, RPEXEC_Q, rows, out.dq, false, dn, out.dhq);
    rpexec_linear_input(c, weights, RPEXEC_K, rows, out.dk, true, dn, out.dhk);
    rpexec_linear_input(c, weights, RPEXEC_V, rows, out.dv, true, dn, out.dhv);
    rpexec_all_reduce(c, c->model->dtype, t * s.d, dn);
    norm_weight(c, gradients, RPEXEC_NORM_1, t, s.d, x, tape.r1, dn);
    if (dx != NULL) {
        norm_input(c, &s, weights, RPEXEC_NORM_1, x, tape.r1, dn, out.du, dx);
    }
}

void rpexec_block_backward_weight(const rpexec_compute *c, uint32_t layer, void *g,
                                  uint32_t sequences, const void *tape_base, const void *dy,
                                  const void *weight_tape_base, void *scratch)
{
    sizes s = sizes_here(c, layer, sequences);
    uint64_t bytes;
    uint64_t t = s.tokens;
    block_tape tape = cut_tape(c->model, &s, (void *)(uintptr_t)tape_base, &bytes);
    weight_tape in = cut_weight_tape(c->model, &s, (void *)(uintptr_t)weight_tape_base, &bytes);
    rpexec_cutter rest = {.base = scratch, .dtype = c->model->dtype};
    (void)rpexec_cut(&rest, t * s.d);
    const rpexec_rows rows = {t, NULL};
    rpexec_mlp_backward_weight(c, g, t, tape.n2, s.four_norms ? in.dm : dy, &tape.mlp, &in.mlp,
                               rest.base + rest.used);
    rpexec_linear_weight(c, g, RPEXEC_O, rows, in.da, tape.o, tape.ho, in.dho);
    rpexec_linear_weight(c, g, RPEXEC_Q, rows, in.dq, tape.n1, tape.hq, in.dhq);
    rpexec_linear_weight(c, g, RPEXEC_K, rows, in.dk, tape.n1, tape.hk, in.dhk);
    rpexec_linear_weight(c, g, RPEXEC_V, rows, in.dv, tape.n1, tape.hv, in.dhv);
}
