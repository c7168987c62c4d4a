#include "exec/model/mlp.h"

#include "exec/model/linear.h"

static bool has_experts(const rpexec_model *m)
{
    return m->config->experts > 1;
}

static uint64_t rows_of(const rpexec_model *m, uint64_t tokens)
{
    return has_experts(m) ? tokens * m->config->active_experts : tokens;
}

rpexec_mlp_tape rpexec_mlp_cut_tape(const rpexec_model *m, uint64_t tokens, rpexec_cutter *c)
{
    uint64_t rows = rows_of(m, tokens);
    rpexec_mlp_tape tape = {.gate = rpexec_cut(c, rows * m->config->intermediate)};
    tape.up = rpexec_cut(c, rows * m->config->intermediate);
    for (size_t i = 0; i < 3; i++) {
        tape.h[i] = rpexec_cut(c, rows * m->linears[RPEXEC_GATE + i].rank);
    }
    if (has_experts(m)) {
        uint64_t experts = m->config->experts;
        rpexec_routing *r = &tape.routing;
        r->tokens = tokens;
        r->experts = m->config->experts;
        r->active = m->config->active_experts;
        r->raw = m->config->raw_routing;
        r->probabilities = rpexec_cut_floats(c, tokens * experts);
        r->chosen = rpexec_cut_bytes(c, rows * sizeof *r->chosen);
        r->rows = rpexec_cut_bytes(c, rows * sizeof *r->rows);
        r->weights = rpexec_cut_floats(c, rows);
        r->begins = rpexec_cut_bytes(c, (experts + 1) * sizeof *r->begins);
    }
    return tape;
}

rpexec_mlp_weight_tape rpexec_mlp_cut_weight_tape(const rpexec_model *m, uint64_t tokens,
                                                  rpexec_cutter *c)
{
    uint64_t rows = rows_of(m, tokens);
    rpexec_mlp_weight_tape tape = {.dgate = rpexec_cut(c, rows * m->config->intermediate)};
    tape.dup = rpexec_cut(c, rows * m->config->intermediate);
    for (size_t i = 0; i < 3; i++) {
        tape.dh[i] = rpexec_cut(c, rows * m->linears[RPEXEC_GATE + i].rank);
    }
    tape.dlogits = rpexec_cut(c, has_experts(m) ? tokens * m->config->experts : 0);
    return tape;
}

typedef struct mlp_scratch {
    void *wide;      /* [rows, f] */
    void *gathered;  /* [T k, d]; this and the members below only with experts */
    void *logits;    /* [T, E] */
    float *dweights; /* [T k] */
} mlp_scratch;

static mlp_scratch cut_scratch(const rpexec_model *m, uint64_t tokens, rpexec_cutter *c)
{
    uint64_t rows = rows_of(m, tokens);
    mlp_scratch scratch = {.wide = rpexec_cut(c, rows * m->config->intermediate)};
    if (has_experts(m)) {
        scratch.gathered = rpexec_cut(c, rows * m->config->hidden);
        scratch.logits = rpexec_cut(c, tokens * m->config->experts);
        scratch.dweights = rpexec_cut_floats(c, rows);
    }
    return scratch;
}

uint64_t rpexec_mlp_scratch_bytes(const rpexec_model *m, uint64_t tokens)
{
    rpexec_cutter c = {.dtype = m->dtype};
    (void)cut_scratch(m, tokens, &c);
    return c.used;
}

static mlp_scratch scratch_at(const rpexec_model *m, uint64_t tokens, void *base)
{
    rpexec_cutter c = {.base = base, .dtype = m->dtype};
    return cut_scratch(m, tokens, &c);
}

static rpexec_rows rows_at(const rpexec_model *m, uint64_t tokens, const rpexec_mlp_tape *tape)
{
    return (rpexec_rows){rows_of(m, tokens), has_experts(m) ? &tape->routing : NULL};
}

