/* Routing and gathered rows: experts without rows, an expert with all rows, ties, NaN. */
#include "exec/cuda/tests/families.h"

#include <math.h>
#include <string.h>

typedef struct sizes {
    uint64_t tokens;
    uint32_t experts;
    uint32_t active;
    uint32_t width;
    uint32_t out;
    bool raw;
    bool add;
    bool clamped; /* gates */
} sizes;

enum { PROBABILITIES, CHOSEN, ROWS, WEIGHTS, BEGINS, FIRST_OTHER };

static rpexec_routing routing_of(const sizes *s, void **p)
{
    return (rpexec_routing){.tokens = s->tokens,
                            .experts = s->experts,
                            .active = s->active,
                            .raw = s->raw,
                            .probabilities = p[PROBABILITIES],
                            .chosen = p[CHOSEN],
                            .rows = p[ROWS],
                            .weights = p[WEIGHTS],
                            .begins = p[BEGINS]};
}

static rpexec_matrices matrices_of(const sizes *s)
{
    return (rpexec_matrices){
        .in = s->width, .out = s->out, .stride = (uint64_t)s->width * s->out + 16};
}

static void route(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    rpexec_routing r = routing_of(context, p);
    op->route(lane, &r, p[FIRST_OTHER]);
}

/* The tensors of a routing, filled by the host from random logits: no bit may differ on the GPU.
 * Experts are uneven: some get no tokens, and with `all` an expert gets nearly all. */
static trial routed(const char *name, rp_dtype dtype, const sizes *s, bool all)
{
    trial t = trial_begin(name, dtype);
    uint64_t rows = s->tokens * s->active;
    uint32_t *zeros;
    (void)rp_arena_alloc(trial_arena, rows + s->experts + 1, sizeof *zeros, &zeros);
    trial_normal(&t, RP_DTYPE_F32, s->tokens * s->experts, 1);
    trial_raw(&t, rows * sizeof *zeros, zeros);
    trial_raw(&t, rows * sizeof *zeros, zeros);
    trial_normal(&t, RP_DTYPE_F32, rows, 1);
    trial_raw(&t, (s->experts + 1) * sizeof *zeros, zeros);
    float *logits;
    (void)rp_arena_alloc(trial_arena, s->tokens * s->experts, sizeof *logits, &logits);
    memcpy(logits, t.tensors[PROBABILITIES].start, s->tokens * s->experts * sizeof *logits);
    for (uint64_t i = 0; i < s->tokens * s->experts; i++) {
        uint64_t expert = i % s->experts;
        logits[i] = expert % 3 == 1 ? -20 : roundf(logits[i] * 4) / 4; /* ties */
        logits[i] = all && expert == 0 && i / s->experts % 14 != 3 ? 30 : logits[i];
    }
    void *host[FIRST_OTHER + 1];
    for (uint32_t i = 0; i < FIRST_OTHER; i++) {
        host[i] = t.tensors[i].start;
    }
    host[FIRST_OTHER] = logits;
    route(s, trial_host_lane(RP_DTYPE_F32), trial_host_table(RP_DTYPE_F32), host);
    for (uint32_t i = 0; i < FIRST_OTHER; i++) {
        memcpy(t.tensors[i].host, t.tensors[i].start, t.tensors[i].bytes);
    }
    return t;
}

/* Rounds values to multiples of a quarter, so that many are equal. */
static void tie(trial_tensor *x)
{
    for (uint64_t i = 0; i < x->count; i++) {
        void *at = rpexec_element(x->dtype, x->start, i);
        float value;
        if (x->dtype == RP_DTYPE_F32) {
            memcpy(&value, at, sizeof value);
            value = roundf(value * 4) / 4;
            memcpy(at, &value, sizeof value);
        } else {
            rpexec_widen(x->dtype, 1, at, &value);
            value = roundf(value * 4) / 4;
            rpexec_narrow(x->dtype, 1, &value, at);
        }
    }
    memcpy(x->host, x->start, x->bytes);
}

