#include "exec/model/linear.h"

/* A matrix of the layer: W, A or B. */
typedef struct matrix {
    rpexec_matrices sizes;
    uint64_t offset;
} matrix;

static const rpexec_linear *linear_of(const rpexec_compute *c, rpexec_block_tensor which)
{
    return &c->model->linears[which];
}

static matrix w_of(const rpexec_linear *l)
{
    return (matrix){{l->in, l->out, l->weight_stride}, l->weight};
}

static matrix a_of(const rpexec_linear *l)
{
    return (matrix){{l->in, l->rank, l->a_stride}, l->a};
}

static matrix b_of(const rpexec_linear *l)
{
    return (matrix){{l->rank, l->out, l->b_stride}, l->b};
}

/* y = base + x m^T. For gathered rows base must be NULL or y. */
static void forward(const rpexec_compute *c, const void *weights, matrix m, rpexec_rows rows,
                    const void *x, const void *base, void *y)
{
    const void *w = rpexec_element_const(c->model->dtype, weights, m.offset);
    if (rows.routing != NULL) {
        c->operators->experts_linear(c->lane, rows.routing, &m.sizes, x, w, base != NULL, y);
    } else {
        c->operators->linear(c->lane, rows.count, m.sizes.in, m.sizes.out, x, w, base, y);
    }
}

static void backward(const rpexec_compute *c, const void *weights, matrix m, rpexec_rows rows,
                     const void *dy, bool add, void *dx)
{
    const void *w = rpexec_element_const(c->model->dtype, weights, m.offset);
    if (rows.routing != NULL) {
        c->operators->experts_linear_input(c->lane, rows.routing, &m.sizes, dy, w, add, dx);
    } else {
        c->operators->linear_input(c->lane, rows.count, m.sizes.in, m.sizes.out, dy, w, add, dx);
    }
}

static void gradient(const rpexec_compute *c, void *gradients, matrix m, rpexec_rows rows,
                     const void *dy, const void *x)
{
    uint64_t offset = m.offset - c->model->block.frozen;
    void *dw = rpexec_gradient(c, gradients, offset);
    if (rows.routing != NULL) {
        c->operators->experts_linear_weight(c->lane, rows.routing, &m.sizes, dy, x, c->wide, dw);
    } else {
        c->operators->linear_weight(c->lane, rows.count, m.sizes.in, m.sizes.out, dy, x, c->wide,
                                    dw);
    }
}

static const void *bias_of(const rpexec_compute *c, const rpexec_linear *l, const void *weights)
{
    return rpexec_element_const(c->model->dtype, weights, l->bias);
}

/* If each rank has a part of a layer's input, the ranks' outputs are parts of a sum. */
static bool is_part_of_sum(const rpexec_compute *c, rpexec_block_tensor which)
{
    return c->ranks != NULL && (which == RPEXEC_O || which == RPEXEC_DOWN);
}

/* Rows of experts are added up with their tokens' weights, and so are the biases of down. Among
 * ranks only the first adds these biases, as a part of the ranks' sum. */
static bool is_weighted(rpexec_block_tensor which)
{
    return which == RPEXEC_DOWN;
}

static bool adds_bias(const rpexec_compute *c, const rpexec_linear *l, rpexec_block_tensor which)
{
    return l->biased && (!is_part_of_sum(c, which) || (l->experts > 1 && c->ranks->rank == 0));
}

void rpexec_linear_end_sum(const rpexec_compute *c, const void *weights, rpexec_block_tensor which,
                           uint64_t rows, void *y)
{
    const rpexec_linear *l = linear_of(c, which);
    if (l->biased && is_part_of_sum(c, which) && l->experts == 1) {
        c->operators->add_bias(c->lane, rows, l->out, bias_of(c, l, weights), y, y);
    }
}

void rpexec_linear_forward(const rpexec_compute *c, const void *weights, rpexec_block_tensor which,
                           rpexec_rows rows, const void *x, const void *base, void *y, void *h)
{
    const rpexec_linear *l = linear_of(c, which);
    if (adds_bias(c, l, which) && rows.routing != NULL) {
        c->operators->experts_bias(c->lane, rows.routing, l->out, bias_of(c, l, weights),
                                   is_weighted(which), y);
        base = y;
    } else if (adds_bias(c, l, which)) {
        c->operators->add_bias(c->lane, rows.count, l->out, bias_of(c, l, weights), base, y);
        base = y;
    }
    forward(c, weights, w_of(l), rows, x, base, y);
    if (l->rank != 0) {
        forward(c, weights, a_of(l), rows, x, NULL, h);
        c->operators->scale(c->lane, rows.count * l->rank, c->model->adapter_scale, h);
        forward(c, weights, b_of(l), rows, h, y, y);
    }
}

void rpexec_linear_input(const rpexec_compute *c, const void *weights, rpexec_block_tensor which,
                         rpexec_rows rows, const void *dy, bool add, void *dx, void *dh)
{
    const rpexec_linear *l = linear_of(c, which);
    backward(c, weights, w_of(l), rows, dy, add, dx);
    if (l->rank != 0) {
        backward(c, weights, b_of(l), rows, dy, false, dh);
        c->operators->scale(c->lane, rows.count * l->rank, c->model->adapter_scale, dh);
        backward(c, weights, a_of(l), rows, dh, true, dx);
    }
}

void rpexec_linear_row_weights(const rpexec_compute *c, const void *weights,
                               rpexec_block_tensor which, rpexec_rows rows, const void *dy,
                               float *dweights)
{
    const rpexec_linear *l = linear_of(c, which);
    if (adds_bias(c, l, which) && is_weighted(which)) {
        c->operators->experts_bias_input(c->lane, rows.routing, l->out, dy, bias_of(c, l, weights),
                                         dweights);
    }
}

void rpexec_linear_weight(const rpexec_compute *c, void *gradients, rpexec_block_tensor which,
                          rpexec_rows rows, const void *dy, const void *x, const void *h,
                          const void *dh)
{
    const rpexec_linear *l = linear_of(c, which);
    if (c->model->rank == 0) {
        gradient(c, gradients, w_of(l), rows, dy, x);
        if (l->biased && rows.routing != NULL) {
            c->operators->experts_bias_weight(c->lane, rows.routing, l->out, dy, is_weighted(which),
                                              c->wide, rpexec_gradient(c, gradients, l->bias));
        } else if (l->biased) {
            c->operators->bias_weight(c->lane, rows.count, l->out, dy, c->wide,
                                      rpexec_gradient(c, gradients, l->bias));
        }
        return;
    }
    if (l->rank != 0) {
        gradient(c, gradients, a_of(l), rows, dh, x);
        gradient(c, gradients, b_of(l), rows, dy, h);
    }
}