/* The router's matrix or bias, in an array of the layer. */
static uint64_t router_at(const rpexec_model *m, rpexec_block_tensor which)
{
    return m->block.tensors[m->block_tensors[which]].offset;
}

static void route(const rpexec_compute *c, const void *weights, uint64_t tokens, const void *n,
                  const rpexec_routing *routing, void *logits)
{
    const rpexec_model *m = c->model;
    const void *router = rpexec_element_const(m->dtype, weights, router_at(m, RPEXEC_ROUTER));
    const void *base = NULL;
    if (m->config->expert_bias) {
        c->operators->add_bias(
            c->lane, tokens, m->config->experts,
            rpexec_element_const(m->dtype, weights, router_at(m, RPEXEC_ROUTER_BIAS)), NULL,
            logits);
        base = logits;
    }
    c->operators->linear(c->lane, tokens, m->config->hidden, m->config->experts, n, router, base,
                         logits);
    c->operators->route(c->lane, routing, logits);
}

static void router_weight(const rpexec_compute *c, void *gradients, uint64_t tokens, const void *n,
                          const void *dlogits)
{
    const rpexec_model *m = c->model;
    c->operators->linear_weight(c->lane, tokens, m->config->hidden, m->config->experts, dlogits, n,
                                c->wide,
                                rpexec_gradient(c, gradients, router_at(m, RPEXEC_ROUTER)));
    if (m->config->expert_bias) {
        c->operators->bias_weight(c->lane, tokens, m->config->experts, dlogits, c->wide,
                                  rpexec_gradient(c, gradients, router_at(m, RPEXEC_ROUTER_BIAS)));
    }
}

/* The gate of experts; without expert_bias it has the numbers of SwiGLU. */
static rp_gate gate_of(const rpexec_model *m)
{
    return m->config->expert_bias ? m->config->gate : RP_GATE_SWIGLU;
}

/* Rows of [T, d] for the matrices: gathered if there are experts. */
static const void *gather(const rpexec_compute *c, const rpexec_mlp_tape *tape, const void *x,
                          void *to)
{
    if (!has_experts(c->model)) {
        return x;
    }
    c->operators->gather(c->lane, &tape->routing, c->model->config->hidden, x, to);
    return to;
}

static void gated(const rpexec_compute *c, uint64_t rows, const rpexec_mlp_tape *tape, void *s)
{
    uint32_t f = c->model->config->intermediate;
    if (has_experts(c->model)) {
        const rp_gate gate = gate_of(c->model);
        c->operators->experts_swiglu(c->lane, &tape->routing, f, (float)gate.alpha,
                                     (float)gate.limit, tape->gate, tape->up, s);
    } else {
        (c->model->config->gelu_gate ? c->operators->geglu : c->operators->swiglu)(
            c->lane, rows * f, tape->gate, tape->up, s);
    }
}

void rpexec_mlp_forward(const rpexec_compute *c, const void *weights, uint64_t tokens,
                        const void *n, const void *base, void *y, const rpexec_mlp_tape *tape,
                        void *scratch_base)
{
    const rpexec_operators *op = c->operators;
    const rpexec_model *m = c->model;
    uint32_t d = m->config->hidden;
    rpexec_rows rows = rows_at(m, tokens, tape);
    mlp_scratch scratch = scratch_at(m, tokens, scratch_base);
    if (has_experts(m)) {
        route(c, weights, tokens, n, &tape->routing, scratch.logits);
    }
    const void *x = gather(c, tape, n, scratch.gathered);
    rpexec_linear_forward(c, weights, RPEXEC_GATE, rows, x, NULL, tape->gate, tape->h[0]);
    rpexec_linear_forward(c, weights, RPEXEC_UP, rows, x, NULL, tape->up, tape->h[1]);
    gated(c, rows.count, tape, scratch.wide);
    if (has_experts(m)) {
        rpexec_linear_forward(c, weights, RPEXEC_DOWN, rows, scratch.wide, NULL, scratch.gathered,
                              tape->h[2]);
        if (base != NULL) {
            op->copy(c->lane, tokens * d, base, y);
        }
        op->scatter(c->lane, &tape->routing, d, scratch.gathered, base != NULL, y);
    } else {
        rpexec_linear_forward(c, weights, RPEXEC_DOWN, rows, scratch.wide, base, y, tape->h[2]);
    }
}