static int test_route(rp_dtype dtype, const sizes *s, bool broken)
{
    trial t = routed("route", dtype, s, false);
    uint32_t x = trial_values(&t, s->tokens * s->experts, 2);
    tie(&t.tensors[x]);
    if (broken) { /* a row of NaN still chooses experts */
        memset(t.tensors[x].start, 0xff, s->experts * rp_dtype_bytes(dtype));
        memcpy(t.tensors[x].host, t.tensors[x].start, t.tensors[x].bytes);
        t.tensors[PROBABILITIES].loose = t.tensors[WEIGHTS].loose = 1e-30; /* NaN is NaN */
    }
    return !trial_run(&t, route, s);
}

/* ..., dweights, dlogits. */
static void route_backward(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                           void **p)
{
    rpexec_routing r = routing_of(context, p);
    op->route_backward(lane, &r, p[FIRST_OTHER], p[FIRST_OTHER + 1]);
}

/* ..., x [T, width], rows [T k, width]. */
static void gather(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    rpexec_routing r = routing_of(s, p);
    op->gather(lane, &r, s->width, p[FIRST_OTHER], p[FIRST_OTHER + 1]);
}

static void scatter(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    rpexec_routing r = routing_of(s, p);
    op->scatter(lane, &r, s->width, p[FIRST_OTHER + 1], s->add, p[FIRST_OTHER]);
}

/* ..., gate, up, s; backward: gate, up, ds, dgate, dup, dweights. */
static void swiglu(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    rpexec_routing r = routing_of(s, p);
    void **x = p + FIRST_OTHER;
    op->experts_swiglu(lane, &r, s->width, s->clamped ? 1.702f : 1.0f, s->clamped ? 1.5f : 0.0f,
                       x[0], x[1], x[2]);
}

static void swiglu_backward(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                            void **p)
{
    const sizes *s = context;
    rpexec_routing r = routing_of(s, p);
    void **x = p + FIRST_OTHER;
    op->experts_swiglu_backward(lane, &r, s->width, s->clamped ? 1.702f : 1.0f,
                                s->clamped ? 1.5f : 0.0f, x[0], x[1], x[2], x[3],
                                s->add ? x[2] : x[4], (void *)x[5]);
}

/* ..., bias [E, width], y [T k, width], dweights. `raw`: rows are weighted. */
static void bias(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    rpexec_routing r = routing_of(s, p);
    op->experts_bias(lane, &r, s->width, p[FIRST_OTHER], s->raw, p[FIRST_OTHER + 1]);
}

static void bias_input(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    rpexec_routing r = routing_of(s, p);
    void **x = p + FIRST_OTHER;
    op->experts_bias_input(lane, &r, s->width, x[1], x[0], (void *)x[2]);
}

static void bias_weight(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                        void **p)
{
    const sizes *s = context;
    rpexec_routing r = routing_of(s, p);
    void **x = p + FIRST_OTHER;
    op->experts_bias_weight(lane, &r, s->width, x[1], s->raw, s->add, x[0]);
}

static int test_bias(rp_dtype dtype, const sizes *s, bool all)
{
    static const struct {
        const char *name;
        trial_operator operator;
        uint32_t written;
    } list[] = {{"experts_bias", bias, 1},
                {"experts_bias_input", bias_input, 2},
                {"experts_bias_weight", bias_weight, 0}};
    int failed = 0;
    uint64_t rows = s->tokens * s->active;
    const double lengths[] = {1, s->width, (double)rows};
    for (int i = 0; i < 3; i++) {
        bool wide = list[i].written == 0 && s->add;
        trial t = routed(list[i].name, dtype, s, all);
        trial_normal(&t, wide ? RP_DTYPE_F32 : dtype, (uint64_t)s->experts * s->width, 1);
        trial_values(&t, rows * s->width, 1);
        trial_normal(&t, RP_DTYPE_F32, rows, 1);
        trial_allow(&t, FIRST_OTHER + list[i].written, lengths[i], 0);
        failed += !trial_run(&t, list[i].operator, s);
    }
    return failed;
}

/* ..., x [T k, width], weights, y [T k, out]. */
static void linear(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    rpexec_routing r = routing_of(s, p);
    rpexec_matrices m = matrices_of(s);
    void **x = p + FIRST_OTHER;
    op->experts_linear(lane, &r, &m, x[0], x[1], s->add, x[2]);
}

