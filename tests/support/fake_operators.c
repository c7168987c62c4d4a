/* The operators of the fake: each notes its arguments, and is performed by the host's operator when
 * its stream comes to it. Pointers have to be to memory that the stream's device reaches. */
#include "tests/support/fake_cuda_inside.h"

#define UNWRAP(...) __VA_ARGS__

/* An operator `name` with the `parameters` after the lane: the `fields` that note them, how these
 * get their `values`, the `arguments` of the host's operator made of them, and all `pointers`. */
#define OPERATOR(name, parameters, fields, values, arguments, pointers)                            \
    typedef struct name##_call {                                                                   \
        rp_fake_lane *lane;                                                                        \
        UNWRAP fields                                                                              \
    } name##_call;                                                                                 \
    static void run_##name(const void *bytes)                                                      \
    {                                                                                              \
        const name##_call *c = bytes;                                                              \
        rpexec_host_operators[c->lane->host.dtype]->name(&c->lane->host, UNWRAP arguments);        \
    }                                                                                              \
    static void enqueue_##name(rpexec_lane *lane, UNWRAP parameters)                               \
    {                                                                                              \
        rp_fake_lane *fake = (rp_fake_lane *)lane;                                                 \
        const name##_call c = {fake, UNWRAP values};                                               \
        const void *const all[] = {UNWRAP pointers};                                               \
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {                                  \
            rp_fake_require(fake, all[i], #name);                                                  \
        }                                                                                          \
        if (rp_fake_enqueue(fake->stream, run_##name, &c, sizeof c) != 0) {                        \
            fake->status = RP_TOOL;                                                                \
        }                                                                                          \
    }

/* clang-format off */

OPERATOR(rms_norm,
    (uint64_t rows, uint32_t width, float eps, const void *x, const void *weight, void *y,
     float *r),
    (uint64_t rows; uint32_t width; float eps; const void *x; const void *weight; void *y;
     float *r;),
    (rows, width, eps, x, weight, y, r),
    (c->rows, c->width, c->eps, c->x, c->weight, c->y, c->r),
    (x, weight, y, r))
OPERATOR(rms_norm_input,
    (uint64_t rows, uint32_t width, const void *x, const void *weight, const float *r, const
     void *dy, bool add, void *dx),
    (uint64_t rows; uint32_t width; const void *x; const void *weight; const float *r; const
     void *dy; bool add; void *dx;),
    (rows, width, x, weight, r, dy, add, dx),
    (c->rows, c->width, c->x, c->weight, c->r, c->dy, c->add, c->dx),
    (x, weight, r, dy, dx))
OPERATOR(rms_norm_weight,
    (uint64_t rows, uint32_t width, const void *x, const float *r, const void *dy, void
     *dweight),
    (uint64_t rows; uint32_t width; const void *x; const float *r; const void *dy; void
     *dweight;),
    (rows, width, x, r, dy, dweight),
    (c->rows, c->width, c->x, c->r, c->dy, c->dweight),
    (x, r, dy, dweight))
OPERATOR(linear,
    (uint64_t rows, uint32_t in, uint32_t out, const void *x, const void *weight, bool add,
     void *y),
    (uint64_t rows; uint32_t in; uint32_t out; const void *x; const void *weight; bool add;
     void *y;),
    (rows, in, out, x, weight, add, y),
    (c->rows, c->in, c->out, c->x, c->weight, c->add, c->y),
    (x, weight, y))
OPERATOR(linear_input,
    (uint64_t rows, uint32_t in, uint32_t out, const void *dy, const void *weight, bool add,
     void *dx),
    (uint64_t rows; uint32_t in; uint32_t out; const void *dy; const void *weight; bool add;
     void *dx;),
    (rows, in, out, dy, weight, add, dx),
    (c->rows, c->in, c->out, c->dy, c->weight, c->add, c->dx),
    (dy, weight, dx))
OPERATOR(linear_weight,
    (uint64_t rows, uint32_t in, uint32_t out, const void *dy, const void *x, void *dweight),
    (uint64_t rows; uint32_t in; uint32_t out; const void *dy; const void *x; void *dweight;),
    (rows, in, out, dy, x, dweight),
    (c->rows, c->in, c->out, c->dy, c->x, c->dweight),
    (dy, x, dweight))
OPERATOR(rotate,
    (uint32_t sequences, uint32_t seq_len, uint32_t heads, uint32_t head_dim, const float
     *cosines, const float *sines, bool inverse, void *x),
    (uint32_t sequences; uint32_t seq_len; uint32_t heads; uint32_t head_dim; const float
     *cosines; const float *sines; bool inverse; void *x;),
    (sequences, seq_len, heads, head_dim, cosines, sines, inverse, x),
    (c->sequences, c->seq_len, c->heads, c->head_dim, c->cosines, c->sines, c->inverse, c->x),
    (cosines, sines, x))
OPERATOR(attention,
    (const rpexec_attention_sizes *sizes, const void *q, const void *k, const void *v, void *o,
     float *logsumexp),
    (rpexec_attention_sizes sizes; const void *q; const void *k; const void *v; void *o; float
     *logsumexp;),
    (*sizes, q, k, v, o, logsumexp),
    (&c->sizes, c->q, c->k, c->v, c->o, c->logsumexp),
    (q, k, v, o, logsumexp))
OPERATOR(attention_backward,
    (const rpexec_attention_sizes *sizes, const void *q, const void *k, const void *v, const
     void *o, const float *logsumexp, const void *d_o, void *dq, void *dk, void *dv),
    (rpexec_attention_sizes sizes; const void *q; const void *k; const void *v; const void *o;
     const float *logsumexp; const void *d_o; void *dq; void *dk; void *dv;),
    (*sizes, q, k, v, o, logsumexp, d_o, dq, dk, dv),
    (&c->sizes, c->q, c->k, c->v, c->o, c->logsumexp, c->d_o, c->dq, c->dk, c->dv),
    (q, k, v, o, logsumexp, d_o, dq, dk, dv))
OPERATOR(swiglu,
    (uint64_t count, const void *gate, const void *up, void *s),
    (uint64_t count; const void *gate; const void *up; void *s;),
    (count, gate, up, s),
    (c->count, c->gate, c->up, c->s),
    (gate, up, s))
OPERATOR(swiglu_backward,
    (uint64_t count, const void *gate, const void *up, const void *ds, void *dgate, void *dup),
    (uint64_t count; const void *gate; const void *up; const void *ds; void *dgate; void *dup;),
    (count, gate, up, ds, dgate, dup),
    (c->count, c->gate, c->up, c->ds, c->dgate, c->dup),
    (gate, up, ds, dgate, dup))
OPERATOR(add,
    (uint64_t count, const void *a, const void *b, void *y),
    (uint64_t count; const void *a; const void *b; void *y;),
    (count, a, b, y),
    (c->count, c->a, c->b, c->y),
    (a, b, y))
OPERATOR(embed,
    (uint64_t tokens, uint32_t width, const int32_t *ids, const void *table, void *x),
    (uint64_t tokens; uint32_t width; const int32_t *ids; const void *table; void *x;),
    (tokens, width, ids, table, x),
    (c->tokens, c->width, c->ids, c->table, c->x),
    (ids, table, x))
OPERATOR(embed_weight,
    (uint64_t tokens, uint32_t width, const int32_t *ids, const void *dx, void *dtable),
    (uint64_t tokens; uint32_t width; const int32_t *ids; const void *dx; void *dtable;),
    (tokens, width, ids, dx, dtable),
    (c->tokens, c->width, c->ids, c->dx, c->dtable),
    (ids, dx, dtable))
OPERATOR(cross_entropy,
    (uint64_t rows, uint32_t vocab, const int32_t *labels, float scale, void *z, double *loss),
    (uint64_t rows; uint32_t vocab; const int32_t *labels; float scale; void *z; double *loss;),
    (rows, vocab, labels, scale, z, loss),
    (c->rows, c->vocab, c->labels, c->scale, c->z, c->loss),
    (labels, z, loss))
OPERATOR(scale,
    (uint64_t count, float factor, void *x),
    (uint64_t count; float factor; void *x;),
    (count, factor, x),
    (c->count, c->factor, c->x),
    (x))
OPERATOR(route,
    (const rpexec_routing *routing, const void *logits),
    (rpexec_routing routing; const void *logits;),
    (*routing, logits),
    (&c->routing, c->logits),
    (routing->probabilities, routing->chosen, routing->rows, routing->weights, routing->begins,
     logits))
OPERATOR(route_backward,
    (const rpexec_routing *routing, const float *dweights, void *dlogits),
    (rpexec_routing routing; const float *dweights; void *dlogits;),
    (*routing, dweights, dlogits),
    (&c->routing, c->dweights, c->dlogits),
    (routing->probabilities, routing->chosen, routing->rows, routing->weights, routing->begins,
     dweights, dlogits))
OPERATOR(gather,
    (const rpexec_routing *routing, uint32_t width, const void *x, void *y),
    (rpexec_routing routing; uint32_t width; const void *x; void *y;),
    (*routing, width, x, y),
    (&c->routing, c->width, c->x, c->y),
    (routing->probabilities, routing->chosen, routing->rows, routing->weights, routing->begins,
     x, y))
OPERATOR(scatter,
    (const rpexec_routing *routing, uint32_t width, const void *x, bool add, void *y),
    (rpexec_routing routing; uint32_t width; const void *x; bool add; void *y;),
    (*routing, width, x, add, y),
    (&c->routing, c->width, c->x, c->add, c->y),
    (routing->probabilities, routing->chosen, routing->rows, routing->weights, routing->begins,
     x, y))
OPERATOR(experts_linear,
    (const rpexec_routing *routing, const rpexec_matrices *matrices, const void *x, const void
     *weights, bool add, void *y),
    (rpexec_routing routing; rpexec_matrices matrices; const void *x; const void *weights; bool
     add; void *y;),
    (*routing, *matrices, x, weights, add, y),
    (&c->routing, &c->matrices, c->x, c->weights, c->add, c->y),
    (routing->probabilities, routing->chosen, routing->rows, routing->weights, routing->begins,
     x, weights, y))
OPERATOR(experts_linear_input,
    (const rpexec_routing *routing, const rpexec_matrices *matrices, const void *dy, const void
     *weights, bool add, void *dx),
    (rpexec_routing routing; rpexec_matrices matrices; const void *dy; const void *weights;
     bool add; void *dx;),
    (*routing, *matrices, dy, weights, add, dx),
    (&c->routing, &c->matrices, c->dy, c->weights, c->add, c->dx),
    (routing->probabilities, routing->chosen, routing->rows, routing->weights, routing->begins,
     dy, weights, dx))
OPERATOR(experts_linear_weight,
    (const rpexec_routing *routing, const rpexec_matrices *matrices, const void *dy, const void
     *x, void *dweights),
    (rpexec_routing routing; rpexec_matrices matrices; const void *dy; const void *x; void
     *dweights;),
    (*routing, *matrices, dy, x, dweights),
    (&c->routing, &c->matrices, c->dy, c->x, c->dweights),
    (routing->probabilities, routing->chosen, routing->rows, routing->weights, routing->begins,
     dy, x, dweights))
OPERATOR(experts_swiglu,
    (const rpexec_routing *routing, uint32_t width, const void *gate, const void *up, void *s),
    (rpexec_routing routing; uint32_t width; const void *gate; const void *up; void *s;),
    (*routing, width, gate, up, s),
    (&c->routing, c->width, c->gate, c->up, c->s),
    (routing->probabilities, routing->chosen, routing->rows, routing->weights, routing->begins,
     gate, up, s))
OPERATOR(experts_swiglu_backward,
    (const rpexec_routing *routing, uint32_t width, const void *gate, const void *up, const
     void *ds, void *dgate, void *dup, float *dweights),
    (rpexec_routing routing; uint32_t width; const void *gate; const void *up; const void *ds;
     void *dgate; void *dup; float *dweights;),
    (*routing, width, gate, up, ds, dgate, dup, dweights),
    (&c->routing, c->width, c->gate, c->up, c->ds, c->dgate, c->dup, c->dweights),
    (routing->probabilities, routing->chosen, routing->rows, routing->weights, routing->begins,
     gate, up, ds, dgate, dup, dweights))
OPERATOR(zero,
    (uint64_t count, void *x),
    (uint64_t count; void *x;),
    (count, x),
    (c->count, c->x),
    (x))
OPERATOR(copy,
    (uint64_t count, const void *from, void *to),
    (uint64_t count; const void *from; void *to;),
    (count, from, to),
    (c->count, c->from, c->to),
    (from, to))
OPERATOR(adam,
    (const rpexec_adam *adam, uint64_t step, const rpexec_update *update),
    (rpexec_adam adam; uint64_t step; rpexec_update update;),
    (*adam, step, *update),
    (&c->adam, c->step, &c->update),
    (update->master, update->weights, update->gradients, update->m, update->v))

/* clang-format on */

static bool all_finite(rpexec_lane *lane, uint64_t count, const void *x)
{
    rp_fake_lane *fake = (rp_fake_lane *)lane;
    rp_fake_require(fake, x, "finite");
    if (rp_fake_synchronize(fake->stream) != 0) {
        fake->status = RP_TOOL;
        return false;
    }
    return rpexec_host_operators[fake->host.dtype]->finite(&fake->host, count, x);
}

const rpexec_operators rp_fake_operators = {
    .rms_norm = enqueue_rms_norm,
    .rms_norm_input = enqueue_rms_norm_input,
    .rms_norm_weight = enqueue_rms_norm_weight,
    .linear = enqueue_linear,
    .linear_input = enqueue_linear_input,
    .linear_weight = enqueue_linear_weight,
    .rotate = enqueue_rotate,
    .attention = enqueue_attention,
    .attention_backward = enqueue_attention_backward,
    .swiglu = enqueue_swiglu,
    .swiglu_backward = enqueue_swiglu_backward,
    .add = enqueue_add,
    .embed = enqueue_embed,
    .embed_weight = enqueue_embed_weight,
    .cross_entropy = enqueue_cross_entropy,
    .scale = enqueue_scale,
    .route = enqueue_route,
    .route_backward = enqueue_route_backward,
    .gather = enqueue_gather,
    .scatter = enqueue_scatter,
    .experts_linear = enqueue_experts_linear,
    .experts_linear_input = enqueue_experts_linear_input,
    .experts_linear_weight = enqueue_experts_linear_weight,
    .experts_swiglu = enqueue_experts_swiglu,
    .experts_swiglu_backward = enqueue_experts_swiglu_backward,
    .zero = enqueue_zero,
    .copy = enqueue_copy,
    .finite = all_finite,
    .adam = enqueue_adam,
};