void rpexec_mlp_backward_input(const rpexec_compute *c, const void *weights, uint64_t tokens,
                               const void *dy, void *dn, const rpexec_mlp_tape *tape,
                               const rpexec_mlp_weight_tape *out, void *scratch_base)
{
    const rpexec_operators *op = c->operators;
    const rpexec_model *m = c->model;
    uint32_t d = m->config->hidden;
    uint32_t f = m->config->intermediate;
    rpexec_rows rows = rows_at(m, tokens, tape);
    mlp_scratch scratch = scratch_at(m, tokens, scratch_base);
    void *ds = scratch.wide;
    void *dx = has_experts(m) ? scratch.gathered : dn;
    rpexec_linear_input(c, weights, RPEXEC_DOWN, rows, gather(c, tape, dy, scratch.gathered), false,
                        ds, out->dh[2]);
    if (has_experts(m)) {
        const rp_gate gate = gate_of(m);
        op->experts_swiglu_backward(c->lane, &tape->routing, f, (float)gate.alpha,
                                    (float)gate.limit, tape->gate, tape->up, ds, out->dgate,
                                    out->dup, scratch.dweights);
        rpexec_linear_row_weights(c, weights, RPEXEC_DOWN, rows, scratch.gathered,
                                  scratch.dweights);
    } else {
        (m->config->gelu_gate ? op->geglu_backward : op->swiglu_backward)(
            c->lane, rows.count * f, tape->gate, tape->up, ds, out->dgate, out->dup);
    }
    rpexec_linear_input(c, weights, RPEXEC_GATE, rows, out->dgate, false, dx, out->dh[0]);
    rpexec_linear_input(c, weights, RPEXEC_UP, rows, out->dup, true, dx, out->dh[1]);
    if (has_experts(m)) {
        op->scatter(c->lane, &tape->routing, d, dx, false, dn);
        rpexec_all_reduce(c, RP_DTYPE_F32, rows.count, scratch.dweights);
    }
    rpexec_all_reduce(c, m->dtype, tokens * d, dn);
    if (has_experts(m)) { /* the router is whole on every rank */
        const void *router = rpexec_element_const(m->dtype, weights, router_at(m, RPEXEC_ROUTER));
        op->route_backward(c->lane, &tape->routing, scratch.dweights, out->dlogits);
        op->linear_input(c->lane, tokens, d, m->config->experts, out->dlogits, router, true, dn);
    }
}

void rpexec_mlp_backward_weight(const rpexec_compute *c, void *gradients, uint64_t tokens,
                                const void *n, const void *dy, const rpexec_mlp_tape *tape,
                                const rpexec_mlp_weight_tape *in, void *scratch_base)
{
    const rpexec_model *m = c->model;
    rpexec_rows rows = rows_at(m, tokens, tape);
    mlp_scratch scratch = scratch_at(m, tokens, scratch_base);
    gated(c, rows.count, tape, scratch.wide);
    rpexec_linear_weight(c, gradients, RPEXEC_DOWN, rows, gather(c, tape, dy, scratch.gathered),
                         scratch.wide, tape->h[2], in->dh[2]);
    const void *x = gather(c, tape, n, scratch.gathered);
    rpexec_linear_weight(c, gradients, RPEXEC_GATE, rows, in->dgate, x, tape->h[0], in->dh[0]);
    rpexec_linear_weight(c, gradients, RPEXEC_UP, rows, in->dup, x, tape->h[1], in->dh[1]);
    if (has_experts(m) && m->rank == 0) {
        router_weight(c, gradients, tokens, n, in->dlogits);
    }
}