static void linear_input(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                         void **p)
{
    const sizes *s = context;
    rpexec_routing r = routing_of(s, p);
    rpexec_matrices m = matrices_of(s);
    void **x = p + FIRST_OTHER;
    op->experts_linear_input(lane, &r, &m, x[2], x[1], s->add, x[0]);
}

static void linear_weight(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                          void **p)
{
    const sizes *s = context;
    rpexec_routing r = routing_of(s, p);
    rpexec_matrices m = matrices_of(s);
    void **x = p + FIRST_OTHER;
    op->experts_linear_weight(lane, &r, &m, x[2], x[0], s->add, x[1]);
}

static int test_products_of(rp_dtype dtype, const sizes *s, bool all)
{
    static const struct {
        const char *name;
        trial_operator operator;
        uint32_t written;
    } list[] = {{"experts_linear", linear, 2},
                {"experts_linear_input", linear_input, 0},
                {"experts_linear_weight", linear_weight, 1}};
    int failed = 0;
    uint64_t rows = s->tokens * s->active;
    const double lengths[] = {s->width, s->out, (double)rows};
    for (int i = 0; i < 3; i++) {
        trial t = routed(list[i].name, dtype, s, all);
        trial_values(&t, rows * s->width, 1);
        trial_normal(&t, list[i].written == 1 && s->add ? RP_DTYPE_F32 : dtype,
                     s->experts * matrices_of(s).stride, 1);
        trial_values(&t, rows * s->out, 1);
        trial_allow(&t, FIRST_OTHER + list[i].written, lengths[i], 0);
        failed += !trial_run(&t, list[i].operator, s);
    }
    return failed;
}

static int test_rows(rp_dtype dtype, const sizes *s)
{
    uint64_t rows = s->tokens * s->active;
    trial t = routed("route_backward", dtype, s, false);
    trial_normal(&t, RP_DTYPE_F32, rows, 1);
    trial_allow(&t, trial_values(&t, s->tokens * s->experts, 1), s->active, 0);
    int failed = !trial_run(&t, route_backward, s);
    t = routed("gather", dtype, s, false);
    trial_values(&t, s->tokens * s->width, 1);
    trial_values(&t, rows * s->width, 1);
    failed += !trial_run(&t, gather, s);
    t = routed("scatter", dtype, s, true);
    trial_allow(&t, trial_values(&t, s->tokens * s->width, 1), s->active, 0);
    trial_values(&t, rows * s->width, 1);
    failed += !trial_run(&t, scatter, s);
    t = routed("experts_swiglu", dtype, s, false);
    trial_values(&t, rows * s->width, 2);
    trial_values(&t, rows * s->width, 2);
    trial_allow(&t, trial_values(&t, rows * s->width, 1), 4, 0);
    failed += !trial_run(&t, swiglu, s);
    t = routed("experts_swiglu_backward", dtype, s, false);
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t x = trial_values(&t, rows * s->width, 2);
        if (i >= 2) {
            trial_allow(&t, x, 8, 0);
        }
    }
    trial_allow(&t, trial_normal(&t, RP_DTYPE_F32, rows, 1), s->width, 0);
    return failed + !trial_run(&t, swiglu_backward, s);
}

int test_experts(rp_dtype dtype)
{
    const sizes list[] = {
        {1, 1, 1, 1, 1, false, false, true},    {9, 4, 2, 37, 19, true, true, false},
        {140, 4, 1, 40, 24, false, true, true}, {33, 7, 4, 72, 136, true, true, false},
        {40, 41, 2, 8, 16, true, false, true},  {1024, 128, 8, 256, 192, false, true, false},
    };
    int failed = 0;
    uint32_t count = trial_is_fast() ? 6 : 5;
    for (uint32_t i = 0; i < count; i++) {
        failed += test_route(dtype, &list[i], false) + test_route(dtype, &list[i], true) +
                  test_rows(dtype, &list[i]) + test_products_of(dtype, &list[i], i % 2 == 0) +
                  test_bias(dtype, &list[i], i % 2 == 0);
    }
    return failed;
}
